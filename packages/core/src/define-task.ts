/**
 * The definition of a kind of task: its name, its handler and its defaults, typed end to end.
 *
 * A definition is data. It may be shared by a process that submits and another that runs it; only the second
 * one needs the handler.
 */
import { fileURLToPath } from 'node:url'
import type { StandardSchemaV1 } from '@standard-schema/spec'
import { checkKeys, checkMethods, checkName, checkObject, checkPriority, checkTags } from './checks.js'
import { parseDuration, type Duration } from './duration.js'
import { optionError, ValidationError } from './errors.js'
import { resolveRetry, type RetrySetting } from './retry-policy.js'
import type { TaskContext } from './task-context.js'

/** What runs a task. May be synchronous; what it returns (or resolves with) is the task's result. */
export type Handler<Data = unknown, Result = unknown> = (
  data: Data,
  ctx: TaskContext,
) => Result | Promise<Result>

/**
 * A handler in a file, which runs in worker threads: an absolute `file:` URL, as `new URL('./hash.js',
 * import.meta.url)` makes it. The file's default export is the handler, or else its export named `handler`.
 */
export type HandlerFile = URL | string

/** What may be set for a kind of task, and again for each task. */
export interface TaskDefaults {
  /** Retries after the first attempt; a number is short for `{ limit }`, `false` for no retry. */
  retry?: RetrySetting | undefined
  /** The longest time for one attempt. Default: none. Example: `'30s'`. */
  timeout?: Duration | undefined
  /** 0 to 1 000, smaller first. Default: `Priority.normal` (2). */
  priority?: number | undefined
  /** Words to find it by; at most 20 of at most 64 characters. */
  tags?: readonly string[] | undefined
}

export interface TaskSpec<Input, Data, Result> extends TaskDefaults {
  /** 1 to 64 characters of `A-Z a-z 0-9 . _ : -`. Stored with each task: do not rename what may be waiting. */
  name: string
  /**
   * Validates the data at `submit`: any library that speaks Standard Schema (zod, valibot, arktype …). What it
   * returns is what is stored, so defaults are filled in once.
   */
  input?: StandardSchemaV1<Input, Data> | undefined
  /** A function, or the URL of a file that exports one. Left out in a process that only submits. */
  handler?: Handler<Data, Result> | HandlerFile | undefined
}

/** Made by {@link defineTask}. */
export class TaskDefinition<Input = never, Result = unknown> {
  readonly name: string
  readonly defaults: TaskDefaults
  readonly handler: Handler<never, Result> | URL | undefined
  // Not by `Input`: a pool holds definitions of any input in one list.
  readonly #schema: StandardSchemaV1 | undefined

  constructor(spec: TaskSpec<Input, never, Result>) {
    checkObject(spec, 'defineTask(spec)')
    checkKeys(spec, SPEC_KEYS, 'defineTask.')
    checkName(spec.name, 'defineTask.name')
    const where = `defineTask(${JSON.stringify(spec.name)})`
    if (spec.input !== undefined) {
      const schema = spec.input as Partial<StandardSchemaV1>
      checkMethods(
        schema['~standard'],
        `${where}.input`,
        ['validate'],
        'a Standard Schema (zod, valibot, arktype …)',
      )
    }
    checkDefaults(spec, where)
    this.name = spec.name
    this.handler = spec.handler === undefined ? undefined : resolveHandler(spec.handler, `${where}.handler`)
    this.#schema = spec.input
    this.defaults = { retry: spec.retry, timeout: spec.timeout, priority: spec.priority, tags: spec.tags }
  }

  /** The data as it is to be stored. Rejects `VALIDATION_FAILED`, naming each field that does not fit. */
  parse(data: Input): unknown {
    if (this.#schema === undefined) return data
    const outcome = this.#schema['~standard'].validate(data)
    return outcome instanceof Promise
      ? outcome.then((settled) => this.#accept(settled))
      : this.#accept(outcome)
  }

  #accept(outcome: StandardSchemaV1.Result<unknown>): unknown {
    if (outcome.issues === undefined) return outcome.value
    const found = outcome.issues.slice(0, 5).map((issue) => {
      const path = (issue.path ?? [])
        .map((part) => String(typeof part === 'object' ? part.key : part))
        .join('.')
      return path === '' ? issue.message : `${path}: ${issue.message}`
    })
    const more =
      outcome.issues.length > found.length ? ` and ${outcome.issues.length - found.length} more` : ''
    throw new ValidationError('VALIDATION_FAILED', `task ${this.name}: ${found.join('; ')}${more}`)
  }
}

const SPEC_KEYS = ['name', 'input', 'handler', 'retry', 'timeout', 'priority', 'tags']

/** The function, or the file as a URL. */
export function resolveHandler<H extends Handler<never>>(handler: H | HandlerFile, option: string): H | URL {
  if (typeof handler === 'function') return handler
  try {
    const url = typeof handler === 'string' && handler.startsWith('file://') ? new URL(handler) : handler
    if (url instanceof URL && fileURLToPath(url) !== '') return url
  } catch {
    // No URL after all, or not that of a file: said below.
  }
  const given: unknown = handler
  throw optionError(
    option,
    "a function, or the URL of a file ('file:///…') whose default export is one",
    given instanceof URL ? given.href : given,
  )
}

/** Checks what may be set for a kind and for each task; each error names the option below `where`. */
export function checkDefaults(defaults: TaskDefaults, where: string): void {
  if (defaults.retry !== undefined) resolveRetry(defaults.retry, `${where}.retry`)
  if (defaults.timeout !== undefined) parseDuration(defaults.timeout, `${where}.timeout`, { min: 1 })
  if (defaults.priority !== undefined) checkPriority(defaults.priority, `${where}.priority`)
  if (defaults.tags !== undefined) checkTags(defaults.tags, `${where}.tags`)
}

/**
 * Defines a kind of task.
 *
 * @example
 * const sendMail = defineTask({ name: 'send-mail', handler: async (mail: Mail, ctx) => smtp.send(mail) })
 * const pool = new TaskPool({ tasks: [sendMail] })
 * const id = await pool.submit(sendMail, mail)
 */
export function defineTask<Data, Result, Input = Data>(
  spec: TaskSpec<Input, Data, Result>,
): TaskDefinition<Input, Awaited<Result>> {
  // The class holds handlers of any data; only `submit` writes data, and it is typed by `Input`.
  return new TaskDefinition(spec as unknown as TaskSpec<Input, never, Awaited<Result>>)
}
