/**
 * What the cases of the storage suite share: an opened storage with one queue in it ({@link Bench}), and a node
 * that keeps the protocol's rules about tokens and acknowledgements ({@link BenchNode}).
 */
import assert from 'node:assert/strict'
import { systemClock } from '../clock.js'
import { finalChannel, headChannel, idsIn, wakeChannel } from '../storage.js'
import type {
  EnqueueOptions,
  EnqueueOutcome,
  ListQuery,
  NewTask,
  OperationOutcome,
  QueueRef,
  ReclaimReport,
  Retention,
  SessionOptions,
  Storage,
  TaskRecord,
  Unit,
} from '../storage.js'
import { TASK_STATES } from '../task.js'
import type { Operation, TaskState } from '../task.js'
import { BenchNode } from './bench-node.js'
import { DAY, HOUR, idsOf, KEEP, KIND, SHORT_TTL, sketch } from './sketch.js'
import type { Sketch } from './sketch.js'

/** A storage to be tested, fresh and empty. */
export interface Opened {
  readonly storage: Storage
  /** Moves the storage's time: a manual clock, or a real wait. */
  advance(ms: number): Promise<void>
  /** A second instance over the same data, as another process would open it. Absent where none can be. */
  peer?(): Promise<Storage>
  /** How long a message may be on its way, in ms of real time. Default: 20; more where servers pass it on. */
  readonly messageDelay?: number
  /** Ends everything that was opened, and forgets the data. */
  close(): Promise<void>
}

interface RuleOptions {
  /** The longest time, in ms, that the case moves the clock. */
  readonly moves?: number
}

/** Declares a rule of the contract: its number, what it says, and the case that tells whether it holds. */
export type Rule = (
  number: string,
  sentence: string,
  body: (bench: Bench) => Promise<void>,
  options?: RuleOptions,
) => void

export class Bench {
  readonly storage: Storage
  readonly ref: QueueRef
  readonly #opened: Opened
  readonly #peers: Storage[] = []
  #hand: Promise<BenchNode> | undefined
  #count = 0

  constructor(opened: Opened, ref: QueueRef = { tenant: 'acme', queue: 'mail' }) {
    this.#opened = opened
    this.storage = opened.storage
    this.ref = ref
  }

  /** The same storage, seen from another queue. */
  at(ref: QueueRef): Bench {
    return new Bench(this.#opened, ref)
  }

  advance(ms: number): Promise<void> {
    return this.#opened.advance(ms)
  }

  /** The storage as another process sees it, or the very same one where there is no other. */
  async peer(): Promise<Storage> {
    if (!this.#opened.peer) return this.storage
    const peer = await this.#opened.peer()
    await peer.open()
    this.#peers.push(peer)
    return peer
  }

  async close(): Promise<void> {
    for (const peer of this.#peers) await peer.close()
    await this.#opened.close()
  }

  /** The storage's wall time, read from a task that is made for it. */
  async time(): Promise<number> {
    const probe = this.at({ tenant: 'acme', queue: 'probe' })
    const id = `probe${this.#count++}`
    await probe.add(id)
    return (await probe.get(id)).createdAt
  }

  newId(): string {
    return `task-${this.#count++}`
  }

  enqueue(units: readonly Unit[], options?: EnqueueOptions): Promise<EnqueueOutcome[]> {
    return this.storage.queue.enqueue(this.ref, units, options)
  }

  /** Enqueues each task as a unit of its own; all must be accepted. */
  async add(...tasks: Sketch[]): Promise<void> {
    const outcomes = await this.enqueue(tasks.map(sketch))
    assert.deepEqual(
      outcomes,
      tasks.map(() => 'accepted'),
    )
  }

  async get(id: string): Promise<TaskRecord> {
    const [record] = await this.storage.queue.get(this.ref, [id])
    assert.ok(record, `${id} is unknown`)
    return record
  }

  async stateOf(id: string): Promise<TaskState | 'unknown'> {
    const [record] = await this.storage.queue.get(this.ref, [id])
    return record?.state ?? 'unknown'
  }

  async states(...ids: string[]): Promise<(TaskState | 'unknown')[]> {
    const records = await this.storage.queue.get(this.ref, ids)
    return records.map((record) => record?.state ?? 'unknown')
  }

  /** Every task of a state, page by page. */
  async list(query: Omit<ListQuery, 'limit'> & { limit?: number }): Promise<TaskRecord[]> {
    const tasks: TaskRecord[] = []
    let cursor: string | undefined
    for (let pages = 0; pages < 1000; pages++) {
      const page = await this.storage.queue.list(this.ref, {
        limit: 100,
        ...query,
        ...(cursor && { cursor }),
      })
      tasks.push(...page.tasks)
      if (page.cursor === undefined) return tasks
      cursor = page.cursor
    }
    assert.fail('the list does not end')
  }

  /** Where every task stands. Fails when one stands in two places, or when `counts` and `get` say otherwise. */
  async census(): Promise<Map<string, TaskState>> {
    const places = new Map<string, TaskState>()
    const counts = await this.storage.queue.counts(this.ref)
    for (const state of TASK_STATES) {
      const tasks = await this.list({ state })
      assert.equal(counts[state], tasks.length, `counts.${state} differs from the list`)
      for (const task of tasks) {
        assert.equal(places.get(task.id), undefined, `${task.id} stands in two places`)
        assert.equal(task.state, state, `${task.id} is listed as ${state}`)
        places.set(task.id, state)
      }
    }
    const all = [...places.keys()]
    for (let from = 0; from < all.length; from += 100) {
      const some = all.slice(from, from + 100)
      const records = await this.storage.queue.get(this.ref, some)
      for (const [index, record] of records.entries()) {
        assert.equal(record?.state, places.get(some[index] ?? ''), `get and list differ about ${some[index]}`)
      }
    }
    return places
  }

  /** Fails unless the task stands in this state and nowhere else. */
  async stands(id: string, state: TaskState): Promise<void> {
    assert.equal(await this.stateOf(id), state)
    assert.equal((await this.census()).get(id), state)
  }

  /** Opens a session. */
  async node(
    options: Partial<Omit<SessionOptions, 'serves'>> & { kinds?: readonly string[] } = {},
  ): Promise<BenchNode> {
    const { kinds = [KIND], ...rest } = options
    const session = `session-${Math.random().toString(36).slice(2, 12)}`
    await this.storage.session.open(session, {
      ttl: 100 * DAY,
      node: { id: 'node-1', host: 'localhost', pid: 1, concurrency: 10, queue: 'default', kinds: [''] },
      retention: KEEP,
      maxReclaims: 3,
      serves: { ...this.ref, kinds },
      ...rest,
    })
    return new BenchNode(this.storage, session)
  }

  /** The node that {@link makeIn} uses. */
  hand(): Promise<BenchNode> {
    return (this.#hand ??= this.node())
  }

  /** Takes a new task to a state. Claims need that nothing else of priority 0 is ready. */
  async makeIn(state: TaskState, task: Partial<NewTask> = {}): Promise<string> {
    const id = task.id ?? this.newId()
    if (state === 'pending') await this.add({ ...task, id })
    else if (state === 'scheduled') await this.add({ delay: HOUR, ...task, id })
    else if (state === 'blocked') {
      const parent = `${id}.parent`
      if (!task.after && !task.hold) await this.add({ id: parent, delay: 50 * DAY })
      await this.add({ after: task.hold ? undefined : { ids: [parent], on: 'success' }, ...task, id })
    } else if (state === 'cancelled') {
      await this.add({ ...task, id })
      assert.deepEqual(await this.operate('cancel', id), 'done')
    } else {
      await this.add({ priority: 0, ...task, id })
      const hand = await this.hand()
      assert.deepEqual(idsOf(await hand.claim(1)), [id])
      if (state !== 'running') await hand.settle(id, state)
    }
    assert.equal(await this.stateOf(id), state)
    return id
  }

  /** Carries out one of the operations on one task. */
  async operate(operation: Operation, id: string): Promise<OperationOutcome | undefined> {
    const { queue, upkeep } = this.storage
    if (operation === 'complete') return queue.complete(this.ref, id, '"completed"', 'json')
    if (operation === 'reprioritize') return (await queue.reprioritize(this.ref, [id], 7))[0]
    if (operation === 'revoke') return (await upkeep.revoke(this.ref, [id]))[0]
    return (await queue[operation](this.ref, [id]))[0]
  }

  /** Drains the queue until there is nothing more to do. */
  async drain(limit = 100): Promise<void> {
    for (let calls = 0; calls < 1000; calls++) {
      if ((await this.storage.upkeep.drain(this.ref, limit)) === 'done') return
    }
    assert.fail('drain does not end')
  }

  async prune(retention: Retention, limit = 100): Promise<void> {
    for (let calls = 0; calls < 1000; calls++) {
      if ((await this.storage.upkeep.prune(this.ref, retention, limit)) === 'done') return
    }
    assert.fail('prune does not end')
  }

  /** Lets a session with {@link SHORT_TTL} lapse, and takes back all it held. */
  async lose(...nodes: BenchNode[]): Promise<ReclaimReport> {
    const { upkeep } = this.storage
    await this.advance(0.7 * SHORT_TTL)
    const suspected = [...(await upkeep.reclaim(200)).suspected]
    for (const node of nodes) assert.ok(suspected.includes(node.session), 'a silent session is not suspected')
    await this.advance(0.5 * SHORT_TTL)
    const condemned: string[] = []
    const reclaimed: ReclaimReport['reclaimed'][number][] = []
    const poisoned: ReclaimReport['poisoned'][number][] = []
    for (let calls = 0; calls < 100; calls++) {
      const report = await upkeep.reclaim(200)
      condemned.push(...report.condemned)
      reclaimed.push(...report.reclaimed)
      poisoned.push(...report.poisoned)
      if (report.reclaimed.length + report.poisoned.length + report.condemned.length === 0) break
    }
    for (const node of nodes)
      assert.ok(condemned.includes(node.session), 'a suspect session is not condemned')
    return { suspected, condemned, reclaimed, poisoned }
  }

  /** Listens to a channel. */
  async listen(channel: string, storage: Storage = this.storage): Promise<string[]> {
    const heard: string[] = []
    await storage.notices.subscribe(channel, (message) => heard.push(message))
    return heard
  }

  /** The ids alone of each message. */
  async hearFinal(watcher: string, storage: Storage = this.storage): Promise<string[]> {
    const heard: string[] = []
    await storage.notices.subscribe(finalChannel(watcher), (message) => heard.push(idsIn(message).join(' ')))
    return heard
  }

  hearHead(storage?: Storage): Promise<string[]> {
    return this.listen(headChannel(this.ref), storage)
  }

  hearWake(node: BenchNode, storage?: Storage): Promise<string[]> {
    return this.listen(wakeChannel(node.session), storage)
  }

  /** Waits until the check holds, for messages that are on their way. */
  async until(check: () => boolean, what: string): Promise<void> {
    for (let turns = 0; turns < 200; turns++) {
      if (check()) return
      await this.#turn()
    }
    assert.ok(check(), what)
  }

  /** Waits as long as a message takes that should not come. */
  async quiet(): Promise<void> {
    for (let turns = 0; turns < 10; turns++) await this.#turn()
  }

  async #turn(): Promise<void> {
    await this.advance(10)
    await new Promise<void>((resolve) => systemClock.after(1, resolve, { hold: true }))
  }
}
