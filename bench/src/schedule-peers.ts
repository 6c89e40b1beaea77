/** What fires schedules, in memory, on SQLite and on Redis, each behind the same few calls. */
import { TaskPool, type Storage } from '@neotask/core'
import { TaskScheduler } from '@neotask/scheduler'
import { redisStorage } from '@neotask/storage-redis'
import { sqliteStorage } from '@neotask/storage-sqlite'
import { Queue as BullQueue, Worker as BullWorker } from 'bullmq'
import { Cron } from 'croner'
import { gracefulShutdown, scheduleJob } from 'node-schedule'
import { IN_FLIGHT, payload, type Payload } from './workload.js'

/** Hears of each run: the number of its schedule and, where the peer knows it, its slot. */
export type Fired = (i: number, slot?: number) => void

export interface Timetable {
  /** Creates a schedule of an expression of six fields, in UTC. A promise resolves when it is stored. */
  cron(i: number, expression: string): unknown
  /** Creates one with slots at `start` + n × `every` ms. */
  every(i: number, start: number, every: number): unknown
  /** Creates a task that runs once. */
  at(i: number, instant: number): unknown
  close(): Promise<void>
}

export interface Scheduler {
  /** ms by which it may be early: see `LatenessOptions`. */
  readonly early: number
  /** Schedules that it is given where others get 100 000. */
  readonly many?: number
  /** ms that it takes at most to create 10 000. Default: 20 000. */
  readonly lead?: number
  /** The same for 10 000 tasks. Default: 20 000. */
  readonly tasksLead?: number
  open(fired: Fired): Promise<Timetable>
}

const NAME = 'bench'
const HOST = '127.0.0.1'

/** @param open the storage. Default: in memory */
function neotask(open?: () => Storage): Scheduler {
  return {
    early: 0,
    lead: 10_000,
    tasksLead: 4000,
    async open(fired) {
      const storage = open?.()
      const pool = new TaskPool({
        storage,
        concurrency: IN_FLIGHT,
        executor: ({ i }: Payload, { id }) => fired(i, Number(id.slice(id.lastIndexOf('~') + 1))),
      })
      let trouble: unknown
      pool.on('pool.error', ({ error }) => (trouble ??= error))
      const scheduler = new TaskScheduler(pool)
      await pool.start()
      return {
        cron: (i, expression) => scheduler.submitCron(payload(i), expression, { id: `s${i}` }),
        every: (i, start, every) => scheduler.submitInterval(payload(i), every, { id: `s${i}`, start }),
        at: (i, instant) => scheduler.submitAt(payload(i), instant),
        close: async () => {
          await pool.close()
          await storage?.close()
          if (trouble !== undefined) throw new Error('the pool was in trouble', { cause: trouble })
        },
      }
    },
  }
}

export const neotaskInMemory: Scheduler = neotask()
export const neotaskOnSqlite = (path: string): Scheduler => neotask(() => sqliteStorage(path))
export const neotaskOnRedis = (port: number): Scheduler =>
  neotask(() => redisStorage(`redis://${HOST}:${port}`))

/** Its rules have whole seconds, so slots between them are dates, one after the other. */
export const nodeSchedule: Scheduler = {
  early: 0,
  many: 10_000,
  lead: 60_000,
  async open(fired) {
    let isOpen = true
    const at = (i: number, instant: number, then?: () => void): void => {
      const run = (): void => {
        if (!isOpen) return
        fired(i, instant)
        then?.()
      }
      // It refuses a date that has passed; one may, when it is behind.
      if ((scheduleJob(new Date(instant), run) as unknown) === null) setImmediate(run)
    }
    const every = (i: number, slot: number, ms: number): void => at(i, slot, () => every(i, slot + ms, ms))
    return {
      cron: (i, expression) => scheduleJob({ rule: expression, tz: 'UTC' }, () => fired(i)),
      every,
      at,
      close: async () => {
        isOpen = false
        await gracefulShutdown()
      },
    }
  },
}

/** 100 000 of them do not fit into a heap of 4 GB. */
export const croner: Scheduler = {
  early: 1,
  many: 10_000,
  async open(fired) {
    const jobs: Cron[] = []
    return {
      cron: (i, expression) => jobs.push(new Cron(expression, { timezone: 'UTC' }, () => fired(i))),
      every: () => {
        throw new Error('its slots are whole seconds')
      },
      at: (i, instant) => jobs.push(new Cron(new Date(instant).toISOString(), () => fired(i, instant))),
      close: async () => {
        for (const job of jobs) job.stop()
      },
    }
  },
}

/** The least: a timer of Node for each, which keeps and decides nothing. */
export const timers: Scheduler = {
  early: 1,
  tasksLead: 4000,
  async open(fired) {
    let isOpen = true
    const at = (i: number, instant: number, then?: () => void): void => {
      setTimeout(() => {
        if (!isOpen) return
        fired(i, instant)
        then?.()
      }, instant - Date.now())
    }
    const every = (i: number, slot: number, ms: number): void => at(i, slot, () => every(i, slot + ms, ms))
    return {
      cron: () => {
        throw new Error('a timer knows no expression')
      },
      every,
      at,
      close: async () => {
        isOpen = false
      },
    }
  },
}

/** @param port of its Redis */
export const bullmq = (port: number): Scheduler => ({
  early: 1,
  async open(fired) {
    const connection = { host: HOST, port, maxRetriesPerRequest: null }
    const queue = new BullQueue<Payload>(NAME, { connection })
    await queue.waitUntilReady()
    const worker = new BullWorker<Payload>(
      NAME,
      async ({ data, id = '' }) => fired(data.i, Number(id.slice(id.lastIndexOf(':') + 1))),
      { connection, concurrency: IN_FLIGHT },
    )
    await worker.waitUntilReady()
    const template = (i: number) => ({ name: 'job', data: payload(i) })
    return {
      cron: (i, pattern) => queue.upsertJobScheduler(`s${i}`, { pattern, tz: 'UTC' }, template(i)),
      every: (i, startDate, every) => queue.upsertJobScheduler(`s${i}`, { every, startDate }, template(i)),
      at: (i, instant) => queue.add('job', payload(i), { delay: instant - Date.now() }),
      close: async () => {
        await worker.close()
        await queue.close()
      },
    }
  },
})
