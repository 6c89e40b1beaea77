/** A bound on how long a call to the storage is waited for. */
import type { Clock } from './clock.js'
import { StorageUnavailableError } from './errors.js'

/**
 * Rejects `STORAGE_UNAVAILABLE`, `uncertain`, when the call has not settled after `ms`; what it does later is
 * ignored. The timer holds the process: somebody waits.
 */
export function withDeadline<T>(call: Promise<T>, ms: number, clock: Clock, what: string): Promise<T> {
  return new Promise((resolve, reject) => {
    const late = (): void =>
      reject(
        new StorageUnavailableError(
          'STORAGE_UNAVAILABLE',
          `the storage did not answer ${what} within ${ms} ms`,
          {
            retryable: true,
            uncertain: true,
          },
        ),
      )
    const timer = clock.after(ms, late, { hold: true })
    call.then(
      (value) => {
        timer.cancel()
        resolve(value)
      },
      (error: unknown) => {
        timer.cancel()
        // What the storage rejected with, passed on as it is.
        reject(error)
      },
    )
  })
}
