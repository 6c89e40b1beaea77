/**
 * Debounce as a user relies on it: of submits that follow each other closely the last one runs, and none is lost, on each
 * storage, and with several processes of which one is killed.
 */
import { defineTask, TaskPool, type Storage, type TaskPoolOptions } from '@neotask/core'
import { sqliteStorage } from '@neotask/storage-sqlite'
import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { createInterface } from 'node:readline'
import { afterEach, beforeEach, describe, expect, it } from 'vitest'
import type { Save } from './debounce-worker.js'
import { gate, STORAGES, until } from './storages.js'

const pools: { close(options?: { timeout?: number }): Promise<unknown> }[] = []

function poolOf<Data, Result>(options: TaskPoolOptions<Data, Result>): TaskPool<Data, Result> {
  const pool = new TaskPool<Data, Result>(options)
  pools.push(pool)
  return pool
}

const closeAll = async (): Promise<void> => {
  await Promise.all(pools.splice(0).map((pool) => pool.close({ timeout: 0 })))
}

describe.each(STORAGES)('on $name', ({ open }) => {
  let storage: Storage
  let dispose: () => Promise<void>

  beforeEach(async () => {
    ;({ storage, dispose } = await open())
  })
  afterEach(async () => {
    await closeAll()
    await dispose()
  })

  it('runs the last of several submits, once, and each of them names that task', async () => {
    const seen: number[] = []
    const pool = poolOf({ storage, executor: (n: number) => void seen.push(n) })
    await pool.start()
    const ids: string[] = []
    for (let n = 1; n <= 5; n++) ids.push(await pool.submit(n, { debounce: { key: 'save', wait: 60 } }))
    expect(new Set(ids).size).toBe(1)
    await pool.waitForResult(ids[0]!)
    expect(seen).toEqual([5])
    expect(await pool.getStats()).toMatchObject({ submitted: 1, completed: 1 })
  })

  it('begins anew after the run, again and again', async () => {
    const seen: number[] = []
    const pool = poolOf({ storage, executor: (n: number) => void seen.push(n) })
    const ids = new Set<string>()
    for (let n = 1; n <= 3; n++) {
      await pool.submit(-n, { debounce: { key: 'save', wait: 20 } })
      const id = await pool.submit(n, { debounce: { key: 'save', wait: 20 } })
      await pool.waitForResult(id)
      ids.add(id)
    }
    expect(seen).toEqual([1, 2, 3])
    expect(ids.size).toBe(3)
  })

  it('loses nothing that is submitted while the task runs', async () => {
    const hold = gate()
    const seen: string[] = []
    const pool = poolOf({
      storage,
      executor: async (text: string) => {
        seen.push(text)
        if (text === 'first') await hold.passed
      },
    })
    const first = await pool.submit('first', { debounce: { key: 'save', wait: 0 } })
    await until('it runs', () => seen.length === 1)
    const second = await pool.submit('second', { debounce: { key: 'save', wait: 1 } })
    expect(second).not.toBe(first)
    await pool.waitForResult(second)
    hold.open()
    await pool.waitForResult(first)
    expect(seen).toEqual(['first', 'second'])
  })

  it('runs now and then while submits never pause, with maxWait', async () => {
    const seen: number[] = []
    const pool = poolOf({ storage, executor: (n: number) => void seen.push(n) })
    let n = 0
    await until('it has run twice', async () => {
      await pool.submit(++n, { debounce: { key: 'bounded', wait: 40, maxWait: 40 } })
      await pool.submit(-n, { debounce: { key: 'unbounded', wait: 1000 } })
      return seen.length >= 2
    })
    expect(seen.every((ran) => ran > 0)).toBe(true)
  })

  it('lets the newest data take the place of an attempt that failed and waits for its retry', async () => {
    const seen: string[] = []
    const pool = poolOf({
      storage,
      retry: { limit: 1, delay: '1h', jitter: 'none' },
      executor: (text: string, ctx) => {
        seen.push(`${text} ${ctx.attempt}`)
        if (text === 'old') throw new Error('not now')
      },
    })
    const id = await pool.submit('old', { debounce: { key: 'save', wait: 0 } })
    await until('it waits for its retry', async () => (await pool.getTask(id))?.attempts === 1)
    expect(await pool.submit('new', { debounce: { key: 'save', wait: 1 } })).toBe(id)
    await pool.waitForResult(id)
    expect(seen).toEqual(['old 1', 'new 1'])
  })

  it('gives everybody who runs it the result of the one run', async () => {
    const pool = poolOf({ storage, executor: (n: number) => n * 2 })
    const runs = [1, 2, 3].map((n) => pool.run(n, { debounce: { key: 'save', wait: 30 } }))
    expect(await Promise.all(runs)).toEqual([6, 6, 6])
  })

  it('keeps the keys of two definitions apart', async () => {
    const seen: string[] = []
    const a = defineTask({ name: 'a', handler: (text: string) => void seen.push(`a ${text}`) })
    const b = defineTask({ name: 'b', handler: (text: string) => void seen.push(`b ${text}`) })
    const pool = poolOf({ storage, tasks: [a, b] })
    const debounce = { key: 'doc-1', wait: 10 }
    await pool.waitAll([await pool.submit(a, 'x', { debounce }), await pool.submit(b, 'y', { debounce })])
    expect(seen.sort()).toEqual(['a x', 'b y'])
  })

  it('makes one task of what two nodes submit at once', async () => {
    const seen: string[] = []
    const worker = poolOf({ storage, executor: (text: string) => void seen.push(text) })
    const nodes = ['a', 'b'].map(() => poolOf<string, void>({ storage, concurrency: 0 }))
    const submits = nodes.flatMap((node, index) =>
      Array.from({ length: 50 }, (_, n) =>
        node.submit(`${'ab'[index] ?? ''}${n}`, { debounce: { key: 'save', wait: 100 } }),
      ),
    )
    const ids = new Set(await Promise.all(submits))
    expect(ids.size).toBe(1)
    await worker.start()
    await worker.waitForResult([...ids][0]!)
    expect(['a49', 'b49']).toContain(seen.join())
  })
})

describe('with several processes on one file', () => {
  const program = join(import.meta.dirname, '..', 'dist', 'debounce-worker.js')
  let folder: string
  let file: string

  beforeEach(async () => {
    folder = await mkdtemp(join(tmpdir(), 'neotask-debounce-'))
    file = join(folder, 'tasks.db')
  })
  afterEach(async () => {
    await closeAll()
    await rm(folder, { recursive: true })
  })

  /** A process that submits without a pause, and says what was acknowledged. */
  function startSubmitter(name: string) {
    const child = spawn(process.execPath, [program, file, name], { stdio: ['pipe', 'pipe', 'inherit'] })
    const exited = once(child, 'exit')
    const told = { last: 0 }
    createInterface({ input: child.stdout }).on('line', (line) => (told.last = Number(line)))
    return { child, exited, told }
  }

  it(
    'runs the last submit, and nothing twice, though one process is killed in between',
    { timeout: 60_000 },
    async () => {
      const storage = sqliteStorage(file)
      const seen: Save[] = []
      const pool = poolOf({ storage, concurrency: 1, executor: (save: Save) => void seen.push(save) })
      await pool.start()
      const [a, b] = [startSubmitter('a'), startSubmitter('b')]
      await until('both submit', () => a.told.last > 100 && b.told.last > 100, 20_000)
      a.child.kill('SIGKILL')
      await a.exited
      const then = b.told.last
      await until('the other goes on', () => b.told.last > then + 100, 20_000)
      b.child.stdin.end()
      await b.exited
      await until('the last has run', () => seen.at(-1)?.by === 'b' && seen.at(-1)?.n === b.told.last)
      await pool.drain()
      const counts = await pool.counts()
      expect(counts).toMatchObject({ success: seen.length, pending: 0, scheduled: 0, running: 0 })
      expect(new Set(seen.map(({ by, n }) => `${by} ${n}`)).size).toBe(seen.length)
      for (const name of ['a', 'b']) {
        const order = seen.filter(({ by }) => by === name).map(({ n }) => n)
        expect(order).toEqual([...order].sort((one, other) => one - other))
      }
      // Many submits for each run: otherwise nothing was debounced.
      expect(seen.length).toBeLessThan((a.told.last + b.told.last) / 4)
      await closeAll()
      await storage.close()
    },
  )
})
