/** In memory: the whole life of tasks (record, priority, statistics, a promise of the result) beside plain queues. */
import { createHistogram } from 'node:perf_hooks'
import { TaskPool } from '@neotask/core'
import async from 'async'
import fastq from 'fastq'
import PQueue from 'p-queue'
import type { Row } from './suites.js'
import { Deliveries, heap, pause, payload, percentile, rate, type Payload } from './workload.js'

const COUNT = 300_000
const WORKERS = 10
const PRIORITIES = 10
const WAITING = 200_000
const OFFERED = 1000
/** Seconds in which tasks are offered; those of the first one warm the program up, and are not counted. */
const SECONDS = 6

/** Submits all at once and awaits every result. */
async function wholeLife(submit: (data: Payload) => Promise<number>): Promise<number> {
  const deliveries = new Deliveries(COUNT)
  const start = performance.now()
  const results: Promise<number>[] = []
  for (let i = 0; i < COUNT; i++) results.push(submit(payload(i)))
  for (const i of await Promise.all(results)) deliveries.count(i)
  const ms = performance.now() - start
  deliveries.check()
  return rate(COUNT, ms)
}

async function neotask(
  submit: (pool: TaskPool<Payload, number>, data: Payload) => Promise<number>,
): Promise<number> {
  const pool = new TaskPool({ executor: async (data: Payload) => data.i, concurrency: WORKERS })
  await pool.start()
  const figure = await wholeLife((data) => submit(pool, data))
  await pool.close()
  return figure
}

/**
 * The least that a task with a record can cost: no storage, no retries, no events, nothing but an id, a copy of the
 * data, a place in a queue, two histograms and a promise.
 */
function bareRecords(): (data: Payload) => Promise<number> {
  interface Bare {
    readonly data: Payload
    readonly since: number
    readonly resolve: (result: number) => void
    result: number | undefined
  }
  const records = new Map<string, Bare>()
  const waiting: Bare[] = []
  const waited = createHistogram()
  const ran = createHistogram()
  const handler = async (data: Payload): Promise<number> => data.i
  let running = 0
  let next = 0
  let ids = 0
  const pump = (): void => {
    for (let bare = waiting[next]; running < WORKERS && bare !== undefined; bare = waiting[++next]) {
      running++
      const record = bare
      const start = performance.now()
      waited.record(Math.max(1, Math.round((start - record.since) * 1000)))
      void handler({ ...record.data }).then((result) => {
        ran.record(Math.max(1, Math.round((performance.now() - start) * 1000)))
        running--
        record.result = result
        record.resolve(result)
        pump()
      })
    }
  }
  return (data) =>
    new Promise((resolve) => {
      const record: Bare = { data: { ...data }, since: performance.now(), resolve, result: undefined }
      records.set(`task-${ids++}`, record)
      waiting.push(record)
      if (waiting.length === 1) setImmediate(pump)
    })
}

const wholeLifeRow: Row = {
  name: 'whole life, 300 000 at once, 10 workers, result as a promise',
  unit: 'tasks/s',
  better: 'more',
  subjects: {
    neotask: () => neotask((pool, data) => pool.run(data)),
    'bare records': () => wholeLife(bareRecords()),
    'p-queue': async () => {
      const queue = new PQueue({ concurrency: WORKERS })
      return wholeLife((data) => queue.add(async () => data.i))
    },
    fastq: async () => {
      const queue = fastq.promise(async (data: Payload) => data.i, WORKERS)
      return wholeLife((data) => queue.push(data))
    },
  },
}

const prioritiesRow: Row = {
  name: 'whole life with 10 priorities in turn, 300 000 at once, 10 workers, result as a promise',
  unit: 'tasks/s',
  better: 'more',
  subjects: {
    neotask: () => neotask((pool, data) => pool.run(data, { priority: data.i % PRIORITIES })),
    'p-queue with priorities': async () => {
      const queue = new PQueue({ concurrency: WORKERS })
      return wholeLife((data) => queue.add(async () => data.i, { priority: data.i % PRIORITIES }))
    },
    'async.priorityQueue': async () => {
      const worker = (data: Payload, done: (error: null, i: number) => void): void => {
        void Promise.resolve(data.i).then((i) => {
          done(null, i)
        })
      }
      const queue = async.priorityQueue(worker, WORKERS)
      // Its promise form takes no priority in its types, so the callback makes the promise.
      return wholeLife(
        (data) =>
          new Promise((resolve, reject) => {
            queue.push<number>(data, data.i % PRIORITIES, (error, result) => {
              if (error || result === undefined) reject(error ?? new Error('no result'))
              else resolve(result)
            })
          }),
      )
    },
  },
}

/** Heap bytes for each of many waiting tasks, less those of the payloads alone. */
async function bytesWaiting(fill: (data: Payload[]) => Promise<unknown>): Promise<number> {
  const data = Array.from({ length: WAITING }, (_, i) => ({ i, s: `${i}`.padEnd(100, 'x') }))
  const before = heap()
  const kept = await fill(data)
  const bytes = (heap() - before) / WAITING
  if (kept === undefined) throw new Error('nothing was kept')
  return bytes
}

const bytesRow: Row = {
  name: 'bytes for a waiting task, with its own copy of the payload (112 characters of JSON)',
  unit: 'B',
  better: 'less',
  subjects: {
    neotask: () =>
      bytesWaiting(async (data) => {
        const pool = new TaskPool<Payload, void>({ concurrency: 0 })
        await pool.submitBatch(data.map((each) => ({ data: each })))
        return pool
      }),
    'p-queue': () =>
      bytesWaiting(async (data) => {
        const queue = new PQueue({ concurrency: WORKERS, autoStart: false })
        for (const each of data) void queue.add(async () => JSON.stringify(each))
        return queue
      }),
    fastq: () =>
      bytesWaiting(async (data) => {
        const queue = fastq.promise(async (each: Payload) => each.i, WORKERS)
        queue.pause()
        for (const each of data) void queue.push({ ...each })
        return queue
      }),
  },
}

/** Offers tasks at a fixed rate, whatever comes of them. @returns ms from submit to start, p99 */
async function startLatency(submit: (at: number, started: (at: number) => void) => unknown): Promise<number> {
  const latencies: number[] = []
  const start = performance.now()
  const count = OFFERED * SECONDS
  for (let offered = 0; offered < count;) {
    const due = Math.min(count, Math.floor(((performance.now() - start) / 1000) * OFFERED))
    for (; offered < due; offered++) submit(performance.now(), (at) => latencies.push(performance.now() - at))
    await pause(1)
  }
  await pause(100)
  if (latencies.length !== count) throw new Error(`${latencies.length} of ${count} were delivered`)
  return percentile(latencies.slice(OFFERED), 0.99)
}

const latencyRow: Row = {
  name: 'submit to start, 1 000 offered per second, after a second of them, p99',
  unit: 'ms',
  better: 'less',
  subjects: {
    neotask: async () => {
      let started: (at: number) => void = () => {}
      const pool = new TaskPool({ executor: (at: number) => started(at), concurrency: WORKERS })
      await pool.start()
      const figure = await startLatency((at, heard) => {
        started = heard
        return pool.submit(at)
      })
      await pool.close()
      return figure
    },
    'p-queue': async () => {
      const queue = new PQueue({ concurrency: WORKERS })
      return startLatency((at, heard) => queue.add(async () => heard(at)))
    },
  },
}

export const memoryRows: readonly Row[] = [wholeLifeRow, prioritiesRow, bytesRow, latencyRow]
