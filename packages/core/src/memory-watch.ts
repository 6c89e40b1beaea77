/** Who waits for a task: registrations that last for a time, kept with the task itself. */
import type { MemoryNotices } from './memory-notices.js'
import type { Task, Watch } from './memory-task.js'
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
  const until = now + ttl
  for (let entry = task.watch; entry !== undefined; entry = entry.next) {
    if (entry.watcher === watcher && entry.until >= until) return
  }
  const others = task.watch === undefined ? undefined : without(task.watch, watcher, now)
  task.watch = others === undefined ? lone(watcher, until) : { watcher, until, next: others }
}

/** The registrations that still hold, but for those of one watcher. */
function without(entry: Watch, watcher: string, now: number): Watch | undefined {
  const next = entry.next === undefined ? undefined : without(entry.next, watcher, now)
  if (entry.watcher === watcher || entry.until <= now) return next
  return next === entry.next ? entry : { watcher: entry.watcher, until: entry.until, next }
}

/** Most tasks have one watcher, and those of one moment the same: they share its registration. */
let last: Watch = { watcher: '', until: 0, next: undefined }
function lone(watcher: string, until: number): Watch {
  if (last.watcher !== watcher || last.until !== until) last = { watcher, until, next: undefined }
  return last
}

/** Takes a watcher off that will know of the end without being told. */
export function dropWatcher(task: Task, watcher: string | undefined, now: number): void {
  if (task.watch !== undefined && watcher !== undefined) task.watch = without(task.watch, watcher, now)
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
  task.watch = lone('', now + WATCH_MS)
}
