import { memoryStorage, TaskPool } from '@neotask/core'
import { mkdtemp, rm, stat, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterEach, beforeEach, describe, expect, it } from 'vitest'
import { currentQueue, defaultStorage, filesOf, freshQueue, withoutPassword } from './place.js'

describe('defaultStorage', () => {
  let cache: string
  const { XDG_CACHE_HOME } = process.env

  beforeEach(async () => {
    cache = await mkdtemp(join(tmpdir(), 'neotask-demo-'))
  })
  afterEach(async () => {
    if (XDG_CACHE_HOME === undefined) delete process.env['XDG_CACHE_HOME']
    else process.env['XDG_CACHE_HOME'] = XDG_CACHE_HOME
    await rm(cache, { recursive: true })
  })

  it.skipIf(process.platform !== 'linux')('is one file in the cache for each folder', async () => {
    process.env['XDG_CACHE_HOME'] = cache
    const [a, again, other] = await Promise.all(
      ['/x/my folder', '/x/my folder', '/y/my folder'].map(defaultStorage),
    )
    expect(a).toMatch(new RegExp(`^sqlite:${cache}/neotask-demo/my_folder-[0-9a-f]{16}\\.db$`))
    expect(again).toBe(a)
    expect(other).not.toBe(a)
    expect((await stat(join(cache, 'neotask-demo'))).isDirectory()).toBe(true)
  })

  it.skipIf(process.platform !== 'linux')(
    'is in the temporary folder when there can be no cache',
    async () => {
      await writeFile(join(cache, 'file'), '')
      process.env['XDG_CACHE_HOME'] = join(cache, 'file')
      expect(await defaultStorage('/')).toMatch(
        new RegExp(`^sqlite:${tmpdir()}/neotask-demo-\\d+/root-[0-9a-f]{16}\\.db$`),
      )
    },
  )
})

describe('filesOf', () => {
  it('names the database and what SQLite puts beside it', () => {
    expect(filesOf('memory:')).toEqual([])
    expect(filesOf('redis://localhost')).toEqual([])
    expect(filesOf('sqlite:/a.db')).toEqual(['/a.db', '/a.db-wal', '/a.db-shm', '/a.db-journal'])
  })
})

describe('withoutPassword', () => {
  it.each([
    ['memory:', 'memory:'],
    ['sqlite:/a:b@c.db', 'sqlite:/a:b@c.db'],
    ['redis://localhost:6379', 'redis://localhost:6379'],
    ['redis://ada:secret@localhost/2', 'redis://ada:***@localhost/2'],
    ['rediss://:secret@localhost', 'rediss://:***@localhost'],
  ])('shows %s as %s', (url, shown) => expect(withoutPassword(url)).toBe(shown))
})

describe('freshQueue', () => {
  it('gives an empty queue and leaves nothing in the old one, of this folder only', async () => {
    const storage = memoryStorage()
    await storage.open()
    const queue = await currentQueue(storage, '/a')
    const other = await currentQueue(storage, '/b')
    expect(await currentQueue(storage, '/a')).toBe(queue)
    for (const each of [queue, other]) {
      const pool = new TaskPool({
        storage,
        queue: each,
        retry: false,
        executor: (n: number) => {
          if (n % 2 === 1) throw new Error('odd')
        },
      })
      await pool.submitBatch(Array.from({ length: 500 }, (_, n) => ({ data: n, id: `t${n}` })))
      await pool.drain()
      await pool.submit(0, { delay: '1h' })
      await pool.submit(0, { hold: true })
      await pool.close()
    }
    const all = (name: string) => storage.queue.counts({ tenant: 'default', queue: name })
    expect(await all(queue)).toMatchObject({ success: 250, failed: 250, scheduled: 1, blocked: 1 })
    const fresh = await freshQueue(storage, '/a')
    expect(fresh).not.toBe(queue)
    expect(await currentQueue(storage, '/a')).toBe(fresh)
    const none = { pending: 0, scheduled: 0, blocked: 0, running: 0, success: 0, failed: 0, cancelled: 0 }
    expect(await all(queue)).toMatchObject(none)
    expect(await all(fresh)).toMatchObject(none)
    expect(await all(other)).toMatchObject({ success: 250, failed: 250 })
    await storage.close()
  })
})
