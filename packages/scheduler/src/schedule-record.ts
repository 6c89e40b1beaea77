/**
 * The record of a schedule: a line of JSON for its state, which is small and which firing moves on, and one for its
 * definition, which whoever fires it takes for what it is.
 *
 * A record may come from another version, a backup or a person, so everything is looked at before it is believed: what is
 * wrong with one is found here, and not in the middle of firing it together with others.
 *
 * The definition has a hash, so that a redeploy which says the same again is seen to change nothing.
 */
import { createHash } from 'node:crypto'
import { MAX_PRIORITY, NeoTaskError, type Encoded } from '@neotask/core'
import { LATEST, type PreparedTask } from '@neotask/core/tier'
import {
  CODES,
  MISSED,
  OVERLAPS,
  slotsOf,
  type Code,
  type Definition,
  type Entry,
  type Schedule,
} from './schedule.js'
import { LONGEST_INTERVAL, SHORTEST_INTERVAL } from './timing.js'

/** The version of the stored format. */
const FORMAT = 1
/** Characters of the texts that {@link Definitions} keeps. */
const MOST_KEPT = 8 * 1024 * 1024

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

/** The definitions of schedules that were read or written last: firing changes the state alone, so they need not be read again. */
export class Definitions {
  readonly #byId = new Map<string, { readonly text: string; readonly definition: Definition }>()
  #size = 0

  find(id: string, text: string): Definition | undefined {
    const known = this.#byId.get(id)
    return known?.text === text ? known.definition : undefined
  }

  keep(id: string, text: string, definition: Definition): void {
    if (this.#byId.get(id)?.definition === definition) return
    this.#drop(id)
    this.#byId.set(id, { text, definition })
    this.#size += text.length
    for (const oldest of this.#byId.keys()) {
      if (this.#size <= MOST_KEPT) break
      this.#drop(oldest)
    }
  }

  #drop(id: string): void {
    this.#size -= this.#byId.get(id)?.text.length ?? 0
    this.#byId.delete(id)
  }
}

const textOf = new WeakMap<Definition, string>()

export function serialize(schedule: Schedule, definitions?: Definitions): string {
  const { id, definition, hash, createdAt, anchor, next, paused, runs, lastTask, history } = schedule
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
  if (text === undefined) textOf.set(definition, (text = JSON.stringify(storable(definition))))
  definitions?.keep(id, text, definition)
  return `${JSON.stringify(state)}\n${text}`
}

/** @throws NeoTaskError `STORAGE_FORMAT` for what this version cannot read */
export function parseSchedule(id: string, value: Encoded, definitions?: Definitions): Schedule {
  try {
    const text = typeof value === 'string' ? value : Buffer.from(value).toString()
    const end = text.indexOf('\n')
    const state = JSON.parse(end < 0 ? text : text.slice(0, end)) as State
    if (state.v !== FORMAT) throw new Error(`expected format ${FORMAT}, got ${String(state.v)}`)
    checkState(state)
    return {
      id,
      definition: definitionOf(id, text.slice(end + 1), definitions),
      hash: state.h,
      createdAt: state.c,
      anchor: state.a,
      next: state.n,
      paused: state.p === 1,
      runs: state.r,
      lastTask: state.l,
      history: state.e.map(([slot, code, taskId]): Entry => ({ slot, code: CODES[code] as Code, taskId })),
    }
  } catch (cause) {
    const why = (cause as Error).message
    throw new NeoTaskError('STORAGE_FORMAT', `the record of schedule ${id} cannot be read: ${why}`, { cause })
  }
}

function definitionOf(id: string, text: string, definitions: Definitions | undefined): Definition {
  const known = definitions?.find(id, text)
  if (known !== undefined) return known
  const stored = JSON.parse(text) as StoredDefinition
  checkDefinition(stored)
  const { task, ...rest } = stored
  const { payload = '', bytes, ...others } = task
  const definition: Definition = {
    ...rest,
    task: { ...others, payload: bytes === undefined ? payload : Buffer.from(bytes, 'base64') },
  }
  // An expression or a zone that this process does not know.
  slotsOf({ definition, anchor: 0 })
  textOf.set(definition, text)
  definitions?.keep(id, text, definition)
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

// ------------------------------------------------------------------------------------------------- checks

type Test = (value: unknown) => boolean
/** One for each field. */
type Tests = readonly (readonly [field: string, test: Test])[]

const isText: Test = (value) => typeof value === 'string'
const isObject: Test = (value) => typeof value === 'object' && value !== null && !Array.isArray(value)
const isInstant: Test = (value) => typeof value === 'number' && Math.abs(value) <= LATEST
const isBetween =
  (least: number, most: number): Test =>
  (value) =>
    Number.isInteger(value) && (value as number) >= least && (value as number) <= most
const isCount = isBetween(0, Number.MAX_SAFE_INTEGER)
const isDuration: Test = (value) => typeof value === 'number' && value >= 0 && value < Infinity
const isOneOf =
  (values: readonly unknown[]): Test =>
  (value) =>
    values.includes(value)
const maybe =
  (test: Test): Test =>
  (value) =>
    value === undefined || test(value)

const STATE: Tests = Object.entries<Test>({
  h: isText,
  c: isInstant,
  a: isInstant,
  n: maybe(isInstant),
  p: maybe(isOneOf([1])),
  r: isCount,
  l: maybe(isText),
  e: (value) => Array.isArray(value) && value.every(isEntry),
})

const DEFINITION: Tests = Object.entries<Test>({
  task: isObject,
  submit: isObject,
  every: maybe(isBetween(SHORTEST_INTERVAL, LONGEST_INTERVAL)),
  cron: maybe(isText),
  zone: maybe(isText),
  start: maybe(isInstant),
  end: maybe(isInstant),
  maxRuns: maybe(isCount),
  overlap: isOneOf(OVERLAPS),
  missed: (value) =>
    isOneOf(MISSED)(value) || (isObject(value) && isCount((value as { catchUp: unknown }).catchUp)),
  jitter: isDuration,
  tolerance: maybe(isDuration),
  history: isCount,
})

const TASK: Tests = Object.entries<Test>({
  kind: isText,
  payload: maybe(isText),
  bytes: maybe(isText),
  codec: isText,
  priority: isBetween(0, MAX_PRIORITY),
  options: maybe(isText),
})

function isEntry(entry: unknown): boolean {
  if (!Array.isArray(entry)) return false
  const [slot, code, taskId] = entry as unknown[]
  return isInstant(slot) && isBetween(0, CODES.length - 1)(code) && maybe(isText)(taskId)
}

function check(what: string, value: unknown, tests: Tests): void {
  if (!isObject(value)) throw new Error(`its ${what} is no object`)
  const fields = value as Readonly<Record<string, unknown>>
  for (const [field, test] of tests) {
    if (!test(fields[field])) throw new Error(`its ${what} has ${field}: ${JSON.stringify(fields[field])}`)
  }
}

function checkState(state: State): void {
  check('state', state, STATE)
}

function checkDefinition(definition: StoredDefinition): void {
  check('definition', definition, DEFINITION)
  check('task', definition.task, TASK)
  const { tags } = definition.submit
  if (tags !== undefined && !(Array.isArray(tags) && tags.every(isText)))
    throw new Error('its tags are no texts')
  if ((definition.every === undefined) === (definition.cron === undefined))
    throw new Error('its definition has neither every nor cron, or both')
}
