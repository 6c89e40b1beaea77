/** The records face. */
import {
  checkPut,
  type DueQuery,
  type DueReply,
  type Encoded,
  type PutOptions,
  type RecordPut,
  type RecordQuery,
  type RecordsFace,
  type StoredRecord,
} from '@neotask/core'
import type { Connection } from './connection.js'
import {
  deleteRecord,
  getRecord,
  putRecord,
  RECORD_COLUMNS,
  storedFrom,
  type StoredTuple,
} from './record-store.js'

const MAX_PAGE = 500
/** Other records of a group among which the next of a prefix is looked for. */
const MAX_LOOK = 100
/** Bytes of the values of a claim, unless it says how many. */
const CLAIM_BYTES = 1024 * 1024

const BY_KEY = `SELECT ${RECORD_COLUMNS} FROM neotask_records WHERE tenant = ? AND key > ? AND key >= ?
  AND (expires IS NULL OR expires > ?) ORDER BY key LIMIT ?`
const BY_LABEL = `SELECT ${RECORD_COLUMNS.split(', ')
  .map((column) => `r.${column}`)
  .join(', ')} FROM neotask_labels l
  JOIN neotask_records r ON r.tenant = l.tenant AND r.key = l.key WHERE l.tenant = ? AND l.label = ? AND l.key > ?
  AND l.key >= ? AND (r.expires IS NULL OR r.expires > ?) ORDER BY l.key LIMIT ?`
// As the index on what is due has it.
const GROUP = `substr(key, 1, instr(key, '/'))`
// substr and length count characters, so that no character of the prefix means anything else. Values are large, and read only
// of what is taken.
const due = (group: string): string =>
  `SELECT r, octet_length(value) FROM neotask_records WHERE tenant = ? ${group} AND due <= ?
  AND (expires IS NULL OR expires > ?) AND substr(key, 1, length(?)) = ? ORDER BY due, key LIMIT ?`
// Of what is due later the first with the prefix, and the last of all that were looked at.
const next = (group: string): string =>
  `SELECT min(CASE WHEN own THEN due END), max(due), count(*) FROM (
  SELECT due, substr(key, 1, length(?)) = ? AS own FROM neotask_records
  WHERE tenant = ? ${group} AND due > ? AND (expires IS NULL OR expires > ?) ORDER BY due LIMIT ${MAX_LOOK})`
const IN_GROUP = `AND ${GROUP} = ?`
const DUE = { inGroup: due(IN_GROUP), anywhere: due('') }
const NEXT = { inGroup: next(IN_GROUP), anywhere: next('') }
const LEASE = `UPDATE neotask_records SET due = ?, version = version + 1 WHERE r = ? RETURNING ${RECORD_COLUMNS}`

export class SqliteRecords implements RecordsFace {
  readonly #connection: Connection

  constructor(connection: Connection) {
    this.#connection = connection
  }

  get(tenant: string, key: string): Promise<StoredRecord | undefined> {
    const { database } = this.#connection
    return database.patiently(() =>
      database.read(() => getRecord(database, tenant, key, database.clock.now())),
    )
  }

  async put(
    tenant: string,
    key: string,
    value: Encoded,
    options: PutOptions = {},
  ): Promise<number | 'conflict'> {
    checkPut(options)
    const { database } = this.#connection
    return await database.patiently(() =>
      database.write(() => putRecord(database, tenant, key, value, options, database.clock.now())),
    )
  }

  async putAll(tenant: string, puts: readonly RecordPut[]): Promise<(number | 'conflict')[]> {
    for (const [index, { options }] of puts.entries()) checkPut(options, `puts[${index}].options.`)
    const { database } = this.#connection
    return await database.patiently(() =>
      database.write(() => {
        const now = database.clock.now()
        return puts.map(({ key, value, options = {} }) =>
          putRecord(database, tenant, key, value, options, now),
        )
      }),
    )
  }

  delete(tenant: string, key: string, options: { ifVersion?: number } = {}): Promise<boolean> {
    const { database } = this.#connection
    return database.patiently(() =>
      database.write(() => {
        const record = getRecord(database, tenant, key, database.clock.now())
        if (!record || (options.ifVersion !== undefined && options.ifVersion !== record.version)) return false
        return deleteRecord(database, tenant, key)
      }),
    )
  }

  list(tenant: string, query: RecordQuery): Promise<{ records: StoredRecord[]; cursor?: string }> {
    const { database } = this.#connection
    const { prefix = '', label, cursor = '' } = query
    const limit = Math.max(1, Math.min(query.limit, MAX_PAGE))
    return database.patiently(() =>
      database.read(() => {
        const now = database.clock.now()
        const found =
          label === undefined
            ? database.all<StoredTuple>(BY_KEY, tenant, cursor, prefix, now, limit + 1)
            : database.all<StoredTuple>(BY_LABEL, tenant, label, cursor, prefix, now, limit + 1)
        const matching = found.filter(([key]) => key.startsWith(prefix))
        const records = matching.slice(0, limit).map(storedFrom)
        const last = records.at(-1)
        return matching.length > limit && last ? { records, cursor: last.key } : { records }
      }),
    )
  }

  claimDue(tenant: string, query: DueQuery): Promise<DueReply> {
    const { database } = this.#connection
    const { prefix = '', limit, leaseMs, maxBytes = CLAIM_BYTES } = query
    const group = prefix.slice(0, prefix.indexOf('/') + 1)
    const which = group === '' ? 'anywhere' : 'inGroup'
    const place = group === '' ? [tenant] : [tenant, group]
    const look = (now: number, most: number) =>
      database.all<[r: number, bytes: number]>(DUE[which], ...place, now, now, prefix, prefix, most)
    const nextDueIn = (now: number): number | undefined => {
      const found = database.get<[own: number | null, last: number | null, count: number]>(
        NEXT[which],
        prefix,
        prefix,
        ...place,
        now,
        now,
      )
      const [own = null, last = null, count = 0] = found ?? []
      const dueAt = own ?? (count === MAX_LOOK ? last : null)
      return dueAt === null ? undefined : dueAt - now
    }
    return database.patiently(() => {
      // Most looks find nothing, and need not write.
      const idle = database.read((): DueReply | undefined => {
        const now = database.clock.now()
        if (look(now, 1).length === 0) return { records: [], now, nextDueIn: nextDueIn(now) }
        return limit === 0 ? { records: [], now, nextDueIn: 0 } : undefined
      })
      if (idle !== undefined) return idle
      return database.write((): DueReply => {
        const now = database.clock.now()
        const dueAt = Math.ceil(now + leaseMs)
        // One more, to know whether there is more.
        const due = look(now, limit + 1)
        const records: StoredRecord[] = []
        let left = maxBytes
        for (const [r, bytes] of due) {
          left -= bytes
          if (records.length >= limit || (left < 0 && records.length > 0)) break
          records.push(storedFrom(database.get<StoredTuple>(LEASE, dueAt, r) as StoredTuple))
        }
        return { records, now, nextDueIn: due.length > records.length ? 0 : nextDueIn(now) }
      })
    })
  }
}
