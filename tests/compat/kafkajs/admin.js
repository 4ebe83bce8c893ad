// Administration; each operation has an admin client of its own.

const { ConfigResourceTypes } = require('kafkajs')

const withAdmin = (work) => async (kafka, args) => {
  const admin = kafka.admin()
  await admin.connect()
  try {
    return await work(admin, args)
  } finally {
    await admin.disconnect()
  }
}

const failure = (code) => Object.assign(new Error(`code ${code}`), { code })
const entries = (config) => Object.entries(config).map(([name, value]) => ({ name, value }))

const bounds = async (admin, { topic, partition }) => {
  const all = await admin.fetchTopicOffsets(topic)
  const { low, high } = all.find((one) => one.partition === partition)
  return [Number(low), Number(high)]
}

const operations = {
  bounds,

  createTopic: async (admin, { topic, partitions, config }) => {
    const created = await admin.createTopics({
      topics: [
        {
          topic,
          numPartitions: partitions,
          replicationFactor: 1,
          configEntries: entries(config),
        },
      ],
    })
    // It tells only of an existing topic by returning false.
    if (!created) throw failure(36)
  },

  topics: (admin) => admin.listTopics(),

  partitions: async (admin, { topic }) => {
    const { topics } = await admin.fetchTopicMetadata({ topics: [topic] })
    return topics[0].partitions.map(({ partitionId }) => partitionId).sort()
  },

  deleteTopic: (admin, { topic }) => admin.deleteTopics({ topics: [topic] }),

  grow: (admin, { topic, partitions }) =>
    admin.createPartitions({ topicPartitions: [{ topic, count: partitions }] }),

  config: async (admin, { topic }) => {
    const { resources } = await admin.describeConfigs({
      includeSynonyms: false,
      resources: [{ type: ConfigResourceTypes.TOPIC, name: topic }],
    })
    return Object.fromEntries(
      resources[0].configEntries.map(({ configName, configValue }) => [configName, configValue]),
    )
  },

  replaceConfig: (admin, { topic, config }) =>
    admin.alterConfigs({
      validateOnly: false,
      resources: [
        { type: ConfigResourceTypes.TOPIC, name: topic, configEntries: entries(config) },
      ],
    }),

  deleteRecords: async (admin, { topic, partition, before }) => {
    const partitions = [{ partition, offset: String(before) }]
    await bounds(admin, { topic, partition }) // makes it load what it needs to know
    await admin.deleteTopicRecords({ topic, partitions })
    return (await bounds(admin, { topic, partition }))[0]
  },

  offsetForTime: async (admin, { topic, partition, timestamp }) => {
    const all = await admin.fetchTopicOffsetsByTimestamp(topic, timestamp)
    return Number(all.find((one) => one.partition === partition).offset)
  },

  groups: async (admin) => (await admin.listGroups()).groups.map(({ groupId }) => groupId),

  groupState: async (admin, { group }) => {
    const { groups } = await admin.describeGroups([group])
    return groups[0].state
  },

  committed: async (admin, { topic, partition, group }) => {
    const [{ partitions }] = await admin.fetchOffsets({ groupId: group, topics: [topic] })
    return Number(partitions.find((one) => one.partition === partition).offset)
  },

  commitOffset: (admin, { topic, partition, group, offset }) =>
    admin.setOffsets({
      groupId: group,
      topic,
      partitions: [{ partition, offset: String(offset) }],
    }),

  deleteGroup: (admin, { group }) => admin.deleteGroups([group]),

  brokers: async (admin) => {
    const { brokers } = await admin.describeCluster()
    return brokers.map(({ host, port }) => `${host}:${port}`)
  },
}

module.exports = Object.fromEntries(
  Object.entries(operations).map(([name, work]) => [name, withAdmin(work)]),
)
