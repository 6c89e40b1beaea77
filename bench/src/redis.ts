/** One Redis beside BullMQ, bee-queue and GroupMQ: each measurement has a server of its own, started for it. */
import { fork, type ChildProcess } from 'node:child_process'
import { once } from 'node:events'
import { fileURLToPath } from 'node:url'
import { dueAtOnce } from './due-at-once.js'
import { neotask, PEERS, type AddOptions, type Peer, type Producer } from './redis-peers.js'
import { callsDuring, usageOf, withServer, type BenchServer } from './redis-server.js'
import type { Row } from './suites.js'
import { Deliveries, inLanes, IN_FLIGHT, pause, payload, percentile, rate, type Payload } from './workload.js'

/** What is measured, after the warm-up. */
const COUNT = 30_000
const WARM_UP = 5_000
/** For a peer that would take minutes. */
const FEW = 2000
const BULK = 1000
const PRIORITIES = 10

type Measure = (peer: Peer, server: BenchServer) => Promise<number>

interface Question {
  readonly name: string
  readonly unit: string
  readonly better: Row['better']
  /** The peers that can do it. Default: all. */
  readonly peers?: readonly string[]
  readonly durable?: boolean
}

function row({ peers = Object.keys(PEERS), durable = false, ...row }: Question, measure: Measure): Row {
  const subject = (name: string) => (): Promise<number> =>
    withServer((server) => measure(PEERS[name] as Peer, server), durable)
  return { ...row, subjects: Object.fromEntries(peers.map((name) => [name, subject(name)])) }
}

// -------------------------------------------------------------------------------------------------- workloads

/** Adds `count` tasks and keeps `inFlight` of them on their way. */
async function addAll(
  producer: Producer,
  count: number,
  inFlight: number,
  optionsOf?: (i: number) => AddOptions,
  from = 0,
): Promise<void> {
  await inLanes(from, from + count, inFlight, (i) => producer.add(payload(i), optionsOf?.(i)))
}

async function addInBulk(producer: Producer, count: number): Promise<void> {
  for (let from = 0; from < count; from += BULK) {
    await producer.addMany(Array.from({ length: Math.min(BULK, count - from) }, (_, i) => payload(from + i)))
  }
}

/** Times what a producer does, after some of the same. */
function producing(count: number, add: (producer: Producer, count: number) => Promise<void>): Measure {
  return async (peer, { port }) => {
    const producer = await peer.produce(port)
    await add(producer, WARM_UP)
    const start = performance.now()
    await add(producer, count)
    const ms = performance.now() - start
    await producer.close()
    return rate(count, ms)
  }
}

/** Stores the tasks first, then works them off. */
function drain(concurrency: number, optionsOf?: (i: number) => AddOptions): Measure {
  return async (peer, { port }) => {
    const isSlow = concurrency === 1 && peer === PEERS['GroupMQ']
    const warmUp = isSlow ? 0 : WARM_UP
    const count = warmUp + (isSlow ? FEW : COUNT)
    const producer = await peer.produce(port)
    if (optionsOf === undefined) await addInBulk(producer, count)
    else await addAll(producer, count, IN_FLIGHT, optionsOf)
    const deliveries = new Deliveries(count, warmUp)
    const stop = await peer.work(port, concurrency, ({ i }) => deliveries.count(i))
    await deliveries.complete
    await stop()
    await producer.close()
    deliveries.check()
    return deliveries.rate
  }
}

/** Adds and works at the same time. */
const endToEnd: Measure = async (peer, { port }) => {
  const deliveries = new Deliveries(WARM_UP + COUNT, WARM_UP)
  const stop = await peer.work(port, IN_FLIGHT, ({ i }) => deliveries.count(i))
  const producer = await peer.produce(port)
  await addAll(producer, WARM_UP + COUNT, IN_FLIGHT)
  await deliveries.complete
  await stop()
  await producer.close()
  deliveries.check()
  return deliveries.rate
}

/** Workers in processes of their own. */
class Workers {
  readonly #children: readonly ChildProcess[]

  private constructor(children: readonly ChildProcess[]) {
    this.#children = children
  }

  static async start(
    peer: Peer,
    count: number,
    { port }: BenchServer,
    deliveries: Deliveries,
  ): Promise<Workers> {
    const name = Object.keys(PEERS).find((each) => PEERS[each] === peer) as string
    const program = fileURLToPath(new URL('redis-worker.js', import.meta.url))
    const children = Array.from({ length: count }, () =>
      fork(program, [name, String(port), String(IN_FLIGHT)]),
    )
    await Promise.all(children.map(async (child) => once(child, 'message')))
    for (const child of children) {
      child.on('message', (message) => {
        for (const i of message as number[]) deliveries.count(i)
      })
    }
    return new Workers(children)
  }

  async stop(): Promise<void> {
    const ends = this.#children.map(async (child) => once(child, 'exit'))
    for (const child of this.#children) child.send('stop')
    await Promise.all(ends)
  }
}

/** One process adds, others work. */
function apart(processes: number): Measure {
  return async (peer, server) => {
    const deliveries = new Deliveries(WARM_UP + COUNT, WARM_UP)
    const workers = await Workers.start(peer, processes, server, deliveries)
    const producer = await peer.produce(server.port)
    await addAll(producer, WARM_UP + COUNT, IN_FLIGHT)
    await deliveries.complete
    await workers.stop()
    await producer.close()
    deliveries.check()
    return deliveries.rate
  }
}

/** Submits and awaits the result of each. @returns what `figure` makes of the ms that each took and of their rate */
function submitAndWait(
  count: number,
  inFlight: number,
  figure: (latencies: number[], perSecond: number) => number,
): Measure {
  return async (peer, { port }) => {
    const stop = await peer.work(port, IN_FLIGHT, () => undefined)
    const producer = await peer.produce(port, true)
    const run = async (data: Payload): Promise<number> => {
      if (producer.run === undefined) throw new Error('this peer cannot wait for a result')
      return await producer.run(data)
    }
    const warmUp = Math.floor(count / 6)
    const deliveries = new Deliveries(warmUp + count, warmUp)
    const latencies: number[] = []
    let next = 0
    const lane = async (): Promise<void> => {
      while (next < warmUp + count) {
        const i = next++
        const start = performance.now()
        deliveries.count(await run(payload(i)))
        if (i >= warmUp) latencies.push(performance.now() - start)
      }
    }
    await Promise.all(Array.from({ length: inFlight }, lane))
    await stop()
    await producer.close()
    deliveries.check()
    return figure(latencies, deliveries.rate)
  }
}

/** Offers tasks at a fixed rate, whatever comes of them, after a warm-up. @returns ms from `add` to the handler */
function offered(perSecond: number, count: number, share: number): Measure {
  return async (peer, { port }) => {
    const sentAt = new Float64Array(count)
    const latencies: number[] = []
    const [warm, deliveries] = [new Deliveries(WARM_UP), new Deliveries(count)]
    const handle = ({ i }: Payload): void => {
      if (i < WARM_UP) {
        warm.count(i)
        return
      }
      latencies.push(performance.now() - (sentAt[i - WARM_UP] ?? NaN))
      deliveries.count(i - WARM_UP)
    }
    const stop = await peer.work(port, 10, handle)
    const producer = await peer.produce(port)
    await addAll(producer, WARM_UP, IN_FLIGHT)
    await warm.complete
    await pause(500)
    const adds: Promise<unknown>[] = []
    const start = performance.now()
    for (let i = 0; i < count;) {
      const due = Math.min(count, Math.floor(((performance.now() - start) / 1000) * perSecond))
      for (; i < due; i++) {
        sentAt[i] = performance.now()
        adds.push(producer.add(payload(WARM_UP + i)))
      }
      await pause(1)
    }
    await Promise.all(adds)
    await deliveries.complete
    await stop()
    await producer.close()
    deliveries.check()
    return percentile(latencies, share)
  }
}

const dueAtOnceOn: Measure = (peer, { port }) =>
  dueAtOnce(
    async (handle) => {
      const stop = await peer.work(port, IN_FLIGHT, handle)
      const producer = await peer.produce(port)
      return {
        add: (data, options) => producer.add(data, options),
        close: async () => {
          await stop()
          await producer.close()
        },
      }
    },
    // The others are told a delay, and not an instant.
    peer === PEERS['neotask'] ? 0 : 1,
    4000,
  )

const bytesWaiting: Measure = async (peer, server) => {
  const producer = await peer.produce(server.port)
  // So that scripts and connections are there already.
  await producer.add(payload(0))
  const before = await usageOf(server)
  await addInBulk(producer, COUNT)
  const { memory } = await usageOf(server)
  await producer.close()
  return (memory - before.memory) / COUNT
}

/** What the whole life of one task takes. */
function perTask(of: 'commands' | 'bytes'): Measure {
  return async (peer, server) => {
    const before = await usageOf(server)
    await endToEnd(peer, server)
    const after = await usageOf(server)
    return (after[of] - before[of]) / (WARM_UP + COUNT)
  }
}

const idleCalls: Measure = async (peer, server) => {
  const stop = await peer.work(server.port, 10, () => undefined)
  await pause(2000)
  const calls = await callsDuring(server, () => pause(10_000))
  await stop()
  return calls / 10
}

// ------------------------------------------------------------------------------------------------------- rows

const throughput = { unit: 'tasks/s', better: 'more' } as const
const latency = { unit: 'ms', better: 'less' } as const
const withWait = ['neotask', 'BullMQ', 'bee-queue']
const byPriority = (i: number): AddOptions => ({ priority: i % PRIORITIES })

const addRow = (durable: boolean): Row =>
  row(
    { name: `add, 100 in flight${durable ? ', with AOF' : ''}`, ...throughput, durable },
    producing(COUNT, (producer, count) => addAll(producer, count, IN_FLIGHT)),
  )
const drainRow = (concurrency: number, durable: boolean): Row =>
  row(
    {
      name: `drain 30 000 stored tasks${concurrency === 1 ? ' (GroupMQ 2 000)' : ''}, concurrency ${concurrency}${durable ? ', with AOF' : ''}`,
      ...throughput,
      durable,
    },
    drain(concurrency),
  )
const endToEndRow = (durable: boolean): Row =>
  row(
    {
      name: `end to end, one process, concurrency 100${durable ? ', with AOF' : ''}`,
      ...throughput,
      durable,
    },
    endToEnd,
  )

const prefetchRow: Row = {
  name: 'drain 30 000 stored tasks, concurrency 10, by what is claimed ahead',
  ...throughput,
  subjects: Object.fromEntries(
    (['auto', 1, 20] as const).map((prefetch) => [
      `neotask, prefetch ${prefetch}`,
      () => withServer((server) => drain(10)(neotask(prefetch), server)),
    ]),
  ),
}

/** @param name of the row */
export const dueAtOnceRow = (name: string): Row =>
  // GroupMQ takes minutes for it.
  row({ name, ...latency, peers: withWait }, dueAtOnceOn)

export const redisRows: readonly Row[] = [
  row(
    { name: 'add, one by one', ...throughput },
    producing(3000, (producer, count) => addAll(producer, count, 1)),
  ),
  addRow(false),
  row({ name: 'add, 1 000 in bulk', ...throughput }, producing(COUNT, addInBulk)),
  drainRow(1, false),
  drainRow(10, false),
  drainRow(100, false),
  endToEndRow(false),
  row({ name: 'end to end, a producer and 1 worker process', ...throughput }, apart(1)),
  row({ name: 'end to end, a producer and 3 worker processes', ...throughput }, apart(3)),
  row(
    { name: 'submit and wait, 100 in flight', ...throughput, peers: withWait },
    submitAndWait(20_000, IN_FLIGHT, (_latencies, perSecond) => perSecond),
  ),
  row(
    { name: 'submit and wait, one at a time, p50', ...latency, peers: withWait },
    submitAndWait(2000, 1, (latencies) => percentile(latencies, 0.5)),
  ),
  row(
    { name: 'submit and wait, one at a time, p99', ...latency, peers: withWait },
    submitAndWait(2000, 1, (latencies) => percentile(latencies, 0.99)),
  ),
  row({ name: 'add to start, 500 offered per second, p50', ...latency }, offered(500, 2500, 0.5)),
  row({ name: 'add to start, 500 offered per second, p99', ...latency }, offered(500, 2500, 0.99)),
  row({ name: 'add to start, an idle node, 20 per second, p99', ...latency }, offered(20, 100, 0.99)),
  row(
    {
      name: 'drain 30 000 stored tasks of 10 priorities, concurrency 10',
      ...throughput,
      peers: ['neotask', 'BullMQ'],
    },
    drain(10, byPriority),
  ),
  dueAtOnceRow('10 000 tasks due at one instant, lateness p99'),
  row({ name: 'memory of Redis for a waiting task', unit: 'B', better: 'less' }, bytesWaiting),
  row(
    { name: 'commands of Redis for the life of a task, inside scripts too', unit: '', better: 'less' },
    perTask('commands'),
  ),
  row(
    { name: 'bytes to and from Redis for the life of a task', unit: 'B', better: 'less' },
    perTask('bytes'),
  ),
  row({ name: 'calls of an idle worker', unit: '/s', better: 'less' }, idleCalls),
  prefetchRow,
  addRow(true),
  drainRow(10, true),
  endToEndRow(true),
]
