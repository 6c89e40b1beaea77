/**
 * Where the demo keeps its tasks: a file for each folder read, in the user's cache, or the storage that the user names; and
 * in it a queue for each folder and each time that somebody started over.
 */
import { isFinal, TASK_STATES, type QueueRef, type Storage } from '@neotask/core'
import { createHash } from 'node:crypto'
import { access, constants, mkdir } from 'node:fs/promises'
import { homedir, tmpdir } from 'node:os'
import { basename, join } from 'node:path'

/** The tenant that pools work for. */
const TENANT = 'default'
const PAGE = 200

/** The URL of the file for this folder; a second start finds the same one. Creates the folder that it is in. */
export async function defaultStorage(root: string): Promise<string> {
  const name =
    basename(root)
      .replace(/[^\w.-]/g, '_')
      .slice(0, 40) || 'root'
  const file = `${name}-${digest(root)}.db`
  const folder = join(cacheFolder(), 'neotask-demo')
  try {
    await mkdir(folder, { recursive: true, mode: 0o700 })
    await access(folder, constants.W_OK)
    return `sqlite:${join(folder, file)}`
  } catch {
    // No home, or a read-only one.
    const spare = join(tmpdir(), `neotask-demo-${process.getuid?.() ?? 'user'}`)
    await mkdir(spare, { recursive: true, mode: 0o700 })
    return `sqlite:${join(spare, file)}`
  }
}

/** The files that a storage URL stands for, which must not be read as if they were the user's. */
export function filesOf(url: string): string[] {
  if (!url.startsWith('sqlite:')) return []
  const file = url.slice('sqlite:'.length)
  return ['', '-wal', '-shm', '-journal'].map((suffix) => file + suffix)
}

/** A storage URL as it may be shown. */
export function withoutPassword(url: string): string {
  if (!/^rediss?:/.test(url)) return url
  const shown = new URL(url)
  if (shown.password !== '') shown.password = '***'
  return shown.href
}

/** The queue for the tasks of this folder. */
export async function currentQueue(storage: Storage, root: string): Promise<string> {
  const { round } = await readRound(storage, root)
  return queueName(root, round)
}

/**
 * Starts over: a new, empty queue for the folder, and every trace of the old one removed.
 *
 * Removing alone would not do, since the ids of removed tasks stay taken for a day.
 */
export async function freshQueue(storage: Storage, root: string): Promise<string> {
  const { round, version } = await readRound(storage, root)
  // Should somebody else start over at this very moment, theirs is as fresh.
  await storage.records.put(TENANT, roundKey(root), String(round + 1), { ifVersion: version })
  await clear(storage, { tenant: TENANT, queue: queueName(root, round) })
  return await currentQueue(storage, root)
}

async function clear(storage: Storage, ref: QueueRef): Promise<void> {
  // What is open is cancelled first: then it can be removed like the rest.
  const states = [...TASK_STATES].sort((a, b) => Number(isFinal(a)) - Number(isFinal(b)))
  for (const state of states) {
    for (let changed = true; changed;) {
      const { tasks } = await storage.queue.list(ref, { state, limit: PAGE })
      const ids = tasks.map(({ id }) => id)
      const outcomes = isFinal(state)
        ? await storage.queue.remove(ref, ids)
        : await storage.queue.cancel(ref, ids)
      changed = outcomes.includes('done')
    }
  }
}

async function readRound(storage: Storage, root: string): Promise<{ round: number; version: number }> {
  const record = await storage.records.get(TENANT, roundKey(root))
  return { round: record === undefined ? 1 : Number(record.value), version: record?.version ?? 0 }
}

const roundKey = (root: string): string => `demo:${digest(root)}`

const queueName = (root: string, round: number): string => `demo.${digest(root)}.${round}`

const digest = (text: string): string => createHash('sha256').update(text).digest('hex').slice(0, 16)

function cacheFolder(): string {
  if (process.platform === 'darwin') return join(homedir(), 'Library', 'Caches')
  if (process.platform === 'win32') return process.env['LOCALAPPDATA'] ?? tmpdir()
  // An empty value counts as none; a relative one is to be ignored, says the XDG specification.
  const { XDG_CACHE_HOME: given = '' } = process.env
  return given.startsWith('/') ? given : join(homedir(), '.cache')
}
