/** The settlement: how an attempt ended, accepted only while the entry is there. */
import type { Lease } from './memory-lease.js'
import type { MemoryQueue } from './memory-queue.js'
import { keep, rareOf, type Task } from './memory-task.js'
import { dropWatcher } from './memory-watch.js'
import type { Settlement } from './storage.js'

/** @returns whether it counts as accepted: now, or as the repeat of one that was; otherwise nothing changed */
export function settle(queue: MemoryQueue, lease: Lease, settlement: Settlement, now: number): boolean {
  const { token } = settlement
  const { oldest } = lease
  // Most end in the order in which they were claimed, so the first one is looked at first.
  const task = oldest?.id === settlement.id ? oldest : queue.tasks.get(settlement.id)
  if (task === undefined) return false
  if (!lease.holds(task, token)) return token > 0 && task.settledToken === token
  task.settledToken = token
  if (settlement.duration !== undefined) task.duration = settlement.duration
  if (task.rare !== undefined && settlement.outcome !== 'released') task.rare.timedOut = false
  switch (settlement.outcome) {
    case 'success':
      dropWatcher(task, lease.options.watcher, now)
      task.attempts++
      task.result = keep(settlement.result)
      task.resultCodec = settlement.codec
      if (task.rare !== undefined) task.rare.error = undefined
      queue.finish(task, 'success', token, now)
      break
    case 'failed': {
      dropWatcher(task, lease.options.watcher, now)
      task.attempts++
      const rare = rareOf(task)
      rare.error = settlement.error
      rare.fingerprint = settlement.fingerprint
      queue.finish(task, 'failed', token, now)
      if (settlement.cancelGroup === true && rare.group !== undefined) {
        queue.groups.flag(rare.group, true, undefined, now)
      }
      break
    }
    case 'retry':
      task.attempts++
      queue.history.count('retried', now)
      started(queue, task)
      rareOf(task).error = settlement.error
      lease.leave(task)
      queue.schedule(task, now + settlement.in, now)
      break
    case 'cancelled':
    case 'skipped': {
      const rare = rareOf(task)
      rare.reason = settlement.reason
      rare.message = settlement.message
      queue.finish(task, settlement.outcome, token, now)
      break
    }
    case 'released':
      // Its old place, and whatever deadline and probation it had.
      lease.leave(task)
      queue.toReady(task, now)
      break
    case 'suspended':
      suspend(queue, lease, task, settlement, now)
  }
  return true
}

type Suspension = Extract<Settlement, { outcome: 'suspended' }>

function suspend(queue: MemoryQueue, lease: Lease, task: Task, settlement: Suspension, now: number): void {
  const { after, until } = settlement
  const rare = rareOf(task)
  started(queue, task)
  if (settlement.checkpoint !== undefined) rare.checkpoint = keep(settlement.checkpoint)
  lease.leave(task)
  queue.renumber(task)
  if (after === undefined || after.ids.length === 0) {
    if (until === undefined) queue.toReady(task, now)
    else queue.schedule(task, now + until, now)
    return
  }
  // A settlement cannot be refused: what could never be released ends here.
  if (after.ids.some((id) => id === task.id || !queue.tasks.has(id))) {
    queue.end(task, 'cancelled', 'DEPENDENCY_NOT_FOUND', now)
    return
  }
  queue.addParents(task, after)
  if (queue.isRefusedBy(after)) queue.end(task, 'cancelled', 'DEPENDENCY_FAILED', now)
  else if (rare.open === undefined) queue.toReady(task, now)
  else {
    rare.suspended = true
    if (until !== undefined) queue.setDeadline(task, now + until)
    queue.block(task, now)
  }
}

/** An attempt that ended had started: no expiry, no probation. */
function started(queue: MemoryQueue, task: Task): void {
  const rare = rareOf(task)
  rare.probation = false
  queue.clearDeadline(rare)
}
