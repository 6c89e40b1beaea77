/**
 * A replica takes over under load. When its master is killed, Redis may have acknowledged what the replica never heard of:
 * that is lost and nothing else, whoever waits for it is told, and pools go on with what is left.
 */
import { TaskPool } from '@neotask/core'
import { Redis } from 'ioredis'
import { afterEach, expect, test } from 'vitest'
import { redisStorage, type RedisStorageOptions } from './index.js'
import { Load, until } from './load.test-helper.js'
import { ask, Link, NAME, offsetOf, Replicated, roleOf } from './replicated.test-helper.js'

const disposals: (() => Promise<unknown> | void)[] = []

afterEach(async () => {
  for (const dispose of disposals.splice(0).reverse()) await dispose()
})

async function start(): Promise<Replicated> {
  const servers = await Replicated.start()
  disposals.push(() => servers.stop())
  return servers
}

async function startLoad(target: string | RedisStorageOptions): Promise<Load> {
  const load = new Load(target)
  disposals.push(() => load.close())
  await load.start()
  return load
}

async function runIdOf(target: string | RedisStorageOptions): Promise<string> {
  const storage = redisStorage(target)
  try {
    return (await storage.open()).runId
  } finally {
    await storage.close()
  }
}

/** When what was lost was acknowledged, by `performance.now()`: neither before `from`, nor after `to`. */
interface Gap {
  readonly from: number
  readonly to: number
}

/** Holds what came of the load to what may be. @returns how many acknowledged tasks were lost */
async function check(load: Load, gap: Gap): Promise<number> {
  // Every wait was answered: with the right value, or by the word that there is no such task.
  await load.stop()
  // What had ended, and of which that was lost, runs again.
  await load.drained()
  const records = await load.records()
  const lost = load.acknowledged.filter((_, index) => records[index] === undefined)
  const isIn = (at: number | undefined): boolean => at !== undefined && at >= gap.from && at <= gap.to
  expect(lost.filter(({ at }) => !isIn(at))).toEqual([])
  expect([...load.missing].filter((id) => !lost.some((task) => task.id === id))).toEqual([])
  for (const [index, { n }] of load.acknowledged.entries()) {
    const record = records[index]
    if (record === undefined) continue
    expect(record.state).toBe('success')
    expect(JSON.parse(String(record.result))).toBe(n * n)
  }
  // A second end was accepted only where the first was lost.
  for (const [id, [first, ...others]] of load.completions) {
    expect(others.length, id).toBeLessThanOrEqual(1)
    if (others.length > 0) expect(isIn(first), id).toBe(true)
  }
  return lost.length
}

const repeats = (load: Load): number =>
  [...load.completions.values()].filter(({ length }) => length > 1).length

test('a master that is killed while its replica is behind', { timeout: 120_000 }, async () => {
  const servers = await start()
  const target = { options: { sentinels: await servers.watch(), name: NAME } }
  const before = await runIdOf(target)
  const load = await startLoad(target)

  // All that was acknowledged until now reaches the replica.
  const from = performance.now()
  const replicated = await offsetOf(servers.master)
  await until('it was replicated', async () => (await offsetOf(servers.replica)) >= replicated)
  servers.link.cut()
  const known = load.acknowledged.length
  await until('more was acknowledged', () => load.acknowledged.length >= known + 50)
  const behind = (await offsetOf(servers.master)) - (await offsetOf(servers.replica))
  await servers.master.kill()
  const to = performance.now()
  expect(behind).toBeGreaterThan(0)

  await load.goOn(30_000)
  const away = performance.now() - to
  expect(await roleOf(servers.replica)).toBe('master')
  const lost = await check(load, { from, to })
  expect(lost).toBeGreaterThan(0)
  expect(await runIdOf(target)).not.toBe(before)
  load.tell(
    `replica promoted, ${behind} bytes behind at the kill, 200 more tasks ${away.toFixed(0)} ms after it: ` +
      `${lost} acknowledged tasks lost, all of them within the last ${(to - from).toFixed(0)} ms, ` +
      `${load.missing.size} waits told so, ${repeats(load)} ends accepted again`,
  )
})

test(
  'a master that hands over to its replica, at an address that follows',
  { timeout: 120_000 },
  async () => {
    const { master, replica } = await start()
    const address = await Link.start(master.port)
    disposals.push(() => address.stop())
    const url = `redis://127.0.0.1:${address.port}`
    const before = await runIdOf(url)
    const load = await startLoad(url)
    await ask(master.url, (client) => client.call('FAILOVER'))
    await until('it obeys', async () => (await roleOf(master)) === 'slave')
    // Who is connected to the old one still is, and learns by its refusals.
    address.lead(replica.port)
    const began = performance.now()
    await load.goOn()
    const away = performance.now() - began
    expect(await roleOf(replica)).toBe('master')
    expect(await runIdOf(url)).not.toBe(before)
    await load.check(`handed over, 200 more tasks ${away.toFixed(0)} ms after it`)
  },
)

test('Sentinels lead to the master, by options and by a client of the user’s own', async () => {
  const servers = await start()
  const sentinels = await servers.watch()
  const client = new Redis({ sentinels, name: NAME })
  disposals.push(() => client.disconnect())
  for (const own of [{ options: { sentinels, name: NAME } }, { client, namespace: 'other' }]) {
    const storage = redisStorage(own)
    await storage.open()
    const pool = new TaskPool({ storage, executor: (n: number) => n + 1 })
    expect(await pool.run(1)).toBe(2)
    await pool.close()
    await storage.close()
  }
  expect(await ask(servers.master.url, (one) => one.exists('{neotask.0}:meta', '{other.0}:meta'))).toBe(2)
})
