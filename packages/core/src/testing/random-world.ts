/**
 * What a random run acts upon: the storage through one or two instances, the model beside it, and the nodes.
 *
 * Everything that may change a queue goes through {@link RandomWorld.step}, which does what the contract leaves to
 * the driver's choice: it lets the model follow, and checks that messages came to whom they are due.
 */
import assert from 'node:assert/strict'
import { finalChannel, idsIn, wakeChannel, type Mark, type Retention, type Storage } from '../storage.js'
import type { Opened } from './harness.js'
import { ModelQueue, type Tangle } from './model-queue.js'
import { ModelRecords } from './model-records.js'
import { checkPruned, removable, removed } from './model-retention.js'
import { ModelSessions, type OpenSession } from './model-sessions.js'
import type { ModelTask } from './model-task.js'
import { beginStep, checkMessages, owe, type Listener } from './random-messages.js'
import { DAY, HOUR } from './sketch.js'

/** How long a message may be on its way where nothing else is said, in ms. */
const MESSAGE_DELAY = 20
/** Names under which the run waits for ends. */
export const WATCHERS = ['one', 'two'] as const
/** A session that has been over for longer may be forgotten. */
const REMEMBERED = 23 * HOUR
/** Calls of upkeep after which it should have nothing left to do. */
const MANY = 300
const WHOLE = 1000

export interface Node extends OpenSession {
  /** The instance of the storage that it uses. */
  readonly via: number
  /** The newest token, and the newest notices, of which it knows. */
  ack: number
  ackTaken: number
  /** Every claim that it ever made. */
  readonly claims: Mark[]
  /** Messages that reached its session. */
  readonly heard: string[]
}

export interface StepOptions {
  /** What the step may remove records by, besides what its ends remove. */
  readonly retentions?: readonly Retention[]
  /** The node whose call it is. */
  readonly acting?: Node
  /** Whether it is a claim that can end nothing before it looks at deadlines. */
  readonly isPlainClaim?: boolean
}

export class RandomWorld {
  readonly queues: readonly ModelQueue[]
  readonly sessions: ModelSessions = new ModelSessions()
  readonly records: ModelRecords = new ModelRecords()
  readonly listeners: readonly Listener[]
  /** Those that work, and all that ever did and that the storage remembers. */
  nodes: Node[] = []
  everyNode: Node[] = []
  now: number
  /** How long a message may be on its way, in ms. */
  readonly messageDelay: number
  /** Which instance made a task ready, and which one ended a session. */
  readonly #readyBy = new WeakMap<ModelTask, number>()
  readonly #endedBy = new WeakMap<Node, number>()
  /** Messages of each node that were looked at. */
  readonly #seen = new WeakMap<Node, number>()
  readonly #opened: Opened
  readonly #storages: readonly Storage[]
  readonly #start: number

  private constructor(opened: Opened, storages: readonly Storage[], now: number) {
    this.#opened = opened
    this.#storages = storages
    this.#start = now
    this.now = now
    this.messageDelay = opened.messageDelay ?? MESSAGE_DELAY
    this.queues = ['mail', 'sale'].map((queue) => new ModelQueue({ tenant: 'acme', queue }))
    this.listeners = WATCHERS.map((name, index) => ({
      name,
      via: index % storages.length,
      heard: [],
      owed: new Map(),
      allowed: new Map(),
      messageDelay: this.messageDelay,
    }))
  }

  /** Opens a storage for one run, and closes it afterwards. */
  static async use(open: () => Promise<Opened>, run: (world: RandomWorld) => Promise<void>): Promise<void> {
    const opened = await open()
    const storages = [opened.storage]
    try {
      await opened.storage.open()
      const peer = await opened.peer?.()
      if (peer) {
        storages.push(peer)
        await peer.open()
      }
      const probe = { tenant: 'acme', queue: 'probe' }
      const task = { id: 'probe', kind: '', payload: '', codec: 'json', priority: 0 }
      await opened.storage.queue.enqueue(probe, [task])
      const [record] = await opened.storage.queue.get(probe, ['probe'])
      assert.ok(record, 'a task that was just enqueued is unknown')
      const world = new RandomWorld(opened, storages, record.createdAt)
      for (const { name, via, heard } of world.listeners)
        await world
          .storage(via)
          .notices.subscribe(finalChannel(name), (message) => heard.push(idsIn(message).join(' ')))
      await run(world)
    } finally {
      for (const storage of storages.slice(1)) await storage.close()
      await opened.close()
    }
  }

  /** The instance of this number. */
  storage(via: number): Storage {
    return this.#storages[this.instance(via)] as Storage
  }

  instance(via: number): number {
    return via % this.#storages.length
  }

  queue(q: number): ModelQueue {
    return this.queues[q % this.queues.length] as ModelQueue
  }

  /** Days since the run began. */
  get day(): number {
    return Math.floor((this.now - this.#start) / DAY)
  }

  async listenAs(node: Node): Promise<void> {
    const { notices } = this.storage(node.via)
    await notices.subscribe(wakeChannel(node.session.id), (message) => node.heard.push(message))
    this.nodes.push(node)
    this.everyNode.push(node)
  }

  async advance(ms: number): Promise<void> {
    await this.#opened.advance(ms)
    this.now += ms
    const isKnown = ({ session }: Node): boolean =>
      session.over === undefined || this.now - session.overAt < REMEMBERED
    this.nodes = this.nodes.filter(isKnown)
    this.everyNode = this.everyNode.filter(isKnown)
  }

  // ------------------------------------------------------------------------------------------------- one step

  /** One step of the storage, with all that follows from it. What it left to later steps is drained at once. */
  async step(
    via: number,
    queue: ModelQueue,
    action: (storage: Storage) => Promise<void>,
    options: StepOptions = {},
  ): Promise<void> {
    // When a deadline and the end of a parent meet, their order is open: upkeep, which can be asked, comes first.
    queue.begin(this.now)
    const isOpen = options.isPlainClaim === true ? queue.tangled().length > 0 : queue.hasLateWaiting()
    if (isOpen) await this.drain(via, queue, WHOLE)
    await this.#step(via, queue, action, options)
  }

  async #step(
    via: number,
    queue: ModelQueue,
    action: (storage: Storage) => Promise<void>,
    { retentions = [], acting }: StepOptions = {},
  ): Promise<void> {
    const instance = this.instance(via)
    // A wake-up that nobody had to wait for may have come after its step: whether the session sleeps still is open.
    for (const node of this.everyNode)
      if (node.heard.length > (this.#seen.get(node) ?? 0) && node.session.idle === true)
        node.session.idle = undefined
    const heardBefore = new Map(this.everyNode.map((node) => [node, node.heard.length]))
    const takenBefore = new Set(this.everyNode.flatMap(({ session }) => session.taken))
    const asleep = this.everyNode.filter(({ session }) => session.idle === true)
    const ready = new Set<ModelTask>()
    const reopened = new Set<ModelTask>()
    for (const listener of this.listeners) beginStep(listener)
    const rules = [...retentions]
    const once = async (part: (storage: Storage) => Promise<void>): Promise<void> => {
      for (const each of this.queues) each.begin(this.now)
      await part(this.storage(via))
      // Every end makes room, also one that the driver left to later.
      if (queue.ended > 0 && queue.retention) rules.push(queue.retention)
      await this.#follow(queue, rules)
      owe(this.listeners, queue, instance)
      for (const node of this.everyNode)
        if (node.session.over !== undefined && !this.#endedBy.has(node)) this.#endedBy.set(node, instance)
      for (const task of queue.fresh) {
        this.#readyBy.set(task, instance)
        if (!queue.loose.has(task)) ready.add(task)
      }
      // Of what another instance made ready, this one hears only that something changed.
      for (const task of queue.reopened) {
        if (this.#readyBy.get(task) === instance) reopened.add(task)
        this.#readyBy.set(task, instance)
      }
    }
    await once(action)
    const left = await this.#leftOf(queue)
    if (queue.isBehind) await once((storage) => this.#drainAll(queue, storage, WHOLE))
    await checkMessages({
      instance,
      queue,
      ready,
      reopened,
      left,
      listeners: this.listeners,
      messageDelay: this.messageDelay,
      nodes: this.everyNode,
      acting,
      endedElsewhere: (node) => (this.#endedBy.get(node) ?? instance) !== instance,
      asleep,
      heardBefore,
      takenBefore,
    })
    for (const node of this.everyNode) this.#seen.set(node, node.heard.length)
  }

  /** A task that the driver has not reached yet: somebody has to go on. */
  async #leftOf(queue: ModelQueue): Promise<string | undefined> {
    const loose = [...queue.loose]
    if (loose.length === 0) return undefined
    const records = await this.storage(0).queue.get(
      queue.ref,
      loose.map(({ id }) => id),
    )
    return loose.find((_, index) => records[index]?.state === 'blocked')?.id
  }

  /** Lets the model forget what retention has removed. */
  async #follow(queue: ModelQueue, rules: readonly Retention[]): Promise<void> {
    const candidates = rules.length === 0 ? [] : removable(queue, rules)
    if (candidates.length === 0) return
    const ids = candidates.map(({ id }) => id)
    const records = await this.storage(0).queue.get(queue.ref, ids)
    const gone = candidates.filter((_, index) => records[index] === undefined)
    removed(queue, gone, rules)
  }

  // -------------------------------------------------------------------------------------------------- upkeep

  async drain(via: number, queue: ModelQueue, limit: number): Promise<void> {
    await this.#step(via, queue, (storage) => this.#drainAll(queue, storage, limit))
  }

  /** Drains until there is nothing more to do, so that it does not matter how much one call does. */
  async #drainAll(queue: ModelQueue, storage: Storage, limit: number): Promise<void> {
    for (let calls = 0; (await storage.upkeep.drain(queue.ref, limit)) === 'more'; calls++)
      assert.ok(calls < MANY, 'drain does not end')
    queue.pass(await this.#untangle(queue, storage))
  }

  /** Asks the driver whether tasks went on because of a parent, or of their own time, when both came at once. */
  async #untangle(queue: ModelQueue, storage: Storage): Promise<ReadonlyMap<ModelTask, Tangle>> {
    const order = new Map<ModelTask, Tangle>()
    for (const task of queue.tangled()) {
      const [record] = await storage.queue.get(queue.ref, [task.id])
      const after = [...task.open].filter((id) => record?.after?.ids.includes(id))
      const isByTime = task.suspended
        ? record?.reason !== 'DEPENDENCY_FAILED' && after.length < task.open.size
        : record?.reason === 'TASK_EXPIRED'
      order.set(task, isByTime ? { by: 'time', after: task.suspended ? after : [] } : { by: 'parents' })
    }
    return order
  }

  async reclaim(via: number, limit: number): Promise<void> {
    const busy = this.queues.find((queue) => this.sessions.wouldChange(queue, this.now)) ?? this.queue(0)
    await this.step(via, busy, async (storage) => {
      const report = await storage.upkeep.reclaim(limit)
      await this.sessions.reclaim(this.queues, limit, report, this.#isStillHeld(storage))
    })
    for (const queue of this.queues) if (queue !== busy && queue.isBehind) await this.drain(via, queue, WHOLE)
  }

  async end(node: Node, limit: number): Promise<void> {
    const { id } = node.session
    await this.step(node.via, node.queue, async (storage) => {
      const answer = await storage.session.end(id, limit)
      await this.sessions.end(id, limit, answer, this.#isStillHeld(storage))
    })
    if (node.session.entries.size === 0) this.nodes = this.nodes.filter((other) => other !== node)
  }

  #isStillHeld(storage: Storage): (queue: ModelQueue, task: ModelTask) => Promise<boolean> {
    return async (queue, task) => {
      const [record] = await storage.queue.get(queue.ref, [task.id])
      return record?.state === 'running'
    }
  }

  async prune(via: number, queue: ModelQueue, retention: Retention, limit: number): Promise<void> {
    await this.step(
      via,
      queue,
      async (storage) => {
        for (let calls = 0; (await storage.upkeep.prune(queue.ref, retention, limit)) === 'more'; calls++)
          assert.ok(calls < MANY, 'prune does not end')
      },
      { retentions: [retention] },
    )
    checkPruned(queue, retention)
  }

  /** Whether the look of a claim reaches sessions of other queues is the driver's choice: upkeep looks first. */
  async lookElsewhere(via: number, queue: ModelQueue): Promise<void> {
    const others = this.queues.filter((other) => other !== queue)
    if (others.some((other) => this.sessions.wouldChange(other, this.now))) await this.reclaim(via, WHOLE)
  }
}
