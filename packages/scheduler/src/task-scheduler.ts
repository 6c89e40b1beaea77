/**
 * The scheduler: tasks later, at an instant, at an interval, or by a cron expression, each slot once on any number of
 * nodes. Its schedules live in the storage of the pool; whichever node runs a scheduler for the queue fires them.
 */
import {
  NeoTaskError,
  optionError,
  parseDuration,
  TaskDefinition,
  type Duration,
  type RetrySetting,
  type SubmitOptions,
  type TaskId,
  type TaskPool,
  type TaskState,
} from '@neotask/core'
import {
  checkBoolean,
  checkInteger,
  checkKeys,
  checkObject,
  checkTaskId,
  tierOf,
  type PlacedTask,
  type Tier,
} from '@neotask/core/tier'
import { randomBytes } from 'node:crypto'
import { MOST_AT_ONCE, planOf, reasonOf } from './policies.js'
import {
  entriesOf,
  newSchedule,
  passedSlots,
  redefinition,
  resumption,
  waitAlike,
  type Edit,
} from './redefine.js'
import {
  recordDueAt,
  remember,
  slotsOf,
  taskIdOf,
  timingOf,
  type Definition,
  type Entry,
  type Missed,
  type Overlap,
  type Schedule,
  type SkipReason,
} from './schedule.js'
import { ScheduleLoop } from './schedule-loop.js'
import {
  checkDate,
  readOptions,
  resolveRules,
  SCHEDULE_KEYS,
  TASK_KEYS,
  timetableOf,
  windowError,
  type CronOptions,
  type Rules,
  type ScheduleOptions,
  type Timetable,
  type TimetableNames,
} from './schedule-options.js'
import { hashOf } from './schedule-record.js'
import { ScheduleStore } from './schedule-store.js'
import { Slots } from './timing.js'

/** A schedule's id, which remembers the type of its tasks' results. An ordinary string at run time. */
export type ScheduleId<Result = unknown> = string & { readonly [RESULT]?: Result }
declare const RESULT: unique symbol

/** What is known of a schedule; times in ms. */
export interface ScheduleInfo {
  readonly id: string
  /** The name of the definition of its tasks; empty for the executor. */
  readonly name: string
  /** `ended`: it has no slot any more, by `end` or `maxRuns`. */
  readonly state: 'active' | 'paused' | 'ended'
  /** Of its tasks; `undefined` when this pool cannot read it, since another codec made it. */
  readonly data: unknown
  readonly every: number | undefined
  readonly expression: string | undefined
  readonly zone: string | undefined
  /**
   * The slot that will be fired next, without its jitter. While paused, the one that would be, if it were resumed now.
   */
  readonly next: Date | undefined
  readonly overlap: Overlap
  readonly missed: Missed
  readonly tolerance: number | undefined
  readonly jitter: number
  readonly start: Date | undefined
  readonly end: Date | undefined
  /** Slots that were fired, and how many may be. */
  readonly runs: number
  readonly maxRuns: number | undefined
  /** Slots that its history remembers. */
  readonly history: number
  readonly priority: number
  readonly retry: RetrySetting | undefined
  readonly timeout: number | undefined
  readonly tags: readonly string[]
  /** The task of the slot that was fired last. */
  readonly lastTask: string | undefined
  readonly createdAt: Date
}

/** How a slot went. */
export interface SlotInfo {
  /** The instant, without its jitter; of a `trigger`, when it was called. */
  readonly slot: Date
  /** Its task, if it has one: fired, triggered, or made up for by `backfill`. */
  readonly taskId: string | undefined
  /** The state of that task; `undefined` when its record is gone. */
  readonly outcome: TaskState | undefined
  /** Why the slot was not fired. */
  readonly reason: SkipReason | undefined
  readonly triggered: boolean
}

/** What may be changed: everything but the id. What is `undefined` is kept. */
export type ScheduleChanges<Data = unknown> = Omit<ScheduleOptions, 'id'> & {
  data?: Data | undefined
} & (
    | { every?: Duration | undefined; expression?: undefined; zone?: undefined }
    | { expression?: string | undefined; zone?: string | undefined; every?: undefined }
  )

export interface ScheduleListOptions {
  /** 1 to 500. Default: 100. */
  limit?: number | undefined
  /** The `cursor` of the page before. */
  cursor?: string | undefined
  /** Only those whose tasks have this name; empty for the executor. */
  name?: string | undefined
  /** Only those with this tag. */
  tag?: string | undefined
}

export interface ScheduleList {
  /** By their ids. A page with a filter may be short, and still have a cursor. */
  schedules: ScheduleInfo[]
  /** Given when there may be more. */
  cursor: string | undefined
}

/** A timetable without a schedule, for `preview`. */
export type PreviewOf = (
  | { every: Duration; expression?: undefined; zone?: undefined }
  | { expression: string; zone?: string | undefined; every?: undefined }
) & {
  start?: Date | number | undefined
  end?: Date | number | undefined
}

/** Slots of one backfill, at most. */
const MOST_BACKFILLED = 10_000
const MOST_PREVIEWED = 1000
/** Tasks that a backfill enqueues at a time. */
const BACKFILL_BATCH = 500
/** ms by which the clock of whoever says "until now" may be ahead of the storage's. */
const SKEW = 60_000

export class TaskScheduler<Data = never, Result = unknown> {
  readonly #pool: TaskPool<Data, Result>
  readonly #tier: Tier
  readonly #store: ScheduleStore
  readonly #loop: ScheduleLoop

  /**
   * A scheduler for the queue of the pool. It fires while the pool is started, also one with `concurrency: 0`, and ends
   * with it. Several for one queue, in one process or many, share the work.
   */
  constructor(pool: TaskPool<Data, Result>) {
    this.#tier = tierOf(pool)
    this.#pool = pool
    this.#store = new ScheduleStore(this.#tier)
    this.#loop = new ScheduleLoop(this.#tier, this.#store)
    const service = {
      name: 'schedules',
      start: () => this.#loop.start(),
      stop: () => this.#loop.stop(),
    }
    pool.use(service).catch((error: unknown) => this.#tier.trouble(error, 'schedules'))
  }

  // -------------------------------------------------------------------------------------------------- submit

  /**
   * Stores a task that runs after the delay: `pool.submit` with `delay`. Rejects as that does.
   *
   * @param delay any duration from 0 on. Example: `'5m'`
   */
  submitDelayed<Input, R>(
    task: TaskDefinition<Input, R>,
    data: Input,
    delay: Duration,
    options?: TaskSubmitOptions,
  ): Promise<TaskId<R>>
  submitDelayed(data: Data, delay: Duration, options?: TaskSubmitOptions): Promise<TaskId<Result>>
  async submitDelayed(...args: unknown[]): Promise<TaskId<never>> {
    const { task, data, rest } = splitTask(args)
    const delay = parseDuration(rest[0], 'delay')
    return await this.#submit(task, data, { ...optionsOfOne(rest[1]), delay })
  }

  /**
   * Stores a task that runs at the instant: `pool.submit` with `runAt`. An instant that has passed runs at once. Rejects
   * as that does, and `DATE_INVALID`.
   *
   * @param date a Date, or ms since 1970
   */
  submitAt<Input, R>(
    task: TaskDefinition<Input, R>,
    data: Input,
    date: Date | number,
    options?: TaskSubmitOptions,
  ): Promise<TaskId<R>>
  submitAt(data: Data, date: Date | number, options?: TaskSubmitOptions): Promise<TaskId<Result>>
  async submitAt(...args: unknown[]): Promise<TaskId<never>> {
    const { task, data, rest } = splitTask(args)
    const runAt = checkDate(rest[0], 'date')
    return await this.#submit(task, data, { ...optionsOfOne(rest[1]), runAt })
  }

  /**
   * A schedule that fires every so often: at `start` + n × `every`, or at its creation + n × `every` for n from 1 on.
   * Slots never drift, and the same definition submitted again keeps them.
   *
   * Rejects what `submit` rejects, and `INTERVAL_INVALID` `DATE_INVALID` `WINDOW_INVALID`; then nothing is stored.
   *
   * @param every whole ms, from 100 ms to 100 years. Example: `'5m'`
   */
  submitInterval<Input, R>(
    task: TaskDefinition<Input, R>,
    data: Input,
    every: Duration,
    options?: ScheduleOptions,
  ): Promise<ScheduleId<R>>
  submitInterval(data: Data, every: Duration, options?: ScheduleOptions): Promise<ScheduleId<Result>>
  async submitInterval(...args: unknown[]): Promise<ScheduleId<never>> {
    const { task, data, rest } = splitTask(args)
    const [every, options = {}] = rest as [Duration, ScheduleOptions?]
    const given = readOptions(options, ['id', ...SCHEDULE_KEYS], 'options')
    return await this.#upsert(task, data, { every }, given)
  }

  /**
   * A schedule that fires when the expression says, in the local time of `zone` (default UTC).
   *
   * Rejects what `submit` rejects, and `CRON_INVALID` `ZONE_INVALID` `DATE_INVALID` `WINDOW_INVALID`; then nothing is
   * stored.
   *
   * @param expression five fields, six with seconds first, or `@daily` and the like; see the guide page on cron
   */
  submitCron<Input, R>(
    task: TaskDefinition<Input, R>,
    data: Input,
    expression: string,
    options?: CronOptions,
  ): Promise<ScheduleId<R>>
  submitCron(data: Data, expression: string, options?: CronOptions): Promise<ScheduleId<Result>>
  async submitCron(...args: unknown[]): Promise<ScheduleId<never>> {
    const { task, data, rest } = splitTask(args)
    const [cron, options = {}] = rest as [string, CronOptions?]
    const { zone, ...given } = readOptions(options, ['id', 'zone', ...SCHEDULE_KEYS], 'options')
    return await this.#upsert(task, data, { cron, zone }, given)
  }

  // ------------------------------------------------------------------------------------------------- change

  /** No slot is fired until `resume`. What runs goes on. Safe to call twice. Rejects `SCHEDULE_NOT_FOUND`. */
  async pause(id: string): Promise<void> {
    await this.#change(id, (schedule) => (schedule.paused ? undefined : { ...schedule, paused: true }))
  }

  /** Goes on with the next slot; those that passed meanwhile are not fired. Rejects `SCHEDULE_NOT_FOUND`. */
  async resume(id: string): Promise<void> {
    checkId(id)
    const now = await this.#store.now()
    const change = await this.#edit(id, resumption(now), now)
    if (change === undefined) throw notFound(id)
    this.#isDue(change.schedule)
  }

  /**
   * Enqueues a task of the schedule now, beside its slots: it counts neither as a run nor as the task before the next
   * slot. Also while it is paused or has ended. Rejects `SCHEDULE_NOT_FOUND`, and as `submit` does.
   */
  async trigger<R = Result>(id: ScheduleId<R>): Promise<TaskId<R>> {
    const { definition } = await this.#find(id)
    const slot = await this.#store.now()
    const taskId = `${id}~now-${randomBytes(9).toString('base64url')}`
    await this.#enqueue([{ ...definition.task, id: taskId }])
    this.#tier.consume()
    // It may have been cancelled meanwhile; the task runs all the same.
    await this.#store.change(id, (schedule) => {
      return { ...schedule, history: remember(schedule, [{ slot, code: 'triggered', taskId }]) }
    })
    return taskId
  }

  /**
   * Ends the schedule and forgets it. What it has enqueued runs, unless `running` says otherwise. Rejects
   * `SCHEDULE_NOT_FOUND`.
   *
   * @param options.running cancels the task of its last slot too, if that has not ended. Default: false
   */
  async cancel(id: string, options: { running?: boolean | undefined } = {}): Promise<void> {
    checkId(id)
    checkObject(options, 'options')
    checkKeys(options, ['running'], '')
    const running = checkBoolean(options.running ?? false, 'running')
    // One that cannot be read can still be ended.
    const last = running ? (await this.#find(id)).lastTask : undefined
    if (!(await this.#store.delete(id))) throw notFound(id)
    if (last === undefined) return
    const message = 'its schedule was cancelled'
    await this.#tier.call('cancel', ({ queue }) => queue.cancel(this.#tier.ref, [last], { message }))
  }

  /**
   * Changes what is given and keeps the rest, also its history and whether it is paused. Takes effect from the next slot; a
   * slot that is due stays, unless the slots are others now: then it is in the history. To take an option away, submit the
   * schedule again without it.
   *
   * Rejects `SCHEDULE_NOT_FOUND`, and as the submit does. Only new data, and options of its tasks, need the definition of the
   * task in this pool.
   */
  async update<Input = Data>(id: string, changes: ScheduleChanges<NoInfer<Input>>): Promise<ScheduleInfo> {
    checkId(id)
    const given = readOptions<Changes, keyof Changes>(changes, CHANGE_KEYS, 'changes', 'changes.')
    const now = await this.#store.now()
    for (;;) {
      const before = await this.#find(id)
      const definition = await this.#changed(before.definition, given)
      const hash = hashOf(definition)
      const change = await this.#edit(id, redefinition(definition, hash, now, before.hash), now)
      if (change === undefined) throw notFound(id)
      const { schedule } = change
      // Otherwise somebody else has changed the definition, and the rest is to be kept as it is now.
      if (schedule.hash !== hash) continue
      this.#isDue(schedule)
      return this.#info(schedule, now)
    }
  }

  // ---------------------------------------------------------------------------------------------------- ask

  /** The schedule, `undefined` when there is none. Rejects `STORAGE_FORMAT` when its record cannot be read. */
  async get(id: string): Promise<ScheduleInfo | undefined> {
    checkId(id)
    const [found, now] = await Promise.all([this.#store.get(id), this.#store.now()])
    return found && this.#info(found.schedule, now)
  }

  /** One page of the schedules of this queue, by their ids. */
  async list(options: ScheduleListOptions = {}): Promise<ScheduleList> {
    checkObject(options, 'options')
    checkKeys(options, ['limit', 'cursor', 'name', 'tag'], 'list.')
    const { cursor, name, tag } = options
    const limit = checkInteger(options.limit ?? 100, 'list.limit', 1, 500)
    for (const [key, value] of Object.entries({ cursor, name, tag })) {
      if (value !== undefined && typeof value !== 'string') throw optionError(`list.${key}`, 'a text', value)
    }
    const label = name === undefined ? (tag === undefined ? undefined : `tag:${tag}`) : `name:${name}`
    const [page, now] = await Promise.all([this.#store.list({ limit, cursor, label }), this.#store.now()])
    const schedules = page.schedules.filter(
      ({ definition }) =>
        name === undefined || tag === undefined || definition.submit.tags?.includes(tag) === true,
    )
    return { schedules: schedules.map((schedule) => this.#info(schedule, now)), cursor: page.cursor }
  }

  /**
   * The slots that will be fired next, without their jitter: of a schedule, or of a timetable that is no schedule (yet). Those
   * that came while nobody was there are among them as far as the policy for missed ones says so.
   *
   * Rejects `SCHEDULE_NOT_FOUND`, or what is wrong with the timetable.
   *
   * @param count 1 to 1 000. Default: 10
   */
  async preview(of: string | PreviewOf, count = 10): Promise<Date[]> {
    checkInteger(count, 'preview(count)', 1, MOST_PREVIEWED)
    const timetable = typeof of === 'string' ? undefined : previewRules(of)
    const now = await this.#store.now()
    const slots =
      timetable === undefined
        ? upcoming(await this.#find(of as string), now, count)
        : slotsOf({ definition: timetable as Definition, anchor: timetable.start ?? now }).preview(now, count)
    return slots.map((slot) => new Date(slot))
  }

  /**
   * How its last slots went, newest first: for each its task and what became of it, or why it was left out.
   *
   * @param count at most so many. Default: all that are remembered
   */
  async history(id: string, count: number = MOST_AT_ONCE): Promise<SlotInfo[]> {
    checkInteger(count, 'history(count)', 1)
    const { history } = await this.#find(id)
    const entries = history.slice(-count).reverse()
    const idOfTask = ({ slot, taskId }: Entry): string => taskId ?? taskIdOf(id, slot)
    const tasks = await this.#store.tasks(entries.map(idOfTask))
    return entries.map((entry) => {
      const task = tasks.get(idOfTask(entry))
      const reason = reasonOf(entry)
      return {
        slot: new Date(entry.slot),
        taskId: task === undefined && reason !== undefined ? undefined : idOfTask(entry),
        outcome: task?.state,
        reason,
        triggered: entry.code === 'triggered',
      }
    })
  }

  /**
   * Enqueues the tasks of all slots from `from` on and before `to`, whatever the policies, its window and `maxRuns` say. A
   * slot that was fired, or backfilled, keeps its task and is not run again. That is known of the slots that its history
   * remembers as fired, and of those whose task is in the storage or was there within the last 24 h; **an older one runs
   * again.** So call it twice within a day, or for slots that never ran.
   *
   * Rejects `SCHEDULE_NOT_FOUND` `DATE_INVALID` `WINDOW_INVALID` (`to` is not later than `from`, or more than a minute in the
   * future, or there are more than 10 000 slots), and as `submit` does; then those before are stored.
   *
   * @returns the tasks of the slots, in order, also of those that were fired before
   */
  async backfill<R = Result>(
    id: ScheduleId<R>,
    from: Date | number,
    to: Date | number,
  ): Promise<TaskId<R>[]> {
    const first = checkDate(from, 'from')
    const end = checkDate(to, 'to')
    if (end <= first) throw windowError('to', 'later than from', end)
    const { definition, anchor, history } = await this.#find(id)
    const now = await this.#store.now()
    if (end > now + SKEW) throw windowError('to', 'no instant in the future', end)
    const slots = new Slots(timingOf(definition, anchor), { end: Math.min(end - 1, now) }).preview(
      first - 1,
      MOST_BACKFILLED + 1,
    )
    if (slots.length > MOST_BACKFILLED)
      throw windowError('to', `at most ${MOST_BACKFILLED} slots before it`, end)
    const fired = new Set(history.filter(({ code }) => code === 'fired').map(({ slot }) => slot))
    const tasks = slots
      .filter((slot) => !fired.has(slot))
      .map((slot) => ({ ...definition.task, id: taskIdOf(id, slot) }))
    for (let start = 0; start < tasks.length; start += BACKFILL_BATCH) {
      await this.#enqueue(tasks.slice(start, start + BACKFILL_BATCH))
    }
    this.#tier.consume()
    return slots.map((slot) => taskIdOf(id, slot) as TaskId<R>)
  }

  // ------------------------------------------------------------------------------------------------- inside

  #submit(task: TaskDefinition | undefined, data: unknown, options: SubmitOptions): Promise<TaskId<never>> {
    const id =
      task === undefined
        ? this.#pool.submit(data as Data, options)
        : this.#pool.submit(task, data as never, options)
    return id as Promise<TaskId<never>>
  }

  async #upsert(
    task: TaskDefinition | undefined,
    data: unknown,
    timetable: Timetable,
    options: ScheduleOptions,
  ): Promise<ScheduleId<never>> {
    const { id = `schedule-${randomBytes(12).toString('base64url')}`, ...others } = options
    checkId(id)
    const rules = resolveRules(timetable, others)
    const prepared = await this.#tier.prepare(task, data, rules.submit)
    const definition: Definition = { ...rules, task: prepared }
    const hash = hashOf(definition)
    const now = await this.#store.now()
    const schedule = await this.#place(id, definition, hash, now)
    this.#isDue(schedule)
    this.#tier.consume()
    return id
  }

  /** Creates the schedule, or changes the one that is there. */
  async #place(id: string, definition: Definition, hash: string, now: number): Promise<Schedule> {
    for (;;) {
      let invalid: NeoTaskError | undefined
      try {
        const created = newSchedule(id, definition, hash, now)
        if (await this.#store.create(created)) return created
      } catch (error) {
        if (!(error instanceof NeoTaskError) || error.code !== 'WINDOW_INVALID') throw error
        invalid = error
      }
      const there = await this.#edit(id, redefinition(definition, hash, now), now)
      if (there !== undefined) return there.schedule
      // Its window is over; only one that is there already may say so again.
      if (invalid !== undefined) throw invalid
    }
  }

  /** The definition with the changes. */
  async #changed(definition: Definition, changes: Changes): Promise<Definition> {
    const { data, every, expression, zone, ...options } = changes
    const { task, submit, ...before } = definition
    const timetable = timetableOf({ every, expression, zone }, 'changes.', before)
    const rules = resolveRules(timetable, { ...before, ...submit, ...options })
    const mustPrepare = TASK_KEYS.some((key) => options[key] !== undefined)
    if (data !== undefined) {
      const prepared = await this.#tier.prepare(this.#tier.definition(task.kind), data, rules.submit)
      return { ...rules, task: prepared }
    }
    // The data was validated when it came, and what the schema made of it is no input for it again.
    const again = mustPrepare ? this.#tier.prepareOptions(task.kind, rules.submit) : {}
    return { ...rules, task: { ...task, ...again } }
  }

  /** Changes a schedule by an edit that may leave out slots: they are looked up first, and again if others come meanwhile. */
  async #edit(
    id: string,
    { leavesOut, apply }: Edit,
    now: number,
  ): Promise<{ schedule: Schedule } | undefined> {
    let passed: readonly Entry[] = []
    let looked: Schedule | undefined
    for (;;) {
      const change = await this.#store.change(id, (schedule) => {
        if (!leavesOut(schedule)) return apply(schedule, [])
        return looked !== undefined && waitAlike(schedule, looked) ? apply(schedule, passed) : undefined
      })
      if (change === undefined || change.isChanged || !leavesOut(change.schedule)) return change
      looked = change.schedule
      const slots = passedSlots(looked, now)
      const tasks = await this.#store.tasks(slots.map((slot) => taskIdOf(id, slot)))
      passed = entriesOf(looked, slots, (slot) => tasks.has(taskIdOf(id, slot)))
    }
  }

  async #enqueue(tasks: readonly PlacedTask[]): Promise<void> {
    for (const outcome of await this.#tier.enqueue(tasks)) if (outcome instanceof Error) throw outcome
  }

  async #change(id: string, edit: (schedule: Schedule) => Schedule | undefined): Promise<void> {
    checkId(id)
    const change = await this.#store.change(id, edit)
    if (change === undefined) throw notFound(id)
    this.#isDue(change.schedule)
  }

  #isDue(schedule: Schedule): void {
    const dueAt = recordDueAt(schedule)
    if (dueAt !== undefined) this.#loop.expect(dueAt)
  }

  async #find(id: string): Promise<Schedule> {
    checkId(id)
    const found = await this.#store.get(id)
    if (found === undefined) throw notFound(id)
    return found.schedule
  }

  /** Of its tasks. One schedule that cannot be read is told of, and never stops the others. */
  #dataOf({ id, definition }: Schedule): unknown {
    const { payload, codec } = definition.task
    try {
      return codec === this.#tier.codec.id ? this.#tier.codec.decode(payload) : undefined
    } catch (error) {
      this.#tier.trouble(error, `the schedule ${id}`)
      return undefined
    }
  }

  /** @param now the storage's */
  #info(schedule: Schedule, now: number): ScheduleInfo {
    const { id, definition, paused, runs, lastTask } = schedule
    const [next] = upcoming(schedule, now, 1)
    const {
      task,
      submit,
      every,
      cron,
      zone,
      start,
      end,
      maxRuns,
      overlap,
      missed,
      tolerance,
      jitter,
      history,
    } = definition
    const date = (instant: number | undefined): Date | undefined =>
      instant === undefined ? undefined : new Date(instant)
    return {
      id,
      name: task.kind,
      state: next === undefined ? 'ended' : paused ? 'paused' : 'active',
      data: this.#dataOf(schedule),
      every,
      expression: cron,
      zone,
      next: date(next),
      overlap,
      missed,
      tolerance,
      jitter,
      start: date(start),
      end: date(end),
      runs,
      maxRuns,
      history,
      priority: task.priority,
      retry: submit.retry,
      timeout: submit.timeout as number | undefined,
      tags: submit.tags ?? [],
      lastTask,
      createdAt: new Date(schedule.createdAt),
    }
  }
}

/** Options of one task, but for when it runs. */
export type TaskSubmitOptions = Omit<SubmitOptions, 'delay' | 'runAt'>

/** Any of {@link ScheduleChanges}, before they are checked. */
type Changes = Omit<ScheduleOptions, 'id'> & TimetableNames & { data?: unknown }

const CHANGE_KEYS: readonly (keyof Changes)[] = ['data', 'every', 'expression', 'zone', ...SCHEDULE_KEYS]

/** The options of `submitDelayed` and `submitAt`, which say themselves when the task runs. */
function optionsOfOne(options: unknown): TaskSubmitOptions {
  if (options === undefined) return {}
  checkObject(options, 'options')
  const given: SubmitOptions = { ...(options as SubmitOptions) }
  for (const key of ['delay', 'runAt'] as const) {
    if (given[key] !== undefined) throw optionError(key, 'none in the options', given[key])
  }
  return given
}

function splitTask(args: readonly unknown[]): {
  task: TaskDefinition | undefined
  data: unknown
  rest: unknown[]
} {
  const [first, ...rest] = args
  if (!(first instanceof TaskDefinition)) return { task: undefined, data: first, rest }
  return { task: first, data: rest[0], rest: rest.slice(1) }
}

/**
 * The slots that will be fired next, when somebody looks now.
 *
 * @param count at most so many
 */
function upcoming(schedule: Schedule, now: number, count: number): number[] {
  const { definition, next, paused, runs } = schedule
  if (next === undefined) return []
  const slots = slotsOf(schedule)
  const left = Math.min(count, (definition.maxRuns ?? Infinity) - runs)
  if (paused || next > now) return slots.preview(paused ? Math.max(now, next - 1) : next - 1, left)
  const { wanted, following } = planOf(schedule, now)
  const rest = following === undefined ? [] : slots.preview(following - 1, left)
  return [...wanted, ...rest].slice(0, left)
}

/** The rules of a timetable without a schedule. */
function previewRules(of: PreviewOf): Rules {
  const given = readOptions<PreviewOf, keyof PreviewOf>(
    of,
    ['every', 'expression', 'zone', 'start', 'end'],
    'preview(of)',
    'preview.',
    'the id of a schedule, { every } or { expression }',
  )
  const { start, end } = given
  return resolveRules(timetableOf(given, 'preview.'), { start, end })
}

function checkId(id: unknown): void {
  checkTaskId(id)
}

function notFound(id: string): NeoTaskError {
  return new NeoTaskError('SCHEDULE_NOT_FOUND', `no schedule ${id} in this queue`)
}
