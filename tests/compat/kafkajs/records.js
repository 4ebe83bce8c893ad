// Records as JSON: bytes in base64, null as null, headers as a list of [name, value].

const toBytes = (text) => (text === null ? null : Buffer.from(text, 'base64'))
const toText = (bytes) => (bytes == null ? null : Buffer.from(bytes).toString('base64'))

// kafkajs takes repeated headers as an array of values.
const toMessage = (record, partition) => {
  const headers = {}
  for (const [name, value] of record.headers) {
    const bytes = toBytes(value)
    headers[name] = name in headers ? [].concat(headers[name], [bytes]) : bytes
  }
  const message = { key: toBytes(record.key), value: toBytes(record.value), headers, partition }
  return record.timestamp === null ? message : { ...message, timestamp: String(record.timestamp) }
}

const fromMessage = (partition, message) => ({
  partition,
  offset: Number(message.offset),
  timestamp: Number(message.timestamp),
  key: toText(message.key),
  value: toText(message.value),
  headers: Object.entries(message.headers || {}).flatMap(([name, value]) =>
    (Array.isArray(value) ? value : [value]).map((one) => [name, toText(one)]),
  ),
})

module.exports = { toMessage, fromMessage }
