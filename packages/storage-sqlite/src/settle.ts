/**
 * What a node reports of the tasks that it holds: marks, reports, and settlements.
 *
 * Ownership is the entry and nothing else: a task in the session's place with the token as its rank. Whoever takes
 * the entry away decides what becomes of the task, so each claim has at most one accepted end.
 */
import type { Mark, Report, Settlement } from '@neotask/core'
import { refusalFrom } from './database.js'
import { addEdges, resolveParents } from './enqueue.js'
import { finish, finishCancelled, finishPlain, giveBack, makeReady, markExtras, schedule } from './finish.js'
import { cancelGroup, SWEPT, sweepGroups } from './groups.js'
import { FLAG, sessionPlace, type Row } from './layout.js'
import { EVENT, type Step } from './step.js'

const LOGS = 100
const EXTRAS = 'SELECT after_ids, logs FROM neotask_extras WHERE n = ?'
const FLAGS = 'UPDATE neotask_tasks SET flags = ? WHERE n = ?'

/** Entries become started: no probation, no expiry any more. */
export function mark(step: Step, session: number, marks: readonly Mark[]): void {
  if (marks.length === 0) return
  const rows = step.rows(marks.map((entry) => entry.id))
  for (const { id, token } of marks) {
    const row = rows.get(id)
    if (!row || !holds(session, row, token)) continue
    row.flags = (step.dropDeadline(row) | FLAG.started) & ~FLAG.probation
    step.db.run(FLAGS, row.flags, row.n)
  }
}

/** @returns the indices of those whose entry is gone */
export function report(step: Step, session: number, reports: readonly Report[]): number[] {
  if (reports.length === 0) return []
  const stale: number[] = []
  const rows = step.rows(reports.map((entry) => entry.id))
  for (const [index, { id, token, progress, checkpoint, logs }] of reports.entries()) {
    const row = rows.get(id)
    if (!row || !holds(session, row, token)) {
      stale.push(index)
      continue
    }
    if (progress !== undefined) step.extra(row.n, 'progress', progress)
    if (checkpoint !== undefined) step.extra(row.n, 'checkpoint', checkpoint)
    if (logs !== undefined) {
      const known = row.flags & FLAG.extras ? step.db.get<[unknown, string | null]>(EXTRAS, row.n)?.[1] : null
      const all = [...(known ? (JSON.parse(known) as string[]) : []), ...logs]
      step.extra(row.n, 'logs', JSON.stringify(all.slice(-LOGS)))
    }
    markExtras(step, row)
  }
  return stale
}

/**
 * @param alone each under a savepoint of its own: what SQLite does not take fails its task, and harms no other
 * @returns the indices of those that changed nothing, because the entry was gone
 */
export function settle(
  step: Step,
  session: number,
  settlements: readonly Settlement[],
  alone: boolean,
): number[] {
  if (settlements.length === 0) return []
  const stale: number[] = []
  for (let index = 0; index < settlements.length; index++) {
    if (!alone) index += finishPlain(step, session, settlements, index)
    const settlement = settlements[index]
    if (settlement === undefined) break
    const row = step.row(settlement.id)
    if (row && holds(session, row, settlement.token)) {
      const settled = alone ? settleAlone : settleOne
      settled(step, row, settlement)
    }
    // The repeat of an accepted one counts as accepted.
    else if (!row || settlement.token === 0 || row.settled !== settlement.token) stale.push(index)
  }
  // Last: what this call says of other members is true, whatever becomes of their group.
  if (settlements.some((settlement) => settlement.outcome === 'failed' && settlement.cancelGroup))
    sweepGroups(step, SWEPT)
  return stale
}

function holds(session: number, row: Row, token: number): boolean {
  return row.place === sessionPlace(session) && row.rank === token
}

function settleAlone(step: Step, row: Row, settlement: Settlement): void {
  const before = { ...row }
  try {
    step.attempt(() => settleOne(step, row, settlement))
  } catch (error) {
    const { code: reason, message } = refusalFrom(step.db.translate(error))
    Object.assign(row, before)
    // A settlement cannot be refused, and its node would repeat it for ever.
    finish(step, row, {
      state: 'failed',
      token: settlement.token,
      attempted: true,
      reason,
      message,
      error: message,
    })
  }
}

function settleOne(step: Step, row: Row, settlement: Settlement): void {
  const { token, duration } = settlement
  if (settlement.outcome !== 'released') row.flags &= ~FLAG.timedOut
  switch (settlement.outcome) {
    case 'success': {
      const { result, codec } = settlement
      finish(step, row, { state: 'success', token, attempted: true, result, codec, duration, error: null })
      break
    }
    case 'failed': {
      const { error, fingerprint } = settlement
      // Looked up before the end: afterwards it may have been removed by retention.
      const group = settlement.cancelGroup
        ? step.db.get<[number | null]>('SELECT grp FROM neotask_extras WHERE n = ?', row.n)
        : undefined
      finish(step, row, { state: 'failed', token, attempted: true, error, fingerprint, duration })
      if (group?.[0]) cancelGroup(step, group[0])
      break
    }
    case 'cancelled':
    case 'skipped': {
      const { outcome: state, reason, message } = settlement
      finish(step, row, { state, token, reason, message, duration })
      break
    }
    case 'retry':
      accept(step, row, token, duration, settlement.error)
      step.count(EVENT.retried)
      schedule(step, row, step.now + settlement.in)
      break
    case 'released':
      // Its old place, and whatever deadline and probation it had.
      row.settled = token
      step.db.run('UPDATE neotask_tasks SET settled = ? WHERE n = ?', token, row.n)
      giveBack(step, row)
      break
    case 'suspended':
      accept(step, row, token, duration)
      suspend(step, row, settlement)
  }
}

/** Notes an end that is not final. An attempt that ended had started: no expiry, no probation. */
function accept(step: Step, row: Row, token: number, duration: number | undefined, error?: string): void {
  row.settled = token
  row.flags = step.dropDeadline(row) & ~FLAG.probation
  if (error === undefined) {
    step.db.run(
      'UPDATE neotask_tasks SET settled = ?, duration = coalesce(?, duration) WHERE n = ?',
      token,
      duration ?? null,
      row.n,
    )
    return
  }
  row.attempts++
  step.db.run(
    'UPDATE neotask_tasks SET settled = ?, attempts = ?, error = ?, duration = coalesce(?, duration) WHERE n = ?',
    token,
    row.attempts,
    error,
    duration ?? null,
    row.n,
  )
}

function suspend(step: Step, row: Row, settlement: Extract<Settlement, { outcome: 'suspended' }>): void {
  const { after, until, checkpoint } = settlement
  if (checkpoint !== undefined) {
    step.extra(row.n, 'checkpoint', checkpoint)
    markExtras(step, row)
  }
  if (!after || after.ids.length === 0) {
    if (until === undefined) makeReady(step, row)
    else schedule(step, row, step.now + until)
    return
  }
  const parents = after.ids.includes(row.id) ? undefined : resolveParents(step, after)
  if (!parents) {
    // A settlement cannot be refused: what could never be released ends here.
    finishCancelled(step, row, 'DEPENDENCY_NOT_FOUND')
    return
  }
  const known = row.flags & FLAG.extras ? step.db.get<[string | null]>(EXTRAS, row.n)?.[0] : null
  const ids = new Set([...(known ? (JSON.parse(known) as string[]) : []), ...after.ids])
  step.extra(row.n, 'after_ids', JSON.stringify([...ids]))
  row.flags |= FLAG.extras | FLAG.edges
  row.flags = after.on === 'success' ? row.flags | FLAG.onSuccess : row.flags & ~FLAG.onSuccess
  addEdges(step, row, parents)
  if (parents.failed) {
    finishCancelled(step, row, 'DEPENDENCY_FAILED', `its dependency ${parents.failed.id} has not succeeded`)
  } else if (parents.open.length === 0) {
    makeReady(step, row)
  } else {
    row.flags |= FLAG.suspended
    if (until !== undefined) {
      step.setDeadline(row.n, step.now + until)
      row.flags |= FLAG.deadline
    }
    step.block(row)
  }
}
