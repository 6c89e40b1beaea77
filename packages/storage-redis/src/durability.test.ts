/** Submits and results that wait for a replica: a primary and a replica of its own, which is frozen and thawed. */
import { systemClock, TaskPool } from '@neotask/core'
import type { Redis } from 'ioredis'
import { afterEach, expect, test, vi } from 'vitest'
import { redisStorage, type RedisStorageOptions } from './index.js'
import { startCluster } from './redis-server.test-helper.js'
import { RestartableServer } from './restartable-server.test-helper.js'

const disposals: (() => Promise<unknown> | void)[] = []

afterEach(async () => {
  for (const dispose of disposals.splice(0).reverse()) await dispose()
})

async function startPair(): Promise<{ primary: RestartableServer; replica: RestartableServer }> {
  const primary = await RestartableServer.start('--repl-diskless-sync-delay', '0')
  disposals.push(() => primary.stop())
  const replica = await RestartableServer.start('--replicaof', '127.0.0.1', String(primary.port))
  disposals.push(() => replica.stop())
  const control = primary.control()
  await vi.waitFor(async () => expect(await control.info('replication')).toContain('state=online'), 10_000)
  control.disconnect()
  return { primary, replica }
}

async function openPool(
  options: RedisStorageOptions,
  concurrency: number,
  callTimeout: string = '10s',
): Promise<TaskPool<number, number>> {
  const storage = redisStorage(options)
  const pool = new TaskPool({ storage, concurrency, callTimeout, executor: async (n: number) => n * n })
  disposals.push(
    () => storage.close(),
    () => pool.close(),
  )
  await pool.start()
  return pool
}

test('a submit resolves when the replica has the task, and not before', async () => {
  const { primary, replica } = await startPair()
  const pool = await openPool({ url: primary.url, durability: { replicas: 1, timeout: '3s' } }, 0)
  const [writer, reader] = [primary.control(), replica.control()]
  disposals.push(
    () => writer.disconnect(),
    () => reader.disconnect(),
  )
  const tasks = '{neotask.0}:default/default:defs'
  await pool.submit(1)
  replica.pause()
  let resolved = false
  const submitted = pool.submit(2).finally(() => (resolved = true))
  await vi.waitFor(async () => expect(await writer.hlen(tasks)).toBe(2))
  expect(resolved).toBe(false)
  replica.resume()
  expect(await reader.hexists(tasks, await submitted)).toBe(1)
})

test('a submit that the replica does not confirm says so, and is one task when it is repeated', async () => {
  const { primary, replica } = await startPair()
  const pool = await openPool({ url: primary.url, durability: { replicas: 1, timeout: '1s' } }, 0)
  await pool.submit(1)
  replica.pause()
  const error = await pool.submit(2).catch((thrown: unknown) => thrown)
  expect(error).toMatchObject({
    code: 'NOT_REPLICATED',
    message: 'stored, and confirmed by 0 of 1 replicas, not within 1000 ms by all',
    retryable: true,
    uncertain: false,
  })
  const { taskId: id } = error as { taskId: string }
  expect(await pool.counts()).toMatchObject({ pending: 2 })
  // While they are late nobody is held up for as long again.
  const begun = systemClock.monotonic()
  await expect(pool.submit(2, { id })).rejects.toMatchObject({ code: 'NOT_REPLICATED', taskId: id })
  expect(systemClock.monotonic() - begun).toBeLessThan(500)
  replica.resume()
  await vi.waitFor(async () => expect(await pool.submit(2, { id })).toBe(id), 5_000)
  expect(await pool.counts()).toMatchObject({ pending: 2 })
})

test('a result counts when the replica is late, and the process is warned', async () => {
  const { primary, replica } = await startPair()
  const durable = { url: primary.url, durability: { replicas: 1, timeout: 1000 } }
  const warnings: (string | undefined)[] = []
  const onWarning = (warning: Error & { code?: string }): unknown => warnings.push(warning.code)
  process.on('warning', onWarning)
  disposals.push(() => void process.off('warning', onWarning))
  await openPool(durable, 5)
  const producer = await openPool({ url: primary.url }, 0)
  expect(await producer.run(3)).toBe(9)
  expect(warnings).toEqual([])
  replica.pause()
  expect(await Promise.all([4, 5, 6].map((n) => producer.run(n)))).toEqual([16, 25, 36])
  await vi.waitFor(() => expect(warnings).toEqual(['NEOTASK_REDIS_REPLICAS']), 5_000)
  replica.resume()
})

test('on a Cluster the server that has the task is asked', async () => {
  const cluster = await startCluster()
  const client = cluster.connect()
  disposals.push(
    () => cluster.stop(),
    () => client.disconnect(),
  )
  for (const namespace of ['a', 'b', 'c', 'd']) {
    const pool = await openPool({ client, namespace, durability: { replicas: 1, timeout: 20 } }, 1)
    const error = await pool.submit(7).catch((thrown: unknown) => thrown)
    expect(error).toMatchObject({ code: 'NOT_REPLICATED' })
    expect(await pool.waitForResult((error as { taskId: string }).taskId)).toBe(49)
  }
})

test('on a Cluster it is followed to the server that has taken the slot over', async () => {
  const cluster = await startCluster()
  const client = cluster.connect()
  disposals.push(
    () => cluster.stop(),
    () => client.disconnect(),
  )
  const pool = await openPool({ client, durability: { replicas: 1, timeout: 20 } }, 0)
  const submit = async (): Promise<unknown> => pool.submit(7).catch((thrown: unknown) => thrown)
  expect(await submit()).toMatchObject({ code: 'NOT_REPLICATED' })

  const nodes = client.nodes('master')
  const slot = Number(await nodes[0]?.cluster('KEYSLOT', '{neotask.0}:meta'))
  const counts = await Promise.all(nodes.map((node) => node.call('CLUSTER', 'COUNTKEYSINSLOT', slot)))
  const from = nodes[counts.findIndex((count) => Number(count) > 0)] as Redis
  const to = nodes.find((node) => node !== from) as Redis
  const keys = (await from.call('CLUSTER', 'GETKEYSINSLOT', slot, 100)) as string[]
  const [fromId, toId] = await Promise.all([from, to].map(async (node) => node.call('CLUSTER', 'MYID')))
  await to.call('CLUSTER', 'SETSLOT', slot, 'IMPORTING', String(fromId))
  await from.call('CLUSTER', 'SETSLOT', slot, 'MIGRATING', String(toId))
  const { host = '', port = 0 } = to.options
  await from.call('MIGRATE', host, port, '', 0, 5000, 'KEYS', ...keys)
  for (const node of [to, from]) await node.call('CLUSTER', 'SETSLOT', slot, 'NODE', String(toId))

  expect(await submit()).toMatchObject({ code: 'NOT_REPLICATED' })
  expect(await to.hlen('{neotask.0}:default/default:defs')).toBe(2)
})

test('a server that has become a replica leaves a submit uncertain, not refused', async () => {
  const { primary, replica } = await startPair()
  const pool = await openPool({ url: primary.url, durability: { replicas: 1, timeout: '3s' } }, 0, '5s')
  await pool.submit(1)
  replica.pause()
  const control = primary.control()
  disposals.push(() => control.disconnect())
  const submitted = pool.submit(2, { id: 'two' }).catch((thrown: unknown) => thrown)
  await vi.waitFor(async () => expect(await control.info('clients')).toContain('blocked_clients:1'))
  await control.replicaof('127.0.0.1', replica.port)
  replica.resume()
  // It goes on trying until its deadline, and what was carried out may have been kept.
  const error = await submitted
  expect(error).toMatchObject({ code: 'STORAGE_UNAVAILABLE', uncertain: true })
}, 30_000)

test.each([
  [{ replicas: 0 }, 'durability.replicas: expected an integer from 1 to 16, got 0'],
  [{}, 'durability.replicas: expected an integer from 1 to 16, got undefined'],
  [{ replicas: 1, timeout: '4s' }, 'durability.timeout: expected from 1 ms to 3 s, got "4s"'],
  [{ replicas: 1, wait: 5 }, 'durability.wait: expected no such option, got 5'],
  [true, 'durability: expected { replicas, timeout }, got true'],
])('durability %j is refused', (durability, message) => {
  const options = { url: 'redis://localhost', durability } as unknown as RedisStorageOptions
  expect(() => redisStorage(options)).toThrow(message)
})
