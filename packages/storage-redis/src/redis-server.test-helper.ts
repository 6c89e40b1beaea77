/**
 * Redis servers for tests: real processes on Unix sockets or free ports, in a temporary folder, stopped by their pid.
 * `NEOTASK_TEST_REDIS_URL` names one that is there already; then only keys of the tests' own namespaces are touched.
 */
import { ManualClock, type Opened } from '@neotask/core/testing'
import { Redis } from 'ioredis'
import { spawn, type ChildProcess } from 'node:child_process'
import { randomBytes } from 'node:crypto'
import { once } from 'node:events'
import { mkdtemp, rm } from 'node:fs/promises'
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

/** Waits until the server answers. */
export async function ready(server: ChildProcess, url: string): Promise<void> {
  const failed = new Promise<never>((_, reject) => {
    server.once('error', (cause) => reject(new Error(WHAT_TO_INSTALL, { cause })))
    server.once('exit', (code) => reject(new Error(`redis-server ended with ${code}`)))
  })
  failed.catch(() => undefined)
  const client = new Redis(url, { retryStrategy: () => 5, maxRetriesPerRequest: null })
  client.on('error', () => undefined)
  try {
    await Promise.race([client.ping(), failed])
  } finally {
    client.disconnect()
  }
}

/** A fresh storage on the server, with a clock that a test moves. */
export async function openOn(server: TestServer): Promise<Opened> {
  const clock = new ManualClock()
  const namespace = `test-${randomBytes(6).toString('hex')}`
  const options = { url: server.url, namespace, clock }
  const storage = redisStorage(options)
  return {
    storage,
    advance: async (ms) => clock.advance(ms),
    peer: async () => redisStorage(options),
    close: async () => {
      await storage.close()
      await forget(server.url, namespace)
    },
  }
}

async function forget(url: string, namespace: string): Promise<void> {
  const client = new Redis(url)
  for await (const keys of client.scanStream({ match: `{${namespace}.*`, count: 1000 }))
    if ((keys as string[]).length > 0) await client.unlink(...(keys as string[]))
  client.disconnect()
}
