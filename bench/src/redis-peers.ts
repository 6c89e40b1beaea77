/**
 * The queues on Redis that are measured, each behind the same few calls and with the options that it has by default:
 * only what a measurement is about is set.
 */
import { TaskPool, type PrefetchOptions } from '@neotask/core'
import { redisStorage } from '@neotask/storage-redis'
import BeeQueue from 'bee-queue'
import { Queue as BullQueue, QueueEvents, Worker as BullWorker } from 'bullmq'
import { Queue as GroupQueue, Worker as GroupWorker } from 'groupmq'
import { Redis } from 'ioredis'
import type { Payload } from './workload.js'

export interface AddOptions {
  readonly priority?: number
  /** ms since 1970. */
  readonly at?: number
}

export interface Producer {
  /** Resolves when Redis has it. */
  add(data: Payload, options?: AddOptions): Promise<unknown>
  /** The same for many, by the way that the peer has for that. */
  addMany(data: readonly Payload[]): Promise<unknown>
  /** Resolves with what the handler returned. */
  run?(data: Payload): Promise<number>
  close(): Promise<void>
}

export interface Peer {
  /** @param waits whether {@link Producer.run} will be called */
  produce(port: number, waits?: boolean): Promise<Producer>
  /** Begins to work. @returns what ends it */
  work(port: number, concurrency: number, handle: (data: Payload) => void): Promise<() => Promise<void>>
}

const NAME = 'bench'
/** ms after which an event is taken for lost. */
const LOST_EVENT = 5_000
const HOST = '127.0.0.1'

/** @param prefetch tasks claimed ahead. Default: the pool's own */
export function neotask(prefetch?: PrefetchOptions): Peer {
  return {
    async produce(port) {
      const storage = redisStorage(`redis://${HOST}:${port}`)
      const pool = new TaskPool<Payload, number>({ storage, concurrency: 0 })
      await pool.start()
      return {
        add: (data, options) =>
          options === undefined
            ? pool.submit(data)
            : pool.submit(data, { priority: options.priority, runAt: options.at }),
        addMany: (data) => pool.submitBatch(data.map((each) => ({ data: each }))),
        run: (data) => pool.run(data),
        close: async () => {
          await pool.close()
          await storage.close()
        },
      }
    },
    async work(port, concurrency, handle) {
      const storage = redisStorage(`redis://${HOST}:${port}`)
      const executor = async (data: Payload): Promise<number> => {
        handle(data)
        return data.i
      }
      const pool = new TaskPool({ storage, executor, concurrency, prefetch })
      await pool.start()
      return async () => {
        await pool.close()
        await storage.close()
      }
    },
  }
}

const bullmq: Peer = {
  async produce(port, waits) {
    const connection = { host: HOST, port, maxRetriesPerRequest: null }
    const queue = new BullQueue<Payload, number>(NAME, { connection })
    await queue.waitUntilReady()
    const events = waits ? new QueueEvents(NAME, { connection }) : undefined
    await events?.waitUntilReady()
    return {
      add: (data, { priority, at } = {}) =>
        queue.add('job', data, {
          ...(priority !== undefined && { priority: priority + 1 }),
          ...(at !== undefined && { delay: at - Date.now() }),
        }),
      addMany: (data) => queue.addBulk(data.map((each) => ({ name: 'job', data: each }))),
      run: async (data) => {
        const job = await queue.add('job', data)
        return await job.waitUntilFinished(events as QueueEvents)
      },
      close: async () => {
        await events?.close()
        await queue.close()
      },
    }
  },
  async work(port, concurrency, handle) {
    const connection = { host: HOST, port, maxRetriesPerRequest: null }
    const worker = new BullWorker<Payload, number>(
      NAME,
      async ({ data }) => {
        handle(data)
        return data.i
      },
      { connection, concurrency },
    )
    await worker.waitUntilReady()
    return () => worker.close()
  },
}

const bee: Peer = {
  async produce(port, waits = false) {
    const settings = { redis: { host: HOST, port }, isWorker: false, getEvents: waits }
    const queue = new BeeQueue<Payload>(NAME, settings)
    await queue.ready()
    const make = (data: Payload, at?: number): BeeQueue.Job<Payload> => {
      const job = queue.createJob(data)
      return at === undefined ? job : job.delayUntil(at)
    }
    return {
      add: (data, options) => make(data, options?.at).save(),
      addMany: (data) => queue.saveAll(data.map((each) => make(each))),
      run: (data) =>
        new Promise((resolve, reject) => {
          const job = make(data)
          job.on('succeeded', resolve)
          job.on('failed', reject)
          job.save().catch(reject)
          // A job may end before its queue knows that somebody listens, and then nothing is heard of it.
          setTimeout(() => resolve(data.i), LOST_EVENT).unref()
        }),
      close: () => queue.close(),
    }
  },
  async work(port, concurrency, handle) {
    const settings = { redis: { host: HOST, port }, getEvents: false, activateDelayedJobs: true }
    const queue = new BeeQueue<Payload>(NAME, settings)
    await queue.ready()
    queue.process(concurrency, async ({ data }: BeeQueue.Job<Payload>) => {
      handle(data)
      return data.i
    })
    return () => queue.close()
  },
}

/** Tasks of one group run one after the other, so each is a group of its own. */
const groupmq: Peer = {
  async produce(port) {
    const redis = new Redis(port, HOST, { maxRetriesPerRequest: null })
    const queue = new GroupQueue<Payload>({ redis, namespace: NAME })
    const add = (data: Payload, options?: AddOptions): Promise<unknown> =>
      queue.add({
        groupId: String(data.i),
        data,
        ...(options?.at !== undefined && { delay: options.at - Date.now() }),
      })
    return {
      add,
      addMany: (data) => Promise.all(data.map((each) => add(each))),
      close: async () => {
        await queue.close()
        redis.disconnect()
      },
    }
  },
  async work(port, concurrency, handle) {
    const redis = new Redis(port, HOST, { maxRetriesPerRequest: null })
    const queue = new GroupQueue<Payload>({ redis, namespace: NAME })
    const handler = async ({ data }: { data: Payload }): Promise<number> => {
      handle(data)
      return data.i
    }
    const worker = new GroupWorker<Payload>({ queue, handler, concurrency })
    void worker.run()
    return async () => {
      await worker.close()
      redis.disconnect()
    }
  },
}

export const PEERS: Readonly<Record<string, Peer>> = {
  neotask: neotask(),
  BullMQ: bullmq,
  'bee-queue': bee,
  GroupMQ: groupmq,
}
