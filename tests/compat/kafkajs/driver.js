// Carries out operations: a line {"operation", "arguments"} in, a line {"result"} or {"code",
// "message"} out. Started with the bootstrap address.

const fs = require('fs')
const readline = require('readline')
const { Kafka, logLevel } = require('kafkajs')
const codecs = require('./codecs')

const operations = {
  ...require('./admin'),
  ...require('./consume'),
  ...require('./produce'),
  ...require('./transactions'),
}

// How to prove who one is, from the environment.
const security = () => {
  if (!process.env.QBUS_COMPAT_SECURITY) return {}
  const told = JSON.parse(process.env.QBUS_COMPAT_SECURITY)
  const read = (path) => (path ? fs.readFileSync(path, 'utf8') : undefined)
  const ssl = { ca: [read(told.ca)], cert: read(told.certificate), key: read(told.key) }
  if (!told.mechanism) return { ssl }
  const mechanism = told.mechanism.toLowerCase()
  const sasl =
    mechanism === 'oauthbearer'
      ? { mechanism, oauthBearerProvider: async () => ({ value: told.token }) }
      : { mechanism, username: told.user, password: told.password }
  return { ssl, sasl }
}

const kafka = new Kafka({
  ...security(),
  brokers: [process.argv[2]],
  clientId: 'kafkajs',
  logLevel: logLevel.NOTHING,
  retry: { initialRetryTime: 50, retries: 5 },
})

// The broker's code lies in the error, in its cause, or in one of the errors that it gathers.
const codeOf = (error) => {
  if (error == null) return null
  if (Number.isInteger(error.code)) return error.code
  const { cause, originalError, errors = [], groups = [], partitions = [] } = error
  return [cause, originalError, ...errors, ...groups, ...partitions.map((one) => one.error)]
    .map((one) => (Number.isInteger(one && one.errorCode) ? one.errorCode : codeOf(one)))
    .find((code) => code != null)
}

const carryOut = async (line) => {
  const { operation, arguments: args } = JSON.parse(line)
  try {
    return { result: (await operations[operation](kafka, args)) ?? null }
  } catch (error) {
    return { code: codeOf(error) ?? null, message: error.stack }
  }
}

const main = async () => {
  await codecs.ready
  for await (const line of readline.createInterface({ input: process.stdin })) {
    console.log(JSON.stringify(await carryOut(line)))
  }
  process.exit(0)
}

main()
