/** The door by which tiers bring tasks into a pool: refusals before anything is stored, and ids that are stored once. */
import { afterEach, beforeEach, describe, expect, it } from 'vitest'
import { z } from 'zod'
import { defineTask } from './define-task.js'
import { memoryStorage } from './memory-storage.js'
import type { PoolEvents } from './pool-events.js'
import { TaskPool } from './task-pool.js'
import { FlakyStorage } from './testing/flaky-storage.js'
import { tierOf, type PlacedTask, type Tier } from './tier.js'

const mail = defineTask({
  name: 'mail',
  input: z.object({ to: z.string(), copies: z.number().default(1) }),
  handler: (data) => `${data.to} × ${data.copies}`,
  priority: 3,
  tags: ['own'],
})

let storage: FlakyStorage
let pool: TaskPool<number, number>
let tier: Tier

beforeEach(() => {
  storage = new FlakyStorage(memoryStorage())
  pool = new TaskPool({
    storage,
    executor: (n: number) => n + 1,
    tasks: [mail],
    maxQueueSize: 3,
    callTimeout: 500,
    autoStart: false,
  })
  tier = tierOf(pool)
})

afterEach(() => pool.close())

describe('prepare', () => {
  it('makes what would be stored, and stores nothing', async () => {
    const options = { retry: { limit: 5 }, timeout: '1s', tags: ['a'], priority: 1 }
    expect(await tier.prepare(undefined, 7, options)).toMatchObject({
      kind: '',
      payload: '7',
      codec: 'json',
      priority: 1,
    })
    const prepared = await tier.prepare(mail, { to: 'ada' })
    expect(prepared).toEqual({
      kind: 'mail',
      payload: '{"to":"ada","copies":1}',
      codec: 'json',
      priority: 3,
      options: '{"tags":["own"]}',
    })
    expect(tier.prepareOptions('mail', { priority: 9, tags: ['b'] })).toEqual({
      priority: 9,
      options: '{"tags":["b"]}',
    })
    expect(tier.prepareOptions('mail', {})).toEqual({ priority: 3, options: '{"tags":["own"]}' })
    expect(storage.callsOf('queue.enqueue')).toEqual([])
  })

  it.each<[string, () => Promise<unknown>]>([
    ['VALIDATION_FAILED', () => tier.prepare(mail, { to: 5 })],
    ['PAYLOAD_INVALID', () => tier.prepare(undefined, () => {})],
    ['PAYLOAD_TOO_LARGE', () => tier.prepare(undefined, 'x'.repeat(2e6))],
    ['OPTION_INVALID', () => tier.prepare(undefined, 1, { priority: -1 })],
    ['OPTION_INVALID', () => tier.prepare(undefined, 1, { retry: { limit: -1 } })],
    ['OPTION_INVALID', () => tier.prepare(defineTask({ name: 'unknown' }), 1)],
  ])('refuses what submit refuses: %s', async (code, call) => {
    await expect(call()).rejects.toMatchObject({ code })
  })

  it('refuses what is no pool, and a pool that is closed', async () => {
    expect(() => tierOf({} as never)).toThrow(/pool: expected a TaskPool, got an object/)
    await pool.close()
    await expect(tier.prepare(undefined, 1)).rejects.toMatchObject({ code: 'POOL_CLOSED' })
    await expect(tier.call('counts', ({ queue }) => queue.counts(tier.ref))).rejects.toMatchObject({
      code: 'POOL_CLOSED',
    })
  })
})

describe('enqueue', () => {
  const placed = async (id: string, more: Partial<PlacedTask> = {}): Promise<PlacedTask> => ({
    ...(await tier.prepare(mail, { to: id })),
    id,
    ...more,
  })

  it('stores each id once, whoever says it, and tells which are new', async () => {
    const tasks = [await placed('s~1'), await placed('s~2')]
    expect(await tier.enqueue(tasks)).toEqual(['stored', 'stored'])
    expect(await tierOf(pool).enqueue([...tasks, await placed('s~3')])).toEqual(['known', 'known', 'stored'])
    expect(await tier.enqueue([])).toEqual([])
    await pool.start()
    expect(await pool.waitForResult('s~2')).toBe('s~2 × 1')
    expect(await pool.getTask('s~2')).toMatchObject({ name: 'mail', tags: ['own'], priority: 3 })
  })

  it('answers for each by itself', async () => {
    const tasks = [
      await placed('s~1'),
      await placed('s~2', { after: { ids: ['gone'], on: 'final' } }),
      await placed('s~3'),
    ]
    expect(await tier.enqueue(tasks)).toEqual([
      'stored',
      expect.objectContaining({ code: 'DEPENDENCY_NOT_FOUND' }),
      'stored',
    ])
    expect(await tier.enqueue([await placed('s~4'), await placed('s~5')])).toEqual([
      'stored',
      expect.objectContaining({ code: 'QUEUE_FULL', retryable: true }),
    ])
    storage.isDown = true
    expect(await tier.enqueue([await placed('s~5')])).toEqual([
      expect.objectContaining({ code: 'STORAGE_UNAVAILABLE' }),
    ])
    storage.isDown = false
  })

  it('lets one wait for another, and tells of the creation', async () => {
    const created: PoolEvents['task.created'][] = []
    pool.on('task.created', (event) => created.push(event))
    await tier.enqueue([await placed('s~1')])
    await tier.enqueue([await placed('s~2', { after: { ids: ['s~1'], on: 'final' } })])
    expect(await pool.getStatus('s~2')).toBe('blocked')
    expect(created.map(({ id, name, data }) => [id, name, data])).toEqual([
      ['s~1', 'mail', { to: 's~1', copies: 1 }],
      ['s~2', 'mail', { to: 's~2', copies: 1 }],
    ])
  })
})

it('knows the definitions of the pool, its events and its troubles', async () => {
  expect([tier.definition('mail'), tier.definition('')]).toEqual([mail, undefined])
  expect(() => tier.definition('unknown')).toThrow(/unknown/)
  expect(tier.hears('schedule.fired')).toBe(false)
  const heard: unknown[] = []
  pool.on('schedule.fired', (event) => heard.push(event))
  pool.on('pool.error', (event) => heard.push(event))
  expect(tier.hears('schedule.fired')).toBe(true)
  tier.emit('schedule.fired', { id: 's', slot: 1, taskId: 's~1' })
  tier.trouble(new Error('no'), 'schedules')
  expect(heard).toEqual([
    { id: 's', slot: 1, taskId: 's~1' },
    { error: new Error('no'), while: 'schedules' },
  ])
})

it('begins to consume as a submit does', async () => {
  const other = new TaskPool({ executor: (n: number) => n + 1 })
  const own = tierOf(other)
  await own.enqueue([{ ...(await own.prepare(undefined, 1)), id: 's~1' }])
  own.consume()
  expect(await other.waitForResult('s~1')).toBe(2)
  await other.close()
})
