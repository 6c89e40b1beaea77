/**
 * What a pool and one of its threads say to each other, and how errors get across.
 *
 * Messages are tuples of text, bytes and numbers: half the cost of objects with names. Payloads, results and
 * checkpoints travel as their codec made them, so with JSON the thread parses and writes, and the loop of the pool
 * never does. A codec of the user's cannot go along; for its values `v8.serialize` is the codec between the two.
 */
import { deserialize, serialize } from 'node:v8'
import type { MessagePort } from 'node:worker_threads'
import type { Codec } from './codec.js'
import {
  NeoTaskError,
  NonRetryableError,
  PayloadError,
  RetryLaterError,
  ValidationError,
  type ErrorCode,
} from './errors.js'
import { StoredError, storeFailure, type Failure } from './failure.js'
import type { Encoded, Parent, QueueRef } from './storage.js'
import type { AbortKind } from './task-context.js'

/** What a thread is born with. */
export interface ThreadData {
  readonly port: MessagePort
  /** Two Int32: see {@link CALLED} and {@link NEXT}. */
  readonly shared: SharedArrayBuffer
  readonly ref: QueueRef
  /** How values travel. */
  readonly codec: 'json' | 'v8'
  readonly maxPayload: number
}

/** Not 0 when a message waits that a handler which never awaits would not see. */
export const CALLED = 0
/** The ticket of the next attempt that the thread takes up. Other tickets were taken back. */
export const NEXT = 1
export const SHARED_BYTES = 8

export type RunMessage = readonly [
  ticket: number,
  /** Its URL. */
  file: string,
  id: string,
  kind: string,
  token: number,
  attempts: number,
  payload: Encoded,
  checkpoint: Encoded | undefined,
  parents: readonly Parent[] | undefined,
  timedOut: boolean | undefined,
]

export type ToThread =
  | readonly [type: 'run', attempts: readonly RunMessage[]]
  | readonly [type: 'abort', ticket: number, kind: AbortKind]
  /** A checkpoint was stored, or why not. */
  | readonly [type: 'saved', number: number, error: Thrown | undefined]
  | readonly [type: 'exit']

export type FromThread =
  /** The attempt was taken up, its file is loaded, and its handler is called now. Not told after an end that says so. */
  | readonly [type: 'started']
  | readonly [type: 'report', progress: Encoded | undefined, lines: readonly string[] | undefined]
  | readonly [type: 'checkpoint', number: number, state: Encoded]
  /** The ends. `goesOn`: the next attempt is taken up already. */
  | readonly [type: 'result', result: Encoded, goesOn: boolean]
  | readonly [type: 'failed', error: Thrown, goesOn: boolean]
  /** The file has no handler, or could not be loaded: the thread remembers that for ever, and is of no use any more. */
  | readonly [type: 'unloadable', error: Thrown]

/** Between the threads, for values of which only the user's codec knows how to store them. */
export const v8Codec: Codec = {
  id: 'v8',
  encode: (value) => serialize(value),
  decode: (encoded): unknown => deserialize(encoded as Uint8Array),
}

/** The memory of what {@link v8Codec} made, which may change its owner instead of being copied. */
export function transferOf(encoded: Encoded | undefined): ArrayBuffer[] {
  if (typeof encoded !== 'object' || !(encoded.buffer instanceof ArrayBuffer)) return []
  return encoded.byteLength === encoded.buffer.byteLength ? [encoded.buffer] : []
}

/** Classes of errors that mean something to the pool. */
type Meaning = 'NonRetryableError' | 'RetryLaterError' | 'PayloadError' | 'ValidationError' | 'NeoTaskError'

/** An error on its way to another thread. */
export interface Thrown {
  readonly failure: Failure
  readonly meaning: Meaning | undefined
  /** Of a RetryLaterError. */
  readonly delay: number | string | undefined
}

export function tellThrown(error: unknown): Thrown {
  const failure = storeFailure(error)
  const meaning = meaningOf(error, failure.name)
  if (meaning !== 'RetryLaterError') return { failure, meaning, delay: undefined }
  const { delay } = error as Partial<RetryLaterError>
  return { failure, meaning, delay: typeof delay === 'number' ? delay : String(delay) }
}

/** By the class; by the name where the handler's file has its own copy of NeoTask, or none. */
function meaningOf(error: unknown, name: string): Meaning | undefined {
  if (error instanceof NonRetryableError || name === 'NonRetryableError') return 'NonRetryableError'
  if (error instanceof RetryLaterError || name === 'RetryLaterError') return 'RetryLaterError'
  if (error instanceof PayloadError || name === 'PayloadError') return 'PayloadError'
  if (error instanceof ValidationError || name === 'ValidationError') return 'ValidationError'
  return error instanceof NeoTaskError ? 'NeoTaskError' : undefined
}

/** The error again, with its own name and the stack that it had. */
export function readThrown({ failure, meaning, delay }: Thrown): Error {
  const { message, name } = failure
  const options = failure.cause === undefined ? {} : { cause: new StoredError(failure.cause) }
  const code = failure.code as ErrorCode
  let error: Error
  if (meaning === 'NonRetryableError') error = new NonRetryableError(message, options)
  else if (meaning === 'RetryLaterError') error = new RetryLaterError(delay ?? '', message, options)
  else if (meaning === 'PayloadError') error = new PayloadError(code, message, options)
  else if (meaning === 'ValidationError') error = new ValidationError(code, message, options)
  else if (meaning === 'NeoTaskError') error = new NeoTaskError(code, message, options)
  else error = new StoredError(failure)
  if (error.name !== name) Object.defineProperty(error, 'name', { value: name, configurable: true })
  error.stack = failure.stack ?? `${name}: ${message}`
  return error
}
