import { AssertionError } from 'node:assert'
import { deserialize, serialize } from 'node:v8'
import { afterEach, describe, expect, expectTypeOf, it, vi } from 'vitest'
import { defineTask } from '../define-task.js'
import { RetryLaterError } from '../errors.js'
import type { Handler } from '../define-task.js'
import { TaskPool } from '../task-pool.js'
import { createTestPool, type TestPool, type TestPoolOptions } from './test-pool.js'
import { ManualClock } from './manual-clock.js'
import type { SubmittedTask } from './submitted-tasks.js'

interface Mail {
  to: string
  subject?: string
  sent?: Date
  parts?: { name: string; bytes: number }[]
}

const START = Date.UTC(2026, 0, 1)

const pools: { close(): Promise<unknown> }[] = []
let sent: string[] = []
const sendMail = defineTask({ name: 'send-mail', handler: (mail: Mail) => void sent.push(mail.to) })
const audit = defineTask({ name: 'audit', handler: (_what: string) => {} })

function poolOf<Data = never, Result = unknown>(
  options: TestPoolOptions<Data, Result>,
): TestPool<Data, Result> {
  const pool = createTestPool(options)
  pools.push(pool)
  return pool
}

const mailPool = (options: TestPoolOptions = {}): TestPool => poolOf({ tasks: [sendMail, audit], ...options })

/** Real input and output: the event loop has to wait for it. */
const busy = (): Promise<void> => new Promise((resolve) => realTimeout(resolve, 15))
const realTimeout = setTimeout

afterEach(async () => {
  vi.useRealTimers()
  await Promise.all(pools.splice(0).map((pool) => pool.close()))
  sent = []
})

function messageOf(assertion: () => void): string {
  try {
    assertion()
  } catch (error) {
    expect(error).toBeInstanceOf(AssertionError)
    return (error as AssertionError).message
  }
  throw new Error('the assertion holds')
}

describe('what was submitted', () => {
  it('is remembered, and does not run', async () => {
    const pool = mailPool()
    expect(pool).toBeInstanceOf(TaskPool)
    const id = await pool.submit(sendMail, { to: 'ada' }, { delay: '1m', priority: 1, tags: ['welcome'] })
    await pool.submit(audit, 'sign-up')
    await pool.clock.settle()
    expect(pool.submitted()).toHaveLength(2)
    expect(pool.submitted(sendMail)).toEqual([
      {
        id,
        name: 'send-mail',
        data: { to: 'ada' },
        options: { delay: 60_000, priority: 1, tags: ['welcome'] },
      },
    ])
    expect(pool.submitted('audit').map(({ data }) => data)).toEqual(['sign-up'])
    expect(sent).toEqual([])
    expect(await pool.getStatus(id)).toBe('scheduled')
  })

  it('has the type of the data', () => {
    const pool = mailPool()
    expectTypeOf(pool.submitted(sendMail)).toEqualTypeOf<SubmittedTask<Mail>[]>()
    expectTypeOf(pool.submitted(audit)).toEqualTypeOf<SubmittedTask<string>[]>()
    // @ts-expect-error the data has no such property
    expect(() => pool.assertSubmitted(sendMail, { too: 'ada' })).toThrow()
  })

  it('is what the handler gets, also by run and submitBatch, and only once for one id', async () => {
    const pool = poolOf({ executor: (mail: Mail) => mail.to })
    await pool.submitBatch([{ data: { to: 'a' } }, { data: { to: 'b' }, id: 'one' }])
    await pool.submit({ to: 'other' }, { id: 'one' })
    expect(await pool.run({ to: 'c', sent: new Date(0) })).toBe('c')
    expect(pool.submitted('').map(({ data }) => data)).toEqual([
      { to: 'a' },
      { to: 'b' },
      { to: 'c', sent: '1970-01-01T00:00:00.000Z' },
    ])
  })

  it('is by debounce what the task has become', async () => {
    const pool = mailPool()
    const debounce = { key: 'ada', wait: '5s', maxWait: '1m' }
    const id = await pool.submit(sendMail, { to: 'old' }, { debounce })
    await pool.submit(sendMail, { to: 'new' }, { debounce })
    expect(pool.submitted(sendMail)).toEqual([
      {
        id,
        name: 'send-mail',
        data: { to: 'new' },
        options: { priority: 2, debounce: { key: 'ada', wait: 5000, maxWait: 60_000 } },
      },
    ])
    await pool.advance('5s')
    expect(sent).toEqual(['new'])
    await pool.submit(sendMail, { to: 'again' }, { debounce })
    await pool.advance('5s')
    expect(sent).toEqual(['new', 'again'])
    expect(pool.submitted(sendMail)).toHaveLength(2)
  })

  it('is not what was refused', async () => {
    const pool = mailPool()
    await expect(pool.submit(audit, 'x', { after: 'nobody' })).rejects.toThrow()
    expect(pool.submitted()).toEqual([])
  })
})

describe('assertSubmitted', () => {
  it('gives the task that has the properties named', async () => {
    const pool = mailPool()
    await pool.submit(sendMail, { to: 'ada' })
    const parts = [{ name: 'a.png', bytes: 7 }]
    const id = await pool.submit(sendMail, { to: 'bob', parts, sent: new Date(5) })
    expect(pool.assertSubmitted(sendMail).data.to).toBe('ada')
    expect(pool.assertSubmitted(sendMail, { to: 'bob' }).id).toBe(id)
    pool.assertSubmitted('send-mail', { parts: [{ name: 'a.png' }] })
    pool.assertSubmitted(sendMail, { sent: new Date(5) })
    pool.assertSubmitted(sendMail, { parts: expect.any(Array) as [] })
    pool.assertSubmitted(sendMail, (mail, task) => mail.to === 'bob' && task.options.priority === 2)
    expect(() => pool.assertSubmitted(sendMail, { parts: [] })).toThrow(AssertionError)
    expect(() => pool.assertSubmitted(sendMail, { to: 'ada', sent: new Date(5) })).toThrow(AssertionError)
  })

  it('compares whole what is no plain object, as its handler would get it', async () => {
    class Size {
      readonly bytes: number
      constructor(bytes: number) {
        this.bytes = bytes
      }
    }
    const plain = defineTask({ name: 'plain', handler: (_data: { items: unknown }) => {} })
    const pool = poolOf({ tasks: [plain] })
    await pool.submit(plain, { items: { bytes: 7, more: [{ at: new Date(5), name: 'a' }] } })
    pool.assertSubmitted(plain, { items: { more: [{ at: new Date(5) }] } })
    pool.assertNotSubmitted(plain, { items: { more: [{ at: new Date(6) }] } })
    pool.assertNotSubmitted(plain, { items: new Size(7) })
    pool.assertNotSubmitted(plain, { items: { toJSON: () => ({}) } })
    pool.assertNotSubmitted(plain, { items: [] })
    await pool.submit(plain, { items: new Size(7) })
    pool.assertSubmitted(plain, { items: new Size(7) })
    pool.assertNotSubmitted(plain, { items: new Size(8) })
  })

  it('finds text by a RegExp', async () => {
    const pool = mailPool()
    await pool.submit(sendMail, { to: 'ada@example.org', parts: [{ name: 'a.png', bytes: 7 }] })
    await pool.submit(audit, 'sign-up')
    const regex = /@EXAMPLE/gi
    for (let n = 0; n < 2; n++) pool.assertSubmitted(sendMail, { to: regex, parts: [{ name: /png$/ }] })
    pool.assertSubmitted(audit, /^sign/)
    pool.assertNotSubmitted(sendMail, { to: /^bob/ })
    expect(() => pool.assertNotSubmitted(sendMail, { to: /^ada/ })).toThrow(AssertionError)
    pool.assertNotSubmitted('send-mail', { parts: /./ })
    expect(messageOf(() => pool.assertSubmitted(sendMail, { to: /^bob/ }))).toMatch(
      /\+\s+to: 'ada@example.org'\n-\s+to: \/\^bob\//,
    )
  })

  it.each([
    ['a Set', new Set(['zzz']), 'Set'],
    ['an empty Map', new Map(), 'Map'],
    ['an Error', new Error('zzz'), 'Error'],
    ['a function', () => true, 'a function'],
    ['NaN', NaN, 'NaN'],
  ])('refuses what no data can have, whether or not there is any: %s', async (_, items, named) => {
    const pool = mailPool()
    const refused = expect.objectContaining({
      code: 'PAYLOAD_INVALID',
      message: expect.stringMatching(
        new RegExp(`^expected\\.items\\[1\\]: expected .* got .*${named}`),
      ) as string,
    }) as Error
    expect(() => pool.assertNotSubmitted('send-mail', { items: ['a', items] })).toThrow(refused)
    await pool.submit(sendMail, { to: 'ada', items: { a: 1 } } as Mail)
    expect(() => pool.assertSubmitted('send-mail', { items: ['a', items] })).toThrow(refused)
  })

  it('takes what a codec of your own keeps', async () => {
    const codec = {
      id: 'v8',
      encode: serialize,
      decode: (encoded: unknown) => deserialize(encoded as Buffer) as unknown,
    }
    const pool = poolOf({ codec, executor: (_tags: Set<string>) => {} })
    await pool.submit(new Set(['a', 'b']))
    pool.assertSubmitted('', new Set(['a', 'b']))
    pool.assertNotSubmitted('', new Set(['a']))
    expect(() => pool.assertNotSubmitted('', { when: () => 1 })).toThrow(
      /expected\.when: the codec "v8" failed/,
    )
  })

  it('shows the difference to what comes closest', async () => {
    const pool = mailPool()
    await pool.submit(sendMail, { to: 'carol', subject: 'Bill' })
    await pool.submit(sendMail, { to: 'bob', subject: 'Welcome' })
    const message = messageOf(() => pool.assertSubmitted(sendMail, { to: 'ada', subject: 'Welcome' }))
    expect(message).toContain(
      `no task 'send-mail' was submitted with { to: 'ada', subject: 'Welcome' }; the closest of 2`,
    )
    expect(message).toMatch(/\+\s+to: 'bob'\n-\s+to: 'ada'/)
    expect(message).not.toContain('carol')
    expect(() => pool.assertSubmitted(sendMail, { to: 'ada' })).toThrow(
      expect.objectContaining({
        actual: { to: 'carol', subject: 'Bill' },
        expected: { to: 'ada', subject: 'Bill' },
      }),
    )
  })

  it('says what there was instead', async () => {
    const pool = mailPool()
    expect(messageOf(() => pool.assertSubmitted(sendMail))).toBe(
      `no task 'send-mail' was submitted; nothing was`,
    )
    await pool.submit(audit, 'a')
    await pool.submit(audit, 'b')
    expect(messageOf(() => pool.assertSubmitted(sendMail))).toContain(`these were: 'audit' (2)`)
    expect(messageOf(() => pool.assertSubmitted(audit, (what) => what === 'c'))).toContain(`'b'`)
    expect(() => pool.assertSubmitted({ name: 'audit' } as never)).toThrow(
      /task: expected what defineTask returns/,
    )
  })
})

describe('assertNotSubmitted', () => {
  it('lists what should not be there', async () => {
    const pool = mailPool()
    pool.assertNotSubmitted(sendMail)
    await pool.submit(sendMail, { to: 'ada' })
    await pool.submit(sendMail, { to: 'bob' })
    pool.assertNotSubmitted(sendMail, { to: 'carol' })
    pool.assertNotSubmitted(audit)
    const message = messageOf(() => pool.assertNotSubmitted(sendMail, { to: 'bob' }))
    expect(message).toContain(`{ to: 'bob' }`)
    expect(message).not.toContain('ada')
  })
})

describe('drain', () => {
  it('runs what is ready and what that submits, and leaves what is due later', async () => {
    const order: string[] = []
    const first = defineTask({
      name: 'first',
      handler: async (name: string) => {
        await busy()
        order.push(name)
        await pool.submit(second, `${name}.second`)
        await pool.submit(second, `${name}.later`, { delay: 1 })
      },
    })
    const second = defineTask({
      name: 'second',
      handler: async (name: string) => {
        await busy()
        order.push(name)
      },
    })
    const pool = poolOf({ tasks: [first, second] })
    await pool.submit(first, 'a')
    await pool.drain()
    expect(order).toEqual(['a', 'a.second'])
    expect(await pool.counts()).toMatchObject({ success: 2, scheduled: 1, pending: 0, running: 0 })
    await pool.submit(second, 'b')
    await busy()
    expect(order).toHaveLength(2)
    await pool.drain()
    expect(order).toEqual(['a', 'a.second', 'b'])
    expect(pool.clock.now()).toBe(START)
  })

  it('leaves a retry to its time', async () => {
    let calls = 0
    const pool = poolOf({
      retry: { limit: 1, delay: '10s', jitter: 'none' },
      executor: () => {
        if (++calls === 1) throw new Error('once')
      },
    })
    const id = await pool.submit(undefined as never)
    await pool.drain()
    await pool.drain()
    expect([calls, await pool.getStatus(id)]).toEqual([1, 'scheduled'])
  })

  it('ends with what nobody here can run, with a paused queue, and with a producer', async () => {
    const other = defineTask<string, void>({ name: 'other' })
    const pool = mailPool({ tasks: [sendMail, other] })
    const id = await pool.submit(other, 'x')
    await pool.drain()
    expect(await pool.getStatus(id)).toBe('pending')
    await pool.submit(sendMail, { to: 'ada' })
    await pool.pause()
    await pool.drain()
    expect(sent).toEqual([])
    await pool.resume()
    await pool.drain()
    expect(sent).toEqual(['ada'])
    const producer = poolOf({ concurrency: 0 })
    await producer.submit('x' as never)
    await producer.drain()
    expect((await producer.counts()).pending).toBe(1)
  })

  it('runs a thousand tasks on two slots', async () => {
    const pool = mailPool({ concurrency: 2 })
    await pool.submitBatch(Array.from({ length: 1000 }, (_, n) => ({ task: sendMail, data: { to: `${n}` } })))
    await pool.drain()
    expect(sent).toEqual(Array.from({ length: 1000 }, (_, n) => `${n}`))
  })

  it('shows the failure of a handler to who asks for the result', async () => {
    const pool = poolOf({
      retry: false,
      executor: () => {
        throw new Error('broken')
      },
    })
    const id = await pool.submit(undefined as never)
    await pool.drain()
    await expect(pool.getResult(id)).rejects.toMatchObject({ code: 'TASK_FAILED' })
    await expect(pool.run(undefined as never)).rejects.toMatchObject({ code: 'TASK_FAILED' })
  })
})

describe('drain with a timeout', () => {
  it('ends when the clock has come to it, and says what is left', async () => {
    const pool = poolOf({ executor: () => new Promise(() => {}) })
    await pool.submit(undefined as never)
    const drained = expect(pool.drain({ timeout: '5s' })).rejects.toMatchObject({
      code: 'WAIT_TIMEOUT',
      message: 'drain: 0 tasks are pending and 1 run',
    })
    await pool.advance('5s')
    await drained
  })

  it('of 0 runs what ends at once, and leaves no timer behind', async () => {
    const pool = mailPool()
    await pool.submit(sendMail, { to: 'ada' })
    await pool.drain({ timeout: 0 })
    expect(sent).toEqual(['ada'])
    await pool.drain({ timeout: '1m' })
    await expect(pool.drain({ timeout: 'soon' })).rejects.toThrow(/timeout: expected a duration/)
    const stuck = poolOf({ executor: () => new Promise(() => {}) })
    await stuck.submit(undefined as never)
    await expect(stuck.drain({ timeout: 0 })).rejects.toMatchObject({ code: 'WAIT_TIMEOUT' })
    expect(pool.clock.nextEventIn).not.toBe(60_000)
  })
})

describe('a pool that the test has paused itself', () => {
  it.each(['manual', 'auto'] as const)('stands still until it is resumed: %s', async (run) => {
    const pool = mailPool({ run })
    await pool.start()
    await pool.pause({ local: true })
    await pool.submit(sendMail, { to: 'ada' })
    await pool.drain()
    await pool.advance('1h')
    expect(sent).toEqual([])
    expect((await pool.counts()).pending).toBe(1)
    await pool.resume({ local: true })
    if (run === 'manual') {
      await pool.clock.settle()
      expect(sent).toEqual([])
    }
    await pool.drain()
    expect(sent).toEqual(['ada'])
  })

  it('lets what runs end', async () => {
    const first = defineTask({
      name: 'first',
      handler: async () => {
        await pool.pause({ local: true })
        await pool.submit(sendMail, { to: 'later' })
        await busy()
        sent.push('first')
      },
    })
    const pool = poolOf({ tasks: [first, sendMail] })
    await pool.submit(first, undefined)
    await pool.drain()
    expect(sent).toEqual(['first'])
    await pool.resume({ local: true })
    await pool.drain()
    expect(sent).toEqual(['first', 'later'])
  })
})

describe('advance', () => {
  it('lets each thing happen at its own time, in order', async () => {
    const log: string[] = []
    const pool = poolOf({
      executor: async (name: string) => {
        await busy()
        log.push(`${name} at ${pool.clock.now() - START}`)
      },
    })
    for (const ms of [3, 90_061, 2000, 60_000]) await pool.submit(`task ${ms}`, { delay: ms })
    pool.clock.after(60_500, () => log.push(`timer at ${pool.clock.now() - START}`))
    await pool.advance('1m')
    expect(log).toEqual(['task 3 at 3', 'task 2000 at 2000', 'task 60000 at 60000'])
    await pool.advance(30_061)
    expect(log.slice(3)).toEqual(['timer at 60500', 'task 90061 at 90061'])
    expect(pool.clock.now() - START).toBe(90_061)
  })

  it('runs retries at their times, until there are none left', async () => {
    const at: number[] = []
    const pool = poolOf({
      retry: { limit: 3, delay: '1s', jitter: 'none' },
      executor: () => {
        at.push(pool.clock.now() - START)
        throw new Error('always')
      },
    })
    const id = await pool.submit(undefined as never)
    await pool.advance('1h')
    expect(at).toEqual([0, 1000, 3000, 7000])
    expect(await pool.getStatus(id)).toBe('failed')
  })

  it('ends an attempt at its timeout, though its handler never ends', async () => {
    const pool = poolOf({ timeout: '30s', retry: false, executor: () => new Promise(() => {}) })
    const id = await pool.submit(undefined as never)
    await pool.advance('29s')
    expect(await pool.getStatus(id)).toBe('running')
    await pool.advance('1s')
    expect(await pool.getStatus(id)).toBe('failed')
    await expect(pool.getResult(id)).rejects.toThrow(/timeout/)
  })

  it('lets a handler end that waits for the outside, before its timeout could pass', async () => {
    const pool = poolOf({ timeout: '1s', retry: false, executor: busy })
    const id = await pool.submit(undefined as never, { delay: '5s' })
    await pool.advance('1d')
    expect(await pool.getStatus(id)).toBe('success')
  })

  it('passes expiries, waits with a timeout, and RetryLaterError', async () => {
    let calls = 0
    const pool = poolOf({
      executor: () => {
        if (++calls === 1) throw new RetryLaterError('2m')
      },
    })
    const later = await pool.submit(undefined as never, { delay: '10m', expiresIn: '5m' })
    const soon = await pool.submit(undefined as never)
    const wait = pool.waitForResult(later, { timeout: '3m' })
    const waited = expect(wait).rejects.toMatchObject({ code: 'WAIT_TIMEOUT' })
    await pool.advance('2m')
    expect([calls, await pool.getStatus(soon)]).toEqual([2, 'success'])
    await pool.advance('1m')
    await waited
    expect(await pool.getStatus(later)).toBe('scheduled')
    await pool.advance('2m')
    expect(await pool.getStatus(later)).toBe('cancelled')
  })

  it('moves over a year in no time, and keeps its session', async () => {
    const pool = mailPool()
    await pool.submit(sendMail, { to: 'ada' }, { delay: '365d' })
    await pool.drain()
    const begin = performance.now()
    await pool.advance('400d')
    expect(performance.now() - begin).toBeLessThan(2000)
    expect(sent).toEqual(['ada'])
    await pool.submit(sendMail, { to: 'bob' })
    await pool.drain()
    expect(sent).toEqual(['ada', 'bob'])
    expect(await pool.getNodes()).toHaveLength(1)
  })

  it('refuses a time that is none', async () => {
    await expect(mailPool().advance('soon')).rejects.toThrow(/advance\(duration\): expected a duration/)
  })
})

describe('who waits for a result', () => {
  it('lets tasks run meanwhile, and no longer', async () => {
    const pool = poolOf({ executor: async (n: number) => (await busy(), n * 2) })
    expect(await pool.run(21)).toBe(42)
    const ids = await pool.submitBatch([{ data: 1 }, { data: 2 }])
    expect(await pool.waitAll(ids)).toEqual([2, 4])
    const rest = await pool.submit(3)
    await busy()
    expect(await pool.getStatus(rest)).toBe('pending')
  })

  describe('that only time could bring', () => {
    const flaky = (): TestPool<string, string> => {
      let calls = 0
      return poolOf({
        retry: { limit: 3, delay: '10s', jitter: 'none' },
        executor: (text: string) => {
          if (++calls === 1) throw new Error('once')
          return text
        },
      })
    }

    it('is told which task is due, and when', async () => {
      const pool = flaky()
      const failed = await pool.run('text').then(
        () => undefined,
        (error: unknown) => error,
      )
      const { id } = pool.submitted()[0] as SubmittedTask
      expect(failed).toMatchObject({
        code: 'ILLEGAL_STATE',
        message:
          'run: nothing is ready or running, and time stands still: ' +
          `task ${id} (of the executor) is due for attempt 2 in 10000 ms. Move time on meanwhile: advance(10000)`,
      })
      await pool.submit('soon', { delay: 5 })
      await expect(pool.waitForResult(id, { timeout: '1s' })).rejects.toMatchObject({
        code: 'ILLEGAL_STATE',
        taskId: id,
        message: expect.stringMatching(
          new RegExp(`^waitForResult: task ${id}: .* of 2 tasks the first, .* is due in 5 ms`),
        ) as string,
      })
      // Nothing is lost by it.
      await pool.advance('10s')
      expect(await pool.getResult(id as never)).toBe('text')
    })

    it('is left alone when time is moved meanwhile', async () => {
      const pool = flaky()
      const result = pool.run('text')
      await pool.drain()
      await pool.advance('9s')
      await pool.advance('1s')
      expect(await result).toBe('text')
    })

    it('is told of all else that it waits for', async () => {
      const pool = flaky()
      const held = await pool.submit('held', { hold: true })
      await expect(pool.waitForResult(held)).rejects.toThrow(/no task is due later either; explain\(id\)/)
      await pool.pause()
      await expect(pool.run('a')).rejects.toThrow(/the queue is paused, until resume\(\)/)
      await pool.resume()
      await pool.pause({ local: true })
      await expect(pool.run('b')).rejects.toThrow(/this pool is paused, until resume\({ local: true }\)/)
    })

    it('is waited for while a handler takes its time', async () => {
      const pool = poolOf({ executor: () => new Promise((resolve) => realTimeout(resolve, 1500, 'slow')) })
      expect(await pool.run(undefined as never)).toBe('slow')
    })

    it("is told so with run: 'auto' too", async () => {
      const pool = poolOf({ run: 'auto', executor: (text: string) => text })
      await expect(pool.run('text', { delay: '1m' })).rejects.toThrow(/is due in 60000 ms/)
    })
  })

  it('may be a handler', async () => {
    const inner = defineTask({ name: 'inner', handler: (n: number) => n + 1 })
    const outer = defineTask({
      name: 'outer',
      handler: async (n: number): Promise<number> => 10 * (await pool.run(inner, n)),
    })
    const pool = poolOf({ tasks: [inner, outer] })
    const id = await pool.submit(outer, 1)
    await pool.drain()
    expect(await pool.getResult(id)).toBe(20)
  })
})

describe("run: 'auto'", () => {
  it('runs tasks as soon as they are submitted, and time still stands', async () => {
    const pool = mailPool({ run: 'auto' })
    await pool.submit(sendMail, { to: 'ada' })
    await pool.submit(sendMail, { to: 'bob' }, { delay: 1 })
    await vi.waitFor(() => expect(sent).toEqual(['ada']))
    await pool.drain()
    expect(sent).toEqual(['ada'])
    await pool.advance(1)
    expect(sent).toEqual(['ada', 'bob'])
  })
})

describe('options', () => {
  it('are those of the application, as they are', async () => {
    const app = {
      tasks: [sendMail],
      storage: 'sqlite:./never.db',
      sessionTtl: '1s',
      autoStart: false,
    } as const
    const pool = poolOf({ ...app })
    await pool.submit(sendMail, { to: 'ada' })
    await pool.advance('1h')
    expect(sent).toEqual(['ada'])
  })

  it('share a clock between pools, each running its own', async () => {
    const clock = new ManualClock({ now: 5000 })
    const one = mailPool({ clock })
    const two = mailPool({ clock, queue: 'two' })
    await one.submit(sendMail, { to: 'one' }, { delay: 5 })
    await two.submit(sendMail, { to: 'two' }, { delay: 5 })
    await one.advance(10)
    expect(sent).toEqual(['one'])
    await two.drain()
    expect([sent, clock.now()]).toEqual([['one', 'two'], 5010])
  })

  it.each([
    [{ run: 'later' }, /run: expected .*manual.*auto/],
    [{ clock: {} }, /clock: expected a ManualClock/],
    [{ concurrency: -1 }, /concurrency/],
  ])('refuse %o', (options, message) => {
    expect(() => createTestPool({ ...options, executor: () => {} } as never)).toThrow(message)
  })
})

describe('close', () => {
  it('does not wait for time when a handler never ends', async () => {
    let reason: unknown
    const executor: Handler<number, void> = (_, ctx) =>
      new Promise(() => {
        ctx.signal.addEventListener('abort', () => {
          reason = ctx.signal.reason
        })
      })
    const pool = poolOf({ executor })
    await pool.submit(1)
    await pool.advance(1)
    const begin = performance.now()
    expect(await pool.close()).toMatchObject({ finished: 0, returned: 1 })
    expect(performance.now() - begin).toBeLessThan(2000)
    expect(reason).toMatchObject({ kind: 'shutdown' })
    expect(await pool.close()).toMatchObject({ returned: 1 })
    await expect(pool.drain()).rejects.toMatchObject({ code: 'POOL_CLOSED' })
  })

  it('drains first when it is asked to', async () => {
    const pool = mailPool()
    await pool.submit(sendMail, { to: 'ada' })
    await pool.submit(sendMail, { to: 'bob' }, { delay: '1m' })
    await pool.close({ drain: true })
    expect(sent).toEqual(['ada'])
  })
})

describe('with fake timers', () => {
  it.each([
    ['all that vitest replaces', undefined],
    [
      'microtasks too',
      ['setTimeout', 'setImmediate', 'setInterval', 'Date', 'performance', 'queueMicrotask'],
    ],
  ] as const)('nothing hangs: %s', async (_, toFake) => {
    vi.useFakeTimers(toFake === undefined ? {} : { toFake: [...toFake] })
    const slow = defineTask({
      name: 'slow',
      handler: async (name: string) => {
        await new Promise((resolve) => setTimeout(resolve, 5000))
        sent.push(name)
      },
    })
    const pool = poolOf({ tasks: [sendMail, slow] })
    await pool.submit(sendMail, { to: 'ada' })
    await pool.submit(sendMail, { to: 'bob' }, { delay: '5m' })
    await pool.drain()
    expect(sent).toEqual(['ada'])
    await pool.advance('5m')
    expect(sent).toEqual(['ada', 'bob'])
    // What the handler itself waits for is the test's to move.
    await pool.submit(slow, 'slow')
    await pool.advance('1m')
    vi.advanceTimersByTime(5000)
    await pool.drain()
    expect(sent).toEqual(['ada', 'bob', 'slow'])
    await pool.close()
  })
})
