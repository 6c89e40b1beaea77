/** Connections by TLS, to a server whose certificate is made for the test. */
import { TaskPool } from '@neotask/core'
import { execFile, spawn } from 'node:child_process'
import { once } from 'node:events'
import { mkdtemp, readFile, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { promisify } from 'node:util'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { redisStorage } from './index.js'
import { freePorts, ready } from './redis-server.test-helper.js'

const WHAT_TO_INSTALL =
  'this test needs openssl: install it (Debian: apt-get install openssl; macOS: brew install openssl)'

let url: string
let ca: string
let otherCa: string
const disposals: (() => Promise<unknown>)[] = []

beforeAll(async () => {
  const folder = await mkdtemp(join(tmpdir(), 'neotask-tls-'))
  disposals.push(() => rm(folder, { recursive: true }))
  const file = (name: string): string => join(folder, name)
  const openssl = (...args: string[]): Promise<unknown> =>
    promisify(execFile)('openssl', args).catch((cause: unknown) => {
      throw (cause as NodeJS.ErrnoException).code === 'ENOENT' ? new Error(WHAT_TO_INSTALL, { cause }) : cause
    })
  const key = (name: string): string[] => ['-newkey', 'rsa:2048', '-nodes', '-keyout', file(`${name}.key`)]
  for (const name of ['ca', 'other'])
    await openssl(
      'req',
      '-x509',
      ...key(name),
      '-out',
      file(`${name}.crt`),
      '-days',
      '1',
      '-subj',
      `/CN=${name}`,
    )
  await openssl('req', ...key('server'), '-out', file('server.csr'), '-subj', '/CN=server')
  await writeFile(file('names'), 'subjectAltName=IP:127.0.0.1')
  const by = ['-CA', file('ca.crt'), '-CAkey', file('ca.key'), '-CAcreateserial', '-extfile', file('names')]
  await openssl('x509', '-req', '-in', file('server.csr'), ...by, '-out', file('server.crt'), '-days', '1')
  ca = await readFile(file('ca.crt'), 'utf8')
  otherCa = await readFile(file('other.crt'), 'utf8')

  const [port] = await freePorts(1)
  const secure = ['--tls-cert-file', file('server.crt'), '--tls-key-file', file('server.key')]
  const trust = ['--tls-ca-cert-file', file('ca.crt'), '--tls-auth-clients', 'no']
  const place = [
    '--port',
    '0',
    '--tls-port',
    String(port),
    '--bind',
    '127.0.0.1',
    '--dir',
    folder,
    '--save',
    '',
  ]
  const server = spawn('redis-server', [...place, ...secure, ...trust], { stdio: 'ignore' })
  disposals.push(async () => {
    const ended = once(server, 'exit')
    if (server.kill('SIGKILL')) await ended
  })
  url = `rediss://127.0.0.1:${port}`
  await ready(server, url, { ca })
})

afterAll(async () => {
  for (const dispose of disposals.splice(0).reverse()) await dispose()
})

test('a pool works by TLS, calls and messages alike', async () => {
  const storages = ['producer', 'worker'].map((connectionName) =>
    redisStorage({ url, options: { tls: { ca }, connectionName } }),
  )
  const [producer, worker] = storages.map(
    (storage) => new TaskPool({ storage, executor: (n: number) => n + 1, autoStart: false }),
  ) as [TaskPool<number, number>, TaskPool<number, number>]
  for (const storage of storages) await storage.open()
  await worker.start()
  expect(await Promise.all([1, 2, 3].map((n) => producer.run(n)))).toEqual([2, 3, 4])
  for (const pool of [producer, worker]) await pool.close()
  for (const storage of storages) await storage.close()
})

test.each([
  ['of another authority', () => ({ ca: otherCa }), /certificate/],
  ['of an authority that nobody has named', () => ({}), /certificate/],
  ['of another name', () => ({ ca, servername: 'other.example' }), /altnames/],
])('a certificate %s is refused, and that is said at once', async (_, tls, message) => {
  const storage = redisStorage({ url, options: { tls: tls() } })
  const began = performance.now()
  await expect(storage.open()).rejects.toMatchObject({
    code: 'STORAGE_UNAVAILABLE',
    retryable: false,
    message: expect.stringMatching(/not trusted/) as string,
    cause: expect.objectContaining({ message: expect.stringMatching(message) as string }) as Error,
  })
  // Otherwise it tries for as long as a connection may take.
  expect(performance.now() - began).toBeLessThan(1_500)
})
