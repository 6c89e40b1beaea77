/** Locks: taken, made longer and released by comparing the owner, with a fencing number that grows for ever. */
import type { LocksFace } from '@neotask/core'
import type { Connection } from './connection.js'
import { escapeName } from './keys.js'
import { textOf } from './reply.js'

export class RedisLocks implements LocksFace {
  readonly #connection: Connection

  constructor(connection: Connection) {
    this.#connection = connection
  }

  async acquire(
    tenant: string,
    key: string,
    owner: string,
    ttl: number,
  ): Promise<{ fence: number } | undefined> {
    const fence = textOf(await this.#run(tenant, key, ['acquire', owner, Math.ceil(ttl)]))
    return fence === '' ? undefined : { fence: Number(fence) }
  }

  async extend(tenant: string, key: string, owner: string, ttl: number): Promise<boolean> {
    return (await this.#run(tenant, key, ['extend', owner, Math.ceil(ttl)])) === 1
  }

  async release(tenant: string, key: string, owner: string): Promise<boolean> {
    return (await this.#run(tenant, key, ['release', owner, 0])) === 1
  }

  #run(tenant: string, key: string, rest: readonly (string | number)[]) {
    return this.#connection.run('lock', [`${escapeName(tenant)}/${escapeName(key)}`, ...rest])
  }
}
