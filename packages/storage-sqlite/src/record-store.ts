/**
 * Records as rows: what the records face and the registration of nodes have in common. All inside a transaction.
 */
import type { Encoded, PutOptions, StoredRecord } from '@neotask/core'
import type { Database } from './database.js'
import { encoded, type Stored } from './layout.js'

const COLUMNS = 'key, value, version, labels, due, expires'
const GET = `SELECT ${COLUMNS} FROM neotask_records WHERE tenant = ? AND key = ? AND (expires IS NULL OR expires > ?)`
const PUT = `INSERT INTO neotask_records (tenant, key, value, version, labels, due, expires) VALUES (?, ?, ?, ?, ?, ?, ?)
  ON CONFLICT (tenant, key) DO UPDATE SET value = excluded.value, version = excluded.version, labels = excluded.labels,
  due = excluded.due, expires = excluded.expires`
const DELETE = 'DELETE FROM neotask_records WHERE tenant = ? AND key = ? RETURNING version'
// The highest version of a record that was removed.
const REMOVED = `INSERT INTO neotask_meta VALUES ('version', ?) ON CONFLICT (key) DO UPDATE SET value = max(value, excluded.value)`
const LAST = `SELECT max(coalesce((SELECT value FROM neotask_meta WHERE key = 'version'), 0),
  coalesce((SELECT version FROM neotask_records WHERE tenant = ? AND key = ?), 0))`
const UNLABEL = 'DELETE FROM neotask_labels WHERE tenant = ? AND label = ? AND key = ?'
const LABEL = 'INSERT OR IGNORE INTO neotask_labels VALUES (?, ?, ?)'
const LABELS = 'SELECT labels FROM neotask_records WHERE tenant = ? AND key = ?'

export type StoredTuple = [
  key: string,
  value: Stored,
  version: number,
  labels: string | null,
  due: number | null,
  expires: number | null,
]

export const RECORD_COLUMNS: string = COLUMNS

export function storedFrom(tuple: StoredTuple): StoredRecord {
  const [key, value, version, labels, due, expires] = tuple
  return {
    key,
    value: encoded(value) ?? '',
    version,
    labels: labels === null ? [] : (JSON.parse(labels) as string[]),
    dueAt: due ?? undefined,
    expiresAt: expires ?? undefined,
  }
}

export function getRecord(db: Database, tenant: string, key: string, now: number): StoredRecord | undefined {
  const tuple = db.get<StoredTuple>(GET, tenant, key, now)
  return tuple && storedFrom(tuple)
}

export function putRecord(
  db: Database,
  tenant: string,
  key: string,
  value: Encoded,
  options: PutOptions,
  now: number,
): number | 'conflict' {
  const { ifVersion, dueIn, expiresIn, labels = [] } = options
  const present = getRecord(db, tenant, key, now)?.version
  if (ifVersion !== undefined && ifVersion !== (present ?? 0)) return 'conflict'
  const version = present === undefined ? firstVersion(db, tenant, key, now) : present + 1
  const due = options.dueAt ?? (dueIn === undefined ? null : now + dueIn)
  const expires = expiresIn === undefined ? null : now + expiresIn
  dropLabels(db, tenant, key)
  const text = labels.length === 0 ? null : JSON.stringify(labels)
  db.run(
    PUT,
    tenant,
    key,
    value,
    version,
    text,
    due === null ? null : Math.ceil(due),
    expires === null ? null : Math.ceil(expires),
  )
  for (const label of labels) db.run(LABEL, tenant, label, key)
  return version
}

/** The version of a record that is made, perhaps anew: beyond all that one of its key may have had. */
function firstVersion(db: Database, tenant: string, key: string, now: number): number {
  const [last = 0] = db.get<[number]>(LAST, tenant, key) ?? []
  return Math.max(last + 1, Math.floor(now * 1000))
}

/** @returns whether there was one, expired or not */
export function deleteRecord(db: Database, tenant: string, key: string): boolean {
  dropLabels(db, tenant, key)
  const [version] = db.get<[number]>(DELETE, tenant, key) ?? []
  if (version === undefined) return false
  keepRemoved(db, version)
  return true
}

/** A record of this version is removed, and none of its key is to have it again. */
export function keepRemoved(db: Database, version: number): void {
  db.run(REMOVED, version)
}

function dropLabels(db: Database, tenant: string, key: string): void {
  const labels = db.get<[string | null]>(LABELS, tenant, key)?.[0]
  if (labels === undefined || labels === null) return
  for (const label of JSON.parse(labels) as string[]) db.run(UNLABEL, tenant, label, key)
}
