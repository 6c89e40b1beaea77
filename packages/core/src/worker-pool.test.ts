import { describe, expect, it } from 'vitest'
import { systemClock } from './clock.js'
import { jsonCodec } from './codec.js'
import type { Handler } from './define-task.js'
import { Kinds } from './kinds.js'
import { DEFAULT_RETRY } from './retry-policy.js'
import type { Claimed } from './storage.js'
import { TimeWheel } from './time-wheel.js'
import { WorkerPool } from './worker-pool.js'

type Ends = Map<unknown, (value: unknown) => void>

function claimed(id: string, token: number): Claimed {
  const payload = JSON.stringify(`${id}.${token}`)
  return {
    id,
    token,
    kind: '',
    payload,
    codec: 'json',
    priority: 2,
    attempts: 0,
    reclaims: 0,
    probation: false,
    waited: 0,
  }
}

/** A pool whose handlers end when the test says so, by the data that they were given. */
function setUp({ timeout, handler }: { timeout?: number; handler?: Handler<never> } = {}): {
  workers: WorkerPool
  ends: Ends
  told: string[]
} {
  const ends: Ends = new Map()
  const told: string[] = []
  const executor =
    handler ?? ((data: never): Promise<unknown> => new Promise((resolve) => ends.set(data, resolve)))
  const workers = new WorkerPool(2, {
    ref: { tenant: 'default', queue: 'default' },
    codec: jsonCodec,
    maxPayload: 1000,
    clock: systemClock,
    wheel: new TimeWheel(systemClock, () => {}),
    kinds: new Kinds(executor, [], { retry: DEFAULT_RETRY, timeout, codec: jsonCodec }),
    now: () => 0,
    report: () => {},
    checkpoint: async () => {},
    started: () => {},
    succeeded: ({ token }, value) => told.push(`${token} ended with ${String(value)}`),
    failed: ({ token, aborted }) => told.push(`${token} failed, ${aborted ?? 'not aborted'}`),
    returned: () => {},
    freed: () => {},
  })
  return { workers, ends, told }
}

describe('WorkerPool', () => {
  it('goes on counting an attempt whose task was lost and is claimed again here', async () => {
    const { workers, ends, told } = setUp()
    workers.run(claimed('a', 1), 'first', false, 0)
    workers.abortAll('lease-lost')
    workers.run(claimed('a', 2), 'second', false, 0)
    expect(workers.active).toBe(2)
    const idle = workers.idle()
    ends.get('a.2')?.('new')
    await Promise.resolve()
    expect(workers.active).toBe(1)
    ends.get('a.1')?.('old')
    await idle
    expect(workers.active).toBe(0)
    expect(told).toEqual(['2 ended with new', '1 ended with old'])
  })

  it('frees the slot of what was taken, listens no more, and leaves a newer attempt alone', async () => {
    const { workers, ends, told } = setUp()
    workers.run(claimed('a', 5), 's', false, 0)
    expect(workers.take('a', 4, 'cancelled')).toBe(false)
    expect(workers.take('a', 5, 'cancelled')).toBe(true)
    expect(workers.active).toBe(0)
    ends.get('a.5')?.('late')
    await Promise.resolve()
    await Promise.resolve()
    expect(told).toEqual([])
  })

  it('ends an attempt once, at its timeout', async () => {
    const { workers, ends, told } = setUp({ timeout: 5 })
    workers.run(claimed('a', 1), 's', false, 0)
    await workers.idle()
    ends.get('a.1')?.('late')
    await Promise.resolve()
    await Promise.resolve()
    expect(told).toEqual(['1 failed, timeout'])
  })

  it('listens to a promise once, whatever it says later', async () => {
    const { workers, told } = setUp({
      handler: (data: unknown) => {
        const [id] = String(data).split('.')
        if (id === 'mine') return new Promise((resolve) => setImmediate(() => resolve('mine')))
        return {
          then(resolve: (value: string) => void, reject: (error: Error) => void) {
            resolve('first')
            setTimeout(() => resolve('second'), 0)
            setTimeout(() => reject(new Error('third')), 0)
          },
        }
      },
    })
    workers.run(claimed('foreign', 1), 's', false, 0)
    await workers.idle()
    workers.run(claimed('mine', 2), 's', false, 0)
    await workers.idle()
    expect(told).toEqual(['1 ended with first', '2 ended with mine'])
  })
})
