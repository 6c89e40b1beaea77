/**
 * What a schedule is: its definition, which its owner gives, and its state, which firing moves on; and the record that
 * holds both, a line of JSON for each.
 *
 * The definition has a hash, so that a redeploy which says the same again is seen to change nothing. A task is a product of
 * a schedule and never a part of its state: the record alone says which slot is next.
 */
import { createHash } from 'node:crypto'
import {
  NeoTaskError,
  type Duration,
  type Encoded,
  type RetrySetting,
  type StoredRecord,
} from '@neotask/core'
import type { PreparedTask } from '@neotask/core/tier'
import { jitterOf, Slots, type Timing } from './timing.js'

/** What happens when a slot comes while the task of the one before has not ended. */
export type Overlap = 'skip' | 'allow' | 'bufferOne' | 'cancelRunning'

/** What happens to slots that came while nobody was there to fire them. */
export type Missed = 'skip' | 'fireOnce' | { readonly catchUp: number }

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
const CODES = ['fired', 'triggered', 'missed', 'overlap', 'paused', 'refused'] as const
type Code = (typeof CODES)[number]

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

/** The version of the stored format. */
const FORMAT = 1
/** Definitions of which this process keeps the text and the meaning: firing changes the state alone. */
const MOST_KEPT = 20_000

/**
 * The first line of a record; the second one is the definition. So whoever fires a schedule reads and writes the state, which
 * is small, and takes the definition for what it is.
 */
interface State {
  v: number
  h: string
  c: number
  a: number
  n?: number | undefined
  p?: 1 | undefined
  r: number
  l?: string | undefined
  e: (readonly [slot: number, code: number, taskId?: string])[]
}

/** JSON holds text only: bytes are base64. */
type StoredTask = Omit<PreparedTask, 'payload'> & { payload?: string; bytes?: string }
type StoredDefinition = Omit<Definition, 'task'> & { task: StoredTask }

const textOf = new WeakMap<Definition, string>()
const definitions = new Map<string, Definition>()

export function serialize(schedule: Schedule): string {
  const { definition, hash, createdAt, anchor, next, paused, runs, lastTask, history } = schedule
  const state: State = {
    v: FORMAT,
    h: hash,
    c: createdAt,
    a: anchor,
    n: next,
    p: paused ? 1 : undefined,
    r: runs,
    l: lastTask,
    e: history.map(({ slot, code, taskId }) => {
      const number = CODES.indexOf(code)
      return taskId === undefined ? [slot, number] : [slot, number, taskId]
    }),
  }
  let text = textOf.get(definition)
  if (text === undefined) keep((text = JSON.stringify(storable(definition))), definition)
  return `${JSON.stringify(state)}\n${text}`
}

function keep(text: string, definition: Definition): void {
  if (definitions.size >= MOST_KEPT) definitions.delete(definitions.keys().next().value as string)
  definitions.set(text, definition)
  textOf.set(definition, text)
}

/** @throws NeoTaskError `STORAGE_FORMAT` for what this version cannot read */
export function parseSchedule(id: string, value: Encoded): Schedule {
  try {
    const text = typeof value === 'string' ? value : Buffer.from(value).toString()
    const end = text.indexOf('\n')
    const state = JSON.parse(end < 0 ? text : text.slice(0, end)) as State
    if (state.v !== FORMAT) throw new Error(`expected format ${FORMAT}, got ${String(state.v)}`)
    return {
      id,
      definition: definitionOf(text.slice(end + 1)),
      hash: state.h,
      createdAt: state.c,
      anchor: state.a,
      next: state.n,
      paused: state.p === 1,
      runs: state.r,
      lastTask: state.l,
      history: state.e.map(([slot, code, taskId]) => ({ slot, code: CODES[code] as Code, taskId })),
    }
  } catch (cause) {
    const why = (cause as Error).message
    throw new NeoTaskError('STORAGE_FORMAT', `the record of schedule ${id} cannot be read: ${why}`, { cause })
  }
}

function definitionOf(text: string): Definition {
  const known = definitions.get(text)
  if (known !== undefined) return known
  const { task, ...rest } = JSON.parse(text) as StoredDefinition
  const { payload = '', bytes, ...others } = task
  const definition: Definition = {
    ...rest,
    task: { ...others, payload: bytes === undefined ? payload : Buffer.from(bytes, 'base64') },
  }
  // An expression or a zone that this process does not know is found here, and not in the middle of firing.
  slotsOf({ definition, anchor: 0 })
  keep(text, definition)
  return definition
}

function storable(definition: Definition): StoredDefinition {
  const { payload, ...rest } = definition.task
  const task =
    typeof payload === 'string'
      ? { ...rest, payload }
      : { ...rest, bytes: Buffer.from(payload).toString('base64') }
  return { ...definition, task }
}

/** Equal for definitions that say the same. */
export function hashOf(definition: Definition): string {
  // By the order of their names, so that it does not matter how an object came about.
  const text = JSON.stringify(storable(definition), (_key, value: unknown) =>
    value === null || typeof value !== 'object' || Array.isArray(value)
      ? value
      : Object.fromEntries(Object.entries(value).sort(([a], [b]) => (a < b ? -1 : 1))),
  )
  return createHash('sha256').update(text).digest('base64url').slice(0, 16)
}

/** Whether the slots of both are the same. */
export function hasSameSlots(one: Definition, other: Definition): boolean {
  return (['every', 'cron', 'zone', 'start', 'end'] as const).every((key) => one[key] === other[key])
}

export function timingOf(definition: Definition, anchor: number): Timing {
  const { every, cron = '', zone = 'UTC' } = definition
  return every === undefined ? { cron, zone } : { every, anchor }
}

export function slotsOf({ definition, anchor }: Pick<Schedule, 'definition' | 'anchor'>): Slots {
  return new Slots(timingOf(definition, anchor), definition)
}

/** When the slot is fired: with its jitter. */
export function dueAtOf({ id, definition }: Pick<Schedule, 'id' | 'definition'>, slot: number): number {
  return slot + jitterOf(id, slot, definition.jitter)
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
  return task.kind === '' ? tags : [`name:${task.kind}`, ...tags]
}

export const keyPrefix = (queue: string): string => `schedule:${queue}/`

export function idOf(record: StoredRecord, queue: string): string {
  return record.key.slice(keyPrefix(queue).length)
}

/** The history with more at its end, no longer than it may be. */
export function remember(schedule: Schedule, entries: readonly Entry[]): readonly Entry[] {
  const { history } = schedule.definition
  return history === 0 ? [] : [...schedule.history, ...entries].slice(-history)
}
