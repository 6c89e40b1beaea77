/** What a pool does beside its storage: definitions, defaults, waits, pauses and explanations. */
import { afterEach, describe, expect, it } from 'vitest'
import { defineTask } from './define-task.js'
import { memoryStorage } from './memory-storage.js'
import { TaskPool, type TaskPoolOptions } from './task-pool.js'
import { ManualClock } from './testing/manual-clock.js'

const pools: TaskPool[] = []
afterEach(async () => {
  await Promise.all(pools.splice(0).map((pool) => pool.close({ timeout: 0 })))
})

function poolOf<Data, Result>(options: TaskPoolOptions<Data, Result>): TaskPool<Data, Result> {
  const pool = new TaskPool(options)
  pools.push(pool)
  return pool
}

describe('waitForResult', () => {
  it('holds the process while somebody waits, and no longer', async () => {
    const clock = new ManualClock()
    const pool = poolOf<number, void>({ concurrency: 0, clock, storage: memoryStorage() })
    const id = await pool.submit(1, { delay: '1h' })
    await clock.settle()
    expect(clock.holding).toBe(0)
    const controller = new AbortController()
    const timed = pool.waitForResult(id, { timeout: '2s' })
    const aborted = pool.waitForResult(id, { signal: controller.signal })
    timed.catch(() => {})
    await clock.settle()
    expect(clock.holding).toBeGreaterThan(0)
    controller.abort(new Error('enough'))
    await expect(aborted).rejects.toThrow('enough')
    await clock.advanceAsync(2500)
    await expect(timed).rejects.toMatchObject({ code: 'WAIT_TIMEOUT', taskId: id })
    await clock.settle()
    expect(clock.holding).toBe(0)
  })
})

describe('submitBatch', () => {
  it.each([
    ['an array', [{ data: 1 }, { data: 2 }, { data: 3 }]],
    ['a set', new Set([{ data: 1 }, { data: 2 }, { data: 3 }])],
    ['promises', [1, 2, 3].map((data) => Promise.resolve({ data })) as never],
    [
      'an async generator',
      (async function* () {
        await Promise.resolve()
        for (const data of [1, 2, 3]) yield { data }
      })(),
    ],
  ])('takes %s, in its order', async (_what, items) => {
    const pool = poolOf({ executor: (n: number) => n * 10 })
    expect(await pool.waitAll(await pool.submitBatch(items))).toEqual([10, 20, 30])
  })

  it('keeps its order, also when it is the first call', async () => {
    const order: number[] = []
    const pool = poolOf({ concurrency: 1, executor: (n: number) => void order.push(n) })
    await pool.waitAll(await pool.submitBatch([1, 2, 3].map((data) => ({ data }))))
    expect(order).toEqual([1, 2, 3])
  })

  it('takes no more from its source once one was refused, however long that goes on', async () => {
    const pool = poolOf<unknown, void>({ concurrency: 0 })
    let taken = 0
    const items = function* (): Generator<{ data: unknown }> {
      for (;;) yield { data: ++taken === 3 ? 1n : taken }
    }
    await expect(pool.submitBatch(items())).rejects.toMatchObject({ code: 'PAYLOAD_INVALID' })
    expect(taken).toBeLessThan(1000)
    expect(await pool.counts()).toMatchObject({ pending: taken - 1 })
  })

  it('rejects with the first refusal, and leaves none unhandled', async () => {
    const unhandled: unknown[] = []
    const note = (error: unknown): void => void unhandled.push(error)
    process.on('unhandledRejection', note)
    const pool = poolOf<unknown, void>({ concurrency: 0 })
    const items = async function* (): AsyncGenerator<{ data: unknown }> {
      yield { data: 1n }
      await new Promise((resolve) => setImmediate(() => setImmediate(resolve)))
      throw new Error('the source ended')
    }
    await expect(pool.submitBatch(items())).rejects.toMatchObject({ code: 'PAYLOAD_INVALID' })
    await new Promise((resolve) => setImmediate(() => setImmediate(resolve)))
    process.off('unhandledRejection', note)
    expect(unhandled).toEqual([])
  })
})

describe('a start that a submit began', () => {
  it('is tried again when it failed', async () => {
    const clock = new ManualClock()
    const storage = memoryStorage({ clock })
    const { open } = storage.session
    storage.session.open = () => Promise.reject(new Error('busy'))
    const pool = poolOf({ storage, clock, executor: (n: number) => n * 2 })
    const errors: unknown[] = []
    pool.on('pool.error', ({ while: what }) => void errors.push(what))
    const result = pool.run(2)
    await clock.advanceAsync(500)
    expect(errors).toEqual(['start'])
    storage.session.open = open
    await clock.advanceAsync(600)
    expect(await result).toBe(4)
  })
})

describe('definitions', () => {
  it('give the retry of a task what it leaves out', async () => {
    const flaky = defineTask({
      name: 'flaky',
      retry: { delay: 7, backoff: 'fixed', jitter: 'none' },
      handler: () => {
        throw new Error('no')
      },
    })
    const pool = poolOf({ tasks: [flaky] })
    const delays: number[] = []
    pool.on('task.retry', ({ delay }) => delays.push(delay))
    await expect(pool.run(flaky, undefined as never, { retry: { limit: 2 } })).rejects.toThrow('no')
    expect(delays).toEqual([7, 7])
  })
})

describe('close', () => {
  it('says how many waiting tasks are lost with a memory of the pool itself, and loses none of a shared one', async () => {
    for (const storage of [undefined, memoryStorage()]) {
      const started: number[] = []
      let go!: () => void
      const gone = new Promise<void>((resolve) => (go = resolve))
      const pool = poolOf({
        storage,
        executor: async (n: number) => {
          started.push(n)
          await gone
        },
      })
      const ten = new Promise<void>((resolve) => {
        pool.on('task.started', () => {
          if (started.length === 9) resolve()
        })
      })
      await pool.submitBatch(Array.from({ length: 1010 }, (_, data) => ({ data })))
      await ten
      const closing = pool.close()
      go()
      expect(await closing).toMatchObject({ finished: 10, discarded: storage === undefined ? 1000 : 0 })
      expect(started).toHaveLength(10)
    }
  })
})

describe('pause', () => {
  it('of this process does not begin to consume, and holds when it does', async () => {
    let calls = 0
    const pool = poolOf({ autoStart: false, executor: () => ++calls })
    await pool.pause({ local: true })
    expect(await pool.getNodes()).toEqual([])
    await pool.start()
    const id = await pool.submit(undefined as never)
    await pool.health()
    expect(calls).toBe(0)
    await pool.resume({ local: true })
    expect(await pool.waitForResult(id)).toBe(1)
  })

  it('of this process holds when it comes during the start', async () => {
    let calls = 0
    const storage = memoryStorage()
    const { open } = storage.session
    let opened: () => void = () => {}
    storage.session.open = async (...request) => {
      await new Promise<void>((resolve) => (opened = resolve))
      await open.apply(storage.session, request)
    }
    const pool = poolOf({ storage, executor: () => ++calls })
    await pool.submit(undefined as never)
    await pool.pause({ local: true })
    opened()
    await pool.start()
    await pool.health()
    await new Promise((resolve) => setImmediate(() => setImmediate(resolve)))
    expect(calls).toBe(0)
  })
})

describe('close', () => {
  it('ends the events of a pool that was never used', async () => {
    const pool = poolOf({ executor: () => {} })
    const reading = (async () => {
      for await (const event of pool.events()) expect(event).toBeUndefined()
    })()
    await pool.close()
    await reading
  })

  it('closes a pool that cannot drain', async () => {
    const storage = memoryStorage()
    const pool = poolOf({ storage, executor: () => {} })
    await pool.start()
    const { counts } = storage.queue
    storage.queue.counts = () => Promise.reject(new Error('away'))
    const errors: unknown[] = []
    pool.on('pool.error', ({ error }) => void errors.push(error))
    await pool.close({ drain: true })
    storage.queue.counts = counts
    expect(errors).toHaveLength(1)
    await expect(pool.submit(undefined as never)).rejects.toMatchObject({ code: 'POOL_CLOSED' })
    const other = poolOf({ storage, concurrency: 0, executor: () => {} })
    expect(await other.getNodes()).toEqual([])
  })

  it('during the start runs nothing and starts no service', async () => {
    const storage = memoryStorage()
    const producer = poolOf<number, void>({ storage, concurrency: 0 })
    const id = await producer.submit(1)
    let calls = 0
    const pool = poolOf({ storage, executor: () => ++calls })
    await pool.use({
      name: 'service',
      start: () => {
        calls++
      },
      stop: () => {},
    })
    const starting = pool.start().catch(() => {})
    await pool.close()
    await starting
    expect(calls).toBe(0)
    expect(await producer.getStatus(id)).toBe('pending')
  })

  it('refuses a task whose validation ends after it', async () => {
    const storage = memoryStorage()
    const valid: (() => void)[] = []
    const input = {
      '~standard': {
        version: 1,
        vendor: 'test',
        validate: (value: unknown) =>
          new Promise<{ value: number }>((resolve) => valid.push(() => resolve({ value: value as number }))),
      },
    } as const
    const slow = defineTask({ name: 'slow', input, handler: () => {} })
    const pool = poolOf({ storage, tasks: [slow] })
    await pool.start()
    const calls = Promise.allSettled([pool.submit(slow, 1), pool.run(slow, 1)])
    await pool.close()
    for (const resolve of valid) resolve()
    const refused = { status: 'rejected', reason: { code: 'POOL_CLOSED' } }
    expect(await calls).toMatchObject([refused, refused])
  })
})

describe('explain', () => {
  it('says why a task does not run', async () => {
    const storage = memoryStorage()
    const known = defineTask({ name: 'known', handler: () => new Promise(() => {}) })
    const other = defineTask({ name: 'other' })
    const producer = poolOf({ storage, concurrency: 0, tasks: [known, other] })
    const why = async (id: string): Promise<string[]> =>
      (await producer.explain(id)).reasons.map(({ code }) => code)
    const first = await producer.submit(known, undefined as never)
    expect(await why(first)).toEqual(['no-consumer'])
    const worker = poolOf({ storage, concurrency: 1, tasks: [known] })
    const started = new Promise((resolve) => worker.once('task.started', resolve))
    await worker.start()
    await started
    expect(await why(first)).toEqual(['prefetched'])
    expect(await why(await producer.submit(other, undefined as never))).toEqual(['unknown-kind'])
    expect(await why(await producer.submit(known, undefined as never, { delay: '1h' }))).toEqual([
      'due-later',
    ])
    const held = await producer.submit(known, undefined as never, { hold: true })
    expect(await why(held)).toEqual(['held'])
    const child = await producer.submit(known, undefined as never, { after: held })
    expect(await why(child)).toEqual(['waits-for-parents'])
    await producer.cancel(held)
    expect(await why(held)).toEqual(['ended'])
  })
})

describe('events', () => {
  it('tell what happens, and can be iterated until the pool closes', async () => {
    const pool = poolOf({ executor: (n: number) => n * 2 })
    const types: string[] = []
    const reading = (async () => {
      for await (const { type } of pool.events()) types.push(type)
    })()
    const completed = new Promise((resolve) => pool.once('task.completed', resolve))
    await pool.run(4)
    expect(await completed).toMatchObject({ result: 8, name: '' })
    await pool.close()
    await reading
    expect(types).toEqual(['task.created', 'task.started', 'task.completed'])
  })
})

describe('getStats', () => {
  it('counts what this pool did, with percentiles', async () => {
    const pool = poolOf({
      retry: { limit: 1, delay: 1 },
      executor: (fails: boolean) => {
        if (fails) throw new Error('no')
      },
    })
    await pool.run(false)
    await pool.run(false)
    await expect(pool.run(true)).rejects.toThrow('no')
    const stats = await pool.getStats()
    expect(stats).toMatchObject({
      submitted: 3,
      completed: 2,
      failed: 1,
      retried: 1,
      cancelled: 0,
      waiting: 0,
      running: 0,
    })
    expect(stats.successRate).toBeCloseTo(2 / 3)
    expect(stats.latency.run.count).toBe(4)
    expect(stats.latency.run.p99).toBeGreaterThanOrEqual(stats.latency.run.p50)
    expect(stats.throughput).toBeGreaterThan(0)
  })
})

describe('locks', () => {
  it('are held by one, with a number that grows', async () => {
    const pool = poolOf<number, void>({ concurrency: 0 })
    const lock = await pool.locks.acquire('report', '1m')
    expect(await pool.locks.acquire('report', '1m')).toBeUndefined()
    expect(await lock?.extend('2m')).toBe(true)
    await expect(lock?.extend(0)).rejects.toMatchObject({ code: 'OPTION_INVALID' })
    expect(await lock?.release()).toBe(true)
    expect(await lock?.release()).toBe(false)
    const next = await pool.locks.acquire('report', '1m')
    expect(next?.fence).toBeGreaterThan(lock?.fence ?? Infinity)
  })
})
