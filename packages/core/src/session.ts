/**
 * The node's side of the session protocol: one `work` call in flight at a time, carrying whatever has come up since
 * the last one (ends of attempts, start marks, reports, a beat, a claim), and with some storages a second one beside it
 * with ends alone.
 *
 * What it guarantees:
 * - a settlement is kept and sent again, identical, until the storage has answered it;
 * - of a claim's reply only entries newer than `ack` are taken, so a lost or repeated reply strands nothing;
 * - {@link Session.fenced} turns true before the storage can give this node's tasks away, judged by the time at
 *   which the last answered renewal was *sent*, on the monotonic and the wall clock, whichever went further;
 * - a session that is over is never used again: a new one is opened under a new id;
 * - a storage that is back in an older state is followed: what it says this session holds is held.
 */
import { randomBytes } from 'node:crypto'
import { setImmediate, type Clock, type Timer } from './clock.js'
import { withDeadline } from './deadline.js'
import { MOST_LINES } from './execution.js'
import { Fence, type SentAt } from './fence.js'
import type { Logger } from './options.js'
import { Outbox, type Flight } from './outbox.js'
import {
  CHANGED,
  headChannel,
  wakeChannel,
  type Claimed,
  type Handed,
  type Mark,
  type Report,
  type SessionOptions,
  type Settlement,
  type Storage,
  type Taken,
  type WorkReply,
  type WorkRequest,
} from './storage.js'

/** What a node would take now. */
export interface Demand {
  readonly want: number
  /** How many of them would start at once. */
  readonly free?: number | undefined
  /** Only tasks more urgent than this. */
  readonly moreUrgentThan?: number | undefined
}

/** The parts of the pool that the session speaks to. None of these may throw. */
export interface SessionHost {
  /** Asked before each call; asked often, so it must be cheap. */
  demand(): Demand
  /** Tasks that this node holds from now on. */
  claimed(entries: readonly Claimed[]): void
  /** The most urgent task that is still ready, and whether the queue is paused. */
  observed(head: number | undefined, paused: boolean): void
  /** A message said that a task of this priority became ready. */
  urgent(priority: number): void
  /** The storage took these away. */
  taken(entries: readonly Taken[]): void
  /** Start marks to write: every attempt of that session that runs unmarked, and those that wait for their mark. */
  marks(session: string): Mark[]
  /** These marks were written. */
  marked(marks: readonly Mark[]): void
  /** Reports that are due. */
  reports(): Report[]
  /** These were answered; `stale` says which were dropped. */
  reported(reports: readonly Report[], stale: ReadonlySet<number>): void
  /** The end of an attempt was answered. */
  settled(settlement: Settlement, accepted: boolean): void
  /** This node can no longer prove that it holds anything. It may turn out that it still does. */
  fenced(): void
  /** The proof is back: buffered tasks may start again. */
  unfenced(): void
  /** The session is over: nothing of it is held any more. */
  lost(): void
  /** Tasks that this node believes to hold under that session, without those whose settlement waits here. */
  holding(session: string): string[]
  /** Called with each look for work. */
  tick(): void
  /** A call failed, and will be repeated. */
  troubled(error: unknown): void
}

/**
 * A node with nothing to do asks this often, in ms: what a lost wake-up costs at most. It leaves room for what a driver
 * calls by itself, so that an idle node costs no more than one call a second.
 */
const POLL = 1250
/** Share of the session's time to live. */
const BEAT = 0.2
/** Pauses between repeats of a failed call, in ms. */
const FIRST_PAUSE = 20
const LONGEST_PAUSE = 1000

/** Ends that are worth a call of their own. */
const ENOUGH = 50

export class Session {
  readonly #storage: Storage
  readonly #options: SessionOptions
  readonly #host: SessionHost
  readonly #clock: Clock
  readonly #logger: Logger
  readonly #callTimeout: number

  #id = ''
  #ack = 0
  #ackTaken = 0
  readonly #outbox = new Outbox()
  readonly #fence: Fence
  /** Ends are under way in a call beside the other, or about to be. */
  #relieving = false
  /** One was not answered while this call is out: they wait for it. */
  #besideFailed = false
  /** Reports of a call that failed; they go again, before newer ones. */
  #unanswered: Report[] = []
  #state: 'new' | 'open' | 'ending' | 'ended' = 'new'
  #scheduled = false
  /** A call went out at once in this turn of the loop. */
  #hurried = false
  #calling = false
  /** Nothing was left when it last looked; ends with a wake-up, the poll or a due task. */
  #quiet = false
  /** What was handed while a call was out: which of the two came first is not known before its reply. */
  #handed: Handed[] = []
  /** Counted when messages come in: one may overtake the reply of the claim that it belongs to. */
  #wakes = 0
  /** Something may have to be said. */
  #poked = false
  /** Something must be asked even if there is nothing to say. */
  #forced = false
  #poll: Timer | undefined
  #pause = 0
  /** A failed call is about to be repeated. */
  #repeating = false
  /** Monotonic ms of the last answer, and of the time at which the next task is due by it. */
  #answeredAt = 0
  #dueAt = Infinity
  /** The most urgent priority that was told while a call was out, which may not know of it. */
  #overtook = Infinity
  #mismatches = 0
  #unsubscribe: (() => Promise<void>)[] = []
  #listening = false
  #flushed: (() => void)[] = []

  constructor(
    storage: Storage,
    options: SessionOptions,
    host: SessionHost,
    context: { clock: Clock; logger: Logger; callTimeout: number },
  ) {
    this.#storage = storage
    this.#options = options
    this.#host = host
    this.#clock = context.clock
    this.#logger = context.logger
    this.#callTimeout = context.callTimeout
    this.#fence = new Fence(options.ttl, this.#clock, (silence) => this.#fenceRaised(silence))
  }

  /** The id of the present session. */
  get id(): string {
    return this.#id
  }

  get open(): boolean {
    return this.#state === 'open'
  }

  /** Whether handlers may not be called now, because others may hold the tasks. */
  get fenced(): boolean {
    return this.#state !== 'open' || this.#fence.check()
  }

  /** The same when the monotonic time is known already, in ms. */
  fencedAt(now: number): boolean {
    return this.#state !== 'open' || this.#fence.check(now)
  }

  /** A poll carries the beat, so it comes as often as the more frequent of the two must. */
  get #beatEvery(): number {
    return Math.min(POLL, this.#options.ttl * BEAT)
  }

  /** ms since the last answered renewal was sent. */
  get silence(): number {
    return this.#fence.silence
  }

  async start(): Promise<void> {
    if (this.#state !== 'new') return
    await this.#openNew()
    this.#state = 'open'
    this.#force()
  }

  /** Settles an attempt; the host hears how it was answered. */
  settle(settlement: Settlement, session: string): void {
    this.#outbox.push(settlement, session)
    this.#schedule()
  }

  /** There may be something to ask for, or a report to send. */
  poke(): void {
    this.#poked = true
    this.#schedule()
  }

  /** There is something to say even if the demand is nil. */
  force(): void {
    this.#force()
  }

  /** Resolves when every settlement has been answered. */
  async flush(): Promise<void> {
    if (this.#outbox.isEmpty && !this.#calling) return
    await new Promise<void>((resolve) => {
      this.#flushed.push(resolve)
      this.#schedule()
    })
  }

  /** Gives back what is left and ends the session. The host asks for nothing any more. */
  async end(): Promise<void> {
    if (this.#state !== 'open') {
      this.#state = 'ended'
      return
    }
    this.#state = 'ending'
    this.#poll?.cancel()
    this.#fence.end()
    await this.#unsubscribeAll()
    const id = this.#id
    const step = (): Promise<'done' | 'more'> =>
      this.#deadline(this.#storage.session.end(id, this.#storage.limits.work), 'end')
    try {
      while ((await step()) === 'more');
    } finally {
      this.#state = 'ended'
    }
  }

  // -------------------------------------------------------------------------------------------------- calls

  #schedule(): void {
    // While a call is out or about to be repeated, whatever comes up rides in the next one.
    if (this.#calling) this.#relieve()
    if (this.#scheduled || this.#calling || this.#repeating) return
    if (this.#state === 'ended' || this.#state === 'new') return
    this.#scheduled = true
    setImmediate(() => {
      this.#scheduled = false
      void this.#turn()
    })
  }

  #force(): void {
    this.#forced = true
    this.#quiet = false
    this.#schedule()
  }

  /**
   * Where a call takes no time, the first that a message asks for goes out at once instead of at the end of the turn:
   * only the first, so that others still have the loop.
   */
  #hurry(): void {
    if (this.#storage.queue.enqueueNow === undefined || this.#hurried || this.#repeating) return
    this.#hurried = true
    setImmediate(() => (this.#hurried = false))
    void this.#turn()
  }

  /** One call, if there is something to say. Never rejects. */
  async #turn(): Promise<void> {
    if (this.#calling || this.#state === 'ended' || this.#state === 'new') return
    const call = this.#compose()
    if (call === undefined) {
      if (this.#outbox.isEmpty) this.#resolveFlushed()
      this.#arm()
      return
    }
    const { request, flight } = call
    this.#calling = true
    const sent = this.#fence.now()
    const wakes = this.#wakes
    this.#overtook = Infinity
    let reply: WorkReply | undefined
    try {
      reply = await this.#deadline(this.#storage.session.work(request), 'work')
      this.#outbox.landed(flight)
      await this.#read(request, reply, sent, wakes !== this.#wakes)
      this.#pause = 0
    } catch (error) {
      if (reply === undefined) {
        this.#outbox.lost(flight)
        this.#unanswered.unshift(...request.reports)
      }
      this.#retryAfter(error)
      return
    } finally {
      this.#calling = false
      this.#besideFailed = false
      this.#takeHanded()
    }
    if (this.#outbox.isEmpty) this.#resolveFlushed()
    if (this.#hasWork()) this.#schedule()
    else this.#arm()
  }

  /**
   * Where the storage works in another process: ends that gather while a call is out go in one beside it, at the end of the
   * turn, so that the storage is never without something to do. Settlements need no order among calls; all else, and above
   * all claims, stays with the one call.
   */
  #relieve(): void {
    if ((this.#storage.limits.flights ?? 1) < 2 || this.#relieving || this.#besideFailed) return
    if (this.#outbox.waiting < ENOUGH) return
    this.#relieving = true
    setImmediate(() => {
      if (this.#calling && this.#state === 'open') void this.#settleBeside()
      else this.#relieving = false
    })
  }

  /** Never rejects: what it could not send goes with the next call, which finds out what is wrong. */
  async #settleBeside(): Promise<void> {
    const flight = this.#outbox.take(this.#id, this.#storage.limits.work)
    if (flight.settlements.length === 0) {
      this.#relieving = false
      return
    }
    // What the attempts said last goes along with their ends.
    const reports = merge(this.#unanswered.splice(0), this.#host.reports())
    const request = { ...this.#plainRequest(flight), reports }
    try {
      const reply = await this.#deadline(this.#storage.session.work(request), 'work')
      this.#outbox.landed(flight)
      this.#tellSettled(flight.settlements, reply)
      this.#host.reported(reports, new Set(reply.staleReports))
    } catch {
      this.#unanswered.unshift(...reports)
      this.#outbox.lost(flight)
      this.#besideFailed = true
    }
    this.#relieving = false
    this.#schedule()
  }

  #deadline<T>(call: Promise<T>, what: string): Promise<T> {
    return withDeadline(call, this.#callTimeout, this.#clock, what)
  }

  /** The next request, with the ends that it takes along, or nothing when there is nothing to say. */
  #compose(): { readonly request: WorkRequest; readonly flight: Flight } | undefined {
    const session = this.#outbox.session ?? this.#id
    const { work: limit } = this.#storage.limits
    const flight = this.#outbox.take(session, limit)
    if (session !== this.#id) return { request: this.#plainRequest(flight), flight }

    const forced = this.#forced
    this.#forced = false
    this.#poked = false
    const renew = this.#state === 'open' && this.silence >= this.#beatEvery * 0.9
    // A node that has something to say all the time never sleeps until its poll, and looks as often all the same.
    if (renew || this.#clock.monotonic() >= this.#dueAt) this.#quiet = false
    const demand = this.#demand()
    const reports = merge(this.#unanswered.splice(0), this.#host.reports())
    const { settlements } = flight
    if (!forced && settlements.length === 0 && demand.want === 0 && reports.length === 0 && !renew)
      return undefined
    const request = {
      session,
      ack: this.#ack,
      ackTaken: this.#ackTaken,
      marks: this.#host.marks(this.#id),
      reports,
      settlements,
      renew,
      want: Math.min(demand.want, limit),
      moreUrgentThan: demand.moreUrgentThan,
      free: demand.free ?? 0,
    }
    return { request, flight }
  }

  /** A node whose last claim came back short need not claim again, and only tells how much it could start by now. */
  #demand(): Demand {
    if (this.#state !== 'open' || this.fenced) return { want: 0 }
    const demand = this.#host.demand()
    return this.#quiet ? { want: 0, free: demand.free } : demand
  }

  #plainRequest({ session, settlements }: Flight): WorkRequest {
    return { session, ack: 0, ackTaken: 0, marks: [], reports: [], settlements, renew: false, want: 0 }
  }

  /** @param woken whether a message came while the call was out */
  async #read(request: WorkRequest, reply: WorkReply, sent: SentAt, woken: boolean): Promise<void> {
    this.#tellSettled(request.settlements, reply)
    this.#host.reported(request.reports, new Set(reply.staleReports))
    if (request.session !== this.#id) return
    if (reply.status === 'gone') {
      await this.#reopen()
      return
    }
    if (request.renew) this.#fence.renewed(sent)
    // It knows less than it has told already: it has lost writes, by a failover for example.
    if (reply.token < request.ack || reply.takenSeq < this.#ackTaken) {
      this.#logger.warn({ session: this.#id }, 'the storage is in an older state; what it holds counts')
      await this.#resume([])
      this.#ackTaken = Math.min(this.#ackTaken, reply.takenSeq)
      this.#quiet = false
      return
    }
    if (reply.takenSeq > this.#ackTaken) {
      this.#host.taken(reply.taken)
      this.#ackTaken = reply.takenSeq
    }
    if (reply.status === 'ok') this.#host.marked(request.marks)
    const known = this.#ack
    const fresh = reply.claimed.filter((entry) => entry.token > known)
    // Any other reply may know of a claim whose own reply was lost, and does not bring its entries.
    if (request.want > 0 && reply.token > known) this.#ack = reply.token
    if (this.#fence.isUp) {
      await this.#resume(fresh)
      return
    }
    if (fresh.length > 0) this.#host.claimed(fresh)
    if (reply.status === 'ok') {
      this.#answeredAt = this.#clock.monotonic()
      this.#dueAt = this.#answeredAt + (reply.nextDueIn ?? Infinity)
      const isEmpty = reply.paused || reply.head === undefined
      // Only a claim that came back short is remembered by the storage, which then tells what comes.
      if (request.want > 0) this.#quiet = isEmpty && reply.claimed.length < request.want && !woken
      else if (!isEmpty) this.#quiet = false
      const head = Math.min(reply.head ?? Infinity, this.#overtook)
      this.#host.observed(head === Infinity ? undefined : head, reply.paused)
      await this.#compareHeld(request, reply)
    }
  }

  /** Tells the host which ends counted. */
  #tellSettled(settlements: readonly Settlement[], reply: WorkReply): void {
    const stale = reply.stale.length === 0 ? undefined : new Set(reply.stale)
    for (let i = 0; i < settlements.length; i++) {
      this.#host.settled(settlements[i] as Settlement, stale === undefined || !stale.has(i))
    }
  }

  #retryAfter(error: unknown): void {
    if (this.#state === 'ended') return
    this.#host.troubled(error)
    this.#repeating = true
    this.#pause = Math.min(LONGEST_PAUSE, Math.max(FIRST_PAUSE, this.#pause * 2))
    const jittered = this.#pause * (0.5 + Math.random() / 2)
    this.#clock.after(
      jittered,
      () => {
        this.#repeating = false
        this.#forced = true
        void this.#turn()
      },
      { hold: true },
    )
  }

  #resolveFlushed(): void {
    const flushed = this.#flushed
    this.#flushed = []
    for (const resolve of flushed) resolve()
  }

  /** Whether another call is due at once. */
  #hasWork(): boolean {
    if (this.#state === 'ended') return false
    if (this.#forced || this.#poked || this.#outbox.waiting > 0) return true
    return this.#state === 'open' && !this.#quiet && !this.fenced && this.#host.demand().want > 0
  }

  /** Sleeps until the next beat, poll or due task. */
  #arm(): void {
    this.#poll?.cancel()
    if (this.#state !== 'open') return
    // What is due wakes only a node that would take it; one that is full asks when a slot is free.
    const dueAt = this.#host.demand().want > 0 ? this.#dueAt : Infinity
    const wakeAt = Math.min(this.#answeredAt + this.#beatEvery, dueAt)
    this.#poll = this.#clock.after(
      wakeAt - this.#clock.monotonic(),
      () => {
        this.#host.tick()
        if (this.#unsubscribe.length === 0) void this.#listen()
        this.#force()
      },
      { hold: true, poll: true },
    )
  }

  // ------------------------------------------------------------------------------------------------ sessions

  async #openNew(): Promise<void> {
    const id = randomBytes(9).toString('base64url')
    const sent = this.#fence.now()
    await this.#deadline(this.#storage.session.open(id, this.#options), 'open')
    if (this.#state === 'ending' || this.#state === 'ended') {
      // Nobody would use it, nor end it.
      await this.#storage.session.end(id, this.#storage.limits.work).catch(() => {})
      return
    }
    this.#id = id
    this.#ack = 0
    this.#handed = []
    this.#ackTaken = 0
    this.#mismatches = 0
    this.#quiet = false
    this.#answeredAt = sent.monotonic
    this.#dueAt = Infinity
    this.#fence.lower(sent)
    const listening = this.#listen()
    // The calls of a node that works already do not wait for its ears.
    if (this.#state === 'new') await listening
  }

  /** Messages only save time: while there are none, the poll finds everything, and tries this again. Never rejects. */
  async #listen(): Promise<void> {
    if (this.#listening) return
    this.#listening = true
    const id = this.#id
    const { notices } = this.#storage
    const wake = (message: string): void => this.#woken(id, notices.handedIn?.(message))
    const heard = (message: string): void => this.#heard(message)
    try {
      await this.#unsubscribeAll()
      const ends = [
        await this.#deadline(notices.subscribe(wakeChannel(id), wake), 'subscribe'),
        await this.#deadline(notices.subscribe(headChannel(this.#options.serves), heard), 'subscribe'),
      ]
      this.#unsubscribe = ends
    } catch (error) {
      this.#logger.warn({ err: error, session: id }, 'messages cannot be heard now; the poll goes on')
    } finally {
      this.#listening = false
    }
    // Another session was opened, or this one ended, meanwhile.
    if (this.#state === 'ending' || this.#state === 'ended') await this.#unsubscribeAll()
    else if (id !== this.#id) await this.#listen()
  }

  #woken(session: string, handed: Handed | undefined): void {
    if (handed !== undefined) {
      // What an older session was handed was lost with it.
      if (session === this.#id) this.#handed.push(handed)
      if (!this.#calling) this.#takeHanded()
      return
    }
    this.#wakes++
    this.#force()
    this.#hurry()
  }

  /**
   * Takes what was handed since the last reply. What does not follow on what this node has got already, it asks for: then the
   * storage tells it everything newer.
   */
  #takeHanded(): void {
    for (const { after, token, claimed } of this.#handed.splice(0)) {
      if (token <= this.#ack) continue
      if (after === this.#ack && this.#state === 'open' && !this.fenced) {
        this.#ack = token
        this.#host.claimed(claimed)
      } else {
        this.#force()
      }
    }
  }

  #heard(message: string): void {
    this.#wakes++
    if (message === CHANGED) {
      this.#force()
      return
    }
    this.#quiet = false
    if (this.#calling) this.#overtook = Math.min(this.#overtook, Number(message))
    this.#host.urgent(Number(message))
    if (this.#host.demand().want > 0) this.#schedule()
  }

  async #unsubscribeAll(): Promise<void> {
    const ends = this.#unsubscribe
    this.#unsubscribe = []
    for (const end of ends) await this.#deadline(end(), 'unsubscribe').catch(() => {})
  }

  async #reopen(): Promise<void> {
    this.#logger.warn({ session: this.#id }, 'the session is over; its tasks belong to others now')
    this.#host.lost()
    if (this.#state !== 'open') return
    await this.#openNew()
    if (!this.open) return
    this.#host.unfenced()
    this.#force()
  }

  #fenceRaised(silence: number): void {
    if (this.#state !== 'open') return
    this.#logger.warn({ session: this.#id, silence }, 'no renewal was answered in time; attempts are aborted')
    this.#host.fenced()
    this.#force()
  }

  /** After doubt: adopts what the storage says this session holds and drops what it does not. */
  async #resume(fresh: readonly Claimed[]): Promise<void> {
    const holding = this.#host.holding(this.#id)
    const sent = this.#fence.now()
    const reply = await this.#deadline(this.#storage.session.resume(this.#id, holding), 'resume')
    if (reply.status === 'gone') {
      await this.#reopen()
      return
    }
    this.#fence.lower(sent)
    const held = new Map(reply.entries.map((entry) => [entry.id, entry]))
    const settling = new Set(this.#outbox.tasks())
    const known = new Set(holding)
    const missing = holding.filter((id) => !held.has(id))
    if (missing.length > 0) {
      this.#host.taken(
        missing.map((id) => ({ id, token: Number.MAX_SAFE_INTEGER, reason: 'revoked' as const })),
      )
    }
    const unknown = reply.entries.filter(({ id }) => !known.has(id) && !settling.has(id))
    const adopted = new Set(unknown.map(({ id }) => id))
    this.#host.unfenced()
    this.#host.claimed([
      ...unknown,
      ...fresh.filter(({ id }) => held.has(id) && !adopted.has(id) && !known.has(id)),
    ])
    // Lower than before when the storage has lost writes; a claim that acknowledged more would be answered `again` for ever.
    this.#ack = reply.token
  }

  /** Two replies in a row that disagree about how much is held mean that something was lost on the way. */
  async #compareHeld(request: WorkRequest, reply: WorkReply): Promise<void> {
    if (!request.renew) return
    const settling = this.#outbox.tasks(this.#id).length
    if (reply.held === this.#host.holding(this.#id).length + settling) {
      this.#mismatches = 0
      return
    }
    this.#mismatches++
    if (this.#mismatches < 2) return
    this.#mismatches = 0
    await this.#resume([])
  }
}

/**
 * Reports of a call that failed with those that came since: one for each attempt, so that they do not grow while the
 * storage is away. A checkpoint stays by itself, for somebody awaits it.
 */
function merge(older: readonly Report[], newer: readonly Report[]): readonly Report[] {
  if (older.length === 0) return newer
  const checkpoints: Report[] = []
  const latest = new Map<string, Report>()
  for (const report of [...older, ...newer]) {
    const attempt = `${report.token} ${report.id}`
    const known = latest.get(attempt)
    if (report.checkpoint !== undefined) checkpoints.push(report)
    else if (known === undefined) latest.set(attempt, report)
    else {
      const logs = [...(known.logs ?? []), ...(report.logs ?? [])].slice(-MOST_LINES)
      latest.set(attempt, { ...report, progress: report.progress ?? known.progress, logs })
    }
  }
  return [...checkpoints, ...latest.values()]
}
