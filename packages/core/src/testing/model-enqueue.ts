/** The model of enqueue: which outcome each task must have, and where it goes. */
import assert from 'node:assert/strict'
import { isRefusal, type EnqueueOptions, type EnqueueOutcome, type NewTask, type Unit } from '../storage.js'
import { absorb, absorberOf, keyOf, openWindow } from './model-debounce.js'
import { GENERATED, WATCHED, type ModelQueue } from './model-queue.js'
import { isDoomed, type ModelTask } from './model-task.js'
import { codeOf } from './sketch.js'

const STORABLE = /^[A-Za-z0-9._:@/+=~#-]{1,256}$/

/** @param outcomes what the driver answered */
export function checkEnqueue(
  queue: ModelQueue,
  units: readonly Unit[],
  options: EnqueueOptions,
  outcomes: readonly EnqueueOutcome[],
): void {
  const expected: (string | readonly string[])[] = []
  for (const unit of units) {
    const list = Array.isArray(unit) ? (unit as readonly NewTask[]) : [unit as NewTask]
    const refusals = refusalsOf(queue, list, options.maxQueueSize)
    for (const task of list)
      expected.push(refusals.length > 0 ? refusals : enqueueOne(queue, task, expected.length))
  }
  assert.equal(outcomes.length, expected.length, 'enqueue does not answer for each task')
  for (const [index, outcome] of outcomes.entries()) {
    const wanted = expected[index] as string | readonly string[]
    const got = codeOf(outcome) as string
    const fits = isRefusal(outcome)
      ? typeof wanted !== 'string' && wanted.includes(got)
      : typeof wanted === 'string' && got === wanted
    assert.ok(fits, `enqueue of task ${index}: ${got} instead of ${String(wanted)}`)
  }
}

/** Every reason for which the unit may be refused. */
function refusalsOf(queue: ModelQueue, unit: readonly NewTask[], maxQueueSize = Infinity): string[] {
  const reasons = new Set<string>()
  const fresh = new Set<string>()
  const windows = new Set<string>()
  for (const task of unit) {
    if (isKnown(queue, task.id) || fresh.has(task.id)) continue
    if (!STORABLE.test(task.id)) reasons.add('OPTION_INVALID')
    if (!(Number.isInteger(task.priority) && task.priority >= 0 && task.priority <= 1000))
      reasons.add('OPTION_INVALID')
    for (const id of task.after?.ids ?? [])
      if (!queue.tasks.has(id) && !fresh.has(id)) reasons.add('DEPENDENCY_NOT_FOUND')
    if (task.debounce !== undefined && !STORABLE.test(task.debounce.key)) reasons.add('OPTION_INVALID')
    // What goes into another task takes no room, and is no parent.
    const key = keyOf(task)
    if (key !== undefined && (windows.has(key) || absorberOf(queue, task))) continue
    if (key !== undefined) windows.add(key)
    fresh.add(task.id)
  }
  const waiting = ['pending', 'scheduled', 'blocked'] as const
  const present = waiting.reduce((sum, state) => sum + queue.in(state).length, 0)
  if (fresh.size > 0 && present + fresh.size > maxQueueSize) reasons.add('QUEUE_FULL')
  return [...reasons]
}

function isKnown(queue: ModelQueue, id: string): boolean {
  return queue.tasks.has(id) || queue.isBuried(id)
}

function enqueueOne(queue: ModelQueue, given: NewTask, rank: number): string {
  const known = queue.tasks.get(given.id)
  const buried = queue.isBuried(given.id) ? queue.tombstones.get(given.id) : undefined
  if (known !== undefined && given.watcher !== undefined) queue.watchOne(known, given.watcher, WATCHED)
  const before = known ?? buried
  if (before !== undefined) {
    const isSame = given.nonce !== undefined && given.nonce === before.nonce
    return GENERATED.test(given.id) || isSame ? 'repeated' : 'duplicate'
  }
  const absorber = absorberOf(queue, given)
  if (absorber !== undefined) {
    absorb(queue, absorber, given)
    return `into ${absorber.id}`
  }
  accept(queue, given, rank)
  return 'accepted'
}

function accept(queue: ModelQueue, given: NewTask, rank: number): void {
  const task: ModelTask = {
    id: given.id,
    kind: given.kind,
    payload: given.payload,
    codec: given.codec,
    options: given.options,
    nonce: given.nonce,
    createdAt: queue.now,
    group: given.group && queue.group(given.group.id),
    exempt: given.group?.exempt === true,
    state: 'blocked',
    since: queue.now,
    place: { priority: given.priority, step: queue.step, latest: queue.step, by: 'enqueue', rank },
    delay: given.delay,
    runAt: given.runAt,
    dueAt: undefined,
    deadline: given.expiresIn === undefined ? undefined : queue.now + given.expiresIn,
    suspended: false,
    held: given.hold === true,
    after: undefined,
    open: new Set(),
    pins: new Set(),
    session: undefined,
    token: 0,
    started: false,
    settledToken: 0,
    decided: false,
    attempts: 0,
    reclaims: 0,
    probation: false,
    timedOut: false,
    result: undefined,
    resultCodec: undefined,
    error: undefined,
    fingerprint: undefined,
    reason: undefined,
    otherReason: undefined,
    message: undefined,
    duration: undefined,
    progress: undefined,
    checkpoint: undefined,
    logs: undefined,
    watchers: new Map(),
    keptUntil: 0,
    neededUntil: 0,
    window: undefined,
  }
  queue.tasks.set(task.id, task)
  queue.count('enqueued')
  openWindow(queue, task, given)
  if (given.watcher !== undefined) task.watchers.set(given.watcher, queue.now + WATCHED)
  if (given.after !== undefined) {
    queue.addParents(task, given.after)
    if (queue.isRefusedBy(given.after)) {
      queue.end(task, 'cancelled', 'DEPENDENCY_FAILED')
      return
    }
  }
  if (task.held && isDoomed(task)) queue.endByGroup(task)
  else if (task.open.size === 0 && !task.held) queue.free(task)
}
