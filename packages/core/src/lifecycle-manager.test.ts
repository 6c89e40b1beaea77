/** Submits that wait for room in a full queue, and ends that no handler decides. */
import { afterEach, describe, expect, it, vi } from 'vitest'
import { memoryStorage } from './memory-storage.js'
import type { Storage } from './storage.js'
import { TaskPool } from './task-pool.js'
import { ManualClock } from './testing/manual-clock.js'

const pools: TaskPool<number>[] = []
afterEach(async () => {
  await Promise.all(pools.splice(0).map((pool) => pool.close({ timeout: 0 })))
})

const codeOf = (call: Promise<unknown>): Promise<string> =>
  call.then(
    () => 'none',
    (error: unknown) => (error as { code: string }).code,
  )

describe('overflow: wait', () => {
  const setUp = (storage: Storage, clock: ManualClock): TaskPool<number> => {
    const pool = new TaskPool<number>({ storage, clock, concurrency: 0, maxQueueSize: 1, overflow: 'wait' })
    pools.push(pool)
    return pool
  }

  it('waits for as long as it takes, with the result too', async () => {
    const clock = new ManualClock()
    const storage = memoryStorage({ clock })
    const pool = setUp(storage, clock)
    const first = await pool.submit(1)
    const run = codeOf(pool.run(2, { id: 'second' }))
    await clock.advanceAsync(5000)
    await pool.cancel(first)
    await clock.advanceAsync(300)
    expect(await pool.getStatus('second')).toBe('pending')
    await pool.cancel('second')
    await clock.advanceAsync(1100)
    expect(await run).toBe('TASK_CANCELLED')
  })

  it('lets nobody overtake who tries just now whether there is room', async () => {
    const clock = new ManualClock()
    const storage = memoryStorage({ clock })
    const pool = setUp(storage, clock)
    const first = await pool.submit(1, { id: 'first' })
    const older = pool.submit(2, { id: 'older' })
    const enqueue = storage.queue.enqueue.bind(storage.queue)
    let goOn!: () => void
    const held = new Promise<void>((resolve) => (goOn = resolve))
    vi.spyOn(storage.queue, 'enqueue').mockImplementationOnce(async (...args) => {
      await held
      return await enqueue(...args)
    })
    await clock.advanceAsync(10)
    await pool.cancel(first)
    const newer = pool.submit(3, { id: 'newer' })
    goOn()
    await older
    expect(await pool.getStatus('newer')).toBeUndefined()
    await pool.cancel('older')
    await clock.advanceAsync(300)
    expect(await newer).toBe('newer')
  })

  it('ends when the pool closes, also while the storage is being asked', async () => {
    const clock = new ManualClock()
    const storage = memoryStorage({ clock })
    const pool = setUp(storage, clock)
    await pool.submit(1)
    const { enqueue } = storage.queue
    let answer: () => void = () => {}
    let asked = 0
    Object.assign(storage.queue, { enqueueNow: undefined })
    storage.queue.enqueue = async (...request) => {
      asked++
      const outcomes = await enqueue.apply(storage.queue, request)
      await new Promise<void>((resolve) => (answer = resolve))
      return outcomes
    }
    const refused = codeOf(pool.submit(2))
    await clock.settle()
    answer()
    await clock.advanceAsync(10)
    expect(asked).toBe(2)
    const closed = pool.close()
    await clock.settle()
    answer()
    await clock.settle()
    expect(await refused).toBe('POOL_CLOSED')
    await closed
    await clock.advanceAsync(10_000)
    expect(asked).toBe(2)
    expect(clock.holding).toBe(0)
  })

  it('names the task when the storage goes away meanwhile', async () => {
    const clock = new ManualClock()
    const storage = memoryStorage({ clock })
    const pool = setUp(storage, clock)
    await pool.submit(1)
    const refused = pool.submit(2, { id: 'second' })
    await clock.settle()
    storage.queue.enqueue = () => new Promise(() => {})
    const error = refused.catch((cause: unknown) => cause)
    await clock.advanceAsync(10_100)
    expect(await error).toMatchObject({ code: 'STORAGE_UNAVAILABLE', uncertain: true, taskId: 'second' })
  })
})

describe('a task whose options cannot be read', () => {
  it('fails, and says so', async () => {
    const storage = memoryStorage()
    const pool = new TaskPool<number, number>({ storage, executor: (n) => n })
    pools.push(pool)
    const ref = { tenant: 'default', queue: 'default' }
    await storage.queue.enqueue(ref, [
      { id: 'bad', kind: '', payload: '1', codec: 'json', priority: 2, options: '{' },
    ])
    await pool.start()
    const error: unknown = await pool.waitForResult('bad').catch((cause: unknown) => cause)
    expect(error).toMatchObject({ code: 'TASK_FAILED', cause: { name: 'SyntaxError' } })
  })
})

it('a handler that throws what cannot be looked at fails its task, and harms nobody else', async () => {
  const pool = new TaskPool<number>({
    retry: false,
    executor: (n) => {
      const { proxy, revoke } = Proxy.revocable(new Error('hidden'), {})
      revoke()
      if (n === 0) throw proxy
    },
  })
  pools.push(pool)
  await expect(pool.run(0)).rejects.toThrow('the handler threw what cannot be looked at')
  await pool.run(1)
  expect(await pool.counts()).toMatchObject({ running: 0, failed: 1, success: 1 })
})
