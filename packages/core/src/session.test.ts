/** What a node holds, and when it lets go of it, whatever becomes of its calls and of its messages. */
import { afterEach, describe, expect, it, vi } from 'vitest'
import { memoryStorage } from './memory-storage.js'
import {
  wakeChannel,
  type Handed,
  type QueueRef,
  type Serves,
  type Storage,
  type WorkRequest,
} from './storage.js'
import { TaskPool, type TaskPoolOptions } from './task-pool.js'
import { FlakyStorage } from './testing/flaky-storage.js'
import { ManualClock } from './testing/manual-clock.js'
import type { StorageCall } from './testing/storage-calls.js'

const REF: QueueRef = { tenant: 'default', queue: 'default' }

const ends: (() => Promise<unknown>)[] = []
afterEach(async () => {
  await Promise.all(ends.splice(0).map((end) => end()))
})

interface Gate {
  readonly promise: Promise<void>
  open(): void
}

function gate(): Gate {
  let open!: () => void
  const promise = new Promise<void>((resolve) => (open = resolve))
  return { promise, open }
}

/** Every call of `work`, also those that failed. */
const workCalls = (storage: FlakyStorage): WorkRequest[] =>
  storage.callsOf('session.work').map(({ args: [request] }) => request)

/** Calls of `work` from now on. */
function countFromNow(storage: FlakyStorage): () => number {
  const before = workCalls(storage).length
  return () => workCalls(storage).length - before
}

/** How many of these calls the storage has answered. */
const answered = (storage: FlakyStorage, call: StorageCall): number =>
  storage.callsOf(call).filter(({ fault }) => fault === undefined).length

/** Carries out the next call that claims, and loses its reply. */
function loseNextClaim(storage: FlakyStorage): void {
  const trap = storage.intercept('session.work', async (forward) => {
    const reply = await forward()
    if (reply.claimed.length === 0) return reply
    trap.end()
    throw new Error('the reply was lost')
  })
}

interface World {
  clock: ManualClock
  storage: FlakyStorage
  /** What stands behind it, as others reach it. */
  memory: Storage
  /** A pool on the storage under the same clock; closed after the test. */
  poolOf<Data, Result>(options: TaskPoolOptions<Data, Result>): TaskPool<Data, Result>
  /** A pool on the same storage that never fails, and runs nothing. */
  producer: TaskPool<unknown>
}

/** As if it worked in another process: a node has more than one call under way. */
function apart(storage: Storage): Storage {
  const { name, durable, queue, session, upkeep, records, locks, notices } = storage
  const limits = { ...storage.limits, flights: 2 }
  const [open, close] = [() => storage.open(), () => storage.close()]
  return { name, durable, limits, queue, session, upkeep, records, locks, notices, open, close }
}

function world({ isApart = false }: { isApart?: boolean } = {}): World {
  const clock = new ManualClock()
  const memory = isApart ? apart(memoryStorage({ clock })) : memoryStorage({ clock })
  const storage = new FlakyStorage(memory, { clock })
  const closing = (pool: TaskPool): void => {
    ends.push(async () => {
      storage.isDown = false
      const closed = pool.close({ timeout: 0 })
      await clock.advanceAsync(15_000)
      await closed
    })
  }
  const poolOf = <Data, Result>(options: TaskPoolOptions<Data, Result>): TaskPool<Data, Result> => {
    const pool = new TaskPool({ storage, clock, ...options })
    closing(pool)
    return pool
  }
  const producer = new TaskPool<unknown>({ storage: memory, clock, concurrency: 0 })
  closing(producer)
  return { clock, storage, memory, poolOf, producer }
}

/** A session that claims `want` tasks of the queue, as a node that died with them would have. */
async function claimElsewhere(storage: Storage, want: number, marked: boolean): Promise<void> {
  const serves: Serves = { ...REF, kinds: [''] }
  const session = `elsewhere-${want}`
  const node = { id: 'elsewhere', host: 'h', pid: 1, concurrency: 1, queue: REF.queue, kinds: [''] }
  const rule = { age: 1e9, count: 1000 }
  await storage.session.open(session, {
    ttl: 1000,
    node,
    serves,
    retention: { success: rule, failed: rule },
    maxReclaims: 3,
  })
  const nothing = { session, ack: 0, ackTaken: 0, marks: [], reports: [], settlements: [], renew: false }
  const { claimed } = await storage.session.work({ ...nothing, want })
  expect(claimed).toHaveLength(want)
  if (marked) await storage.session.work({ ...nothing, ack: 1, marks: claimed, want: 0 })
}

describe('an idle pool', () => {
  it('makes four calls in five seconds', async () => {
    const { clock, storage, poolOf } = world()
    const pool = poolOf({ executor: () => {} })
    await pool.start()
    await clock.advanceAsync(100)
    const calls = countFromNow(storage)
    await clock.advanceAsync(10_000)
    expect(calls()).toBe(8)
  })

  it('finds work within 1.25 s when every message is lost', async () => {
    const { clock, storage, poolOf, producer } = world()
    const pool = poolOf({ executor: () => 1 })
    await pool.start()
    await clock.advanceAsync(100)
    storage.isDeaf = true
    const id = await producer.submit(1)
    await clock.advanceAsync(1250)
    expect(await producer.getStatus(id)).toBe('success')
  })

  it('starts a new task at once when told', async () => {
    const { clock, poolOf, producer } = world()
    const pool = poolOf({ executor: () => 1 })
    await pool.start()
    await clock.advanceAsync(100)
    const id = await producer.submit(1)
    await clock.settle()
    expect(await producer.getStatus(id)).toBe('success')
  })
})

describe('ends that gather while a call is out', () => {
  const COUNT = 300

  /** A pool whose first claim is answered, and whose next call that claims is kept until the gate opens. */
  async function gathering(): Promise<
    World & { pool: TaskPool<number, number>; answer: Gate; results: Promise<number[]> }
  > {
    const all = world({ isApart: true })
    const { clock, storage, poolOf } = all
    const pool = poolOf({
      executor: (n: number, ctx) => {
        if (n === 0) ctx.progress('nearly done')
        return n + 1
      },
      concurrency: COUNT,
    })
    await pool.start()
    await clock.advanceAsync(100)
    const answer = gate()
    let claims = 0
    storage.intercept('session.work', async (forward, { want }) => {
      const reply = await forward()
      if (want > 0 && ++claims > 1) await answer.promise
      return reply
    })
    const results = Promise.all(Array.from({ length: COUNT }, (_, n) => pool.run(n)))
    results.catch(() => {})
    return { ...all, pool, answer, results }
  }

  it('go in a call beside it, each once', async () => {
    const { clock, storage, pool, answer, results } = await gathering()
    await clock.advanceAsync(100)
    const beside = workCalls(storage).filter(({ want, settlements }) => want === 0 && settlements.length > 0)
    expect(beside.length).toBeGreaterThan(0)
    expect(
      beside.every(({ settlements, renew, marks }) => settlements.length > 0 && !renew && marks.length === 0),
    ).toBe(true)
    expect((await pool.getStats()).completed).toBeGreaterThan(0)
    answer.open()
    await clock.advanceAsync(2000)
    expect(await results).toEqual(Array.from({ length: COUNT }, (_, n) => n + 1))
    const settled = workCalls(storage).flatMap(({ settlements }) => settlements.map(({ id }) => id))
    expect(settled).toHaveLength(COUNT)
    expect(new Set(settled).size).toBe(COUNT)
    expect(await pool.getStats()).toMatchObject({ completed: COUNT, running: 0 })
  })

  it('go again with the next call when that one is lost, with what was said last before them', async () => {
    const { clock, storage, pool, answer, results } = await gathering()
    let lost = 0
    storage.intercept('session.work', async (forward, { want, settlements }) => {
      if (want === 0 && settlements.length > 0 && lost++ === 0) throw new Error('the call was lost')
      return await forward()
    })
    await clock.advanceAsync(100)
    expect(lost).toBeGreaterThan(0)
    answer.open()
    await clock.advanceAsync(2000)
    expect(await results).toEqual(Array.from({ length: COUNT }, (_, n) => n + 1))
    expect(await pool.counts()).toMatchObject({ success: COUNT, running: 0, pending: 0 })
    const { tasks } = await pool.list({ state: 'success', limit: 500 })
    expect(tasks.filter(({ progress }) => progress === 'nearly done')).toHaveLength(1)
  })

  it('are waited for when the pool closes', async () => {
    const { clock, storage, pool, answer, results } = await gathering()
    const late = gate()
    storage.intercept('session.work', async (forward, { want, settlements }) => {
      const reply = await forward()
      if (want === 0 && settlements.length > 0) await late.promise
      return reply
    })
    await clock.advanceAsync(100)
    answer.open()
    await clock.advanceAsync(100)
    let isClosed = false
    const closed = pool.close().then((report) => {
      isClosed = true
      return report
    })
    await clock.advanceAsync(1000)
    expect(isClosed).toBe(false)
    late.open()
    await clock.advanceAsync(1000)
    await closed
    expect(await results).toHaveLength(COUNT)
  })
})

describe('a task that is due later', () => {
  it('wakes an idle node in time', async () => {
    const { clock, poolOf, producer } = world()
    const pool = poolOf({ executor: () => clock.monotonic() })
    await pool.start()
    await clock.advanceAsync(100)
    const id = await producer.submit(1, { delay: 300 })
    await clock.advanceAsync(299)
    expect(await producer.getStatus(id)).toBe('scheduled')
    await clock.advanceAsync(5)
    expect(await producer.getStatus(id)).toBe('success')
  })

  it('wakes a node in time that has just run what it held', async () => {
    const { clock, poolOf, producer } = world()
    const pool = poolOf({ concurrency: 1, prefetch: 0, executor: () => {} })
    await pool.start()
    await clock.advanceAsync(100)
    await producer.submit(1)
    await clock.settle()
    const id = await producer.submit(1, { delay: 50 })
    await clock.advanceAsync(60)
    expect(await producer.getStatus(id)).toBe('success')
  })

  it('does not keep a node asking that has no slot for it', async () => {
    const { clock, storage, poolOf, producer } = world()
    const busy = gate()
    const pool = poolOf({ concurrency: 1, prefetch: 0, executor: () => busy.promise })
    await pool.start()
    await producer.submit(1)
    const late = await producer.submit(2, { delay: 10 })
    await clock.advanceAsync(100)
    const calls = countFromNow(storage)
    await clock.advanceAsync(2000)
    expect(calls()).toBeLessThanOrEqual(3)
    busy.open()
    await clock.advanceAsync(5)
    expect(await producer.getStatus(late)).toBe('success')
  })
})

describe('a lost reply', () => {
  it('of a claim is given again, and each task runs once', async () => {
    const { clock, storage, poolOf, producer } = world()
    const ran: number[] = []
    const pool = poolOf({ executor: (n: number) => void ran.push(n) })
    loseNextClaim(storage)
    for (let n = 0; n < 5; n++) await producer.submit(n)
    await pool.start()
    await clock.advanceAsync(200)
    expect(ran).toEqual([0, 1, 2, 3, 4])
    expect(await producer.counts()).toMatchObject({ success: 5, running: 0 })
    expect(answered(storage, 'session.resume')).toBe(0)
  })

  it('of a claim is given again although something is settled before the next claim', async () => {
    const { clock, storage, poolOf, producer } = world()
    const slow = gate()
    const ran: number[] = []
    const executor = (n: number): Promise<void> | undefined => {
      ran.push(n)
      return n === 0 ? slow.promise : undefined
    }
    const pool = poolOf({ concurrency: 2, prefetch: 0, executor })
    await pool.start()
    await producer.submit(0)
    await clock.advanceAsync(100)
    loseNextClaim(storage)
    await producer.submit(1)
    await clock.settle()
    // It asks for nothing while it is paused here, and is told of a newer token than it knows.
    await pool.pause({ local: true })
    await clock.advanceAsync(100)
    slow.open()
    await clock.settle()
    await pool.resume({ local: true })
    await clock.advanceAsync(100)
    expect(ran).toEqual([0, 1])
    expect(answered(storage, 'session.resume')).toBe(0)
  })

  it('of a settlement is asked for again, and the end counts once', async () => {
    const { clock, storage, poolOf } = world()
    const pool = poolOf({ executor: (n: number) => n * 2 })
    let lost = 0
    storage.intercept('session.work', async (forward, request) => {
      const reply = await forward()
      if (request.settlements.length === 0 || lost++ > 0) return reply
      throw new Error('the reply was lost')
    })
    const result = pool.run(4)
    await clock.advanceAsync(200)
    expect(await result).toBe(8)
    expect(lost).toBe(2)
    expect(await pool.getStats()).toMatchObject({ completed: 1 })
    expect((await pool.getTask((await pool.list({ state: 'success' })).tasks[0]?.id ?? ''))?.attempts).toBe(1)
  })

  it('of anything is not waited for longer than a call may take', async () => {
    const { clock, storage, poolOf } = world()
    const pool = poolOf({ callTimeout: '2s', executor: (n: number) => n * 2 })
    await pool.start()
    await clock.advanceAsync(100)
    const silence = storage.fail('session.work', { kind: 'silent' })
    const result = pool.run(4)
    await clock.advanceAsync(1000)
    silence.end()
    await clock.advanceAsync(1500)
    expect(await result).toBe(8)
  })
})

describe('a storage that is away', () => {
  it('for longer than the fence aborts what runs, and gives it back when it is there again', async () => {
    const { clock, storage, poolOf } = world()
    const reasons: unknown[] = []
    const pool = poolOf<number, void>({
      concurrency: 1,
      executor: (_n, ctx) =>
        ctx.attempt === 1 && reasons.length === 0
          ? new Promise((_resolve, reject) => {
              ctx.signal.addEventListener('abort', () => {
                reasons.push((ctx.signal.reason as { kind: string }).kind)
                reject(new Error('aborted'))
              })
            })
          : undefined,
    })
    const result = pool.run(1)
    await clock.advanceAsync(100)
    storage.isDown = true
    await clock.advanceAsync(21_000)
    expect(reasons).toEqual([])
    await clock.advanceAsync(1100)
    expect(reasons).toEqual(['lease-lost'])
    expect((await pool.health()).session?.ok).toBe(false)
    // Nobody looked meanwhile, so the session still lives: what was aborted goes back without an attempt used up.
    storage.isDown = false
    await clock.advanceAsync(2000)
    await result
    expect(answered(storage, 'session.resume')).toBe(1)
    expect(answered(storage, 'session.open')).toBe(1)
  })

  it('for so long that the session is over: a late result is refused, and a new session goes on', async () => {
    const { clock, storage, memory, poolOf, producer } = world()
    const first = gate()
    let calls = 0
    const pool = poolOf({
      concurrency: 1,
      executor: async () => {
        if (++calls === 1) {
          await first.promise
          return 'late'
        }
        return 'second'
      },
    })
    const id = await pool.submit(undefined as never)
    await clock.advanceAsync(100)
    storage.isDown = true
    await clock.advanceAsync(16_000)
    await memory.upkeep.reclaim(100)
    await clock.advanceAsync(11_000)
    await memory.upkeep.reclaim(100)
    storage.isDown = false
    await clock.advanceAsync(1500)
    expect(answered(storage, 'session.open')).toBe(2)
    first.open()
    await clock.advanceAsync(1500)
    expect(await producer.getTask(id)).toMatchObject({ state: 'success', result: 'second' })
    expect(await pool.getStats()).toMatchObject({ completed: 1 })
  })

  it('and comes back without what it acknowledged last is followed in what it holds', async () => {
    const clock = new ManualClock()
    const [master, replica] = [memoryStorage({ clock }), memoryStorage({ clock })]
    let present = master
    const storage = new Proxy(master, {
      get: (_, name) => {
        const value: unknown = Reflect.get(present, name)
        return typeof value === 'function' ? (value.bind(present) as unknown) : value
      },
    })
    const open = master.session.open.bind(master.session)
    // All that the replica has heard of: the session, and one task.
    vi.spyOn(master.session, 'open').mockImplementation(async (session, options) => {
      await open(session, options)
      await replica.session.open(session, options)
    })
    const begun: string[] = []
    const aborted: string[] = []
    const pool = new TaskPool({
      storage,
      clock,
      concurrency: 2,
      prefetch: 0,
      executor: (name: string, ctx) => {
        begun.push(name)
        if (!name.startsWith('long')) return undefined
        return new Promise((_, reject) => {
          ctx.signal.addEventListener('abort', () => {
            aborted.push(name)
            reject(new Error('aborted'))
          })
        })
      },
    })
    const [before, after] = [master, replica].map((one) => {
      const producer = new TaskPool<string>({ storage: one, clock, concurrency: 0 })
      ends.push(() => producer.close())
      return producer
    }) as [TaskPool<string>, TaskPool<string>]
    ends.push(async () => {
      const closed = pool.close({ timeout: 0 })
      await clock.advanceAsync(15_000)
      await closed
    })
    await pool.start()
    for (const producer of [before, after]) await producer.submit('first', { id: 'first' })
    await before.submit('long, lost', { id: 'lost' })
    await before.submit('long, cancelled', { id: 'cancelled' })
    await clock.advanceAsync(100)
    await before.cancel('cancelled')
    await clock.advanceAsync(1_500)
    expect(begun).toEqual(['first', 'long, lost', 'long, cancelled'])
    expect(aborted).toEqual(['long, cancelled'])

    present = replica
    await after.submit('second', { id: 'second' })
    await clock.advanceAsync(2_500)
    expect(await after.counts()).toMatchObject({ success: 2, pending: 0, running: 0 })
    expect(begun.slice(3)).toEqual(['first', 'second'])
    expect(aborted).toEqual(['long, cancelled', 'long, lost'])
    // And what is taken from it then, it is told.
    await after.submit('long, third', { id: 'third' })
    await clock.advanceAsync(1_500)
    await after.cancel('third')
    await clock.advanceAsync(1_500)
    expect(aborted.slice(2)).toEqual(['long, third'])
  })

  it('gets one report of each attempt when it is there again, with the newest progress and every line', async () => {
    const { clock, storage, poolOf } = world()
    const over = gate()
    let say: ((n: number) => void) | undefined
    const pool = poolOf({
      executor: async (_: number, ctx) => {
        say = (n) => {
          ctx.progress(n)
          ctx.log(`line ${n}`)
        }
        await over.promise
      },
    })
    const id = await pool.submit(1)
    await clock.advanceAsync(10)
    storage.isDown = true
    for (let n = 1; n <= 20; n++) {
      say?.(n)
      await clock.advanceAsync(150)
    }
    const failed = workCalls(storage).at(-1)
    expect(failed?.reports.length).toBe(1)
    storage.isDown = false
    await clock.advanceAsync(2000)
    const task = await pool.getTask(id)
    expect(task?.progress).toBe(20)
    expect(task?.logs).toHaveLength(20)
    over.open()
    await clock.settle()
  })

  it('rejects the checkpoint of an attempt that lost its task', async () => {
    const { clock, storage, memory, poolOf } = world()
    let outcome: unknown
    const pool = poolOf<number, void>({
      concurrency: 1,
      executor: async (_n, ctx) => {
        if (outcome !== undefined) return
        outcome = 'open'
        await half.promise
        outcome = await ctx.checkpoint('half').then(
          () => 'stored',
          (error: unknown) => (error as { code: string }).code,
        )
      },
    })
    const half = gate()
    await pool.submit(1)
    await clock.advanceAsync(100)
    storage.isDown = true
    await clock.advanceAsync(16_000)
    await memory.upkeep.reclaim(100)
    await clock.advanceAsync(5_000)
    half.open()
    await clock.settle()
    expect(outcome).toBe('open')
    await clock.advanceAsync(1_000)
    expect(outcome).toBe('LEASE_LOST')
  })
})

describe('close', () => {
  const stuck = (): Promise<never> => new Promise(() => {})

  it('ends while the storage is away, with every way in which it can be', async () => {
    for (const away of ['refuses', 'is silent'] as const) {
      const { clock, storage, poolOf } = world()
      const pool = poolOf<number, void>({ concurrency: 2, executor: stuck })
      await pool.submitBatch([1, 2, 3, 4].map((data) => ({ data })))
      await clock.advanceAsync(100)
      if (away === 'refuses') storage.isDown = true
      else for (const call of ['session.work', 'session.end'] as const) storage.intercept(call, stuck)
      const closed = pool.close({ timeout: '1s' })
      await clock.advanceAsync(25_000)
      expect(await closed).toMatchObject({ finished: 0, returned: 4 })
      // The last call that was never answered ends with its deadline.
      await clock.advanceAsync(10_000)
      expect(clock.holding).toBe(0)
    }
  })

  it('lets an end through that came while it waited, and gives back what was not started', async () => {
    const { clock, poolOf, producer } = world()
    const slow = gate()
    const pool = poolOf<number, Promise<void>>({ concurrency: 1, executor: () => slow.promise })
    await pool.submitBatch([1, 2, 3].map((data) => ({ data })))
    await clock.advanceAsync(10)
    const [first, second] = [pool.close(), pool.close()]
    await clock.advanceAsync(1000)
    slow.open()
    await clock.advanceAsync(100)
    expect(await first).toEqual({ finished: 1, returned: 2, discarded: 0 })
    expect(await second).toEqual(await first)
    expect(await producer.counts()).toMatchObject({ success: 1, pending: 2, running: 0 })
    expect(await producer.getNodes()).toEqual([])
  })

  it('leaves no session behind that was being opened', async () => {
    const { clock, storage, memory, poolOf, producer } = world()
    const pool = poolOf<number, void>({ executor: () => {} })
    await pool.start()
    await clock.advanceAsync(100)
    storage.isDown = true
    await clock.advanceAsync(16_000)
    await memory.upkeep.reclaim(100)
    await clock.advanceAsync(11_000)
    await memory.upkeep.reclaim(100)
    const [answer, opening] = [gate(), gate()]
    storage.intercept('session.open', async (forward) => {
      await opening.promise
      await forward()
    })
    storage.intercept('session.work', async (forward) => {
      await answer.promise
      return await forward()
    })
    storage.isDown = false
    await clock.advanceAsync(1500)
    const closed = pool.close()
    await clock.advanceAsync(6000)
    answer.open()
    await clock.advanceAsync(4500)
    await closed
    opening.open()
    await clock.settle()
    expect(await producer.getNodes()).toEqual([])
  })
})

describe('a subscription that fails', () => {
  it('keeps nothing from running, and is tried again', async () => {
    const { clock, storage, poolOf, producer } = world()
    const refusal = storage.intercept('notices.subscribe', () => Promise.reject(new Error('no')))
    const pool = poolOf({ executor: () => 1 })
    await pool.start()
    const first = await producer.submit(1)
    await clock.advanceAsync(1000)
    expect(await producer.getStatus(first)).toBe('success')
    refusal.end()
    await clock.advanceAsync(1000)
    const second = await producer.submit(2)
    await clock.settle()
    expect(await producer.getStatus(second)).toBe('success')
  })
})

describe('a task that is handed over by a message', () => {
  /** A node that waits, on a storage that can hand tasks to it; and a handler that tells what it got. */
  async function waiting() {
    const { clock, storage, memory, poolOf, producer } = world()
    const messages = new Map<string, Handed>()
    storage.notices.handedIn = (message) => messages.get(message)
    // It goes on listening to what it has listened to once.
    storage.intercept('notices.subscribe', async (forward) => {
      await forward()
      return () => Promise.resolve()
    })
    const ran: unknown[] = []
    const pool = poolOf({ executor: (data: unknown) => void ran.push(data) })
    await pool.start()
    await clock.advanceAsync(100)
    const [{ session, ack }] = workCalls(storage).slice(-1) as [WorkRequest]
    /** Claims it for the node, as the storage would have. */
    const hand = async (
      data: unknown,
      after: number,
    ): Promise<[handed: Handed, say: () => Promise<void>]> => {
      storage.isDeaf = true
      await producer.submit(data)
      storage.isDeaf = false
      const request = { session, ack: after, ackTaken: 0, marks: [], reports: [], settlements: [] }
      const { token, claimed } = await memory.session.work({ ...request, renew: false, want: 1 })
      expect(claimed).toHaveLength(1)
      const handed = { after, token, claimed }
      messages.set(`handed ${token}`, handed)
      return [handed, () => memory.notices.publish(wakeChannel(session), `handed ${token}`)]
    }
    return { clock, storage, memory, session, ran, ack, hand }
  }

  it('starts without a call, and its end is accepted', async () => {
    const { clock, storage, ran, ack, hand } = await waiting()
    const [handed, say] = await hand('a', ack)
    const claims = workCalls(storage).length
    await say()
    await clock.settle()
    expect(ran).toEqual(['a'])
    const calls = workCalls(storage).slice(claims)
    expect(calls).toMatchObject([{ want: 0, free: 10, settlements: [{ token: handed.token }] }])
    await clock.advanceAsync(5000)
    expect(ran).toEqual(['a'])
  })

  it('starts once, with the next look, when the message is lost', async () => {
    const { clock, ran, ack, hand } = await waiting()
    await hand('a', ack)
    await clock.advanceAsync(1250)
    expect(ran).toEqual(['a'])
    await clock.advanceAsync(5000)
    expect(ran).toEqual(['a'])
  })

  it('starts once when the message comes twice, or after the reply of a claim that told of it', async () => {
    const { clock, ran, ack, hand } = await waiting()
    const [, say] = await hand('a', ack)
    await say()
    await say()
    await clock.settle()
    await clock.advanceAsync(1250)
    await say()
    await clock.settle()
    expect(ran).toEqual(['a'])
  })

  it('is asked for when the message before it was lost', async () => {
    const { clock, ran, ack, hand } = await waiting()
    const [first] = await hand('a', ack)
    const [, say] = await hand('b', first.token)
    await say()
    await clock.settle()
    expect(ran).toEqual(['a', 'b'])
    await clock.advanceAsync(5000)
    expect(ran).toEqual(['a', 'b'])
  })

  it('waits for the reply of the call that is out', async () => {
    const { clock, storage, ran, ack, hand } = await waiting()
    const answer = gate()
    const keeping = storage.intercept('session.work', async (forward) => {
      const reply = await forward()
      await answer.promise
      return reply
    })
    await clock.advanceAsync(1250)
    keeping.end()
    const [, say] = await hand('a', ack)
    await say()
    await clock.settle()
    expect(ran).toEqual([])
    answer.open()
    await clock.settle()
    expect(ran).toEqual(['a'])
  })

  it('does not start when it was handed to a session that is over', async () => {
    const { clock, storage, memory, session, ran, ack, hand } = await waiting()
    const [, say] = await hand('a', ack)
    await memory.session.end(session, 10)
    await claimElsewhere(memory, 1, false)
    await clock.advanceAsync(1250)
    expect(workCalls(storage).at(-1)).not.toMatchObject({ session })
    await say()
    await clock.settle()
    expect(ran).toEqual([])
  })

  it('does not start on a node that cannot prove that it holds it', async () => {
    const { clock, storage, ran, ack, hand } = await waiting()
    const [, say] = await hand('a', ack)
    storage.isDown = true
    await clock.advanceAsync(24_000)
    await say()
    await clock.settle()
    expect(ran).toEqual([])
  })
})

describe('a notice', () => {
  it('of a cancel by another pool aborts the attempt', async () => {
    const { clock, poolOf, producer } = world()
    const kinds: string[] = []
    const pool = poolOf<number, void>({
      executor: (_n, ctx) =>
        new Promise(() => {
          ctx.signal.addEventListener('abort', () => kinds.push((ctx.signal.reason as { kind: string }).kind))
        }),
    })
    const id = await pool.submit(1)
    await clock.advanceAsync(10)
    await producer.cancel(id)
    await clock.settle()
    expect(kinds).toEqual(['cancelled'])
    expect((await pool.health()).running).toBe(0)
  })

  it('drops a task that is only claimed ahead', async () => {
    const { clock, poolOf, producer } = world()
    const ran: number[] = []
    const slow = gate()
    const pool = poolOf({
      concurrency: 1,
      executor: (n: number) => (ran.push(n), n === 0 ? slow.promise : undefined),
    })
    await pool.start()
    await pool.submit(0)
    const id = await pool.submit(1)
    await pool.submit(2)
    await clock.advanceAsync(10)
    expect((await pool.health()).prefetched).toBe(2)
    await producer.cancel(id)
    await clock.settle()
    slow.open()
    await clock.advanceAsync(10)
    expect(ran).toEqual([0, 2])
  })
})

describe('tasks of a node that died', () => {
  it('are found by one that reports all the time and has slots free', async () => {
    const { clock, storage, memory, poolOf, producer } = world()
    let tell: ((n: number) => void) | undefined
    const ran: string[] = []
    const pool = poolOf({
      executor: async (data: string, ctx) => {
        ran.push(data)
        if (data === 'short') return
        tell = (n) => ctx.progress(n)
        await new Promise(() => {})
      },
    })
    await pool.start()
    await pool.submit('long')
    await clock.advanceAsync(10)
    storage.isDeaf = true
    await producer.submit('short')
    await claimElsewhere(memory, 1, false)
    storage.isDeaf = false
    for (let n = 0; n < 50; n++) {
      tell?.(n)
      await clock.advanceAsync(100)
    }
    expect(ran).toEqual(['long', 'short'])
  })

  it('start only when their mark is written, at once, if they had not started there', async () => {
    const { clock, storage, memory, poolOf, producer } = world()
    const marksBefore: boolean[] = []
    const id = await producer.submit(1)
    await claimElsewhere(storage, 1, false)
    await clock.advanceAsync(700)
    await memory.upkeep.reclaim(10)
    await clock.advanceAsync(500)
    await memory.upkeep.reclaim(10)
    const pool = poolOf({
      executor: () =>
        void marksBefore.push(workCalls(storage).some(({ marks }) => marks.some((mark) => mark.id === id))),
    })
    await pool.start()
    await clock.settle()
    await clock.settle()
    expect(marksBefore).toEqual([true])
    expect(await producer.getStatus(id)).toBe('success')
  })

  it('run one at a time if they had', async () => {
    const { clock, storage, memory, poolOf, producer } = world()
    for (let n = 0; n < 4; n++) await producer.submit(n)
    await claimElsewhere(storage, 3, true)
    await clock.advanceAsync(700)
    await memory.upkeep.reclaim(10)
    await clock.advanceAsync(500)
    await memory.upkeep.reclaim(10)
    const running = new Map<number, Gate>()
    const pool = poolOf({
      executor: async (n: number) => {
        const until = gate()
        running.set(n, until)
        await until.promise
        running.delete(n)
      },
    })
    await pool.start()
    await clock.advanceAsync(20)
    expect([...running.keys()].sort()).toEqual([0, 3])
    for (const n of [0, 1, 2]) {
      running.get(n)?.open()
      await clock.advanceAsync(20)
    }
    running.get(3)?.open()
    await clock.advanceAsync(20)
    expect(await producer.counts()).toMatchObject({ success: 4, running: 0 })
  })
})

describe('what is claimed ahead', () => {
  it('makes room for something more urgent', async () => {
    const { clock, poolOf, producer } = world()
    const order: string[] = []
    const slow = gate()
    const pool = poolOf({
      concurrency: 1,
      prefetch: 4,
      executor: (name: string) => (order.push(name), name === 'first' ? slow.promise : undefined),
    })
    await pool.start()
    await producer.submitBatch(['first', 'a', 'b', 'c', 'd', 'e'].map((data) => ({ data })))
    await clock.advanceAsync(10)
    expect((await pool.health()).prefetched).toBe(4)
    await producer.submit('urgent', { priority: 0 })
    await clock.advanceAsync(5)
    expect((await pool.health()).prefetched).toBe(4)
    slow.open()
    await clock.advanceAsync(50)
    expect(order).toEqual(['first', 'urgent', 'a', 'b', 'c', 'd', 'e'])
  })

  it('makes room although the message overtook the reply of a call that was out', async () => {
    const { clock, storage, poolOf, producer } = world()
    const order: string[] = []
    const slow = gate()
    const pool = poolOf({
      concurrency: 1,
      prefetch: 4,
      executor: (name: string) => (order.push(name), name === 'first' ? slow.promise : undefined),
    })
    await pool.start()
    await producer.submitBatch(['first', 'a', 'b', 'c', 'd'].map((data) => ({ data })))
    await clock.advanceAsync(10)
    // The next call is carried out before the urgent task is there, and answered after the message.
    const answer = gate()
    const keeping = storage.intercept('session.work', async (forward) => {
      const reply = await forward()
      await answer.promise
      return reply
    })
    await clock.advanceAsync(1000)
    keeping.end()
    await producer.submit('urgent', { priority: 0 })
    await clock.settle()
    answer.open()
    await clock.settle()
    slow.open()
    await clock.settle()
    expect(order[1]).toBe('urgent')
  })

  it('goes back when no slot turns over', async () => {
    const { clock, poolOf, producer } = world()
    const slow = gate()
    const pool = poolOf({ concurrency: 1, executor: () => slow.promise })
    await pool.start()
    for (let n = 0; n < 5; n++) await producer.submit(n)
    await clock.advanceAsync(10)
    expect((await pool.health()).prefetched).toBe(4)
    await clock.advanceAsync(2100)
    expect(await producer.counts()).toMatchObject({ running: 1, pending: 4 })
    slow.open()
    await clock.advanceAsync(50)
    expect(await producer.counts()).toMatchObject({ success: 5 })
  })

  it('does not start after the machine slept, until the storage says that it is still held', async () => {
    const { clock, storage, poolOf, producer } = world()
    const started: number[] = []
    const slow = gate()
    const executor = (n: number): Promise<void> | undefined => (
      started.push(n),
      n === 0 ? slow.promise : undefined
    )
    const pool = poolOf({ concurrency: 1, executor })
    await pool.start()
    for (let n = 0; n < 3; n++) await producer.submit(n)
    await clock.advanceAsync(10)
    expect((await pool.health()).prefetched).toBe(2)
    // Timers and the monotonic clock stood still with the machine.
    storage.isDown = true
    clock.step(60_000)
    slow.open()
    await clock.settle()
    expect(started).toEqual([0])
    storage.isDown = false
    await clock.advanceAsync(1500)
    expect(started).toEqual([0, 1, 2])
    expect(answered(storage, 'session.resume')).toBe(1)
  })

  it('goes back on a pause, and runs in its old order after it', async () => {
    const { clock, poolOf, producer } = world()
    const order: number[] = []
    const slow = gate()
    const pool = poolOf({
      concurrency: 1,
      executor: (n: number) => (order.push(n), n === 0 ? slow.promise : undefined),
    })
    await pool.start()
    for (let n = 0; n < 4; n++) await producer.submit(n)
    await clock.advanceAsync(10)
    await producer.pause()
    await clock.advanceAsync(1100)
    expect(await producer.counts()).toMatchObject({ running: 1, pending: 3 })
    slow.open()
    await clock.advanceAsync(1100)
    expect(order).toEqual([0])
    await producer.resume()
    await clock.advanceAsync(1100)
    expect(order).toEqual([0, 1, 2, 3])
  })
})
