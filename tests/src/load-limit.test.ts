/** A node that is over its load limit leaves the work to others, and goes on with what it has begun. */
import { TaskPool, type TaskPoolOptions } from '@neotask/core'
import { sqliteStorage } from '@neotask/storage-sqlite'
import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { createInterface } from 'node:readline'
import { afterEach, describe, expect, it } from 'vitest'
import type { Word } from './load-worker.js'
import { STORAGES, until } from './storages.js'

const pools: { close(options?: { timeout?: number }): Promise<unknown> }[] = []

function poolOf<Data, Result>(options: TaskPoolOptions<Data, Result>): TaskPool<Data, Result> {
  const pool = new TaskPool<Data, Result>(options)
  pools.push(pool)
  return pool
}

afterEach(async () => {
  await Promise.all(pools.splice(0).map((pool) => pool.close({ timeout: 0 })))
})

describe.each(STORAGES)('on $name', ({ open }) => {
  it('a node over its limit claims nothing, says so, and others run its tasks', async () => {
    const { storage, dispose } = await open()
    const executor = (name: string, node: string): string => `${name} on ${node}`
    // Every process uses more than this, so it is over from its first look on.
    const loadLimit = { memory: 0.000_001 }
    const over = poolOf({
      storage,
      node: 'over',
      loadLimit,
      executor: (name: string) => executor(name, 'over'),
    })
    const told: unknown[] = []
    over.on('node.overloaded', (event) => told.push(event))
    await over.start()
    expect(await over.run('early')).toBe('early on over')
    await until('it is over', () => told.length === 1)

    const overload = { measure: 'memory', limit: 0.000_001, value: expect.any(Number) as number }
    expect(told).toEqual([{ node: 'over', ...overload }])
    expect((await over.getStats()).overload).toEqual(overload)
    await until('others know', async () => (await over.getNodes())[0]?.overload !== undefined)
    expect(await over.getNodes()).toMatchObject([{ id: 'over', overload }])

    const id = await over.submit('task')
    const { reasons } = await over.explain(id)
    expect(reasons).toMatchObject([
      { code: 'nodes-overloaded', text: expect.stringMatching(/over \(memory \d+ %/) as string },
    ])
    // A pause and its end by the caller change nothing of it.
    await over.pause({ local: true })
    await over.resume({ local: true })
    expect(await over.getStatus(id)).toBe('pending')

    const other = poolOf({ storage, node: 'other', executor: (name: string) => executor(name, 'other') })
    await other.start()
    expect(await over.waitForResult(id)).toBe('task on other')
    await over.close()
    expect(await other.getNodes()).toMatchObject([{ id: 'other' }])
    expect((await storage.records.list('default', { prefix: 'load:', limit: 10 })).records).toEqual([])
    await other.close()
    await dispose()
  })
})

it(
  'a busy process gives back what it has not started, finishes what it has, keeps its session, and comes back',
  { timeout: 90_000 },
  async () => {
    const folder = await mkdtemp(join(tmpdir(), 'neotask-load-'))
    const file = join(folder, 'tasks.db')
    const program = join(import.meta.dirname, '..', 'dist', 'load-worker.js')
    const storage = sqliteStorage(file)
    const producer = poolOf<string, string>({ storage, concurrency: 0 })
    const child = spawn(process.execPath, [program, file], { stdio: ['pipe', 'pipe', 'inherit'] })
    const words: Word[] = []
    createInterface({ input: child.stdout }).on('line', (line) => words.push(JSON.parse(line) as Word))
    const say = (line: string): void => void child.stdin.write(`${line}\n`)
    const names = Array.from({ length: 30 }, (_, n) => `short ${n}`)

    const long = await producer.submit('long')
    const ids = await producer.submitBatch(names.map((data) => ({ data })))
    await until('it holds them all', async () => (await producer.counts()).running === 31, 20_000)
    const [before] = await producer.getNodes()
    await until('it runs one', async () => (await producer.getTask(long))?.started === true)

    say('busy')
    await until('it is over its limit', () => words.length > 0, 20_000)
    expect(words[0]).toMatchObject({ type: 'node.overloaded', measure: 'eventLoopDelay' })
    await until('they are back', async () => {
      const { running, pending } = await producer.counts()
      return running === 1 && pending === 30
    })
    await until('all know why', async () => {
      const { reasons } = await producer.explain(ids[29]!)
      return reasons[0]?.code === 'nodes-overloaded'
    })

    const other = poolOf({ storage: `sqlite:${file}`, executor: () => 'other' })
    await other.start()
    expect(new Set(await producer.waitAll(ids))).toEqual(new Set(['other']))

    say('finish')
    expect(await producer.waitForResult(long)).toBe('limited')
    const busySince = performance.now()
    await until('it was busy for as long', () => performance.now() - busySince > 4000, 10_000)
    const limited = (await producer.getNodes()).find(({ id }) => id === 'limited')
    expect(limited).toMatchObject({ session: before!.session, overload: { measure: 'eventLoopDelay' } })
    expect(words).toHaveLength(1)

    say('rest')
    await until('it has recovered', () => words.length === 2, 20_000)
    expect(words[1]).toEqual({ type: 'node.recovered' })
    await other.close()
    expect(await producer.run('again')).toBe('limited')
    const [after] = await producer.getNodes()
    expect(after?.overload).toBeUndefined()

    child.kill('SIGKILL')
    await once(child, 'exit')
    await producer.close()
    await storage.close()
    await rm(folder, { recursive: true })
  },
)
