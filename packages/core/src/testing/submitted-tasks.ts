/**
 * What a test pool remembers of the tasks that were submitted, and the assertions about them.
 *
 * A task is remembered when the storage has accepted it, with the data that its handler will get.
 */
import { AssertionError, deepStrictEqual } from 'node:assert'
import { inspect } from 'node:util'
import type { Codec } from '../codec.js'
import { TaskDefinition } from '../define-task.js'
import { optionError } from '../errors.js'
import { parseStored } from '../kinds.js'
import type { RetryPolicy } from '../retry-policy.js'
import type { Dependencies, NewTask } from '../storage.js'
import { checkExpected, matches, merge, type PartialData } from './expected-data.js'

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
    const found = candidates.find(this.#fit(expected))
    if (found === undefined) throw this.#missing(nameOf(task), candidates, expected)
    return found
  }

  assertNotSubmitted(task: TaskDefinition | string, expected: unknown): void {
    const found = this.of(task).filter(this.#fit(expected))
    if (found.length === 0) return
    const message = `no task ${label(nameOf(task))} should have been submitted${wording(expected)}, but ${count(found.length)}:\n\n${list(found)}`
    throw new AssertionError({ message, operator: 'assertNotSubmitted' })
  }

  /** What is expected, as a question to each task. */
  #fit(expected: unknown): (task: SubmittedTask) => boolean {
    if (expected === undefined) return () => true
    if (typeof expected === 'function') {
      return (task) => (expected as (data: unknown, task: SubmittedTask) => unknown)(task.data, task) === true
    }
    checkExpected(this.#codec, expected)
    return (task) => matches(this.#codec, task.data, expected)
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
    const closest = this.#closest(candidates, expected)
    const wanted = merge(this.#codec, closest.data, expected)
    const others = candidates.length === 1 ? 'the only one' : `the closest of ${candidates.length}`
    const message = `${what}${wording(expected)}; ${others} is ${closest.id}:\n\n${difference(closest.data, wanted)}`
    return new AssertionError({ message, operator, actual: closest.data, expected: wanted })
  }

  #closest(tasks: readonly SubmittedTask[], expected: unknown): SubmittedTask {
    let closest = tasks[0] as SubmittedTask
    let best = -1
    for (const task of tasks) {
      const data = (task.data ?? {}) as Record<string, unknown>
      const wanted = Object.entries(expected ?? {})
      const same = wanted.filter(([key, value]) => matches(this.#codec, data[key], value)).length
      if (same <= best) continue
      best = same
      closest = task
    }
    return closest
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
