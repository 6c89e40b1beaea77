/** Records of a tenant: small values with compare-and-set, labels, a due time and an end. */
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
import type { Argument, Connection, Reply } from './connection.js'
import { tagged, untagged } from './definition.js'
import { escapeName } from './keys.js'
import { pack, unpackMap, type Unpacked } from './msgpack.js'
import { bytesOf, listOf, textOf } from './reply.js'
import { numberIn } from './task-record.js'

const MAX_PAGE = 500
/** Bytes of the values of a claim, unless it says how many. */
const CLAIM_BYTES = 1024 * 1024
/** As good as no bound, and a number for Lua. */
const ENDLESS = 1e15

export class RedisRecords implements RecordsFace {
  readonly #connection: Connection

  constructor(connection: Connection) {
    this.#connection = connection
  }

  async get(tenant: string, key: string): Promise<StoredRecord | undefined> {
    return parseRecords(await this.#run(tenant, ['get', key]))[0]
  }

  async put(
    tenant: string,
    key: string,
    value: Encoded,
    options: PutOptions = {},
  ): Promise<number | 'conflict'> {
    checkPut(options)
    const [version] = await this.#put(tenant, [{ key, value, options }])
    return version as number | 'conflict'
  }

  async putAll(tenant: string, puts: readonly RecordPut[]): Promise<(number | 'conflict')[]> {
    for (const [index, { options }] of puts.entries()) checkPut(options, `puts[${index}].options.`)
    return puts.length === 0 ? [] : await this.#put(tenant, puts)
  }

  async #put(tenant: string, puts: readonly RecordPut[]): Promise<(number | 'conflict')[]> {
    const args: Argument[] = ['put']
    for (const { key, value, options = {} } of puts) {
      const { ifVersion, dueIn, dueAt, expiresIn, labels } = options
      const details = pack({
        v: tagged(value),
        d: dueAt,
        i: dueIn,
        e: expiresIn,
        l: labels?.length ? [...new Set(labels)] : undefined,
      })
      args.push(key, ifVersion ?? '', details)
    }
    const versions = listOf(await this.#run(tenant, args)) as number[]
    return versions.map((version) => (version === 0 ? 'conflict' : version))
  }

  async delete(tenant: string, key: string, options: { ifVersion?: number } = {}): Promise<boolean> {
    return (await this.#run(tenant, ['delete', key, options.ifVersion ?? ''])) === 1
  }

  async list(tenant: string, query: RecordQuery): Promise<{ records: StoredRecord[]; cursor?: string }> {
    const { prefix = '', label, cursor } = query
    const limit = Math.max(1, Math.min(query.limit, MAX_PAGE))
    const args = [
      'list',
      prefix,
      label === undefined ? '' : ` ${label}`,
      limit,
      cursor === undefined ? '' : ` ${cursor}`,
    ]
    const reply = listOf(await this.#run(tenant, args))
    const next = textOf(reply.at(-1))
    return { records: parseRecords(reply.slice(0, -1)), ...(next !== '' && { cursor: next.slice(1) }) }
  }

  async claimDue(tenant: string, query: DueQuery): Promise<DueReply> {
    const { prefix = '', limit, leaseMs, maxBytes = CLAIM_BYTES } = query
    const args = ['due', prefix, limit, leaseMs, Math.min(maxBytes, ENDLESS)]
    const reply = listOf(await this.#run(tenant, args))
    const next = textOf(reply[1])
    return {
      records: parseRecords(reply.slice(2)),
      now: Number(textOf(reply[0])),
      nextDueIn: next === '' ? undefined : Number(next),
    }
  }

  #run(tenant: string, args: readonly Argument[]): Promise<Reply> {
    return this.#connection.run('record', [escapeName(tenant), ...args])
  }
}

function parseRecords(reply: Reply): StoredRecord[] {
  const list = listOf(reply)
  const records: StoredRecord[] = []
  for (let i = 0; i < list.length; i += 2) {
    const map = unpackMap(bytesOf(list[i + 1]))
    const labels = (map.get('l') as readonly Unpacked[] | undefined) ?? []
    records.push({
      key: textOf(list[i]),
      value: untagged(map.get('v') as Buffer),
      version: numberIn(map, 'n') ?? 0,
      labels: labels.map((label) => (label as Buffer).toString()),
      dueAt: numberIn(map, 'd'),
      expiresAt: numberIn(map, 'e'),
    })
  }
  return records
}
