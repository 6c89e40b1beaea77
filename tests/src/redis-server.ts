/**
 * One Redis server for each process of tests that asks for it, gone with the process. `NEOTASK_TEST_REDIS_URL` names one
 * that is there already; then only keys of the tests' own namespaces are touched.
 */
import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { mkdtempSync } from 'node:fs'
import { createServer, type AddressInfo } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { redisStorage } from '@neotask/storage-redis'

const WHAT_TO_INSTALL =
  'tests need redis-server 6.2 or newer: install it (Debian: apt-get install redis-server; macOS: brew install redis), ' +
  'or name a server that may be used in NEOTASK_TEST_REDIS_URL'

let url: Promise<string> | undefined

export function redisUrl(): Promise<string> {
  const given = process.env['NEOTASK_TEST_REDIS_URL']
  return (url ??= given === undefined ? start() : Promise.resolve(given))
}

/** A database that nothing else uses, for programs that know no namespace; of a server that is given, the one that it names. */
export async function redisDatabase(number: number): Promise<string> {
  return process.env['NEOTASK_TEST_REDIS_URL'] ?? `${await redisUrl()}/${number}`
}

async function start(): Promise<string> {
  const folder = mkdtempSync(join(tmpdir(), 'neotask-redis-'))
  const port = await freePort()
  const args = [
    '--port',
    String(port),
    '--bind',
    '127.0.0.1',
    '--databases',
    '1000',
    '--dir',
    folder,
    '--save',
    '',
  ]
  // Ends with the process of the tests however that ends, since its stdin ends then.
  const script = 'folder=$1; shift; redis-server "$@" >/dev/null & read _; kill -9 $!; rm -rf "$folder"'
  const server = spawn('sh', ['-c', script, 'sh', folder, ...args], { stdio: ['pipe', 'ignore', 'ignore'] })
  server.unref()
  const address = `redis://127.0.0.1:${port}`
  await answers(address)
  return address
}

async function freePort(): Promise<number> {
  const listener = createServer().listen(0, '127.0.0.1')
  await once(listener, 'listening')
  const { port } = listener.address() as AddressInfo
  listener.close()
  return port
}

async function answers(address: string): Promise<void> {
  const end = performance.now() + 10_000
  for (;;) {
    const storage = redisStorage(address)
    try {
      await storage.open()
      return
    } catch (error) {
      if (performance.now() > end) throw new Error(WHAT_TO_INSTALL, { cause: error })
      await new Promise((resolve) => setTimeout(resolve, 10))
    } finally {
      await storage.close()
    }
  }
}
