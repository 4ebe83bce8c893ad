// A worker as a user of disqueue-node writes it; what it sees goes to stdout as JSON.
'use strict';

const { promisify } = require('util');
const Disqueue = require('disqueue-node');

const [port, queue] = process.argv.slice(2);
const client = new Disqueue({ host: '127.0.0.1', port: Number(port) });
const ask = (name, ...args) => promisify(client[name]).call(client, ...args);

client.on('error', (error) => {
  console.error(error);
  process.exit(1);
});

client.on('connected', async () => {
  const seen = {};
  const first = await ask('addJob', { queue, job: 'one', timeout: 5000, retry: 30, ttl: 600 });
  seen.length = await ask('qlen', queue);
  const [got] = await ask('getJob', { queue, count: 1, withcounters: true });
  seen.got = [got.queue, got.jobId === first, got.body, Number(got.nacks)];
  seen.working = await ask('working', first);
  seen.nacked = await ask('nack', [first]);
  const [again] = await ask('getJob', { queue, count: 1, withcounters: true });
  seen.nacks = Number(again.nacks);
  seen.shown = (await ask('show', first)).state;
  seen.acknowledged = await ask('ackJob', [first]);
  const second = await ask('addJob', { queue, job: 'two', timeout: 5000 });
  seen.dequeued = await ask('dequeue', [second]);
  seen.enqueued = await ask('enqueue', [second]);
  seen.fast = await ask('fastAck', [second]);
  seen.nodes = (await ask('hello', {})).nodeId.length;
  console.log(JSON.stringify(seen));
  process.exit(0);
});
