/** Waits that no message ends. */
import { describe, expect, it } from 'vitest'
import { jsonCodec } from './codec.js'
import { FutureManager, type Future } from './future-manager.js'
import { memoryStorage } from './memory-storage.js'
import type { Storage } from './storage.js'
import { ManualClock } from './testing/manual-clock.js'

const ref = { tenant: 'default', queue: 'default' }

function setUp(): { clock: ManualClock; storage: Storage; futures: FutureManager } {
  const clock = new ManualClock()
  const storage = memoryStorage({ clock })
  // No message gets through.
  storage.notices.subscribe = async () => async () => {}
  const futures = new FutureManager({ storage, ref, codec: jsonCodec, clock, callTimeout: 10_000 })
  return { clock, storage, futures }
}

const held = (id: string): Parameters<Storage['queue']['enqueue']>[1][number] => ({
  id,
  kind: '',
  payload: '1',
  codec: 'json',
  priority: 2,
  hold: true,
})

describe('open waits', () => {
  it('are all read again, however many there are', async () => {
    const { clock, storage, futures } = setUp()
    const count = 6000
    const ids = Array.from({ length: count }, (_, n) => `t${n}`)
    for (let n = 0; n < count; n += 500) await storage.queue.enqueue(ref, ids.slice(n, n + 500).map(held))
    const waits = ids.map((id) => futures.wait(id))
    for (const wait of waits) wait.catch(() => {})
    await clock.settle()
    await clock.settle()
    await clock.settle()
    await storage.queue.complete(ref, ids.at(-1) as string, '7', 'json')
    for (let second = 0; second < 4; second++) {
      await clock.advanceAsync(1000)
      await clock.settle()
      await clock.settle()
    }
    expect(await Promise.race([waits.at(-1), Promise.resolve('open')])).toBe(7)
    await futures.close()
  })

  it('of a task that is being submitted are not given up because the storage does not know it yet', async () => {
    const { clock, storage, futures } = setUp()
    const future = futures.expect('slow') as Future
    await clock.advanceAsync(3000)
    await storage.queue.enqueue(ref, [held('slow')])
    futures.stored(future)
    await clock.advanceAsync(1000)
    await storage.queue.complete(ref, 'slow', '7', 'json')
    await clock.advanceAsync(1100)
    expect(await future.promise).toBe(7)
    await futures.close()
  })

  it('of a task that is removed end', async () => {
    const { clock, storage, futures } = setUp()
    await storage.queue.enqueue(ref, [held('gone')])
    const wait = futures.wait('gone').catch((error: unknown) => error)
    await clock.advanceAsync(100)
    await storage.queue.remove(ref, ['gone'])
    await clock.advanceAsync(1100)
    expect(await wait).toMatchObject({ code: 'TASK_REMOVED' })
    await futures.close()
  })
})
