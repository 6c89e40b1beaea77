/** Compares everything that can be seen of a queue, and of the records, with the model. */
import assert from 'node:assert/strict'
import type { ListQuery, Storage, TaskRecord } from '../storage.js'
import { TASK_STATES, type TaskState } from '../task.js'
import type { ModelQueue } from './model-queue.js'
import type { ModelRecords } from './model-records.js'
import { settledTokenOf } from './model-sessions.js'
import { FINAL, isBefore, isHeldBack, tidy, type ModelTask } from './model-task.js'

const DAY = 86_400_000
const MINUTE = 60_000

/** @param limit tasks on a page */
export async function lookAt(storage: Storage, queue: ModelQueue, limit: number): Promise<void> {
  await compareCounts(storage, queue)
  for (const state of TASK_STATES) await compareList(storage, queue, { state, limit })
  await compareList(storage, queue, { state: 'pending', kind: 'mail', limit })
  for (const group of queue.groups.keys())
    await compareList(storage, queue, { state: 'cancelled', group, limit })
  const known = [...queue.tasks.keys(), ...queue.tombstones.keys(), 'nobody']
  const records = await storage.queue.get(queue.ref, known)
  for (const [index, record] of records.entries()) {
    const id = known[index] as string
    const task = queue.tasks.get(id)
    assert.equal(record === undefined, task === undefined, `${id} is ${record?.state ?? 'unknown'}`)
    if (record && task) compareRecord(record, queue, task)
  }
  await compareHistory(storage, queue)
  await compareErrors(storage, queue)
  await compareNodes(storage, queue)
}

export async function compareCounts(storage: Storage, queue: ModelQueue): Promise<void> {
  const counts = await storage.queue.counts(queue.ref)
  const expected = Object.fromEntries(TASK_STATES.map((state) => [state, queue.in(state).length]))
  const prefetched = queue.in('running').filter((task) => !task.started).length
  assert.deepEqual({ ...counts }, { ...expected, prefetched, paused: queue.paused }, 'the counts')
}

async function compareList(storage: Storage, queue: ModelQueue, query: ListQuery): Promise<void> {
  const { state, kind, group, limit } = query
  const expected = queue
    .in(state)
    .filter((task) => kind === undefined || task.kind === kind)
    .filter((task) => group === undefined || task.group?.id === group)
  const listed: ModelTask[] = []
  let cursor: string | undefined
  for (let pages = 0; ; pages++) {
    assert.ok(pages <= queue.tasks.size + 1, `the list of ${state} tasks does not end`)
    const page = await storage.queue.list(queue.ref, { ...query, ...(cursor !== undefined && { cursor }) })
    assert.ok(page.tasks.length <= limit, 'a page is longer than its limit')
    for (const { id } of page.tasks) listed.push(queue.tasks.get(id) as ModelTask)
    cursor = page.cursor
    if (cursor === undefined) break
  }
  const names = (tasks: readonly (ModelTask | undefined)[]): string[] =>
    tasks.map((task) => task?.id ?? '?').sort()
  assert.deepEqual(names(listed), names(expected), `the list of ${state} tasks`)
  for (const [index, task] of listed.entries()) {
    const next = listed[index + 1]
    if (next) assert.ok(!isListedBefore(next, task, state), `${task.id} is listed before ${next.id}`)
  }
}

/** Whether `a` has to stand before `b` in the list of their state. */
function isListedBefore(a: ModelTask, b: ModelTask, state: TaskState): boolean {
  if (state === 'pending') return isBefore(a.place, b.place)
  if (state === 'scheduled') return (a.dueAt ?? 0) < (b.dueAt ?? 0)
  return FINAL.includes(state) && a.since > b.since
}

function compareRecord(record: TaskRecord, queue: ModelQueue, task: ModelTask): void {
  const { lane, message, waitsFor, held, ...rest } = record
  const isRunning = task.state === 'running'
  const expected = {
    id: task.id,
    kind: task.kind,
    state: task.state,
    priority: task.place.priority,
    payload: task.payload,
    codec: task.codec,
    options: task.options,
    createdAt: task.createdAt,
    since: task.since,
    dueAt: task.state === 'scheduled' ? task.dueAt : undefined,
    deadline: task.deadline,
    started: isRunning && task.started,
    session: isRunning ? task.session?.id : undefined,
    node: isRunning ? nodeOf(task.session?.id ?? '') : undefined,
    settledToken: settledTokenOf(task),
    attempts: task.attempts,
    reclaims: task.reclaims,
    after: afterOf(task.after),
    group: task.group && { id: task.group.id, ...(task.exempt && { exempt: true }) },
    result: task.result,
    resultCodec: task.resultCodec,
    error: task.error,
    reason: record.reason === task.otherReason ? (task.otherReason ?? task.reason) : task.reason,
    duration: task.duration,
    progress: task.progress,
    checkpoint: task.checkpoint,
    logs: task.logs,
  }
  assert.deepEqual(
    tidy({ ...rest, after: afterOf(record.after) }),
    tidy(expected),
    `the record of ${task.id}`,
  )
  if (task.message !== undefined) assert.equal(message, task.message, `the message of ${task.id}`)
  const isBlocked = task.state === 'blocked'
  assert.equal(held, isBlocked && task.held, `whether ${task.id} is held`)
  assert.deepEqual(
    [...(waitsFor ?? [])].sort(),
    isBlocked ? [...task.open].sort() : [],
    `what ${task.id} waits for`,
  )
  // In which lane it stands, or in none, depends on which claims came by.
  const lanes = [undefined, `kind:${task.kind}`, ...(isHeldBack(task) ? [`group:${task.group?.id}`] : [])]
  assert.ok(lanes.includes(task.state === 'pending' ? lane : undefined), `${task.id} stands in lane ${lane}`)
}

export const nodeOf = (session: string): string => `node of ${session}`

const afterOf = (after: TaskRecord['after']): string | undefined =>
  after === undefined || after.ids.length === 0 ? undefined : `${after.on} ${after.ids.join(' ')}`

async function compareHistory(storage: Storage, queue: ModelQueue): Promise<void> {
  const from = queue.now - DAY + MINUTE
  const buckets = await storage.queue.history(queue.ref, { from, to: queue.now })
  const expected = [...queue.history].filter(([at]) => at >= from).sort(([a], [b]) => a - b)
  assert.deepEqual(
    buckets.filter(({ at }) => at >= from).map((bucket) => ({ ...bucket })),
    expected.map(([at, counts]) => ({ at, ...counts })),
    'the history',
  )
}

async function compareErrors(storage: Storage, queue: ModelQueue): Promise<void> {
  const groups = await storage.queue.errors(queue.ref, { limit: 100 })
  const expected = new Map<string, number>()
  for (const { fingerprint, reason } of queue.in('failed')) {
    const key = fingerprint ?? reason ?? ''
    expected.set(key, (expected.get(key) ?? 0) + 1)
  }
  assert.deepEqual(
    new Map(groups.map((group) => [group.fingerprint, group.count])),
    expected,
    'groups of errors',
  )
  const sizes = groups.map(({ count }) => count)
  assert.deepEqual(
    sizes,
    sizes.toSorted((a, b) => b - a),
    'the order of the groups of errors',
  )
  for (const { id, fingerprint } of groups)
    assert.equal(queue.tasks.get(id)?.state, 'failed', `a member of the errors ${fingerprint}`)
}

async function compareNodes(storage: Storage, queue: ModelQueue): Promise<void> {
  for (const { id, over, beatAt, ttl } of queue.sessions) {
    const record = await storage.records.get(queue.ref.tenant, `node:${id}`)
    const isThere = over === undefined && beatAt + ttl > queue.now
    assert.equal(record !== undefined, isThere, `the record of the node of ${id}`)
  }
}

export async function lookAtRecords(
  storage: Storage,
  model: ModelRecords,
  now: number,
  query: { tenant: string; prefix: string; limit: number },
): Promise<void> {
  const keys: string[] = []
  let cursor: string | undefined
  for (let pages = 0; pages < 100; pages++) {
    const { prefix, limit } = query
    const page = await storage.records.list(query.tenant, {
      prefix,
      limit,
      ...(cursor !== undefined && { cursor }),
    })
    model.check(page.records, now)
    keys.push(...page.records.map(({ key }) => key))
    cursor = page.cursor
    if (cursor === undefined) break
  }
  assert.deepEqual(
    keys,
    model.keys(now).filter((key) => key.startsWith(query.prefix)),
    'the list of records',
  )
}
