/** The model of what is asked of tasks from outside: the operations, and waiting for an end. */
import assert from 'node:assert/strict'
import type {
  CancelOptions,
  OperationOutcome,
  QueueOperation,
  ReviveOptions,
  WatchOutcome,
} from '../storage.js'
import type { TaskState } from '../task.js'
import type { ModelQueue } from './model-queue.js'
import { FINAL, isEnded, tidy, type ModelTask } from './model-task.js'

export const PERMITTED: Readonly<Record<QueueOperation | 'revoke', readonly TaskState[]>> = {
  cancel: ['pending', 'scheduled', 'blocked', 'running'],
  promote: ['scheduled'],
  reprioritize: ['pending', 'scheduled', 'blocked'],
  remove: ['pending', 'scheduled', 'blocked', ...FINAL],
  retry: ['failed', 'cancelled'],
  revoke: ['running'],
}

export interface OperationDetails extends CancelOptions, ReviveOptions {
  readonly priority?: number | undefined
}

export function checkOperation(
  queue: ModelQueue,
  operation: QueueOperation | 'revoke',
  ids: readonly string[],
  details: OperationDetails,
  outcomes: readonly OperationOutcome[],
): void {
  const expected = ids.map((id) => operateOn(queue, operation, id, details))
  const plain = outcomes.map((outcome) =>
    typeof outcome === 'object'
      ? `${outcome.state}${outcome.neededBy === undefined ? '' : ' needed'}`
      : outcome,
  )
  assert.deepEqual(plain, expected, `${operation} of ${ids.join(' ')}`)
}

function operateOn(
  queue: ModelQueue,
  operation: QueueOperation | 'revoke',
  id: string,
  details: OperationDetails,
): string {
  const task = queue.tasks.get(id)
  if (task === undefined) return 'unknown'
  const { state } = task
  if (!PERMITTED[operation].includes(state)) return state
  switch (operation) {
    case 'cancel':
      queue.end(task, 'cancelled', details.code ?? 'TASK_CANCELLED', 0, details.message)
      break
    case 'promote':
      queue.leave(task)
      queue.newPlace(task)
      queue.ready(task)
      break
    case 'reprioritize':
      task.place = { ...task.place, priority: details.priority ?? 0 }
      break
    case 'remove':
      if (queue.dependentsOf(task).length > 0) return `${state} needed`
      queue.forget(task)
      break
    case 'retry':
      revive(queue, task, details)
      break
    case 'revoke': {
      const maxReclaims = task.session?.maxReclaims ?? 0
      queue.takeAway(task, 'revoked')
      queue.takeBack(task, true, maxReclaims)
    }
  }
  return 'done'
}

function revive(queue: ModelQueue, task: ModelTask, { payload }: ReviveOptions): void {
  task.attempts = 0
  task.reclaims = 0
  task.result = undefined
  task.resultCodec = undefined
  task.error = undefined
  task.fingerprint = undefined
  task.reason = undefined
  task.message = undefined
  task.duration = undefined
  task.progress = undefined
  task.held = false
  task.decided = false
  task.delay = undefined
  task.runAt = undefined
  task.keptUntil = 0
  if (task.window) task.window.openedAt = undefined
  if (payload !== undefined) {
    task.payload = payload.payload
    task.codec = payload.codec
    task.checkpoint = undefined
  }
  for (const id of task.after?.ids ?? []) {
    const parent = queue.tasks.get(id)
    if (parent !== undefined) task.pins.add(parent)
  }
  queue.newPlace(task)
  queue.ready(task)
}

export function checkComplete(
  queue: ModelQueue,
  id: string,
  result: string,
  outcome: OperationOutcome,
): void {
  const task = queue.tasks.get(id)
  if (task === undefined) assert.equal(outcome, 'unknown')
  else if (task.state === 'blocked' && task.held) {
    assert.equal(outcome, 'done', `complete of ${id}`)
    task.result = result
    task.resultCodec = 'json'
    queue.finish(task, 'success', undefined)
  } else assert.deepEqual({ ...(outcome as object) }, { state: task.state }, `complete of ${id}`)
}

export function checkWatch(
  queue: ModelQueue,
  id: string,
  watcher: string,
  ttl: number,
  outcome: WatchOutcome | undefined,
): void {
  const task = queue.tasks.get(id)
  if (task === undefined)
    assert.equal(outcome, queue.isBuried(id) ? 'forgotten' : 'unknown', `watch of ${id}`)
  else if (!isEnded(task)) assert.equal(outcome, 'open', `watch of ${id}`)
  else {
    const { state, result, resultCodec, error, reason, attempts, duration } = task
    assert.ok(typeof outcome === 'object', `watch of ${id}, which is ${state}`)
    const expected = { id, state, result, resultCodec, error, reason, attempts, duration }
    if (task.otherReason !== undefined && outcome.reason === task.otherReason)
      expected.reason = outcome.reason
    assert.deepEqual(tidy({ ...outcome, message: undefined }), tidy(expected), `watch of ${id}`)
  }
  if (task) queue.watchOne(task, watcher, ttl)
}
