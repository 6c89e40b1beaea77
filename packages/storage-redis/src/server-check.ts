/**
 * What is asked of a server at start: its version, what it does when memory is full, whether it is alone or part of a
 * cluster, how far its clock is from this machine's, and the stored format.
 */
import { NeoTaskError, systemClock, type StorageInfo } from '@neotask/core'
import type { Cluster } from 'ioredis'
import { createHash, randomUUID } from 'node:crypto'
import type { Connection } from './connection.js'
import { listOf, numberOf, textOf } from './reply.js'
import type { Client } from './shared-connection.js'

const FORMAT = 1
const SHARDS = 1
const OLDEST = [6, 2] as const
/** ms by which two clocks may differ before it is said. */
const SKEW = 1_000

/** What the servers say of themselves: of the server, or of every master of a cluster. */
export type ServerInfos = readonly ReadonlyMap<string, string>[]

/** @param options.ownClock time comes from somewhere else, so that of the server does not matter */
export async function checkServer(
  client: Client,
  { allowEviction, ownClock }: { allowEviction: boolean; ownClock: boolean },
): Promise<ServerInfos> {
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
  return servers
}

/** Makes what a new namespace needs, and checks what an old one has. */
export async function startNamespace(connection: Connection, servers: ServerInfos): Promise<StorageInfo> {
  const runs = servers.map((info) => info.get('run_id') ?? '').sort()
  const args = [FORMAT, SHARDS, randomUUID(), createHash('sha1').update(runs.join()).digest('hex')]
  const reply = await connection.run('start', args).catch((cause: unknown) => {
    if (!(cause as Error).message.includes(' MOVED ')) throw cause
    const message = 'Redis: the server is part of a cluster: give an ioredis Cluster as client'
    throw new NeoTaskError('OPTION_INVALID', message, { cause })
  })
  const [format, shards, runId, generator] = listOf(reply)
  if (numberOf(format) !== FORMAT) {
    const message = `the stored format is ${textOf(format)}, this version knows ${FORMAT}`
    throw new NeoTaskError('STORAGE_FORMAT', message)
  }
  if (numberOf(shards) !== SHARDS) {
    const message = `the namespace has ${textOf(shards)} shards, this version knows ${SHARDS}`
    throw new NeoTaskError('STORAGE_FORMAT', message)
  }
  // A server that was started anew, or has taken the place of another, may not have all that was acknowledged.
  const [only, ...others] = servers
  const run = others.length > 0 ? textOf(runId) : `${textOf(runId)}.${only?.get('run_id')}`
  return { format: FORMAT, runId: run, generator: numberOf(generator) }
}

async function infoOf(client: Client): Promise<ServerInfos> {
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

function checkVersion(info: ReadonlyMap<string, string>): void {
  const version = info.get('redis_version') ?? ''
  const [major = 0, minor = 0] = version.split('.').map(Number)
  if (major > OLDEST[0] || (major === OLDEST[0] && minor >= OLDEST[1])) return
  throw new NeoTaskError(
    'OPTION_INVALID',
    `Redis: needs version ${OLDEST.join('.')} or newer, this is ${version}`,
  )
}
