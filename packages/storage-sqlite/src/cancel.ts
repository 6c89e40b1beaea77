/**
 * Taking a task from a session that holds it: cancelled, expired or revoked. The session is told with every reply
 * until it acknowledges.
 */
import type { TakenReason } from '@neotask/core'
import { finishCancelled } from './finish.js'
import { sessionOf, type Row } from './layout.js'
import type { Step } from './step.js'

const TAKE = `UPDATE neotask_sessions SET taken = taken + 1 WHERE s = ? AND state = 0 RETURNING taken, id`
const NOTE = 'INSERT INTO neotask_taken VALUES (?, ?, ?, ?, ?)'

/** Makes a task final, wherever it is. */
export function cancelTask(step: Step, row: Row, reason: string, message?: string): void {
  noteTaken(step, row, 'cancelled')
  finishCancelled(step, row, reason, message)
}

/** Notes for the live session that holds the task, if one does, that it is taken away. */
export function noteTaken(step: Step, row: Row, reason: TakenReason): void {
  const session = sessionOf(row.place)
  if (session === undefined) return
  const taken = step.db.get<[number, string]>(TAKE, session)
  if (!taken) return
  step.db.run(NOTE, session, taken[0], row.id, row.rank, reason)
  step.effects.taken.push(taken[1])
}
