/**
 * The kinds of task that a pool knows: what runs each, and which retry policy, timeout and tags hold for one task.
 *
 * A task carries only what was set for it; the rest comes from its definition, then from the pool, when it runs.
 * So a changed default also holds for tasks that wait already.
 */
import { existsSync } from 'node:fs'
import type { Codec } from './codec.js'
import { checkObject } from './checks.js'
import {
  checkDefaults,
  resolveHandler,
  TaskDefinition,
  type Handler,
  type HandlerFile,
} from './define-task.js'
import { parseDuration } from './duration.js'
import { NeoTaskError, optionError } from './errors.js'
import type { ResolvedSubmit } from './options.js'
import { resolveRetry, type RetryPolicy } from './retry-policy.js'
import type { Claimed } from './storage.js'
import { Priority } from './task.js'

interface Kind {
  readonly definition: TaskDefinition | undefined
  /** A file's runs in threads. */
  readonly handler: Handler<never> | URL | undefined
  readonly retry: RetryPolicy
  readonly timeout: number | undefined
  readonly priority: number
  readonly tags: readonly string[] | undefined
}

/** What one attempt runs by. */
export interface Rules {
  readonly handler: Handler<never> | URL
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
    executor: Handler<never> | HandlerFile | undefined,
    tasks: readonly TaskDefinition[],
    defaults: { retry: RetryPolicy; timeout: number | undefined; codec: Codec },
  ) {
    const { retry, timeout } = defaults
    this.#codec = defaults.codec
    const handler = executor === undefined ? undefined : resolveHandler(executor, 'executor')
    const given: unknown = tasks
    if (!Array.isArray(given)) throw optionError('tasks', 'an array of what defineTask returns', given)
    for (const task of given as readonly unknown[]) {
      if (!isDefinition(task)) throw optionError('tasks', 'what defineTask returns', task)
      if (this.#kinds.has(task.name)) throw optionError('tasks', 'each name once', task.name)
      this.#kinds.set(task.name, resolveKind(task, retry, timeout))
    }
    // A pool that knows nothing else may submit for the executors of others.
    if (executor !== undefined || this.#kinds.size === 0) {
      const priority = Priority.normal
      this.#kinds.set(EXECUTOR, { definition: undefined, handler, retry, timeout, priority, tags: undefined })
    }
  }

  /** The names of the kinds whose handlers are functions, which run here. */
  get servedHere(): string[] {
    return this.#namesWhere((handler) => typeof handler === 'function')
  }

  /** The names of the kinds whose handlers are files, which run in threads. */
  get servedInThreads(): string[] {
    return this.#namesWhere((handler) => handler instanceof URL)
  }

  /** Refuses a handler whose file does not exist. */
  checkFiles(): void {
    for (const [name, { handler }] of this.#kinds) {
      if (!(handler instanceof URL) || existsSync(handler)) continue
      const option = name === EXECUTOR ? 'executor' : `defineTask(${JSON.stringify(name)}).handler`
      throw optionError(option, 'a file that exists', handler.href)
    }
  }

  /** The kind, or the error that names what the pool lacks. */
  get(name: string): Kind {
    const kind = this.#kinds.get(name)
    if (kind !== undefined) return kind
    if (name === EXECUTOR)
      throw optionError('submit', 'a task definition first, for this pool has no executor', 'data')
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
    this.checkCodec(claimed)
    return this.#codec.decode(claimed.payload) as never
  }

  /** Refuses a payload that this pool cannot decode. */
  checkCodec(claimed: Claimed): void {
    if (claimed.codec !== this.#codec.id) {
      throw new NeoTaskError(
        'PAYLOAD_INVALID',
        `the payload was made by codec ${claimed.codec}, and this pool has ${this.#codec.id}`,
      )
    }
  }

  #namesWhere(matches: (handler: Kind['handler']) => boolean): string[] {
    return [...this.#kinds].filter(([, { handler }]) => matches(handler)).map(([name]) => name)
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
    definition: task,
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
