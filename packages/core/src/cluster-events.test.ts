/** The events of all pools of a queue: who gets which, what is said for it, and what happens when messages fail. */
import { afterEach, describe, expect, it, vi } from 'vitest'
import { ClusterEvents, type ClusterEvent } from './cluster-events.js'
import { jsonCodec, type Codec } from './codec.js'
import { EventBus, type EventsOptions } from './event-bus.js'
import { StoredError } from './failure.js'
import { memoryStorage } from './memory-storage.js'
import type { PoolEvents } from './pool-events.js'
import { CHANGED } from './storage.js'
import { TaskPool, type TaskPoolOptions } from './task-pool.js'
import { FlakyStorage } from './testing/flaky-storage.js'
import { ManualClock } from './testing/manual-clock.js'

const pools: { pool: TaskPool; clock: ManualClock }[] = []
afterEach(async () => {
  for (const { pool, clock } of pools.splice(0)) {
    const closing = pool.close({ timeout: 0 })
    await clock.advanceAsync(20_000)
    await closing
  }
})

/** One storage; each pool reaches it by a connection of its own, which a test can break. */
function world() {
  const clock = new ManualClock()
  const inner = memoryStorage({ clock })
  const open = <Data = number, Result = unknown>(options: Partial<TaskPoolOptions<Data, Result>> = {}) => {
    const storage = new FlakyStorage(inner, { clock })
    const pool = new TaskPool<Data, Result>({ storage, clock, concurrency: 0, ...options })
    pools.push({ pool: pool as TaskPool, clock })
    return { pool, storage }
  }
  const worker = (options: Partial<TaskPoolOptions<number, number>> = {}) =>
    open<number, number>({ node: 'worker', concurrency: 1, executor: (n) => n * 2, ...options })
  return { clock, inner, open, worker }
}

/** Takes note of everything that the iteration gives. */
function read(pool: { events: TaskPool['events'] }, options: EventsOptions<keyof PoolEvents> = {}) {
  const events: ClusterEvent[] = []
  const stream = pool.events({ ...options, scope: 'cluster' })
  const ended = (async () => {
    for await (const event of stream) events.push(event)
  })()
  return { events, stream, ended, types: () => events.map(({ type }) => type) }
}

const published = (storage: FlakyStorage, channel: string): string[] =>
  storage
    .callsOf('notices.publish')
    .filter(({ args: [name] }) => name.startsWith(channel))
    .map(({ args: [, message] }) => message)

describe('events of the cluster', () => {
  it('come from every pool of the queue, once, with node and time, and without payloads', async () => {
    const { clock, open, worker } = world()
    const { pool: web } = open({ node: 'web' })
    const { pool } = worker()
    const there = read(web)
    const here = read(pool)
    await pool.start()
    await clock.advanceAsync(100)
    const at = clock.now()
    const id = await web.submit(21)
    await clock.advanceAsync(100)
    const own = { dropped: 0, at }
    const expected = [
      { type: 'task.created', event: { id, name: '' }, node: 'web', ...own },
      { type: 'task.started', event: { id, name: '', node: 'worker', attempt: 1 }, node: 'worker', ...own },
      { type: 'task.completed', event: { id, name: '', duration: 0 }, node: 'worker', ...own },
    ]
    expect(there.events).toEqual(expected)
    // Its own come without the way over the storage, so before those of others.
    expect(here.events).toEqual([...expected.slice(1), expected[0]])
  })

  it('bring errors as errors, and progress as the codec makes it', async () => {
    const { clock, open, worker } = world()
    const codec: Codec = {
      id: 'bytes',
      encode: (value) => Buffer.from(jsonCodec.encode(value)),
      decode: (encoded) => jsonCodec.decode(encoded),
    }
    for (const given of [jsonCodec, codec]) {
      const queue = given.id
      const { pool: web } = open({ queue, codec: given })
      const there = read(web, { types: ['task.retry', 'task.failed', 'task.progress', 'pool.error'] })
      const { pool } = worker({
        queue,
        codec: given,
        retry: { limit: 1, delay: 5, jitter: 'none' },
        executor: (n, ctx) => {
          ctx.progress(n === 1 ? { done: 0.5 } : 'x'.repeat(5000))
          throw new TypeError('no', { cause: new Error('deep') })
        },
      })
      pool.on('task.failed', () => {
        throw new RangeError('a listener')
      })
      await pool.start()
      await web.submit(1)
      await web.submit(2)
      await clock.advanceAsync(1000)
      const progress = there.events.flatMap(({ type, event }) =>
        type === 'task.progress' ? [event.progress] : [],
      )
      expect([progress[0], progress.at(-1)]).toEqual([{ done: 0.5 }, undefined])
      const errors = there.events.flatMap(({ event }) => ('error' in event ? [event.error] : []))
      expect(errors).toHaveLength(6)
      for (const error of errors) expect(error).toBeInstanceOf(StoredError)
      expect(errors.map(({ name }) => name).sort()).toEqual([
        ...['RangeError', 'RangeError'],
        ...['TypeError', 'TypeError', 'TypeError', 'TypeError'],
      ])
      const failed = there.events.find(({ type }) => type === 'task.failed')
      expect(failed?.event).toMatchObject({
        attempts: 2,
        error: { message: 'no', cause: { message: 'deep' } },
      })
    }
  })

  it('are those of the types asked for, and no others are sent', async () => {
    const { clock, open, worker } = world()
    const { pool, storage } = worker()
    await pool.start()
    const { pool: web } = open()
    const completed = read(web, { types: ['task.completed'] })
    await clock.advanceAsync(100)
    await pool.submit(1)
    await clock.advanceAsync(100)
    const started = read(web, { types: ['task.started'] })
    await clock.advanceAsync(100)
    await pool.submit(1)
    await clock.advanceAsync(100)
    expect(completed.types()).toEqual(['task.completed', 'task.completed'])
    expect(started.types()).toEqual(['task.started'])
    const [first, second] = published(storage, 'events:')
    expect(first).not.toContain('task.started')
    expect(second).toContain('task.started')
    expect(second).not.toContain('task.created')
  })

  it('come from a pool that opens later, at once', async () => {
    const { clock, open, worker } = world()
    const there = read(open().pool)
    await clock.advanceAsync(2000)
    const { pool } = worker()
    await pool.start()
    await clock.settle()
    await pool.run(1)
    await clock.advanceAsync(30)
    expect(there.types()).toEqual(['task.created', 'task.started', 'task.completed'])
  })

  it('do not come from other queues, whatever their names', async () => {
    const clock = new ManualClock()
    const storage = memoryStorage({ clock })
    const parts = (tenant: string, queue: string) => {
      const events = new EventBus<PoolEvents>({ clock, onError: () => {} })
      const cluster = new ClusterEvents({
        ...{ ref: { tenant, queue }, node: tenant, codec: jsonCodec, clock, callTimeout: 1000, events },
        storage: () => Promise.resolve(storage),
        troubled: () => {},
      })
      return { events, cluster }
    }
    const [one, other] = [parts('a/b', 'c'), parts('a', 'b/c')]
    const stream = one.cluster.events({})
    const next = stream.next()
    other.cluster.begin()
    await clock.advanceAsync(100)
    other.events.emit('task.removed', { id: 'theirs' })
    await clock.advanceAsync(100)
    one.events.emit('task.removed', { id: 'ours' })
    expect((await next).value).toMatchObject({ event: { id: 'ours' } })
    await Promise.all([one.cluster.close(), other.cluster.close()])
  })

  it('refuse another scope', () => {
    const { pool } = world().open()
    const options = { scope: 'all' } as never
    expect(() => pool.events(options)).toThrow(
      expect.objectContaining({
        code: 'OPTION_INVALID',
        message: expect.stringContaining('events.scope') as string,
      }),
    )
    expect(() => pool.events({ scope: 'cluster', capacity: 0 })).toThrow('capacity: expected')
  })
})

describe('the cost', () => {
  it('is one question when a pool opens, and nothing while nobody listens', async () => {
    const { clock, open, worker } = world()
    const [web, { pool, storage }] = [open(), worker()]
    // Of this process only: nobody listens elsewhere.
    const local = pool.events()
    await pool.start()
    await Promise.all(Array.from({ length: 50 }, () => web.pool.submit(1)))
    await clock.advanceAsync(60_000)
    expect((await local.next()).value).toMatchObject({ type: 'task.started' })
    for (const each of [web.storage, storage]) {
      expect(published(each, '')).toHaveLength(1)
      expect(published(each, 'listen:')).toHaveLength(1)
    }
  })

  it('is a message every few seconds for one who listens, and ends with him', async () => {
    const { clock, open, worker } = world()
    const { pool, storage } = worker()
    await pool.start()
    const web = open()
    const there = read(web.pool)
    await clock.advanceAsync(30_000)
    expect(published(web.storage, 'listen:').length).toBeLessThan(15)
    await pool.submit(1)
    await clock.advanceAsync(100)
    expect(there.events).toHaveLength(3)
    expect(clock.holding).toBeGreaterThan(0)
    await there.stream.return?.()
    await clock.settle()
    const said = published(web.storage, '').length
    const sent = published(storage, '').length
    await pool.submit(1)
    await clock.advanceAsync(30_000)
    expect(published(web.storage, '')).toHaveLength(said)
    expect(published(storage, '')).toHaveLength(sent)
    expect(web.storage.callsOf('notices.subscribe')).toHaveLength(2)
    // And again.
    const again = read(web.pool)
    await clock.advanceAsync(100)
    await pool.submit(1)
    await clock.advanceAsync(100)
    expect(again.events).toHaveLength(3)
  })

  it('ends some seconds after one who listens was lost', async () => {
    const { clock, open, worker } = world()
    const { pool, storage } = worker()
    await pool.start()
    const web = open()
    read(web.pool)
    await clock.advanceAsync(100)
    web.storage.isDown = true
    await clock.advanceAsync(5000)
    await pool.submit(1)
    await clock.advanceAsync(100)
    expect(published(storage, 'events:')).toHaveLength(1)
    await clock.advanceAsync(6000)
    await pool.submit(1)
    await clock.advanceAsync(100)
    expect(published(storage, 'events:')).toHaveLength(1)
  })

  it('delays no submit, also when the storage never answers', async () => {
    const { pool, storage } = world().worker()
    const isOurs = (channel: string): boolean => channel.startsWith('listen:')
    const fault = storage.fail('notices.subscribe', { kind: 'silent', when: isOurs })
    expect(await pool.run(4)).toBe(8)
    expect(fault.hits).toBe(1)
  })
})

describe('what is not heard', () => {
  it('is told by the next one, when the reader is slow', async () => {
    const { clock, open, worker } = world()
    const { pool } = worker()
    await pool.start()
    const stream = open().pool.events({ scope: 'cluster', types: ['task.completed'], capacity: 3 })
    await clock.advanceAsync(100)
    await Promise.all(Array.from({ length: 10 }, (_, n) => pool.submit(n)))
    await clock.advanceAsync(100)
    const dropped = [await stream.next(), await stream.next()].map(({ value }) => value?.dropped)
    expect(dropped).toEqual([7, 0])
  })

  it('is told by the next one, when it could not be sent, and is no trouble of the pool', async () => {
    const { clock, open, worker } = world()
    const { pool, storage } = worker()
    const errors: unknown[] = []
    pool.on('pool.error', (error) => errors.push(error))
    await pool.start()
    const there = read(open().pool, { types: ['task.created', 'task.completed'] })
    await clock.advanceAsync(100)
    const fault = storage.fail('notices.publish', { kind: 'before' })
    for (let hits = 1; hits <= 2; hits++) {
      await pool.submit(1)
      await clock.advanceAsync(100)
      expect(fault.hits).toBe(hits)
    }
    fault.end()
    await pool.submit(1)
    await clock.advanceAsync(100)
    expect(there.events.map(({ type, dropped }) => [type, dropped])).toEqual([
      ['task.created', 4],
      ['task.completed', 0],
    ])
    expect(errors).toEqual([])
  })

  it('is bounded and counted by type, when more happens than can be sent', async () => {
    const { clock, open, worker } = world()
    const { pool, storage } = worker({
      concurrency: 100,
      retry: false,
      executor: () => {
        throw new Error('x'.repeat(1500))
      },
    })
    await pool.start()
    const { pool: web } = open()
    const [failed, started] = [
      read(web, { types: ['task.failed'] }),
      read(web, { types: ['task.started'], capacity: 5000 }),
    ]
    await clock.advanceAsync(100)
    let go!: () => void
    const gate = new Promise<void>((resolve) => (go = resolve))
    const held = storage.intercept('notices.publish', async (forward) => {
      await gate
      await forward()
    })
    const count = 2000
    await Promise.all(Array.from({ length: count }, (_, n) => pool.submit(n)))
    await clock.advanceAsync(1000)
    expect(held.hits).toBe(1)
    go()
    // What was lost is told by the next one.
    await pool.submit(count)
    for (const { events } of [failed, started]) {
      await vi.waitFor(async () => {
        await clock.advanceAsync(10)
        const dropped = events.reduce((sum, event) => sum + event.dropped, 0)
        expect([events.length + dropped, dropped > 0, events.length > 0]).toEqual([count + 1, true, true])
      })
    }
    const messages = published(storage, 'events:')
    const [longest] = messages.map((message) => message.length).sort((a, b) => b - a)
    expect(longest).toBeLessThan(33 * 1024)
    expect(messages.reduce((sum, message) => sum + message.length, 0)).toBeLessThan(1.3 * 1024 * 1024)
  })

  it('is what cannot be read, or is of another version', async () => {
    const { clock, inner, open, worker } = world()
    const { pool, storage } = worker()
    await pool.start()
    const there = read(open().pool)
    await clock.advanceAsync(100)
    const stranger = {
      from: 'stranger',
      node: 'n',
      types: ['*'],
      lasts: 1e6,
      lost: {},
      events: [['x', 1, {}]],
    }
    for (const channel of ['listen:default/default', 'events:default/default']) {
      for (const text of [CHANGED, '', 'null', '5', '{}', '{"v":1}', JSON.stringify({ ...stranger, v: 2 })])
        await inner.notices.publish(channel, text)
    }
    await there.stream.return?.()
    await pool.submit(1)
    await clock.advanceAsync(1000)
    expect(there.events).toEqual([])
    expect(published(storage, 'events:')).toEqual([])
  })

  it('is trouble when the storage cannot be reached, told once, and comes when it can again', async () => {
    const { clock, open, worker } = world()
    const web = open()
    const errors: string[] = []
    web.pool.on('pool.error', ({ while: what }) => errors.push(what))
    const fault = web.storage.fail('notices.subscribe', { kind: 'before' })
    const there = read(web.pool, { types: ['task.completed'] })
    await clock.advanceAsync(20_000)
    expect(errors).toEqual(['events'])
    fault.end()
    await clock.advanceAsync(3000)
    const { pool } = worker()
    await pool.run(1)
    await clock.advanceAsync(100)
    expect(there.types()).toEqual(['task.completed'])
  })
})

describe('close', () => {
  it('sends what happened last, ends the iterations, and leaves nothing', async () => {
    const { clock, open, worker } = world()
    const { pool, storage } = worker()
    const web = open()
    const [here, there] = [read(pool), read(web.pool)]
    const unread = web.pool.events({ scope: 'cluster', types: ['task.completed'] })
    await pool.start()
    await clock.advanceAsync(100)
    await pool.submit(1)
    await clock.settle()
    await pool.close()
    await here.ended
    await clock.settle()
    expect(there.types()).toEqual(['task.created', 'task.started', 'task.completed'])
    const sent = published(storage, '').length
    await web.pool.close()
    await there.ended
    expect((await unread.next()).value).toMatchObject({ type: 'task.completed', node: 'worker' })
    expect((await unread.next()).done).toBe(true)
    expect((await web.pool.events({ scope: 'cluster' }).next()).done).toBe(true)
    await clock.settle()
    expect(clock.pending).toBe(0)
    expect(published(storage, '')).toHaveLength(sent)
    expect(JSON.parse(published(web.storage, 'listen:').at(-1) as string)).toMatchObject({ types: [] })
  })

  it('ends the iteration of a pool that was never used, or that never opens', async () => {
    const { clock, open } = world()
    const web = open()
    web.storage.isDown = true
    const there = read(web.pool)
    await web.pool.close()
    await there.ended
    await clock.settle()
    expect(clock.pending).toBe(0)
  })

  it('ends at once with a signal, also one that has aborted', async () => {
    const { clock, open } = world()
    const web = open()
    const controller = new AbortController()
    const there = read(web.pool, { signal: controller.signal })
    await clock.advanceAsync(100)
    controller.abort()
    await there.ended
    await clock.settle()
    expect(clock.holding).toBe(0)
    const stream = web.pool.events({ scope: 'cluster', signal: controller.signal })
    expect((await stream.next()).done).toBe(true)
  })

  it('is not held up for longer than a call by a storage that is silent', async () => {
    const { clock, open } = world()
    const web = open({ callTimeout: 500 })
    read(web.pool)
    await clock.advanceAsync(100)
    web.storage.fail('notices.publish', { kind: 'silent' })
    const closing = web.pool.close()
    await clock.advanceAsync(600)
    await closing
  })
})
