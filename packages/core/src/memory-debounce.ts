/**
 * Debounce in the memory storage: a key names the newest task that was stored with it, and while that one waits, a
 * task with the same key goes into it instead of being stored.
 */
import type { MemoryQueue } from './memory-queue.js'
import { Line } from './memory-structures.js'
import { keep, rareOf, type Task, type Window } from './memory-task.js'
import { WATCH_MS, watch } from './memory-watch.js'
import type { Absorbed, NewTask } from './storage.js'

/** The name of a task's window in its queue. Kinds share no keys. */
export const windowKey = ({ kind, debounce }: NewTask): string | undefined =>
  debounce === undefined ? undefined : `${kind} ${debounce.key}`

/** Whether {@link absorb} would take the task up. */
export function isAbsorbed(queue: MemoryQueue, task: NewTask): boolean {
  const known = namesake(queue, task)
  return known !== undefined && (isWaiting(queue, known) || isRepeat(known, task))
}

/** Puts the task into the one with its key that waits; `undefined` when none does, and it is to be stored. */
export function absorb(queue: MemoryQueue, task: NewTask, now: number): Absorbed | undefined {
  const known = namesake(queue, task)
  if (known === undefined) return undefined
  const repeated = isRepeat(known, task)
  if (!repeated && !isWaiting(queue, known)) return undefined
  if (task.watcher !== undefined) watch(queue.notices, known, task.watcher, WATCH_MS, now)
  if (!repeated) replace(queue, known, task, now)
  return { into: known.id }
}

/** The key of a new task, if it has one, names it from now on. */
export function openWindow(queue: MemoryQueue, task: Task, given: NewTask, now: number): void {
  const key = windowKey(given)
  if (key === undefined) return
  const rare = rareOf(task)
  rare.window = { key, openedAt: now, newest: undefined }
  rare.delay = delayIn(now, given, now)
  queue.windows.set(key, task)
}

function namesake(queue: MemoryQueue, task: NewTask): Task | undefined {
  const key = windowKey(task)
  return key === undefined ? undefined : queue.windows.get(key)
}

const isWaiting = (queue: MemoryQueue, task: Task): boolean =>
  task.where === queue.due || task.where instanceof Line

/** A reply was lost: the task has had its effect, whatever became of that since. */
const isRepeat = (known: Task, task: NewTask): boolean => known.rare?.window?.newest === task.id

const delayIn = (openedAt: number, { delay = 0, debounce }: NewTask, now: number): number =>
  Math.max(0, Math.min(delay, openedAt + (debounce?.maxWait ?? Infinity) - now))

function replace(queue: MemoryQueue, known: Task, task: NewTask, now: number): void {
  const rare = rareOf(known)
  const window = rare.window as Window
  // After an attempt, or a retry of the ended task, its window is no more: this is a new one.
  const openedAt = known.attempts > 0 ? now : (window.openedAt ?? now)
  window.openedAt = openedAt
  window.newest = task.id
  known.payload = keep(task.payload)
  known.codec = task.codec
  known.options = task.options
  known.attempts = 0
  known.duration = undefined
  rare.reclaims = 0
  rare.probation = false
  rare.timedOut = false
  rare.error = undefined
  rare.progress = undefined
  rare.checkpoint = undefined
  queue.reprioritize(known, task.priority, now)
  const delay = delayIn(openedAt, task, now)
  // One that is ready keeps its place, so that it is not put off for ever.
  if (delay === 0 && known.where instanceof Line) return
  known.where.leave(known)
  if (delay > 0) queue.schedule(known, now + delay, now)
  else queue.promote(known, now)
}
