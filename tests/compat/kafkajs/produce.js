// Producing; each operation has a producer of its own.

const codecs = require('./codecs')
const { toMessage } = require('./records')

const ACKS = { 0: 0, 1: 1, all: -1 }

const produce = async (kafka, { topic, records, partition, compression, acks, idempotent }) => {
  const producer = kafka.producer({ idempotent })
  await producer.connect()
  try {
    const [result] = await producer.send({
      topic,
      acks: ACKS[acks],
      compression: codecs.types[compression],
      messages: records.map((record) => toMessage(record, partition)),
    })
    return result === undefined ? null : Number(result.baseOffset)
  } finally {
    await producer.disconnect()
  }
}

module.exports = { produce }
