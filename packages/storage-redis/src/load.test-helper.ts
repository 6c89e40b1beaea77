/** Load for tests of faults: pools of two storages work for a third that submits and waits, and keep account of it. */
import {
  NeoTaskError,
  systemClock,
  TaskPool,
  type NodeStatus,
  type Storage,
  type TaskRecord,
} from '@neotask/core'
import { expect } from 'vitest'
import { redisStorage, type RedisStorageOptions } from './index.js'

const LANES = 50
const REF = { tenant: 'default', queue: 'default' }
/** How a wait is told that its task is not there (any more). */
const MISSING = ['TASK_REMOVED', 'TASK_NOT_FOUND']

export const sleep = (ms: number): Promise<void> =>
  new Promise((resolve) => systemClock.after(ms, resolve, { hold: true }))

export async function until(
  what: string,
  condition: () => boolean | Promise<boolean>,
  ms = 10_000,
): Promise<void> {
  const end = systemClock.monotonic() + ms
  while (!(await condition())) {
    if (systemClock.monotonic() > end) throw new Error(`not within ${ms} ms: ${what}`)
    await sleep(5)
  }
}

export interface Work {
  n: number
}

/** A task whose submit was acknowledged. */
export interface Acknowledged {
  readonly id: string
  readonly n: number
  /** When, by `performance.now()`. */
  readonly at: number
}

/** Submits and waits until it is told to stop, and then says what came of it. */
export class Load {
  readonly #target: string | RedisStorageOptions
  readonly #disposals: (() => Promise<unknown>)[] = []
  #producer: TaskPool<Work, number> | undefined
  #storage: Storage | undefined
  #lanes: Promise<void>[] = []
  readonly #troubles: unknown[] = []
  readonly #started = systemClock.monotonic()
  #longest = 0
  #calls = 0
  #stopped = false
  #next = 0
  readonly acknowledged: Acknowledged[] = []
  /** By task: when ends of it were accepted, by `performance.now()`. */
  readonly completions = new Map<string, number[]>()
  /** Tasks whose wait was answered. */
  done = 0
  /** Tasks whose wait was told that they are not there. */
  readonly missing = new Set<string>()
  /** Submits that failed, and were repeated with the same id. */
  repeats = 0

  /** @param target of the workers and the producer */
  constructor(target: string | RedisStorageOptions) {
    this.#target = target
  }

  /** Resolves when it is under way. */
  async start(): Promise<void> {
    const common = { callTimeout: '10s', sessionTtl: '10s', maxReclaims: 1000 } as const
    const retention = { success: { count: 1e6 } }
    const executor = async ({ n }: Work): Promise<number> => {
      this.#calls++
      await sleep(Math.random() * 20)
      return n * n
    }
    for (let i = 0; i < 2; i++) {
      const storage = await this.#open()
      const worker = new TaskPool({ ...common, retention, storage, concurrency: 20, executor })
      worker.on('pool.error', () => undefined)
      worker.on('task.completed', ({ id }) => {
        const times = this.completions.get(id)
        if (times === undefined) this.completions.set(id, [systemClock.monotonic()])
        else times.push(systemClock.monotonic())
      })
      this.#disposals.push(() => worker.close({ timeout: 0 }))
      await worker.start()
    }
    const storage = await this.#open()
    const producer = new TaskPool<Work, number>({ ...common, storage, concurrency: 0 })
    this.#disposals.push(() => producer.close({ timeout: 0 }))
    this.#storage = storage
    this.#producer = producer
    this.#lanes = Array.from({ length: LANES }, () => this.#lane(producer))
    await until('the load is under way', () => this.done > 100)
  }

  async close(): Promise<void> {
    this.#stopped = true
    for (const dispose of this.#disposals.splice(0).reverse()) await dispose()
  }

  /** Resolves when so many more have ended: the trouble is over. */
  async goOn(ms = 15_000, more = 200): Promise<void> {
    const aim = this.done + more
    await until(
      'it goes on',
      () => {
        expect(this.#troubles).toEqual([])
        return this.done >= aim
      },
      ms,
    )
  }

  /** Stops; resolves when every wait was answered. Rejects when one was not, or not as it should. */
  async stop(): Promise<void> {
    this.#stopped = true
    await Promise.race([
      Promise.all(this.#lanes),
      sleep(30_000).then(() => {
        const open = this.#next - this.done - this.missing.size - this.#troubles.length
        throw new Error(`waits were not answered: ${open}`)
      }),
    ])
    expect(this.#troubles).toEqual([])
    expect(this.done + this.missing.size).toBe(this.#next)
  }

  /** Stops, and holds what it saw to what must be where nothing may be lost. */
  async check(what: string): Promise<void> {
    await this.stop()
    expect([...this.missing]).toEqual([])
    const counts = await this.#storage?.queue.counts(REF)
    expect(counts).toMatchObject({
      success: this.#next,
      failed: 0,
      cancelled: 0,
      pending: 0,
      running: 0,
      scheduled: 0,
    })
    expect([...this.completions].filter(([, times]) => times.length > 1)).toEqual([])
    this.tell(`${what}: each ended once`)
  }

  /** Resolves when nothing is left to run, also of what nobody waits for any more. */
  async drained(): Promise<void> {
    await until('nothing is left to run', async () => {
      const counts = await this.#storage?.queue.counts(REF)
      return counts?.pending === 0 && counts.running === 0
    })
  }

  async nodes(): Promise<NodeStatus[]> {
    return (await this.#producer?.getNodes()) ?? []
  }

  /** What the storage knows of the acknowledged tasks, in their order. */
  async records(): Promise<(TaskRecord | undefined)[]> {
    const ids = this.acknowledged.map(({ id }) => id)
    return (await this.#storage?.queue.get(REF, ids)) ?? []
  }

  tell(what: string): void {
    const seconds = ((systemClock.monotonic() - this.#started) / 1000).toFixed(1)
    console.log(
      `${what}; ${this.#next} tasks in ${seconds} s, ${this.#calls - this.#next} calls of handlers more than tasks, ` +
        `${this.repeats} submits repeated, longest task ${this.#longest.toFixed(0)} ms`,
    )
  }

  async #open(): Promise<Storage> {
    const storage = redisStorage(this.#target)
    await storage.open()
    this.#disposals.push(() => storage.close())
    return storage
  }

  async #lane(producer: TaskPool<Work, number>): Promise<void> {
    while (!this.#stopped) {
      const n = this.#next++
      const id = `task-${n}`
      const begun = systemClock.monotonic()
      try {
        await this.#submit(producer, id, n)
        this.acknowledged.push({ id, n, at: systemClock.monotonic() })
        expect(await producer.waitForResult(id, { timeout: '60s' })).toBe(n * n)
        this.done++
        this.#longest = Math.max(this.#longest, systemClock.monotonic() - begun)
      } catch (error) {
        if (error instanceof NeoTaskError && MISSING.includes(error.code)) {
          this.missing.add(id)
        } else {
          this.#troubles.push(error)
          return
        }
      }
    }
  }

  /** As the guide says: again with the same id, until it is answered. */
  async #submit(producer: TaskPool<Work, number>, id: string, n: number): Promise<void> {
    for (;;) {
      try {
        await producer.submit({ n }, { id })
        return
      } catch (error) {
        if (!(error instanceof NeoTaskError && error.code === 'STORAGE_UNAVAILABLE' && error.retryable))
          throw error
        this.repeats++
        await sleep(20)
      }
    }
  }
}
