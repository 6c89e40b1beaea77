/**
 * Reading tasks: a row with all that belongs to it, as the contract's record.
 */
import type { Dependencies, FinalRecord, FinalState, TaskRecord } from '@neotask/core'
import type { Database } from './database.js'
import {
  encoded,
  FLAG,
  laneOf,
  priorityOf,
  RUNNING,
  sessionOf,
  stateIndex,
  stateOf,
  type Stored,
} from './layout.js'

/** The columns of a {@link RecordTuple}, in its order. */
export const RECORD = `t.n, t.id, t.place, t.rank, t.score, t.since, t.created, t.flags, t.settled, t.attempts, t.reclaims,
  t.kind, t.codec, t.payload, t.options, t.result, t.result_codec, t.duration, t.error, t.reason`

export type RecordTuple = [
  n: number,
  id: string,
  place: number,
  rank: number,
  score: number,
  since: number,
  created: number,
  flags: number,
  settled: number,
  attempts: number,
  reclaims: number,
  kind: string,
  codec: string,
  payload: Stored,
  options: string | null,
  result: Stored,
  resultCodec: string | null,
  duration: number | null,
  error: string | null,
  reason: string | null,
]

type ExtrasTuple = [
  group: string | null,
  after: string | null,
  deadline: number | null,
  message: string | null,
  progress: Stored,
  checkpoint: Stored,
  logs: string | null,
]

const EXTRAS = `SELECT g.id, x.after_ids, x.deadline, x.message, x.progress, x.checkpoint, x.logs
  FROM neotask_extras x LEFT JOIN neotask_groups g ON g.g = x.grp WHERE x.n = ?`
const NO_EXTRAS: ExtrasTuple = [null, null, null, null, null, null, null]
const BODY = 'SELECT payload FROM neotask_bodies WHERE n = ?'
const SESSION = 'SELECT id, node FROM neotask_sessions WHERE s = ?'
const LANE = 'SELECT name FROM neotask_lanes WHERE lane = ?'
const OPEN_PARENTS = `SELECT p.id FROM neotask_edges e JOIN neotask_tasks p ON p.n = e.parent WHERE e.child = ? AND e.open = 1`

export function bodyOf(db: Database, n: number): Stored {
  return db.get<[Stored]>(BODY, n)?.[0] ?? null
}

export function recordFrom(db: Database, row: RecordTuple): TaskRecord {
  const [n, id, place, rank, score, since, created, flags] = row
  const state = stateOf(place)
  const [group, after, deadline, message, progress, checkpoint, logs] =
    (flags & FLAG.extras ? db.get<ExtrasTuple>(EXTRAS, n) : undefined) ?? NO_EXTRAS
  const session = stateIndex(place) === RUNNING ? holder(db, place) : undefined
  const dependencies = flags & FLAG.edges && after !== null ? dependenciesFrom(after, flags) : undefined
  return {
    id,
    kind: row[11],
    state,
    priority: priorityOf(score),
    payload: encoded(flags & FLAG.large ? bodyOf(db, n) : row[13]) ?? '',
    codec: row[12],
    options: row[14] ?? undefined,
    createdAt: created,
    since,
    dueAt: state === 'scheduled' ? rank : undefined,
    deadline: deadline ?? undefined,
    started: state === 'running' && (flags & FLAG.started) !== 0,
    session: session?.[0],
    node: session && nodeName(session[1]),
    settledToken: flags & FLAG.decided ? 0 : row[8],
    attempts: row[9],
    reclaims: row[10],
    after: dependencies,
    waitsFor: state === 'blocked' ? db.all<[string]>(OPEN_PARENTS, n).map(([parent]) => parent) : undefined,
    held: state === 'blocked' && (flags & FLAG.held) !== 0,
    group: group === null ? undefined : { id: group, ...(flags & FLAG.exempt && { exempt: true }) },
    lane: laneName(db, place),
    result: encoded(row[15]),
    resultCodec: row[16] ?? undefined,
    error: row[18] ?? undefined,
    reason: row[19] ?? undefined,
    message: message ?? undefined,
    duration: row[17] ?? undefined,
    progress: encoded(progress),
    checkpoint: encoded(checkpoint),
    logs: logs === null ? undefined : (JSON.parse(logs) as string[]),
  }
}

/** What a waiter wants to know. */
export function finalFrom(db: Database, row: RecordTuple): FinalRecord {
  const { id, state, result, resultCodec, error, reason, message, attempts, duration } = recordFrom(db, row)
  return { id, state: state as FinalState, result, resultCodec, error, reason, message, attempts, duration }
}

function dependenciesFrom(after: string, flags: number): Dependencies {
  return { ids: JSON.parse(after) as string[], on: flags & FLAG.onSuccess ? 'success' : 'final' }
}

function holder(db: Database, place: number): [id: string, node: string] | undefined {
  return db.get<[string, string]>(SESSION, sessionOf(place) ?? 0)
}

function nodeName(node: string): string {
  return (JSON.parse(node) as { id: string }).id
}

function laneName(db: Database, place: number): string | undefined {
  const lane = laneOf(place)
  return lane === undefined ? undefined : db.get<[string]>(LANE, lane)?.[0]
}
