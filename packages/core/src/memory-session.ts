/**
 * Sessions of the memory storage: opened, heard, suspected, condemned, drained.
 *
 * A session that is over is remembered for a day, so that every call that names it is answered `gone`, its id is not
 * used again, and a repeated settlement still finds the queue in which it was accepted.
 */
import { NeoTaskError, optionError } from './errors.js'
import { Search, claim } from './memory-claim.js'
import { Lease } from './memory-lease.js'
import type { MemoryQueue } from './memory-queue.js'
import type { MemoryRecords } from './memory-records.js'
import { DAY_MS } from './memory-retention.js'
import { settle } from './memory-settle.js'
import { keep, rareOf, told, type Task } from './memory-task.js'
import { claimedOf, settledTokenOf } from './memory-views.js'
import { PriorityQueue } from './priority-queue.js'
import {
  type QueueRef,
  type ReclaimReport,
  type Report,
  type ResumeReply,
  type SessionFace,
  type SessionOptions,
  type WorkReply,
  type WorkRequest,
} from './storage.js'

/** Due tasks, deadlines and entries of dead sessions that one claim deals with, of each. */
const CLAIM_LIMIT = 200
/** Records that one renewal removes. */
const RENEWAL_PRUNE = 100
/** Of T: silent for so long is suspect, suspect for so long is condemned. */
const SUSPECT_AFTER = 0.6
const CONDEMN_AFTER = 0.4

class Session extends Lease {
  readonly queue: MemoryQueue
  beatAt: number
  suspectAt: number | undefined = undefined

  constructor(id: string, queue: MemoryQueue, options: SessionOptions, now: number) {
    super(id, options)
    this.queue = queue
    this.beatAt = now
  }
}

export interface SessionsOptions {
  readonly now: () => number
  readonly queueOf: (ref: QueueRef) => MemoryQueue
  readonly records: MemoryRecords
  readonly maxWork: number
  readonly maxLogs: number
}

export class MemorySessions implements SessionFace {
  readonly #options: SessionsOptions
  readonly #byId = new Map<string, Session>()
  readonly #living = new Set<Session>()
  /** Over, and not empty yet: whoever comes takes a piece. */
  readonly #draining = new Set<Session>()
  /** Sessions that are over, by the time at which they may be forgotten. */
  readonly #over = new PriorityQueue<Session>()
  /** One counter for the whole storage. */
  #token = 0
  #lookedAt: number | undefined

  constructor(options: SessionsOptions) {
    this.#options = options
  }

  async open(id: string, options: SessionOptions): Promise<void> {
    if (!(options.ttl >= 1_000)) throw optionError('ttl', 'at least 1000 ms', options.ttl)
    const now = this.#options.now()
    const known = this.#byId.get(id)
    if (known !== undefined && known.isOver()) {
      throw new NeoTaskError('ILLEGAL_STATE', `session ${id} is over, and an id is not used again`)
    }
    if (known !== undefined) {
      this.#beat(known, now)
      return
    }
    const queue = this.#options.queueOf(options.serves)
    const session = new Session(id, queue, options, now)
    this.#byId.set(id, session)
    this.#living.add(session)
    queue.leases.add(session)
    queue.retention = options.retention
    this.#register(session)
  }

  async work(request: WorkRequest): Promise<WorkReply> {
    const now = this.#options.now()
    const session = this.#byId.get(request.session)
    if (session === undefined) return unknownReply(request)
    const { queue } = session

    for (const { id, token } of request.marks) {
      const task = queue.tasks.get(id)
      if (task !== undefined && session.holds(task, token)) this.#mark(session, task)
    }
    const staleReports = this.#report(session, request.reports)
    let stale: number[] = NONE
    for (let i = 0; i < request.settlements.length; i++) {
      const settlement = request.settlements[i] as (typeof request.settlements)[number]
      if (settle(queue, session, settlement, now)) continue
      if (stale === NONE) stale = []
      stale.push(i)
    }
    if (queue.hasBacklog) queue.spread(now)

    const reply = { stale, staleReports }
    if (session.isOver()) return this.#gone(session, reply, now)
    session.acknowledge(request.ackTaken)
    if (request.renew) {
      this.#beat(session, now)
      queue.prune(session.options.retention, now, RENEWAL_PRUNE)
    }
    if (request.want <= 0) return this.#reply(session, 'ok', [], reply, now)
    if (session.token !== request.ack) {
      return this.#reply(session, 'again', entriesAfter(session, request.ack), reply, now)
    }

    queue.promoteDue(now, CLAIM_LIMIT)
    queue.passDeadlines(now, CLAIM_LIMIT)
    this.#look(now)
    if (this.#draining.size > 0) this.#drain(now, CLAIM_LIMIT, queue)
    // The look may have condemned this very session.
    if (session.isOver()) return this.#gone(session, reply, now)
    if (queue.hasBacklog) queue.spread(now)
    if (queue.paused) {
      queue.wakeUps.idle.add(session)
      return this.#reply(session, 'ok', [], reply, now)
    }
    const limits = { ...request, want: Math.min(request.want, this.#options.maxWork) }
    const claimed = claim(queue, session, limits, now, () => (session.token = ++this.#token))
    return this.#reply(session, 'ok', claimed, reply, now)
  }

  async resume(id: string, ids: readonly string[]): Promise<ResumeReply> {
    const now = this.#options.now()
    const session = this.#byId.get(id)
    const tasks = ids.map((name) => {
      const task = session?.queue.tasks.get(name)
      return task && { state: task.where.state, settledToken: settledTokenOf(task) }
    })
    if (session === undefined || session.isOver()) {
      return { status: 'gone', token: session?.token ?? 0, entries: [], tasks }
    }
    this.#beat(session, now)
    return { status: 'ok', token: session.token, entries: entriesAfter(session, 0), tasks }
  }

  async end(id: string, limit: number): Promise<'done' | 'more'> {
    const now = this.#options.now()
    const session = this.#byId.get(id)
    if (session === undefined) return 'done'
    if (!session.isOver()) this.#close(session, 'ended', now)
    this.#drainOne(session, now, limit)
    session.queue.conclude(now)
    return session.size === 0 ? 'done' : 'more'
  }

  /** Looks at every session, and takes back at most `limit` entries of those that are over. */
  reclaim(limit: number): ReclaimReport {
    const now = this.#options.now()
    const report = { condemned: [] as string[], reclaimed: [] as Reclaimed[], poisoned: [] as Reclaimed[] }
    this.#lookedAt = undefined
    this.#look(now)
    for (const session of this.#draining) if (session.over === 'condemned') report.condemned.push(session.id)
    this.#drain(now, limit, undefined, report)
    const suspects = [...this.#living].filter((session) => session.suspectAt !== undefined)
    return { suspected: suspects.map((session) => session.id), ...report }
  }

  /** Takes a running task away; it counts as a reclaim. */
  revoke(queue: MemoryQueue, task: Task, now: number): void {
    const lease = queue.takeAway(task, 'revoked')
    if (lease !== undefined) takeBack(queue, task, true, lease.options.maxReclaims, now)
  }

  // ---------------------------------------------------------------------------------------- parts of work

  #mark(session: Session, task: Task): void {
    session.mark(task)
    const rare = task.rare
    if (rare === undefined) return
    // It has started: it is no suspect, and does not expire any more.
    rare.probation = false
    session.queue.clearDeadline(rare)
  }

  /** @returns the indices of those whose entry is gone */
  #report(session: Session, reports: readonly Report[]): number[] {
    let stale: number[] = NONE
    for (let i = 0; i < reports.length; i++) {
      const report = reports[i] as Report
      const task = session.queue.tasks.get(report.id)
      if (task === undefined || !session.holds(task, report.token)) {
        if (stale === NONE) stale = []
        stale.push(i)
        continue
      }
      const rare = rareOf(task)
      if (report.progress !== undefined) rare.progress = keep(report.progress)
      if (report.checkpoint !== undefined) rare.checkpoint = keep(report.checkpoint)
      if (report.logs !== undefined)
        rare.logs = [...(rare.logs ?? []), ...report.logs].slice(-this.#options.maxLogs)
    }
    return stale
  }

  #reply(
    session: Session,
    status: 'ok' | 'again',
    claimed: WorkReply['claimed'],
    reply: Pick<WorkReply, 'stale' | 'staleReports'>,
    now: number,
  ): WorkReply {
    const { queue } = session
    const search = queue.paused ? undefined : new Search(queue, session, now)
    const head = search?.next()?.head()
    // It gave up among tasks of others: the session has to come again, for there may be some of its own behind.
    if (search?.isExhausted) queue.wakeUps.call(session)
    queue.conclude(now)
    const nextTime = queue.hasBacklog ? now : queue.nextTime()
    return {
      status,
      token: session.token,
      claimed,
      stale: reply.stale,
      staleReports: reply.staleReports,
      taken: session.taken(),
      takenSeq: session.takenSeq,
      held: session.size,
      nextDueIn: nextTime === Infinity ? undefined : Math.max(0, nextTime - now),
      head: head?.priority,
      paused: queue.paused,
    }
  }

  #gone(session: Session, reply: Pick<WorkReply, 'stale' | 'staleReports'>, now: number): WorkReply {
    session.queue.conclude(now)
    return { ...goneReply(session.token), ...reply }
  }

  // -------------------------------------------------------------------------------------- life and death

  #beat(session: Session, now: number): void {
    session.beatAt = now
    session.suspectAt = undefined
    this.#register(session)
  }

  /** The node's record, for as long as the session lives without another beat. */
  #register({ id, options }: Session): void {
    this.#options.records.set(options.serves.tenant, nodeKey(id), JSON.stringify(options.node), options.ttl)
  }

  /** Marks silent sessions suspect, and condemns those that have been suspect for long. Once in a ms. */
  #look(now: number): void {
    if (this.#lookedAt === now) return
    this.#lookedAt = now
    for (const session of this.#living) {
      const { beatAt, suspectAt, options } = session
      // A time in the future tells that the clock was put back: it counts from now.
      if (suspectAt === undefined || suspectAt > now) {
        if (beatAt > now || now - beatAt >= SUSPECT_AFTER * options.ttl) session.suspectAt = now
      } else if (now - suspectAt >= CONDEMN_AFTER * options.ttl) this.#close(session, 'condemned', now)
    }
    while ((this.#over.peekKey() ?? Infinity) <= now) {
      const session = this.#over.pop() as Session
      if (session.size === 0) this.#byId.delete(session.id)
      else this.#over.push(now + DAY_MS, session)
    }
  }

  #close(session: Session, how: 'ended' | 'condemned', now: number): void {
    session.over = how
    this.#living.delete(session)
    this.#draining.add(session)
    this.#over.push(now + DAY_MS, session)
    session.queue.wakeUps.idle.delete(session)
    void this.#options.records.delete(session.options.serves.tenant, nodeKey(session.id))
  }

  /** Takes entries of sessions that are over back. @param own the queue whose step this is, concluded by its caller */
  #drain(now: number, limit: number, own: MemoryQueue | undefined, report?: Taking): void {
    let left = limit
    for (const session of this.#draining) {
      if (left > 0) left -= this.#drainOne(session, now, left, report)
      if (session.queue !== own) session.queue.conclude(now)
      if (left <= 0) return
    }
  }

  #drainOne(session: Session, now: number, limit: number, report?: Taking): number {
    const { queue } = session
    let count = 0
    for (let task = session.oldest; task !== undefined && count < limit; task = session.oldest) {
      const started = task.started
      const isFree = session.over === 'ended'
      count++
      session.leave(task)
      if (isFree) {
        queue.toReady(task, now)
        continue
      }
      const poisoned = takeBack(queue, task, started, session.options.maxReclaims, now)
      report?.[poisoned ? 'poisoned' : 'reclaimed'].push({ ...queue.ref, id: task.id })
    }
    if (session.size === 0) {
      this.#draining.delete(session)
      queue.leases.delete(session)
    }
    return count
  }
}

type Reclaimed = QueueRef & { readonly id: string }

interface Taking {
  readonly reclaimed: Reclaimed[]
  readonly poisoned: Reclaimed[]
}

const NONE: number[] = []
const nodeKey = (session: string): string => `node:${session}`

/**
 * Puts a task whose entry was taken back in its old place, or ends it when that happened too often.
 *
 * @returns whether it was ended
 */
function takeBack(
  queue: MemoryQueue,
  task: Task,
  counts: boolean,
  maxReclaims: number,
  now: number,
): boolean {
  const rare = rareOf(task)
  if (!counts) rare.probation = true
  else if (++rare.reclaims > maxReclaims) {
    queue.end(task, 'failed', 'POISON', now)
    return true
  }
  queue.toReady(task, now)
  return false
}

/** What the session holds with a newer token. */
function entriesAfter(session: Session, token: number): WorkReply['claimed'] {
  const entries: WorkReply['claimed'][number][] = []
  for (let task = session.newest; task !== undefined && task.token > token; task = task.prev) {
    entries.push(claimedOf(session.queue, task, told(task.payload), 0))
  }
  return entries.reverse()
}

const goneReply = (token: number): WorkReply => ({
  status: 'gone',
  token,
  claimed: [],
  stale: [],
  staleReports: [],
  taken: [],
  takenSeq: 0,
  held: 0,
  nextDueIn: undefined,
  head: undefined,
  paused: false,
})

/** Nothing of a session that was never heard of can be valid. */
const unknownReply = ({ settlements, reports }: WorkRequest): WorkReply => ({
  ...goneReply(0),
  stale: [...settlements.keys()],
  staleReports: [...reports.keys()],
})
