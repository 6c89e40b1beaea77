/** The slots in threads: what is given ahead, and where it goes when something comes in between. */
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { pathToFileURL } from 'node:url'
import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest'
import { jsonCodec } from './codec.js'
import { Kinds } from './kinds.js'
import { DEFAULT_RETRY } from './retry-policy.js'
import type { Claimed } from './storage.js'
import { ManualClock } from './testing/manual-clock.js'
import { ThreadPool } from './thread-pool.js'
import { resolveThreads } from './thread-options.js'
import { TimeWheel } from './time-wheel.js'

let folder: string
let file: URL
const pools: ThreadPool[] = []

beforeAll(() => {
  folder = mkdtempSync(join(tmpdir(), 'neotask-pool-'))
  const source = `
    import { threadId } from 'node:worker_threads'
    export default async (job, ctx) => {
      ctx.progress('at work')
      if (job === 'wait') await new Promise((resolve) => ctx.signal.addEventListener('abort', resolve))
      return threadId
    }`
  writeFileSync(join(folder, 'handler.mjs'), source)
  file = pathToFileURL(join(folder, 'handler.mjs'))
})

afterEach(async () => {
  for (const pool of pools.splice(0)) {
    pool.abandonAll()
    await pool.idle()
    await pool.close()
  }
})

afterAll(() => rmSync(folder, { recursive: true }))

interface Bench {
  readonly pool: ThreadPool
  readonly clock: ManualClock
  /** What the pool told, in order: `a started`, `a succeeded`, `b failed, lease-lost`, `c returned to 2`. */
  readonly told: string[]
  /** The threads in which handlers ended. */
  readonly threads: Set<string>
  run(id: string, job?: string): void
  heard(what: string): Promise<void>
}

function bench(size: number): Bench {
  const clock = new ManualClock()
  const told: string[] = []
  const threads = new Set<string>()
  const kinds = new Kinds(file, [], { retry: DEFAULT_RETRY, timeout: undefined, codec: jsonCodec })
  const host = {
    ...{ ref: { tenant: 'default', queue: 'default' }, codec: jsonCodec, maxPayload: 1000, clock, kinds },
    ...{ wheel: new TimeWheel(clock, () => {}), now: () => 0, checkpoint: async () => {} },
    report: ({ id }: { id: string }) => told.push(`${id} at work`),
    started: ({ id }: { id: string }) => told.push(`${id} started`),
    succeeded: ({ id }: { id: string }, _: unknown, __: number, encoded?: unknown) => {
      threads.add(String(encoded))
      told.push(`${id} succeeded`)
    },
    failed: ({ id, aborted }: { id: string; aborted?: string | undefined }) =>
      told.push(`${id} failed, ${aborted ?? 'not aborted'}`),
    returned: ({ id }: { id: string }, arrival: number) => told.push(`${id} returned to ${arrival}`),
    freed: () => {},
  }
  const log = (): void => {}
  const logger = { debug: log, info: log, warn: log, error: log }
  const pool = new ThreadPool(size, host, resolveThreads({ idleTimeout: '1m' }), logger)
  pools.push(pool)
  let token = 0
  let arrival = 0
  const run = (id: string, job = ''): void => {
    const claimed: Claimed = {
      ...{ id, token: ++token, kind: '', payload: JSON.stringify(job), codec: 'json', priority: 2 },
      ...{ attempts: 0, reclaims: 0, probation: false, waited: 0 },
    }
    pool.run(claimed, 's', false, 0, arrival++)
  }
  const heard = (what: string): Promise<void> => expect.poll(() => told, { timeout: 10_000 }).toContain(what)
  return { pool, clock, told, threads, run, heard }
}

/** One thread that has run `a`, and has `b` at work and `c` and `d` ahead. */
async function busy(): Promise<Bench> {
  const it = bench(1)
  it.run('a')
  await it.heard('a succeeded')
  it.run('b', 'wait')
  await it.heard('b at work')
  it.run('c')
  it.run('d')
  it.told.length = 0
  return it
}

describe('the room', () => {
  it('is one attempt for a thread that is not known to be fast', async () => {
    const { pool, run } = bench(2)
    expect(pool.free).toBe(2)
    run('a', 'wait')
    expect(pool.free).toBe(1)
    run('b', 'wait')
    expect(pool.free).toBe(0)
  })

  it('is more while tasks are tiny, and what is ahead is not at work', async () => {
    const { pool } = await busy()
    expect(pool.free).toBe(32 - 3)
    expect(pool.active).toBe(1)
    expect(pool.executions.map(({ id, startedAt }) => [id, startedAt >= 0])).toEqual([
      ['b', true],
      ['c', false],
      ['d', false],
    ])
  })

  it('is given to another thread first', async () => {
    const { run, heard, threads } = bench(2)
    run('a')
    run('b')
    await heard('a succeeded')
    await heard('b succeeded')
    run('c')
    run('d')
    await heard('c succeeded')
    await heard('d succeeded')
    expect(threads.size).toBe(2)
  })
})

describe('what is ahead', () => {
  it('goes back to its old place when the one before it is slow', async () => {
    const { pool, told, heard } = await busy()
    expect(told).toEqual([])
    await heard('d returned to 3')
    expect(told).toEqual(['c returned to 2', 'd returned to 3'])
    expect(pool.free).toBe(0)
  })

  it('has started when its thread took it up, and is told so once', async () => {
    const { pool, told, run, heard } = bench(1)
    run('a')
    await heard('a succeeded')
    told.length = 0
    run('b')
    run('c')
    expect(pool.giveBack().map(({ id }) => id)).toEqual(['b', 'c'])
    expect(told).toEqual([])
    run('b')
    run('c')
    await heard('c succeeded')
    expect(told.filter((what) => what.endsWith('started'))).toEqual(['b started', 'c started'])
  })

  it('goes back when another of them is taken away', async () => {
    const { pool, told } = await busy()
    expect(pool.take('c', 3, 'cancelled')).toBe(true)
    expect(told).toEqual(['d returned to 3'])
    expect(pool.executions.map(({ id }) => id)).toEqual(['b'])
  })

  it('is given back when asked for, and not begun elsewhere', async () => {
    const { pool, told } = await busy()
    expect(pool.giveBack().map(({ id }) => id)).toEqual(['c', 'd'])
    expect(told).toEqual([])
  })

  it('is not begun any more once the lease is lost', async () => {
    const { pool, told, heard } = await busy()
    pool.abortAll('lease-lost')
    expect(told).toEqual(['c failed, lease-lost', 'd failed, lease-lost'])
    // What was at work may still have its result accepted.
    await heard('b succeeded')
  })
})

describe('a task whose handler was told to end', () => {
  it('is held, without a slot, until that handler is at work no more', async () => {
    const { pool, told, run, heard } = bench(2)
    run('a')
    await heard('a succeeded')
    run('b', 'wait')
    await heard('b at work')
    told.length = 0
    expect(pool.take('b', 2, 'cancelled')).toBe(true)
    run('b')
    expect(pool.active).toBe(1)
    expect(pool.executions.map(({ id, token }) => [id, token])).toEqual([['b', 3]])
    expect(pool.take('b', 3, 'revoked')).toBe(true)
    expect(pool.executions).toEqual([])
    run('b')
    pool.abortAll('lease-lost')
    expect(told).toEqual(['b failed, lease-lost'])
    run('b')
    expect(pool.giveBack().map(({ token }) => token)).toEqual([5])
    run('b')
    await heard('b succeeded')
    expect(told).toEqual(['b failed, lease-lost', 'b started', 'b at work', 'b succeeded'])
  })
})

describe('threads with nothing to do', () => {
  it('end one by one, the one that was busy last as the last', async () => {
    const { pool, clock, told, threads, run, heard } = bench(2)
    run('a')
    run('b')
    await heard('a succeeded')
    await heard('b succeeded')
    clock.advance(40_000)
    run('c')
    await heard('c succeeded')
    clock.advance(40_000)
    run('d')
    await heard('d succeeded')
    expect(threads.size).toBe(2)
    expect(told.filter((what) => what.endsWith('succeeded'))).toHaveLength(4)
    clock.advance(70_000)
    await expect.poll(() => pool.free).toBe(2)
    run('e')
    await heard('e succeeded')
    expect(threads.size).toBe(3)
  })
})
