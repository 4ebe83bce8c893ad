// A group member: started with BOOTSTRAP TOPIC GROUP SESSION_MS HEARTBEAT_MS, it prints each change
// of its assignment and each record that it has committed.

const { Kafka, logLevel } = require('kafkajs')

const [bootstrap, topic, group, session, heartbeat] = process.argv.slice(2)
const tell = (event) => console.log(JSON.stringify(event))

const main = async () => {
  const kafka = new Kafka({ brokers: [bootstrap], clientId: 'kafkajs', logLevel: logLevel.ERROR })
  const consumer = kafka.consumer({
    groupId: group,
    sessionTimeout: Number(session),
    heartbeatInterval: Number(heartbeat),
    maxWaitTimeInMs: 100,
  })
  consumer.on('consumer.group_join', ({ payload: { memberAssignment } }) =>
    tell({ assigned: (memberAssignment[topic] || []).map((partition) => [topic, partition]) }),
  )
  consumer.on('consumer.rebalancing', () => tell({ assigned: [] }))
  process.on('SIGTERM', async () => {
    await consumer.disconnect()
    process.exit(0)
  })
  await consumer.connect()
  await consumer.subscribe({ topic, fromBeginning: true })
  await consumer.run({
    autoCommit: false,
    eachMessage: async ({ partition, message: { offset } }) => {
      const next = String(BigInt(offset) + 1n)
      await consumer.commitOffsets([{ topic, partition, offset: next }])
      tell({ consumed: [partition, Number(offset)] })
    },
  })
}

main()
