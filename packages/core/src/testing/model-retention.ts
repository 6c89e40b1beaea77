/**
 * The model of what goes away: final records beyond their retention. The contract says which may go, which must stay,
 * and that a prune which has nothing left to do has removed the rest; when between those a record goes is the
 * driver's choice, and the model follows it.
 */
import assert from 'node:assert/strict'
import type { Retention, RetentionRule } from '../storage.js'
import type { ModelQueue } from './model-queue.js'
import { FINAL, isEnded, type ModelTask } from './model-task.js'

const YOUNG = 10_000

const ruleOf = (retention: Retention, task: ModelTask): RetentionRule =>
  task.state === 'failed' ? retention.failed : retention.success

/** Final records that may be removed by one of the rules. */
export function removable(queue: ModelQueue, retentions: readonly Retention[]): ModelTask[] {
  return [...queue.tasks.values()].filter(
    (task) =>
      isEnded(task) &&
      !mustStay(queue, task) &&
      retentions.some((retention) => isBeyond(queue, task, ruleOf(retention, task))),
  )
}

function mustStay(queue: ModelQueue, task: ModelTask): boolean {
  return queue.now - task.since < YOUNG || task.keptUntil > queue.now || queue.dependentsOf(task).length > 0
}

function isBeyond(queue: ModelQueue, task: ModelTask, rule: RetentionRule): boolean {
  return queue.now - task.since >= rule.age || queue.in(task.state).length > rule.count
}

/** Follows a driver that has removed these, all of them {@link removable}. */
export function removed(
  queue: ModelQueue,
  gone: readonly ModelTask[],
  retentions: readonly Retention[],
): void {
  for (const state of FINAL) {
    const all = gone.filter((task) => task.state === state)
    const [first] = all
    if (first === undefined) continue
    const age = Math.min(...retentions.map((retention) => ruleOf(retention, first).age))
    const count = Math.min(...retentions.map((retention) => ruleOf(retention, first).count))
    const tooMany = all.filter((task) => queue.now - task.since < age)
    const rest = queue.in(state).filter((task) => !all.includes(task))
    if (tooMany.length > 0)
      assert.ok(rest.length >= count, `retention left ${rest.length} records ${state}, ${count} may stay`)
    for (const task of tooMany) {
      const older = rest.find((other) => other.since < task.since && !mayLag(queue, other))
      assert.ok(older === undefined, `retention removed ${task.id}, and not ${older?.id}, which is older`)
    }
    for (const task of all) queue.forget(task)
  }
}

/** Fails when a prune that says it is done has left what should have gone. */
export function checkPruned(queue: ModelQueue, retention: Retention): void {
  for (const task of removable(queue, [retention]))
    assert.ok(mayLag(queue, task), `prune is done, and left ${task.id}`)
}

/**
 * What had to stay once may be looked at again only after a while, and not before the most generous of the rules that
 * it was looked at by.
 */
function mayLag(queue: ModelQueue, task: ModelTask): boolean {
  return mustStay(queue, task) || task.keptUntil > 0 || task.neededUntil > 0
}
