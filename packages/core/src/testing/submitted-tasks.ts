/**
 * What a test pool remembers of the tasks that were submitted, and the assertions about them.
 *
 * A task is remembered when the storage has accepted it, with the data that its handler will get.
 */
import { AssertionError, deepStrictEqual } from 'node:assert'
import { inspect, isDeepStrictEqual } from 'node:util'
import type { Codec } from '../codec.js'
import { TaskDefinition } from '../define-task.js'
import { optionError } from '../errors.js'
import { parseStored } from '../kinds.js'
import type { RetryPolicy } from '../retry-policy.js'
import type { Dependencies, NewTask } from '../storage.js'

/** A task that was submitted to a test pool. */
export interface SubmittedTask<Data = unknown> {
  readonly id: string
  /** The name of its definition; empty for the pool's executor. */
  readonly name: string
  /** As the handler gets it: what the schema of the definition made of it, after the way through the codec. */
  readonly data: Data
  readonly options: SubmittedOptions
}

/** What was set for the task at `submit`, and what the definition fixes there. Times in ms. */
export interface SubmittedOptions {
  readonly priority: number
  readonly delay?: number | undefined
  /** ms since 1970. */
  readonly runAt?: number | undefined
  readonly after?: Dependencies | undefined
  readonly hold?: boolean | undefined
  readonly group?: string | undefined
  readonly expiresIn?: number | undefined
  readonly debounce?: { readonly key: string; readonly wait: number; readonly maxWait?: number } | undefined
  readonly retry?: RetryPolicy | undefined
  readonly timeout?: number | undefined
  readonly tags?: readonly string[] | undefined
}

/** Some of the properties of `Data`, at any depth. */
export type PartialData<Data> = Data extends (...args: never[]) => unknown
  ? Data
  : Data extends object
    ? { readonly [Key in keyof Data]?: PartialData<Data[Key]> | undefined }
    : Data

/** What a submitted task is looked for by: properties that its data must have, or a function that says yes. */
export type Expected<Data> = PartialData<Data> | ((data: Data, task: SubmittedTask<Data>) => boolean)

export class SubmittedTasks {
  readonly #codec: Codec
  readonly #tasks: SubmittedTask[] = []

  constructor(codec: Codec) {
    this.#codec = codec
  }

  add(task: NewTask): void {
    this.#tasks.push(this.#read(task, task.id))
  }

  /** By debounce: the task with that id has become this one. */
  replace(id: string, task: NewTask): void {
    const index = this.#tasks.findIndex((submitted) => submitted.id === id)
    if (index >= 0) this.#tasks[index] = this.#read(task, id)
  }

  /** Every task in the order of acceptance; with a name, those of that name. */
  of(task?: TaskDefinition | string): SubmittedTask[] {
    const name = task === undefined ? undefined : nameOf(task)
    return this.#tasks.filter((submitted) => name === undefined || submitted.name === name)
  }

  /** @returns the first that fits */
  assertSubmitted(task: TaskDefinition | string, expected: unknown): SubmittedTask {
    const candidates = this.of(task)
    const found = candidates.find((candidate) => fits(candidate, expected))
    if (found === undefined) throw this.#missing(nameOf(task), candidates, expected)
    return found
  }

  assertNotSubmitted(task: TaskDefinition | string, expected: unknown): void {
    const found = this.of(task).filter((candidate) => fits(candidate, expected))
    if (found.length === 0) return
    const message = `no task ${label(nameOf(task))} should have been submitted${wording(expected)}, but ${count(found.length)}:\n\n${list(found)}`
    throw new AssertionError({ message, operator: 'assertNotSubmitted' })
  }

  #missing(name: string, candidates: readonly SubmittedTask[], expected: unknown): AssertionError {
    const operator = 'assertSubmitted'
    const what = `no task ${label(name)} was submitted`
    if (candidates.length === 0)
      return new AssertionError({ message: `${what}; ${this.#summary()}`, operator })
    if (typeof expected === 'function') {
      const message = `${what}${wording(expected)}; it had the choice of ${candidates.length}:\n\n${list(candidates)}`
      return new AssertionError({ message, operator })
    }
    const closest = closestTo(candidates, expected)
    const wanted = merge(closest.data, expected)
    const others = candidates.length === 1 ? 'the only one' : `the closest of ${candidates.length}`
    const message = `${what}${wording(expected)}; ${others} is ${closest.id}:\n\n${difference(closest.data, wanted)}`
    return new AssertionError({ message, operator, actual: closest.data, expected: wanted })
  }

  #summary(): string {
    if (this.#tasks.length === 0) return 'nothing was'
    const names = [...new Set(this.#tasks.map((task) => task.name))]
    return `these were: ${names.map((name) => `${label(name)} (${this.of(name).length})`).join(', ')}`
  }

  #read(task: NewTask, id: string): SubmittedTask {
    const { kind, payload, priority, runAt, after, hold, group, expiresIn, debounce } = task
    const wait =
      debounce === undefined ? { delay: task.delay } : { debounce: { ...debounce, wait: task.delay } }
    const given = { ...wait, runAt, after, hold, group: group?.id, expiresIn, ...parseStored(task.options) }
    const set = Object.entries(given).filter(([, value]) => value !== undefined)
    const options = { priority, ...Object.fromEntries(set) }
    return { id, name: kind, data: this.#codec.decode(payload), options }
  }
}

function nameOf(task: TaskDefinition | string): string {
  if (typeof task === 'string') return task
  const given: unknown = task
  if (given instanceof TaskDefinition) return given.name
  throw optionError('task', "what defineTask returns, or a name ('' for the executor)", given)
}

function fits(task: SubmittedTask, expected: unknown): boolean {
  if (expected === undefined) return true
  if (typeof expected !== 'function') return matches(task.data, expected)
  return (expected as (data: unknown, task: SubmittedTask) => unknown)(task.data, task) === true
}

interface Matcher {
  readonly asymmetricMatch?: (actual: unknown) => unknown
  readonly toJSON?: () => unknown
}

/** Whether a value has what is expected of it: of objects only the properties named, of arrays all items. */
function matches(actual: unknown, expected: unknown): boolean {
  if (isDeepStrictEqual(actual, expected)) return true
  if (typeof expected !== 'object' || expected === null) return false
  // The matchers of vitest and jest, such as expect.any(String).
  const { asymmetricMatch, toJSON } = expected as Matcher
  if (typeof asymmetricMatch === 'function') return asymmetricMatch.call(expected, actual) === true
  // A Date was stored as its ISO text.
  if (typeof toJSON === 'function') return isDeepStrictEqual(actual, toJSON.call(expected))
  if (typeof actual !== 'object' || actual === null || Array.isArray(actual) !== Array.isArray(expected))
    return false
  if (Array.isArray(expected) && (actual as unknown[]).length !== expected.length) return false
  return Object.entries(expected).every(([key, value]) =>
    matches((actual as Record<string, unknown>)[key], value),
  )
}

function closestTo(tasks: readonly SubmittedTask[], expected: unknown): SubmittedTask {
  let closest = tasks[0] as SubmittedTask
  let best = -1
  for (const task of tasks) {
    const data = (task.data ?? {}) as Record<string, unknown>
    const same = Object.entries(expected ?? {}).filter(([key, value]) => matches(data[key], value)).length
    if (same <= best) continue
    best = same
    closest = task
  }
  return closest
}

/** The data with what was expected put in, so that their difference shows nothing else. */
function merge(actual: unknown, expected: unknown): unknown {
  if (matches(actual, expected)) return actual
  if (!isPlain(actual) || !isPlain(expected)) return expected
  const merged: Record<string, unknown> = { ...actual }
  for (const [key, value] of Object.entries(expected)) merged[key] = merge(actual[key], value)
  return merged
}

function isPlain(value: unknown): value is Record<string, unknown> {
  if (typeof value !== 'object' || value === null || Array.isArray(value)) return false
  return !('asymmetricMatch' in value) && !('toJSON' in value)
}

function difference(actual: unknown, expected: unknown): string {
  try {
    deepStrictEqual(actual, expected)
  } catch (error) {
    // Below its heading, which says what the assertion was.
    return (error as Error).message.split('\n').slice(1).join('\n').trim()
  }
  return inspect(actual)
}

const label = (name: string): string => (name === '' ? 'of the executor' : `'${name}'`)
const count = (found: number): string => (found === 1 ? 'this one was' : `these ${found} were`)

function wording(expected: unknown): string {
  if (expected === undefined) return ''
  if (typeof expected === 'function') return ' that the function says yes to'
  return ` with ${inspect(expected, { breakLength: Infinity })}`
}

/** Tasks shown in a message. */
const SHOWN = 10

function list(tasks: readonly SubmittedTask[]): string {
  const lines = tasks.slice(0, SHOWN).map(({ id, data }) => `  ${id}: ${inspect(data)}`)
  if (tasks.length > SHOWN) lines.push(`  … and ${tasks.length - SHOWN} more`)
  return lines.join('\n')
}
