/** What a user relies on, through the public API, on each storage. */
import { Priority, RetryLaterError, TaskPool, type Storage, type TaskPoolOptions } from '@neotask/core'
import { afterEach, beforeEach, describe, expect, it } from 'vitest'
import { gate, STORAGES, until } from './storages.js'

describe.each(STORAGES)('on $name', ({ open }) => {
  let storage: Storage
  let dispose: () => Promise<void>
  const pools: { close(options?: { timeout?: number }): Promise<unknown> }[] = []

  beforeEach(async () => {
    ;({ storage, dispose } = await open())
  })

  afterEach(async () => {
    await Promise.all(pools.splice(0).map((pool) => pool.close({ timeout: 0 })))
    await dispose()
  })

  function poolOf<Data, Result>(options: TaskPoolOptions<Data, Result>): TaskPool<Data, Result> {
    const pool = new TaskPool<Data, Result>({ storage, ...options })
    pools.push(pool)
    return pool
  }

  it('runs a task and gives its result to whoever waits', async () => {
    const pool = poolOf({ executor: (n: number) => n * 2 })
    const id = await pool.submit(21)
    expect(await pool.waitForResult(id)).toBe(42)
    expect(await pool.getStatus(id)).toBe('success')
    expect(await pool.run(4)).toBe(8)
  })

  it('tells each progress once, whatever is logged beside it', async () => {
    const pool = poolOf({
      executor: (_: null, ctx) => {
        ctx.progress(1)
        ctx.log('between')
        ctx.log('them')
        ctx.progress(2)
      },
    })
    const heard: unknown[] = []
    pool.on('task.progress', ({ progress }) => heard.push(progress))
    await pool.run(null)
    expect(heard).toEqual([1, 2])
  })

  it('gives a result to a pool that does not run the task', async () => {
    const worker = poolOf({ executor: (text: string) => text.toUpperCase() })
    await worker.start()
    const producer = poolOf<string, string>({ concurrency: 0 })
    expect(await producer.waitForResult(await producer.submit('far'))).toBe('FAR')
  })

  it('starts a critical task next, although 1 000 low ones are ready, some are claimed ahead and all slots are busy', async () => {
    const started: string[] = []
    const hold = gate()
    const pool = poolOf({
      concurrency: 2,
      executor: async (name: string) => {
        started.push(name)
        if (started.length <= 2) await hold.passed
      },
    })
    const low = Array.from({ length: 1000 }, (_, i) => ({ data: `low-${i}`, priority: Priority.low }))
    await pool.submitBatch(low)
    await until('both slots are busy and tasks are claimed ahead', async () => {
      const { prefetched } = await pool.health()
      return started.length === 2 && prefetched > 10
    })
    await pool.submit('critical', { priority: Priority.critical })
    hold.open()
    await until('more has started', () => started.length > 2)
    expect(started[2]).toBe('critical')
  })

  it('keeps the order of submission within a priority, also for what a closed pool gave back', async () => {
    const started: number[] = []
    const hold = gate()
    const first = poolOf({
      concurrency: 1,
      executor: async (n: number) => {
        started.push(n)
        if (n === 3) await hold.passed
      },
    })
    for (let n = 0; n < 200; n++) await first.submit(n)
    await until('the first pool is at work', () => started.includes(3))
    const closed = first.close()
    hold.open()
    const { returned } = await closed
    expect(returned).toBeGreaterThan(0)
    const second = poolOf({ concurrency: 1, executor: (n: number) => void started.push(n) })
    await second.start()
    await second.drain()
    expect(started).toEqual(Array.from({ length: 200 }, (_, n) => n))
  })

  it.each(['throw', 'return'])(
    'keeps a cancelled running task cancelled when its handler %ss afterwards',
    async (how) => {
      const hold = gate()
      let reason: string | undefined
      let ended = false
      const pool = poolOf({
        executor: async (_: number, ctx) => {
          ctx.signal.addEventListener('abort', () => (reason = (ctx.signal.reason as { kind: string }).kind))
          await hold.passed
          ended = true
          if (how === 'throw') throw new Error('too late')
        },
      })
      const id = await pool.submit(1)
      const waiting = pool.waitForResult(id)
      waiting.catch(() => {})
      await until('it runs', async () => (await pool.health()).running === 1)
      await pool.cancel(id, 'not wanted')
      await expect(waiting).rejects.toMatchObject({
        code: 'TASK_CANCELLED',
        message: expect.stringContaining('not wanted') as string,
      })
      await until('the handler is told', () => reason === 'cancelled')
      hold.open()
      await until('the handler ended', () => ended)
      await pool.drain()
      expect(await pool.getTask(id)).toMatchObject({ state: 'cancelled', attempts: 0 })
      expect(await pool.getStats()).toMatchObject({ retried: 0, completed: 0, cancelled: 1 })
    },
  )

  it('closes with ten running and 1 000 waiting: the ten end, the rest keeps its order', async () => {
    const hold = gate()
    const started: number[] = []
    const ended: number[] = []
    const first = poolOf({
      concurrency: 10,
      executor: async (n: number) => {
        started.push(n)
        await hold.passed
        ended.push(n)
      },
    })
    await first.submitBatch(Array.from({ length: 1010 }, (_, n) => ({ data: n })))
    await until('ten run', () => started.length === 10)
    const closing = first.close()
    hold.open()
    const report = await closing
    expect(report.finished).toBe(10)
    expect(ended).toHaveLength(10)
    expect(started).toHaveLength(10)
    expect(await storage.queue.counts({ tenant: 'default', queue: 'default' })).toMatchObject({
      success: 10,
      pending: 1000,
      running: 0,
    })

    const rest: number[] = []
    const second = poolOf({ concurrency: 1, executor: (n: number) => void rest.push(n) })
    await second.start()
    await second.drain()
    expect(rest).toEqual(Array.from({ length: 1000 }, (_, n) => n + 10))
  })

  it('aborts and gives back at the timeout of close, without using up an attempt', async () => {
    let reason: unknown
    const pool = poolOf({
      executor: (_: number, ctx) =>
        new Promise((_resolve, reject) => {
          ctx.signal.addEventListener('abort', () => {
            reason = (ctx.signal.reason as { kind: string }).kind
            reject(ctx.signal.reason as Error)
          })
        }),
    })
    const id = await pool.submit(1)
    await until('it runs', async () => (await pool.health()).running === 1)
    expect(await pool.close({ timeout: 10 })).toMatchObject({ finished: 0, returned: 1 })
    expect(reason).toBe('shutdown')
    const [record] = await storage.queue.get({ tenant: 'default', queue: 'default' }, [id])
    expect(record).toMatchObject({ state: 'pending', attempts: 0, reclaims: 0 })
  })

  it('rejects when the queue is full, or waits for room, as configured', async () => {
    const hold = gate()
    const options = { maxQueueSize: 3, concurrency: 1, prefetch: 0, executor: () => hold.passed }
    const rejecting = poolOf<number, void>({ ...options, queue: 'a' })
    await rejecting.submit(0)
    await until('it runs', async () => (await rejecting.health()).running === 1)
    for (let n = 1; n <= 3; n++) await rejecting.submit(n)
    await expect(rejecting.submit(4)).rejects.toMatchObject({ code: 'QUEUE_FULL', retryable: true })
    expect((await rejecting.counts()).pending).toBe(3)

    const waiting = poolOf<number, void>({ ...options, queue: 'b', overflow: 'wait' })
    await waiting.submit(0)
    await until('it runs', async () => (await waiting.health()).running === 1)
    const ids = Promise.all(Array.from({ length: 20 }, (_, n) => waiting.submit(n)))
    hold.open()
    for (const id of await ids) await waiting.waitForResult(id)
    expect((await waiting.counts()).success).toBe(21)
  })

  it('runs a failed task again on retry()', async () => {
    let works = false
    const pool = poolOf({
      retry: false,
      executor: () => {
        if (!works) throw new Error('not yet')
        return 'done'
      },
    })
    const id = await pool.submit(null)
    await expect(pool.waitForResult(id)).rejects.toMatchObject({
      code: 'TASK_FAILED',
      cause: { message: 'not yet' },
    })
    works = true
    await pool.retry(id)
    expect(await pool.waitForResult(id)).toBe('done')
    expect(await pool.getTask(id)).toMatchObject({ state: 'success', attempts: 1 })
  })

  it('retries by the policy, and tells how often', async () => {
    const attempts: number[] = []
    const retries: number[] = []
    const pool = poolOf({
      retry: { limit: 2, delay: 5, backoff: 'fixed', jitter: 'none' },
      executor: (_: number, ctx) => {
        attempts.push(ctx.attempt)
        if (ctx.attempt < 3) throw new Error(`attempt ${ctx.attempt}`)
        return ctx.attempt
      },
    })
    pool.on('task.retry', ({ retryCount }) => retries.push(retryCount))
    expect(await pool.run(0)).toBe(3)
    expect(attempts).toEqual([1, 2, 3])
    expect(retries).toEqual([1, 2])
  })

  it('runs again later without an attempt used up when the handler asks for it', async () => {
    const attempts: number[] = []
    const pool = poolOf({
      retry: false,
      executor: (_: number, ctx) => {
        attempts.push(ctx.attempt)
        if (attempts.length < 3) throw new RetryLaterError('5ms')
      },
    })
    await pool.run(0)
    expect(attempts).toEqual([1, 1, 1])
  })

  it('releases a task when those before it succeeded, and cancels it when one failed', async () => {
    const order: string[] = []
    const pool = poolOf({
      retry: false,
      executor: (name: string) => {
        order.push(name)
        if (name === 'bad') throw new Error('bad')
        return name
      },
    })
    const hold = await pool.submit('hold', { hold: true })
    const first = await pool.submit('first', { after: hold })
    const second = await pool.submit('second', { after: [first, hold] })
    const bad = await pool.submit('bad', { after: second })
    const never = await pool.submit('never', { after: [bad] })
    const anyway = await pool.submit('anyway', { after: { ids: [bad, never], on: 'final' } })
    expect(await pool.getTask(second)).toMatchObject({ state: 'blocked' })
    await pool.complete(hold, 'go')
    expect(await pool.waitForResult(hold)).toBe('go')
    expect(await pool.waitForResult(anyway)).toBe('anyway')
    await expect(pool.waitForResult(never)).rejects.toMatchObject({ code: 'DEPENDENCY_FAILED' })
    expect(order).toEqual(['first', 'second', 'bad', 'anyway'])
    await expect(pool.submit('x', { after: 'nobody' })).rejects.toMatchObject({
      code: 'DEPENDENCY_NOT_FOUND',
    })
  })

  it('never starts a delayed task early', async () => {
    const started = new Map<number, number>()
    const pool = poolOf({ executor: (n: number) => void started.set(n, Date.now()) })
    await pool.start()
    const due = new Map<number, number>()
    const ids: string[] = []
    for (let n = 0; n < 40; n++) {
      const delay = 5 + ((n * 37) % 150)
      due.set(n, Date.now() + delay)
      ids.push(await pool.submit(n, n % 2 === 0 ? { delay } : { runAt: new Date(due.get(n) as number) }))
    }
    await pool.waitAll(ids)
    for (const [n, at] of due) {
      expect(started.get(n)).toBeGreaterThanOrEqual(at)
      expect((started.get(n) as number) - at).toBeLessThan(500)
    }
  })

  it('takes a second submit of an id for the first, whatever has become of that', async () => {
    let calls = 0
    const executor = (data: string): string => {
      calls++
      if (data === 'bad') throw new Error('broken')
      return data
    }
    const pool = poolOf({ executor, retry: false })
    const created: string[] = []
    pool.on('task.created', ({ id }) => created.push(id))
    const again = (id: string): Promise<string> => pool.submit('another', { id, delay: '1h' })

    expect(await again(await pool.submit('waits', { id: 'held', hold: true }))).toBe('held')
    expect(await pool.getTask('held')).toMatchObject({ state: 'blocked', data: 'waits' })

    await pool.run('good', { id: 'done' })
    expect(await again('done')).toBe('done')
    expect(await pool.waitForResult('done')).toBe('good')
    expect(await pool.run('another', { id: 'done' })).toBe('good')

    await pool.run('bad', { id: 'failed' }).catch(() => {})
    expect(await again('failed')).toBe('failed')
    await expect(pool.waitForResult('failed')).rejects.toMatchObject({ code: 'TASK_FAILED' })

    await pool.remove('done')
    expect(await again('done')).toBe('done')
    expect(await pool.getTask('done')).toBeUndefined()
    await expect(pool.waitForResult('done')).rejects.toMatchObject({ code: 'RESULT_EXPIRED' })

    expect(calls).toBe(2)
    expect(created).toEqual(['held', 'done', 'failed'])
    expect((await pool.getStats()).submitted).toBe(3)
  })

  it('makes one task of the same id submitted twenty times at once', async () => {
    let runs = 0
    const pool = poolOf({ executor: () => ++runs })
    const ids = await Promise.all(Array.from({ length: 20 }, () => pool.submit(null, { id: 'welcome-42' })))
    expect(new Set(ids)).toEqual(new Set(['welcome-42']))
    expect(await pool.waitForResult('welcome-42')).toBe(1)
    await pool.submit(null, { id: 'welcome-42' })
    await pool.drain()
    expect(runs).toBe(1)
    expect((await pool.getStats()).submitted).toBe(1)
  })

  it.each([0, '', false, null, undefined, [], {}, Number.MIN_SAFE_INTEGER, 'ü€😀'])(
    'keeps the result %j',
    async (value) => {
      const pool = poolOf({ executor: (data: unknown) => data })
      expect(await pool.run(value)).toEqual(value)
      const id = await pool.submit(value)
      await pool.waitForResult(id)
      expect(await pool.getResult(id)).toEqual(value)
    },
  )

  it('ends what expired before it could start as cancelled', async () => {
    const hold = gate()
    const pool = poolOf({ concurrency: 1, prefetch: 0, executor: () => hold.passed })
    await pool.submit(null)
    const late = await pool.submit(null, { expiresIn: 30 })
    await expect(pool.waitForResult(late)).rejects.toMatchObject({ code: 'TASK_EXPIRED' })
    hold.open()
  })

  it('ends an attempt at its timeout, frees the slot and retries', async () => {
    let calls = 0
    const pool = poolOf({
      concurrency: 1,
      timeout: 20,
      retry: { limit: 1, delay: 1 },
      executor: (_: number, ctx) => (++calls === 1 ? new Promise(() => {}) : ctx.attempt),
    })
    expect(await pool.run(0)).toBe(2)
    const stuck = poolOf({ queue: 'stuck', timeout: 20, retry: false, executor: () => new Promise(() => {}) })
    await expect(stuck.run(null as never)).rejects.toMatchObject({
      code: 'TASK_FAILED',
      cause: { code: 'TASK_TIMEOUT' },
    })
  })

  it('stores progress, log lines and checkpoints, and gives the checkpoint to the next attempt', async () => {
    const pool = poolOf({
      retry: { limit: 1, delay: 1 },
      executor: async (_: number, ctx) => {
        if (ctx.attempt === 1) {
          ctx.progress({ done: 3 })
          ctx.log('three done', { of: 5 })
          await ctx.checkpoint({ next: 4 })
          await until(
            'the progress is stored',
            async () => (await pool.getTask(ctx.id))?.progress !== undefined,
          )
          throw new Error('crash')
        }
        return ctx.state
      },
    })
    const id = await pool.submit(0)
    expect(await pool.waitForResult(id)).toEqual({ next: 4 })
    const task = await pool.getTask(id)
    expect(task?.progress).toEqual({ done: 3 })
    expect(task?.logs).toEqual([expect.stringContaining('three done {"of":5}')])
  })

  it('stores what a handler said last, however short it runs', async () => {
    const pool = poolOf({
      executor: (_: number, ctx) => {
        ctx.progress(100)
        ctx.log('done')
      },
    })
    const id = await pool.submit(1)
    await pool.waitForResult(id)
    expect(await pool.getTask(id)).toMatchObject({ progress: 100, logs: [expect.stringContaining('done')] })
  })

  it('gives back what it claimed ahead when the queue is paused, and starts nothing more', async () => {
    const hold = gate()
    let calls = 0
    const pool = poolOf({
      concurrency: 1,
      executor: async () => {
        calls++
        await hold.passed
      },
    })
    await pool.submitBatch(Array.from({ length: 50 }, () => ({ data: 1 as never })))
    await until('some are claimed ahead', async () => (await pool.health()).prefetched > 0)
    await pool.pause()
    await until('they are given back', async () => (await pool.health()).prefetched === 0)
    hold.open()
    await until('the running one ended', async () => (await pool.counts()).success === 1)
    expect(await pool.counts()).toMatchObject({ pending: 49, running: 0 })
    expect(calls).toBe(1)
  })

  it('pauses for every pool and goes on where it was', async () => {
    const seen: number[] = []
    const pool = poolOf({ executor: (n: number) => void seen.push(n) })
    await pool.start()
    await pool.pause()
    const id = await pool.submit(1)
    expect(await pool.explain(id)).toMatchObject({ state: 'pending', reasons: [{ code: 'queue-paused' }] })
    expect((await pool.counts()).paused).toBe(true)
    await pool.resume()
    await pool.waitForResult(id)
    expect(seen).toEqual([1])
  })

  it('settles the waiters of a removed task', async () => {
    const pool = poolOf({ executor: () => 1 })
    const id = await pool.submit(null, { delay: '1h' })
    const waiting = pool.waitForResult(id)
    waiting.catch(() => {})
    await until('the wait is registered', async () => (await pool.getStatus(id)) === 'scheduled')
    await pool.remove(id)
    await expect(waiting).rejects.toMatchObject({
      code: expect.stringMatching(/TASK_REMOVED|RESULT_EXPIRED/) as string,
    })
    await expect(pool.waitForResult(id)).rejects.toMatchObject({ code: 'RESULT_EXPIRED' })
  })

  it('promotes, reprioritizes, lists and counts', async () => {
    const pool = poolOf<number, void>({ concurrency: 0 })
    const later = await pool.submit(1, { delay: '1h', tags: ['slow'] })
    const low = await pool.submit(2, { priority: Priority.low })
    const normal = await pool.submit(3)
    expect((await pool.list()).tasks.map(({ id }) => id)).toEqual([normal, low])
    await pool.reprioritize(low, Priority.high)
    await pool.promote(later)
    expect((await pool.list()).tasks.map(({ id }) => id)).toEqual([low, normal, later])
    expect((await pool.list({ state: 'pending' })).tasks[2]).toMatchObject({ data: 1, tags: ['slow'] })
    expect(await pool.counts()).toMatchObject({ pending: 3, scheduled: 0 })
    await expect(pool.promote(later)).rejects.toMatchObject({ code: 'ILLEGAL_STATE' })
    await expect(pool.retry('nobody')).rejects.toMatchObject({ code: 'TASK_NOT_FOUND' })
  })
})
