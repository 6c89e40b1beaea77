/**
 * The consuming half of a pool: wires the session, the scheduler and the slots together, and carries what handlers
 * report to the storage. It decides nothing itself.
 */
import { hostname } from 'node:os'
import type { Timer } from './clock.js'
import { withDeadline } from './deadline.js'
import { NeoTaskError } from './errors.js'
import type { EventBus } from './event-bus.js'
import type { Execution } from './execution.js'
import type { Kinds } from './kinds.js'
import { LoadMonitor, type Overload } from './load-limit.js'
import type { LifecycleManager } from './lifecycle-manager.js'
import { OVERLOAD_TTL, tellOverload } from './node-registry.js'
import type { ResolvedOptions } from './options.js'
import type { PoolEvents } from './pool-events.js'
import type { StatsRecorder } from './pool-stats.js'
import { Prefetch } from './prefetch.js'
import { QueueScheduler } from './queue-scheduler.js'
import { Session, type Demand } from './session.js'
import type { Encoded, Mark, QueueRef, Report, Storage } from './storage.js'
import { TimeWheel } from './time-wheel.js'
import type { WorkerPoolHost, Workers } from './worker-pool.js'

/** Which kinds a consumer serves, and what calls their handlers. */
export interface ConsumerPart {
  readonly kinds: readonly string[]
  readonly concurrency: number
  readonly workers: (host: WorkerPoolHost) => Workers
  /** Whether it tells the logger and the listeners of the load, which is that of the whole node. */
  readonly speaksOfLoad: boolean
}

export interface ConsumerContext {
  readonly storage: Storage
  readonly ref: QueueRef
  readonly options: ResolvedOptions
  readonly kinds: Kinds
  readonly lifecycle: LifecycleManager
  readonly events: EventBus<PoolEvents>
  readonly stats: StatsRecorder
  /** Of those who wait in this process. */
  readonly watcher: string
  readonly troubled: (error: unknown, during: string) => void
}

/** Progress and log lines are written at most this often for a task, in ms. */
const REPORT_EVERY = 100
/** How long an aborted handler may take to stop before its task is given back all the same, in ms. */
const GRACE = 1000

/** Attempts that were running, and tasks that were held and go back. */
export interface Stopped {
  readonly running: number
  readonly returned: number
}

interface Checkpoint {
  readonly execution: Execution
  readonly state: Encoded
  readonly resolve: () => void
  readonly reject: (error: Error) => void
}

/** A report with the checkpoint that waits for its answer. */
type PendingReport = Report & { readonly saved?: Checkpoint | undefined }
/** A mark with the attempt that it is of, if that has begun. */
type PendingMark = Mark & { readonly execution?: Execution }

export class Consumer {
  readonly #context: ConsumerContext
  readonly #session: Session
  readonly #scheduler: QueueScheduler
  readonly #workers: Workers
  readonly #wheel: TimeWheel
  /** Attempts with progress or lines that are not written. */
  readonly #reporting = new Set<Execution>()
  #reportTimer: Timer | undefined
  #reportsDue = false
  /** Not sent yet. */
  #checkpoints: Checkpoint[] = []
  /** Not answered yet. */
  readonly #saving = new Set<Checkpoint>()
  readonly #load: LoadMonitor | undefined
  /** Monotonic ms since when it is over its load limit, and what repeats the word of it. */
  #overSince = 0
  #overTimer: Timer | undefined
  /** Words about the load go out one after the other. */
  #telling: Promise<void> = Promise.resolve()
  readonly #speaksOfLoad: boolean
  #pausedByCaller = false
  #hasBegun = false
  #stopped: Stopped | undefined
  /** Attempts that were aborted at the end and went back. */
  #handedBack = 0
  /** Storage trouble is told once, until a call succeeds again. */
  #inTrouble = false

  constructor(context: ConsumerContext, part: ConsumerPart) {
    this.#context = context
    this.#speaksOfLoad = part.speaksOfLoad
    const { storage, ref, options, kinds, stats, events, lifecycle } = context
    const { clock, codec, maxPayload } = options
    const { concurrency, kinds: served } = part
    this.#wheel = new TimeWheel(clock, (error) => context.troubled(error, 'a timer'))
    const prefetch = new Prefetch(options.prefetch, concurrency)
    if (options.loadLimit !== undefined) {
      const changed = (overload: Overload | undefined): void => this.#loadChanged(overload)
      this.#load = new LoadMonitor(options.loadLimit, { clock, changed })
    }

    this.#workers = part.workers({
      ref,
      codec,
      maxPayload,
      clock,
      wheel: this.#wheel,
      kinds,
      now: () => clock.now(),
      report: (execution, hasProgressed) => this.#report(execution, hasProgressed),
      checkpoint: (execution, state) => this.#checkpoint(execution, state),
      started: (execution) => {
        stats.waited(execution.claimed.waited)
        if (!events.hears('task.started')) return
        const { id, name, attempt } = execution
        events.emit('task.started', { id, name, node: options.node, attempt })
      },
      succeeded: (execution, value, now, encoded) => {
        this.#ended(execution, prefetch, now)
        lifecycle.succeeded(execution, value, this.#session, now, encoded)
      },
      failed: (execution, error, now) => {
        this.#ended(execution, prefetch, now)
        if (execution.aborted === 'shutdown') this.#handedBack++
        lifecycle.failed(execution, error, this.#session, now)
      },
      returned: (execution, arrival) => {
        this.#unbegun(execution)
        // What belongs to an older session was lost with it.
        if (execution.session === this.#session.id) this.#scheduler.putBack(execution.claimed, arrival)
      },
      freed: (now) => this.#scheduler.freed(now),
    })

    this.#scheduler = new QueueScheduler(
      prefetch,
      {
        clock,
        free: () => this.#workers.free,
        fenced: (now) => (now === undefined ? this.#session.fenced : this.#session.fencedAt(now)),
        run: (task, marked, now, arrival) => this.#workers.run(task, this.#session.id, marked, now, arrival),
        release: (task) => lifecycle.release(task, this.#session),
        poke: () => this.#session.poke(),
        mark: () => this.#session.force(),
      },
      (storage.limits.flights ?? 1) > 1,
    )

    this.#session = new Session(
      storage,
      {
        ttl: options.sessionTtl,
        node: {
          id: options.node,
          host: hostname(),
          pid: process.pid,
          concurrency,
          queue: ref.queue,
          kinds: served,
        },
        serves: { ...ref, kinds: served },
        retention: options.retention,
        maxReclaims: options.maxReclaims,
        watcher: context.watcher,
      },
      {
        demand: () => (this.#hasBegun ? this.#scheduler.demand() : NOTHING),
        claimed: (entries) => {
          this.#inTrouble = false
          if (entries.length > 0) lifecycle.roomMade()
          this.#scheduler.add(entries)
        },
        observed: (head, paused) => {
          this.#scheduler.observed(head, paused)
          if (paused) this.#giveBack()
        },
        urgent: (priority) => this.#scheduler.urgent(priority),
        taken: (entries) => {
          this.#scheduler.taken(entries)
          for (const { id, token, reason } of entries) {
            const execution = this.#workers.find(id)
            if (execution === undefined || !this.#workers.take(id, token, reason)) continue
            this.#scheduler.ended(execution.claimed)
            if (reason === 'cancelled' && events.hears('task.cancelled')) {
              events.emit('task.cancelled', { id, reason: undefined })
            }
          }
        },
        marks: (session) => this.#marks(session),
        marked: (marks) => {
          for (const { execution } of marks as readonly PendingMark[]) {
            if (execution !== undefined) execution.marked = true
          }
          this.#scheduler.marked(marks)
        },
        reports: () => this.#dueReports(),
        reported: (reports, stale) => this.#reported(reports, stale),
        settled: (settlement, accepted) => {
          this.#inTrouble = false
          lifecycle.settled(settlement, accepted)
        },
        fenced: () => this.#loseAll(),
        unfenced: () => this.#scheduler.unfenced(),
        lost: () => {
          this.#scheduler.clear()
          this.#loseAll()
        },
        holding: (session) => {
          const ids = this.#scheduler.holding()
          for (const execution of this.#workers.executions)
            if (execution.session === session) ids.push(execution.id)
          return ids
        },
        tick: () => this.#scheduler.tick(),
        troubled: (error) => {
          this.#scheduler.troubled()
          if (this.#inTrouble) return
          this.#inTrouble = true
          context.troubled(error, 'a call to the storage')
        },
      },
      { clock, logger: options.logger, callTimeout: options.callTimeout },
    )
  }

  get running(): number {
    return this.#workers.active
  }

  get prefetched(): number {
    return this.#scheduler.buffered
  }

  get fenced(): boolean {
    return this.#session.fenced
  }

  get silence(): number {
    return this.#session.silence
  }

  /** What this node has too much of, while it claims nothing because of it. */
  get overload(): Overload | undefined {
    return this.#load?.overload
  }

  /** Opens the session. Nothing is claimed before {@link begin}. */
  async open(): Promise<void> {
    await this.#session.start()
  }

  /** Begins to claim, once the session is open. */
  begin(): void {
    this.#hasBegun = true
    if (this.#stopped === undefined) this.#load?.start()
    this.#session.force()
  }

  /** This process cancelled the task: aborts its attempt, if it runs here, without waiting for the notice. */
  cancelled(id: string): void {
    const execution = this.#workers.find(id)
    if (execution !== undefined && this.#workers.take(id, execution.token, 'cancelled'))
      this.#scheduler.ended(execution.claimed)
    this.#session.force()
  }

  /** Asks the storage now: something changed by this process's own doing. */
  force(): void {
    this.#session.force()
  }

  pauseHere(paused: boolean): void {
    this.#pausedByCaller = paused
    this.#standBack()
  }

  /** Claims and starts nothing more, and gives back what has not started. Safe to call twice. */
  stop(): void {
    if (this.#stopped !== undefined) return
    const { buffered } = this.#scheduler
    this.#scheduler.stop()
    const returned = buffered + this.#giveBack()
    // Those whose end is decided may be at work still, and have nothing left to finish.
    this.#stopped = { running: this.#workers.executions.length, returned }
    if (this.overload !== undefined) this.#tellOverload(undefined)
    this.#load?.stop()
  }

  /** Stops, lets what runs end, and gives back what does not; every end is answered when it resolves. */
  async finish(timeout: number): Promise<Stopped> {
    const { lifecycle, options } = this.#context
    const { clock, callTimeout } = options
    this.stop()
    const { running, returned } = this.#stopped as Stopped
    if (!(await this.#idleWithin(timeout))) {
      this.#workers.abortAll('shutdown')
      await this.#idleWithin(GRACE)
    }
    const left = this.#workers.abandonAll()
    for (const execution of left) lifecycle.release(execution.claimed, this.#session)
    let cancelTimer: Timer | undefined
    const late = new Promise<void>(
      (resolve) => (cancelTimer = clock.after(callTimeout, resolve, { hold: true })),
    )
    await Promise.all([Promise.race([this.#session.flush(), late]), this.#workers.close()])
    cancelTimer?.cancel()
    this.#loseCheckpoints()
    const unfinished = left.length + this.#handedBack
    return { running: running - unfinished, returned: returned + unfinished }
  }

  /** Ends the session; whatever it still holds goes back. */
  async end(): Promise<void> {
    this.#reportTimer?.cancel()
    this.#wheel.close()
    await this.#telling
    await this.#session.end()
  }

  // ---------------------------------------------------------------------------------------------------- load

  /** Claims nothing and gives back what has not started, while the caller wants it so or there is too much to do. */
  #standBack(): void {
    const back = this.#pausedByCaller || this.overload !== undefined
    this.#scheduler.pauseHere(back)
    if (back) this.#giveBack()
  }

  #loadChanged(overload: Overload | undefined): void {
    const { events, options } = this.#context
    const { clock, logger, node } = options
    this.#standBack()
    this.#tellOverload(overload)
    if (!this.#speaksOfLoad) return
    if (overload !== undefined) {
      this.#overSince = clock.monotonic()
      logger.warn({ node, ...overload }, 'this node is over its load limit and claims no more')
      if (events.hears('node.overloaded')) events.emit('node.overloaded', { node, ...overload })
      return
    }
    const duration = clock.monotonic() - this.#overSince
    logger.info({ node, duration }, 'this node is below its load limit again and claims')
    if (events.hears('node.recovered')) events.emit('node.recovered', { node, duration })
  }

  /** Lets the other nodes know, again and again while it lasts. They only show it, so it may fail. */
  #tellOverload(overload: Overload | undefined): void {
    const { storage, ref, options } = this.#context
    this.#overTimer?.cancel()
    const session = this.#session.id
    this.#telling = this.#telling
      .then(() => {
        const told = tellOverload(storage.records, ref.tenant, session, overload)
        return withDeadline(told, options.callTimeout, options.clock, 'records')
      })
      .catch((error: unknown) => options.logger.debug({ err: error, session }, 'the load could not be told'))
    if (overload === undefined) return
    const again = (): void => this.#tellOverload(this.overload)
    this.#overTimer = options.clock.after(OVERLOAD_TTL / 3, again, { poll: true })
  }

  /** @returns how many tasks */
  #giveBack(): number {
    const left = this.#workers.giveBack()
    for (const execution of left) {
      this.#unbegun(execution)
      this.#context.lifecycle.release(execution.claimed, this.#session)
    }
    return left.length
  }

  #unbegun(execution: Execution): void {
    this.#reporting.delete(execution)
    this.#scheduler.ended(execution.claimed)
  }

  /** @returns whether nothing runs any more */
  async #idleWithin(ms: number): Promise<boolean> {
    if (this.#workers.active === 0) return true
    let timer: Timer | undefined
    const late = new Promise<false>((resolve) => {
      timer = this.#context.options.clock.after(ms, () => resolve(false), { hold: true })
    })
    const idle = this.#workers.idle().then(() => true as const)
    const outcome = await Promise.race([idle, late])
    timer?.cancel()
    return outcome
  }

  #ended(execution: Execution, prefetch: Prefetch, now: number): void {
    prefetch.ran(now - execution.startedAt)
    this.#scheduler.ended(execution.claimed)
    // What it said last goes along with its settlement, for afterwards the storage would refuse it.
    if (execution.progressed !== undefined || execution.lines !== undefined) this.#reportsDue = true
  }

  /** Attempts that still run and are not marked, so that short ones never pay. */
  #marks(session: string): Mark[] {
    const marks: PendingMark[] = this.#scheduler.marks()
    for (const execution of this.#workers.executions) {
      if (!execution.marked && execution.startedAt >= 0 && execution.session === session)
        marks.push({ id: execution.id, token: execution.token, execution })
    }
    return marks
  }

  // ------------------------------------------------------------------------------------------------- reports

  #report(execution: Execution, hasProgressed: boolean): void {
    if (execution.ended) return
    this.#reporting.add(execution)
    const { events, options } = this.#context
    if (hasProgressed && execution.progressed !== undefined && events.hears('task.progress')) {
      const progress = options.codec.decode(execution.progressed)
      events.emit('task.progress', { id: execution.id, name: execution.name, progress })
    }
    this.#reportTimer ??= options.clock.after(REPORT_EVERY, () => {
      this.#reportTimer = undefined
      this.#reportsDue = true
      this.#session.poke()
    })
  }

  #checkpoint(execution: Execution, state: Encoded): Promise<void> {
    if (execution.ended || execution.aborted === 'lease-lost') return Promise.reject(lostError(execution))
    return new Promise((resolve, reject) => {
      const saved = { execution, state, resolve, reject }
      this.#checkpoints.push(saved)
      this.#saving.add(saved)
      this.#session.poke()
    })
  }

  #dueReports(): Report[] {
    if (!this.#reportsDue && this.#checkpoints.length === 0) return NO_REPORTS
    const session = this.#session.id
    const reports: PendingReport[] = []
    // What belongs to an older session was lost with it.
    for (const saved of this.#checkpoints.splice(0)) {
      const { id, token } = saved.execution
      reports.push({ id, token, checkpoint: saved.state, saved })
    }
    if (!this.#reportsDue) return reports
    this.#reportsDue = false
    for (const execution of this.#reporting) {
      const { id, token, progressed: progress, lines: logs } = execution
      execution.progressed = undefined
      execution.lines = undefined
      if (execution.session === session) reports.push({ id, token, progress, logs })
    }
    this.#reporting.clear()
    return reports
  }

  #reported(reports: readonly PendingReport[], stale: ReadonlySet<number>): void {
    reports.forEach(({ saved }, index) => {
      if (saved === undefined) return
      this.#saving.delete(saved)
      if (stale.has(index)) saved.reject(lostError(saved.execution))
      else saved.resolve()
    })
  }

  /** What runs may belong to others now. */
  #loseAll(): void {
    this.#workers.abortAll('lease-lost')
    this.#loseCheckpoints()
  }

  #loseCheckpoints(): void {
    this.#checkpoints = []
    for (const saved of this.#saving) saved.reject(lostError(saved.execution))
    this.#saving.clear()
  }
}

const NO_REPORTS: Report[] = []
const NOTHING: Demand = { want: 0 }

function lostError({ id }: Execution): NeoTaskError {
  return new NeoTaskError('LEASE_LOST', `this attempt does not hold task ${id} any more`, { taskId: id })
}
