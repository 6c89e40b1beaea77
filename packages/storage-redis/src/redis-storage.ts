/**
 * The Redis storage: one queue for any number of machines, with no leader.
 *
 * Every step is one Lua script, which Redis carries out alone, so it is atomic; time is that of the server. All keys of a
 * namespace share one hash tag, so the same works on a Cluster. What an acknowledged task survives is what Redis was
 * configured for: `appendonly`, its `appendfsync`, and replicas.
 */
import { NeoTaskError, optionError, type Clock, type Storage, type StorageInfo } from '@neotask/core'
import type { Cluster, Redis, RedisOptions } from 'ioredis'
import { Connection, unavailable } from './connection.js'
import { resolveDurability, type DurabilityOptions } from './durability.js'
import { checkNamespace, Keys } from './keys.js'
import { RedisLocks } from './redis-locks.js'
import { RedisNotices } from './redis-notices.js'
import { RedisQueue } from './redis-queue.js'
import { RedisRecords } from './redis-records.js'
import { MAX_WORK, RedisSession } from './redis-session.js'
import { RedisUpkeep } from './redis-upkeep.js'
import { checkServer, startNamespace } from './server-check.js'
import { SharedConnection } from './shared-connection.js'

/** Tasks in one `enqueue`, unless a unit is larger. */
const MAX_ENQUEUE = 200

export interface RedisStorageOptions {
  /** `redis://user:password@host:port/db`, `rediss://…` for TLS, or the path of a Unix socket. */
  readonly url?: string | undefined
  /**
   * Options of ioredis, beside `url` or instead of it: `{ host, port, username, password, db, tls, protocol }`, or
   * `{ sentinels, name }`. Storages with the same `url` and equal `options` share their connections. `keyPrefix` must be
   * empty: use `namespace`. Not taken over are `enableOfflineQueue`, `maxRetriesPerRequest`, `autoResubscribe`,
   * `autoResendUnfulfilledCommands`, `replyMapping` and `lazyConnect`, which the storage sets itself.
   */
  readonly options?: RedisOptions | undefined
  /**
   * An ioredis client of your own, stand-alone, Sentinel or Cluster, instead of `url` and `options`. It is never closed
   * by us; for messages we make a second one like it. Its `keyPrefix` must be empty: use `namespace`. How it reconnects
   * is up to you; without `socketTimeout` it does not notice a server that falls silent.
   */
  readonly client?: Redis | Cluster | undefined
  /** What all keys begin with: 1 to 64 characters of `A-Z a-z 0-9 . _ -`. Default: `'neotask'`. */
  readonly namespace?: string | undefined
  /**
   * How many replicas must have a task before its submit resolves, and a result before it counts for the node that made it.
   * A submit whose task they do not have in time rejects with `NOT_REPLICATED`. Default: none, the primary's word is enough.
   */
  readonly durability?: DurabilityOptions | undefined
  /** Whether a server that throws keys away when its memory is full is accepted. Default: false. */
  readonly allowEviction?: boolean | undefined
  /** Where its time comes from, for tests. Default: the server's clock. */
  readonly clock?: Clock | undefined
}

/** Makes a storage in a Redis server or Cluster. @example redisStorage('redis://localhost:6379') */
export function redisStorage(target: string | RedisStorageOptions): Storage {
  const options = typeof target === 'string' ? { url: target } : target
  checkOptions(options)
  return new RedisStorage(options)
}

/** Callers without types get the same errors. */
function checkOptions(options: unknown): asserts options is RedisStorageOptions {
  if (options === null || typeof options !== 'object') {
    throw optionError('url', 'the URL of a Redis server, or options', options)
  }
  const {
    url,
    options: given,
    client,
    namespace,
    allowEviction,
    durability,
  } = options as {
    [Name in keyof RedisStorageOptions]?: unknown
  }
  if (given !== undefined && (given === null || typeof given !== 'object'))
    throw optionError('options', 'options of ioredis', given)
  if (client === undefined) {
    if ((url !== undefined || given === undefined) && (typeof url !== 'string' || url === ''))
      throw optionError('url', 'the URL of a Redis server', url)
    checkPrefix('options', (given as RedisOptions | undefined)?.keyPrefix)
  } else {
    if (url !== undefined) throw optionError('url', 'nothing when a client is given', url)
    if (given !== undefined) throw optionError('options', 'nothing when a client is given', given)
    checkClient(client)
  }
  if (namespace !== undefined) checkNamespace(namespace)
  if (allowEviction !== undefined && typeof allowEviction !== 'boolean')
    throw optionError('allowEviction', 'true or false', allowEviction)
  resolveDurability(durability)
}

function checkClient(client: unknown): void {
  const { callBuffer, duplicate, options } = (client ?? {}) as {
    callBuffer?: unknown
    duplicate?: unknown
    options?: { keyPrefix?: unknown; redisOptions?: { keyPrefix?: unknown } }
  }
  if (typeof callBuffer !== 'function' || typeof duplicate !== 'function')
    throw optionError('client', 'a client of ioredis', client)
  checkPrefix('client.options', options?.keyPrefix ?? options?.redisOptions?.keyPrefix)
}

function checkPrefix(where: string, prefix: unknown): void {
  if (prefix !== undefined && prefix !== '')
    throw optionError(`${where}.keyPrefix`, 'nothing, since namespace does that', prefix)
}

const MAX_LOGS = 100

class RedisStorage implements Storage {
  readonly name = 'redis'
  readonly durable = true
  readonly limits: Storage['limits'] = { enqueue: MAX_ENQUEUE, work: MAX_WORK, flights: 2 }
  readonly queue: RedisQueue
  readonly session: RedisSession
  readonly upkeep: RedisUpkeep
  readonly records: RedisRecords
  readonly locks: RedisLocks
  readonly notices: RedisNotices
  readonly #options: RedisStorageOptions
  readonly #connection: Connection
  #shared: SharedConnection | undefined
  #opening: Promise<StorageInfo> | undefined

  constructor(options: RedisStorageOptions) {
    this.#options = options
    this.#connection = new Connection(new Keys(options.namespace ?? 'neotask'), {
      clock: options.clock,
      durability: resolveDurability(options.durability),
    })
    this.notices = new RedisNotices(this.#connection)
    this.queue = new RedisQueue(this.#connection, this.notices)
    this.session = new RedisSession(this.#connection, MAX_LOGS)
    this.upkeep = new RedisUpkeep(this.#connection)
    this.records = new RedisRecords(this.#connection)
    this.locks = new RedisLocks(this.#connection)
  }

  open(): Promise<StorageInfo> {
    this.#opening ??= this.#open().catch((error: unknown) => {
      this.#opening = undefined
      throw error
    })
    return this.#opening
  }

  async close(): Promise<void> {
    // A storage that is just opening is closed when it is open.
    const opened = await this.#opening?.catch(() => undefined)
    this.#opening = undefined
    if (opened === undefined) return
    this.notices.close()
    this.#connection.set(undefined)
    this.#shared?.release()
    this.#shared = undefined
  }

  async #open(): Promise<StorageInfo> {
    const { url, options, client, allowEviction = false, clock } = this.#options
    const shared = SharedConnection.acquire({ url, options, client })
    try {
      await shared.ready()
      const servers = await checkServer(shared.commands, { allowEviction, ownClock: clock !== undefined })
      this.#connection.set(shared)
      if (this.#connection.durability !== undefined) await this.#connection.checkWait()
      const info = await startNamespace(this.#connection, servers)
      this.#shared = shared
      return info
    } catch (error) {
      this.#connection.set(undefined)
      shared.release()
      throw error instanceof NeoTaskError ? error : unavailable('open', error)
    }
  }
}
