/**
 * Accepting tasks. A unit is checked whole before anything of it is written, so a refusal leaves no trace.
 */
import {
  isGeneratedId,
  isStorableDuration,
  isStorableId,
  isStorableInstant,
  MAX_PRIORITY,
  type Dependencies,
  type EnqueueOptions,
  type EnqueueOutcome,
  type ErrorCode,
  type Guard,
  type NewTask,
  type Refusal,
} from '@neotask/core'
import { BLOCKED, bytesOf, FLAG, LARGE, PENDING, SCHEDULED, stateIndex, SUCCESS, type Row } from './layout.js'
import { absorb, absorber, dueIn, openWindow, windowName } from './debounce.js'
import { finishCancelled, READING } from './finish.js'
import { joinGroup } from './groups.js'
import { EVENT, type Step } from './step.js'

const MAX_UNIT = 500
const MAX_UNIT_BYTES = 1024 * 1024
const MAX_PARENTS = 100
/** ms that a watcher given at enqueue stays registered. */
const WATCH_TTL = 60_000

const INSERT = `INSERT INTO neotask_tasks (q, id, place, rank, score, since, created, flags, kind, codec, payload, options)
  VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT (q, id) DO NOTHING`
const EXTRAS = 'INSERT INTO neotask_extras (n, nonce, after_ids, delay, run_at) VALUES (?, ?, ?, ?, ?)'
const EDGE = 'INSERT INTO neotask_edges VALUES (?, ?, ?)'
const WATCH =
  'INSERT INTO neotask_watchers VALUES (?, ?, ?) ON CONFLICT (n, watcher) DO UPDATE SET until = max(until, excluded.until)'
const NONCE = 'SELECT nonce FROM neotask_extras WHERE n = ?'
const TOMBSTONE = 'SELECT nonce FROM neotask_tombstones WHERE q = ? AND id = ? AND until > ?'
const VERSION = `SELECT r.version FROM neotask_queues q JOIN neotask_records r ON r.tenant = q.tenant AND r.key = ?
  WHERE q.q = ? AND (r.expires IS NULL OR r.expires > ?)`
const PUT_BODY = 'INSERT OR REPLACE INTO neotask_bodies VALUES (?, ?)'

/** Options that need a row in `extras`, an edge, or a look at other tasks. */
export const isPlain = (task: NewTask): boolean =>
  task.nonce === undefined &&
  task.after === undefined &&
  !task.hold &&
  task.group === undefined &&
  task.delay === undefined &&
  task.runAt === undefined &&
  task.expiresIn === undefined &&
  task.watcher === undefined &&
  task.debounce === undefined &&
  task.guard === undefined

/** The parents of a task as they stand now. */
interface Parents {
  readonly rows: readonly Row[]
  readonly open: readonly Row[]
  /** The one that did not succeed although it had to. */
  readonly failed: Row | undefined
}

const NO_PARENTS: Parents = { rows: [], open: [], failed: undefined }

export function enqueueUnit(step: Step, unit: readonly NewTask[], options: EnqueueOptions): EnqueueOutcome[] {
  const [first] = unit
  if (first === undefined) return []
  const refusal = checkUnit(unit)
  if (refusal) return unit.map(() => refusal)
  const { maxQueueSize } = options
  if (unit.length === 1 && maxQueueSize === undefined && isPlain(first) && isGeneratedId(first.id)) {
    return [insert(step, first, NO_PARENTS) === undefined ? 'repeated' : 'accepted']
  }
  const known: (EnqueueOutcome | undefined)[] = []
  const refused = lookUp(step, unit, known) ?? checkSize(step, unit, known, maxQueueSize)
  if (refused) return unit.map(() => refused)
  const named = new Set<string>()
  return unit.map((task, index) => {
    // What the unit names twice is there by now.
    const outcome = named.has(task.id) ? lookUpTask(step, task) : known[index]
    named.add(task.id)
    if (outcome !== undefined) {
      const row = task.watcher === undefined ? undefined : step.row(task.id)
      if (row && task.watcher !== undefined) watch(step, row, task.watcher, WATCH_TTL)
      return outcome
    }
    const other = absorber(step, task)
    if (other) {
      if (task.watcher !== undefined) watch(step, other.row, task.watcher, WATCH_TTL)
      return absorb(step, other, task)
    }
    accept(step, task)
    return 'accepted'
  })
}

// -------------------------------------------------------------------------------------------------- checks

const refuse = (code: ErrorCode, message: string): Refusal => ({ code, message })

function checkUnit(unit: readonly NewTask[]): Refusal | undefined {
  if (unit.length > MAX_UNIT) {
    return refuse('OPTION_INVALID', `a unit may have ${MAX_UNIT} tasks, this one has ${unit.length}`)
  }
  let bytes = 0
  for (const task of unit) {
    const refusal = checkTask(task)
    if (refusal) return refusal
    if (unit.length > 1) bytes += bytesOf(task.payload)
  }
  if (bytes > MAX_UNIT_BYTES) {
    return refuse(
      'PAYLOAD_TOO_LARGE',
      `the payloads of a unit may have ${MAX_UNIT_BYTES} bytes together, these have ${bytes}`,
    )
  }
  return undefined
}

export function checkTask(task: NewTask): Refusal | undefined {
  const { id, payload, priority, after, debounce } = task
  if (typeof id !== 'string' || !isStorableId(id)) {
    return refuse('OPTION_INVALID', `${JSON.stringify(id)} cannot be the id of a task`)
  }
  if (typeof payload !== 'string' && !(payload instanceof Uint8Array)) {
    return refuse('PAYLOAD_INVALID', `${id}: a payload is text or bytes`)
  }
  if (typeof task.kind !== 'string' || typeof task.codec !== 'string') {
    return refuse('OPTION_INVALID', `${id}: kind and codec are text`)
  }
  if (!Number.isInteger(priority) || priority < 0 || priority > MAX_PRIORITY) {
    return refuse(
      'OPTION_INVALID',
      `${id}: a priority is an integer from 0 to ${MAX_PRIORITY}, not ${priority}`,
    )
  }
  const { delay, runAt, expiresIn } = task
  if (!isStorableDuration(delay) || !isStorableInstant(runAt) || !isStorableDuration(expiresIn)) {
    return refuse(
      'OPTION_INVALID',
      `${id}: delay, runAt and expiresIn are ms from 0 to 100 000 years, or an instant of a Date`,
    )
  }
  if (debounce && !(isStorableId(debounce.key) && isStorableDuration(debounce.maxWait))) {
    return refuse(
      'OPTION_INVALID',
      `${id}: not a debounce key and a time that can be stored: ${debounce.key}`,
    )
  }
  if (after && after.ids.length > MAX_PARENTS) {
    return refuse(
      'OPTION_INVALID',
      `${id}: after names at most ${MAX_PARENTS} tasks, not ${after.ids.length}`,
    )
  }
  return undefined
}

/** Notes for each task the outcome if it is known already, and refuses what names unknown parents. */
function lookUp(
  step: Step,
  unit: readonly NewTask[],
  known: (EnqueueOutcome | undefined)[],
): Refusal | undefined {
  const earlier = new Set<string>()
  const windows = new Set<string>()
  for (const task of unit) {
    const outcome = earlier.has(task.id) ? undefined : lookUpTask(step, task)
    known.push(outcome)
    const isNew = outcome === undefined && !earlier.has(task.id)
    if (isNew && task.guard && !holds(step, task.guard))
      return refuse('LEASE_LOST', `the claim of ${task.guard.key} is lost`)
    for (const parent of isNew ? (task.after?.ids ?? []) : []) {
      if (earlier.has(parent) || (parent !== task.id && step.row(parent))) continue
      return refuse('DEPENDENCY_NOT_FOUND', `${task.id} names a task that is not there: ${parent}`)
    }
    const window = windowName(step, task)
    const isMerged = window !== undefined && (windows.has(window) || absorber(step, task) !== undefined)
    // What has only a tombstone, or goes into another task, is no parent and opens no window.
    if (!isNew || isMerged) continue
    earlier.add(task.id)
    if (window !== undefined) windows.add(window)
  }
  return undefined
}

function lookUpTask(step: Step, task: NewTask): EnqueueOutcome | undefined {
  const row = step.row(task.id)
  if (row) {
    const nonce = row.flags & FLAG.extras ? step.db.get<[string | null]>(NONCE, row.n)?.[0] : null
    return outcomeOfRepeat(task, nonce)
  }
  if (isGeneratedId(task.id)) return undefined
  const tombstone = step.db.get<[string | null]>(TOMBSTONE, step.q, task.id, step.now)
  return tombstone && outcomeOfRepeat(task, tombstone[0])
}

function outcomeOfRepeat(task: NewTask, nonce: string | null | undefined): 'repeated' | 'duplicate' {
  return isGeneratedId(task.id) || (task.nonce !== undefined && task.nonce === nonce)
    ? 'repeated'
    : 'duplicate'
}

/** Whether the claim holds that a task comes from. */
function holds(step: Step, { key, version }: Guard): boolean {
  return step.db.get<[number]>(VERSION, key, step.q, step.now)?.[0] === version
}

function checkSize(
  step: Step,
  unit: readonly NewTask[],
  known: readonly (EnqueueOutcome | undefined)[],
  maxQueueSize: number | undefined,
): Refusal | undefined {
  if (maxQueueSize === undefined) return undefined
  // Those of one window are one task.
  const fresh = unit.filter((task, index) => known[index] === undefined && !absorber(step, task))
  const added = new Set(fresh.map((task) => windowName(step, task) ?? task.id)).size
  const waiting = (step.counts[PENDING] ?? 0) + (step.counts[SCHEDULED] ?? 0) + (step.counts[BLOCKED] ?? 0)
  if (added === 0 || waiting + added <= maxQueueSize) return undefined
  return refuse('QUEUE_FULL', `${waiting} tasks wait, and ${maxQueueSize} may`)
}

// ------------------------------------------------------------------------------------------------ accepting

function accept(step: Step, task: NewTask): void {
  const parents = task.after ? findParents(step, task.after) : NO_PARENTS
  const row = insert(step, task, parents)
  if (!row) throw new Error(`the task ${task.id} appeared in between`)
  const { n } = row
  if (row.flags & FLAG.extras) {
    step.db.run(
      EXTRAS,
      n,
      task.nonce ?? null,
      task.after ? JSON.stringify([...new Set(task.after.ids)]) : null,
      task.delay === undefined ? null : Math.ceil(task.delay),
      task.runAt === undefined ? null : Math.ceil(task.runAt),
    )
  }
  const window = windowName(step, task)
  if (window !== undefined) openWindow(step, row, window)
  if (task.expiresIn !== undefined) step.setDeadline(n, step.now + task.expiresIn)
  const cancelled = task.group !== undefined && joinGroup(step, row, task.group.id) && !task.group.exempt
  if (task.watcher !== undefined) step.db.run(WATCH, n, task.watcher, step.now + WATCH_TTL)
  if (parents.failed) {
    finishCancelled(step, row, 'DEPENDENCY_FAILED', `its dependency ${parents.failed.id} has not succeeded`)
    return
  }
  if (cancelled && (stateIndex(row.place) !== BLOCKED || task.hold)) {
    finishCancelled(step, row, 'GROUP_CANCELLED')
    return
  }
  addEdges(step, row, parents)
}

function findParents(step: Step, after: Dependencies): Parents {
  const rows = [...step.rows([...new Set(after.ids)]).values()]
  return {
    rows,
    open: rows.filter((row) => stateIndex(row.place) < SUCCESS),
    failed: after.on === 'success' ? rows.find((row) => stateIndex(row.place) > SUCCESS) : undefined,
  }
}

/** Makes the edges to the parents, final or not: they stay as long as the child needs them. */
export function addEdges(step: Step, child: Row, parents: Parents): void {
  const open = new Set(parents.open.map((row) => row.n))
  for (const parent of parents.rows) {
    step.db.run(
      `${EDGE} ON CONFLICT (parent, child) DO UPDATE SET open = excluded.open`,
      parent.n,
      child.n,
      open.has(parent.n) ? 1 : 0,
    )
    if (parent.flags & FLAG.parent) continue
    parent.flags |= FLAG.parent
    step.db.run('UPDATE neotask_tasks SET flags = ? WHERE n = ?', parent.flags, parent.n)
  }
}

/** A task that begins another life needs its parents again, as far as they are still there. */
export function pinAgain(step: Step, child: Row): void {
  const after = step.db.get<[string | null]>('SELECT after_ids FROM neotask_extras WHERE n = ?', child.n)?.[0]
  if (!after) return
  const rows = [...step.rows(JSON.parse(after) as string[]).values()]
  addEdges(step, child, { rows, open: [], failed: undefined })
}

export function resolveParents(step: Step, after: Dependencies): Parents | undefined {
  const parents = findParents(step, after)
  return parents.rows.length === new Set(after.ids).size ? parents : undefined
}

/** Writes the row of a new task. @returns `undefined` when the id is known, and nothing changed */
function insert(step: Step, task: NewTask, parents: Parents): Row | undefined {
  const { now, q } = step
  const delayed = task.delay === undefined ? 0 : dueIn(step, task, now)
  const due = Math.max(delayed, Math.ceil(task.runAt ?? 0))
  const waits = task.hold === true || parents.open.length > 0
  const state = waits ? BLOCKED : due > now ? SCHEDULED : PENDING
  const large = task.payload.length > LARGE
  const flags =
    flagsOf(task, waits && (task.delay !== undefined || task.runAt !== undefined)) | (large ? FLAG.large : 0)
  const score = step.nextScore(task.priority)
  const rank = state === SCHEDULED ? due : score
  const payload = large ? null : task.payload
  const { changes, lastInsertRowid } = step.db
    .statement(INSERT)
    .run(
      q,
      task.id,
      step.place(state),
      rank,
      score,
      now,
      now,
      flags,
      task.kind,
      task.codec,
      payload,
      task.options ?? null,
    )
  if (changes === 0) return undefined
  const n = Number(lastInsertRowid)
  if (large) step.db.run(PUT_BODY, n, task.payload)
  step.shift(undefined, state)
  step.count(EVENT.enqueued)
  if (state === PENDING) step.effects.ready(task.kind, score)
  else if (state === SCHEDULED) step.effects.due(due)
  const place = step.place(state)
  return { n, id: task.id, place, rank, score, flags, settled: 0, attempts: 0, reclaims: 0, kind: task.kind }
}

function flagsOf(task: NewTask, delayed: boolean): number {
  let flags = 0
  const { nonce, group, after, expiresIn, debounce } = task
  if (nonce !== undefined || group || after || expiresIn !== undefined || debounce || delayed)
    flags |= FLAG.extras
  if (delayed) flags |= FLAG.delayed
  if (task.hold) flags |= FLAG.held
  if (task.expiresIn !== undefined) flags |= FLAG.deadline
  if (task.watcher !== undefined) flags |= FLAG.watched
  if (task.group) flags |= FLAG.grouped | (task.group.exempt ? FLAG.exempt : 0)
  if (task.after) flags |= FLAG.edges | (task.after.on === 'success' ? FLAG.onSuccess : 0)
  return flags
}

/** Registers a watcher. One that comes when the task is final is told at once, and the record stays for it. */
export function watch(step: Step, row: Row, watcher: string, ttl: number): void {
  const isFinal = stateIndex(row.place) >= SUCCESS
  if (isFinal) step.effects.final(watcher, row.id)
  step.db.run(WATCH, row.n, watcher, step.now + (isFinal ? READING : ttl))
  if (row.flags & FLAG.watched) return
  row.flags |= FLAG.watched
  step.db.run('UPDATE neotask_tasks SET flags = ? WHERE n = ?', row.flags, row.n)
}
