/** A pool with handlers of both sorts has two sessions: what it does while it opens them. */
import { afterEach, describe, expect, it } from 'vitest'
import { defineTask } from './define-task.js'
import { memoryStorage } from './memory-storage.js'
import { TaskPool } from './task-pool.js'
import { FlakyStorage } from './testing/flaky-storage.js'
import { ManualClock } from './testing/manual-clock.js'

const pools: TaskPool<number>[] = []
const clock = new ManualClock()
afterEach(async () => {
  const closed = pools.splice(0).map((pool) => pool.close({ timeout: 0 }))
  await clock.advanceAsync(15_000)
  await Promise.all(closed)
})

/** A pool whose second session does not open before the test says so, and one task that waits for it. */
async function world(): Promise<{
  pool: TaskPool<number>
  begun: number[]
  letOpen: (error?: Error) => void
}> {
  const memory = memoryStorage({ clock })
  const storage = new FlakyStorage(memory, { clock })
  let letOpen!: (error?: Error) => void
  const opening = new Promise<void>((resolve, reject) => {
    letOpen = (error) => {
      if (error === undefined) resolve()
      else reject(error)
    }
  })
  opening.catch(() => {})
  let sessions = 0
  storage.intercept('session.open', async (forward) => {
    if (++sessions === 2) await opening
    await forward()
  })
  const producer = new TaskPool<number>({ storage: memory, clock, concurrency: 0 })
  pools.push(producer)
  await producer.submit(1)
  const begun: number[] = []
  // Never begun: it only has to be there.
  const inFile = defineTask({ name: 'in-a-file', handler: new URL(import.meta.url) })
  const pool = new TaskPool<number>({ storage, clock, executor: (n) => void begun.push(n), tasks: [inFile] })
  pools.push(pool)
  return { pool, begun, letOpen }
}

describe('while one session is open and the other is not', () => {
  it('nothing is begun', async () => {
    const { pool, begun, letOpen } = await world()
    const started = pool.start()
    await clock.advanceAsync(2000)
    expect(begun).toEqual([])
    expect((await pool.health()).session).toBeUndefined()
    letOpen()
    await started
    await clock.advanceAsync(100)
    expect(begun).toEqual([1])
  })

  it('a pause holds what would begin', async () => {
    const { pool, begun, letOpen } = await world()
    const started = pool.start()
    await clock.advanceAsync(100)
    await pool.pause({ local: true })
    letOpen()
    await started
    await clock.advanceAsync(2000)
    expect(begun).toEqual([])
    await pool.resume({ local: true })
    await clock.advanceAsync(100)
    expect(begun).toEqual([1])
  })

  it('close ends both, and nothing is begun', async () => {
    const { pool, begun, letOpen } = await world()
    const started = pool.start()
    await clock.advanceAsync(100)
    const closed = pool.close()
    letOpen()
    await started
    await clock.advanceAsync(2000)
    await closed
    expect(begun).toEqual([])
    expect(await pools[0]?.getNodes()).toEqual([])
    expect(await pools[0]?.counts()).toMatchObject({ pending: 1 })
  })

  it('one that fails takes the other along, and the next start begins anew', async () => {
    const { pool, begun, letOpen } = await world()
    const started = pool.start()
    letOpen(new Error('no more sessions'))
    await expect(started).rejects.toThrow('no more sessions')
    await clock.advanceAsync(2000)
    expect(begun).toEqual([])
    expect(await pools[0]?.getNodes()).toEqual([])
    await pool.start()
    await clock.advanceAsync(100)
    expect(begun).toEqual([1])
  })
})
