/** The model of debounce: which tasks go into one that waits, and what that one is afterwards. */
import type { NewTask } from '../storage.js'
import { WATCHED, type ModelQueue } from './model-queue.js'
import type { ModelTask, ModelWindow } from './model-task.js'

/** A key belongs to a kind. */
export const keyOf = ({ kind, debounce }: NewTask): string | undefined =>
  debounce === undefined ? undefined : `${kind} ${debounce.key}`

/** The task into which the new one goes. */
export function absorberOf(queue: ModelQueue, given: NewTask): ModelTask | undefined {
  const named = queue.windows.get(keyOf(given) ?? '')
  if (named === undefined) return undefined
  const isWaiting = named.state === 'scheduled' || named.state === 'pending'
  return isWaiting || isRepeat(named, given) ? named : undefined
}

/** It went into the task already, and its reply was lost. */
const isRepeat = ({ window }: ModelTask, { id }: NewTask): boolean => window?.newest === id

/** A new task with a key: the key names it from now on. */
export function openWindow(queue: ModelQueue, task: ModelTask, given: NewTask): void {
  const key = keyOf(given)
  if (key === undefined) return
  task.window = { key, openedAt: queue.now, newest: undefined }
  task.delay = delayIn(task.window, queue.now, given)
  queue.windows.set(key, task)
}

export function absorb(queue: ModelQueue, task: ModelTask, given: NewTask): void {
  if (given.watcher !== undefined) queue.watchOne(task, given.watcher, WATCHED)
  const window = task.window as ModelWindow
  if (isRepeat(task, given)) return
  if (task.attempts > 0 || window.openedAt === undefined) window.openedAt = queue.now
  window.newest = given.id
  task.payload = given.payload
  task.codec = given.codec
  task.options = given.options
  task.place = { ...task.place, priority: given.priority }
  task.attempts = 0
  task.reclaims = 0
  task.probation = false
  task.timedOut = false
  task.error = undefined
  task.duration = undefined
  task.progress = undefined
  task.checkpoint = undefined
  const delay = delayIn(window, queue.now, given)
  // One that is ready stays so, at its place.
  if (delay === 0 && task.state === 'pending') return
  queue.leave(task)
  if (delay > 0) queue.schedule(task, queue.now + delay)
  else {
    queue.newPlace(task)
    queue.ready(task)
  }
}

function delayIn({ openedAt = 0 }: ModelWindow, now: number, { delay = 0, debounce }: NewTask): number {
  return Math.max(0, Math.min(delay, openedAt + (debounce?.maxWait ?? Infinity) - now))
}
