/** What is asked of a server at start: its version, what it does when memory is full, and the stored format. */
import { NeoTaskError, StorageUnavailableError } from '@neotask/core'
import type { Cluster } from 'ioredis'
import { randomUUID } from 'node:crypto'
import type { Client } from './connection.js'

const FORMAT = 1
const SHARDS = 1
const OLDEST = [6, 2] as const

export interface ServerInfo {
  readonly format: number
  readonly runId: string
}

/** @param shard the prefix of the keys of the shard */
export async function checkServer(
  client: Client,
  shard: string,
  allowEviction: boolean,
): Promise<ServerInfo> {
  const servers = await infoOf(client)
  for (const info of servers) {
    checkVersion(info)
    const policy = info.get('maxmemory_policy')
    if (!allowEviction && policy !== undefined && policy !== 'noeviction') {
      throw new NeoTaskError(
        'OPTION_INVALID',
        `Redis: maxmemory-policy is ${policy}, which would throw tasks away: set it to noeviction, or say allowEviction: true`,
      )
    }
  }
  const key = `${shard}meta`
  await client.hsetnx(key, 'format', FORMAT)
  await client.hsetnx(key, 'shards', SHARDS)
  await client.hsetnx(key, 'runId', randomUUID())
  const [format, shards, runId] = await client.hmget(key, 'format', 'shards', 'runId')
  if (Number(format) !== FORMAT) {
    throw new NeoTaskError('STORAGE_FORMAT', `the stored format is ${format}, this version knows ${FORMAT}`)
  }
  if (Number(shards) !== SHARDS) {
    throw new NeoTaskError(
      'STORAGE_FORMAT',
      `the namespace has ${shards} shards, this version knows ${SHARDS}`,
    )
  }
  // A server that was started anew, or has taken the place of another, may not have all that was acknowledged.
  const [only, ...others] = servers
  return { format: FORMAT, runId: others.length > 0 ? `${runId}` : `${runId}.${only?.get('run_id')}` }
}

/** Of the server, or of every master of a cluster. */
async function infoOf(client: Client): Promise<Map<string, string>[]> {
  try {
    if (!client.isCluster) return [parseInfo(await client.info())]
    // The first command waits for the nodes to be known.
    await client.ping()
    return await Promise.all(
      (client as Cluster).nodes('master').map(async (node) => parseInfo(await node.info())),
    )
  } catch (cause) {
    const { message } = cause as Error
    throw new StorageUnavailableError('STORAGE_UNAVAILABLE', `Redis: ${message}`, { cause, retryable: true })
  }
}

function parseInfo(text: string): Map<string, string> {
  return new Map(
    text
      .split('\n')
      .filter((line) => line.includes(':'))
      .map((line) => [line.slice(0, line.indexOf(':')), line.slice(line.indexOf(':') + 1).trim()]),
  )
}

function checkVersion(info: Map<string, string>): void {
  const version = info.get('redis_version') ?? ''
  const [major = 0, minor = 0] = version.split('.').map(Number)
  if (major > OLDEST[0] || (major === OLDEST[0] && minor >= OLDEST[1])) return
  throw new NeoTaskError(
    'OPTION_INVALID',
    `Redis: needs version ${OLDEST.join('.')} or newer, this is ${version}`,
  )
}
