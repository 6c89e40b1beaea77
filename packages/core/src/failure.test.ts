/** Whatever a handler throws can be stored, read again and grouped. */
import { describe, expect, it } from 'vitest'
import { fingerprint, StoredError, storeFailure } from './failure.js'

describe('storeFailure', () => {
  it('takes anything that can be thrown', () => {
    const circular: Record<string, unknown> = {}
    circular['self'] = circular
    const selfCaused = new Error('own cause')
    selfCaused.cause = selfCaused
    const hostile = Object.defineProperty(new Error('hidden'), 'message', {
      get: () => {
        throw new Error('no')
      },
    })
    const revoked = Proxy.revocable({}, {})
    revoked.revoke()
    const throwing = new Proxy(
      {},
      {
        get: () => {
          throw new Error('no')
        },
      },
    )
    const thrown = [
      undefined,
      null,
      'text',
      7n,
      Symbol('s'),
      circular,
      selfCaused,
      hostile,
      revoked.proxy,
      throwing,
      new Error('caused', { cause: revoked.proxy }),
      Object.freeze(new Error('f')),
    ]
    const messages = thrown.map((error) => {
      const failure = storeFailure(error)
      expect(JSON.parse(JSON.stringify(failure))).toEqual(failure)
      return failure.message
    })
    expect(messages.slice(0, 3)).toEqual(['the handler threw undefined', 'null', 'text'])
    expect(messages.at(-1)).toBe('f')
  })

  it('keeps name, code and causes, bounded in length and depth', () => {
    let error: Error = new Error('deepest')
    for (let depth = 0; depth < 10; depth++)
      error = new TypeError(`${depth}${'x'.repeat(5000)}`, { cause: error })
    ;(error as NodeJS.ErrnoException).code = 'EWHY'
    const failure = storeFailure(error)
    expect(failure).toMatchObject({ name: 'TypeError', code: 'EWHY' })
    expect(JSON.stringify(failure).length).toBeLessThan(6 * 7000)
    const stored = new StoredError(failure)
    expect(stored).toMatchObject({ name: 'TypeError', code: 'EWHY', cause: { name: 'TypeError' } })
    let causes = 0
    for (let at: unknown = stored.cause; at !== undefined; at = (at as Error).cause) causes++
    expect(causes).toBe(5)
  })
})

describe('fingerprint', () => {
  const of = (message: string, name = 'Error'): string => fingerprint({ name, message })

  it('is the same for errors that differ in ids, numbers and quoted values only', () => {
    expect(of('user 17 of "a" not found')).toBe(of('user 4 of "bcd" not found'))
    expect(of('no 6ba7b810-9dad-11d1-80b4-00c04fd430c8')).toBe(of('no 123e4567-e89b-12d3-a456-426614174000'))
    expect(of('timed out')).not.toBe(of('refused'))
    expect(of('timed out')).not.toBe(of('timed out', 'TypeError'))
  })
})
