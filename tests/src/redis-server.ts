/**
 * One Redis server for each process of tests that asks for it, gone with the process. `NEOTASK_TEST_REDIS_URL` names one
 * that is there already; then only keys of the tests' own namespaces are touched.
 */
import { spawn } from 'node:child_process'
import { mkdtempSync } from 'node:fs'
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

async function start(): Promise<string> {
  const folder = mkdtempSync(join(tmpdir(), 'neotask-redis-'))
  const socket = join(folder, 'redis.sock')
  const args = ['--port', '0', '--unixsocket', socket, '--dir', folder, '--save', '', '--appendonly', 'no']
  // Ends with the process of the tests however that ends, since its stdin ends then.
  const script = 'folder=$1; shift; redis-server "$@" >/dev/null & read _; kill -9 $!; rm -rf "$folder"'
  const server = spawn('sh', ['-c', script, 'sh', folder, ...args], { stdio: ['pipe', 'ignore', 'ignore'] })
  server.unref()
  await answers(socket)
  return socket
}

async function answers(socket: string): Promise<void> {
  const end = performance.now() + 10_000
  for (;;) {
    const storage = redisStorage(socket)
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
