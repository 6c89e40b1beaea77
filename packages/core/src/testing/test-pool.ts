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
import { optionError } from '../errors.js'
import { memoryStorage } from '../memory-storage.js'
import type { SubmitOptions } from '../options.js'
import {
  isRefusal,
  wakeChannel,
  type EnqueueOutcome,
  type NewTask,
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
  readonly #queue: string
  readonly #submitted: SubmittedTasks
  readonly #manual: boolean
  /** Calls that wait for tasks to run. */
  #waiting = 0
  /** A call of the storage's that nobody takes note of. */
  readonly #work: SessionFace['work']
  /** The session of the pool, once it consumes. */
  #session: string | undefined
  /** Whoever waits for the session to be answered. */
  #listeners: (() => void)[] = []

  constructor(options: TestPoolOptions<Data, Result>) {
    const { run = 'manual', clock = new ManualClock(), ...rest } = options
    oneOf(run, 'run', ['manual', 'auto'])
    if (!((clock as unknown) instanceof ManualClock)) throw optionError('clock', 'a ManualClock', clock)
    const storage = memoryStorage({ clock })
    super({ ...rest, clock, storage, sessionTtl: SESSION_TTL, autoStart: true, loadLimit: undefined })
    this.clock = clock
    this.#storage = storage
    this.#queue = options.queue ?? 'default'
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
   * @param expected properties that the data has (at any depth; arrays are compared whole, and the matchers of vitest
   * and jest may stand in it), or a function that is given data and task. Default: any data
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
   * delays, retries. Waits for handlers as long as they take; a `timeout` never passes, because the clock stands still.
   */
  override async drain(): Promise<void> {
    await this.#running(() => this.#settle(Infinity))
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

  override run<Input, R>(task: TaskDefinition<Input, R>, data: Input, options?: SubmitOptions): Promise<R>
  override run(data: Data, options?: SubmitOptions): Promise<Result>
  override run(...call: unknown[]): Promise<unknown> {
    return this.#running(() => super.run(...(call as [Data, SubmitOptions])))
  }

  override waitForResult<R = Result>(
    id: TaskId<R>,
    options?: { timeout?: Duration; signal?: AbortSignal },
  ): Promise<R> {
    return this.#running(() => super.waitForResult(id, options))
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
    if (this.#manual && this.#waiting++ === 0) await super.resume({ local: true })
    try {
      return await action()
    } finally {
      // Of a pool that was closed meanwhile nothing runs anyway.
      if (this.#manual && --this.#waiting === 0) await super.pause({ local: true }).catch(() => {})
    }
  }

  /** Lets run what is ready now, until all is done or nothing has ended for `patience` ms of real time. */
  async #settle(patience: number): Promise<void> {
    for (;;) {
      const answered = new Promise<true>((resolve) => this.#listeners.push(() => resolve(true)))
      await this.clock.settle()
      const { isBusy } = await this.#look()
      if (!isBusy) return
      if (!(await within(patience, answered))) return
    }
  }

  /** What there is to do now, and in how many ms there is more. */
  async #look(): Promise<{ isBusy: boolean; nextDueIn: number }> {
    const { upkeep, notices } = this.#storage
    const ref = { tenant: 'default', queue: this.#queue }
    while ((await upkeep.drain(ref, DRAINED)) === 'more');
    if (this.#session === undefined) return { isBusy: false, nextDueIn: Infinity }
    const nothing = { marks: [], reports: [], settlements: [], renew: false, want: 0 }
    const reply = await this.#work({ session: this.#session, ack: 0, ackTaken: 0, ...nothing })
    const isReady = reply.head !== undefined && !reply.paused
    // Otherwise a message that was missed would be made good by the next poll, for which the clock would have to move.
    if (isReady) await notices.publish(wakeChannel(this.#session), '')
    return { isBusy: isReady || reply.held > 0, nextDueIn: reply.nextDueIn ?? Infinity }
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
      this.#session = id
    }
    session.work = async (request) => {
      const reply = await this.#work(request)
      for (const listener of this.#listeners.splice(0)) listener()
      return reply
    }
  }
}

/** Whether the promise resolves within so much real time. */
async function within(ms: number, promise: Promise<true>): Promise<boolean> {
  return await (ms === Infinity ? promise : Promise.race([promise, realTime(ms).then(() => false)]))
}
