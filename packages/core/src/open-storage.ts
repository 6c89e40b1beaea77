/** From a URL to a storage. Drivers are packages of their own, imported by name when they are asked for. */
import { NeoTaskError, optionError } from './errors.js'
import { memoryStorage } from './memory-storage.js'
import type { Storage } from './storage.js'

interface Driver {
  /** The package, and the factory that it exports. */
  readonly package: string
  readonly factory: string
  /** What the factory is given. */
  argument(url: string): string
}

const DRIVERS: Readonly<Record<string, Driver>> = {
  sqlite: {
    package: '@neotask/storage-sqlite',
    factory: 'sqliteStorage',
    argument: (url) => url.slice('sqlite:'.length).replace(/^\/\/(?=\/)/, ''),
  },
  redis: { package: '@neotask/storage-redis', factory: 'redisStorage', argument: (url) => url },
  rediss: { package: '@neotask/storage-redis', factory: 'redisStorage', argument: (url) => url },
}

/**
 * Opens the storage that a URL names: `memory:`, `sqlite:./tasks.db`, `sqlite:///var/lib/tasks.db`,
 * `redis://localhost:6379`, `rediss://…` for TLS.
 *
 * Rejects `OPTION_INVALID` for what is no such URL, or when the driver's package is not installed; it says which.
 * The caller closes it.
 */
export async function openStorage(url: string): Promise<Storage> {
  const storage = await createStorage(url)
  await storage.open()
  return storage
}

async function createStorage(url: string): Promise<Storage> {
  if (typeof url !== 'string') throw optionError('storage', EXPECTED, url)
  if (url === 'memory:') return memoryStorage()
  const driver = DRIVERS[/^([a-z]+):./.exec(url)?.[1] ?? '']
  if (driver === undefined) throw optionError('storage', EXPECTED, url)
  const module = await importDriver(driver, url)
  const factory = module[driver.factory] as (argument: string) => Storage
  return factory(driver.argument(url))
}

const EXPECTED = "'memory:' or a URL such as 'sqlite:./tasks.db'"

async function importDriver(driver: Driver, url: string): Promise<Record<string, unknown>> {
  try {
    return (await import(driver.package)) as Record<string, unknown>
  } catch (cause) {
    if ((cause as NodeJS.ErrnoException).code !== 'ERR_MODULE_NOT_FOUND') throw cause
    const message = `storage: ${JSON.stringify(url)} needs the package ${driver.package}; install it with: npm install ${driver.package}`
    throw new NeoTaskError('OPTION_INVALID', message, { cause })
  }
}
