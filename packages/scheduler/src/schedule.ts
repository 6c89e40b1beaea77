/**
 * What a schedule is: its definition, which its owner gives, and its state, which firing moves on.
 *
 * A task is a product of a schedule and never a part of its state: the record alone says which slot is next.
 */
import { type Duration, type RetrySetting, type StoredRecord } from '@neotask/core'
import type { PreparedTask } from '@neotask/core/tier'
import { jitterOf, Slots, type Timing } from './timing.js'
import { zoneOf } from './zone.js'

/** What happens when a slot comes while the task of the one before has not ended. */
export type Overlap = (typeof OVERLAPS)[number]
export const OVERLAPS = ['skip', 'allow', 'bufferOne', 'cancelRunning'] as const

/** What happens to slots that came while nobody was there to fire them. */
export type Missed = (typeof MISSED)[number] | { readonly catchUp: number }
export const MISSED = ['skip', 'fireOnce'] as const

/** Why a slot was left out. */
export type SkipReason = 'missed' | 'overlap' | 'paused' | 'refused'

/** What its owner gives, with times in ms. The interval's anchor is not here: it belongs to the state. */
export interface Definition {
  readonly task: PreparedTask
  /** What was given for the task, to be merged with later changes. */
  readonly submit: TaskOptions
  readonly every?: number | undefined
  readonly cron?: string | undefined
  readonly zone?: string | undefined
  readonly start?: number | undefined
  readonly end?: number | undefined
  readonly maxRuns?: number | undefined
  readonly overlap: Overlap
  readonly missed: Missed
  readonly jitter: number
  /** Beyond it a slot counts as missed. */
  readonly tolerance?: number | undefined
  /** Entries of the history. */
  readonly history: number
}

export interface TaskOptions {
  readonly priority?: number | undefined
  readonly retry?: RetrySetting | undefined
  readonly timeout?: Duration | undefined
  readonly tags?: readonly string[] | undefined
}

/** How a slot went, as the record says it: short, for there may be a thousand of them. */
export const CODES = ['fired', 'triggered', 'missed', 'overlap', 'paused', 'refused'] as const
export type Code = (typeof CODES)[number]

export interface Entry {
  readonly slot: number
  readonly code: Code
  /** Of its task, when it cannot be told from the slot. */
  readonly taskId?: string | undefined
}

export interface Schedule {
  readonly id: string
  readonly definition: Definition
  readonly hash: string
  readonly createdAt: number
  /** Of an interval: the first slot, or the instant of its creation. */
  readonly anchor: number
  /** The slot that is to come; `undefined` when none is, for it has ended. */
  readonly next: number | undefined
  readonly paused: boolean
  /** Slots that were fired. */
  readonly runs: number
  /** The task of the slot that was fired last. */
  readonly lastTask: string | undefined
  /** Oldest first. */
  readonly history: readonly Entry[]
}

/** Whether the slots of both are the same, but for where they end. */
export function hasSameSlots(one: Definition, other: Definition): boolean {
  const isSame = (['every', 'cron', 'start'] as const).every((key) => one[key] === other[key])
  return isSame && (one.zone === other.zone || canonicalZone(one.zone) === canonicalZone(other.zone))
}

const canonicalZone = (zone: string | undefined): string | undefined =>
  zone === undefined ? undefined : zoneOf(zone).name

export function timingOf(definition: Definition, anchor: number): Timing {
  const { every, cron = '', zone = 'UTC' } = definition
  return every === undefined ? { cron, zone } : { every, anchor }
}

export function slotsOf({ definition, anchor }: Pick<Schedule, 'definition' | 'anchor'>): Slots {
  return new Slots(timingOf(definition, anchor), definition)
}

/** When the slot is fired: with its jitter, and always before the next slot, also where a change of the clocks brings that near. */
export function dueAtOf(schedule: Pick<Schedule, 'id' | 'definition' | 'anchor'>, slot: number): number {
  const { id, definition } = schedule
  if (definition.jitter === 0) return slot
  const gap = (slotsOf(schedule).next(slot) ?? Infinity) - slot
  return slot + jitterOf(id, slot, Math.min(definition.jitter, gap))
}

/** When the record is due; `undefined` while nothing is to be fired. */
export function recordDueAt(schedule: Schedule): number | undefined {
  return schedule.paused || schedule.next === undefined ? undefined : dueAtOf(schedule, schedule.next)
}

/** The task of a slot: composed, so that whoever fires the slot makes the same one. */
export function taskIdOf(id: string, slot: number): string {
  return `${id}~${slot}`
}

/** What `list` finds a schedule by. */
export function labelsOf({ task, submit }: Definition): string[] {
  const tags = (submit.tags ?? []).map((tag) => `tag:${tag}`)
  return [`name:${task.kind}`, ...tags]
}

export const keyPrefix = (queue: string): string => `schedule:${queue}/`

export function idOf(record: StoredRecord, queue: string): string {
  return record.key.slice(keyPrefix(queue).length)
}

/** The history with more, no longer than it may be. */
export function remember(schedule: Schedule, entries: readonly Entry[]): readonly Entry[] {
  const { history } = schedule.definition
  if (history === 0) return []
  // What was triggered during a pause is younger than the slots that are told of after it.
  return [...schedule.history, ...entries].sort((one, other) => one.slot - other.slot).slice(-history)
}
