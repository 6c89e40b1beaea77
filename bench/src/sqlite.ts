/** SQLite (WAL, synchronous NORMAL) beside plainjob and beside what better-sqlite3 itself can do. */
import { TaskPool } from '@neotask/core'
import { sqliteStorage } from '@neotask/storage-sqlite'
import Database from 'better-sqlite3'
import { better, defineQueue, defineWorker, type Queue } from 'plainjob'
import { inFile } from './sqlite-file.js'
import type { Row } from './suites.js'
import { Deliveries, inLanes, IN_FLIGHT, pause, payload, percentile, rate, type Payload } from './workload.js'

const COUNT = 100_000
/** Tasks that warm the program up, and are not counted. */
const WARM_UP = 200

const silent = { error() {}, warn() {}, info() {}, debug() {} }

function plainQueue(path: string): Queue {
  return defineQueue({ connection: better(new Database(path)), logger: silent })
}

/** Keeps `IN_FLIGHT` submits in flight until all are stored. @returns ms */
async function submitAll(pool: TaskPool<Payload>): Promise<number> {
  const start = performance.now()
  await inLanes(0, COUNT, IN_FLIGHT, (i) => pool.submit(payload(i)))
  return performance.now() - start
}

const submitRow: Row = {
  name: 'submit, 100 in flight, each acknowledged after its commit, 100 000 tasks',
  unit: 'tasks/s',
  better: 'more',
  subjects: {
    neotask: () =>
      inFile(async (path) => {
        const storage = sqliteStorage(path)
        const pool = new TaskPool<Payload, unknown>({ storage, concurrency: 0 })
        const ms = await submitAll(pool)
        const { pending } = await pool.counts()
        if (pending !== COUNT) throw new Error(`${pending} of ${COUNT} are stored`)
        await pool.close()
        await storage.close()
        return rate(COUNT, ms)
      }),
    'plainjob add': () =>
      inFile(async (path) => {
        const queue = plainQueue(path)
        const start = performance.now()
        for (let i = 0; i < COUNT; i++) queue.add('job', payload(i))
        const ms = performance.now() - start
        if (queue.countJobs() !== COUNT) throw new Error('not all are stored')
        queue.close()
        return rate(COUNT, ms)
      }),
    'bare insert, 100 in a transaction': () =>
      inFile(async (path) => {
        const database = new Database(path)
        database.pragma('journal_mode = WAL')
        database.pragma('synchronous = NORMAL')
        database.exec('CREATE TABLE tasks (id INTEGER PRIMARY KEY, payload TEXT)')
        const insert = database.prepare('INSERT INTO tasks (payload) VALUES (?)')
        const insertMany = database.transaction((from: number) => {
          for (let i = from; i < from + IN_FLIGHT; i++) insert.run(JSON.stringify(payload(i)))
        })
        const start = performance.now()
        for (let i = 0; i < COUNT; i += IN_FLIGHT) insertMany(i)
        const ms = performance.now() - start
        database.close()
        return rate(COUNT, ms)
      }),
  },
}

const processRow: Row = {
  name: 'process 100 000 stored tasks, no-op handler, 10 workers',
  unit: 'tasks/s',
  better: 'more',
  subjects: {
    neotask: () =>
      inFile(async (path) => {
        const storage = sqliteStorage(path)
        const producer = new TaskPool<Payload, unknown>({ storage, concurrency: 0 })
        await submitAll(producer)
        const deliveries = new Deliveries(COUNT)
        const pool = new TaskPool({ storage, executor: async (data: Payload) => deliveries.count(data.i) })
        const start = performance.now()
        await pool.start()
        await deliveries.complete
        await pool.drain()
        const ms = performance.now() - start
        deliveries.check()
        await pool.close()
        await producer.close()
        await storage.close()
        return rate(COUNT, ms)
      }),
    'plainjob process': () =>
      inFile(async (path) => {
        const queue = plainQueue(path)
        queue.addMany(
          'job',
          Array.from({ length: COUNT }, (_, i) => payload(i)),
        )
        const deliveries = new Deliveries(COUNT)
        const worker = defineWorker(
          'job',
          async ({ data }) => deliveries.count((JSON.parse(data) as Payload).i),
          { queue, logger: silent },
        )
        const start = performance.now()
        void worker.start()
        await deliveries.complete
        const ms = performance.now() - start
        deliveries.check()
        await worker.stop()
        queue.close()
        return rate(COUNT, ms)
      }),
  },
}

const latencyRow: Row = {
  name: 'idle pool, submit to start, one at a time, after 200 of them, p99',
  unit: 'ms',
  better: 'less',
  subjects: {
    neotask: () =>
      inFile(async (path) => {
        const latencies: number[] = []
        const storage = sqliteStorage(path)
        const pool = new TaskPool({
          storage,
          executor: (at: number) => latencies.push(performance.now() - at),
        })
        await pool.start()
        for (let i = 0; i < WARM_UP + 1000; i++) {
          await pool.run(performance.now())
          await pause(2)
        }
        await pool.close()
        await storage.close()
        return percentile(latencies.slice(WARM_UP), 0.99)
      }),
  },
}

const startRow: Row = {
  name: 'open a file with 100 000 waiting tasks, to the first handler',
  unit: 'ms',
  better: 'less',
  subjects: {
    neotask: () =>
      inFile(async (path) => {
        const filled = sqliteStorage(path)
        const producer = new TaskPool<Payload, unknown>({ storage: filled, concurrency: 0 })
        await submitAll(producer)
        await producer.close()
        await filled.close()
        const start = performance.now()
        const storage = sqliteStorage(path)
        let begun: (ms: number) => void = () => {}
        const first = new Promise<number>((resolve) => (begun = resolve))
        const pool = new TaskPool({
          storage,
          executor: (_data: Payload) => begun(performance.now() - start),
        })
        await pool.start()
        const ms = await first
        await pool.close()
        await storage.close()
        return ms
      }),
    'plainjob process': () =>
      inFile(async (path) => {
        const filled = plainQueue(path)
        filled.addMany(
          'job',
          Array.from({ length: COUNT }, (_, i) => payload(i)),
        )
        filled.close()
        const start = performance.now()
        const queue = plainQueue(path)
        let begun: (ms: number) => void = () => {}
        const first = new Promise<number>((resolve) => (begun = resolve))
        const worker = defineWorker('job', async () => begun(performance.now() - start), {
          queue,
          logger: silent,
        })
        void worker.start()
        const ms = await first
        await worker.stop()
        queue.close()
        return ms
      }),
  },
}

export const sqliteRows: readonly Row[] = [submitRow, processRow, latencyRow, startRow]
