/**
 * What goes wrong between a node and its server, each under load: pools of two storages work for a third that submits
 * and waits. Whatever happened, in the end every task that was acknowledged has ended, once, and every wait was answered.
 */
import { CHANGED, NeoTaskError, systemClock, TaskPool, type Storage } from '@neotask/core'
import { Redis } from 'ioredis'
import { afterEach, describe, expect, test, vi } from 'vitest'
import { FaultyProxy, type Fate } from './faulty-proxy.test-helper.js'
import { redisStorage, type RedisStorageOptions } from './index.js'
import { RestartableServer } from './restartable-server.test-helper.js'

const LANES = 50
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

const sleep = (ms: number): Promise<void> =>
  new Promise((resolve) => systemClock.after(ms, resolve, { hold: true }))

async function until(what: string, condition: () => boolean | Promise<boolean>, ms = 10_000): Promise<void> {
  const end = performance.now() + ms
  while (!(await condition())) {
    if (performance.now() > end) throw new Error(`not within ${ms} ms: ${what}`)
    await sleep(5)
  }
}

interface Work {
  n: number
}

/** Submits and waits until it is told to stop, and then says what came of it. */
class Load {
  readonly #producer: TaskPool<Work, number>
  readonly #lanes: Promise<void>[]
  readonly #troubles: unknown[] = []
  readonly #completions = new Map<string, number>()
  readonly #started = performance.now()
  #longest = 0
  readonly #seen: { calls: number }
  #stopped = false
  #next = 0
  /** Tasks whose wait was answered. */
  done = 0
  /** Submits that failed, and were repeated with the same id. */
  repeats = 0

  private constructor(
    producer: TaskPool<Work, number>,
    workers: readonly TaskPool<Work, number>[],
    seen: { calls: number },
  ) {
    this.#producer = producer
    this.#seen = seen
    for (const worker of workers)
      worker.on('task.completed', ({ id }) => this.#completions.set(id, (this.#completions.get(id) ?? 0) + 1))
    this.#lanes = Array.from({ length: LANES }, () => this.#lane())
  }

  /** @param url of the workers and the producer */
  static async start(url: string): Promise<Load> {
    const seen = { calls: 0 }
    const common = { callTimeout: '10s', sessionTtl: '10s', maxReclaims: 1000 } as const
    const executor = async ({ n }: Work): Promise<number> => {
      seen.calls++
      await sleep(Math.random() * 20)
      return n * n
    }
    const workers: TaskPool<Work, number>[] = []
    for (let i = 0; i < 2; i++) {
      const worker = new TaskPool({ ...common, storage: await open(url), concurrency: 20, executor })
      worker.on('pool.error', () => undefined)
      disposals.push(() => worker.close({ timeout: 0 }))
      await worker.start()
      workers.push(worker)
    }
    const producer = new TaskPool<Work, number>({ ...common, storage: await open(url), concurrency: 0 })
    disposals.push(() => producer.close({ timeout: 0 }))
    const load = new Load(producer, workers, seen)
    await until('the load is under way', () => load.done > 100)
    return load
  }

  /** Resolves when so many more have ended: the trouble is over. */
  async goOn(ms = 15_000, more = 200): Promise<void> {
    const aim = this.done + more
    await until('it goes on', () => this.done >= aim, ms)
  }

  /** Stops, and holds what it saw to what must be. */
  async check(what: string): Promise<void> {
    this.#stopped = true
    await Promise.race([
      Promise.all(this.#lanes),
      sleep(30_000).then(() => {
        throw new Error(`waits were not answered: ${this.#next - this.done - this.#troubles.length}`)
      }),
    ])
    expect(this.#troubles).toEqual([])
    expect(this.done).toBe(this.#next)
    const counts = await this.#producer.counts()
    expect(counts).toMatchObject({
      success: this.#next,
      failed: 0,
      cancelled: 0,
      pending: 0,
      running: 0,
      scheduled: 0,
    })
    expect([...this.#completions.values()].filter((times) => times > 1)).toEqual([])
    const seconds = ((performance.now() - this.#started) / 1000).toFixed(1)
    console.log(
      `${what}: ${this.#next} tasks in ${seconds} s, each ended once, ${this.#seen.calls - this.#next} calls of handlers more ` +
        `than tasks, ${this.repeats} submits repeated, longest task ${this.#longest.toFixed(0)} ms`,
    )
  }

  async #lane(): Promise<void> {
    while (!this.#stopped) {
      const n = this.#next++
      const begun = performance.now()
      try {
        const id = await this.#submit(n)
        expect(await this.#producer.waitForResult(id, { timeout: '60s' })).toBe(n * n)
        this.done++
        this.#longest = Math.max(this.#longest, performance.now() - begun)
      } catch (error) {
        this.#troubles.push(error)
        return
      }
    }
  }

  /** As the guide says: again with the same id, until it is answered. */
  async #submit(n: number): Promise<string> {
    for (;;) {
      try {
        return await this.#producer.submit({ n }, { id: `task-${n}` })
      } catch (error) {
        if (!(error instanceof NeoTaskError && error.code === 'STORAGE_UNAVAILABLE' && error.retryable))
          throw error
        this.repeats++
        await sleep(20)
      }
    }
  }
}

test('a server that is killed and started again on its append-only file', async () => {
  const { server } = await startServer()
  const load = await Load.start(server.url)
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
  const load = await Load.start(server.url)
  for (let times = 0; times < 40; times++) {
    await control.script('FLUSH')
    await sleep(50)
  }
  await load.check('40 script flushes')
})

test.each(['normal', 'pubsub'])('connections of type %s that are killed again and again', async (type) => {
  const { server, control } = await startServer()
  const load = await Load.start(server.url)
  for (let times = 0; times < 15; times++) {
    await control.call('CLIENT', 'KILL', 'TYPE', type)
    await sleep(150)
  }
  await load.goOn()
  await load.check(`15 times killed: ${type}`)
})

test('a server that stands still for longer than a call may take', { timeout: 60_000 }, async () => {
  const { server } = await startServer()
  const load = await Load.start(server.url)
  server.pause()
  await sleep(7_000)
  server.resume()
  await load.goOn()
  await load.check('paused for 7 s')
})

test('a server that takes no writes for a while, as a replica does', async () => {
  const { server, control } = await startServer()
  const load = await Load.start(server.url)
  await control.replicaof('127.0.0.1', 1)
  await sleep(1_000)
  await control.replicaof('NO', 'ONE')
  await load.goOn()
  await load.check('READONLY for 1 s')
})

test('a server that is busy with the script of somebody else', async () => {
  const { server, control } = await startServer('--lua-time-limit', '50')
  const load = await Load.start(server.url)
  const endless = server.control()
  disposals.push(() => endless.disconnect())
  const killed = expect(endless.eval('while true do end', 0)).rejects.toThrow('killed by user')
  await sleep(1_000)
  await control.call('SCRIPT', 'KILL')
  await killed
  await load.goOn()
  await load.check('BUSY for 1 s')
})

test('a memory that is full while handlers end', async () => {
  const { server, control } = await startServer()
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
  await until('all run', () => calls === 5)
  await control.config('SET', 'maxmemory', '1')
  const producer = new TaskPool<Work, number>({ storage, concurrency: 0, callTimeout: '1s' })
  disposals.push(() => producer.close({ timeout: 0 }))
  await expect(producer.submit({ n: 6 })).rejects.toMatchObject({
    code: 'STORAGE_UNAVAILABLE',
    retryable: true,
    message: expect.stringMatching(/OOM/) as string,
  })
  finish()
  expect(await results).toEqual([1, 2, 3, 4, 5])
  expect(calls).toBe(5)
  for (const id of ids) expect(await pool.getStatus(id)).toBe('success')
  await control.config('SET', 'maxmemory', '0')
  expect(await pool.run({ n: 7 })).toBe(7)
})

test('connections that pass nothing on any more, and are not closed', { timeout: 60_000 }, async () => {
  const { server } = await startServer()
  const proxy = await startProxy(server)
  const load = await Load.start(proxy.url)
  proxy.silence()
  const begun = performance.now()
  await load.goOn(20_000)
  const found = performance.now() - begun
  expect(found).toBeLessThan(9_000)
  await load.check(`half-open, found within ${(found / 1000).toFixed(1)} s`)
})

test('replies lost and late, and calls that arrive twice', { timeout: 60_000 }, async () => {
  const { server } = await startServer()
  const proxy = await startProxy(server)
  const load = await Load.start(proxy.url)
  const fates: Fate[] = ['lose the reply', 'delay the reply', 'send twice', 'send again later']
  const tally = new Map<Fate, number>()
  proxy.fate = () => {
    if (Math.random() >= 0.01 * fates.length) return 'pass'
    const fate = fates[Math.floor(Math.random() * fates.length)] as Fate
    tally.set(fate, (tally.get(fate) ?? 0) + 1)
    return fate
  }
  await sleep(Number(process.env['NEOTASK_PROXY_SECONDS'] ?? 8) * 1000)
  proxy.fate = () => 'pass'
  await load.goOn()
  for (const fate of fates) expect(tally.get(fate), fate).toBeGreaterThan(0)
  await load.check([...tally].map(([fate, times]) => `${times}x ${fate}`).join(', '))
})

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
    await until('it is told', () => heard.includes(CHANGED), 9_000)
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
