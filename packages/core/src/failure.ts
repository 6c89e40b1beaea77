/**
 * What a handler threw, as text that can be stored, grouped and made into an error again.
 *
 * A handler may throw anything: `undefined`, a string, a frozen error, one whose cause is itself, one whose getters
 * throw. Whatever it is, {@link storeFailure} returns, and is short.
 */
import { createHash } from 'node:crypto'

/** An error as it is stored. */
export interface Failure {
  name: string
  message: string
  /** The `code` of the error, where it has one. */
  code?: string
  stack?: string
  cause?: Failure
}

/** What was thrown, or an error in its place where not even its class can be asked for, as with a revoked proxy. */
export function approachable(thrown: unknown): unknown {
  if (thrown === null || typeof thrown !== 'object') return thrown
  try {
    // As `instanceof` goes.
    for (let object: unknown = thrown; object !== null; object = Object.getPrototypeOf(object));
    return thrown
  } catch (cause) {
    return new Error(UNAPPROACHABLE, { cause })
  }
}

/** A stored error, made into one again; `cause` is likewise. */
export class StoredError extends Error {
  override readonly name: string
  readonly code: string | undefined

  constructor(failure: Failure) {
    super(
      failure.message,
      failure.cause === undefined ? undefined : { cause: new StoredError(failure.cause) },
    )
    this.name = failure.name
    this.code = failure.code
    if (failure.stack !== undefined) this.stack = failure.stack
  }
}

const MESSAGE_LIMIT = 2000
const STACK_LIMIT = 4000
const CAUSES = 5
const UNAPPROACHABLE = 'the handler threw what cannot be looked at'

export function storeFailure(error: unknown): Failure {
  return describe(approachable(error), CAUSES, new Set())
}

function describe(error: unknown, causes: number, seen: Set<unknown>): Failure {
  if (!(error instanceof Error)) return { name: 'Error', message: cut(textOf(error), MESSAGE_LIMIT) }
  seen.add(error)
  const failure: Failure = {
    name: cut(read(error, 'name') ?? 'Error', 200),
    message: cut(read(error, 'message') ?? '', MESSAGE_LIMIT),
  }
  const code = read(error, 'code')
  if (code !== undefined) failure.code = cut(code, 200)
  const stack = read(error, 'stack')
  if (stack !== undefined) failure.stack = cut(stack, STACK_LIMIT)
  const cause = readAny(error, 'cause')
  if (cause !== undefined && causes > 0 && !seen.has(cause))
    failure.cause = describe(approachable(cause), causes - 1, seen)
  return failure
}

/** A property as text; a getter that throws counts as absent. */
function read(error: Error, key: string): string | undefined {
  const value = readAny(error, key)
  return typeof value === 'string' || typeof value === 'number' ? String(value) : undefined
}

function readAny(error: Error, key: string): unknown {
  try {
    return (error as unknown as Record<string, unknown>)[key]
  } catch {
    return undefined
  }
}

function textOf(value: unknown): string {
  if (typeof value === 'string') return value
  if (value === undefined) return 'the handler threw undefined'
  try {
    const json = JSON.stringify(value) as string | undefined
    if (json !== undefined) return json
  } catch {
    // A cycle, a BigInt, or a toJSON that throws: its type is said instead.
  }
  try {
    return Object.prototype.toString.call(value)
  } catch {
    return UNAPPROACHABLE
  }
}

function cut(text: string, limit: number): string {
  return text.length > limit ? `${text.slice(0, limit - 1)}…` : text
}

/**
 * The same for errors of the same kind: 12 characters made from the name, the code and the message, with what
 * varies (numbers, ids in hex, quoted values) left out.
 */
export function fingerprint(failure: Failure): string {
  const message = failure.message
    .slice(0, 300)
    .replace(/"[^"]*"|'[^']*'|`[^`]*`/g, '"…"')
    .replace(/\b[0-9a-f]{8}[0-9a-f-]{4,}\b/gi, '#')
    .replace(/\d+/g, '#')
  return createHash('sha256')
    .update(`${failure.name}\n${failure.code ?? ''}\n${message}`)
    .digest('base64url')
    .slice(0, 12)
}
