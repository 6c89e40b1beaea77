/**
 * When a failed task runs again: validation of the `retry` option, and the pause before each retry.
 *
 * Pure: the pause depends on the policy, the number of the retry and a random number, and on nothing else.
 */
import { checkKeys, oneOf } from './checks.js'
import { type Duration, formatDuration, parseDuration } from './duration.js'
import { optionError } from './errors.js'

export interface RetryOptions {
  /** Retries after the first attempt. 0: none. Default: 3. */
  limit?: number | undefined
  /** Before the first retry. Default: `'1s'`. */
  delay?: Duration | undefined
  /**
   * How the pause grows: doubled with each retry, by `delay` with each, or not at all. Default: `'exponential'`.
   */
  backoff?: 'exponential' | 'linear' | 'fixed' | undefined
  /** The pause grows no longer than this. Default: `'5m'`, or `delay` when that is longer. */
  maxDelay?: Duration | undefined
  /**
   * `'full'`: anything from 0 to the pause, so that tasks that failed together do not come back together.
   * Default: `'full'`.
   */
  jitter?: 'full' | 'none' | undefined
}

/** What `retry` may be: options, `5` for `{ limit: 5 }`, `false` for no retries. */
export type RetrySetting = RetryOptions | number | false

/** A checked {@link RetryOptions}; times in ms. */
export interface RetryPolicy {
  readonly limit: number
  readonly delay: number
  readonly backoff: 'exponential' | 'linear' | 'fixed'
  readonly maxDelay: number
  readonly jitter: 'full' | 'none'
}

/**
 * Exponential with full jitter, which has the least total work and contention of the usual ways (Marc Brooker,
 * "Exponential backoff and jitter", https://aws.amazon.com/blogs/architecture/exponential-backoff-and-jitter/).
 */
export const DEFAULT_RETRY: RetryPolicy = {
  limit: 3,
  delay: 1000,
  backoff: 'exponential',
  maxDelay: 300_000,
  jitter: 'full',
}

const KEYS = ['limit', 'delay', 'backoff', 'maxDelay', 'jitter']
const BACKOFFS = ['exponential', 'linear', 'fixed'] as const
const JITTERS = ['full', 'none'] as const
const MAX_LIMIT = 1_000_000

/**
 * @param options what the user gave: a {@link RetrySetting}, or `undefined` for the base
 * @param option its name, for errors
 * @param base gives what `options` leaves out
 * @throws ValidationError `OPTION_INVALID`
 */
export function resolveRetry(
  options: unknown,
  option: string,
  base: RetryPolicy = DEFAULT_RETRY,
): RetryPolicy {
  if (options === undefined) return base
  if (options === false) return { ...base, limit: 0 }
  if (typeof options === 'number') return { ...base, limit: checkLimit(options, option) }
  if (typeof options !== 'object' || options === null || Array.isArray(options)) {
    throw optionError(option, 'an object of retry options, a number of retries, or false', options)
  }
  checkKeys(options, KEYS, `${option}.`)
  const { limit, delay, backoff, maxDelay, jitter } = options as Record<keyof RetryOptions, unknown>
  const first = delay === undefined ? base.delay : parseDuration(delay, `${option}.delay`)
  let longest = Math.max(base.maxDelay, first)
  if (maxDelay !== undefined) {
    longest = parseDuration(maxDelay, `${option}.maxDelay`)
    if (longest < first) {
      throw optionError(
        `${option}.maxDelay`,
        `at least ${option}.delay, which is ${formatDuration(first)}`,
        maxDelay,
      )
    }
  }
  return {
    limit: limit === undefined ? base.limit : checkLimit(limit, `${option}.limit`),
    delay: first,
    backoff: backoff === undefined ? base.backoff : oneOf(backoff, `${option}.backoff`, BACKOFFS),
    maxDelay: longest,
    jitter: jitter === undefined ? base.jitter : oneOf(jitter, `${option}.jitter`, JITTERS),
  }
}

/**
 * @param attempt which retry it is, 1 for the first
 * @param random from 0 to 1
 * @returns whole ms to wait before it
 */
export function retryDelay(policy: RetryPolicy, attempt: number, random: () => number = Math.random): number {
  const { delay, maxDelay } = policy
  if (delay === 0) return 0
  let pause = delay
  // A power that is too large for a number is Infinity, and the minimum brings it back.
  if (policy.backoff === 'exponential') pause = delay * 2 ** (attempt - 1)
  else if (policy.backoff === 'linear') pause = delay * attempt
  pause = Math.min(pause, maxDelay)
  return Math.round(policy.jitter === 'full' ? pause * random() : pause)
}

function checkLimit(limit: unknown, option: string): number {
  if (typeof limit === 'number' && Number.isInteger(limit) && limit >= 0 && limit <= MAX_LIMIT) return limit
  throw optionError(option, `an integer from 0 to ${MAX_LIMIT}`, limit)
}
