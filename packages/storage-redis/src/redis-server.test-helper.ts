/**
 * Redis servers for tests: real processes on Unix sockets or free ports, in a temporary folder, stopped by their pid.
 * `NEOTASK_TEST_REDIS_URL` names one that is there already; then only keys of the tests' own namespaces are touched.
 */
import { systemClock, type Storage } from '@neotask/core'
import { ManualClock, type Opened } from '@neotask/core/testing'
import { Cluster, Redis, type RedisOptions } from 'ioredis'
import { spawn, type ChildProcess } from 'node:child_process'
import { randomBytes } from 'node:crypto'
import { once } from 'node:events'
import { mkdir, mkdtemp, rm } from 'node:fs/promises'
import { createServer, type AddressInfo, type Server } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { redisStorage } from './index.js'

const WHAT_TO_INSTALL =
  'these tests need redis-server 6.2 or newer: install it (Debian: apt-get install redis-server; macOS: brew install redis), ' +
  'or name a server that may be used in NEOTASK_TEST_REDIS_URL'

export interface TestServer {
  readonly url: string
  stop(): Promise<void>
}

/** @param args more arguments of redis-server */
export async function startServer(args: readonly string[] = []): Promise<TestServer> {
  const given = process.env['NEOTASK_TEST_REDIS_URL']
  if (given !== undefined && args.length === 0) return { url: given, stop: async () => undefined }
  const folder = await mkdtemp(join(tmpdir(), 'neotask-redis-'))
  const url = join(folder, 'redis.sock')
  const fixed = ['--port', '0', '--unixsocket', url, '--dir', folder, '--save', '', '--appendonly', 'no']
  const server = spawn('redis-server', [...fixed, ...args], { stdio: 'ignore' })
  try {
    await ready(server, url)
  } catch (error) {
    await rm(folder, { recursive: true, force: true })
    throw error
  }
  return {
    url,
    stop: async () => {
      const ended = once(server, 'exit')
      server.kill('SIGKILL')
      await ended
      await rm(folder, { recursive: true, force: true })
    },
  }
}

/** Waits until the server answers. @param tls for a server that speaks it */
export async function ready(server: ChildProcess, url: string, tls?: RedisOptions['tls']): Promise<void> {
  const failed = new Promise<never>((_, reject) => {
    server.once('error', (cause) => reject(new Error(WHAT_TO_INSTALL, { cause })))
    server.once('exit', (code) => reject(new Error(`redis-server ended with ${code}`)))
  })
  failed.catch(() => undefined)
  const client = new Redis(url, { retryStrategy: () => 5, maxRetriesPerRequest: null, ...(tls && { tls }) })
  client.on('error', () => undefined)
  try {
    await Promise.race([client.ping(), failed])
  } finally {
    client.disconnect()
  }
}

export interface TestCluster {
  /** A client that reaches all of its servers; the caller disconnects it. */
  connect(): Cluster
  stop(): Promise<void>
}

const SLOTS = 16_384

/** A cluster of three masters on free ports. */
export async function startCluster(): Promise<TestCluster> {
  const folder = await mkdtemp(join(tmpdir(), 'neotask-redis-'))
  const servers: ChildProcess[] = []
  const stop = async (): Promise<void> => {
    for (const server of servers) {
      const ended = once(server, 'exit')
      if (server.kill('SIGKILL')) await ended
    }
    await rm(folder, { recursive: true, force: true })
  }
  try {
    const ports = await freePorts(3)
    for (const port of ports) {
      const own = join(folder, String(port))
      await mkdir(own)
      const args = [
        '--port',
        String(port),
        '--bind',
        '127.0.0.1',
        '--dir',
        own,
        '--save',
        '',
        '--appendonly',
        'no',
      ]
      const server = spawn('redis-server', [...args, '--cluster-enabled', 'yes'], { stdio: 'ignore' })
      servers.push(server)
      await ready(server, `redis://127.0.0.1:${port}`)
    }
    await joinNodes(ports)
    const connect = (): Cluster => {
      const cluster = new Cluster(ports.map((port) => ({ host: '127.0.0.1', port })))
      cluster.on('error', () => undefined)
      return cluster
    }
    return { connect, stop }
  } catch (error) {
    await stop()
    throw error
  }
}

/** Gives each server a third of the slots, and waits until all know of all. */
async function joinNodes(ports: readonly number[]): Promise<void> {
  const clients = ports.map((port) => new Redis(port, '127.0.0.1'))
  try {
    for (const [index, client] of clients.entries()) {
      const [from, to] = [index, index + 1].map((part) => Math.floor((part * SLOTS) / ports.length)) as [
        number,
        number,
      ]
      await client.cluster('ADDSLOTS', ...Array.from({ length: to - from }, (_, slot) => from + slot))
      await client.cluster('MEET', '127.0.0.1', ports[0] as number)
    }
    for (const client of clients) {
      while (!/cluster_state:ok[^]*cluster_known_nodes:3/.test(await client.cluster('INFO')))
        await new Promise<void>((resolve) => systemClock.after(20, resolve, { hold: true }))
    }
  } finally {
    for (const client of clients) client.disconnect()
  }
}

/** Whose second port, 10 000 further on, is one too. */
export async function freePorts(count: number): Promise<number[]> {
  const listeners: Server[] = []
  const ports: number[] = []
  while (ports.length < count) {
    const listener = createServer().listen(0, '127.0.0.1')
    listeners.push(listener)
    await once(listener, 'listening')
    const { port } = listener.address() as AddressInfo
    if (port < 55_000) ports.push(port)
  }
  for (const listener of listeners) listener.close()
  return ports
}

/** A fresh storage on the server, with a clock that a test moves. */
export async function openOn(server: TestServer, options?: RedisOptions): Promise<Opened> {
  return opened((common) => redisStorage({ url: server.url, options, ...common }), [new Redis(server.url)])
}

/** The same by clients of the test's own. */
export async function openOnCluster(cluster: TestCluster): Promise<Opened> {
  const client = cluster.connect()
  await client.ping()
  return opened((common) => redisStorage({ client, ...common }), client.nodes('master'), client)
}

function opened(
  make: (common: { namespace: string; clock: ManualClock }) => Storage,
  servers: readonly Redis[],
  client?: Cluster,
): Opened {
  const clock = new ManualClock()
  const namespace = `test-${randomBytes(6).toString('hex')}`
  const storage = make({ namespace, clock })
  return {
    storage,
    advance: async (ms) => clock.advance(ms),
    peer: async () => make({ namespace, clock }),
    // Another process passes them on, when it finds the time.
    messageDelay: 500,
    close: async () => {
      await storage.close()
      for (const server of servers) await forget(server, namespace)
      if (client) client.disconnect()
      else for (const server of servers) server.disconnect()
    },
  }
}

async function forget(server: Redis, namespace: string): Promise<void> {
  for await (const keys of server.scanStream({ match: `{${namespace}.*`, count: 1000 }))
    if ((keys as string[]).length > 0) await server.unlink(...(keys as string[]))
}
