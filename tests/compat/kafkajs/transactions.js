// Transactions; producers are kept by name, each with the transaction that it has begun.

const { randomUUID } = require('crypto')

const producers = new Map()

const open = async (kafka, { producer, transactionalId, timeoutMs }) => {
  const made = kafka.producer({
    transactionalId,
    transactionTimeout: timeoutMs,
    maxInFlightRequests: 1,
    idempotent: true,
  })
  await made.connect()
  // It initialises with its first transaction, which sends nothing if it is aborted at once.
  await (await made.transaction()).abort()
  producers.set(producer, { made })
}

const begin = async (kafka, { producer }) => {
  const held = producers.get(producer)
  held.transaction = await held.made.transaction()
}

const send = (kafka, { producer, topic, partition, values }) =>
  producers.get(producer).transaction.send({
    topic,
    messages: values.map((value) => ({ value, partition })),
  }).then(() => null)

const sendOffsets = (kafka, { producer, group, offsets }) =>
  producers.get(producer).transaction.sendOffsets({
    consumerGroupId: group,
    topics: offsets.map(([topic, partition, offset]) => ({
      topic,
      partitions: [{ partition, offset: String(offset) }],
    })),
  })

const commit = (kafka, { producer }) => producers.get(producer).transaction.commit()
const abort = (kafka, { producer }) => producers.get(producer).transaction.abort()

// It ends no transaction: kafkajs forgets it.
const close = async (kafka, { producer }) => {
  await producers.get(producer).made.disconnect()
  producers.delete(producer)
}

const read = async (kafka, { topic, partition, count, committed }) => {
  const consumer = kafka.consumer({
    groupId: randomUUID(),
    readUncommitted: !committed,
    maxWaitTimeInMs: 100,
  })
  const found = []
  try {
    await consumer.connect()
    await consumer.subscribe({ topic, fromBeginning: true })
    await new Promise((resolve, reject) => {
      const late = setTimeout(() => reject(new Error(`only ${found.length} records came`)), 30000)
      consumer.on('consumer.crash', ({ payload }) => payload.restart || reject(payload.error))
      consumer
        .run({
          autoCommit: false,
          eachMessage: async ({ partition: index, message }) => {
            if (index !== partition || found.length === count) return
            found.push([Number(message.offset), message.value.toString()])
            if (found.length < count) return
            clearTimeout(late)
            resolve()
          },
        })
        .catch(reject)
    })
    return found
  } finally {
    await consumer.disconnect()
  }
}

const copy = async (kafka, { source, target, group, count }) => {
  const consumer = kafka.consumer({ groupId: group, maxWaitTimeInMs: 100 })
  const producer = kafka.producer({
    transactionalId: `copy-${group}`,
    maxInFlightRequests: 1,
    idempotent: true,
  })
  let left = count
  try {
    await producer.connect()
    await consumer.connect()
    await consumer.subscribe({ topic: source, fromBeginning: true })
    await new Promise((resolve, reject) => {
      consumer.on('consumer.crash', ({ payload }) => payload.restart || reject(payload.error))
      consumer
        .run({
          autoCommit: false,
          eachBatchAutoResolve: false,
          eachBatch: async ({ batch: { partition, messages }, resolveOffset }) => {
            if (messages.length === 0) return
            const last = messages[messages.length - 1].offset
            const transaction = await producer.transaction()
            await transaction.send({
              topic: target,
              messages: messages.map(({ value }) => ({ value, partition })),
            })
            const next = String(BigInt(last) + 1n)
            await transaction.sendOffsets({
              consumerGroupId: group,
              topics: [{ topic: source, partitions: [{ partition, offset: next }] }],
            })
            await transaction.commit()
            resolveOffset(last)
            left -= messages.length
            if (left <= 0) resolve()
          },
        })
        .catch(reject)
    })
  } finally {
    await consumer.disconnect()
    await producer.disconnect()
  }
}

module.exports = { open, begin, send, sendOffsets, commit, abort, close, read, copy }
