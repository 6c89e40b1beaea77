/**
 * What timers, delays and schedules cost, and how late they are. Lateness is from the slot to the call of the handler, by the
 * clock of this machine, which is the storage's too; a task that runs before its time fails the run.
 */
import { openStorage, systemClock, TaskPool, type Storage, type Timer } from '@neotask/core'
import { TimeWheel } from '@neotask/core/tier'
import { TaskScheduler } from '@neotask/scheduler'
import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { dueAtOnceRow } from './redis.js'
import { withServer } from './redis-server.js'
import type { Row } from './suites.js'
import { Deliveries, pause, payload, percentile, rate, type Payload } from './workload.js'

const TIMERS = 1_000_000
const MANY = 100_000
const AT_ONCE = 10_000
const CONCURRENCY = 100
/** Schedules that fire once a second each, one after the other, and for how long. */
const SPREAD = 1000
const SECONDS = 10
const IN_FLIGHT = 500
const SECOND = 1000

// ---------------------------------------------------------------------------------------------------- timers

interface Timers {
  add(delay: number): void
  cancelAll(): void
}

function wheel(): Timers {
  const timers: Timer[] = []
  const wheel = new TimeWheel(systemClock, () => {})
  return {
    add: (delay) => void timers.push(wheel.add(delay, NOTHING)),
    cancelAll: () => {
      for (const timer of timers) timer.cancel()
    },
  }
}

function node(): Timers {
  const timers: NodeJS.Timeout[] = []
  return {
    add: (delay) => void timers.push(setTimeout(NOTHING, delay)),
    cancelAll: () => {
      for (const timer of timers) clearTimeout(timer)
    },
  }
}

const NOTHING = (): void => {}

/** Delays from 10 s to an hour, so that none fires meanwhile: many are equal, as they are in a program. */
const delays = (): Int32Array =>
  Int32Array.from({ length: TIMERS }, (_, i) => 10_000 + ((i * 7919) % 3_590_000))

/** @returns ns for each, with all of them pending */
async function timing(of: 'add' | 'cancel', make: () => Timers): Promise<number> {
  const all = delays()
  const timers = make()
  const first = performance.now()
  for (const delay of all) timers.add(delay)
  const added = performance.now()
  timers.cancelAll()
  const cancelled = performance.now()
  return ((of === 'add' ? added - first : cancelled - added) * 1e6) / TIMERS
}

/** @returns bytes that each of them takes */
async function size(make: () => Timers): Promise<number> {
  const all = delays()
  const before = heap()
  const timers = make()
  for (const delay of all) timers.add(delay)
  const after = heap()
  timers.cancelAll()
  // The array of the timers themselves is this program's.
  return (after - before) / TIMERS - 8
}

function heap(): number {
  globalThis.gc?.()
  return process.memoryUsage().heapUsed
}

// -------------------------------------------------------------------------------------------------- storages

type Place = 'memory' | 'sqlite' | 'redis'

async function withStorage<T>(place: Place, use: (storage: Storage) => Promise<T>): Promise<T> {
  if (place === 'redis') {
    return await withServer(async ({ port }) => await withUrl(`redis://127.0.0.1:${port}`, use))
  }
  if (place === 'memory') return await withUrl('memory:', use)
  const folder = await mkdtemp(join(tmpdir(), 'neotask-bench-'))
  try {
    return await withUrl(`sqlite:${join(folder, 'tasks.db')}`, use)
  } finally {
    await rm(folder, { recursive: true, force: true })
  }
}

async function withUrl<T>(url: string, use: (storage: Storage) => Promise<T>): Promise<T> {
  const storage = await openStorage(url)
  await storage.open()
  try {
    return await use(storage)
  } finally {
    await storage.close()
  }
}

/** Calls `action` for 0 to count − 1, with so many of them under way. */
async function forEach(count: number, action: (i: number) => Promise<unknown>): Promise<void> {
  let next = 0
  const lane = async (): Promise<void> => {
    while (next < count) await action(next++)
  }
  await Promise.all(Array.from({ length: IN_FLIGHT }, lane))
}

function p99(lateness: readonly number[]): number {
  // Both clocks count in whole ms.
  if (Math.min(...lateness) < 0) throw new Error('a task ran before its time')
  return percentile([...lateness], 0.99)
}

// ------------------------------------------------------------------------------------------------- workloads

/** @returns schedules created in a second */
async function creating(storage: Storage): Promise<number> {
  const pool = new TaskPool<Payload>({ storage, concurrency: 0 })
  const scheduler = new TaskScheduler(pool)
  await pool.start()
  const start = performance.now()
  await forEach(MANY, (i) => scheduler.submitInterval(payload(i), '1h', { id: `s${i}` }))
  const perSecond = rate(MANY, performance.now() - start)
  await pool.close()
  return perSecond
}

/** @returns ms of CPU that a second takes with so many schedules of which none is due */
async function idle(storage: Storage): Promise<number> {
  const pool = new TaskPool<Payload>({ storage, concurrency: 0 })
  const scheduler = new TaskScheduler(pool)
  await pool.start()
  await forEach(MANY, (i) => scheduler.submitInterval(payload(i), '1h', { id: `s${i}` }))
  await pause(2 * SECOND)
  const before = process.cpuUsage()
  await pause(SECONDS * SECOND)
  const { user, system } = process.cpuUsage(before)
  await pool.close()
  return (user + system) / 1000 / SECONDS
}

/** @returns ms by which tasks that are due at one instant are late, p99 */
async function tasksAtOnce(storage: Storage): Promise<number> {
  const lateness: number[] = []
  const deliveries = new Deliveries(AT_ONCE)
  let at = 0
  const pool = new TaskPool({
    storage,
    concurrency: CONCURRENCY,
    executor: ({ i }: Payload): void => {
      lateness.push(Date.now() - at)
      deliveries.count(i)
    },
  })
  const scheduler = new TaskScheduler(pool)
  await pool.start()
  at = Date.now() + 4 * SECOND
  await forEach(AT_ONCE, (i) => scheduler.submitAt(payload(i), at))
  if (Date.now() > at - 200) throw new Error('the tasks were not stored in time')
  await deliveries.complete
  deliveries.check()
  await pool.close()
  return p99(lateness)
}

/** @returns ms by which the tasks of as many cron schedules, no two alike, are late at an instant that all have, p99 */
async function schedulesAtOnce(storage: Storage): Promise<number> {
  const lateness: number[] = []
  const deliveries = new Deliveries(AT_ONCE)
  let at = Infinity
  const pool = new TaskPool({
    storage,
    concurrency: CONCURRENCY,
    executor: ({ i }: Payload, ctx): void => {
      if (Number(ctx.id.split('~')[1]) !== at) return
      lateness.push(Date.now() - at)
      deliveries.count(i)
    },
  })
  const scheduler = new TaskScheduler(pool)
  await pool.start()
  at = Math.ceil(Date.now() / SECOND) * SECOND + 20 * SECOND
  const date = new Date(at)
  const [second, minute] = [date.getUTCSeconds(), date.getUTCMinutes()]
  await forEach(AT_ONCE, (i) => {
    // The instant, and another second and minute of their own that are over by then.
    const before = `${(second + 30 + (i % 20)) % 60},${second}`
    const expression = `${before} ${(minute + 10 + Math.floor(i / 250)) % 60},${minute} ${i % 250 < 125 ? '*' : '*/1'} * * *`
    return scheduler.submitCron(payload(i), expression, { id: `s${i}`, start: at - 500 })
  })
  if (Date.now() > at - SECOND) throw new Error('the schedules were not stored in time')
  await deliveries.complete
  deliveries.check()
  await pool.close()
  return p99(lateness)
}

/** @returns ms by which tasks of schedules are late that come one after the other, p99 */
async function spread(storage: Storage): Promise<number> {
  const lateness: number[] = []
  let from = Infinity
  const pool = new TaskPool({
    storage,
    concurrency: CONCURRENCY,
    executor: (_: Payload, ctx): void => {
      const slot = Number(ctx.id.split('~')[1])
      // The first second warms up.
      if (slot >= from + SECOND) lateness.push(Date.now() - slot)
    },
  })
  const scheduler = new TaskScheduler(pool)
  await pool.start()
  from = Math.ceil(Date.now() / SECOND) * SECOND + 4 * SECOND
  const end = from + (SECONDS + 1) * SECOND - 1
  await forEach(SPREAD, (i) => {
    return scheduler.submitInterval(payload(i), '1s', {
      id: `s${i}`,
      start: from + (i * SECOND) / SPREAD,
      end,
    })
  })
  if (Date.now() > from - 200) throw new Error('the schedules were not stored in time')
  await pause(end + 2 * SECOND - Date.now())
  await pool.close()
  if (lateness.length !== SPREAD * SECONDS) throw new Error(`${lateness.length} slots were fired`)
  return p99(lateness)
}

// ------------------------------------------------------------------------------------------------------ rows

const latency = { unit: 'ms', better: 'less' } as const

const timerRow = (name: string, unit: string, measure: (make: () => Timers) => Promise<number>): Row => ({
  name: `${name}, 1 000 000 pending`,
  unit,
  better: 'less',
  subjects: { TimeWheel: () => measure(wheel), setTimeout: () => measure(node) },
})

function placesRow(
  name: string,
  places: readonly Place[],
  unit: Pick<Row, 'unit' | 'better'>,
  measure: (storage: Storage) => Promise<number>,
): Row {
  const subjects = places.map((place) => [`neotask, ${place}`, () => withStorage(place, measure)])
  return { name, ...unit, subjects: Object.fromEntries(subjects) as Row['subjects'] }
}

const ALL: readonly Place[] = ['memory', 'sqlite', 'redis']

export const scheduleRows: readonly Row[] = [
  timerRow('add a timer', 'ns', (make) => timing('add', make)),
  timerRow('cancel a timer', 'ns', (make) => timing('cancel', make)),
  timerRow('memory of a timer', 'B', size),
  placesRow('create 100 000 schedules', ALL, { unit: 'schedules/s', better: 'more' }, creating),
  placesRow(
    'CPU of a second with 100 000 schedules of which none is due',
    ['memory', 'redis'],
    latency,
    idle,
  ),
  placesRow('10 000 tasks due at one instant, lateness p99', ['memory', 'sqlite'], latency, tasksAtOnce),
  { ...dueAtOnceRow, name: '10 000 tasks due at one instant on Redis, lateness p99' },
  placesRow('10 000 cron schedules at one instant, lateness p99', ALL, latency, schedulesAtOnce),
  placesRow('1 000 slots a second, spread, lateness p99', ['memory', 'redis'], latency, spread),
]
