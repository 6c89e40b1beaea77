/** The model of a claim: which tasks may be taken, in which order, and what is said of them. */
import assert from 'node:assert/strict'
import type { Claimed, WorkRequest } from '../storage.js'
import type { ModelQueue } from './model-queue.js'
import { isBefore, isEnded, sizeOf, tidy, type ModelSession, type ModelTask } from './model-task.js'

const CLAIM_BYTES = 1024 * 1024

/** @returns whether nothing was left for the session, `undefined` when that is open */
export function checkClaim(
  queue: ModelQueue,
  session: ModelSession,
  request: WorkRequest,
  claimed: readonly Claimed[],
): boolean | undefined {
  const candidates = new Set(queue.claimable(session))
  const must = (): ModelTask[] => [...candidates].filter((task) => !queue.loose.has(task))
  const bound = request.moreUrgentThan ?? Infinity
  let bytes = request.wantBytes ?? CLAIM_BYTES
  for (const [index, entry] of claimed.entries()) {
    const task = queue.tasks.get(entry.id)
    assert.ok(task && candidates.has(task), `${entry.id} is claimed, and is ${task?.state ?? 'unknown'}`)
    assert.ok(index < request.want, 'more is claimed than was wanted')
    for (const other of must())
      assert.ok(!isBefore(other.place, task.place), `${task.id} is claimed before ${other.id}`)
    assert.ok(task.place.priority < bound, `${task.id} is claimed, and is not more urgent than ${bound}`)
    bytes -= sizeOf(task.payload)
    assert.ok(bytes >= 0 || index === 0, `${task.id} is claimed beyond the bytes wanted`)
    candidates.delete(task)
    queue.fresh.delete(task)
    const waited = queue.now - task.since
    task.state = 'running'
    task.since = queue.now
    task.session = session
    task.token = claimed[0]?.token ?? 0
    session.entries.add(task)
    assert.deepEqual(tidy(entry), { ...claimedOf(queue, task), waited }, `what is claimed of ${task.id}`)
  }
  const left = must()
  if (claimed.length < request.want) {
    const first = left.filter((task) => left.every((other) => !isBefore(other.place, task.place)))
    const mayStop = first.some(
      (task) => task.place.priority >= bound || (claimed.length > 0 && sizeOf(task.payload) > bytes),
    )
    assert.ok(left.length === 0 || mayStop, `${first[0]?.id} is ready, and not claimed`)
  }
  return left.length === 0 && candidates.size > 0 ? undefined : left.length === 0
}

function claimedOf(queue: ModelQueue, task: ModelTask): object {
  const parents = (task.after?.ids ?? []).flatMap((id) => {
    const parent = queue.tasks.get(id)
    return parent && isEnded(parent) ? [{ id, state: parent.state }] : []
  })
  return tidy({
    id: task.id,
    token: task.token,
    kind: task.kind,
    payload: task.payload,
    codec: task.codec,
    options: task.options,
    priority: task.place.priority,
    attempts: task.attempts,
    reclaims: task.reclaims,
    probation: task.probation,
    waited: 0,
    checkpoint: task.checkpoint,
    parents,
    timedOut: task.timedOut || undefined,
  })
}

export function checkEntries(
  queue: ModelQueue,
  expected: readonly ModelTask[],
  got: readonly Claimed[],
  what: string,
): void {
  const byId = (a: { id: string }, b: { id: string }): number => (a.id < b.id ? -1 : 1)
  assert.deepEqual(
    // For how long it waited is told by the claim.
    [...got].sort(byId).map((entry) => ({ ...tidy(entry), waited: 0 })),
    [...expected].sort(byId).map((task) => claimedOf(queue, task)),
    `the entries of ${what}`,
  )
}
