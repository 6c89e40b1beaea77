/** That each fault does to a call what it promises, and that a pool behind it loses nothing. */
import { describe, expect, it } from 'vitest'
import type { NeoTaskError } from '../errors.js'
import { memoryStorage } from '../memory-storage.js'
import type { NewTask, Settlement, Storage, WorkRequest } from '../storage.js'
import { TaskPool } from '../task-pool.js'
import { FAULT_KINDS, FlakyStorage, type FlakyStorageOptions } from './flaky-storage.js'
import { ManualClock } from './manual-clock.js'

const REF = { tenant: 'default', queue: 'default' }
const RULE = { age: 1e9, count: 1000 }

const task = (id: string, more: Partial<NewTask> = {}): NewTask => ({
  id,
  kind: '',
  payload: '{}',
  codec: 'json',
  priority: 2,
  ...more,
})

const request = (more: Partial<WorkRequest> = {}): WorkRequest => ({
  session: 's',
  ack: 0,
  ackTaken: 0,
  marks: [],
  reports: [],
  settlements: [],
  renew: false,
  want: 0,
  ...more,
})

const success = (id: string, token: number): Settlement => ({
  id,
  token,
  outcome: 'success',
  result: '1',
  codec: 'json',
})

interface World {
  readonly clock: ManualClock
  readonly inner: Storage
  readonly flaky: FlakyStorage
  counts(): ReturnType<Storage['queue']['counts']>
}

async function world(options: FlakyStorageOptions = {}): Promise<World> {
  const clock = new ManualClock()
  const inner = memoryStorage({ clock })
  await inner.session.open('s', {
    ttl: 25_000,
    node: { id: 'node', host: 'host', pid: 1, concurrency: 1, queue: 'default', kinds: [''] },
    serves: { ...REF, kinds: [''] },
    retention: { success: RULE, failed: RULE },
    maxReclaims: 3,
  })
  const flaky = new FlakyStorage(inner, { clock, ...options })
  return { clock, inner, flaky, counts: () => inner.queue.counts(REF) }
}

const failure = (call: Promise<unknown>): Promise<unknown> =>
  call.then(
    () => undefined,
    (error: unknown) => {
      const { code, retryable, uncertain } = error as NeoTaskError
      return { code, retryable, uncertain }
    },
  )

describe('a call', () => {
  it('that meets no fault goes through, as do all the others', async () => {
    const { flaky, clock } = await world()
    expect(flaky.name).toBe('memory')
    expect(flaky.limits).toEqual({ enqueue: 500, work: 500 })
    expect((await flaky.open()).format).toBe(1)
    expect(await flaky.queue.enqueue(REF, [task('a')])).toEqual(['accepted'])
    expect((await flaky.session.work(request({ want: 1 }))).claimed.map(({ id }) => id)).toEqual(['a'])
    expect(await flaky.records.put('t', 'key', 'value')).toBe(clock.now() * 1000)
    expect(await flaky.locks.acquire('t', 'key', 'me', 5)).toEqual({ fence: clock.now() * 1000 })
    expect(await flaky.upkeep.drain(REF, 5)).toBe('done')
    expect(flaky.calls.map(({ call, fault }) => [call, fault])).toEqual([
      ['queue.enqueue', undefined],
      ['session.work', undefined],
      ['records.put', undefined],
      ['locks.acquire', undefined],
      ['upkeep.drain', undefined],
    ])
    expect(flaky.callsOf('records.put')[0]?.args).toEqual(['t', 'key', 'value'])
    await flaky.close()
  })

  it('before which it fails is not carried out, and certainly so', async () => {
    const { flaky, counts } = await world()
    flaky.fail('queue.enqueue', { kind: 'before' })
    expect(await failure(flaky.queue.enqueue(REF, [task('a')]))).toEqual({
      code: 'STORAGE_UNAVAILABLE',
      retryable: true,
      uncertain: false,
    })
    expect((await counts()).pending).toBe(0)
  })

  it('whose reply is lost is carried out, and its caller cannot know', async () => {
    const { flaky, counts } = await world()
    flaky.fail('queue.enqueue', { kind: 'after' })
    expect(await failure(flaky.queue.enqueue(REF, [task('a')]))).toMatchObject({ uncertain: true })
    expect((await counts()).pending).toBe(1)
  })

  it('that is silent is carried out, and never answers', async () => {
    const { flaky, clock, counts } = await world()
    flaky.fail('queue.enqueue', { kind: 'silent' })
    let answer = false
    void flaky.queue.enqueue(REF, [task('a')]).finally(() => (answer = true))
    await clock.advanceAsync(1e6)
    expect([answer, (await counts()).pending]).toEqual([false, 1])
  })

  it('that is late is carried out when its time has passed', async () => {
    const { flaky, clock, counts } = await world()
    flaky.fail('queue.enqueue', { kind: 'late', ms: 50 })
    const outcome = flaky.queue.enqueue(REF, [task('a')])
    await clock.advanceAsync(49)
    expect((await counts()).pending).toBe(0)
    await clock.advanceAsync(1)
    expect((await counts()).pending).toBe(1)
    expect(await outcome).toEqual(['accepted'])
  })

  it('that is slow is carried out at once, and answers when its time has passed', async () => {
    const { flaky, clock, counts } = await world()
    flaky.fail('queue.enqueue', { kind: 'slow', ms: 50 })
    let answer: unknown
    void flaky.queue.enqueue(REF, [task('a')]).then((outcome) => (answer = outcome))
    await clock.advanceAsync(49)
    expect([answer, (await counts()).pending]).toEqual([undefined, 1])
    await clock.advanceAsync(1)
    expect(answer).toEqual(['accepted'])
  })

  it('that is repeated at once comes twice before it answers, and answers for the first time', async () => {
    const { flaky, inner } = await world()
    flaky.fail('records.put', { kind: 'repeat' })
    const version = (await flaky.records.put('t', 'key', 'value')) as number
    expect((await inner.records.get('t', 'key'))?.version).toBe(version + 1)
  })

  it('that is repeated later meets what has happened meanwhile, and nobody hears its reply', async () => {
    const { flaky, inner, clock } = await world()
    await inner.queue.enqueue(REF, [task('a')])
    const first = await inner.session.work(request({ want: 1 }))
    flaky.fail('session.work', { kind: 'repeat', ms: 100, times: 1 })
    const released: Settlement = { id: 'a', token: first.token, outcome: 'released' }
    await flaky.session.work(request({ ack: first.token, settlements: [released] }))
    const second = await flaky.session.work(request({ ack: first.token, want: 1 }))
    await clock.advanceAsync(100)
    const { held } = await flaky.session.work(request({ ack: second.token }))
    expect([second.claimed.length, held]).toEqual([1, 1])
  })

  it('whose repeat is refused rejects nothing', async () => {
    const { flaky, inner } = await world()
    flaky.fail('locks.acquire', { kind: 'repeat' })
    inner.locks.acquire = ((acquire) => {
      let calls = 0
      return (...args) => (calls++ === 0 ? acquire(...args) : Promise.reject(new Error('no')))
    })(inner.locks.acquire.bind(inner.locks))
    expect(await flaky.locks.acquire('t', 'key', 'me', 5)).toBeDefined()
  })
})

describe('a call that is cut in the middle', () => {
  it('of enqueue stores the first half of the units', async () => {
    const { flaky, inner } = await world()
    flaky.fail('queue.enqueue', { kind: 'middle' })
    const units = [task('a'), [task('b'), task('c')], task('d')]
    expect(await failure(flaky.queue.enqueue(REF, units))).toMatchObject({ uncertain: true })
    const records = await inner.queue.get(REF, ['a', 'b', 'c', 'd'])
    expect(records.map((record) => record?.state)).toEqual(['pending', 'pending', 'pending', undefined])
  })

  it('of work settles the first half, and claims nothing', async () => {
    const { flaky, inner, counts } = await world()
    await inner.queue.enqueue(
      REF,
      ['a', 'b', 'c', 'd', 'e', 'f'].map((id) => task(id)),
    )
    const { token } = await inner.session.work(request({ want: 4 }))
    flaky.fail('session.work', { kind: 'middle' })
    const settlements = ['a', 'b', 'c', 'd'].map((id) => success(id, token))
    await failure(flaky.session.work(request({ ack: token, settlements, want: 5 })))
    expect(await counts()).toMatchObject({ success: 2, running: 2, pending: 2 })
  })

  it('of an operation reaches the first half of the ids, and of upkeep half the limit', async () => {
    const { flaky, inner, clock, counts } = await world()
    await inner.queue.enqueue(
      REF,
      ['a', 'b', 'c', 'd'].map((id) => task(id, { delay: 1000 })),
    )
    flaky.fail('queue.cancel', { kind: 'middle' })
    await failure(flaky.queue.cancel(REF, ['a', 'b']))
    expect((await counts()).cancelled).toBe(1)
    flaky.fail('upkeep.drain', { kind: 'middle' })
    await clock.advanceAsync(1000)
    await failure(flaky.upkeep.drain(REF, 4))
    expect((await counts()).pending).toBe(2)
  })

  it('and has no middle is carried out', async () => {
    const { flaky, inner } = await world()
    flaky.fail('queue.pause', { kind: 'middle' })
    await failure(flaky.queue.pause(REF, true))
    expect((await inner.queue.counts(REF)).paused).toBe(true)
  })
})

describe('rules', () => {
  it('meet the calls for which they are made, as often as they say, until they end', async () => {
    const { flaky } = await world()
    const some = flaky.fail('records.get', { kind: 'before', when: (_tenant, key) => key === 'a', times: 2 })
    const results: boolean[] = []
    for (const key of ['a', 'b', 'a', 'a'])
      results.push((await failure(flaky.records.get('t', key))) !== undefined)
    expect([results, some.hits]).toEqual([[true, false, true, false], 2])
    const all = flaky.fail('records.get', { kind: 'after' })
    expect(await failure(flaky.records.get('t', 'a'))).toMatchObject({ uncertain: true })
    all.end()
    expect(await failure(flaky.records.get('t', 'a'))).toBeUndefined()
  })

  it('have their way in the order of their making, and an intercept before all of them', async () => {
    const { flaky } = await world()
    flaky.fail('records.get', { kind: 'before', times: 1 })
    flaky.fail('records.get', { kind: 'after', times: 1 })
    const own = flaky.intercept('records.get', async (forward, _tenant, key) =>
      key === 'mine' ? { key, value: 'made up', version: 1, labels: [] } : await forward(),
    )
    expect((await flaky.records.get('t', 'mine'))?.value).toBe('made up')
    expect(await flaky.records.get('t', 'other')).toBeUndefined()
    expect(own.hits).toBe(2)
    own.end()
    expect(await failure(flaky.records.get('t', 'a'))).toMatchObject({ uncertain: false })
    expect(await failure(flaky.records.get('t', 'a'))).toMatchObject({ uncertain: true })
    expect(await failure(flaky.records.get('t', 'a'))).toBeUndefined()
  })

  it('mean nothing while the storage is down', async () => {
    const { flaky, counts } = await world()
    const rule = flaky.fail('queue.enqueue', { kind: 'after' })
    flaky.isDown = true
    expect(await failure(flaky.queue.enqueue(REF, [task('a')]))).toMatchObject({ uncertain: false })
    expect([rule.hits, flaky.calls[0]?.fault, (await counts()).pending]).toEqual([0, 'down', 0])
    flaky.isDown = false
    await failure(flaky.queue.enqueue(REF, [task('a')]))
    expect((await counts()).pending).toBe(1)
  })
})

describe('a message', () => {
  it('reaches nobody while the storage is deaf', async () => {
    const { flaky, inner } = await world()
    const heard: string[] = []
    await flaky.notices.subscribe('channel', (message) => heard.push(message))
    for (const isDeaf of [false, true, false]) {
      flaky.isDeaf = isDeaf
      await inner.notices.publish('channel', String(isDeaf))
    }
    expect(heard).toEqual(['false', 'false'])
  })

  it('gets lost as often as the plan says', async () => {
    const { flaky, inner } = await world({ lostMessages: 0.5 })
    let heard = 0
    await flaky.notices.subscribe('channel', () => heard++)
    for (let i = 0; i < 1000; i++) await inner.notices.publish('channel', '')
    expect(heard).toBeGreaterThan(400)
    expect(heard).toBeLessThan(600)
  })
})

describe('the plan', () => {
  const RATES = { before: 0.1, middle: 0.1, after: 0.1, late: 0.1, slow: 0.1, repeat: 0.1 }

  async function faultsOf(options: FlakyStorageOptions): Promise<(string | undefined)[]> {
    const { flaky, clock } = await world({ rates: RATES, ...options })
    for (let n = 0; n < 100; n++) {
      void failure(flaky.queue.enqueue(REF, [task(`t${n}`)]))
      void failure(flaky.records.get('t', 'key'))
    }
    await clock.advanceAsync(2000)
    return flaky.calls.map(({ fault }) => fault)
  }

  it('is the same for the calls, however many messages come between', async () => {
    const faults = await faultsOf({ seed: 5, lostMessages: 0.5 })
    const { flaky, inner, clock } = await world({ rates: RATES, seed: 5, lostMessages: 0.5 })
    let heard = 0
    await flaky.notices.subscribe('channel', () => heard++)
    for (let n = 0; n < 100; n++) {
      void failure(flaky.queue.enqueue(REF, [task(`t${n}`)]))
      await inner.notices.publish('channel', '')
      void failure(flaky.records.get('t', 'key'))
    }
    await clock.advanceAsync(2000)
    expect(flaky.calls.slice(1).map(({ fault }) => fault)).toEqual(faults)
    expect(heard).toBeGreaterThan(20)
    expect(heard).toBeLessThan(80)
  })

  it('is the same for the same seed and calls, and another for another seed', async () => {
    const faults = await faultsOf({ seed: 5 })
    expect(await faultsOf({ seed: 5 })).toEqual(faults)
    expect(await faultsOf({ seed: 6 })).not.toEqual(faults)
    expect(new Set(faults)).toEqual(new Set([undefined, ...Object.keys(RATES)]))
  })

  it('meets the calls that it is meant for only', async () => {
    const { flaky } = await world({ rates: { before: 1 }, only: ['queue.enqueue'] })
    expect(await failure(flaky.queue.enqueue(REF, [task('a')]))).toBeDefined()
    expect(await failure(flaky.queue.get(REF, ['a']))).toBeUndefined()
  })

  it('refuses options that it cannot mean', async () => {
    const inner = memoryStorage()
    for (const [options, name] of [
      [{ seed: 0.5 }, 'seed'],
      [{ rates: { before: 2 } }, 'rates.before'],
      [{ rates: { before: 0.7, after: 0.7 } }, 'rates'],
      [{ rates: { during: 0.1 } }, 'rates'],
      [{ lostMessages: -1 }, 'lostMessages'],
      [{ longest: 0 }, 'longest'],
    ] as const) {
      expect(() => new FlakyStorage(inner, options as FlakyStorageOptions)).toThrow(`${name}: expected`)
    }
    const flaky = new FlakyStorage(inner)
    expect(() => flaky.fail('records.get', { kind: 'never' as never })).toThrow(
      'kind: expected one of before',
    )
  })
})

describe('enqueueSync', () => {
  it('is there where the inner storage has it, and goes through', async () => {
    const { inner, flaky } = await world()
    expect('enqueueSync' in flaky.queue).toBe(false)
    inner.queue.enqueueSync = () => ['accepted']
    expect(new FlakyStorage(inner).queue.enqueueSync?.(REF, [])).toEqual(['accepted'])
  })
})

describe('pools behind bad connections', () => {
  const TASKS = 60
  const rates = Object.fromEntries(FAULT_KINDS.map((kind) => [kind, kind === 'silent' ? 0.01 : 0.04]))

  it.each(Array.from({ length: 12 }, (_, seed) => seed + 1))(
    'bring every task to one end (seed %i)',
    async (seed) => {
      const clock = new ManualClock()
      const memory = memoryStorage({ clock })
      const connections = [1, 2].map(
        (n) => new FlakyStorage(memory, { clock, seed: seed * 10 + n, rates, lostMessages: 0.2 }),
      )
      const pools = connections.map(
        (storage) => new TaskPool({ storage, clock, callTimeout: '2s', executor: (n: number) => n * 2 }),
      )
      const ids = Array.from({ length: TASKS }, (_, n) => `task-${n}`)
      let left = ids.length
      const submit = async (id: string, n: number): Promise<void> => {
        const pool = pools[n % pools.length] as TaskPool<number>
        // What a caller does who is told that his task may not be stored: the same again, with the same id.
        while (!(await pool.submit(n, { id }).catch(() => undefined))) await clock.settle()
        left--
      }
      for (const [n, id] of ids.entries()) {
        void submit(id, n)
        await clock.advanceAsync(200)
      }
      for (let seconds = 0; seconds < 300 && left > 0; seconds++) await clock.advanceAsync(1000)
      expect(left).toBe(0)
      for (let seconds = 0; seconds < 300; seconds++) {
        if ((await memory.queue.counts(REF)).success === TASKS) break
        await clock.advanceAsync(1000)
      }
      expect(await memory.queue.counts(REF)).toMatchObject({ success: TASKS, pending: 0, running: 0 })
      const records = await memory.queue.get(REF, ids)
      expect(records.map((record) => record?.result)).toEqual(ids.map((_, n) => String(n * 2)))
      expect(records.every((record) => record?.attempts === 1)).toBe(true)
      expect(connections.every(({ calls }) => calls.some(({ fault }) => fault !== undefined))).toBe(true)
      const closed = Promise.all(pools.map((pool) => pool.close({ timeout: 0 })))
      await clock.advanceAsync(30_000)
      await closed
    },
  )
})
