/** What of an error and of bytes gets from one thread to another. */
import { describe, expect, it } from 'vitest'
import { NeoTaskError, NonRetryableError, PayloadError, RetryLaterError } from './errors.js'
import { storeFailure } from './failure.js'
import { readThrown, tellThrown, transferOf, v8Codec } from './thread-protocol.js'

const across = (error: unknown): Error => readThrown(structuredClone(tellThrown(error)))

describe('an error that got across', () => {
  it.each([
    new RangeError('far', { cause: new Error('near') }),
    Object.assign(new Error('no file'), { code: 'ENOENT' }),
    new NonRetryableError('never', { cause: new TypeError('why') }),
    new RetryLaterError('5s', 'later'),
    new PayloadError('PAYLOAD_TOO_LARGE', 'large'),
    new NeoTaskError('LEASE_LOST', 'gone'),
    'a word',
    undefined,
  ])('is stored as it would have been: %s', (error) => {
    const { stack, ...stored } = storeFailure(error)
    expect(storeFailure(across(error))).toEqual({ ...stored, stack: stack ?? `Error: ${stored.message}` })
  })

  it('is of the class that the pool looks for', () => {
    class Mine extends NonRetryableError {
      override readonly name = 'Mine' as 'NonRetryableError'
    }
    expect(across(new Mine('x'))).toBeInstanceOf(NonRetryableError)
    expect(across(new Mine('x')).name).toBe('Mine')
    expect(across(new PayloadError('PAYLOAD_INVALID', 'x'))).toMatchObject({ code: 'PAYLOAD_INVALID' })
    expect(across(new PayloadError('PAYLOAD_INVALID', 'x'))).toBeInstanceOf(PayloadError)
    expect(across(new RetryLaterError(250))).toMatchObject({ delay: 250 })
  })

  it('is known by its name in a file that has no copy of these classes', () => {
    const named = (name: string, fields = {}): Error => Object.assign(new Error('x'), { name, ...fields })
    expect(across(named('NonRetryableError'))).toBeInstanceOf(NonRetryableError)
    expect(across(named('RetryLaterError', { delay: '2s' }))).toMatchObject({ delay: '2s' })
  })
})

describe('bytes for another thread', () => {
  it('change their owner when their memory is all theirs', () => {
    const encoded = v8Codec.encode({ some: new Uint8Array(1000) }) as Uint8Array
    const [memory] = transferOf(encoded)
    const moved = structuredClone(encoded, { transfer: [memory as ArrayBuffer] })
    expect(encoded.byteLength).toBe(0)
    expect(v8Codec.decode(moved)).toEqual({ some: new Uint8Array(1000) })
  })

  it('are copied when others share it', () => {
    expect(transferOf(new Uint8Array(1000).subarray(10))).toEqual([])
    expect(transferOf('text')).toEqual([])
    expect(transferOf(undefined)).toEqual([])
  })
})
