/** The locks face. The row of a released lock stays a day, so that its fencing numbers grow. */
import type { LocksFace } from '@neotask/core'
import type { Connection } from './connection.js'

const GET = 'SELECT owner, fence, until FROM neotask_locks WHERE tenant = ? AND key = ?'
const PUT = `INSERT INTO neotask_locks VALUES (?, ?, ?, ?, ?) ON CONFLICT (tenant, key) DO UPDATE SET owner = excluded.owner,
  fence = excluded.fence, until = excluded.until`
const EXTEND = 'UPDATE neotask_locks SET until = ? WHERE tenant = ? AND key = ? AND owner = ? AND until > ?'
const RELEASE =
  'UPDATE neotask_locks SET owner = NULL, until = ? WHERE tenant = ? AND key = ? AND owner = ? AND until > ?'

type LockTuple = [owner: string | null, fence: number, until: number]

export class SqliteLocks implements LocksFace {
  readonly #connection: Connection

  constructor(connection: Connection) {
    this.#connection = connection
  }

  acquire(
    tenant: string,
    key: string,
    owner: string,
    ttl: number,
  ): Promise<{ readonly fence: number } | undefined> {
    const { database } = this.#connection
    return database.patiently(() =>
      database.write(() => {
        const now = database.clock.now()
        const [holder, last, until] = database.get<LockTuple>(GET, tenant, key) ?? [null, 0, 0]
        if (holder !== null && until > now) return undefined
        const fence = Math.max(last + 1, now * 1000)
        database.run(PUT, tenant, key, owner, fence, Math.ceil(now + ttl))
        return { fence }
      }),
    )
  }

  extend(tenant: string, key: string, owner: string, ttl: number): Promise<boolean> {
    const { database } = this.#connection
    const { clock } = database
    return database.patiently(() =>
      database.write(
        () => database.run(EXTEND, Math.ceil(clock.now() + ttl), tenant, key, owner, clock.now()) > 0,
      ),
    )
  }

  release(tenant: string, key: string, owner: string): Promise<boolean> {
    const { database } = this.#connection
    return database.patiently(() =>
      database.write(() => {
        const now = database.clock.now()
        return database.run(RELEASE, now, tenant, key, owner, now) > 0
      }),
    )
  }
}
