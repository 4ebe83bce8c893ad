// Loads BullMQ over Redis as main.go loads other peers, with the same commands: HOST:PORT SIZE.
//
// Each worker has connections of its own; all of them share the one thread of this process.
"use strict";

const readline = require("node:readline");
const { performance } = require("node:perf_hooks");
const { setTimeout: sleep } = require("node:timers/promises");
const { Queue, Worker } = require("bullmq");

const GRACE_MS = 10_000;
const CHUNK = 500;
const REMOVED = { removeOnComplete: true };

const [address, size] = [process.argv[2], Number(process.argv[3])];
const [host, port] = address.split(":");
const connection = { host, port: Number(port), maxRetriesPerRequest: null };

let queue;
let added = 0;
let allDone = 0;
let sumAdded = 0;
let sumDone = 0;
let adders = [];
let whenTaken = () => {};
let whenDone = () => {};

// The next job: its number, when it is due (microseconds since the epoch), and filler.
function next(due = 0) {
  added += 1;
  sumAdded += added;
  const text = `${String(added).padStart(12, "0")} ${String(due).padStart(19, "0")} `;
  return text.padEnd(size, "x");
}

const nowUs = () => (performance.timeOrigin + performance.now()) * 1000;

// Those that take jobs. A worker takes all the time while it runs, and runs only once.
async function openTakers() {
  const options = { connection, autorun: false, concurrency: 1 };
  const takers = adders.map(() => new Worker(queue, async (job) => whenTaken(job.data), options));
  for (const taker of takers) taker.on("completed", (job) => whenDone(job.data));
  await Promise.all(takers.map((taker) => taker.waitUntilReady()));
  return takers;
}

// Lets them take jobs until a condition holds or the time is over.
async function takeUntil(takers, condition, lengthMs) {
  const deadline = performance.now() + lengthMs;
  for (const taker of takers) taker.run();
  while (!condition() && performance.now() < deadline) await sleep(5);
  await Promise.all(takers.map((taker) => taker.close()));
}

const commands = {
  async queue(name) {
    [queue, added, allDone, sumAdded, sumDone] = [name, 0, 0, 0, 0];
    return {};
  },

  async open(workers) {
    for (let i = 0; i < workers; i += 1) adders.push(new Queue(queue, { connection }));
    await Promise.all(adders.map((adder) => adder.waitUntilReady()));
    return {};
  },

  async add(seconds) {
    const began = performance.now();
    const before = added;
    await Promise.all(
      adders.map(async (adder) => {
        while (performance.now() - began < seconds * 1000) await adder.add("job", next(), REMOVED);
      }),
    );
    return { jobs: added - before, seconds: (performance.now() - began) / 1000 };
  },

  async work(count, seconds) {
    const takers = await openTakers();
    const began = performance.now();
    let [done, finished] = [0, began];
    whenTaken = () => {};
    whenDone = (body) => {
      done += 1;
      allDone += 1;
      sumDone += Number(body.slice(0, 12));
      finished = performance.now();
    };
    await takeUntil(takers, () => done >= count, seconds * 1000);
    if (allDone >= added && sumAdded !== sumDone) throw new Error("a job was lost, or came twice");
    return { jobs: done, seconds: (finished - began) / 1000 };
  },

  async steady(rate, seconds) {
    const takers = await openTakers();
    const count = Math.floor(rate * seconds);
    const startUs = nowUs() + 100_000;
    const lastUs = startUs + seconds * 1e6 + GRACE_MS * 1000;
    const before = added;
    const late = [];
    whenTaken = (body) => late.push((nowUs() - Number(body.slice(13, 32))) / 1000);
    whenDone = () => {};
    const adding = adders.map(async (adder, place) => {
      for (let i = place; i < count && nowUs() < lastUs; i += adders.length) {
        const due = Math.round(startUs + (i / rate) * 1e6);
        const early = (due - nowUs()) / 1000;
        if (early >= 1) await sleep(early);
        await adder.add("job", next(due), REMOVED);
      }
    });
    await Promise.all([
      takeUntil(takers, () => late.length >= count, seconds * 1000 + GRACE_MS),
      ...adding,
    ]);
    if (!late.length) throw new Error("no job came");
    late.sort((one, other) => one - other);
    return {
      added: added - before,
      jobs: late.length,
      p50_ms: late[Math.floor(late.length / 2)],
      p99_ms: late[Math.floor((late.length * 99) / 100)],
      most_ms: late[late.length - 1],
    };
  },

  async fill(count, seconds) {
    const began = performance.now();
    let filled = 0;
    while (filled < count && performance.now() - began < seconds * 1000) {
      const part = Math.min(CHUNK, count - filled);
      await adders[0].addBulk(
        Array.from({ length: part }, () => ({ name: "job", data: next(), opts: REMOVED })),
      );
      filled += part;
    }
    return { jobs: filled, seconds: (performance.now() - began) / 1000 };
  },

  async close() {
    await Promise.all(adders.map((adder) => adder.close()));
    adders = [];
    return {};
  },
};

async function main() {
  for await (const line of readline.createInterface({ input: process.stdin })) {
    const [command, ...words] = line.split(" ");
    console.log(JSON.stringify(await commands[command](...words)));
  }
  process.exit(0);
}

main();
