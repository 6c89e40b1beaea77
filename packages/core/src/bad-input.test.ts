/** Every bad value has an error that names the option, what was expected and what came; nothing is half done. */
import { afterEach, describe, expect, it } from 'vitest'
import { z } from 'zod'
import { defineTask } from './define-task.js'
import { NeoTaskError } from './errors.js'
import { memoryStorage } from './memory-storage.js'
import { openStorage } from './open-storage.js'
import type { SubmitOptions } from './options.js'
import type { Storage } from './storage.js'
import { TaskPool, type TaskPoolOptions } from './task-pool.js'

const pools: TaskPool[] = []
afterEach(async () => {
  await Promise.all(pools.splice(0).map((pool) => pool.close({ timeout: 0 })))
})

function poolOf<Data, Result>(options: TaskPoolOptions<Data, Result>): TaskPool<Data, Result> {
  const pool = new TaskPool(options)
  pools.push(pool)
  return pool
}

/** A value of the wrong type, as a caller without types would pass it. */
const wrong = (value: unknown): never => value as never
const executor = (): undefined => undefined
const circular: Record<string, unknown> = {}
circular.self = circular

describe('options of a pool', () => {
  it.each([
    [
      'an unknown option',
      { concurency: 5 },
      /concurency: expected no such option, did you mean concurrency\? .* got 5/,
    ],
    ['a negative number', { concurrency: -1 }, /concurrency: expected an integer from 0 to 100000, got -1/],
    ['NaN', { concurrency: NaN }, /concurrency: .* got NaN/],
    ['an infinite number', { maxQueueSize: Infinity }, /maxQueueSize: .* got Infinity/],
    ['a fraction', { maxPayload: 1.5 }, /maxPayload: .* got 1.5/],
    ['a wrong unit', { timeout: '5 minutes' }, /timeout: .* got "5 minutes"/],
    ['a negative duration', { sessionTtl: -5 }, /sessionTtl: .* got -5/],
    ['a session that is too short', { sessionTtl: '500ms' }, /sessionTtl: .*500ms/],
    ['an infinite duration', { callTimeout: Infinity }, /callTimeout: .* got Infinity/],
    ['a wrong overflow', { overflow: 'drop' }, /overflow: expected 'reject' or 'wait', got "drop"/],
    ['a bad queue name', { queue: 'a b' }, /queue: .* got "a b"/],
    ['a bad retry limit', { retry: { limit: -1 } }, /retry.limit: .* got -1/],
    ['a bad retry backoff', { retry: { backoff: 'random' } }, /retry.backoff: .* got "random"/],
    ['an unknown retry option', { retry: { tries: 3 } }, /retry.tries: expected no such option/],
    ['a bad prefetch', { prefetch: 'lots' }, /prefetch.* got "lots"/],
    ['a bad retention', { retention: { success: { count: -1 } } }, /retention.success.count: .* got -1/],
    ['a bad logger', { logger: { info() {} } }, /logger: /],
    ['a bad codec', { codec: { id: 'x', encode() {} } }, /codec: /],
    [
      'a handler that is no function',
      { executor: 'run' },
      /executor: expected a function, or the URL of a file .* got "run"/,
    ],
    ['a handler from the net', { executor: new URL('https://x.org/y.js') }, /executor: .* got "https:\/\/x/],
    ['a relative handler', { executor: 'file:./x.js' }, /executor: .* got "file:.\/x.js"/],
    [
      'a file that does not exist',
      { executor: new URL('./nowhere.js', import.meta.url) },
      /executor: expected a file that exists, got "file:/,
    ],
    ['threads that are none', { threads: 4 }, /threads: expected an object, got 4/],
    ['no threads', { threads: { size: 0 } }, /threads.size: expected an integer from 1 to 1000, got 0/],
    ['too little memory', { threads: { memoryLimit: 8 } }, /threads.memoryLimit: .* from 16 .* got 8/],
    ['a bad grace', { threads: { grace: 'soon' } }, /threads.grace: .* got "soon"/],
    ['a negative idle time', { threads: { idleTimeout: -1 } }, /threads.idleTimeout: .* got -1/],
    ['no time to start', { threads: { startTimeout: 0 } }, /threads.startTimeout: .* got 0/],
    ['an unknown thread option', { threads: { sizes: 1 } }, /threads.sizes: .* did you mean size\?/],
    ['tasks that are none', { tasks: [{ name: 'x' }] }, /tasks: expected what defineTask returns/],
    ['no handler at all', { executor: undefined }, /executor: /],
    ['a storage that is none', { storage: 5 }, /storage: .* got 5/],
  ])('refuses %s', (_, options, message) => {
    const make = (): unknown => new TaskPool(wrong({ executor, ...options }))
    expect(make).toThrow(message)
    expect(make).toThrow(expect.objectContaining({ code: 'OPTION_INVALID' }) as Error)
  })

  it('refuses a storage URL that nobody knows when it is opened', async () => {
    await expect(openStorage('mongodb://x')).rejects.toMatchObject({ code: 'OPTION_INVALID' })
    const pool = poolOf({ executor, storage: 'mongodb://x' })
    await expect(pool.submit(wrong(1))).rejects.toThrow(/storage: .*got "mongodb:\/\/x"/)
  })

  it('refuses bad definitions', () => {
    expect(() => defineTask({ name: 'a b', handler: executor })).toThrow(/defineTask.name: .* got "a b"/)
    expect(() => defineTask({ name: 'a', handler: wrong('x') })).toThrow(
      /defineTask\("a"\).handler: expected a function/,
    )
    const lost = defineTask({ name: 'a', handler: new URL('./nowhere.js', import.meta.url) })
    expect(() => new TaskPool({ tasks: [lost] })).toThrow(
      /defineTask\("a"\).handler: expected a file that exists/,
    )
    // A producer does not need it.
    expect(() => new TaskPool({ tasks: [lost], concurrency: 0 })).not.toThrow()
    expect(() => defineTask({ name: 'a', timeout: 'x' })).toThrow(/defineTask\("a"\).timeout/)
    const a = defineTask({ name: 'a', handler: executor })
    expect(() => new TaskPool({ tasks: [a, defineTask({ name: 'a', handler: executor })] })).toThrow(
      /tasks: expected each name once/,
    )
  })
})

describe('submit', () => {
  it.each<[string, unknown, RegExp]>([
    ['a malformed id', { id: 'a b' }, /id: expected 1 to 128 characters.* got "a b"/],
    ['an id of the library', { id: 'run~node' }, /id: /],
    ['an empty id', { id: '' }, /id: /],
    ['an id that is too long', { id: 'x'.repeat(129) }, /id: /],
    ['an id that is a number', { id: 5 }, /id: .* got 5/],
    ['a priority below', { priority: -1 }, /priority: .* got -1/],
    ['a priority above', { priority: 1001 }, /priority: .*critical 0.* got 1001/],
    ['a name as priority', { priority: 'high' }, /priority: .* got "high"/],
    ['a wrong unit', { delay: '5x' }, /delay: .* got "5x"/],
    ['a negative delay', { delay: -1 }, /delay: .* got -1/],
    ['an invalid date', { runAt: new Date(NaN) }, /runAt: .*an invalid Date/],
    ['what only looks like a date', { runAt: new Proxy(new Date(), {}) }, /runAt: .*an invalid Date/],
    ['a delay of more than 100 000 years', { delay: 36_525_000 * 86_400_000 + 1 }, /delay: .*36525000d/],
    ['delay and runAt', { delay: 1, runAt: new Date() }, /runAt: /],
    ['an unknown option', { delai: 1 }, /delai: expected no such option, did you mean delay\?/],
    ['a debounce that is none', { debounce: 5 }, /debounce: expected \{ key, wait, maxWait \}, got 5/],
    ['a debounce without a key', { debounce: { wait: 5 } }, /debounce\.key: expected .* got undefined/],
    ['a debounce without a time', { debounce: { key: 'k' } }, /debounce\.wait: expected a duration/],
    [
      'a debounce that waits at most less than at least',
      { debounce: { key: 'k', wait: '5s', maxWait: '4s' } },
      /debounce\.maxWait: .*at least 5s.* got "4s"/,
    ],
    ['a debounce with an unknown part', { debounce: { key: 'k', wait: 5, mode: 'x' } }, /debounce\.mode/],
    [
      'debounce beside an id',
      { debounce: { key: 'k', wait: 5 }, id: 'x' },
      /id: expected no debounce beside it/,
    ],
    ['debounce beside a delay', { debounce: { key: 'k', wait: 5 }, delay: 5 }, /delay: expected no debounce/],
    ['debounce beside a hold', { debounce: { key: 'k', wait: 5 }, hold: true }, /hold: expected no debounce/],
    [
      'too many parents',
      { after: Array.from({ length: 101 }, (_, i) => `p${i}`) },
      /after: expected at most 100/,
    ],
    ['a bad mode', { after: { ids: ['a'], on: 'sometimes' } }, /after.on: /],
    ['bad tags', { tags: 'red' }, /tags: /],
    ['options that are none', 'high', /submit options: expected an object, got "high"/],
  ])('refuses %s and stores nothing', async (_, options, message) => {
    const pool = poolOf({ executor, concurrency: 0 })
    await expect(pool.submit(wrong({}), options as SubmitOptions)).rejects.toThrow(message)
    await expect(pool.submit(wrong({}), options as SubmitOptions)).rejects.toMatchObject({
      code: 'OPTION_INVALID',
    })
    expect((await pool.counts()).pending).toBe(0)
  })

  it.each<[string, unknown, string, RegExp]>([
    ['circular data', circular, 'PAYLOAD_INVALID', /data\.self/],
    ['a BigInt', { n: [1, 5n] }, 'PAYLOAD_INVALID', /data\.n\[1\]/],
    ['a function', { go: () => {} }, 'PAYLOAD_INVALID', /data\.go/],
    ['NaN', { n: NaN }, 'PAYLOAD_INVALID', /data\.n/],
    ['a Map', new Map(), 'PAYLOAD_INVALID', /data/],
    ['too much', 'x'.repeat(2_000_000), 'PAYLOAD_TOO_LARGE', /1048576/],
  ])('refuses %s', async (_, data, code, message) => {
    const pool = poolOf({ executor, concurrency: 0 })
    const submitted = pool.submit(wrong(data))
    await expect(submitted).rejects.toThrow(message)
    await expect(submitted).rejects.toMatchObject({ code })
    expect((await pool.counts()).pending).toBe(0)
  })

  it('names each field that does not fit the schema', async () => {
    const mail = defineTask({
      name: 'mail',
      input: z.object({ to: z.email(), copies: z.number().default(1) }),
      handler: (data) => data.copies,
    })
    const pool = poolOf({ tasks: [mail] })
    await expect(pool.submit(mail, { to: 'nobody' })).rejects.toMatchObject({
      code: 'VALIDATION_FAILED',
      message: expect.stringMatching(/task mail: to: /) as string,
    })
    expect(await pool.run(mail, { to: 'a@b.org' })).toBe(1)
  })

  it('refuses data without a definition where nothing could run it', async () => {
    const pool = poolOf({ tasks: [defineTask({ name: 'known', handler: executor })] })
    await expect(pool.submit(wrong(1))).rejects.toThrow(/submit: expected a task definition first/)
  })

  it('refuses a definition that this pool does not know', async () => {
    const known = defineTask({ name: 'known', handler: executor })
    const foreign = defineTask({ name: 'foreign', handler: executor })
    const pool = poolOf({ tasks: [known] })
    await expect(pool.submit(foreign, wrong(1))).rejects.toThrow(
      /task: expected one of this pool's tasks \(known\), got "foreign"/,
    )
  })

  it('refuses after close, and so does everything else', async () => {
    const pool = poolOf({ executor })
    const id = await pool.submit(wrong(1))
    await pool.close()
    await pool.close()
    for (const call of [
      () => pool.submit(wrong(1)),
      () => pool.run(wrong(1)),
      () => pool.waitForResult(id),
      () => pool.counts(),
      () => pool.start(),
    ]) {
      await expect(call()).rejects.toMatchObject({ code: 'POOL_CLOSED' })
    }
  })
})

describe('a storage that does not answer', () => {
  it('makes every call fail by its deadline, and an uncertain submit says its id', async () => {
    const storage = memoryStorage()
    await storage.open()
    const never = (): Promise<never> => new Promise(() => {})
    const { name, durable, limits, session, upkeep, records, locks, notices } = storage
    const silent: Storage = {
      ...{ name, durable, limits, session, upkeep, records, locks, notices },
      queue: new Proxy(storage.queue, { get: (_, name) => (name === 'enqueueNow' ? undefined : never) }),
      open: () => storage.open(),
      close: () => storage.close(),
    }
    const pool = poolOf({ executor, storage: silent, concurrency: 0, callTimeout: 100 })
    const submitted = pool.submit(wrong(1), { id: 'a' })
    await expect(submitted).rejects.toMatchObject({
      code: 'STORAGE_UNAVAILABLE',
      taskId: 'a',
      uncertain: true,
      retryable: true,
    })
    await expect(pool.submit(wrong(1))).rejects.toMatchObject({
      taskId: expect.stringMatching(/^\w{13}~$/) as string,
    })
    await expect(pool.counts()).rejects.toMatchObject({ code: 'STORAGE_UNAVAILABLE' })
    await expect(pool.waitForResult('a')).rejects.toMatchObject({ code: 'STORAGE_UNAVAILABLE' })
    expect(await pool.health()).toMatchObject({ ok: false, storage: { ok: false } })
  })
})

describe('unknown ids', () => {
  it('answers for each question', async () => {
    const pool = poolOf({ executor })
    expect(await pool.getTask('nobody')).toBeUndefined()
    expect(await pool.getStatus('nobody')).toBeUndefined()
    for (const call of [
      () => pool.waitForResult('nobody'),
      () => pool.getResult('nobody'),
      () => pool.cancel('nobody'),
      () => pool.retry('nobody'),
      () => pool.promote('nobody'),
      () => pool.reprioritize('nobody', 1),
      () => pool.remove('nobody'),
      () => pool.complete('nobody', 1),
      () => pool.explain('nobody'),
    ]) {
      await expect(call()).rejects.toMatchObject({ code: 'TASK_NOT_FOUND', taskId: 'nobody' })
    }
    await expect(pool.waitForResult(wrong(5))).rejects.toMatchObject({ code: 'OPTION_INVALID' })
  })
})

describe('handlers', () => {
  const selfCaused = new Error('self')
  selfCaused.cause = selfCaused
  const hostile = new Error('hostile')
  Object.defineProperty(hostile, 'stack', {
    get() {
      throw new Error('no stack for you')
    },
  })

  it.each<[string, unknown, string]>([
    ['undefined', undefined, 'the handler threw undefined'],
    ['a string', 'plain', 'plain'],
    ['null', null, 'null'],
    ['a frozen error', Object.freeze(new Error('frozen')), 'frozen'],
    ['an error that causes itself', selfCaused, 'self'],
    ['an error whose getter throws', hostile, 'hostile'],
    ['an object with a cycle', circular, '[object Object]'],
  ])('may throw %s', async (_, thrown, message) => {
    const pool = poolOf({
      retry: false,
      executor: () => {
        throw thrown
      },
    })
    await expect(pool.run(wrong(1))).rejects.toMatchObject({ code: 'TASK_FAILED', cause: { message } })
    expect((await pool.counts()).failed).toBe(1)
  })

  it.each<[string, unknown]>([
    ['a function', () => {}],
    ['a cycle', circular],
    ['a BigInt', 1n],
    ['too much', 'x'.repeat(2_000_000)],
  ])('that return %s fail without a retry', async (_, value) => {
    let calls = 0
    const pool = poolOf({
      executor: () => {
        calls++
        return value
      },
    })
    await expect(pool.run(wrong(1))).rejects.toMatchObject({
      code: 'TASK_FAILED',
      cause: { name: 'PayloadError', message: expect.stringContaining('result') as string },
    })
    expect(calls).toBe(1)
  })

  it('that never settle do not keep close() from ending, and their task goes back', async () => {
    const storage = memoryStorage()
    const pool = poolOf({ storage, executor: () => new Promise(() => {}) })
    const started = new Promise((resolve) => pool.once('task.started', resolve))
    await pool.submit(wrong(1))
    await started
    const before = performance.now()
    expect(await pool.close({ timeout: 10 })).toMatchObject({ finished: 0, returned: 1 })
    expect(performance.now() - before).toBeLessThan(3000)
    expect(await storage.queue.counts({ tenant: 'default', queue: 'default' })).toMatchObject({
      pending: 1,
      running: 0,
    })
  })

  it('that block the loop for seconds keep their tasks, and the pool goes on', async () => {
    const pool = poolOf({
      executor: (block: boolean) => {
        const end = performance.now() + (block ? 2500 : 0)
        while (performance.now() < end);
        return block
      },
      sessionTtl: '10s',
    })
    const [blocking, quick] = await Promise.all([pool.submit(true), pool.submit(false)])
    expect(await pool.waitForResult(quick)).toBe(false)
    expect(await pool.waitForResult(blocking)).toBe(true)
    expect(await pool.getTask(blocking)).toMatchObject({ attempts: 1, reclaims: 0 })
  })

  it('that throw NonRetryableError fail at once', async () => {
    const { NonRetryableError } = await import('./errors.js')
    let calls = 0
    const pool = poolOf({
      executor: () => {
        calls++
        throw new NonRetryableError('never')
      },
    })
    await expect(pool.run(wrong(1))).rejects.toBeInstanceOf(NeoTaskError)
    expect(calls).toBe(1)
  })
})

describe('listeners and services', () => {
  it('that throw or reject never touch the pool, and are told to pool.error', async () => {
    const errors: unknown[] = []
    const pool = poolOf({ executor: (n: number) => n })
    pool.on('pool.error', ({ error }) => errors.push(error))
    pool.on('task.completed', () => {
      throw new Error('listener')
    })
    pool.on('pool.error', () => {
      throw new Error('even this one')
    })
    expect(await pool.run(1)).toBe(1)
    expect(await pool.run(2)).toBe(2)
    expect(errors).toContainEqual(expect.objectContaining({ message: 'listener' }))
  })

  it('keep the contract: start twice, stop unstarted, stop in reverse, failures named', async () => {
    const calls: string[] = []
    const service = (name: string, fails = false) => ({
      name,
      start: () => {
        calls.push(`start ${name}`)
        if (fails) throw new Error('no')
      },
      stop: () => void calls.push(`stop ${name}`),
    })
    const pool = poolOf({ executor })
    const a = service('a')
    await pool.use(a)
    await pool.use(a)
    await pool.start()
    await pool.start()
    await pool.use(service('b'))
    await expect(pool.use(service('c', true))).rejects.toMatchObject({
      code: 'SERVICE_FAILED',
      cause: { message: 'no' },
    })
    await expect(pool.use(wrong({ name: 'd' }))).rejects.toThrow(/service: /)
    await pool.close()
    expect(calls).toEqual(['start a', 'start b', 'start c', 'stop b', 'stop a'])

    const failing = poolOf({ executor })
    let fails = true
    await failing.use({
      name: 'first',
      start: () => {
        if (fails) throw new Error('no')
      },
      stop: () => {},
    })
    await expect(failing.start()).rejects.toMatchObject({ code: 'SERVICE_FAILED' })
    fails = false
    await failing.start()
    expect(await failing.getNodes()).toHaveLength(1)

    const unstarted = poolOf({ executor })
    await unstarted.use(service('e'))
    await unstarted.close()
    expect(calls).not.toContain('stop e')
  })
})
