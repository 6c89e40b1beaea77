/**
 * A pool for the tests of an application: a real `TaskPool` on a memory storage of its own, whose time stands still
 * until the test moves it, and which remembers what was submitted.
 *
 * Tasks run only while somebody waits for them, in `drain`, `advance`, `run` and `waitForResult`; or, with
 * `run: 'auto'`, as soon as they are submitted, as in production. Nothing here waits for a timer that a test runner may
 * have replaced with a fake.
 */
import { oneOf } from '../checks.js'
import { realTime } from '../clock.js'
import { jsonCodec } from '../codec.js'
import type { TaskDefinition } from '../define-task.js'
import { parseDuration, type Duration } from '../duration.js'
import { NeoTaskError, optionError } from '../errors.js'
import { memoryStorage } from '../memory-storage.js'
import type { SubmitOptions } from '../options.js'
import {
  isRefusal,
  wakeChannel,
  type EnqueueOutcome,
  type NewTask,
  type QueueRef,
  type SessionFace,
  type Storage,
} from '../storage.js'
import {
  TaskPool,
  type CloseOptions,
  type CloseReport,
  type TaskId,
  type TaskPoolOptions,
} from '../task-pool.js'
import { ManualClock } from './manual-clock.js'
import { SubmittedTasks, type Expected, type SubmittedTask } from './submitted-tasks.js'

/**
 * The options of a pool. `storage`, `autoStart`, `sessionTtl` and `loadLimit` may stand among them, so that the options of
 * the application can be given as they are, and have no effect.
 */
export interface TestPoolOptions<Data = never, Result = unknown> extends Omit<
  TaskPoolOptions<Data, Result>,
  'clock'
> {
  /**
   * When tasks run: `'manual'`, while somebody waits in `drain`, `advance`, `run` or `waitForResult`; `'auto'`, as soon
   * as they are submitted. Default: `'manual'`.
   */
  run?: 'manual' | 'auto' | undefined
  /** The time of the pool and of its storage. Default: a clock of its own, which begins at 2026-01-01T00:00:00Z. */
  clock?: ManualClock | undefined
}

/** Real ms that a running handler has before time is moved on without its end. */
const PATIENCE = 100
/** So many times that long a wait stays open while nothing happens at all: the test may be about to move time. */
const STILL = 10
/** No leap of the clock makes the session look dead. */
const SESSION_TTL = '36500d'
const DRAINED = 1000

/**
 * Makes a pool for tests. Submit to it, or hand it to the code under test; then look at what was submitted, let it run,
 * and move time.
 *
 * @example
 * const pool = createTestPool({ tasks: [sendMail] })
 * await signUp(pool, 'ada@example.org')
 * pool.assertSubmitted(sendMail, { to: 'ada@example.org' })
 * await pool.drain()
 */
export function createTestPool<Data = never, Result = unknown>(
  options: TestPoolOptions<Data, Result>,
): TestPool<Data, Result> {
  return new TestPool(options)
}

/** Made by {@link createTestPool}. */
export class TestPool<Data = never, Result = unknown> extends TaskPool<Data, Result> {
  /** The time of the pool and of its storage. To move it, call {@link advance}, which lets the tasks run too. */
  readonly clock: ManualClock
  readonly #storage: Storage
  readonly #ref: QueueRef
  readonly #submitted: SubmittedTasks
  readonly #manual: boolean
  /** Calls that wait for tasks to run. */
  #waiting = 0
  /** The test has paused this pool, as every pool can be. */
  #pausedHere = false
  /** A call of the storage's that nobody takes note of. */
  readonly #work: SessionFace['work']
  /** The sessions that are open: one for the handlers that are functions, one for those that are files. */
  readonly #sessions = new Set<string>()
  /** Whoever waits for a session to be answered. */
  #listeners: (() => void)[] = []
  /** Calls that wait for a result: what rejects each, and its task, if that is known. */
  readonly #waits = new Map<(error: NeoTaskError) => void, string | undefined>()
  /** Answers to sessions, and calls that wait: what does not grow stands still. */
  #happened = 0
  #isWatching = false

  constructor(options: TestPoolOptions<Data, Result>) {
    const { run = 'manual', clock = new ManualClock(), ...rest } = options
    oneOf(run, 'run', ['manual', 'auto'])
    if (!((clock as unknown) instanceof ManualClock)) throw optionError('clock', 'a ManualClock', clock)
    const storage = memoryStorage({ clock })
    super({ ...rest, clock, storage, sessionTtl: SESSION_TTL, autoStart: true, loadLimit: undefined })
    this.clock = clock
    this.#storage = storage
    this.#ref = { tenant: 'default', queue: options.queue ?? 'default' }
    this.#submitted = new SubmittedTasks(options.codec ?? jsonCodec)
    this.#manual = run === 'manual'
    this.#work = storage.session.work.bind(storage.session)
    this.#observe()
    if (this.#manual) void super.pause({ local: true })
  }

  // -------------------------------------------------------------------------------------------------- submitted

  /**
   * The tasks that were submitted, in the order in which they were accepted: those of a definition, those of a name (`''`
   * for the executor's), or all.
   */
  submitted<Input, R>(task: TaskDefinition<Input, R>): SubmittedTask<Input>[]
  submitted(name?: string): SubmittedTask[]
  submitted(task?: TaskDefinition | string): SubmittedTask[] {
    return this.#submitted.of(task)
  }

  /**
   * Throws an `AssertionError`, which shows the difference to what comes closest, unless such a task was submitted.
   *
   * Throws `PAYLOAD_INVALID` when something is expected that no data can have, such as a Set.
   *
   * @param expected properties that the data has, or a function that is given data and task. Properties count at any
   * depth; arrays are compared whole, a RegExp is for text, and the matchers of vitest and jest may stand in it. Anything
   * else is what the handler would get of it: a Date its ISO text. Default: any data
   * @returns the first that fits
   */
  assertSubmitted<Input, R>(task: TaskDefinition<Input, R>, expected?: Expected<Input>): SubmittedTask<Input>
  assertSubmitted(name: string, expected?: Expected<unknown>): SubmittedTask
  assertSubmitted(task: TaskDefinition | string, expected?: unknown): SubmittedTask<never> {
    return this.#submitted.assertSubmitted(task, expected) as SubmittedTask<never>
  }

  /** Throws an `AssertionError` that lists them when such tasks were submitted. */
  assertNotSubmitted<Input, R>(task: TaskDefinition<Input, R>, expected?: Expected<Input>): void
  assertNotSubmitted(name: string, expected?: Expected<unknown>): void
  assertNotSubmitted(task: TaskDefinition | string, expected?: unknown): void {
    this.#submitted.assertNotSubmitted(task, expected)
  }

  // --------------------------------------------------------------------------------------------------- running

  /**
   * Runs what is ready, and what that makes ready; resolves when nothing is ready or running. What is due later stays:
   * delays, retries; so does everything while the queue or this pool is paused. Waits for handlers as long as they take:
   * the clock stands still, so that their own timeouts do not pass.
   *
   * Rejects: `WAIT_TIMEOUT`.
   *
   * @param options.timeout the longest to wait, by the clock of the pool: it passes when something else moves time.
   * Default: none
   */
  override async drain(options: { timeout?: Duration } = {}): Promise<void> {
    const { timeout } = options
    const ms = timeout === undefined ? Infinity : parseDuration(timeout, 'timeout')
    const until = this.clock.monotonic() + ms
    const timer = ms === Infinity ? undefined : this.clock.after(ms, () => this.#answered(), { hold: true })
    try {
      if (await this.#running(() => this.#settle(Infinity, until))) return
    } finally {
      timer?.cancel()
    }
    const { pending, running } = await this.counts()
    throw new NeoTaskError('WAIT_TIMEOUT', `drain: ${pending} tasks are pending and ${running} run`)
  }

  /**
   * Moves time on by `duration`: everything that is due in it happens at its own instant, in order (delays, retries,
   * timeouts, expiries, timers of the clock), and each time what is ready runs before time goes on. A handler that has
   * not ended after 100 ms of real time is left running meanwhile.
   */
  async advance(duration: Duration): Promise<void> {
    const end = this.clock.monotonic() + parseDuration(duration, 'advance(duration)')
    await this.#running(async () => {
      for (;;) {
        await this.#settle(PATIENCE)
        const left = end - this.clock.monotonic()
        if (left <= 0) return
        const { nextDueIn } = await this.#look()
        this.clock.leap(Math.min(left, Math.max(1, nextDueIn), this.clock.nextEventIn ?? Infinity))
      }
    })
  }

  /**
   * Stores a task, lets tasks run, and waits for its result. Rejects as every pool does, and with `ILLEGAL_STATE` when
   * nothing has been ready, running or moved on for a second of real time: without {@link advance} the result never comes.
   */
  override run<Input, R>(task: TaskDefinition<Input, R>, data: Input, options?: SubmitOptions): Promise<R>
  override run(data: Data, options?: SubmitOptions): Promise<Result>
  override run(...call: unknown[]): Promise<unknown> {
    return this.#resultOf(undefined, () => super.run(...(call as [Data, SubmitOptions])))
  }

  /** Lets tasks run, and waits for the result of one. Rejects as {@link run} does. */
  override waitForResult<R = Result>(
    id: TaskId<R>,
    options?: { timeout?: Duration; signal?: AbortSignal },
  ): Promise<R> {
    return this.#resultOf(id, () => super.waitForResult(id, options))
  }

  /** As of every pool. With `local` this one stands still, also while somebody waits, until it is resumed likewise. */
  override async pause(options: { local?: boolean } = {}): Promise<void> {
    await super.pause(options)
    if (options.local === true) this.#pausedHere = true
  }

  /** As of every pool. What was paused with `local` runs again as the option `run` says. */
  override async resume(options: { local?: boolean } = {}): Promise<void> {
    if (options.local !== true) {
      await super.resume(options)
      return
    }
    this.#pausedHere = false
    await this.#stopOrGo()
  }

  /**
   * Closes as every pool does, but waits for no time: handlers that have not ended after 100 ms of real time are aborted
   * at once.
   */
  override async close(options: CloseOptions = {}): Promise<CloseReport> {
    // A pool that is closed already cannot drain, and says the same as before.
    if (options.drain === true) await this.drain().catch(() => {})
    const closing = super.close({ ...options, drain: false })
    const end = (): true => true
    const ended = closing.then(end, end)
    // What it waits for now is the time that it gives to handlers.
    while (!(await within(PATIENCE, ended))) this.clock.leap(this.clock.nextEventIn ?? 0)
    return await closing
  }

  /** Lets tasks run while the action lasts. */
  async #running<T>(action: () => Promise<T>): Promise<T> {
    await this.start()
    if (this.#waiting++ === 0) await this.#stopOrGo()
    try {
      return await action()
    } finally {
      // Of a pool that was closed meanwhile nothing runs anyway.
      if (--this.#waiting === 0) await this.#stopOrGo().catch(() => {})
    }
  }

  /** Tasks run while somebody waits, or always, and never while the test has paused this pool. */
  async #stopOrGo(): Promise<void> {
    const mayRun = !this.#pausedHere && (!this.#manual || this.#waiting > 0)
    await (mayRun ? super.resume({ local: true }) : super.pause({ local: true }))
  }

  /**
   * Lets run what is ready now, until all is done, nothing has ended for `patience` ms of real time, or the clock has
   * come to `until`.
   *
   * @returns whether all is done
   */
  async #settle(patience: number, until = Infinity): Promise<boolean> {
    for (;;) {
      const answered = new Promise<true>((resolve) => this.#listeners.push(() => resolve(true)))
      await this.clock.settle()
      const { isBusy } = await this.#look()
      if (!isBusy) return true
      if (this.clock.monotonic() >= until || !(await within(patience, answered))) return false
    }
  }

  /** Lets tasks run until the action has its result, or it is certain that only time could bring it. */
  #resultOf<T>(id: string | undefined, action: () => Promise<T>): Promise<T> {
    return this.#running(
      () =>
        new Promise((resolve, reject) => {
          const ended = (): void => void this.#waits.delete(reject)
          this.#waits.set(reject, id)
          this.#happened++
          action().then(resolve, reject).finally(ended)
          if (!this.#isWatching) void this.#watch()
        }),
    )
  }

  /** While there are calls that wait for a result: ends them once the pool stands still. Never rejects. */
  async #watch(): Promise<void> {
    this.#isWatching = true
    for (let still = 0; this.#waits.size > 0;) {
      const [happened, time] = [this.#happened, this.clock.monotonic()]
      await realTime(PATIENCE)
      const isStill = happened === this.#happened && time === this.clock.monotonic()
      still = isStill && !(await this.#look()).isBusy ? still + 1 : 0
      if (still >= STILL) await this.#endWaits()
    }
    this.#isWatching = false
  }

  async #endWaits(): Promise<void> {
    const waits = [...this.#waits]
    this.#waits.clear()
    const why = `nothing is ready or running, and time stands still: ${await this.#nextToCome()}`
    for (const [reject, taskId] of waits) {
      const [call, options] =
        taskId === undefined ? ['run', {}] : [`waitForResult: task ${taskId}`, { taskId }]
      reject(new NeoTaskError('ILLEGAL_STATE', `${call}: ${why}`, options))
    }
  }

  async #nextToCome(): Promise<string> {
    if (this.#pausedHere) return 'this pool is paused, until resume({ local: true })'
    const { queue } = this.#storage
    const { paused, scheduled } = await queue.counts(this.#ref)
    if (paused) return 'the queue is paused, until resume()'
    const { tasks } = await queue.list(this.#ref, { state: 'scheduled', limit: 1 })
    const [first] = tasks
    if (first === undefined) return 'no task is due later either; explain(id) says what a task waits for'
    const { id, kind, attempts, dueAt = 0 } = first
    const what = kind === '' ? 'of the executor' : `'${kind}'`
    const ms = dueAt - this.clock.now()
    const which = scheduled === 1 ? 'task' : `of ${scheduled} tasks the first,`
    const when = `${attempts > 0 ? `for attempt ${attempts + 1} ` : ''}in ${ms} ms`
    return `${which} ${id} (${what}) is due ${when}. Move time on meanwhile: advance(${ms})`
  }

  /** What there is to do now, and in how many ms there is more. */
  async #look(): Promise<{ isBusy: boolean; nextDueIn: number }> {
    while ((await this.#storage.upkeep.drain(this.#ref, DRAINED)) === 'more');
    const looks = await Promise.all([...this.#sessions].map((session) => this.#lookAt(session)))
    return {
      isBusy: looks.some(({ isBusy }) => isBusy),
      nextDueIn: Math.min(Infinity, ...looks.map(({ nextDueIn }) => nextDueIn)),
    }
  }

  async #lookAt(session: string): Promise<{ isBusy: boolean; nextDueIn: number }> {
    const nothing = { marks: [], reports: [], settlements: [], renew: false, want: 0 }
    const reply = await this.#work({ session, ack: 0, ackTaken: 0, ...nothing })
    const isReady = reply.head !== undefined && !reply.paused && !this.#pausedHere
    // Otherwise a message that was missed would be made good by the next poll, for which the clock would have to move.
    if (isReady) await this.#storage.notices.publish(wakeChannel(session), '')
    return { isBusy: isReady || reply.held > 0, nextDueIn: reply.nextDueIn ?? Infinity }
  }

  /** A session was answered. */
  #answered(): void {
    this.#happened++
    for (const listener of this.#listeners.splice(0)) listener()
  }

  #note(task: NewTask, outcome: EnqueueOutcome | undefined): void {
    if (outcome === 'accepted') this.#submitted.add(task)
    else if (typeof outcome === 'object' && !isRefusal(outcome)) this.#submitted.replace(outcome.into, task)
  }

  /** Takes note of what is stored, and of the calls of the session. */
  #observe(): void {
    const { queue, session } = this.#storage
    const enqueueNow = queue.enqueueNow?.bind(queue)
    if (enqueueNow !== undefined) {
      queue.enqueueNow = (ref, task, options) => {
        const outcome = enqueueNow(ref, task, options)
        this.#note(task, outcome)
        return outcome
      }
    }
    const enqueue = queue.enqueue.bind(queue)
    queue.enqueue = async (ref, units, options) => {
      const outcomes = await enqueue(ref, units, options)
      for (const [index, task] of units.flat().entries()) this.#note(task, outcomes[index])
      return outcomes
    }
    const open = session.open.bind(session)
    session.open = async (id, options) => {
      await open(id, options)
      this.#sessions.add(id)
    }
    const end = session.end.bind(session)
    session.end = async (id, limit) => {
      this.#sessions.delete(id)
      return await end(id, limit)
    }
    session.work = async (request) => {
      const reply = await this.#work(request)
      this.#answered()
      return reply
    }
  }
}

/** Whether the promise resolves within so much real time. */
async function within(ms: number, promise: Promise<true>): Promise<boolean> {
  return await (ms === Infinity ? promise : Promise.race([promise, realTime(ms).then(() => false)]))
}
