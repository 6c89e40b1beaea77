/** What is particular to memory. The contract itself is tested by the suite, in `memory-storage.suite.test.ts`. */
import { setFlagsFromString } from 'node:v8'
import { runInNewContext } from 'node:vm'
import { describe, expect, it } from 'vitest'
import { memoryStorage } from './memory-storage.js'
import { Due, Line } from './memory-structures.js'
import { Task, rareOf } from './memory-task.js'
import {
  finalChannel,
  wakeChannel,
  type NewTask,
  type SessionOptions,
  type Storage,
  type WorkRequest,
} from './storage.js'
import { TaskIds } from './task.js'
import { ManualClock } from './testing/manual-clock.js'

const REF = { tenant: 'default', queue: 'default' }
const RULE = { age: 86_400_000, count: 100_000 }

const newTask = (id: string, more: Partial<NewTask> = {}): NewTask => ({
  id,
  kind: '',
  payload: '{}',
  codec: 'json',
  priority: 2,
  ...more,
})

const sessionOptions = (more: Partial<SessionOptions> = {}): SessionOptions => ({
  ttl: 25_000,
  node: { id: 'node', host: 'host', pid: 1, concurrency: 1, queue: 'default', kinds: [''] },
  serves: { ...REF, kinds: [''] },
  retention: { success: RULE, failed: RULE },
  maxReclaims: 3,
  ...more,
})

const request = (session: string, more: Partial<WorkRequest> = {}): WorkRequest => ({
  session,
  ack: 0,
  ackTaken: 0,
  marks: [],
  reports: [],
  settlements: [],
  renew: false,
  want: 0,
  ...more,
})

const bareTask = (sequence: number): Task =>
  new Task(`t${sequence}`, '', '', '', undefined, undefined, 2, sequence, 0)

describe('memory per task', () => {
  it('spends some 300 bytes on a waiting task beyond its payload, its id included', async () => {
    setFlagsFromString('--expose-gc')
    const collect = runInNewContext('gc') as () => void
    const count = 100_000
    const ids = new TaskIds(0)
    const storage = memoryStorage()
    // Values of the caller, so that only what the storage adds is counted. The ids are: the storage keeps them.
    const batches = Array.from({ length: count / 500 }, () => Array.from({ length: 500 }, () => newTask('')))
    collect()
    const before = process.memoryUsage().heapUsed
    for (const batch of batches) {
      await storage.queue.enqueue(
        REF,
        batch.map((task) => ({ ...task, id: ids.next(1) })),
      )
    }
    collect()
    const each = (process.memoryUsage().heapUsed - before) / count
    expect((await storage.queue.counts(REF)).pending).toBe(count)
    expect(each).toBeLessThan(340)
  })
})

describe('orders with tasks that left', () => {
  it('keeps no more dead entries than living ones, and a few', () => {
    const line = new Line()
    const due = new Due()
    const tasks = Array.from({ length: 10_000 }, (_, i) => bareTask(i))
    for (const task of tasks) line.enter(task)
    for (const task of tasks.slice(0, 9_900)) line.leave(task)
    expect([line.size, line.head()?.id]).toEqual([100, 't9900'])
    expect(line.entries).toBeLessThan(1_000)

    for (const task of tasks) {
      rareOf(task).dueAt = 5
      due.enter(task, 5)
    }
    for (const task of tasks) due.leave(task)
    expect([due.size, due.head()]).toEqual([0, undefined])
    expect(due.entries).toBeLessThan(1_000)
  })

  it('does not grow by a task that goes to and fro, and hands it out once', () => {
    const line = new Line()
    const task = bareTask(1)
    line.enter(task)
    for (let i = 0; i < 10_000; i++) {
      line.leave(task)
      task.priority = i % 2 === 0 ? 1 : 2
      line.enter(task)
    }
    expect(line.size).toBe(1)
    expect(line.entries).toBeLessThan(1_000)
    line.take(line.head() as Task)
    expect(line.head()).toBeUndefined()
  })
})

describe('notices', () => {
  it('come after the step that publishes, in a microtask', async () => {
    const storage = memoryStorage()
    const heard: string[] = []
    await storage.notices.subscribe('channel', (message) => heard.push(message))
    const published = storage.notices.publish('channel', 'hello')
    expect(heard).toEqual([])
    await published
    expect(heard).toEqual(['hello'])
  })

  it('name all ends of a step in one message', async () => {
    const storage = memoryStorage()
    const heard: string[] = []
    await storage.notices.subscribe(finalChannel('me'), (message) => heard.push(message))
    await storage.queue.enqueue(REF, [newTask('a', { watcher: 'me' }), newTask('b', { watcher: 'me' })])
    await storage.queue.cancel(REF, ['a', 'b'])
    expect(heard).toEqual(['a b'])
  })

  it('do not tell a session of ends that it settles itself, and others all the same', async () => {
    const storage = memoryStorage()
    const heard: string[] = []
    for (const watcher of ['own', 'other']) {
      await storage.notices.subscribe(finalChannel(watcher), (id) => heard.push(`${watcher}: ${id}`))
    }
    await storage.session.open('s', { ...sessionOptions(), watcher: 'own' })
    const ids = ['won', 'failed', 'ended']
    await storage.queue.enqueue(
      REF,
      ids.map((id) => newTask(id, { watcher: 'own' })),
    )
    await storage.queue.watch(REF, ids, { watcher: 'other', ttl: 1000 })
    const { token } = await storage.session.work(request('s', { want: 2 }))
    await storage.session.work(
      request('s', {
        ack: token,
        settlements: [
          { id: 'won', token, outcome: 'success', result: '1', codec: 'json' },
          { id: 'failed', token, outcome: 'failed', error: '{}', fingerprint: 'f' },
        ],
      }),
    )
    await storage.queue.cancel(REF, ['ended'])
    expect(heard.sort()).toEqual(['other: ended', 'other: won failed', 'own: ended'])
  })

  it('do not reach a listener that left before they were delivered', async () => {
    const storage = memoryStorage()
    const heard: string[] = []
    const leave = await storage.notices.subscribe('channel', (message) => heard.push(message))
    const published = storage.notices.publish('channel', 'late')
    await Promise.all([leave(), published])
    expect(heard).toEqual([])
  })
})

describe('one storage', () => {
  const settleAll = async (storage: Storage, session: string): Promise<string[]> => {
    const ids: string[] = []
    for (let ack = 0; ;) {
      const reply = await storage.session.work(request(session, { ack, want: 3 }))
      if (reply.claimed.length === 0) return ids
      ack = reply.token
      ids.push(...reply.claimed.map(({ id }) => id))
      const settlements = reply.claimed.map(
        ({ id, token }) => ({ id, token, outcome: 'success', result: '1', codec: 'json' }) as const,
      )
      await storage.session.work(request(session, { ack, settlements }))
    }
  }

  it('shared by two pools gives each task to one of them', async () => {
    const storage = memoryStorage()
    await storage.session.open('one', sessionOptions())
    await storage.session.open('two', sessionOptions())
    const ids = Array.from({ length: 100 }, (_, i) => `t${i}`)
    await storage.queue.enqueue(
      REF,
      ids.map((id) => newTask(id)),
    )
    const taken = await Promise.all([settleAll(storage, 'one'), settleAll(storage, 'two')])
    expect(taken.every((some) => some.length > 0)).toBe(true)
    expect(taken.flat().sort()).toEqual([...ids].sort())
    expect((await storage.queue.counts(REF)).success).toBe(100)
  })

  it('survives the close of a pool that shares it', async () => {
    const storage = memoryStorage()
    await storage.queue.enqueue(REF, [newTask('a')])
    const before = await storage.open()
    await storage.close()
    expect(await storage.open()).toEqual(before)
    expect((await storage.queue.get(REF, ['a']))[0]?.state).toBe('pending')
  })

  it('is another one each time', async () => {
    expect((await memoryStorage().open()).runId).not.toBe((await memoryStorage().open()).runId)
  })
})

describe('a task sent by itself', () => {
  it('is accepted, known and refused as in a batch, before the call returns', async () => {
    const { queue } = memoryStorage()
    const enqueueNow = queue.enqueueNow?.bind(queue) as NonNullable<typeof queue.enqueueNow>
    expect(enqueueNow(REF, newTask('a'))).toBe('accepted')
    expect(enqueueNow(REF, newTask('a'))).toBe('duplicate')
    expect(enqueueNow(REF, newTask('b'), { maxQueueSize: 1 })).toMatchObject({ code: 'QUEUE_FULL' })
    expect(enqueueNow(REF, newTask('c', { priority: -1 }))).toMatchObject({ code: 'OPTION_INVALID' })
    expect((await queue.counts(REF)).pending).toBe(1)
  })
})

describe('what it keeps', () => {
  it('is its own copy of bytes', async () => {
    const storage = memoryStorage()
    const payload = new Uint8Array([1, 2, 3])
    await storage.queue.enqueue(REF, [newTask('a', { payload })])
    payload[0] = 9
    expect((await storage.queue.get(REF, ['a']))[0]?.payload).toEqual(new Uint8Array([1, 2, 3]))
  })

  it('is as many log lines as it was told', async () => {
    const storage = memoryStorage({ maxLogs: 2 })
    await storage.session.open('s', sessionOptions())
    await storage.queue.enqueue(REF, [newTask('a')])
    const { token } = await storage.session.work(request('s', { want: 1 }))
    const reports = [{ id: 'a', token, logs: ['1', '2', '3'] }]
    await storage.session.work(request('s', { ack: token, reports }))
    expect((await storage.queue.get(REF, ['a']))[0]?.logs).toEqual(['2', '3'])
    expect(() => memoryStorage({ maxLogs: -1 })).toThrow('maxLogs')
  })
})

describe('a long cascade', () => {
  it('is carried on by whoever is woken, without a poll', async () => {
    const storage = memoryStorage({ clock: new ManualClock() })
    await storage.session.open('s', sessionOptions())
    await storage.queue.enqueue(REF, [newTask('root', { hold: true })])
    const kids = Array.from({ length: 250 }, (_, i) =>
      newTask(`kid${i}`, { after: { ids: ['root'], on: 'success' } }),
    )
    await storage.queue.enqueue(REF, kids)
    await storage.session.work(request('s', { want: 1 }))
    let woken = 0
    await storage.notices.subscribe(wakeChannel('s'), () => woken++)
    await storage.queue.complete(REF, 'root', '1', 'json')
    expect([woken, (await storage.queue.counts(REF)).blocked]).toEqual([1, 150])
    const reply = await storage.session.work(request('s', { want: 1 }))
    expect([reply.nextDueIn, (await storage.queue.counts(REF)).blocked]).toEqual([0, 50])
  })
})
