/** Who waits for a task: registrations that last for a time, kept with the task itself. */
import type { MemoryNotices } from './memory-notices.js'
import type { Task } from './memory-task.js'
import { isFinal } from './task.js'

/** How long a registration lasts that came with its task, and a record stays whose end was told. */
export const WATCH_MS = 60_000

/** Registers a watcher, or tells it at once when the task is final. */
export function watch(notices: MemoryNotices, task: Task, watcher: string, ttl: number, now: number): void {
  if (isFinal(task.where.state)) {
    notices.sendFinal(watcher, task.id)
    keepForReading(task, now)
    return
  }
  for (let entry = task.watch; entry !== undefined; entry = entry.next) {
    if (entry.watcher !== watcher) continue
    entry.until = Math.max(entry.until, now + ttl)
    return
  }
  let others = task.watch
  while (others !== undefined && others.until <= now) others = others.next
  task.watch = { watcher, until: now + ttl, next: others }
}

/** Tells the watchers that the task is final or removed. None stays registered, but its record stays for them. */
export function tellWatchers(notices: MemoryNotices, task: Task, now: number): void {
  let told = false
  for (let entry = task.watch; entry !== undefined; entry = entry.next) {
    if (entry.until <= now) continue
    notices.sendFinal(entry.watcher, task.id)
    told = true
  }
  task.watch = undefined
  if (told) keepForReading(task, now)
}

/** Keeps a final record for a watcher that may read it. */
export function keepForReading(task: Task, now: number): void {
  task.watch = { watcher: '', until: now + WATCH_MS, next: undefined }
}
