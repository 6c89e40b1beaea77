/**
 * What an owner's call makes of a schedule: a new one, another definition, the end of a pause.
 *
 * The last two may leave out slots that have come. The record does not say what became of them, only their tasks do: a node
 * that died before its put had fired them. So they are looked up before, as `decide` does when they are due, and what was
 * fired counts as a run. An {@link Edit} says whether that is needed, and what it makes of the answer.
 */
import { firstSlot } from './schedule-options.js'
import { OLDEST_LOOKED_AT } from './policies.js'
import {
  hasSameSlots,
  remember,
  slotsOf,
  taskIdOf,
  timingOf,
  type Definition,
  type Entry,
  type Schedule,
} from './schedule.js'
import { Slots } from './timing.js'

export interface Edit {
  /** Whether it leaves out the slots of {@link passedSlots}. */
  readonly leavesOut: (schedule: Schedule) => boolean
  /**
   * @param passed how these slots went; empty when it leaves out none
   * @returns `undefined` when there is nothing to change
   */
  readonly apply: (schedule: Schedule, passed: readonly Entry[]) => Schedule | undefined
}

export function newSchedule(id: string, definition: Definition, hash: string, now: number): Schedule {
  const anchor = definition.start ?? now
  const next = firstSlot(definition, timingOf(definition, anchor), now)
  return {
    id,
    definition,
    hash,
    createdAt: now,
    anchor,
    next,
    paused: false,
    runs: 0,
    lastTask: undefined,
    history: [],
  }
}

/**
 * Gives it another definition. A slot that is due, or waits for its jitter, stays when the slots stay the same; when they
 * change, the old ones up to now are told of in the history.
 *
 * @param of the hash of the definition that it is to replace. Default: whichever there is
 */
export function redefinition(definition: Definition, hash: string, now: number, of?: string): Edit {
  const applies = (schedule: Schedule): boolean =>
    schedule.hash !== hash && (of === undefined || schedule.hash === of)
  const keeps = (schedule: Schedule): boolean => hasSameSlots(schedule.definition, definition)
  return {
    leavesOut: (schedule) => applies(schedule) && !keeps(schedule) && hasPassed(schedule, now),
    apply: (schedule, passed) => {
      if (!applies(schedule)) return undefined
      const { every, start } = schedule.definition
      const isAnchored = every === definition.every && start === definition.start
      const anchor = isAnchored ? schedule.anchor : (definition.start ?? now)
      const kept = keeps(schedule) ? schedule.next : undefined
      // Of a slot that stays too: it may lie outside of the window now, or the jitter be too long.
      const first = firstSlot(definition, timingOf(definition, anchor), kept === undefined ? now : kept - 1)
      return going({ ...schedule, definition, hash, anchor }, passed, kept ?? first)
    },
  }
}

/** Ends its pause: the slots that came meanwhile are told of in the history. */
export function resumption(now: number): Edit {
  return {
    leavesOut: (schedule) => schedule.paused && hasPassed(schedule, now),
    apply: (schedule, passed) => {
      if (!schedule.paused) return undefined
      const next = hasPassed(schedule, now) ? slotsOf(schedule).next(now) : schedule.next
      return going({ ...schedule, paused: false }, passed, next)
    },
  }
}

const hasPassed = ({ next }: Schedule, now: number): boolean => next !== undefined && next <= now

/** With what is known of the slots that passed, and its next one, if it may still run. */
function going(schedule: Schedule, passed: readonly Entry[], next: number | undefined): Schedule {
  const fired = passed.filter(({ code }) => code === 'fired')
  const runs = schedule.runs + fired.length
  const last = fired.at(-1)
  return {
    ...schedule,
    runs,
    next: runs >= (schedule.definition.maxRuns ?? Infinity) ? undefined : next,
    lastTask: last === undefined ? schedule.lastTask : taskIdOf(schedule.id, last.slot),
    history: remember(schedule, passed),
  }
}

/**
 * The slots that have come and that it waits for: of many the oldest, which a node that died long ago may have fired, and the
 * newest, which the history remembers.
 */
export function passedSlots(schedule: Schedule, now: number): number[] {
  const { definition, anchor, next } = schedule
  if (next === undefined) return []
  const end = Math.min(now, definition.end ?? Infinity)
  const slots = new Slots(timingOf(definition, anchor), { start: definition.start, end })
  const oldest = slots.preview(next - 1, OLDEST_LOOKED_AT)
  return [...oldest, ...slots.newest(oldest.at(-1) ?? now, now, Math.max(1, definition.history))]
}

/** @param wasFired whether the slot has a task */
export function entriesOf(
  { paused }: Schedule,
  slots: readonly number[],
  wasFired: (slot: number) => boolean,
): Entry[] {
  const left = paused ? 'paused' : 'missed'
  return slots.map((slot) => ({ slot, code: wasFired(slot) ? 'fired' : left }))
}

/** Whether both wait for the same slots, and call them the same when they do not come. */
export function waitAlike(one: Schedule, other: Schedule): boolean {
  return one.next === other.next && one.hash === other.hash && one.paused === other.paused
}
