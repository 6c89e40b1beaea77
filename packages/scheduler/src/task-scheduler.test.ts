/** What is asked of a scheduler: what it refuses, what a repeated submit changes, and every operation on a schedule. */
import { defineTask, memoryStorage, TaskPool } from '@neotask/core'
import { createTestPool } from '@neotask/core/testing'
import { afterEach, beforeEach, describe, expect, it } from 'vitest'
import { z } from 'zod'
import type { Missed } from './schedule.js'
import { TaskScheduler } from './task-scheduler.js'
import { HOUR, MINUTE, SECOND, World, type Node } from './world.test-helper.js'

let world: World
let node: Node
let scheduler: TaskScheduler<string, string>

beforeEach(() => {
  world = new World()
  node = world.node()
  scheduler = node.scheduler
})

afterEach(async () => {
  await world.close()
})

const records = async () =>
  (await world.inner.records.list('default', { prefix: 'schedule:', limit: 100 })).records
const version = async (id: string) =>
  (await world.inner.records.get('default', `schedule:default/${id}`))?.version
const dates = (...times: number[]) => times.map((ms) => new Date(world.at(ms)))

describe('bad input', () => {
  const T = Date.UTC(2026, 0, 1)
  it.each<[code: string, named: RegExp, call: () => Promise<unknown>]>([
    // Cron expressions and zones have a table of their own.
    ['CRON_INVALID', /./, () => scheduler.submitCron('x', '')],
    ['CRON_INVALID', /./, () => scheduler.submitCron('x', '/5 * * * *')],
    ['CRON_INVALID', /./, () => scheduler.submitCron('x', '0 0 30 2 *')],
    ['CRON_INVALID', /./, () => scheduler.submitCron('x', undefined as never)],
    ['CRON_INVALID', /./, () => scheduler.submitCron('x', 5 as never)],
    ['ZONE_INVALID', /zone/i, () => scheduler.submitCron('x', '@daily', { zone: '' })],
    ['ZONE_INVALID', /zone/i, () => scheduler.submitCron('x', '@daily', { zone: 'Mars/Olympus' })],
    ['ZONE_INVALID', /zone/i, () => scheduler.submitCron('x', '@daily', { zone: 7 as never })],
    ['INTERVAL_INVALID', /every/, () => scheduler.submitInterval('x', '')],
    ['INTERVAL_INVALID', /every/, () => scheduler.submitInterval('x', '5')],
    ['INTERVAL_INVALID', /every/, () => scheduler.submitInterval('x', 99)],
    ['INTERVAL_INVALID', /every/, () => scheduler.submitInterval('x', 0)],
    ['INTERVAL_INVALID', /every/, () => scheduler.submitInterval('x', -1000)],
    ['INTERVAL_INVALID', /every/, () => scheduler.submitInterval('x', 100.5)],
    ['INTERVAL_INVALID', /every/, () => scheduler.submitInterval('x', NaN)],
    ['INTERVAL_INVALID', /every/, () => scheduler.submitInterval('x', Infinity)],
    ['INTERVAL_INVALID', /every/, () => scheduler.submitInterval('x', '40000d')],
    ['INTERVAL_INVALID', /every/, () => scheduler.submitInterval('x', null as never)],
    ['INTERVAL_INVALID', /every/, () => scheduler.submitInterval('x', {} as never)],
    ['DATE_INVALID', /date/, () => scheduler.submitAt('x', new Date('nonsense'))],
    ['DATE_INVALID', /date/, () => scheduler.submitAt('x', '2026-12-25' as never)],
    ['DATE_INVALID', /date/, () => scheduler.submitAt('x', NaN)],
    ['DATE_INVALID', /date/, () => scheduler.submitAt('x', 9e15)],
    ['DATE_INVALID', /date/, () => scheduler.submitAt('x', undefined as never)],
    ['DATE_INVALID', /start/, () => scheduler.submitInterval('x', '1s', { start: new Date(NaN) })],
    ['DATE_INVALID', /end/, () => scheduler.submitCron('x', '@daily', { end: '2030' as never })],
    ['WINDOW_INVALID', /end/, () => scheduler.submitInterval('x', '1s', { start: T + 9000, end: T + 9000 })],
    ['WINDOW_INVALID', /end/, () => scheduler.submitInterval('x', '1s', { end: T - HOUR })],
    ['WINDOW_INVALID', /end/, () => scheduler.submitInterval('x', '1h', { end: T + MINUTE })],
    ['WINDOW_INVALID', /end/, () => scheduler.submitCron('x', '@yearly', { end: T + HOUR })],
    ['OPTION_INVALID', /delay/, () => scheduler.submitDelayed('x', 'soon')],
    ['OPTION_INVALID', /delay/, () => scheduler.submitDelayed('x', -1)],
    ['OPTION_INVALID', /delay/, () => scheduler.submitDelayed('x', undefined as never)],
    ['OPTION_INVALID', /options/, () => scheduler.submitInterval('x', '1s', 5 as never)],
    ['OPTION_INVALID', /options/, () => scheduler.submitCron('x', '@daily', 'UTC' as never)],
    [
      'OPTION_INVALID',
      /overlap.*'skip'/,
      () => scheduler.submitInterval('x', '1s', { overlap: 'queue' as never }),
    ],
    ['OPTION_INVALID', /missed/, () => scheduler.submitInterval('x', '1s', { missed: 'all' as never })],
    [
      'OPTION_INVALID',
      /missed.catchUp/,
      () => scheduler.submitInterval('x', '1s', { missed: { catchUp: 0 } }),
    ],
    [
      'OPTION_INVALID',
      /missed.catchUp/,
      () => scheduler.submitInterval('x', '1s', { missed: { catchUp: 1001 } }),
    ],
    [
      'OPTION_INVALID',
      /missed.max/,
      () => scheduler.submitInterval('x', '1s', { missed: { max: 1 } as never }),
    ],
    ['OPTION_INVALID', /jitter/, () => scheduler.submitInterval('x', '1s', { jitter: '1s' })],
    ['OPTION_INVALID', /jitter/, () => scheduler.submitCron('x', '0,1 9 * * *', { jitter: '1m' })],
    ['OPTION_INVALID', /jitter/, () => scheduler.submitInterval('x', '1s', { jitter: -1 })],
    ['OPTION_INVALID', /tolerance/, () => scheduler.submitInterval('x', '1s', { tolerance: 'x' })],
    ['OPTION_INVALID', /maxRuns/, () => scheduler.submitInterval('x', '1s', { maxRuns: 0 })],
    ['OPTION_INVALID', /maxRuns/, () => scheduler.submitInterval('x', '1s', { maxRuns: 1.5 })],
    ['OPTION_INVALID', /history/, () => scheduler.submitInterval('x', '1s', { history: 1001 })],
    ['OPTION_INVALID', /priority/, () => scheduler.submitInterval('x', '1s', { priority: -1 })],
    ['OPTION_INVALID', /retry/, () => scheduler.submitInterval('x', '1s', { retry: { limit: -1 } })],
    ['OPTION_INVALID', /timeout/, () => scheduler.submitInterval('x', '1s', { timeout: 0 })],
    ['OPTION_INVALID', /tags/, () => scheduler.submitInterval('x', '1s', { tags: [''] })],
    ['OPTION_INVALID', /id/, () => scheduler.submitInterval('x', '1s', { id: 'a b' })],
    ['OPTION_INVALID', /id/, () => scheduler.submitInterval('x', '1s', { id: 'a~1' })],
    [
      'OPTION_INVALID',
      /missd.*missed/,
      () => scheduler.submitInterval('x', '1s', { missd: 'skip' } as never),
    ],
    ['OPTION_INVALID', /zone/, () => scheduler.submitInterval('x', '1s', { zone: 'UTC' } as never)],
    ['OPTION_INVALID', /delay/, () => scheduler.submitInterval('x', '1s', { delay: 5 } as never)],
    ['PAYLOAD_INVALID', /data/, () => scheduler.submitInterval((() => {}) as never, '1s')],
    ['PAYLOAD_TOO_LARGE', /data/, () => scheduler.submitInterval('x'.repeat(2e6), '1s')],
    [
      'OPTION_INVALID',
      /task/,
      () => scheduler.submitInterval(defineTask({ name: 'other' }), 'x' as never, '1s'),
    ],
    ['INTERVAL_INVALID', /every: .* got undefined/, () => scheduler.submitInterval('x', undefined as never)],
    ['OPTION_INVALID', /options/, () => scheduler.submitInterval('x', '1s', null as never)],
    [
      'WINDOW_INVALID',
      /start: .*3000.* got 3001/,
      () => scheduler.submitCron('x', '@daily', { start: Date.UTC(3001, 0) }),
    ],
    ['DATE_INVALID', /date/, () => scheduler.submitAt('x', new Proxy(new Date(), {}))],
    ['OPTION_INVALID', /options/, () => scheduler.submitDelayed('x', 10, 5 as never)],
    ['OPTION_INVALID', /options/, () => scheduler.submitAt('x', T, null as never)],
    ['OPTION_INVALID', /delay/, () => scheduler.submitDelayed('x', 10, { delay: 5 } as never)],
    ['OPTION_INVALID', /runAt/, () => scheduler.submitAt('x', T, { runAt: T } as never)],
    ['OPTION_INVALID', /delay/, () => scheduler.submitDelayed('x', Number.MAX_SAFE_INTEGER)],
    [
      'OPTION_INVALID',
      /preview.every/,
      () => scheduler.preview({ every: '1s', expression: '* * * * *' } as never),
    ],
    ['OPTION_INVALID', /preview.zone/, () => scheduler.preview({ every: '1s', zone: 'UTC' } as never)],
    ['SCHEDULE_NOT_FOUND', /gone/, () => scheduler.pause('gone')],
    ['SCHEDULE_NOT_FOUND', /gone/, () => scheduler.resume('gone')],
    ['SCHEDULE_NOT_FOUND', /gone/, () => scheduler.trigger('gone')],
    ['SCHEDULE_NOT_FOUND', /gone/, () => scheduler.cancel('gone')],
    ['SCHEDULE_NOT_FOUND', /gone/, () => scheduler.cancel('gone', { running: true })],
    ['SCHEDULE_NOT_FOUND', /gone/, () => scheduler.update('gone', { every: '1s' })],
    ['SCHEDULE_NOT_FOUND', /gone/, () => scheduler.history('gone')],
    ['SCHEDULE_NOT_FOUND', /gone/, () => scheduler.preview('gone')],
    ['SCHEDULE_NOT_FOUND', /gone/, () => scheduler.backfill('gone', T - HOUR, T)],
    ['OPTION_INVALID', /id/, () => scheduler.get(5 as never)],
    ['OPTION_INVALID', /id/, () => scheduler.pause('')],
    ['OPTION_INVALID', /list.limit/, () => scheduler.list({ limit: 501 })],
    ['OPTION_INVALID', /list.tag/, () => scheduler.list({ tag: 5 as never })],
    ['OPTION_INVALID', /count/, () => scheduler.preview({ every: '1s' }, 1001)],
    ['OPTION_INVALID', /preview/, () => scheduler.preview({ every: '1s', expresion: '' } as never)],
    ['OPTION_INVALID', /preview/, () => scheduler.preview(undefined as never)],
    ['CRON_INVALID', /./, () => scheduler.preview({ expression: '* *' })],
    ['INTERVAL_INVALID', /every/, () => scheduler.preview({ every: 1 })],
  ])('%s %o', async (code, named, call) => {
    const error = await call().then(
      () => undefined,
      (cause: unknown) => cause as Error & { code: string },
    )
    expect(error?.code, String(error)).toBe(code)
    expect(error?.message).toMatch(named)
    expect(await records()).toEqual([])
    expect(await world.inner.queue.counts({ tenant: 'default', queue: 'default' })).toMatchObject({
      scheduled: 0,
      pending: 0,
    })
  })

  it('of a pool is refused', () => {
    expect(() => new TaskScheduler({} as never)).toThrow(/pool: expected a TaskPool/)
  })
})

describe('submitDelayed and submitAt', () => {
  it('store one task, which runs then', async () => {
    const delayed = await scheduler.submitDelayed('a', '5m', { id: 'delayed' })
    const at = await scheduler.submitAt('b', new Date(world.at(10 * MINUTE)), { priority: 1 })
    const past = await scheduler.submitAt('c', world.at(-HOUR))
    const moon = await scheduler.submitAt('d', new Date('1969-07-20'))
    await world.advance(20 * MINUTE)
    expect(world.ran).toEqual([
      [past, expect.any(Number)],
      [moon, expect.any(Number)],
      [delayed, 5 * MINUTE],
      [at, 10 * MINUTE],
    ])
    expect(world.ran[0]?.[1]).toBeLessThan(SECOND)
    expect(await node.pool.getTask(at)).toMatchObject({ priority: 1 })
    expect(await records()).toEqual([])
  })

  it('take any delay, also one that no timer of Node can wait for', async () => {
    const id = await scheduler.submitDelayed('x', 2 ** 31 + 5)
    const task = await node.pool.getTask(id)
    expect(task?.state).toBe('scheduled')
    world.clock.leap(2 ** 31 + 4)
    await world.advance(0)
    expect(world.ran).toEqual([])
    await world.advance(MINUTE)
    expect(world.ran.map(([ran]) => ran)).toEqual([id])
  })
})

describe('named tasks', () => {
  const schema = z.object({
    to: z.string(),
    copies: z
      .number()
      .default(1)
      .transform((n) => n * 2),
  })
  type Mail = z.input<typeof schema>
  const got: unknown[] = []
  const mail = defineTask({
    name: 'mail',
    input: schema,
    priority: 7,
    tags: ['own'],
    handler: (data) => void got.push(data),
  })

  it('are validated when the schedule is made, and stored as the schema made them', async () => {
    const pool = new TaskPool({ tasks: [mail], storage: world.inner, clock: world.clock })
    const tasks = new TaskScheduler(pool)
    await expect(tasks.submitInterval(mail, { to: 5 } as never, '1s')).rejects.toMatchObject({
      code: 'VALIDATION_FAILED',
      message: expect.stringMatching(/to/) as string,
    })
    expect(await records()).toEqual([])
    await tasks.submitInterval(mail, { to: 'ada' }, '1s', { id: 'm', timeout: '9s', tags: ['news', 'own'] })
    await tasks.submitInterval(mail, { to: 'bob' }, '1h', { id: 'n' })
    await world.advance(SECOND)
    expect(got).toEqual([{ to: 'ada', copies: 2 }])
    expect(await tasks.get('m')).toMatchObject({ name: 'mail', data: { to: 'ada', copies: 2 }, priority: 7 })
    const task = await pool.getTask(`m~${world.at(SECOND)}`)
    expect(task).toMatchObject({ name: 'mail', priority: 7, tags: ['news', 'own'] })
    // Changed without its data, which the schema would take for input again.
    await tasks.update('m', { priority: 3, tags: ['rare'] })
    expect(await tasks.get('m')).toMatchObject({ data: { to: 'ada', copies: 2 }, priority: 3, timeout: 9000 })
    await tasks.update<Mail>('m', { data: { to: 'eve', copies: 5 } })
    expect(await tasks.get('m')).toMatchObject({ data: { to: 'eve', copies: 10 }, priority: 3 })
    await expect(tasks.update<Mail>('m', { data: { to: 1 } as never })).rejects.toMatchObject({
      code: 'VALIDATION_FAILED',
    })
    const ids = async (options: object) => (await tasks.list(options)).schedules.map(({ id }) => id)
    expect([await ids({ name: 'mail' }), await ids({ tag: 'rare' }), await ids({ tag: 'news' })]).toEqual([
      ['m', 'n'],
      ['m'],
      [],
    ])
    expect(await ids({ name: 'mail', tag: 'rare' })).toEqual(['m'])
    await pool.close()
  })

  it('a pool that does not know the task cannot schedule it', async () => {
    await expect(scheduler.submitInterval(mail, { to: 'ada' }, '1s')).rejects.toMatchObject({
      code: 'OPTION_INVALID',
    })
  })
})

describe('the same id again', () => {
  it('with the same definition changes nothing', async () => {
    await node.pool.start()
    const submit = () =>
      scheduler.submitInterval('x', '10s', { id: 's', jitter: '1s', retry: { limit: 2 }, tags: ['a'] })
    expect(await submit()).toBe('s')
    await world.advance(25 * SECOND)
    await scheduler.pause('s')
    const before = [await scheduler.get('s'), await version('s')]
    for (let turn = 0; turn < 3; turn++) await submit()
    expect([await scheduler.get('s'), await version('s')]).toEqual(before)
    expect(before[0]).toMatchObject({ runs: 2, state: 'paused' })
    // Also by another process, which begins with nothing.
    await world
      .node()
      .scheduler.submitInterval('x', 10_000, { tags: ['a'], retry: { limit: 2 }, jitter: 1000, id: 's' })
    expect(await version('s')).toBe(before[1])
  })

  it('with durations written otherwise changes nothing either', async () => {
    await scheduler.submitInterval('x', '1m', {
      id: 's',
      timeout: '1m',
      retry: { delay: '2s', maxDelay: '1m' },
    })
    const before = await version('s')
    const retry = { maxDelay: 60_000, delay: 2000 }
    await scheduler.submitInterval('x', 60_000, { id: 's', timeout: 60_000, retry })
    expect(await version('s')).toBe(before)
    expect(await scheduler.get('s')).toMatchObject({ timeout: 60_000, retry })
  })

  it.each([1, 2, 3])(
    'that reads as another one after %i reads is refused, or is the one that was checked',
    async (reads) => {
      let left = reads
      const options = {
        get id() {
          return left-- > 0 ? 'good' : 'bad~id é'
        },
      }
      const id = await scheduler.submitInterval('x', '1m', options).catch((error: unknown) => error)
      if (id !== 'good') expect(id).toMatchObject({ code: 'OPTION_INVALID' })
      expect((await records()).map(({ key }) => key)).toEqual(id === 'good' ? ['schedule:default/good'] : [])
    },
  )

  it('at the same time makes one schedule', async () => {
    const nodes = [node, world.node(), world.node()]
    await Promise.all(nodes.map((each) => each.scheduler.submitInterval('x', '10s', { id: 's' })))
    expect(await records()).toHaveLength(1)
    expect(nodes.flatMap(({ storage }) => storage.callsOf('records.putAll'))).toEqual([])
    const changes = nodes.map((each, n) => each.scheduler.submitInterval(`x${n}`, '10s', { id: 's' }))
    await world.advance(SECOND)
    await Promise.all(changes)
    expect(['x0', 'x1', 'x2']).toContain((await scheduler.get('s'))?.data)
  })

  it('with other data or policies keeps its slots, runs, pause and history', async () => {
    await node.pool.start()
    await scheduler.submitInterval('x', '10s', { id: 's' })
    await world.advance(12 * SECOND)
    await scheduler.submitInterval('y', '10s', { id: 's', overlap: 'skip' })
    expect(await scheduler.get('s')).toMatchObject({
      data: 'y',
      overlap: 'skip',
      runs: 1,
      next: new Date(world.at(20_000)),
    })
    await world.advance(10 * SECOND)
    expect(await world.tasks('s')).toEqual([10_000, 20_000])
    expect(await node.pool.getResult(`s~${world.at(20_000)}`)).toBe('y')
  })

  it('with another interval or expression counts from now', async () => {
    await node.pool.start()
    await scheduler.submitInterval('x', '10s', { id: 's' })
    await world.advance(12 * SECOND)
    await scheduler.submitInterval('x', '7s', { id: 's' })
    await world.advance(8 * SECOND)
    await scheduler.submitCron('x', '*/15 * * * * *', { id: 's' })
    await world.advance(11 * SECOND)
    expect(await world.tasks('s')).toEqual([10_000, 19_000, 30_000])
    expect(await scheduler.get('s')).toMatchObject({
      every: undefined,
      expression: '*/15 * * * * *',
      runs: 3,
    })
  })

  it('revives one that has ended, if the definition gives it slots again', async () => {
    await node.pool.start()
    await scheduler.submitInterval('x', '1s', { id: 's', maxRuns: 2 })
    await scheduler.submitInterval('x', '1s', { id: 'e', end: world.at(2500) })
    await world.advance(10 * SECOND)
    // The same as ever: its window is over, and that is no error.
    await scheduler.submitInterval('x', '1s', { id: 'e', end: world.at(2500) })
    expect(await scheduler.get('e')).toMatchObject({ state: 'ended', runs: 2 })
    await scheduler.submitInterval('x', '1s', { id: 's', maxRuns: 3 })
    expect(await scheduler.get('s')).toMatchObject({ state: 'active', runs: 2 })
    await world.advance(10 * SECOND)
    expect(await world.tasks('s')).toEqual([1000, 2000, 11_000])
  })

  it('that was never given is another schedule each time', async () => {
    const ids = [await scheduler.submitInterval('x', '1h'), await scheduler.submitInterval('x', '1h')]
    expect(new Set(ids).size).toBe(2)
    expect((await scheduler.list()).schedules.map(({ id }) => id).sort()).toEqual([...ids].sort())
  })
})

describe('pause and resume', () => {
  it('leave out the slots between, and say so', async () => {
    await node.pool.start()
    await scheduler.submitInterval('x', '10s', { id: 's', missed: { catchUp: 100 } })
    await world.advance(15 * SECOND)
    await scheduler.pause('s')
    await scheduler.pause('s')
    expect(await scheduler.get('s')).toMatchObject({ state: 'paused' })
    await world.advance(30 * SECOND)
    expect(await scheduler.preview('s', 2)).toEqual(dates(50_000, 60_000))
    await scheduler.resume('s')
    await scheduler.resume('s')
    await world.advance(10 * SECOND)
    expect(await world.tasks('s')).toEqual([10_000, 50_000])
    expect(await world.history(node, 's')).toEqual([
      [10_000, 'success'],
      [20_000, 'paused'],
      [30_000, 'paused'],
      [40_000, 'paused'],
      [50_000, 'success'],
    ])
  })
})

describe('just after a sleep of eight hours', () => {
  it('a schedule begins and goes on by the time that it is now', async () => {
    await node.pool.start()
    await scheduler.submitInterval('x', '1h', { id: 'paused' })
    await world.advance(10 * MINUTE)
    await scheduler.pause('paused')
    world.clock.step(8 * HOUR)
    await scheduler.resume('paused')
    await scheduler.submitCron('x', '*/15 * * * *', { id: 'new' })
    await world.advance(5 * SECOND)
    expect(world.ran).toEqual([])
    expect(await scheduler.get('paused')).toMatchObject({ next: new Date(world.at(9 * HOUR)) })
    expect(await scheduler.get('new')).toMatchObject({
      createdAt: new Date(world.at(8 * HOUR + 10 * MINUTE)),
    })
  })
})

describe('trigger', () => {
  it('runs a task now, beside the slots', async () => {
    await node.pool.start()
    const id = await scheduler.submitInterval('x', '10s', { id: 's', maxRuns: 2 })
    await world.advance(4 * SECOND)
    const task = await scheduler.trigger(id)
    await world.advance(100)
    expect(await node.pool.getResult(task)).toBe('x')
    expect(task).toMatch(/^s~now-/)
    await scheduler.pause(id)
    await scheduler.trigger(id)
    await scheduler.resume(id)
    await world.advance(30 * SECOND)
    await scheduler.trigger(id)
    await world.advance(100)
    expect(world.ran.map(([, at]) => at)).toEqual([4000, 4100, 10_000, 20_000, 34_100])
    expect(await scheduler.get(id)).toMatchObject({ runs: 2, state: 'ended' })
    const [newest, , , second] = await scheduler.history(id)
    expect(newest).toMatchObject({ triggered: true, outcome: 'success', slot: new Date(world.at(34_100)) })
    expect(second).toMatchObject({ triggered: true, reason: undefined })
  })
})

describe('cancel', () => {
  it('ends a schedule, and with it what runs only when asked to', async () => {
    await node.pool.start()
    world.holds = true
    for (const id of ['keep', 'stop']) await scheduler.submitInterval('x', '10s', { id })
    await world.advance(10 * SECOND)
    await scheduler.cancel('keep')
    await scheduler.cancel('stop', { running: true })
    await world.advance(MINUTE)
    expect(await world.tasks('keep')).toEqual([10_000])
    const states = ['keep', 'stop'].map((id) => node.pool.getStatus(`${id}~${world.at(10_000)}`))
    expect(await Promise.all(states)).toEqual(['running', 'cancelled'])
    expect([await scheduler.get('keep'), (await scheduler.list()).schedules]).toEqual([undefined, []])
    world.running.get(`keep~${world.at(10_000)}`)?.('done')
  })
})

describe('update', () => {
  it('changes what is given and keeps the rest', async () => {
    await node.pool.start()
    await scheduler.submitCron('x', '0 9 * * *', {
      id: 's',
      zone: 'Europe/Berlin',
      missed: 'skip',
      timeout: '1m',
    })
    const before = await scheduler.get('s')
    const after = await scheduler.update('s', { overlap: 'skip' })
    expect(after).toEqual({ ...before, overlap: 'skip' })
    expect(await scheduler.update('s', { expression: '0 10 * * *' })).toMatchObject({
      zone: 'Europe/Berlin',
      next: new Date(world.at(9 * HOUR)),
    })
    expect(await scheduler.update('s', { zone: 'Asia/Tokyo' })).toMatchObject({
      expression: '0 10 * * *',
      next: new Date(world.at(HOUR)),
    })
    expect(await scheduler.update('s', { every: '1m' })).toMatchObject({
      every: MINUTE,
      expression: undefined,
      zone: undefined,
    })
    expect(await scheduler.update('s', { maxRuns: 1, end: undefined })).toMatchObject({
      maxRuns: 1,
      timeout: MINUTE,
    })
    await world.advance(3 * MINUTE)
    expect(await world.tasks('s')).toEqual([MINUTE])
  })

  it('keeps what is undefined', async () => {
    await scheduler.submitCron('x', '0 3 * * *', {
      id: 's',
      overlap: 'skip',
      history: 99,
      end: world.at(HOUR * 99),
    })
    const before = await version('s')
    const nothing = {
      overlap: undefined,
      history: undefined,
      end: undefined,
      data: undefined,
      zone: undefined,
    }
    expect(await scheduler.update('s', nothing)).toMatchObject({ overlap: 'skip', history: 99 })
    expect(await version('s')).toBe(before)
  })

  it.each([
    ['INTERVAL_INVALID', /every/, { every: null }],
    ['CRON_INVALID', /expression/, { expression: null }],
    ['ZONE_INVALID', /zone/, { zone: null }],
  ])('of an expression refuses with %s what is null', async (code, message, changes) => {
    await scheduler.submitCron('x', '0 3 * * *', { id: 's' })
    await expect(scheduler.update('s', changes as never)).rejects.toMatchObject({
      code,
      message: expect.stringMatching(message) as string,
    })
  })

  it('needs the definition of the task for its data and its options only', async () => {
    const mail = defineTask({ name: 'mail', handler: () => {} })
    const pool = new TaskPool({ tasks: [mail], storage: world.inner, clock: world.clock, concurrency: 0 })
    await new TaskScheduler(pool).submitInterval(mail, 'x' as never, '10s', { id: 's' })
    expect(await scheduler.update('s', { overlap: 'skip', end: world.at(HOUR) })).toMatchObject({
      overlap: 'skip',
    })
    await expect(scheduler.update('s', { priority: 5 })).rejects.toMatchObject({ code: 'OPTION_INVALID' })
    await pool.close()
  })

  it.each<[string, object]>([
    ['OPTION_INVALID', { id: 'other' }],
    ['OPTION_INVALID', { every: '1s', expression: '* * * * *' }],
    ['OPTION_INVALID', { zone: 'UTC' }],
    ['INTERVAL_INVALID', { every: 1 }],
    ['CRON_INVALID', { expression: 'x' }],
    ['WINDOW_INVALID', { end: 0 }],
    ['OPTION_INVALID', { jitter: '10s' }],
    ['OPTION_INVALID', { priority: 5000 }],
    ['PAYLOAD_INVALID', { data: () => {} }],
  ])('refuses with %s: %o', async (code, changes) => {
    await scheduler.submitInterval('x', '10s', { id: 's' })
    const before = [await scheduler.get('s'), await version('s')]
    await expect(scheduler.update('s', changes)).rejects.toMatchObject({ code })
    expect([await scheduler.get('s'), await version('s')]).toEqual(before)
  })

  it('loses nothing when many change it at the same time', async () => {
    await scheduler.submitInterval('x', '10s', { id: 's' })
    const nodes = [node, world.node(), world.node(), world.node()]
    const changes = [{ overlap: 'skip' }, { missed: 'skip' }, { priority: 9 }, { tags: ['t'] }] as const
    const all = Promise.all(nodes.map((each, n) => each.scheduler.update('s', changes[n] ?? {})))
    await world.advance(SECOND)
    await all
    expect(await scheduler.get('s')).toMatchObject({
      overlap: 'skip',
      missed: 'skip',
      priority: 9,
      tags: ['t'],
    })
  })
})

describe('list', () => {
  it('goes by pages, in the order of the ids', async () => {
    const ids = Array.from({ length: 25 }, (_, n) => `s${String(n).padStart(2, '0')}`)
    for (const id of [...ids].reverse()) await scheduler.submitInterval('x', '1h', { id })
    const found: string[] = []
    let cursor: string | undefined
    do {
      const page = await scheduler.list({ limit: 10, cursor })
      found.push(...page.schedules.map(({ id }) => id))
      cursor = page.cursor
    } while (cursor !== undefined)
    expect(found).toEqual(ids)
  })
})

describe('a page', () => {
  it('of the schedules of the executor has an empty name', async () => {
    const mail = defineTask({ name: 'mail', handler: () => {} })
    const pool = new TaskPool({ tasks: [mail], storage: world.inner, clock: world.clock, concurrency: 0 })
    await new TaskScheduler(pool).submitInterval(mail, 'x' as never, '1h', { id: 'named' })
    await scheduler.submitInterval('x', '1h', { id: 'plain' })
    expect((await scheduler.list({ name: '' })).schedules).toMatchObject([{ id: 'plain', name: '' }])
    await pool.close()
  })

  it('shows schedules whose data another codec made, without them', async () => {
    const codec = { id: 'other', encode: () => '}', decode: () => 'decoded' }
    const broken = { id: 'json', encode: () => '}', decode: () => 'decoded' }
    for (const [id, each] of Object.entries({ other: codec, broken })) {
      const pool = new TaskPool({
        executor: () => {},
        storage: world.inner,
        clock: world.clock,
        concurrency: 0,
        codec: each,
      })
      await new TaskScheduler(pool).submitInterval('x' as never, '1h', { id })
      await pool.close()
    }
    await scheduler.submitInterval('x', '1h', { id: 'readable' })
    const { schedules } = await scheduler.list()
    expect(schedules.map(({ id, data }) => [id, data])).toEqual([
      ['broken', undefined],
      ['other', undefined],
      ['readable', 'x'],
    ])
    expect(node.errors).toHaveLength(1)
    expect(await scheduler.update('other', { tags: ['a'] })).toMatchObject({ tags: ['a'], data: undefined })
  })
})

describe('preview', () => {
  it('tells the next slots of a schedule, as far as it goes', async () => {
    await scheduler.submitInterval('x', '1h', { id: 's', maxRuns: 2, jitter: '59m' })
    await scheduler.submitInterval('x', '1h', { id: 'e', end: world.at(3.5 * HOUR) })
    expect(await scheduler.preview('s')).toEqual(dates(HOUR, 2 * HOUR))
    expect(await scheduler.preview('e')).toEqual(dates(HOUR, 2 * HOUR, 3 * HOUR))
    expect(await scheduler.preview('e', 1)).toEqual(dates(HOUR))
  })

  it.each<[Missed, number[]]>([
    ['skip', [73 * HOUR, 74 * HOUR]],
    ['fireOnce', [72 * HOUR, 73 * HOUR]],
    [{ catchUp: 2 }, [71 * HOUR, 72 * HOUR]],
  ])('of an overdue schedule with missed %o tells what will be fired', async (missed, slots) => {
    await scheduler.submitInterval('x', '1h', { id: 's', missed })
    await scheduler.submitInterval('x', '1h', { id: 'paused', missed })
    await scheduler.pause('paused')
    node.die()
    world.clock.leap(72 * HOUR + 30 * MINUTE)
    const other = world.node({ concurrency: 0 })
    expect(await other.scheduler.preview('s', 2)).toEqual(dates(...slots))
    expect(await other.scheduler.preview('paused', 1)).toEqual(dates(73 * HOUR))
    const { schedules } = await other.scheduler.list()
    expect(schedules.map(({ next }) => next)).toEqual(dates(73 * HOUR, slots[0] ?? 0))
    expect(await other.scheduler.get('s')).toMatchObject({ next: schedules[1]?.next })
  })

  it('tells the slots of a timetable that is none yet', async () => {
    expect(await scheduler.preview({ every: '90m', start: world.at(HOUR) }, 2)).toEqual(
      dates(HOUR, 2.5 * HOUR),
    )
    expect(await scheduler.preview({ expression: '0 9 * * *', zone: 'Europe/Berlin' }, 2)).toEqual(
      dates(8 * HOUR, 32 * HOUR),
    )
    expect(await records()).toEqual([])
  })
})

describe('history', () => {
  it('remembers as many slots as it is told to', async () => {
    await node.pool.start()
    await scheduler.submitInterval('x', '1s', { id: 'few', history: 3 })
    await scheduler.submitInterval('x', '1s', { id: 'none', history: 0 })
    await scheduler.submitInterval('x', '1s', { id: 'usual' })
    await world.advance(40 * SECOND)
    expect((await world.history(node, 'few')).map(([slot]) => slot)).toEqual([38_000, 39_000, 40_000])
    expect(await world.history(node, 'none')).toEqual([])
    expect(await world.history(node, 'usual')).toHaveLength(25)
    expect(await scheduler.history('usual', 2)).toMatchObject([
      {
        slot: new Date(world.at(40_000)),
        taskId: `usual~${world.at(40_000)}`,
        outcome: 'success',
        reason: undefined,
      },
      { slot: new Date(world.at(39_000)) },
    ])
  })

  it('says what became of the task, and when nothing is known of it any more', async () => {
    await node.pool.start()
    await scheduler.submitInterval('x', '10s', { id: 's' })
    await world.advance(15 * SECOND)
    await node.pool.remove(`s~${world.at(10_000)}`)
    expect(await scheduler.history('s')).toEqual([
      {
        slot: new Date(world.at(10_000)),
        taskId: `s~${world.at(10_000)}`,
        outcome: undefined,
        reason: undefined,
        triggered: false,
      },
    ])
  })
})

describe('backfill', () => {
  it('enqueues each slot of the range once, however often it is called', async () => {
    await node.pool.start()
    const id = await scheduler.submitInterval('x', '10s', { id: 's', missed: 'skip' })
    await world.advance(15 * SECOND)
    node.storage.isDown = true
    await world.advance(30 * SECOND)
    node.storage.isDown = false
    await world.advance(10 * SECOND)
    // The slot of 40 s was not too late when the storage came back.
    expect(await world.tasks('s')).toEqual([10_000, 40_000, 50_000])
    const filled = await scheduler.backfill(id, world.at(-20_000), world.at(50_000))
    expect(filled).toEqual([-20, -10, 0, 10, 20, 30, 40].map((s) => `s~${world.at(s * SECOND)}`))
    expect(await scheduler.backfill(id, world.at(-20_000), world.at(50_000))).toEqual(filled)
    await world.advance(SECOND)
    expect(await world.tasks('s')).toEqual([-20, -10, 0, 10, 20, 30, 40, 50].map((s) => s * SECOND))
    expect(world.ran).toHaveLength(8)
    // What was missed has a task now.
    const history = await scheduler.history(id)
    expect(history.find(({ reason }) => reason === 'missed')).toMatchObject({
      outcome: 'success',
      taskId: expect.any(String) as string,
    })
    expect(await scheduler.get(id)).toMatchObject({ runs: 3 })
  })

  it('leaves out what the history knows as fired, however long ago', async () => {
    const id = await scheduler.submitInterval('x', '10s', { id: 's' })
    await world.advance(15 * SECOND)
    node.die()
    world.clock.leap(31 * 24 * HOUR)
    await node.pool.close({ timeout: 0 })
    const later = world.node()
    await world.inner.queue.remove({ tenant: 'default', queue: 'default' }, [`s~${world.at(10_000)}`])
    world.clock.leap(25 * HOUR)
    const filled = await later.scheduler.backfill(id, world.at(0), world.at(25_000))
    expect(filled).toEqual([0, 10, 20].map((s) => `s~${world.at(s * SECOND)}`))
    await world.advance(SECOND)
    expect(world.ran.filter(([ran]) => ran === filled[1])).toHaveLength(1)
    expect(world.ran.filter(([ran]) => ran === filled[2])).toHaveLength(1)
  })

  it('until now takes the clock of the caller to be a little ahead', async () => {
    const id = await scheduler.submitInterval('x', '1s', { id: 's' })
    await scheduler.pause(id)
    await world.advance(2500)
    const filled = await scheduler.backfill(id, world.at(0), world.at(30_000))
    expect(filled).toEqual([0, 1000, 2000].map((ms) => `s~${world.at(ms)}`))
  })

  it('refuses a range that is none, or too long', async () => {
    const id = await scheduler.submitInterval('x', '1s', { id: 's' })
    await scheduler.pause(id)
    world.clock.leap(HOUR)
    const refused = async (from: number | Date, to: number | Date, code = 'WINDOW_INVALID') => {
      await expect(scheduler.backfill(id, from, to)).rejects.toMatchObject({ code })
    }
    await refused(world.at(0), world.at(0))
    await refused(world.at(SECOND), world.at(0))
    await refused(world.at(0), world.at(2 * HOUR))
    await refused(world.at(-3 * HOUR), world.at(0))
    await refused(new Date(NaN), world.at(0), 'DATE_INVALID')
    await refused(world.at(0), '2026' as never, 'DATE_INVALID')
    expect(await world.tasks('s')).toEqual([])
  })
})

describe('the pool', () => {
  it('is opened by the first call, starts to consume by a submit, and takes the schedules with it when it closes', async () => {
    await scheduler.submitInterval('x', '1s', { id: 's' })
    await world.advance(SECOND)
    expect(world.ran).toHaveLength(1)
    await node.pool.close()
    await expect(scheduler.submitInterval('x', '1s')).rejects.toMatchObject({ code: 'POOL_CLOSED' })
    await expect(scheduler.get('s')).rejects.toMatchObject({ code: 'POOL_CLOSED' })
    const calls = node.storage.calls.length
    await world.advance(MINUTE)
    expect(node.storage.calls.length).toBe(calls)
    expect(world.ran).toHaveLength(1)
  })

  it('of a test fires schedules as the test moves time', async () => {
    const ran: number[] = []
    const pool = createTestPool({ executor: (n: number) => void ran.push(n) })
    const tasks = new TaskScheduler(pool)
    await tasks.submitInterval(1, '10m')
    await pool.advance('1h')
    expect(ran).toHaveLength(6)
    await pool.close()
  })

  it('may be one of a storage by its URL', async () => {
    const pool = new TaskPool({ executor: (n: number) => n * 2 })
    const tasks = new TaskScheduler(pool)
    const id = await tasks.submitInterval(21, 100)
    const first = await new Promise<string>((resolve) =>
      pool.on('schedule.fired', ({ taskId }) => resolve(taskId)),
    )
    expect(first.startsWith(`${id}~`)).toBe(true)
    expect(await pool.waitForResult(first)).toBe(42)
    await pool.close()
  })
})

it('a payload of bytes stays what it is', async () => {
  const got: unknown[] = []
  const pool = new TaskPool({
    storage: memoryStorage({ clock: world.clock }),
    clock: world.clock,
    codec: {
      id: 'bytes',
      encode: (value) => Uint8Array.from([255, 0, Number(value)]),
      decode: (encoded) => (encoded as Uint8Array)[2],
    },
    executor: (n: number) => void got.push(n),
  })
  const tasks = new TaskScheduler(pool)
  await tasks.submitInterval(200, '1s', { id: 's' })
  await world.advance(2 * SECOND)
  expect(got).toEqual([200, 200])
  expect(await tasks.get('s')).toMatchObject({ data: 200 })
  await pool.close()
})
