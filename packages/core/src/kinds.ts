/**
 * The kinds of task that a pool knows: what runs each, and which retry policy, timeout and tags hold for one task.
 *
 * A task carries only what was set for it; the rest comes from its definition, then from the pool, when it runs.
 * So a changed default also holds for tasks that wait already.
 */
import type { Codec } from './codec.js'
import { checkObject } from './checks.js'
import { checkDefaults, TaskDefinition, type Handler } from './define-task.js'
import { parseDuration } from './duration.js'
import { NeoTaskError, optionError } from './errors.js'
import type { ResolvedSubmit } from './options.js'
import { resolveRetry, type RetryPolicy } from './retry-policy.js'
import type { Claimed } from './storage.js'
import { Priority } from './task.js'

interface Kind {
  readonly handler: Handler<never> | undefined
  readonly retry: RetryPolicy
  readonly timeout: number | undefined
  readonly priority: number
  readonly tags: readonly string[] | undefined
}

/** What one attempt runs by. */
export interface Rules {
  readonly handler: Handler<never>
  readonly retry: RetryPolicy
  readonly timeout: number | undefined
}

/** What is stored with a task, as JSON, in the storage's opaque `options`. */
export interface StoredOptions {
  retry?: RetryPolicy
  timeout?: number
  tags?: readonly string[]
}

/** The name of the pool's executor among the kinds. */
export const EXECUTOR = ''

export class Kinds {
  readonly #kinds = new Map<string, Kind>()
  readonly #codec: Codec

  /**
   * @param executor what runs data submitted without a definition
   * @param retry the pool's policy
   * @param timeout the pool's, in ms
   */
  constructor(
    executor: Handler<never> | undefined,
    tasks: readonly TaskDefinition[],
    defaults: { retry: RetryPolicy; timeout: number | undefined; codec: Codec },
  ) {
    const { retry, timeout } = defaults
    this.#codec = defaults.codec
    if (executor !== undefined && typeof executor !== 'function')
      throw optionError('executor', 'a function', executor)
    const given: unknown = tasks
    if (!Array.isArray(given)) throw optionError('tasks', 'an array of what defineTask returns', given)
    this.#kinds.set(EXECUTOR, {
      handler: executor,
      retry,
      timeout,
      priority: Priority.normal,
      tags: undefined,
    })
    for (const task of given as readonly unknown[]) {
      if (!isDefinition(task)) throw optionError('tasks', 'what defineTask returns', task)
      if (this.#kinds.has(task.name)) throw optionError('tasks', 'each name once', task.name)
      this.#kinds.set(task.name, resolveKind(task, retry, timeout))
    }
  }

  /** The names of the kinds that this pool can run. */
  get served(): string[] {
    return [...this.#kinds].filter(([, kind]) => kind.handler !== undefined).map(([name]) => name)
  }

  /** The kind, or the error that names what the pool lacks. */
  get(name: string): Kind {
    const kind = this.#kinds.get(name)
    if (kind !== undefined) return kind
    throw optionError(
      'task',
      `one of this pool's tasks (${[...this.#kinds.keys()].filter(Boolean).join(', ')})`,
      name,
    )
  }

  resolve(claimed: Claimed): Rules {
    const kind = this.get(claimed.kind)
    if (kind.handler === undefined)
      throw new NeoTaskError('ILLEGAL_STATE', `no handler for kind ${claimed.kind}`)
    if (claimed.options === undefined) return kind as Rules
    const own = parseStored(claimed.options)
    return { handler: kind.handler, retry: own.retry ?? kind.retry, timeout: own.timeout ?? kind.timeout }
  }

  decode(claimed: Claimed): never {
    if (claimed.codec !== this.#codec.id) {
      throw new NeoTaskError(
        'PAYLOAD_INVALID',
        `the payload was made by codec ${claimed.codec}, and this pool has ${this.#codec.id}`,
      )
    }
    return this.#codec.decode(claimed.payload) as never
  }
}

function isDefinition(value: unknown): value is TaskDefinition {
  return value instanceof TaskDefinition
}

function resolveKind(task: TaskDefinition, retry: RetryPolicy, timeout: number | undefined): Kind {
  const { defaults } = task
  checkObject(defaults, 'tasks')
  checkDefaults(defaults, `task ${task.name}`)
  return {
    handler: task.handler,
    retry: defaults.retry === undefined ? retry : resolveRetry(defaults.retry, 'retry', retry),
    timeout: defaults.timeout === undefined ? timeout : parseDuration(defaults.timeout, 'timeout'),
    priority: defaults.priority ?? Priority.normal,
    tags: defaults.tags,
  }
}

/** What must be stored with a task; `undefined` for most. */
export function storedOptions(
  submit: ResolvedSubmit,
  tags: readonly string[] | undefined,
): string | undefined {
  const all = submit.tags ?? tags
  if (submit.retry === undefined && submit.timeout === undefined && all === undefined) return undefined
  const stored: StoredOptions = {}
  if (submit.retry !== undefined) stored.retry = submit.retry
  if (submit.timeout !== undefined) stored.timeout = submit.timeout
  if (all !== undefined) stored.tags = all
  return JSON.stringify(stored)
}

export function parseStored(options: string | undefined): StoredOptions {
  return options === undefined ? {} : (JSON.parse(options) as StoredOptions)
}
