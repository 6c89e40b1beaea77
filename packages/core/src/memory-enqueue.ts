/**
 * The enqueue step: each unit is checked whole before anything of it is written, so it is accepted or refused whole,
 * and no unit harms another.
 */
import { encodedSize } from './codec.js'
import type { ErrorCode } from './errors.js'
import { absorb, isAbsorbed, openWindow, windowKey } from './memory-debounce.js'
import type { MemoryQueue } from './memory-queue.js'
import { Task, isDoomed, keep, rareOf } from './memory-task.js'
import { WATCH_MS, watch } from './memory-watch.js'
import type { EnqueueOptions, EnqueueOutcome, NewTask, Refusal, Unit } from './storage.js'
import { MAX_PRIORITY, isGeneratedId, isStorableDuration, isStorableId, isStorableInstant } from './task.js'

const MAX_UNIT_TASKS = 500
const MAX_UNIT_BYTES = 1024 * 1024
const MAX_PARENTS = 100
/** Tombstones whose time is over that one new task removes, at most. */
const TOMBSTONES_PRUNED = 100

export function enqueue(
  queue: MemoryQueue,
  units: readonly Unit[],
  options: EnqueueOptions | undefined,
  now: number,
): EnqueueOutcome[] {
  const outcomes: EnqueueOutcome[] = []
  const limit = limitOf(options)
  for (const unit of units) {
    if (isList(unit)) enqueueList(queue, unit, limit, now, outcomes)
    else outcomes.push(enqueueTask(queue, unit, limit, now))
  }
  return outcomes
}

/** The same for one task that is a unit of its own. */
export function enqueueSingle(
  queue: MemoryQueue,
  task: NewTask,
  options: EnqueueOptions | undefined,
  now: number,
): EnqueueOutcome {
  return enqueueTask(queue, task, limitOf(options), now)
}

const limitOf = (options: EnqueueOptions | undefined): number => options?.maxQueueSize ?? Infinity

function enqueueTask(queue: MemoryQueue, task: NewTask, limit: number, now: number): EnqueueOutcome {
  const known = queue.tasks.get(task.id)
  return known === undefined ? enqueueOne(queue, task, limit, now) : meet(queue, known, task, now)
}

const isList = (unit: Unit): unit is readonly NewTask[] => Array.isArray(unit)

function enqueueOne(queue: MemoryQueue, task: NewTask, limit: number, now: number): EnqueueOutcome {
  if (queue.tombstones.size > 0) queue.tombstones.prune(now, TOMBSTONES_PRUNED)
  const buried = queue.tombstones.get(task.id, now)
  if (buried !== undefined) return isRepeat(task, buried.nonce) ? 'repeated' : 'duplicate'
  const invalid = check(queue, task)
  if (invalid !== undefined) return invalid
  const absorbed = absorb(queue, task, now)
  if (absorbed !== undefined) return absorbed
  const full = checkRoom(queue, 1, limit)
  if (full !== undefined) return full
  accept(queue, task, now)
  return 'accepted'
}

function enqueueList(
  queue: MemoryQueue,
  unit: readonly NewTask[],
  limit: number,
  now: number,
  outcomes: EnqueueOutcome[],
): void {
  const refusal = checkUnit(queue, unit, limit, now)
  for (const task of unit) {
    if (refusal !== undefined) {
      outcomes.push(refusal)
      continue
    }
    outcomes.push(enqueueTask(queue, task, Infinity, now))
  }
}

function checkUnit(
  queue: MemoryQueue,
  unit: readonly NewTask[],
  limit: number,
  now: number,
): Refusal | undefined {
  if (unit.length > MAX_UNIT_TASKS) {
    return refuse(
      'OPTION_INVALID',
      `a unit holds at most ${MAX_UNIT_TASKS} tasks, this one has ${unit.length}`,
    )
  }
  const bytes = unit.length > 1 ? unit.reduce((sum, task) => sum + encodedSize(task.payload), 0) : 0
  if (bytes > MAX_UNIT_BYTES) {
    return refuse(
      'PAYLOAD_TOO_LARGE',
      `the payloads of a unit are at most ${MAX_UNIT_BYTES} bytes, not ${bytes}`,
    )
  }
  const earlier = new Set<string>()
  const windows = new Set<string>()
  for (const task of unit) {
    if (queue.tasks.has(task.id) || earlier.has(task.id)) continue
    if (queue.tombstones.get(task.id, now) !== undefined) continue
    const refusal = check(queue, task, earlier)
    if (refusal !== undefined) return refusal
    const key = windowKey(task)
    if (isAbsorbed(queue, task) || (key !== undefined && windows.has(key))) continue
    if (key !== undefined) windows.add(key)
    earlier.add(task.id)
  }
  return checkRoom(queue, earlier.size, limit)
}

/** @param earlier the new ids that stand before the task in its unit: they may be parents */
function check(queue: MemoryQueue, task: NewTask, earlier?: ReadonlySet<string>): Refusal | undefined {
  if (!isStorableId(task.id)) return refuse('OPTION_INVALID', `not an id that can be stored: ${task.id}`)
  const { priority, after, group, debounce, guard } = task
  if (!(Number.isInteger(priority) && priority >= 0 && priority <= MAX_PRIORITY)) {
    return refuse(
      'OPTION_INVALID',
      `priority: expected an integer from 0 to ${MAX_PRIORITY}, got ${priority}`,
    )
  }
  if (
    !isStorableDuration(task.delay) ||
    !isStorableInstant(task.runAt) ||
    !isStorableDuration(task.expiresIn)
  ) {
    return refuse(
      'OPTION_INVALID',
      'delay, runAt and expiresIn: expected ms from 0 to 100 000 years, or an instant of a Date',
    )
  }
  if (group !== undefined && !isStorableId(group.id)) {
    return refuse('OPTION_INVALID', `not a group id that can be stored: ${group.id}`)
  }
  if (debounce !== undefined && !(isStorableId(debounce.key) && isStorableDuration(debounce.maxWait))) {
    return refuse('OPTION_INVALID', `debounce: not a key and a time that can be stored: ${debounce.key}`)
  }
  if (guard !== undefined && !queue.holds(guard)) {
    return refuse('LEASE_LOST', `the claim of ${guard.key} is lost`)
  }
  if (after === undefined) return undefined
  if (after.ids.length > MAX_PARENTS) {
    return refuse('OPTION_INVALID', `after: at most ${MAX_PARENTS} tasks, not ${after.ids.length}`)
  }
  // Nothing may wait for itself or for what comes later, so a cycle cannot be written.
  const missing = after.ids.find((id) => !queue.tasks.has(id) && !earlier?.has(id))
  return missing === undefined ? undefined : refuse('DEPENDENCY_NOT_FOUND', `after: no task ${missing}`)
}

function checkRoom(queue: MemoryQueue, count: number, limit: number): Refusal | undefined {
  if (count === 0 || limit === Infinity || queue.waitingCount() + count <= limit) return undefined
  return refuse('QUEUE_FULL', `the queue holds ${queue.waitingCount()} waiting tasks, its limit is ${limit}`)
}

const refuse = (code: ErrorCode, message: string): Refusal => ({ code, message })

const isRepeat = (task: NewTask, nonce: string | undefined): boolean =>
  isGeneratedId(task.id) || (task.nonce !== undefined && task.nonce === nonce)

/** A task whose id is known. */
function meet(queue: MemoryQueue, known: Task, task: NewTask, now: number): EnqueueOutcome {
  if (task.watcher !== undefined) watch(queue.notices, known, task.watcher, WATCH_MS, now)
  return isRepeat(task, known.nonce) ? 'repeated' : 'duplicate'
}

function accept(queue: MemoryQueue, given: NewTask, now: number): void {
  const task = new Task(
    given.id,
    given.kind,
    keep(given.payload),
    given.codec,
    given.options,
    given.nonce,
    given.priority,
    queue.nextSequence(),
    now,
  )
  queue.tasks.set(task.id, task)
  queue.history.count('enqueued', now)
  if (given.watcher !== undefined) {
    watch(queue.notices, task, given.watcher, WATCH_MS, now)
  }
  if (isPlain(given)) queue.toReady(task, now)
  else place(queue, task, given, now)
}

const isPlain = (task: NewTask): boolean =>
  !task.delay &&
  task.runAt === undefined &&
  task.after === undefined &&
  task.group === undefined &&
  task.expiresIn === undefined &&
  task.debounce === undefined &&
  !task.hold

function place(queue: MemoryQueue, task: Task, given: NewTask, now: number): void {
  const rare = rareOf(task)
  rare.delay = given.delay
  rare.runAt = given.runAt
  rare.held = given.hold === true
  openWindow(queue, task, given, now)
  if (given.group !== undefined) queue.groups.join(task, given.group.id, given.group.exempt === true)
  if (given.after !== undefined && given.after.ids.length > 0) {
    queue.addParents(task, given.after)
    if (queue.isRefusedBy(given.after)) {
      queue.end(task, 'cancelled', 'DEPENDENCY_FAILED', now)
      return
    }
  }
  if (given.expiresIn !== undefined) queue.setDeadline(task, now + given.expiresIn)
  const waitsForParents = rare.open !== undefined
  if (rare.held && isDoomed(rare)) queue.endByGroup(task, now)
  else if (waitsForParents || rare.held) queue.block(task, now)
  else queue.free(task, now)
}
