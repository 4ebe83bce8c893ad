// Consuming. kafkajs knows no assignment without a group: a place is read by joining a group of
// one's own and seeking.

const { randomUUID } = require('crypto')
const { fromMessage } = require('./records')

const WAIT = { maxWaitTimeInMs: 100 }

// Run a consumer until it has read `count` messages that `wanted` accepts; it is `joined` when it
// has its assignment.
const read = async (consumer, topic, count, wanted, joined) => {
  const found = []
  await consumer.connect()
  await consumer.subscribe({ topic, fromBeginning: true })
  await new Promise((resolve, reject) => {
    consumer.on('consumer.group_join', joined)
    consumer.on('consumer.crash', ({ payload }) => payload.restart || reject(payload.error))
    consumer
      .run({
        autoCommit: false,
        eachMessage: async ({ partition, message }) => {
          if (found.length === count || !wanted(partition, message)) return
          found.push(fromMessage(partition, message))
          if (found.length === count) resolve()
        },
      })
      .catch(reject)
  })
  return found
}

const consume = async (kafka, { topic, partition, offset, count }) => {
  const consumer = kafka.consumer({ groupId: randomUUID(), ...WAIT })
  const wanted = (index) => index === partition
  const seek = () => offset >= 0 && consumer.seek({ topic, partition, offset: String(offset) })
  try {
    return await read(consumer, topic, count, wanted, seek)
  } finally {
    await consumer.disconnect()
  }
}

const consumeGroup = async (kafka, { topic, group, count }) => {
  const consumer = kafka.consumer({ groupId: group, ...WAIT })
  try {
    const found = await read(consumer, topic, count, () => true, () => {})
    const ends = new Map(found.map(({ partition, offset }) => [partition, offset + 1]))
    await consumer.commitOffsets(
      [...ends].map(([partition, end]) => ({ topic, partition, offset: String(end) })),
    )
    return found
  } finally {
    await consumer.disconnect()
  }
}

module.exports = { consume, consumeGroup }
