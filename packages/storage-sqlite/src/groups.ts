/**
 * Groups: flags that claim reads, and the bounded sweep that brings members in line with them.
 */
import type { GroupFlags } from '@neotask/core'
import { cancelTask } from './cancel.js'
import { BLOCKED, FLAG, laneOf, PENDING, RUNNING, SCHEDULED, stateIndex, type Row } from './layout.js'
import type { Step } from './step.js'

/** Members looked at in one step. */
export const SWEPT = 200

const FIND = 'SELECT g, cancelled FROM neotask_groups WHERE q = ? AND id = ?'
const CREATE = 'INSERT INTO neotask_groups (q, id, touched) VALUES (?, ?, ?)'
const SWEEPS = 'SELECT g, past, cancelled, paused FROM neotask_groups WHERE q = ? AND sweep = 1 LIMIT ?'
const MEMBERS = 'SELECT n FROM neotask_members WHERE g = ? AND n > ? ORDER BY n LIMIT ?'

/** Makes the task a member. @returns whether the group is cancelled */
export function joinGroup(step: Step, row: Row, id: string): boolean {
  const [g, cancelled] = findOrCreate(step, id)
  step.extra(row.n, 'grp', g)
  step.db.run('INSERT INTO neotask_members VALUES (?, ?)', g, row.n)
  return cancelled
}

function findOrCreate(step: Step, id: string): [g: number, cancelled: boolean] {
  const found = step.db.get<[number, number]>(FIND, step.q, id)
  if (found) return [found[0], found[1] === 1]
  return [step.db.insert(CREATE, step.q, id, step.now), false]
}

/** Sets the flags, and leaves the rest to claims and sweeps. */
export function setFlags(step: Step, id: string, flags: GroupFlags): void {
  const [g] = findOrCreate(step, id)
  if (flags.cancelled) cancelGroup(step, g)
  if (flags.paused === undefined) return
  // Members of a paused group step aside when a claim meets them; to come back they need the sweep.
  step.db.run(
    'UPDATE neotask_groups SET paused = ?, sweep = max(cancelled, ?), past = 0, touched = ? WHERE g = ?',
    flags.paused ? 1 : 0,
    flags.paused ? 0 : 1,
    step.now,
    g,
  )
}

export function cancelGroup(step: Step, g: number): void {
  step.db.run(
    'UPDATE neotask_groups SET cancelled = 1, sweep = 1, past = 0, touched = ? WHERE g = ?',
    step.now,
    g,
  )
}

/** Goes on with sweeps. @returns how many members it looked at */
export function sweepGroups(step: Step, limit: number): number {
  let seen = 0
  for (const [g, past, cancelled, paused] of step.db.all<[number, number, number, number]>(
    SWEEPS,
    step.q,
    limit,
  )) {
    if (seen >= limit) break
    const members = step.db.all<[number]>(MEMBERS, g, past, limit - seen)
    for (const [n] of members) {
      // Read anew: the end of one before it may have ended it too.
      const row = step.rowOf(n)
      if (row) bring(step, row, cancelled === 1, paused === 1)
    }
    const last = members.at(-1)
    if (members.length === limit - seen && last) {
      step.db.run('UPDATE neotask_groups SET past = ? WHERE g = ?', last[0], g)
      step.effects.backlog = true
    } else step.db.run('UPDATE neotask_groups SET sweep = 0, past = 0 WHERE g = ?', g)
    seen += members.length
  }
  return seen
}

export function hasSweeps(step: Step): boolean {
  return step.db.get(SWEEPS, step.q, 1) !== undefined
}

function bring(step: Step, row: Row, cancelled: boolean, paused: boolean): void {
  if (row.flags & FLAG.exempt) return
  const state = stateIndex(row.place)
  if (cancelled) {
    const waits = state === PENDING || state === SCHEDULED || state === RUNNING
    if (waits || (state === BLOCKED && row.flags & FLAG.held)) cancelTask(step, row, 'GROUP_CANCELLED')
  } else if (!paused && laneOf(row.place) !== undefined) {
    // Back to its place among the ready ones; a claim that does not serve its kind puts it aside again.
    step.putAside(row, step.place(PENDING))
    step.effects.ready(row.kind, row.score)
  }
}
