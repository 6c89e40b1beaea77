/** Waits that no message ends, and what messages say besides ids. */
import { describe, expect, it } from 'vitest'
import { jsonCodec } from './codec.js'
import { FutureManager, type Future } from './future-manager.js'
import { memoryStorage } from './memory-storage.js'
import type { Storage } from './storage.js'
import { TaskIds } from './task.js'
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

it('what ended before the subscription was there is asked for at once', async () => {
  const { clock, storage, futures } = setUp()
  let subscribed = (): void => {}
  storage.notices.subscribe = () =>
    new Promise((resolve) => {
      subscribed = () => resolve(async () => {})
    })
  await storage.queue.enqueue(ref, [held('early')])
  const wait = futures.wait('early')
  await clock.settle()
  await storage.queue.complete(ref, 'early', '7', 'json')
  subscribed()
  await clock.settle()
  expect(await Promise.race([wait, Promise.resolve('nothing yet')])).toBe(7)
  await futures.close()
})

describe('a message that brings ends along', () => {
  it('ends the waits for generated ids without a question, and has chosen ones asked for', async () => {
    const { clock, storage, futures } = setUp()
    let hear = (_message: string): void => {}
    storage.notices.subscribe = async (_channel, listener) => {
      hear = listener
      return async () => {}
    }
    storage.notices.endsIn = (message) => {
      const [ids = '', results = ''] = message.split('\n')
      const told = results.split(' ')
      return ids.split(' ').map((id, index) => {
        const result = told[index] as string
        return { id, state: 'success', result, resultCodec: 'json', attempts: 1, duration: undefined }
      })
    }
    const generated = new TaskIds(1).next(1)
    await storage.queue.enqueue(ref, [held(generated), held('chosen')])
    const waits = [futures.wait(generated), futures.wait('chosen')]
    await clock.settle()
    const asked: string[] = []
    const watch = storage.queue.watch.bind(storage.queue)
    storage.queue.watch = (queue, ids, options) => {
      asked.push(...ids)
      return watch(queue, ids, options)
    }
    // The chosen id is that of another task by now.
    await storage.queue.complete(ref, 'chosen', '8', 'json')
    hear(`${generated} chosen\n5 6`)
    await clock.settle()
    await clock.settle()
    expect(asked).toEqual(['chosen'])
    expect(await Promise.all(waits)).toEqual([5, 8])
    await futures.close()
  })
})
