/** Handlers in threads beside pools of threads that keep nothing: what a tiny task costs, and what the loop feels. */
import { monitorEventLoopDelay } from 'node:perf_hooks'
import { TaskPool } from '@neotask/core'
import { Piscina } from 'piscina'
import { Tinypool } from 'tinypool'
import type { Row } from './suites.js'
import handler from './thread-handler.js'
import { Deliveries, payload, rate, type Payload } from './workload.js'

type Data = Payload & { ms?: number }
type Run = (data: Data) => Promise<number>

const THREADS = 2
const COUNT = 50_000
const HEAVY = 8
const HEAVY_MS = 200

const file = new URL('./thread-handler.js', import.meta.url)

/** Each way of running the handler; all threads are warm when it is used. */
const SUBJECTS: Readonly<Record<string, (use: (run: Run) => Promise<number>) => Promise<number>>> = {
  neotask: async (use) => {
    const pool = new TaskPool<Data, number>({ executor: file, threads: { size: THREADS } })
    const run: Run = (data) => pool.run(data)
    await warm(run)
    const figure = await use(run)
    await pool.close()
    return figure
  },
  piscina: async (use) => {
    const pool = new Piscina({ filename: file.href, minThreads: THREADS, maxThreads: THREADS })
    const run: Run = (data) => pool.run(data) as Promise<number>
    await warm(run)
    const figure = await use(run)
    await pool.destroy()
    return figure
  },
  tinypool: async (use) => {
    const options = { minThreads: THREADS, maxThreads: THREADS, isolateWorkers: false }
    const pool = new Tinypool({ filename: file.href, ...options })
    const run: Run = (data) => pool.run(data) as Promise<number>
    await warm(run)
    const figure = await use(run)
    await pool.destroy()
    return figure
  },
  'neotask, handler in the process': async (use) => {
    const pool = new TaskPool({ executor: handler, concurrency: THREADS })
    const run: Run = (data) => pool.run(data)
    await warm(run)
    const figure = await use(run)
    await pool.close()
    return figure
  },
}

async function warm(run: Run): Promise<void> {
  await Promise.all(Array.from({ length: 100 }, (_, i) => run(payload(i))))
}

const subjects = (use: (run: Run) => Promise<number>): Row['subjects'] =>
  Object.fromEntries(Object.entries(SUBJECTS).map(([name, subject]) => [name, () => subject(use)]))

export const threadRows: readonly Row[] = [
  {
    name: 'tiny tasks through 2 threads, 50 000 at once',
    unit: 'tasks/s',
    better: 'more',
    subjects: subjects(async (run) => {
      const deliveries = new Deliveries(COUNT)
      const start = performance.now()
      const results: Promise<number>[] = []
      for (let i = 0; i < COUNT; i++) results.push(run(payload(i)))
      for (const i of await Promise.all(results)) deliveries.count(i)
      const ms = performance.now() - start
      deliveries.check()
      return rate(COUNT, ms)
    }),
  },
  {
    name: 'delay of the event loop while 8 tasks compute 200 ms each on 2 threads, p99',
    unit: 'ms',
    better: 'less',
    subjects: subjects(async (run) => {
      const delay = monitorEventLoopDelay({ resolution: 1 })
      delay.enable()
      await Promise.all(Array.from({ length: HEAVY }, (_, i) => run({ ...payload(i), ms: HEAVY_MS })))
      delay.disable()
      return delay.percentile(99) / 1e6
    }),
  },
]
