/**
 * What goes wrong between a node and its server, each under load: pools of two storages work for a third that submits
 * and waits. Whatever happened, in the end every task that was acknowledged has ended, once, and every wait was answered.
 *
 * `NEOTASK_PROXY_SECONDS=120 npm test -- connections` loses, delays and repeats calls for so long; without it for 8 s.
 * `NEOTASK_PAUSE_SECONDS=10` is how long the server stands still, without it 7 s, and `NEOTASK_FULL_SECONDS=15` how long its
 * memory is full, without it 2 s.
 */
import { CHANGED, systemClock, TaskPool, type NeoTaskError, type Storage } from '@neotask/core'
import { Redis } from 'ioredis'
import { afterEach, describe, expect, test, vi } from 'vitest'
import { FaultyProxy, type Fate } from './faulty-proxy.test-helper.js'
import { redisStorage, type RedisStorageOptions } from './index.js'
import { Load, sleep, until, type Work } from './load.test-helper.js'
import { RestartableServer } from './restartable-server.test-helper.js'

const PROXY_SECONDS = Number(process.env['NEOTASK_PROXY_SECONDS'] ?? 8)
const PAUSE_SECONDS = Number(process.env['NEOTASK_PAUSE_SECONDS'] ?? 7)
const FULL_SECONDS = Number(process.env['NEOTASK_FULL_SECONDS'] ?? 2)
// Each starts a server and a load, and a machine may be busy with other tests.
vi.setConfig({ testTimeout: 60_000 })

const disposals: (() => Promise<unknown> | void)[] = []

afterEach(async () => {
  for (const dispose of disposals.splice(0).reverse()) await dispose()
})

async function startServer(...args: string[]): Promise<{ server: RestartableServer; control: Redis }> {
  const server = await RestartableServer.start(...args)
  const control = server.control()
  disposals.push(
    () => server.stop(),
    () => control.disconnect(),
  )
  return { server, control }
}

async function startProxy(server: RestartableServer): Promise<FaultyProxy> {
  const proxy = await FaultyProxy.start(server.port)
  disposals.push(() => proxy.stop())
  return proxy
}

async function open(target: string | RedisStorageOptions): Promise<Storage> {
  const storage = redisStorage(target)
  await storage.open()
  disposals.push(() => storage.close())
  return storage
}

async function startLoad(url: string): Promise<Load> {
  const load = new Load(url)
  disposals.push(() => load.close())
  await load.start()
  return load
}

test('a server that is killed and started again on its append-only file', async () => {
  const { server } = await startServer()
  const load = await startLoad(server.url)
  for (let times = 0; times < 3; times++) {
    await server.kill()
    await sleep(300)
    await server.start()
    await load.goOn()
  }
  await load.check('3 restarts')
})

test('scripts that the server forgets every 50 ms', async () => {
  const { server, control } = await startServer()
  const load = await startLoad(server.url)
  for (let times = 0; times < 40; times++) {
    await control.script('FLUSH')
    await sleep(50)
  }
  await load.check('40 script flushes')
})

test.each(['normal', 'pubsub'])('connections of type %s that are killed again and again', async (type) => {
  const { server, control } = await startServer()
  const load = await startLoad(server.url)
  for (let times = 0; times < 15; times++) {
    await control.call('CLIENT', 'KILL', 'TYPE', type)
    await sleep(150)
  }
  await load.goOn()
  await load.check(`15 times killed: ${type}`)
})

test(
  'a server that stands still for longer than a call may take',
  { timeout: 60_000 + 2000 * PAUSE_SECONDS },
  async () => {
    const { server } = await startServer()
    const load = await startLoad(server.url)
    server.pause()
    await sleep(PAUSE_SECONDS * 1000)
    server.resume()
    await load.goOn()
    await load.check(`paused for ${PAUSE_SECONDS} s`)
  },
)

test('a server that takes no writes for a while, as a replica does', async () => {
  const { server, control } = await startServer()
  const load = await startLoad(server.url)
  await control.replicaof('127.0.0.1', 1)
  await sleep(1_000)
  await control.replicaof('NO', 'ONE')
  await load.goOn()
  await load.check('READONLY for 1 s')
})

test('a server that is busy with the script of somebody else', async () => {
  const { server, control } = await startServer('--lua-time-limit', '50')
  const load = await startLoad(server.url)
  const endless = server.control()
  disposals.push(() => endless.disconnect())
  const killed = expect(endless.eval('while true do end', 0)).rejects.toThrow('killed by user')
  await sleep(1_000)
  await control.call('SCRIPT', 'KILL')
  await killed
  await load.goOn()
  await load.check('BUSY for 1 s')
})

test('a memory that is full while handlers end', { timeout: 30_000 + 2000 * FULL_SECONDS }, async () => {
  const { server, control } = await startServer('--maxmemory-policy', 'noeviction')
  const storage = await open(server.url)
  let calls = 0
  let finish = (): void => undefined
  const finished = new Promise<void>((resolve) => (finish = resolve))
  const pool = new TaskPool({
    storage,
    concurrency: 5,
    executor: async ({ n }: Work) => {
      calls++
      await finished
      return n
    },
  })
  disposals.push(() => pool.close({ timeout: 0 }))
  await pool.start()
  const ids = await Promise.all([1, 2, 3, 4, 5].map((n) => pool.submit({ n })))
  const results = Promise.all(ids.map((id) => pool.waitForResult(id)))
  results.catch(() => undefined)
  await until('all run', () => calls === 5)
  await control.config('SET', 'maxmemory', '1')
  const end = performance.now() + FULL_SECONDS * 1000
  const producer = new TaskPool<Work, number>({ storage, concurrency: 0, callTimeout: '1s' })
  disposals.push(() => producer.close({ timeout: 0 }))
  let refused = 0
  const submit = async (): Promise<void> => {
    await expect(producer.submit({ n: 6 })).rejects.toMatchObject({
      code: 'STORAGE_UNAVAILABLE',
      retryable: true,
      message: expect.stringMatching(/OOM/) as string,
    })
    refused++
  }
  await submit()
  finish()
  expect(await results).toEqual([1, 2, 3, 4, 5])
  for (const id of ids) expect(await pool.getStatus(id)).toBe('success')
  while (performance.now() < end) await submit()
  await control.config('SET', 'maxmemory', '0')
  expect(await pool.run({ n: 7 })).toBe(7)
  expect(calls).toBe(6)
  expect(await pool.counts()).toMatchObject({ success: 6, pending: 0, running: 0 })
  console.log(
    `memory full for ${FULL_SECONDS} s: 5 tasks ended by 5 calls of handlers, ${refused} submits refused`,
  )
})

test('connections that pass nothing on any more, and are not closed', async () => {
  const { server } = await startServer()
  const proxy = await startProxy(server)
  const load = await startLoad(proxy.url)
  proxy.silence()
  const begun = performance.now()
  await load.goOn(20_000)
  const found = performance.now() - begun
  expect(found).toBeLessThan(9_000)
  await load.check(`half-open, found within ${(found / 1000).toFixed(1)} s`)
})

test(
  'replies lost and late, and calls that arrive twice',
  { timeout: 60_000 + 2000 * PROXY_SECONDS },
  async () => {
    const { server, control } = await startServer()
    const proxy = await startProxy(server)
    const load = await startLoad(proxy.url)
    const nodes = await load.nodes()
    expect(nodes).toHaveLength(2)
    const fates: Fate[] = ['lose the reply', 'delay the reply', 'send twice', 'send again later']
    const tally = new Map<Fate, number>()
    let met = 0
    proxy.fate = () => {
      if (Math.random() >= 0.01 * fates.length) return 'pass'
      const fate = fates[met++ % fates.length] as Fate
      tally.set(fate, (tally.get(fate) ?? 0) + 1)
      return fate
    }
    await sleep(PROXY_SECONDS * 1000)
    proxy.fate = () => 'pass'
    await load.goOn()
    for (const fate of fates) expect(tally.get(fate), fate).toBeGreaterThan(0)
    await proxy.settled()
    await load.check([...tally].map(([fate, times]) => `${times}x ${fate}`).join(', '))

    // Both nodes live under the sessions with which they began, and hold nothing of which they do not know.
    expect(await load.nodes()).toEqual(nodes)
    const prefix = '{neotask.0}:own:'
    const sessions = (await control.keys(`${prefix}*`)).map((key) => key.slice(prefix.length))
    expect(sessions.sort()).toEqual(nodes.map(({ session }) => session).sort())
    for (const session of sessions) {
      const entries = (await control.hkeys(prefix + session)).filter((field) => !field.startsWith(' '))
      expect(entries).toEqual([])
    }
  },
)

describe('connections', () => {
  const REF = { tenant: 'default', queue: 'default' }
  const clients = async (control: Redis): Promise<number> =>
    // The test's own asks.
    String(await control.client('LIST'))
      .trim()
      .split('\n').length - 1

  test('are two for a process, however many storages and pools it has, and none when all are closed', async () => {
    const { server, control } = await startServer()
    const storages = await Promise.all(
      ['one', 'one', 'two'].map((namespace) => open({ url: server.url, namespace })),
    )
    const pools = storages.map((storage) => new TaskPool({ storage, executor: async (n: number) => n + 1 }))
    expect(await Promise.all(pools.map((pool, n) => pool.run(n)))).toEqual([1, 2, 3])
    expect(await clients(control)).toBe(2)
    await pools[0]?.close()
    await storages[0]?.close()
    expect(await pools[1]?.run(7)).toBe(8)
    for (const pool of pools) await pool.close()
    for (const storage of storages) await storage.close()
    await until('all are closed', async () => (await clients(control)) === 0)
  })

  test('of a client of the user’s own: it, and one for messages', async () => {
    const { server, control } = await startServer()
    const client = new Redis(server.url)
    disposals.push(() => client.disconnect())
    const storages = [await open({ client }), await open({ client, namespace: 'other' })]
    for (const storage of storages) await storage.notices.subscribe('talk', () => undefined)
    expect(await clients(control)).toBe(2)
    for (const storage of storages) await storage.close()
    await until('only it is left', async () => (await clients(control)) === 1)
    expect(await client.ping()).toBe('PONG')
  })

  test.each([2, 3] as const)(
    'that were lost are listened on again, and all hear that they missed something (RESP%i)',
    async (protocol) => {
      const { server, control } = await startServer()
      const storage = await open({ url: server.url, options: { protocol } })
      const heard: string[] = []
      await storage.notices.subscribe('talk', (message) => heard.push(message))
      await storage.notices.publish('talk', 'one')
      await until('one is heard', () => heard.length === 1)
      await control.call('CLIENT', 'KILL', 'TYPE', 'pubsub')
      await until('it is told', () => heard.length === 2)
      await storage.notices.publish('talk', 'two')
      await until('two is heard', () => heard.length === 3)
      expect(heard).toEqual(['one', CHANGED, 'two'])
      const pool = new TaskPool({ storage, executor: async (n: number) => n + 1 })
      expect(await pool.run(1)).toBe(2)
      await pool.close()
    },
  )

  test('for messages that fall silent are found although nothing is asked on them', async () => {
    const { server } = await startServer()
    const proxy = await startProxy(server)
    const storage = await open(proxy.url)
    const heard: string[] = []
    await storage.notices.subscribe('talk', (message) => heard.push(message))
    proxy.silence()
    await until('it is told', () => heard.includes(CHANGED), 12_000)
  })

  test('go by name, password and number of the database in the URL', async () => {
    const { server, control } = await startServer()
    await control.acl('SETUSER', 'neo', 'on', '>secret', '~*', '&*', '+@all')
    const url = (password: string): string => server.url.replace('//', `//neo:${password}@`) + '/3'
    const storage = await open(url('secret'))
    await storage.queue.pause(REF, true)
    await control.select(3)
    expect(await control.keys('*')).not.toEqual([])
    await control.select(0)
    expect(await control.keys('*')).toEqual([])
    await expect(open(url('wrong'))).rejects.toMatchObject({ code: 'STORAGE_UNAVAILABLE', retryable: false })
  })

  test('that cannot be had reject what was not sent, and say so', async () => {
    const { server } = await startServer()
    const storage = await open(server.url)
    await server.kill()
    const begun = performance.now()
    await until('it is noticed', async () => {
      const error = await storage.queue.pause(REF, true).catch((error: unknown) => error)
      expect(error).toMatchObject({ code: 'STORAGE_UNAVAILABLE', retryable: true })
      return !(error as NeoTaskError).uncertain
    })
    expect(performance.now() - begun).toBeLessThan(5_000)
  })

  test('that are lost in the middle of a call leave a change uncertain, and a question is asked again', async () => {
    const { server } = await startServer()
    const proxy = await startProxy(server)
    const storage = await open(proxy.url)
    const fates: Fate[] = ['lose the reply']
    proxy.fate = () => fates.pop() ?? 'pass'
    await expect(storage.queue.pause(REF, true)).rejects.toMatchObject({ retryable: true, uncertain: true })
    fates.push('lose the reply')
    expect(await storage.queue.counts(REF)).toMatchObject({ pending: 0 })
    expect(fates).toEqual([])
  })
})

test('a clock that is far from the server’s is told of at start', async () => {
  const { server } = await startServer()
  const warnings: string[] = []
  const warn = vi
    .spyOn(process, 'emitWarning')
    .mockImplementation(
      ((text: string, type: string, code: string) => void warnings.push(`${code}: ${text}`)) as never,
    )
  const clock = vi.spyOn(systemClock, 'now')
  disposals.push(
    () => warn.mockRestore(),
    () => clock.mockRestore(),
  )
  await open({ url: server.url, namespace: 'right' })
  expect(warnings).toEqual([])
  clock.mockImplementation(() => Date.now() + 3_600_000)
  await open({ url: server.url, namespace: 'wrong' })
  expect(warnings).toEqual([
    expect.stringMatching(/^NEOTASK_REDIS_CLOCK: .* 3600\.0 s behind this machine's/),
  ])
})
