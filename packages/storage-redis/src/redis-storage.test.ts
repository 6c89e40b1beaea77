/** What the driver promises beyond the contract: options, checks at start, and a server that is full or forgetful. */
import {
  finalChannel,
  idsIn,
  openStorage,
  systemClock,
  type Settlement,
  type Storage,
  type WorkReply,
} from '@neotask/core'
import { ManualClock } from '@neotask/core/testing'
import { Redis } from 'ioredis'
import { randomBytes } from 'node:crypto'
import { afterEach, beforeEach, describe, expect, test, vi } from 'vitest'
import { redisStorage } from './index.js'
import { freePorts, startServer, type TestServer } from './redis-server.test-helper.js'
import { call, OPTIONS, REF, success, task } from './requests.test-helper.js'

let server: TestServer
let control: Redis
const opened: Storage[] = []

beforeEach(async () => {
  // Its own, since the tests change what it is set to.
  server = await startServer(['--maxmemory', '0'])
  control = new Redis(server.url)
})

afterEach(async () => {
  for (const storage of opened.splice(0)) await storage.close()
  control.disconnect()
  await server.stop()
})

async function open(details: Partial<Parameters<typeof redisStorage>[0] & object> = {}): Promise<Storage> {
  const namespace = `test-${randomBytes(4).toString('hex')}`
  const storage = redisStorage({ url: server.url, namespace, ...details })
  await storage.open()
  opened.push(storage)
  return storage
}

describe('options', () => {
  test.each([
    [undefined, 'url: expected the URL of a Redis server, or options, got undefined'],
    ['', 'url: expected the URL of a Redis server, got ""'],
    [{}, 'url: expected the URL of a Redis server, got undefined'],
    [{ url: 'redis://here', client: {} }, 'url: expected nothing when a client is given'],
    [{ client: {} }, 'client: expected a client of ioredis, got an object'],
    [{ options: 1 }, 'options: expected options of ioredis, got 1'],
    [{ options: {}, client: {} }, 'options: expected nothing when a client is given'],
    [{ options: { keyPrefix: 'mine:' } }, 'options.keyPrefix: expected nothing, since namespace does that'],
    [{ url: 'redis://here', namespace: 'a b' }, 'namespace: expected 1 to 64 characters'],
    [{ url: 'redis://here', allowEviction: 1 }, 'allowEviction: expected true or false, got 1'],
  ])('%j is refused', (options, message) => {
    expect(() => redisStorage(options as never)).toThrow(message)
  })

  test('a client with a prefix for keys is refused, one without is used and left open', async () => {
    const prefixed = new Redis(server.url, { keyPrefix: 'mine:', lazyConnect: true })
    expect(() => redisStorage({ client: prefixed })).toThrow('client.options.keyPrefix: expected nothing')
    const client = new Redis(server.url)
    const storage = await open({ url: undefined, client })
    await storage.queue.enqueue(REF, [task('a')])
    await storage.close()
    expect(await client.ping()).toBe('PONG')
    client.disconnect()
  })
})

describe('at start', () => {
  test('a server that throws keys away is refused, unless that is wanted', async () => {
    await control.config('SET', 'maxmemory-policy', 'allkeys-lru')
    await expect(open()).rejects.toThrow('maxmemory-policy is allkeys-lru')
    const storage = await open({ allowEviction: true })
    expect(await storage.queue.enqueue(REF, [task('a')])).toEqual(['accepted'])
  })

  test('a format that this version does not know is refused, and left as it is', async () => {
    const key = '{strange.0}:meta'
    await control.hset(key, { format: 99, shards: 1, runId: 'x' })
    await expect(open({ namespace: 'strange' })).rejects.toMatchObject({ code: 'STORAGE_FORMAT' })
    expect(await control.hgetall(key)).toEqual({ format: '99', shards: '1', runId: 'x' })
  })

  test('two storages of one namespace have one run id and numbers of their own, after a loss of memory too', async () => {
    const first = await (await open({ namespace: 'one' })).open()
    const second = await (await open({ namespace: 'one' })).open()
    expect(second.runId).toBe(first.runId)
    expect(second.generator).toBe(first.generator + 1)
    await vi.waitFor(
      async () => expect(Number((await control.time())[0])).toBeGreaterThan(second.generator),
      5000,
    )
    await control.flushall()
    const third = await (await open({ namespace: 'one' })).open()
    expect(third.runId).not.toBe(first.runId)
    expect(third.generator).toBeGreaterThan(second.generator)
  })

  test('a server that is not there is said to be unavailable', async () => {
    await expect(open({ url: '/nowhere/redis.sock' })).rejects.toMatchObject({
      code: 'STORAGE_UNAVAILABLE',
      retryable: true,
    })
  })

  test('a call before open says what to do', async () => {
    const storage = redisStorage(server.url)
    await expect(storage.queue.counts(REF)).rejects.toThrow('call open() first')
  })
})

test('a URL opens the storage', async () => {
  const [port] = await freePorts(1)
  const listening = await startServer(['--port', String(port)])
  const storage = await openStorage(`redis://127.0.0.1:${port}`)
  expect(await storage.queue.enqueue(REF, [task('a')])).toEqual(['accepted'])
  await storage.close()
  await listening.stop()
})

test('namespaces on one server know nothing of each other', async () => {
  const [one, two] = [await open(), await open()]
  await one.queue.enqueue(REF, [task('a')])
  expect(await two.queue.get(REF, ['a'])).toEqual([undefined])
})

test('a server that has forgotten every script is told them again', async () => {
  const storage = await open()
  await storage.session.open('session', OPTIONS)
  await storage.queue.enqueue(REF, [task('a')])
  await control.script('FLUSH')
  const { claimed } = await storage.session.work({ ...call, want: 1 })
  await control.script('FLUSH')
  const { token } = await storage.session.work({ ...call, ack: 1, settlements: claimed.map(success) })
  await control.script('FLUSH')
  expect(token).toBe(1)
  expect(await storage.queue.counts(REF)).toMatchObject({ success: 1, running: 0 })
})

test('without a clock of a test the server says what time it is', async () => {
  const storage = await open()
  await storage.session.open('session', OPTIONS)
  const [seconds] = await control.time()
  await storage.queue.enqueue(REF, [task('now'), task('soon', { delay: 30 }), task('late', { delay: 1e6 })])
  const [record] = await storage.queue.get(REF, ['now'])
  expect(Math.abs((record?.createdAt ?? 0) - Number(seconds) * 1000)).toBeLessThan(5000)
  const claimed: string[] = []
  let reply: WorkReply | undefined
  while (claimed.length < 2) {
    reply = await storage.session.work({ ...call, ack: reply?.token ?? 0, want: 5 })
    claimed.push(...reply.claimed.map(({ id }) => id))
  }
  expect(claimed).toEqual(['now', 'soon'])
  expect(reply?.nextDueIn).toBeGreaterThan(9e5)
})

test('when memory is full submits are refused, and everything else goes on', async () => {
  const storage = await open()
  await storage.session.open('session', OPTIONS)
  const names = ['a', 'b', 'c', 'd', 'e', 'f', 'g']
  await storage.queue.enqueue(
    REF,
    names.map((id) => task(id)),
  )
  const { claimed, token } = await storage.session.work({ ...call, want: 6 })
  await control.config('SET', 'maxmemory', '1mb')
  await expect(storage.queue.enqueue(REF, [task('more')])).rejects.toMatchObject({
    code: 'STORAGE_UNAVAILABLE',
    retryable: true,
    uncertain: false,
  })
  const fromThen = { ...call, ack: token }
  await storage.session.work({ ...fromThen, marks: claimed.slice(0, 1), renew: true })
  const endings: Settlement[] = [
    success(claimed[0]!),
    { ...success(claimed[1]!), outcome: 'failed', error: 'broken', fingerprint: 'broken' },
    { ...success(claimed[2]!), outcome: 'retry', in: 10, error: 'again' },
    { ...success(claimed[3]!), outcome: 'released' },
  ]
  for (const settlement of endings)
    expect(await storage.session.work({ ...fromThen, settlements: [settlement] })).toMatchObject({
      stale: [],
    })
  expect(await storage.queue.cancel(REF, ['e'])).toEqual(['done'])
  const again = await storage.session.work({ ...fromThen, want: 2 })
  expect(again.claimed.map(({ id }) => id)).toEqual(['d', 'g'])
  expect(await storage.session.end('session', 10)).toBe('done')
  await storage.session.open('another', OPTIONS)
  expect(await storage.locks.acquire('acme', 'lock', 'me', 1000)).toBeDefined()
  await control.config('SET', 'maxmemory', '0')
  const counts = { success: 1, failed: 1, cancelled: 1, running: 0 }
  expect(await storage.queue.counts(REF)).toMatchObject(counts)
  expect(await storage.queue.get(REF, ['more'])).toEqual([undefined])
  expect(await storage.queue.enqueue(REF, [task('more')])).toEqual(['accepted'])
})

test('a clock that is put back makes nobody lost at once', async () => {
  let now = Date.now()
  const clock = { ...systemClock, now: () => now }
  const storage = await open({ clock })
  await storage.session.open('session', OPTIONS)
  await storage.queue.enqueue(REF, [task('a')])
  await storage.session.work({ ...call, want: 1 })
  now -= 3_600_000
  expect(await storage.upkeep.reclaim(10)).toMatchObject({ suspected: ['session'], condemned: [] })
  await storage.session.work({ ...call, ack: 1, renew: true })
  expect(await storage.upkeep.reclaim(10)).toMatchObject({ suspected: [], condemned: [] })
  // A suspect whose suspicion lies ahead is condemned by the new time, not an hour later.
  now += 15_000
  await storage.upkeep.reclaim(10)
  now += 10_000
  expect(await storage.upkeep.reclaim(10)).toMatchObject({ condemned: ['session'] })
})

test('ends alone keep the records of plain tasks within their retention', async () => {
  let now = Date.now()
  const storage = await open({ clock: { ...systemClock, now: () => now } })
  const rule = { age: 1e9, count: 50 }
  await storage.session.open('session', { ...OPTIONS, retention: { success: rule, failed: rule } })
  let ack = 0
  for (let round = 0; round < 20; round++) {
    const names = Array.from({ length: 50 }, (_, index) => `t${round}.${index}`)
    await storage.queue.enqueue(
      REF,
      names.map((id) => task(id)),
    )
    const { claimed, token } = await storage.session.work({ ...call, ack, want: 50 })
    ack = token
    now += 11_000
    await storage.session.work({ ...call, ack, settlements: claimed.map(success) })
  }
  const { success: kept } = await storage.queue.counts(REF)
  expect(kept).toBeGreaterThanOrEqual(50)
  expect(kept).toBeLessThan(250)
})

test('tasks of one call, which share a score, keep their order wherever they are meanwhile', async () => {
  const storage = await open()
  const ids = Array.from({ length: 60 }, (_, n) => `AAAAAAA${String(n).padStart(2, '0')}0001~`)
  const kindOf = (n: number): string => (n % 3 === 0 ? 'rare' : '')
  await storage.queue.enqueue(
    REF,
    ids.map((id, n) => task(id, { kind: kindOf(n) })),
  )
  const [key = ''] = await control.keys('*:ready')
  const scores = await Promise.all(ids.map((id) => control.zscore(key, id)))
  expect(new Set(scores).size).toBe(1)
  expect(scores[0]).not.toBeNull()

  const pages = async (state: 'pending' | 'success'): Promise<string[]> => {
    const found: string[] = []
    let cursor: string | undefined
    do {
      const page = await storage.queue.list(REF, { state, limit: 7, cursor })
      found.push(...page.tasks.map(({ id }) => id))
      cursor = page.cursor
    } while (cursor !== undefined)
    return found
  }
  // It takes what it serves and puts the others aside on its way.
  await storage.session.open('few', OPTIONS)
  const few = (await storage.session.work({ ...call, session: 'few', want: 20 })).claimed.map(({ id }) => id)
  expect(few).toEqual(ids.filter((_, n) => kindOf(n) === '').slice(0, 20))
  const left = ids.filter((id) => !few.includes(id))
  expect(await pages('pending')).toEqual(left)

  const all = { ...OPTIONS, serves: { ...REF, kinds: ['', 'rare'] } }
  await storage.session.open('all', all)
  const claim = { ...call, session: 'all', want: 100 }
  expect((await storage.session.work(claim)).claimed.map(({ id }) => id)).toEqual(left)
  // The reply was lost.
  const again = await storage.session.work(claim)
  expect(again.status).toBe('again')
  expect(again.claimed.map(({ id }) => id)).toEqual(left)
  for (const session of ['all', 'few']) while ((await storage.session.end(session, 100)) === 'more');
  expect(await pages('pending')).toEqual(ids)

  await storage.session.open('last', all)
  const last: string[] = []
  let ack = 0
  let settlements: Settlement[] = []
  // Seven at a time, so that claims end in the middle of what shares a score.
  do {
    const reply = await storage.session.work({ ...call, session: 'last', want: 7, ack, settlements })
    last.push(...reply.claimed.map(({ id }) => id))
    settlements = reply.claimed.map(success)
    ack = reply.token
  } while (settlements.length > 0)
  expect(last).toEqual(ids)
  expect(await pages('success')).toEqual([...ids].reverse())
})

test('the word of an end brings a small plain result along', async () => {
  const storage = await open()
  await storage.session.open('session', OPTIONS)
  const heard: string[] = []
  await storage.notices.subscribe(finalChannel('me'), (message) => heard.push(message))
  await storage.queue.enqueue(REF, [
    task('a', { watcher: 'me' }),
    task('b', { watcher: 'me' }),
    task('c', { watcher: 'me' }),
  ])
  const { claimed } = await storage.session.work({ ...call, want: 3 })
  const [a, b, c] = claimed.map(success) as [Settlement, Settlement, Settlement]
  await storage.session.work({ ...call, ack: 1, settlements: [a, b] })
  await vi.waitFor(() => expect(heard).toHaveLength(1))
  const end = { state: 'success', result: 'done', resultCodec: 'json', attempts: 1, duration: undefined }
  expect(idsIn(heard[0] as string)).toEqual(['a', 'b'])
  expect(storage.notices.endsIn?.(heard[0] as string)).toEqual([
    { id: 'a', ...end },
    { id: 'b', ...end },
  ])
  // A large one is asked for.
  await storage.session.work({
    ...call,
    ack: 1,
    settlements: [{ ...c, result: 'x'.repeat(20_000) } as Settlement],
  })
  await vi.waitFor(() => expect(heard).toHaveLength(2))
  expect(heard[1]).toBe('c')
  expect(storage.notices.endsIn?.('c')).toEqual([])
})

test('what falls due is claimed in its order, has waited since then, and goes back to its place', async () => {
  const clock = new ManualClock()
  const storage = await open({ clock })
  await storage.session.open('session', OPTIONS)
  const delays: [string, number][] = [
    ['c', 300],
    ['b', 200],
    ['a', 300],
    ['d', 9000],
  ]
  for (const [id, delay] of delays) await storage.queue.enqueue(REF, [task(id, { delay })])
  await clock.advanceAsync(300)
  const order = ['b', 'a', 'c']
  // All are wanted and go to the session at once; or they become ready first, and wait there.
  const first = await storage.session.work({ ...call, want: 5 })
  expect(first.claimed.map(({ id, waited }) => [id, waited])).toEqual(order.map((id) => [id, 0]))
  expect(first.nextDueIn).toBe(8700)
  const releases = first.claimed.map(({ id, token }) => ({ id, token, outcome: 'released' as const }))
  await storage.session.work({ ...call, ack: first.token, settlements: [...releases].reverse() })
  const second = await storage.session.work({ ...call, ack: first.token, want: 5 })
  expect(second.claimed.map(({ id }) => id)).toEqual(order)
  const settlements = second.claimed.map(success)
  await storage.session.work({ ...call, ack: second.token, settlements })

  await storage.queue.enqueue(
    REF,
    ['g', 'f', 'e'].map((id) => task(id, { delay: 1000 })),
  )
  await storage.queue.enqueue(REF, [task('urgent', { delay: 1000, priority: 0 })])
  await clock.advanceAsync(1000)
  const some = await storage.session.work({ ...call, ack: second.token, want: 2 })
  expect(some.claimed.map(({ id }) => id)).toEqual(['urgent', 'e'])
  await clock.advanceAsync(50)
  const rest = await storage.session.work({ ...call, ack: some.token, want: 5 })
  expect(rest.claimed.map(({ id, waited }) => [id, waited])).toEqual([
    ['f', 50],
    ['g', 50],
  ])
  const ends = [...some.claimed, ...rest.claimed].map(success)
  const { stale } = await storage.session.work({ ...call, ack: rest.token, settlements: ends })
  expect(stale).toEqual([])
  expect((await storage.queue.get(REF, ['f']))[0]).toMatchObject({ state: 'success', attempts: 1 })
})
