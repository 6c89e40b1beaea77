/**
 * What a due schedule does: which of its slots are fired and which are left out, and why.
 *
 * Pure, in three steps between which the loop asks the storage: {@link planOf} says which slots are due and which of them
 * are too late; {@link decide}, given what became of earlier tasks, what is to be done; {@link advance}, what the record
 * says afterwards.
 *
 * **Any step may be repeated, by anybody.** A node may die between any two of: claim, cancel, enqueue, put. The record then
 * still names the first of the slots, and whoever claims it when the lease is over does all of this again. That is
 * harmless, because:
 * - a slot has one task id, so what was enqueued is not enqueued again (`known`), also after its end, for 24 h at least
 * - a slot that would be left out now (late by now, or its predecessor has not ended *yet*) and yet has a task was fired by
 *   whoever died: {@link decide} looks for that task, and takes the slot for fired
 * - `skip`, `bufferOne`: what counts is the task of the last slot that the *record* knows, which does not move before the put,
 *   or of a later one that whoever died had fired. A repeat finds it in the same state or in a later one: a slot that was to
 *   be left out may be fired after all, never the other way round
 * - `cancelRunning`: a cancel of what has ended changes nothing
 * - `maxRuns`: runs are counted by the put alone, and a task that was known counts like a new one
 *
 * The tasks and the put hold for the version of the claim only. When somebody else has changed the record meanwhile (a pause, an
 * update), {@link advance} is applied to what it is now, if it still waits for the same slot; if not, somebody was faster,
 * and said the same.
 */
import { isFinal, type TaskRecord } from '@neotask/core'
import {
  dueAtOf,
  remember,
  slotsOf,
  taskIdOf,
  type Entry,
  type Schedule,
  type SkipReason,
} from './schedule.js'
import type { Slots } from './timing.js'

/** Slots that one schedule fires at once; of more, the newest. */
export const MOST_AT_ONCE = 1000
/** A slot is missed when it is later than the time until the next one, within these bounds, ms. */
const LEAST_TOLERANCE = 1000
const MOST_TOLERANCE = 30_000
/**
 * Slots that are looked at one after the other. When more are due, nobody was there for long: a node that died has fired
 * what was due in its time, which is among these, or the newest; and those in between are told of by nobody.
 */
export const OLDEST_LOOKED_AT = 25

export interface Plan {
  readonly schedule: Schedule
  /** Slots that are due and will be fired, unless the overlap policy says no. In order. */
  readonly wanted: readonly number[]
  /** Slots that came and are too late. In order. */
  readonly missed: readonly number[]
  /** The first slot that is not due, `undefined` when there is none. */
  readonly following: number | undefined
}

/** What is due now, and what of it is too late. @param now the storage's */
export function planOf(schedule: Schedule, now: number): Plan {
  const { definition, next } = schedule
  if (next === undefined || schedule.paused) return { schedule, wanted: [], missed: [], following: next }
  const { due, following } = dueSlots(schedule, next, now)
  const isLate = due.map((slot, index) => isTooLate(schedule, slot, due[index + 1] ?? following, now))
  const late = due.filter((_, index) => isLate[index])
  const inTime = due.filter((_, index) => !isLate[index])
  const { missed: policy } = definition
  let again: readonly number[] = []
  if (policy === 'fireOnce') {
    // One that is in time stands for all before it.
    if (inTime.length === 0) again = late.slice(-1)
  } else if (policy !== 'skip') {
    again = policy.catchUp === 0 ? [] : late.slice(-policy.catchUp)
  }
  const fired = new Set([...again, ...inTime].slice(-MOST_AT_ONCE))
  const wanted = due.filter((slot) => fired.has(slot))
  const missed = due.filter((slot) => !fired.has(slot))
  return { schedule, wanted, missed, following }
}

function isTooLate(schedule: Schedule, slot: number, following: number | undefined, now: number): boolean {
  const gap = (following ?? Infinity) - slot
  const { tolerance = Math.min(MOST_TOLERANCE, Math.max(LEAST_TOLERANCE, gap)) } = schedule.definition
  return now - dueAtOf(schedule, slot) > tolerance
}

/** The slots from `next` on that are due, the first and the newest of them when they are many, and the one after. */
function dueSlots(
  schedule: Schedule,
  next: number,
  now: number,
): { due: number[]; following: number | undefined } {
  const slots = slotsOf(schedule)
  const isDue = (slot: number): boolean => dueAtOf(schedule, slot) <= now
  const due: number[] = []
  let slot: number | undefined = next
  for (; slot !== undefined && isDue(slot); slot = slots.next(slot)) {
    due.push(slot)
    if (due.length < OLDEST_LOOKED_AT) continue
    const newest = newestDue(schedule, slots, slot, now)
    due.push(...newest)
    return { due, following: slots.next(newest.at(-1) ?? slot) }
  }
  return { due, following: slot }
}

/** The newest slots after this one that are due: those that the history keeps or that may be fired. */
function newestDue(schedule: Schedule, slots: Slots, after: number, now: number): number[] {
  const { history, missed } = schedule.definition
  const find = (most: number): number[] => {
    const found = slots.newest(after, now, most)
    // What is due is due in order.
    while (found.length > 0 && dueAtOf(schedule, found.at(-1) as number) > now) found.pop()
    return found
  }
  const few = Math.min(
    MOST_AT_ONCE,
    Math.max(OLDEST_LOOKED_AT, history, typeof missed === 'string' ? 0 : missed.catchUp),
  )
  const newest = find(few)
  const [oldest, second] = newest
  if (oldest === undefined || isTooLate(schedule, oldest, second, now)) return newest
  return find(MOST_AT_ONCE)
}

/** The tasks of which the decision must know what became of them. */
export function asks({ schedule, wanted, missed }: Plan): string[] {
  const { id, definition, lastTask } = schedule
  const ids = missed.map((slot) => taskIdOf(id, slot))
  if (definition.overlap === 'allow' || wanted.length === 0) return ids
  for (const slot of wanted) ids.push(taskIdOf(id, slot))
  if (lastTask !== undefined) ids.push(lastTask)
  return ids
}

export interface Firing {
  readonly slot: number
  readonly taskId: string
  /** Waits for the end of this one. */
  readonly after?: string | undefined
}

export interface Decision {
  readonly plan: Plan
  /** Tasks to be cancelled before anything is enqueued. */
  readonly cancel: readonly string[]
  /** Tasks to be enqueued. In order. */
  readonly fire: readonly Firing[]
  /** What is known of the other slots. */
  readonly entries: readonly Entry[]
}

type Found = (id: string) => TaskRecord | undefined

/** What is to be done. @param found tells of the tasks that {@link asks} named */
export function decide(plan: Plan, found: Found): Decision {
  const { schedule, missed } = plan
  const { id, definition, runs } = schedule
  const entries: Entry[] = []
  const wasFired = (slot: number): boolean => found(taskIdOf(id, slot)) !== undefined
  let previous: Previous = schedule.lastTask === undefined ? NONE : stateOf(schedule.lastTask, found)
  for (const slot of missed) {
    entries.push({ slot, code: wasFired(slot) ? 'fired' : 'missed' })
    if (wasFired(slot)) previous = stateOf(taskIdOf(id, slot), found)
  }
  // Runs that are left; what follows the last of them is not there at all.
  let left = (definition.maxRuns ?? Infinity) - runs - entries.filter(({ code }) => code === 'fired').length
  const fire: Firing[] = []
  const cancel: string[] = []
  for (const [index, slot] of plan.wanted.entries()) {
    if (left <= 0) break
    const taskId = taskIdOf(id, slot)
    let after: string | undefined
    if (definition.overlap !== 'allow' && !wasFired(slot)) {
      // Of several at once the newest replaces the others before they exist.
      const isReplaced = definition.overlap === 'cancelRunning' && index < plan.wanted.length - 1
      const isInTheWay =
        definition.overlap === 'skip'
          ? previous.state !== 'ended'
          : definition.overlap === 'bufferOne' && previous.state === 'buffered'
      if (isReplaced || isInTheWay) {
        entries.push({ slot, code: 'overlap' })
        continue
      }
      if (previous.state !== 'ended' && definition.overlap === 'cancelRunning') cancel.push(previous.id)
      if (previous.state === 'open' && definition.overlap === 'bufferOne') after = previous.id
    }
    fire.push({ slot, taskId, after })
    left--
    const state = wasFired(slot) ? stateOf(taskId, found).state : after === undefined ? 'open' : 'buffered'
    previous = { id: taskId, state }
  }
  return { plan, cancel, fire, entries }
}

interface Previous {
  readonly id: string
  /** `open` runs or will, `buffered` waits for the one before it to end. */
  readonly state: 'ended' | 'open' | 'buffered'
}

const NONE: Previous = { id: '', state: 'ended' }

function stateOf(id: string, found: Found): Previous {
  const record = found(id)
  // What nobody knows any more has ended.
  if (record === undefined || isFinal(record.state)) return { id, state: 'ended' }
  return { id, state: record.state === 'blocked' ? 'buffered' : 'open' }
}

/**
 * What the record says when this was done.
 *
 * @param current the record as it is now
 * @param entries of all slots, those that were fired among them, in order
 * @returns `undefined` when it waits for another slot by now: then somebody else did the same
 */
export function advance(
  current: Schedule,
  { schedule, following }: Plan,
  entries: readonly Entry[],
): Schedule | undefined {
  if (current.next !== schedule.next) return undefined
  const fired = entries.filter(({ code }) => code === 'fired')
  const runs = current.runs + fired.length
  const { maxRuns = Infinity } = current.definition
  const last = fired.at(-1)
  // Another definition may have other slots, and yet wait for this one too.
  const then =
    current.hash === schedule.hash
      ? following
      : slotsOf(current).next(entries.at(-1)?.slot ?? schedule.next ?? 0)
  return {
    ...current,
    runs,
    next: runs >= maxRuns ? undefined : then,
    lastTask: last === undefined ? current.lastTask : taskIdOf(current.id, last.slot),
    history: remember(current, entries),
  }
}

/** The entry of a slot that was left out, as the event tells it. */
export function reasonOf({ code }: Entry): SkipReason | undefined {
  return code === 'fired' || code === 'triggered' ? undefined : code
}
