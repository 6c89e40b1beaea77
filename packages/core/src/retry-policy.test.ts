import fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import { ValidationError } from './errors.js'
import { DEFAULT_RETRY, resolveRetry, retryDelay, type RetryPolicy } from './retry-policy.js'

describe('resolveRetry', () => {
  it('fills in the defaults', () => {
    expect(resolveRetry(undefined, 'retry')).toEqual(DEFAULT_RETRY)
    expect(resolveRetry({}, 'retry')).toEqual({
      limit: 3,
      delay: 1000,
      backoff: 'exponential',
      maxDelay: 300_000,
      jitter: 'full',
    })
  })

  it('reads each option', () => {
    expect(
      resolveRetry({ limit: 5, delay: '2s', backoff: 'linear', maxDelay: '1m', jitter: 'none' }, 'retry'),
    ).toEqual({ limit: 5, delay: 2000, backoff: 'linear', maxDelay: 60_000, jitter: 'none' })
  })

  it('takes what is left out, or undefined, from the base', () => {
    const base: RetryPolicy = { limit: 7, delay: 10, backoff: 'fixed', maxDelay: 20, jitter: 'none' }
    expect(resolveRetry({ limit: 1, delay: undefined }, 'retry', base)).toEqual({ ...base, limit: 1 })
    expect(resolveRetry(undefined, 'retry', base)).toEqual(base)
    expect(resolveRetry(2, 'retry', base)).toEqual({ ...base, limit: 2 })
  })

  it('takes a number for the limit and false for none', () => {
    expect(resolveRetry(5, 'retry')).toEqual({ ...DEFAULT_RETRY, limit: 5 })
    expect(resolveRetry(false, 'retry')).toEqual({ ...DEFAULT_RETRY, limit: 0 })
  })

  it('lets a long delay be longer than the default longest', () => {
    expect(resolveRetry({ delay: '10m' }, 'retry')).toMatchObject({ delay: 600_000, maxDelay: 600_000 })
  })

  it.each<[unknown, string]>([
    [{ limit: -1 }, 'retry.limit: expected an integer from 0 to'],
    [{ limit: 1.5 }, 'retry.limit: '],
    [{ limit: Infinity }, 'retry.limit: '],
    [{ limit: '3' }, 'retry.limit: '],
    [{ delay: -1 }, 'retry.delay: expected a duration'],
    [{ delay: 'soon' }, 'retry.delay: '],
    [{ maxDelay: 'x' }, 'retry.maxDelay: expected a duration'],
    [{ delay: '1m', maxDelay: '1s' }, 'retry.maxDelay: expected at least retry.delay, which is 1m, got "1s"'],
    [{ backoff: 'expo' }, `retry.backoff: expected 'exponential' or 'linear' or 'fixed', got "expo"`],
    [{ jitter: true }, `retry.jitter: expected 'full' or 'none', got true`],
    [
      { limits: 3 },
      'retry.limits: expected no such option, did you mean limit? (there are limit, delay, backoff, maxDelay, jitter)',
    ],
    [-1, 'retry: expected an integer from 0 to'],
    [NaN, 'retry: '],
    [true, 'retry: expected an object of retry options, a number of retries, or false, got true'],
    [null, 'retry: '],
    ['3', 'retry: '],
    [[], 'retry: '],
  ])('refuses %o', (options, message) => {
    expect(() => resolveRetry(options, 'retry')).toThrow(ValidationError)
    expect(() => resolveRetry(options, 'retry')).toThrow(message)
  })
})

describe('retryDelay', () => {
  const policy = (change: Partial<RetryPolicy>): RetryPolicy => ({
    ...DEFAULT_RETRY,
    jitter: 'none',
    ...change,
  })
  const first = (count: number, of: RetryPolicy): number[] =>
    Array.from({ length: count }, (_, index) => retryDelay(of, index + 1))

  it('grows as the policy says, up to the longest', () => {
    expect(first(5, policy({ maxDelay: 10_000 }))).toEqual([1000, 2000, 4000, 8000, 10_000])
    expect(first(4, policy({ backoff: 'linear', maxDelay: 3500 }))).toEqual([1000, 2000, 3000, 3500])
    expect(first(3, policy({ backoff: 'fixed' }))).toEqual([1000, 1000, 1000])
  })

  it('spreads over all of the pause with full jitter', () => {
    const jittered = policy({ jitter: 'full' })
    expect([0, 0.25, 1].map((random) => retryDelay(jittered, 3, () => random))).toEqual([0, 1000, 4000])
  })

  it('is whole ms from 0 to the longest, for any attempt', () => {
    fc.assert(
      fc.property(
        fc.constantFrom('exponential' as const, 'linear' as const, 'fixed' as const),
        fc.constantFrom('full' as const, 'none' as const),
        fc.oneof(fc.constant(0), fc.double({ min: 0, max: 1e6, noNaN: true })),
        fc.oneof(fc.integer({ min: 1, max: 50 }), fc.integer({ min: 1, max: Number.MAX_SAFE_INTEGER })),
        (backoff, jitter, delay, attempt) => {
          const pause = retryDelay(policy({ backoff, jitter, delay, maxDelay: 2e6 }), attempt)
          expect(Number.isInteger(pause) && pause >= 0 && pause <= 2e6).toBe(true)
        },
      ),
    )
  })
})
