/**
 * Schedules beside node-schedule, croner, BullMQ and Node's own timers: the timer wheel, many schedules in one process, many
 * due at one instant, and a steady stream. Lateness counts from the instant of the slot, by the clock of the machine.
 */
import { stat } from 'node:fs/promises'
import { systemClock } from '@neotask/core'
import { TimeWheel } from '@neotask/core/tier'
import { dueAtOnce } from './due-at-once.js'
import { Lateness } from './lateness.js'
import { dueAtOnceRow } from './redis.js'
import { usageOf, withServer } from './redis-server.js'
import {
  bullmq,
  croner,
  neotaskInMemory,
  neotaskOnRedis,
  neotaskOnSqlite,
  nodeSchedule,
  timers,
  type Scheduler,
} from './schedule-peers.js'
import { inFile } from './sqlite-file.js'
import type { Row } from './suites.js'
import { heap, IN_FLIGHT, inLanes, pause, rate } from './workload.js'

/** Timers that are pending while others are added and cancelled. */
const PENDING = 1_000_000
/** Timers that are added, then cancelled, at a time; and how often. */
const STEP = 100_000
const STEPS = 10
const HOUR = 3_600_000

const MANY = 100_000
/** ms for which they are watched while none is due. */
const IDLE = 10_000
/** ms by which one of the many may be late. */
const ON_TIME = 250

const AT_ONCE = 10_000
/** Schedules of the burst that comes before it. */
const WARM_AT_ONCE = 1000
/** ms in which what is due at once has to be created. */
const LEAD = 20_000
const WARM_LEAD = 6000
/** ms until the tasks are due that warm the program up, for who refuses a date that has passed. */
const SOON = 1000

const STREAMS = 1000
const EVERY = 1000
/** Slots of each that warm the program up, and those that are measured. */
const WARM_SLOTS = 5
const SLOTS = 20

// ------------------------------------------------------------------------------------------------ timer wheel

interface Timers<T> {
  add(delay: number): T
  cancel(timer: T): void
}

/** A source of numbers from 0 to 1, the same in each run. */
function numbers(): () => number {
  let state = 1
  return () => (state = (state * 48_271) % 2_147_483_647) / 2_147_483_647
}

/** None fires during the measurement. */
const spread =
  (random: () => number): (() => number) =>
  () =>
    Math.floor(HOUR + random() * 23 * HOUR)

/**
 * Adds timers to a million of them and cancels others, in no order, after as much of the same without the million.
 *
 * @returns ns for each
 */
function addAndCancel<T>(timers: Timers<T>): { add: number; cancel: number } {
  const random = numbers()
  const delay = spread(random)
  const run = (pending: number): { add: number; cancel: number } => {
    const waiting = Array.from({ length: pending }, () => timers.add(delay()))
    const spent = { add: 0, cancel: 0 }
    for (let step = 0; step < STEPS; step++) {
      const delays = Array.from({ length: STEP }, delay)
      const added: T[] = []
      let start = performance.now()
      for (let i = 0; i < STEP; i++) added.push(timers.add(delays[i] as number))
      spent.add += performance.now() - start
      // Each takes the place of one that was there.
      const victims = added.map((timer) => {
        const place = Math.floor(random() * waiting.length)
        const victim = waiting[place] as T
        waiting[place] = timer
        return victim
      })
      start = performance.now()
      for (let i = 0; i < STEP; i++) timers.cancel(victims[i] as T)
      spent.cancel += performance.now() - start
    }
    for (const timer of waiting) timers.cancel(timer)
    const each = (ms: number): number => (ms * 1e6) / (STEP * STEPS)
    return { add: each(spent.add), cancel: each(spent.cancel) }
  }
  run(STEP)
  return run(PENDING)
}

/** Heap bytes for each of a million timers, beyond the function that they call. */
function bytesOf<T>(timers: Timers<T>): number {
  const delay = spread(numbers())
  const delays = Array.from({ length: PENDING }, delay)
  const waiting = new Array<T | undefined>(PENDING).fill(undefined)
  timers.cancel(timers.add(HOUR))
  const before = heap()
  for (let i = 0; i < PENDING; i++) waiting[i] = timers.add(delays[i] as number)
  const bytes = (heap() - before) / PENDING
  for (const timer of waiting) if (timer !== undefined) timers.cancel(timer)
  return bytes
}

const nothing = (): void => {}

function wheelSubjects(
  measure: <T>(timers: Timers<T>) => number,
): Readonly<Record<string, () => Promise<number>>> {
  const cancel = (timer: NodeJS.Timeout): void => clearTimeout(timer)
  return {
    neotask: async () => {
      const wheel = new TimeWheel(systemClock, nothing)
      const figure = measure({ add: (delay) => wheel.add(delay, nothing), cancel: (timer) => timer.cancel() })
      wheel.close()
      return figure
    },
    // It keeps a list for each different delay, so this is its worst case and the next one its best.
    setTimeout: async () => measure({ add: (delay) => setTimeout(nothing, delay), cancel }),
    'setTimeout, one delay for all': async () =>
      measure({ add: () => setTimeout(nothing, 24 * HOUR), cancel }),
  }
}

/** node-schedule keeps a sorted array: a million of them would take it hours. */
const wheelRows: readonly Row[] = [
  {
    name: 'timer wheel, add a timer to 1 000 000 pending ones',
    unit: 'ns',
    better: 'less',
    subjects: wheelSubjects((timers) => addAndCancel(timers).add),
  },
  {
    name: 'timer wheel, cancel one of 1 000 000 pending timers',
    unit: 'ns',
    better: 'less',
    subjects: wheelSubjects((timers) => addAndCancel(timers).cancel),
  },
  {
    name: 'timer wheel, heap for each of 1 000 000 pending timers',
    unit: 'B',
    better: 'less',
    subjects: wheelSubjects(bytesOf),
  },
]

// ------------------------------------------------------------------------------------------------- schedulers

type Measure = (scheduler: Scheduler) => Promise<number>

const here =
  (scheduler: Scheduler) =>
  (measure: Measure): Promise<number> =>
    measure(scheduler)
const inRedis =
  (schedulerAt: (port: number) => Scheduler) =>
  (measure: Measure): Promise<number> =>
    withServer(({ port }) => measure(schedulerAt(port)))

const MEMORY = {
  neotask: here(neotaskInMemory),
  'node-schedule': here(nodeSchedule),
  croner: here(croner),
}
const SQLITE = {
  neotask: (measure: Measure): Promise<number> => inFile((path) => measure(neotaskOnSqlite(path))),
}
const REDIS = { neotask: inRedis(neotaskOnRedis), BullMQ: inRedis(bullmq) }

type Places = Readonly<Record<string, (measure: Measure) => Promise<number>>>

function subjects(places: Places, measure: Measure): Row['subjects'] {
  return Object.fromEntries(Object.entries(places).map(([name, use]) => [name, () => use(measure)]))
}

// ---------------------------------------------------------------------------------------------- many schedules

/** Once a year, at a minute of its own; the first of them in two days. */
function yearly(i: number): string {
  const date = new Date(Math.ceil(Date.now() / (24 * HOUR) + 2) * 24 * HOUR + i * 60_000)
  return `0 ${date.getUTCMinutes()} ${date.getUTCHours()} ${date.getUTCDate()} ${date.getUTCMonth() + 1} *`
}

/**
 * Creates the many, and sees to it that the last of them fires on time.
 *
 * @returns what `figure` makes of their number and the ms that it took
 */
async function createMany(
  scheduler: Scheduler,
  figure: (count: number, ms: number) => number | Promise<number>,
): Promise<number> {
  const { many = MANY, early } = scheduler
  const last = many - 1
  const lateness = new Lateness({ count: 1, warmUp: 0, early })
  let at = NaN
  const timetable = await scheduler.open((i) => lateness.ran(i - last, at))
  const start = performance.now()
  await inLanes(0, last, IN_FLIGHT, (i) => timetable.cron(i, yearly(i)))
  const ms = performance.now() - start
  at = wholeSecond(2000)
  await timetable.cron(last, expressionAt(at, 0))
  const late = await lateness.p99(at)
  if (late > ON_TIME) throw new Error(`one of ${many} schedules fired ${late} ms late`)
  const result = await figure(many, ms)
  await timetable.close()
  return result
}

const creationRate: Measure = (scheduler) => createMany(scheduler, rate)

const heapOfMany: Measure = async (scheduler) => {
  const before = heap()
  return await createMany(scheduler, (count) => (heap() - before) / count)
}

const storedOnSqlite = (): Promise<number> =>
  inFile(async (path) => {
    await createMany(neotaskOnSqlite(path), () => 0)
    return (await stat(path)).size / MANY
  })

const storedOnRedis = (schedulerAt: (port: number) => Scheduler): Promise<number> =>
  withServer(async (server) => {
    const before = await usageOf(server)
    return await createMany(schedulerAt(server.port), async (count) => {
      const { memory } = await usageOf(server)
      return (memory - before.memory) / count
    })
  })

/** @returns ms of processor time that a second takes while none of the many is due */
const idleWithMany: Measure = (scheduler) =>
  createMany(scheduler, async () => {
    const before = process.cpuUsage()
    await pause(IDLE)
    const { user, system } = process.cpuUsage(before)
    return (user + system) / IDLE
  })

const creation = { unit: 'schedules/s', better: 'more' } as const
const created = 'create 100 000 cron schedules, 100 in flight, then one of them fires on time'
const few = ' (node-schedule, croner: 10 000)'

const manyRows: readonly Row[] = [
  { name: `in memory, ${created}${few}`, ...creation, subjects: subjects(MEMORY, creationRate) },
  { name: `SQLite, ${created}`, ...creation, subjects: subjects(SQLITE, creationRate) },
  { name: `Redis, ${created}`, ...creation, subjects: subjects(REDIS, creationRate) },
  {
    name: `heap of the process for each of 100 000 cron schedules${few}`,
    unit: 'B',
    better: 'less',
    subjects: {
      ...subjects(MEMORY, heapOfMany),
      'neotask on SQLite': () => SQLITE.neotask(heapOfMany),
      'neotask on Redis': () => REDIS.neotask(heapOfMany),
    },
  },
  {
    name: 'SQLite, file for each of 100 000 cron schedules',
    unit: 'B',
    better: 'less',
    subjects: { neotask: storedOnSqlite },
  },
  {
    name: 'Redis, memory for each of 100 000 cron schedules',
    unit: 'B',
    better: 'less',
    subjects: { neotask: () => storedOnRedis(neotaskOnRedis), BullMQ: () => storedOnRedis(bullmq) },
  },
  {
    name: `processor time in a second with 100 000 cron schedules of which none is due${few}`,
    unit: 'ms',
    better: 'less',
    subjects: {
      ...subjects(MEMORY, idleWithMany),
      'neotask on Redis': () => REDIS.neotask(idleWithMany),
      'BullMQ on Redis': () => REDIS.BullMQ(idleWithMany),
    },
  },
]

// ------------------------------------------------------------------------------------------------- one instant

/** The first whole second after so many ms. */
function wholeSecond(ms: number): number {
  return Math.ceil((Date.now() + ms) / 1000) * 1000
}

/**
 * Expressions that differ for each `i` below 10 005 and have `at` as their next slot: the other minutes and hours that they
 * name have passed today by half an hour at least, or come later.
 */
function expressionAt(at: number, i: number): string {
  const date = new Date(at)
  const [second, minute, hour] = [date.getUTCSeconds(), date.getUTCMinutes(), date.getUTCHours()]
  const [day, month] = [date.getUTCDate(), date.getUTCMonth() + 1]
  const otherMinute = (minute + 1 + (i % 29)) % 60
  const otherHour = (hour + 1 + (Math.floor(i / 29) % 23)) % 24
  const otherDay = ((day + Math.floor(i / (29 * 23))) % 28) + 1
  return `${second} ${minute},${otherMinute} ${hour},${otherHour} ${day},${otherDay} ${month} *`
}

/** Cron schedules, all different, with one slot in common; a smaller burst comes first. */
const cronAtOnce: Measure = async (scheduler) => {
  const lateness = new Lateness({ count: AT_ONCE, warmUp: WARM_AT_ONCE, early: scheduler.early })
  let at = wholeSecond(WARM_LEAD)
  const timetable = await scheduler.open((i) => lateness.ran(i, at))
  const create = async (from: number, to: number): Promise<void> => {
    await inLanes(from, to, IN_FLIGHT, (i) => timetable.cron(i, expressionAt(at, i - from)))
    if (Date.now() > at - 500) throw new Error('the schedules were not created in time')
  }
  await create(0, WARM_AT_ONCE)
  await lateness.warm
  at = wholeSecond(scheduler.lead ?? LEAD)
  await create(WARM_AT_ONCE, WARM_AT_ONCE + AT_ONCE)
  const p99 = await lateness.p99(at)
  await timetable.close()
  return p99
}

const tasksAtOnce: Measure = (scheduler) =>
  dueAtOnce(
    async (handle) => {
      const timetable = await scheduler.open((i) => handle({ i, s: '' }))
      return {
        add: ({ i }, options) => timetable.at(i, options?.at ?? Date.now() + SOON),
        close: () => timetable.close(),
      }
    },
    scheduler.early,
    scheduler.tasksLead ?? LEAD,
  )

const latency = { unit: 'ms', better: 'less' } as const
const atOnce = '10 000 different cron schedules due at one instant, lateness p99'
const tasks = '10 000 tasks due at one instant, lateness p99'

const atOnceRows: readonly Row[] = [
  {
    name: `in memory, ${tasks}`,
    ...latency,
    subjects: subjects({ ...MEMORY, setTimeout: here(timers) }, tasksAtOnce),
  },
  { name: `SQLite, ${tasks}`, ...latency, subjects: subjects(SQLITE, tasksAtOnce) },
  dueAtOnceRow(`Redis, ${tasks}`),
  { name: `in memory, ${atOnce}`, ...latency, subjects: subjects(MEMORY, cronAtOnce) },
  { name: `SQLite, ${atOnce}`, ...latency, subjects: subjects(SQLITE, cronAtOnce) },
  { name: `Redis, ${atOnce}`, ...latency, subjects: subjects(REDIS, cronAtOnce) },
]

// ---------------------------------------------------------------------------------------------- steady stream

/** Schedules with a slot each second, spread evenly over it. */
const stream: Measure = async (scheduler) => {
  const [count, warmUp] = [STREAMS * SLOTS, STREAMS * WARM_SLOTS]
  const lateness = new Lateness({ count, warmUp, early: scheduler.early })
  const start = Date.now() + WARM_LEAD
  const startOf = (i: number): number => start + (i * EVERY) / STREAMS
  const timetable = await scheduler.open((i, slot = NaN) => {
    const turn = (slot - startOf(i)) / EVERY
    if (turn >= WARM_SLOTS + SLOTS) return
    lateness.ran(turn * STREAMS + i, slot)
  })
  await inLanes(0, STREAMS, IN_FLIGHT, (i) => timetable.every(i, startOf(i), EVERY))
  if (Date.now() > start - 500) throw new Error('the schedules were not created in time')
  const p99 = await lateness.p99(start + EVERY * (WARM_SLOTS + SLOTS))
  await timetable.close()
  return p99
}

const second = '1 000 schedules of 1 s, spread over the second, for 20 s after 5 s, lateness p99'

/** croner has whole seconds only. */
const streamRows: readonly Row[] = [
  {
    name: `in memory, ${second}`,
    ...latency,
    subjects: subjects(
      {
        neotask: MEMORY.neotask,
        'node-schedule, a date for each slot': MEMORY['node-schedule'],
        'setTimeout for each slot': here(timers),
      },
      stream,
    ),
  },
  { name: `SQLite, ${second}`, ...latency, subjects: subjects(SQLITE, stream) },
  { name: `Redis, ${second}`, ...latency, subjects: subjects(REDIS, stream) },
]

export const scheduleRows: readonly Row[] = [...wheelRows, ...manyRows, ...atOnceRows, ...streamRows]
