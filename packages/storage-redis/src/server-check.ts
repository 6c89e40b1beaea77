/**
 * What is asked of a server at start: its version, what it does when memory is full, whether it is alone or part of a
 * cluster, how far its clock is from this machine's, and the stored format.
 */
import { NeoTaskError, systemClock } from '@neotask/core'
import type { Cluster } from 'ioredis'
import { randomUUID } from 'node:crypto'
import type { Client } from './shared-connection.js'

const FORMAT = 1
const SHARDS = 1
const OLDEST = [6, 2] as const
/** ms by which two clocks may differ before it is said. */
const SKEW = 1_000

export interface ServerInfo {
  readonly format: number
  readonly runId: string
}

/**
 * @param shard the prefix of the keys of the shard
 * @param options.ownClock time comes from somewhere else, so that of the server does not matter
 */
export async function checkServer(
  client: Client,
  shard: string,
  { allowEviction, ownClock }: { allowEviction: boolean; ownClock: boolean },
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
  if (!ownClock) await checkClock(client)
  const key = `${shard}meta`
  await client.hsetnx(key, 'format', FORMAT).catch((cause: unknown) => {
    if (!(cause as Error).message.startsWith('MOVED')) throw cause
    const message = 'Redis: the server is part of a cluster: give an ioredis Cluster as client'
    throw new NeoTaskError('OPTION_INVALID', message, { cause })
  })
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
  if (!client.isCluster) return [parseInfo(await client.info())]
  // The first command waits for the nodes to be known.
  await client.ping()
  return Promise.all((client as Cluster).nodes('master').map(async (node) => parseInfo(await node.info())))
}

/** Tasks go by the server's clock, so a difference harms none of them; but who reads times here sees it. */
async function checkClock(client: Client): Promise<void> {
  const before = systemClock.now()
  const [seconds, micros] = await client.time()
  const after = systemClock.now()
  const server = Number(seconds) * 1000 + Number(micros) / 1000
  const ahead = server < before ? server - before : server > after ? server - after : 0
  if (Math.abs(ahead) <= SKEW) return
  const text = `${(Math.abs(ahead) / 1000).toFixed(1)} s ${ahead > 0 ? 'ahead of' : 'behind'}`
  process.emitWarning(
    `Redis: the server's clock is ${text} this machine's; tasks run by the server's`,
    'NeoTaskWarning',
    'NEOTASK_REDIS_CLOCK',
  )
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
