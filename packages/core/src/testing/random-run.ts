/**
 * One random run: carries commands out on a storage and on the model beside it, and compares what they answer.
 *
 * After each command the counts are compared; a `look` and the end of the run compare everything that can be seen.
 * At the end every task is brought to its end, so that one which would wait for ever is found.
 */
import assert from 'node:assert/strict'
import type { EnqueueOptions, Mark, NewTask, Unit, WorkReply, WorkRequest } from '../storage.js'
import type { Opened } from './harness.js'
import { checkEnqueue } from './model-enqueue.js'
import { checkComplete, checkOperation, checkWatch, PERMITTED } from './model-operations.js'
import type { ModelQueue } from './model-queue.js'
import { isEnded } from './model-task.js'
import type { Command } from './random-commands.js'
import { compareCounts, lookAt, lookAtRecords, nodeOf } from './random-look.js'
import { patiently, unheard } from './random-messages.js'
import {
  at,
  groupOf,
  idOf,
  OWNERS,
  PREFIXES,
  PRIORITIES,
  RECORDS,
  reportOf,
  RETENTIONS,
  SERVED,
  settlementOf,
  taskOf,
  TENANT,
  TTLS,
} from './random-requests.js'
import { RandomWorld, WATCHERS, type Node } from './random-world.js'
import { DAY, ending, KEEP, SECOND } from './sketch.js'

/** Nodes that work at the same time. */
const MAX_NODES = 5
/** Rounds in which every task should have come to its end. */
const ROUNDS = 60

type CommandOf<Name extends Command['do']> = Extract<Command, { do: Name }>

interface SentEnqueue {
  readonly queue: ModelQueue
  readonly units: readonly Unit[]
  readonly options: EnqueueOptions
}

interface SentWork {
  readonly node: Node
  readonly request: WorkRequest
}

/** What went wrong at a command. */
export class CommandError extends Error {
  /** Its index in the list. */
  readonly index: number

  constructor(index: number, command: Command, cause: unknown) {
    const reason = cause instanceof Error ? cause.message : String(cause)
    super(`command ${index}, ${command.do}: ${reason}`, { cause })
    this.name = 'CommandError'
    this.index = index
  }
}

/** Opens a storage, carries the commands out, and closes it. Rejects with what differed. */
export function executeRun(open: () => Promise<Opened>, commands: readonly Command[]): Promise<void> {
  return RandomWorld.use(open, (world) => new RandomRun(world).run(commands))
}

class RandomRun {
  readonly #world: RandomWorld
  readonly #enqueues: SentEnqueue[] = []
  readonly #works: SentWork[] = []
  #opened = 0

  constructor(world: RandomWorld) {
    this.#world = world
  }

  async run(commands: readonly Command[]): Promise<void> {
    for (const [index, command] of commands.entries()) {
      try {
        await this.#carryOut(command)
        await compareCounts(this.#world.storage(index), this.#world.queue(0))
      } catch (error) {
        throw new CommandError(index, command, error)
      }
    }
    await this.#finish()
  }

  #node(pick: number): Node | undefined {
    return at(this.#world.nodes, pick)
  }

  // ------------------------------------------------------------------------------------------------ one command

  async #carryOut(command: Command): Promise<void> {
    const world = this.#world
    switch (command.do) {
      case 'enqueue':
        await this.#enqueue(command.via, this.#unitsOf(command))
        break
      case 'enqueueAgain': {
        const sent = at(this.#enqueues.slice(-4), command.back)
        if (sent) await this.#enqueue(command.via, sent)
        break
      }
      case 'open':
        if (world.nodes.length < MAX_NODES) await this.#open(command)
        break
      case 'openAgain': {
        const node = at(world.everyNode, command.node)
        if (node) await this.#openAgain(node)
        break
      }
      case 'work': {
        const node = this.#node(command.node)
        if (node) await this.#work(node, command)
        break
      }
      case 'workAgain': {
        const sent = at(this.#works.slice(-12), command.back)
        if (sent && world.everyNode.includes(sent.node)) await this.#send(sent)
        break
      }
      case 'resume': {
        const node = this.#node(command.node)
        if (node) await this.#resume(node, command.ids)
        break
      }
      case 'end': {
        const node = this.#node(command.node)
        if (node) await world.end(node, command.limit)
        break
      }
      case 'crash': {
        const node = this.#node(command.node)
        world.nodes = world.nodes.filter((other) => other !== node)
        break
      }
      case 'lose': {
        const node = this.#node(command.node)
        if (node) await this.#lose(node, command)
        break
      }
      case 'advance':
        await world.advance(command.ms)
        break
      case 'reclaim':
        await world.reclaim(command.via, command.limit)
        break
      case 'drain':
        await world.drain(command.via, world.queue(command.q), command.limit)
        break
      case 'prune': {
        const retention = at(RETENTIONS, command.retention) ?? KEEP
        await world.prune(command.via, world.queue(command.q), retention, command.limit)
        break
      }
      case 'operate':
        await this.#operate(command)
        break
      case 'complete':
        await this.#complete(command)
        break
      case 'pause':
        await this.#pause(command.via, world.queue(command.q), command.paused)
        break
      case 'setGroup': {
        const { paused, cancelled, group, via, q } = command
        const flags = { ...(paused !== undefined && { paused }), ...(cancelled && { cancelled }) }
        await this.#setGroup(via, world.queue(q), groupOf(this.#world, group), flags)
        break
      }
      case 'watch':
        await this.#watch(command)
        break
      case 'look':
        await this.#look(command.via, world.queue(command.q), command.limit)
        break
      case 'record':
        await this.#record(command)
        break
      case 'claimRecords': {
        const { limit, leaseMs, maxBytes, via } = command
        const query = { prefix: at(PREFIXES, command.prefix) ?? '', limit, leaseMs, maxBytes }
        const answer = await world.storage(via).records.claimDue(TENANT, query)
        world.records.claimDue(query, world.now, answer)
        break
      }
      case 'lock':
        await this.#lock(command)
    }
  }

  // ---------------------------------------------------------------------------------------------------- enqueue

  #unitsOf({ q, units, maxQueueSize }: CommandOf<'enqueue'>): SentEnqueue {
    const queue = this.#world.queue(q)
    return {
      queue,
      units: units.map((unit) => {
        const tasks = unit.map((spec) => taskOf(this.#world, queue, spec))
        return tasks.length === 1 ? (tasks[0] as NewTask) : tasks
      }),
      options: { maxQueueSize },
    }
  }

  async #enqueue(via: number, sent: SentEnqueue): Promise<void> {
    const { queue, units, options } = sent
    this.#enqueues.push(sent)
    await this.#world.step(via, queue, async (storage) => {
      checkEnqueue(queue, units, options, await storage.queue.enqueue(queue.ref, units, options))
    })
  }

  // ------------------------------------------------------------------------------------------------------ nodes

  async #open({ via, q, kinds, ttl, retention, maxReclaims }: CommandOf<'open'>): Promise<void> {
    const queue = this.#world.queue(q)
    const session = `s${this.#opened++}`
    const options = {
      // Sessions of the other queue live on: whether a claim looks at them is open.
      ttl: q === 0 ? (at(TTLS, ttl) ?? DAY) : 100 * DAY,
      node: { id: nodeOf(session), host: 'localhost', pid: 1, concurrency: 1, queue: 'mail', kinds: [] },
      serves: { ...queue.ref, kinds: at(SERVED, kinds) ?? [] },
      retention: at(RETENTIONS, retention) ?? KEEP,
      maxReclaims,
    }
    await this.#world.step(via, queue, async (storage) => {
      await storage.session.open(session, options)
      this.#world.sessions.open(queue, session, options)
    })
    const opened = this.#world.sessions.byId.get(session)
    assert.ok(opened)
    const instance = this.#world.instance(via)
    await this.#world.listenAs({ ...opened, via: instance, ack: 0, ackTaken: 0, claims: [], heard: [] })
  }

  async #openAgain({ session, queue, via }: Node): Promise<void> {
    const options = {
      ...session,
      node: { id: nodeOf(session.id), host: 'localhost', pid: 1, concurrency: 1, queue: 'mail', kinds: [] },
      serves: { ...queue.ref, kinds: session.kinds },
    }
    await this.#world.step(via, queue, async (storage) => {
      const isOpen = await storage.session.open(session.id, options).then(
        () => true,
        () => false,
      )
      assert.equal(isOpen, this.#world.sessions.open(queue, session.id, options), 'an id of a session again')
    })
  }

  async #work(node: Node, command: CommandOf<'work'>): Promise<void> {
    const held = [...node.session.entries].map(({ id, token }) => ({ id, token }))
    const marksOf = (picks: readonly number[]): Mark[] =>
      picks.flatMap((pick) => at(pick % 5 === 0 ? node.claims : held, pick) ?? [])
    const { want, wantBytes, moreUrgentThan, renew, ackTaken } = command
    const waits = new Map<string, string[]>()
    const request: WorkRequest = {
      session: node.session.id,
      ack: node.ack,
      ackTaken: ackTaken ? node.ackTaken : 0,
      marks: marksOf(command.marks),
      reports: marksOf(command.reports).map((mark, index) => reportOf(mark, index)),
      settlements: command.ends.flatMap((end) => settlementOf(this.#world, node, held, end, waits) ?? []),
      renew,
      want,
      ...(wantBytes !== undefined && { wantBytes }),
      ...(moreUrgentThan !== undefined && { moreUrgentThan }),
    }
    const reply = await this.#send({ node, request })
    if (command.reply === 'lost') return
    this.#learn(node, request, reply)
    // The same once more, as after a reply that came too late.
    if (command.reply === 'sent twice') await this.#send({ node, request })
  }

  async #send(sent: SentWork): Promise<WorkReply> {
    const { node, request } = sent
    const { session, queue, via } = node
    this.#works.push(sent)
    if (request.want > 0) await this.#world.lookElsewhere(via, queue)
    const isPlainClaim =
      request.settlements.length === 0 && !this.#world.sessions.wouldChange(queue, this.#world.now)
    let reply: WorkReply | undefined
    const retentions = [session.retention, ...(queue.retention ? [queue.retention] : [])]
    await this.#world.step(
      via,
      queue,
      async (storage) => {
        reply = await storage.session.work(request)
        this.#world.sessions.work(request, reply)
      },
      { acting: node, isPlainClaim, retentions: request.renew ? retentions : [] },
    )
    assert.ok(reply)
    for (const entry of reply.claimed) remember(node, entry)
    return reply
  }

  /** What a node does with a reply that it hears. */
  #learn(node: Node, request: WorkRequest, reply: WorkReply): void {
    if (reply.status === 'gone') {
      this.#world.nodes = this.#world.nodes.filter((other) => other !== node)
      return
    }
    if (request.want > 0) node.ack = Math.max(node.ack, reply.token)
    node.ackTaken = reply.takenSeq
  }

  /** Its silence is long enough for a suspicion, and then for a condemnation. */
  async #lose(node: Node, { via, limit }: CommandOf<'lose'>): Promise<void> {
    const world = this.#world
    const { ttl } = node.session
    world.nodes = world.nodes.filter((other) => other !== node)
    if (ttl > 5 * SECOND) return
    await world.advance(0.7 * ttl)
    await world.reclaim(via, limit)
    await world.advance(0.5 * ttl)
    await world.reclaim(via, limit)
  }

  async #resume(node: Node, picks: readonly number[]): Promise<void> {
    const { session, queue, via } = node
    const ids = picks.map((pick) => idOf(queue, pick))
    await this.#world.step(via, queue, async (storage) => {
      const reply = await storage.session.resume(session.id, ids)
      this.#world.sessions.resume(session.id, ids, reply)
      if (reply.status === 'gone') return
      node.ack = reply.token
      for (const entry of reply.entries) remember(node, entry)
    })
  }

  // ------------------------------------------------------------------------------------- what is asked from outside

  async #operate({ via, q, operation, ids, priority, payload }: CommandOf<'operate'>): Promise<void> {
    const queue = this.#world.queue(q)
    // Most are in a state that permits it.
    const fitting = [...queue.tasks.values()].filter(({ state }) => PERMITTED[operation].includes(state))
    const named = ids.map((pick) => (pick % 4 === 0 ? undefined : at(fitting, pick)?.id) ?? idOf(queue, pick))
    // Whether the end of one task reaches another of the same call before its turn is open.
    const known = new Set(named.flatMap((id) => queue.tasks.get(id) ?? []))
    const apart = named.filter((id) => {
      const task = queue.tasks.get(id)
      return task === undefined || !queue.waitsForAny(task, known)
    })
    const details = {
      priority: at(PRIORITIES, priority) ?? 0,
      ...(operation === 'cancel' && payload && { message: 'why', code: 'SHUTDOWN' as const }),
      ...(operation === 'retry' && payload && { payload: { payload: 'another', codec: 'json' } }),
    }
    await this.#world.step(via, queue, async (storage) => {
      const { ref } = queue
      const outcomes =
        operation === 'revoke'
          ? await storage.upkeep.revoke(ref, apart)
          : operation === 'reprioritize'
            ? await storage.queue.reprioritize(ref, apart, details.priority)
            : operation === 'cancel' || operation === 'retry'
              ? await storage.queue[operation](ref, apart, details)
              : await storage.queue[operation](ref, apart)
      checkOperation(queue, operation, apart, details, outcomes)
    })
  }

  async #complete({ via, q, id: pick }: CommandOf<'complete'>): Promise<void> {
    const queue = this.#world.queue(q)
    const held = queue.in('blocked').filter((task) => task.held)
    const id = at(held, pick)?.id ?? idOf(queue, pick)
    await this.#world.step(via, queue, async (storage) => {
      checkComplete(queue, id, 'completed', await storage.queue.complete(queue.ref, id, 'completed', 'json'))
    })
  }

  async #pause(via: number, queue: ModelQueue, paused: boolean): Promise<void> {
    await this.#world.step(via, queue, async (storage) => {
      await storage.queue.pause(queue.ref, paused)
      queue.pause(paused)
    })
  }

  async #setGroup(
    via: number,
    queue: ModelQueue,
    group: string,
    flags: { paused?: boolean; cancelled?: true },
  ): Promise<void> {
    await this.#world.step(via, queue, async (storage) => {
      await storage.queue.setGroup(queue.ref, group, flags)
      queue.setGroup(group, flags)
      queue.sweep()
    })
  }

  async #watch({ via, q, ids, watcher: pick, ttl }: CommandOf<'watch'>): Promise<void> {
    const queue = this.#world.queue(q)
    const watcher = at(WATCHERS, pick) ?? ''
    const named = ids.map((one) => idOf(queue, one))
    await this.#world.step(via, queue, async (storage) => {
      const outcomes = await storage.queue.watch(queue.ref, named, { watcher, ttl })
      for (const [index, id] of named.entries()) checkWatch(queue, id, watcher, ttl, outcomes[index])
    })
  }

  async #look(via: number, queue: ModelQueue, limit: number): Promise<void> {
    const world = this.#world
    queue.begin(world.now)
    await lookAt(world.storage(via), queue, limit)
    for (const prefix of PREFIXES)
      await lookAtRecords(world.storage(via), world.records, world.now, { tenant: TENANT, prefix, limit })
  }

  async #record({ via, key: pick, what, version, dueIn, expiresIn }: CommandOf<'record'>): Promise<void> {
    const { records: model, now } = this.#world
    const { records } = this.#world.storage(via)
    const key = at(RECORDS, pick) ?? ''
    if (what === 'anew') model.delete(key, undefined, now, await records.delete(TENANT, key))
    const present = model.get(key, now)?.version ?? 0
    const ifVersion = { any: undefined, present, other: present + 1, none: 0 }[version]
    if (what === 'get') {
      const record = await records.get(TENANT, key)
      assert.equal(record === undefined, present === 0, `the record ${key}`)
      model.check(record ? [record] : [], now)
    } else if (what === 'delete') {
      const answer = await records.delete(TENANT, key, ifVersion === undefined ? {} : { ifVersion })
      model.delete(key, ifVersion, now, answer)
    } else {
      const options = { ifVersion, dueIn, expiresIn, labels: [key] }
      const value = `value ${pick}`
      const [answer = 'conflict'] =
        pick % 2 > 0
          ? await records.putAll(TENANT, [{ key, value, options }])
          : [await records.put(TENANT, key, value, options)]
      model.put(key, value, options, now, answer)
    }
  }

  async #lock({ via, key: pick, owner: who, what, ttl }: CommandOf<'lock'>): Promise<void> {
    const { records: model, now } = this.#world
    const { locks } = this.#world.storage(via)
    const [key, owner] = [at(RECORDS, pick) ?? '', at(OWNERS, who) ?? '']
    if (what === 'acquire') model.acquire(key, owner, ttl, now, await locks.acquire(TENANT, key, owner, ttl))
    else if (what === 'extend')
      model.extend(key, owner, ttl, now, await locks.extend(TENANT, key, owner, ttl))
    else model.release(key, owner, now, await locks.release(TENANT, key, owner))
  }

  // ------------------------------------------------------------------------------------------- the end of a run

  /** Brings every task to its end, and looks whether any is lost, or cannot come to one. */
  async #finish(): Promise<void> {
    const world = this.#world
    for (const queue of world.queues) await this.#look(0, queue, 100)
    // Whoever is left is gone: what they hold comes back.
    for (const node of world.everyNode) {
      if (node.session.over === undefined || node.session.entries.size > 0) await world.end(node, 100)
    }
    await world.reclaim(1, 1000)
    for (const [q, queue] of world.queues.entries()) {
      await this.#pause(0, queue, false)
      for (const group of queue.groups.values())
        if (group.paused && [...queue.tasks.values()].some((task) => task.group === group))
          await this.#setGroup(1, queue, group.id, { paused: false })
      await this.#workOff(q, queue)
      await this.#look(1, queue, 100)
      const { mended } = await world.storage(0).upkeep.reconcile(queue.ref, 1000)
      assert.equal(mended, 0, 'reconcile found something to mend')
    }
    await world.advance(2 * SECOND)
    await patiently(() => {
      for (const listener of world.listeners) {
        unheard(listener)
        const [id] = listener.owed.keys()
        if (id !== undefined) return `${listener.name} was never told of the end of ${id}`
      }
      return undefined
    }, world.messageDelay)
  }

  async #workOff(q: number, queue: ModelQueue): Promise<void> {
    const world = this.#world
    await this.#open({ do: 'open', via: 0, q, kinds: 0, ttl: 0, retention: 0, maxReclaims: 1 })
    const node = world.everyNode.at(-1) as Node
    const unfinished = (): boolean => [...queue.tasks.values()].some((task) => !isEnded(task))
    for (let round = 0; unfinished(); round++) {
      assert.ok(round < ROUNDS, 'tasks do not come to an end')
      const settlements = [...node.session.entries].map((task) => ending(task, 'success'))
      const base = { session: node.session.id, ack: node.ack, ackTaken: 0, marks: [], reports: [] }
      const request: WorkRequest = { ...base, settlements, renew: false, want: 5 }
      this.#learn(node, request, await this.#send({ node, request }))
      if (node.session.entries.size > 0 || queue.in('pending').length > 0) continue
      const held = queue.in('blocked').find((task) => task.held)
      const due = queue.nextDueIn()
      if (held) {
        const id = held.id
        await world.step(0, queue, async (storage) => {
          checkComplete(queue, id, 'late', await storage.queue.complete(queue.ref, id, 'late', 'json'))
        })
      } else if (due !== undefined) await world.advance(due)
    }
  }
}

function remember(node: Node, { id, token }: Mark): void {
  if (!node.claims.some((claim) => claim.id === id && claim.token === token)) node.claims.push({ id, token })
}
