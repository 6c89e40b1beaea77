/**
 * The slots whose handlers run in threads: the {@link Workers} of a session that serves handlers in files.
 *
 * The threads are shared by all files, start when they are first needed and stay warm for a while. A thread has one
 * handler at work, so what that does to its thread it does to nobody else; its timeout counts from its call; and its
 * thread is free when the handler has ended or the thread is gone. A task that comes again before that, after a cancel,
 * a revoke or a lost lease, is held until then: its attempts do not overlap here, whatever handlers do.
 *
 * While tasks take less than half a millisecond, a thread is given some ahead, for falling asleep and being woken would
 * cost more than they do. Those do not count as begun, and go back to their old places when the one before them turns
 * out to be slow.
 */
import { systemClock, type Timer } from './clock.js'
import { jsonCodec } from './codec.js'
import { NeoTaskError } from './errors.js'
import { Execution } from './execution.js'
import type { Logger } from './options.js'
import { Slots } from './slots.js'
import type { Claimed } from './storage.js'
import type { AbortKind } from './task-context.js'
import { ThreadAttempt, type ThreadAttemptContext } from './thread-attempt.js'
import type { ThreadPolicy } from './thread-options.js'
import type { WorkerPoolHost, Workers } from './worker-pool.js'
import { STUCK, WorkerThread } from './worker-thread.js'

/** The work that a thread may have, that under way included: this many ms, and this many attempts. */
const AHEAD_MS = 1
const AHEAD_MOST = 32
/** How often threads are looked at that have something ahead, in ms. */
const LOOK_EVERY = 5
const NOT_STARTED = -1
/** The weight of the newest run time in the moving mean. */
const WEIGHT = 1 / 8

export class ThreadPool implements Workers {
  readonly #size: number
  readonly #host: WorkerPoolHost
  readonly #policy: ThreadPolicy
  readonly #logger: Logger
  readonly #slots = new Slots()
  readonly #attempts = new Map<Execution, ThreadAttempt>()
  /** Those that were told to end, or whose end is decided. */
  readonly #ending = new Set<ThreadAttempt>()
  /** Those of tasks of which an older attempt is ending. They take no slot. */
  readonly #held = new Set<ThreadAttempt>()
  readonly #context: ThreadAttemptContext
  /** All that have not ended. */
  readonly #threads = new Set<WorkerThread>()
  /** Those with nothing to do, longest idle first. */
  readonly #idle: WorkerThread[] = []
  #idleTimer: Timer | undefined
  #lookTimer: Timer | undefined
  /** Of the run times, in ms; `undefined` before the first end. */
  #meanRun: number | undefined
  /** Where attempts go that were not begun, when they are not to be begun here at all. */
  #givenBack: Execution[] | undefined
  #allGone: (() => void) | undefined

  constructor(size: number, host: WorkerPoolHost, policy: ThreadPolicy, logger: Logger) {
    this.#size = size
    this.#host = host
    this.#policy = policy
    this.#logger = logger
    this.#context = {
      host,
      ending: (attempt) => this.#ending.add(attempt),
      decided: (attempt) => {
        this.#ending.add(attempt)
        this.#slots.stop(attempt.execution)
      },
      ended: (attempt, now) => this.#ended(attempt, now),
      returned: ({ execution, arrival }) => {
        if (this.#givenBack === undefined) host.returned(execution, arrival)
        else this.#givenBack.push(execution)
      },
      freed: (now) => this.#freed(now),
    }
  }

  get active(): number {
    let ahead = 0
    for (const { load } of this.#threads) if (load > 1) ahead += load - 1
    return this.#slots.active - ahead - this.#held.size
  }

  get free(): number {
    const depth = this.#depth
    let free = this.#unused + this.#idle.length * depth
    if (depth === 1) return free
    for (const { load, isOpen } of this.#threads) {
      if (load > 0 && load < depth && isOpen) free += depth - load
    }
    return free
  }

  get executions(): readonly Execution[] {
    return this.#slots.executions
  }

  find(id: string): Execution | undefined {
    return this.#slots.find(id)
  }

  run(claimed: Claimed, session: string, marked: boolean, now: number, arrival: number): void {
    const host = this.#host
    const execution = new Execution(host, claimed, session, NOT_STARTED)
    execution.marked = marked
    this.#slots.add(execution)
    try {
      const { handler, timeout } = host.kinds.resolve(claimed)
      const attempt = new ThreadAttempt(this.#context, execution, String(handler), timeout, arrival)
      this.#attempts.set(execution, attempt)
      if (this.#isEnding(claimed.id)) this.#held.add(attempt)
      else this.#begin(attempt)
    } catch (error) {
      this.#failed(execution, error, now)
    }
  }

  take(id: string, token: number, kind: AbortKind): boolean {
    const execution = this.#slots.find(id)
    if (execution === undefined || execution.token > token) return false
    const attempt = this.#attempts.get(execution)
    attempt?.leave()
    if (attempt?.tell(kind) === true) attempt.stop(kind)
    return true
  }

  abortAll(kind: 'lease-lost' | 'shutdown'): void {
    // All are told before any is stopped: what stands behind the first one would be begun elsewhere otherwise.
    const told = [...this.#attempts.values()].filter((attempt) => attempt.tell(kind))
    for (const attempt of told) attempt.stop(kind)
  }

  abandonAll(): readonly Execution[] {
    const left = this.executions
    for (const execution of left) this.#attempts.get(execution)?.leave()
    for (const attempt of [...this.#held]) attempt.refused()
    for (const thread of this.#threads) thread.end()
    return left
  }

  giveBack(): readonly Execution[] {
    const givenBack: Execution[] = []
    this.#givenBack = givenBack
    for (const attempt of [...this.#held]) attempt.refused()
    for (const thread of [...this.#threads]) thread.recall()
    this.#givenBack = undefined
    return givenBack
  }

  async idle(): Promise<void> {
    await this.#slots.idle()
  }

  /** Resolves when every thread has ended; one that cannot be stopped is not waited for. */
  async close(): Promise<void> {
    this.#idleTimer?.cancel()
    this.#lookTimer?.cancel()
    if (this.#threads.size === 0) return
    let late: Timer | undefined
    const gone = new Promise<void>((resolve) => {
      this.#allGone = resolve
      late = systemClock.after(this.#policy.grace + STUCK, resolve, { hold: true })
    })
    for (const thread of this.#threads) thread.end()
    await gone
    late?.cancel()
  }

  /** How many attempts a thread may have, that under way included. */
  get #depth(): number {
    const mean = this.#meanRun
    if (mean === undefined || mean > AHEAD_MS / 2) return 1
    return Math.min(AHEAD_MOST, Math.floor(AHEAD_MS / mean))
  }

  /** How many threads may be started. */
  get #unused(): number {
    let unused = this.#size - this.#idle.length
    for (const { load } of this.#threads) if (load > 0) unused--
    return unused
  }

  /** Throws when the task's data cannot be read, or the system gives no thread. */
  #begin(attempt: ThreadAttempt): void {
    const depth = this.#depth
    const thread = this.#takeIdle(attempt.file) ?? (this.#unused > 0 ? this.#spawn() : this.#leastBusy(depth))
    if (thread === undefined) {
      // The room that was there when it was promised is gone.
      attempt.refused()
      return
    }
    try {
      attempt.run(thread, depth > 1)
    } finally {
      this.#rest(thread)
    }
    if (thread.load > 1) this.#lookTimer ??= systemClock.after(LOOK_EVERY, () => this.#look())
  }

  /** One that has loaded the file already, else the one that was busy last, so that the others may grow old. */
  #takeIdle(file: string): WorkerThread | undefined {
    const known = this.#idle.findLastIndex((thread) => thread.hasLoaded(file))
    const thread = known < 0 ? this.#idle.pop() : this.#idle.splice(known, 1)[0]
    if (thread !== undefined) thread.idleSince = undefined
    return thread
  }

  #leastBusy(depth: number): WorkerThread | undefined {
    let least: WorkerThread | undefined
    for (const thread of this.#threads) {
      if (thread.load === 0 || thread.load >= depth || !thread.isOpen) continue
      if (least === undefined || thread.load < least.load) least = thread
    }
    return least
  }

  #spawn(): WorkerThread {
    const { codec, maxPayload, ref } = this.#host
    let thread: WorkerThread
    try {
      thread = new WorkerThread({
        policy: this.#policy,
        ref,
        codec: codec === jsonCodec ? 'json' : 'v8',
        maxPayload,
        recalled: () => this.#freed(this.#host.clock.monotonic()),
        gone: (gone, error) => this.#gone(gone, error),
      })
    } catch (cause) {
      throw new NeoTaskError('THREAD_CRASHED', 'no thread could be started', { cause })
    }
    this.#threads.add(thread)
    return thread
  }

  /** Whether a handler of the task may be at work that was told to end. */
  #isEnding(id: string): boolean {
    if (this.#ending.size === 0) return false
    for (const { execution } of this.#ending) if (execution.id === id) return true
    return false
  }

  /** It could not be begun. */
  #failed(execution: Execution, error: unknown, now: number): void {
    execution.ended = true
    execution.startedAt = now
    this.#attempts.delete(execution)
    this.#slots.remove(execution)
    this.#host.failed(execution, error, now)
    this.#host.freed(now)
  }

  /** What was held for a handler that is at work no more goes first. */
  #freed(now: number): void {
    for (const attempt of [...this.#held]) {
      if (this.#isEnding(attempt.execution.id) || !this.#held.delete(attempt)) continue
      try {
        this.#begin(attempt)
      } catch (error) {
        this.#failed(attempt.execution, error, now)
      }
    }
    this.#host.freed(now)
  }

  #ended(attempt: ThreadAttempt, now: number): void {
    const { execution, thread, busySince } = attempt
    this.#attempts.delete(execution)
    this.#ending.delete(attempt)
    this.#held.delete(attempt)
    this.#slots.remove(execution)
    if (busySince !== undefined) {
      const ran = now - busySince
      this.#meanRun = this.#meanRun === undefined ? ran : this.#meanRun + (ran - this.#meanRun) * WEIGHT
    }
    if (thread !== undefined) this.#rest(thread)
  }

  /** A thread with nothing to do may end after a while. */
  #rest(thread: WorkerThread): void {
    if (thread.load > 0 || thread.isEnded || thread.idleSince !== undefined) return
    const { idleTimeout } = this.#policy
    if (idleTimeout === 0) {
      thread.end()
      return
    }
    thread.idleSince = this.#host.clock.monotonic()
    this.#idle.push(thread)
    this.#idleTimer ??= this.#host.clock.after(idleTimeout, () => this.#endIdle())
  }

  #endIdle(): void {
    const { clock } = this.#host
    const before = clock.monotonic() - this.#policy.idleTimeout
    const old = this.#idle.findIndex(({ idleSince = 0 }) => idleSince > before)
    for (const thread of this.#idle.splice(0, old < 0 ? this.#idle.length : old)) thread.end()
    const oldest = this.#idle[0]?.idleSince
    this.#idleTimer = oldest === undefined ? undefined : clock.after(oldest - before, () => this.#endIdle())
  }

  #look(): void {
    this.#lookTimer = undefined
    let again = false
    for (const thread of [...this.#threads]) again = thread.look() || again
    if (again) this.#lookTimer ??= systemClock.after(LOOK_EVERY, () => this.#look())
  }

  /** @param error what it died of, when it had nothing to do and nobody asked it to */
  #gone(thread: WorkerThread, error: NeoTaskError | undefined): void {
    this.#threads.delete(thread)
    const at = this.#idle.indexOf(thread)
    if (at >= 0) this.#idle.splice(at, 1)
    if (error !== undefined) this.#logger.warn({ err: error }, 'NeoTask: a thread ended between two tasks')
    if (this.#threads.size === 0) this.#allGone?.()
  }
}
