/** The storages that every behaviour is tested on, and what a test needs to wait for things. */
import { randomBytes } from 'node:crypto'
import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { memoryStorage, type Storage } from '@neotask/core'
import { redisStorage } from '@neotask/storage-redis'
import { sqliteStorage } from '@neotask/storage-sqlite'
import { redisUrl } from './redis-server.js'

export interface TestStorage {
  readonly name: string
  /** A fresh, empty storage, and the function that takes it away. */
  open(): Promise<{ storage: Storage; dispose: () => Promise<void> }>
}

export const STORAGES: readonly TestStorage[] = [
  {
    name: 'memory',
    async open() {
      const storage = memoryStorage()
      await storage.open()
      return { storage, dispose: () => storage.close() }
    },
  },
  {
    name: 'sqlite',
    async open() {
      const folder = await mkdtemp(join(tmpdir(), 'neotask-'))
      const storage = sqliteStorage(join(folder, 'tasks.db'))
      await storage.open()
      return {
        storage,
        dispose: async () => {
          await storage.close()
          await rm(folder, { recursive: true, force: true })
        },
      }
    },
  },
  {
    name: 'redis',
    async open() {
      const namespace = `test-${randomBytes(6).toString('hex')}`
      const storage = redisStorage({ url: await redisUrl(), namespace })
      await storage.open()
      return { storage, dispose: () => storage.close() }
    },
  },
]

/** A promise that a test settles, for handlers that must go on when the test says so. */
export interface Gate {
  readonly passed: Promise<void>
  open(): void
}

export function gate(): Gate {
  let open!: () => void
  const passed = new Promise<void>((resolve) => {
    open = resolve
  })
  return { passed, open }
}

/** Resolves when the condition holds; rejects after `ms` with what was awaited. */
export async function until(
  what: string,
  condition: () => boolean | Promise<boolean>,
  ms = 5000,
): Promise<void> {
  const end = performance.now() + ms
  while (!(await condition())) {
    if (performance.now() > end) throw new Error(`not within ${ms} ms: ${what}`)
    await new Promise((resolve) => setTimeout(resolve, 5))
  }
}
