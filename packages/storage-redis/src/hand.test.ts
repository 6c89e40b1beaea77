/** Tasks that come while a node waits for work are handed to it with the word that wakes it, if it can start them at once. */
import { wakeChannel, type Handed, type NewTask, type Storage, type WorkReply } from '@neotask/core'
import { ManualClock } from '@neotask/core/testing'
import { randomBytes } from 'node:crypto'
import { afterAll, afterEach, beforeAll, beforeEach, expect, test, vi } from 'vitest'
import { redisStorage } from './index.js'
import { startServer, type TestServer } from './redis-server.test-helper.js'
import { call, OPTIONS, REF, success, task } from './requests.test-helper.js'

let server: TestServer
let clock: ManualClock
let storage: Storage
/** What was said to each node that listens. */
let heard: Record<string, string[]>

beforeAll(async () => {
  server = await startServer()
})
afterAll(async () => {
  await server.stop()
})
beforeEach(async () => {
  clock = new ManualClock()
  heard = {}
  storage = redisStorage({ url: server.url, namespace: `hand-${randomBytes(4).toString('hex')}`, clock })
  await storage.open()
})
afterEach(async () => {
  await storage.close()
})

/** A node that has nothing to do, could start `free` tasks at once, and hears what it is told unless it is deaf. */
async function idle(
  session: string,
  free: number,
  { kinds = [''], isDeaf = false } = {},
): Promise<WorkReply> {
  await storage.session.open(session, { ...OPTIONS, serves: { ...REF, kinds } })
  const messages: string[] = []
  heard[session] = messages
  if (!isDeaf) {
    await storage.notices.subscribe(wakeChannel(session), (message) => messages.push(message))
  }
  const reply = await storage.session.work({ ...call, session, want: free + 20, free })
  expect(reply.claimed).toEqual([])
  return reply
}

const enqueue = (...tasks: NewTask[]) => storage.queue.enqueue(REF, tasks)

async function handedTo(session: string): Promise<Handed> {
  await vi.waitFor(() => expect(heard[session]).not.toEqual([]))
  const handed = storage.notices.handedIn?.(heard[session]?.shift() as string)
  expect(handed).toBeDefined()
  return handed as Handed
}

const idsOf = ({ claimed }: { claimed: Handed['claimed'] }): string[] => claimed.map(({ id }) => id)

async function states(...ids: string[]): Promise<(string | undefined)[]> {
  return (await storage.queue.get(REF, ids)).map((record) => record?.state)
}

test('they are claimed like any other, and their ends count', async () => {
  const { token } = await idle('session', 2)
  await enqueue(
    task('a', { payload: 'Zürich 北京\n2', priority: 0, watcher: 'me' }),
    task('b', { priority: 0, options: '{"x":1}' }),
  )
  const handed = await handedTo('session')
  expect(handed.after).toBe(token)
  expect(handed.token).toBeGreaterThan(token)
  expect(handed.claimed).toMatchObject([
    {
      id: 'a',
      kind: '',
      payload: 'Zürich 北京\n2',
      codec: 'json',
      priority: 0,
      attempts: 0,
      probation: false,
    },
    { id: 'b', payload: 'payload', options: '{"x":1}', token: handed.token },
  ])
  expect(await states('a', 'b')).toEqual(['running', 'running'])
  const settlements = handed.claimed.map(success)
  const reply = await storage.session.work({ ...call, ack: handed.token, settlements, want: 5 })
  expect(reply).toMatchObject({ status: 'ok', stale: [], claimed: [], held: 0, token: handed.token })
  expect(await states('a', 'b')).toEqual(['success', 'success'])
})

test('a node that missed the message gets them with its next claim', async () => {
  const { token } = await idle('session', 2)
  await enqueue(task('a'), task('b'))
  const handed = await handedTo('session')
  const reply = await storage.session.work({ ...call, ack: token, want: 5 })
  expect(reply.status).toBe('again')
  expect(idsOf(reply)).toEqual(['a', 'b'])
  expect(reply.token).toBe(handed.token)
})

test('a node whose claim could not be carried out gets its turn before more is handed to it', async () => {
  const { token } = await idle('session', 2)
  await enqueue(task('a'))
  const again = await storage.session.work({ ...call, ack: token, want: 5, free: 2 })
  expect(again.status).toBe('again')
  await enqueue(task('b'))
  const reply = await storage.session.work({ ...call, ack: again.token, want: 5, free: 1 })
  expect(reply.status).toBe('ok')
  expect(idsOf(reply)).toEqual(['b'])
})

test('one after the other is handed until no slot is free, and the rest waits for a claim', async () => {
  await idle('session', 3)
  await enqueue(task('a'))
  await enqueue(task('b'), task('c'), task('d'))
  const [first, second] = [await handedTo('session'), await handedTo('session')]
  expect([idsOf(first), idsOf(second)]).toEqual([['a'], ['b', 'c']])
  expect(second.after).toBe(first.token)
  expect(await states('d')).toEqual(['pending'])
  // It is told that there is more.
  await vi.waitFor(() => expect(heard['session']).toEqual(['']))
  expect(storage.notices.handedIn?.('')).toBeUndefined()
  expect(idsOf(await storage.session.work({ ...call, ack: second.token, want: 5 }))).toEqual(['d'])
})

test('a call that wants nothing says how many slots are free by now', async () => {
  await idle('session', 1)
  await enqueue(task('a'))
  const { token, claimed } = await handedTo('session')
  await storage.session.work({ ...call, ack: token, settlements: claimed.map(success), free: 1 })
  await enqueue(task('b'))
  expect((await handedTo('session')).after).toBe(token)
})

test('nodes that wait share them', async () => {
  await idle('one', 10)
  await idle('two', 10)
  await enqueue(task('a'), task('b'), task('c'), task('d'))
  const shares = [idsOf(await handedTo('one')), idsOf(await handedTo('two'))]
  expect(shares.map((share) => share.length)).toEqual([2, 2])
  expect(shares.flat().sort()).toEqual(['a', 'b', 'c', 'd'])
})

test('nodes that wait have their turns', async () => {
  const nodes = ['one', 'two', 'three']
  for (const node of nodes) await idle(node, 10)
  const took: string[] = []
  for (const id of ['a', 'b', 'c']) {
    await enqueue(task(id))
    await vi.waitFor(() => expect(nodes.some((node) => heard[node]?.length === 1)).toBe(true))
    const session = nodes.find((node) => heard[node]?.length === 1) as string
    const { token, claimed } = await handedTo(session)
    const settlements = claimed.map(success)
    await storage.session.work({ ...call, session, ack: token, settlements, free: 10 })
    took.push(session)
  }
  expect(took.sort()).toEqual([...nodes].sort())
})

test('a node that runs something may be kept by it: others come first', async () => {
  await idle('busy', 10)
  await enqueue(task('a'))
  await handedTo('busy')
  await idle('free', 10)
  await enqueue(task('b'))
  expect(idsOf(await handedTo('free'))).toEqual(['b'])
  // Now both run something, and whoever comes first takes it.
  await enqueue(task('c'))
  expect(await states('c')).toEqual(['pending'])
})

test.each<[string, () => Promise<unknown>, NewTask[]]>([
  ['who does not listen', () => idle('session', 5, { isDeaf: true }), [task('a')]],
  [
    'who has not been heard of for a while',
    async () => {
      await idle('session', 5)
      await clock.advanceAsync(3000)
    },
    [task('a')],
  ],
  ['who does not serve them', () => idle('session', 5, { kinds: ['mail'] }), [task('a')]],
  ['who has no free slot', () => idle('session', 0), [task('a')]],
  [
    'who has none any more',
    async () => (await idle('session', 5), storage.session.work({ ...call, free: 0 })),
    [task('a')],
  ],
  [
    'anybody while the queue is paused',
    async () => (await idle('session', 5), storage.queue.pause(REF, true)),
    [task('a')],
  ],
  ['anybody when they are bytes', () => idle('session', 5), [task('a', { payload: new Uint8Array([200]) })]],
  ['anybody when they are large', () => idle('session', 5), [task('a', { payload: 'x'.repeat(20_000) })]],
  [
    'anybody when they are not alike urgent',
    () => idle('session', 5),
    [task('a'), task('b', { priority: 1 })],
  ],
])('they are not handed to %s', async (_who, prepare, tasks) => {
  await prepare()
  await enqueue(...tasks)
  expect(await states(...tasks.map(({ id }) => id))).toEqual(tasks.map(() => 'pending'))
})

test('who serves a kind that is a number is told, and nobody else', async () => {
  await idle('mail', 5, { kinds: ['mail'] })
  await idle('number', 0, { kinds: ['5'] })
  await enqueue(task('a', { kind: '5' }), task('b', { kind: '5' }))
  for (const session of ['mail', 'number']) await storage.notices.publish(wakeChannel(session), 'last')
  await vi.waitFor(() => expect(heard).toEqual({ mail: ['last'], number: ['', 'last'] }))
})

test('what was put aside for another goes first', async () => {
  for (const session of ['one', 'two', 'three']) await idle(session, 5, { kinds: ['mail'] })
  await idle('other', 5, { kinds: ['other'] })
  // Too large to be handed, so one is told of it, and another that it was put aside. One is left.
  await enqueue(task('old', { kind: 'mail', payload: 'x'.repeat(20_000) }))
  await storage.session.work({ ...call, session: 'other', want: 5 })
  await enqueue(task('new', { kind: 'mail' }))
  expect(await states('old', 'new')).toEqual(['pending', 'pending'])
})

test('what waits already goes first', async () => {
  await idle('session', 5)
  await idle('other', 5)
  await enqueue(task('large', { payload: 'x'.repeat(20_000) }))
  await enqueue(task('a'))
  expect(await states('large', 'a')).toEqual(['pending', 'pending'])
  expect(idsOf(await storage.session.work({ ...call, want: 2 }))).toEqual(['large', 'a'])
})
