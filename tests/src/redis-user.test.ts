/** The rights that the guide gives a user are all that NeoTask needs, and no more. */
import { readdirSync, readFileSync } from 'node:fs'
import { randomBytes } from 'node:crypto'
import { join } from 'node:path'
import { TaskPool, type Storage } from '@neotask/core'
import { redisStorage } from '@neotask/storage-redis'
import { Redis } from 'ioredis'
import { afterEach, beforeEach, expect, test } from 'vitest'
import { root } from './docs-pages.js'
import { redisUrl } from './redis-server.js'

const page = readFileSync(join(root, 'docs', 'guide', 'cluster.md'), 'utf8')
const rules = /^ACL SETUSER neotask (.+)$/m.exec(page)?.[1] ?? ''
/** What the driver calls besides its scripts, and ioredis when it connects. */
const CALLED = ['evalsha', 'eval', 'info', 'ping', 'select', 'publish', 'subscribe', 'unsubscribe']
const REF = { tenant: 'default', queue: 'default' }

let admin: Redis
let name: string
let storage: Storage

beforeEach(async () => {
  admin = new Redis(await redisUrl())
  name = `test-${randomBytes(6).toString('hex')}`
  const own = rules.replace('~{neotask.0}:*', `~{${name}.0}:*`).replace('&neotask:*', `&${name}:*`)
  await admin.call('ACL', 'SETUSER', name, ...own.split(' '))
  const url = new URL(await redisUrl())
  url.username = name
  url.password = 'password'
  storage = redisStorage({ url: url.href, namespace: name })
})

afterEach(async () => {
  await storage.close()
  await admin.call('ACL', 'DELUSER', name)
  admin.disconnect()
})

test('are the commands of the scripts and of the driver, no more and no fewer', async () => {
  const known = new Set(((await admin.call('COMMAND')) as [string][]).map(([command]) => command))
  const folder = join(root, 'packages', 'storage-redis', 'src', 'lua')
  const scripts = readdirSync(folder).map((file) => readFileSync(join(folder, file), 'utf8'))
  const words = scripts.flatMap((script) =>
    [...script.matchAll(/'([A-Z]+)'/g)].map(([, word = '']) => word.toLowerCase()),
  )
  const driver = readFileSync(join(folder, '..', 'server-check.ts'), 'utf8')
  const calls = [...driver.matchAll(/client\.(h\w+)\(/g)].map(([, call = '']) => call)
  const needed = new Set([...words.filter((word) => known.has(word)), ...calls, ...CALLED])
  const given = rules.split(' ').filter((rule) => rule.startsWith('+'))
  expect(given.map((rule) => rule.slice(1)).sort()).toEqual([...needed].sort())
})

test('let a pool do everything', async () => {
  const pool = new TaskPool({
    storage,
    retry: false,
    executor: (what: string) => {
      if (what === 'fail') throw new Error('as asked')
      return what
    },
  })
  await storage.open()
  // The scripts are not there: they are sent as text, too.
  await admin.script('FLUSH')
  expect(await pool.run('a')).toBe('a')
  const first = await pool.submit('first')
  expect(await pool.run('second', { after: first })).toBe('second')
  await expect(pool.run('fail', { id: 'failed' })).rejects.toThrow('as asked')
  await pool.retry('failed')
  const later = await pool.submit('later', { delay: '1h', expiresIn: '2h', group: 'g' })
  await pool.promote(later)
  await pool.waitForResult(later)
  const held = await pool.submit('held', { hold: true, group: 'g' })
  await pool.complete(held, 'completed')
  const debounce = { key: 'k', wait: '1h' }
  const waiting = await pool.submit('one', { debounce })
  expect(await pool.submit('two', { debounce })).toBe(waiting)
  await pool.pause()
  const idle = await pool.submit('idle')
  await pool.reprioritize(idle, 7)
  await pool.cancel(idle)
  await pool.remove(idle)
  await pool.resume()
  await storage.queue.setGroup(REF, 'g', { paused: true, cancelled: true })
  for (const state of ['pending', 'running', 'success', 'failed'] as const)
    await pool.list({ state, limit: 1 })
  await pool.list({ state: 'success', group: 'g' })
  await pool.explain(waiting)
  expect(await pool.getNodes()).toHaveLength(1)
  await storage.queue.history(REF, { from: 0, to: Date.now() })
  await storage.queue.errors(REF, { limit: 10 })
  await storage.records.put('default', 'key', 'value', { dueIn: 1, expiresIn: 60_000, labels: ['label'] })
  await storage.records.list('default', { label: 'label', limit: 10 })
  await storage.records.claimDue('default', { limit: 10, leaseMs: 1000 })
  await storage.records.delete('default', 'key')
  await storage.upkeep.reclaim(10)
  await storage.upkeep.drain(REF, 10)
  await storage.upkeep.prune(REF, { success: { age: 0, count: 0 }, failed: { age: 0, count: 0 } }, 10)
  await storage.upkeep.reconcile(REF, 10)
  const lock = await pool.locks.acquire('lock', '1m')
  expect(await lock?.extend('1m')).toBe(true)
  expect(await lock?.release()).toBe(true)
  await pool.close()

  const log = (await admin.call('ACL', 'LOG', '128')) as (string | number)[][]
  const refused = log.map(
    (entry) => new Map(entry.flatMap((key, i) => (i % 2 === 0 ? [[key, entry[i + 1]]] : []))),
  )
  const own = refused.filter((entry) => entry.get('username') === name).map((entry) => entry.get('object'))
  // How ioredis introduces itself.
  const introductions = ['client', 'client|setinfo', 'client|setname']
  expect(own.filter((object) => !introductions.includes(String(object)))).toEqual([])
})

test('reach no other namespace', async () => {
  await storage.open()
  const url = new URL(await redisUrl())
  url.username = name
  url.password = 'password'
  const other = redisStorage({ url: url.href, namespace: 'other' })
  await expect(other.open()).rejects.toThrow('NOPERM')
})
