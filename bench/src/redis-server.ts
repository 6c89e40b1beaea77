/** A redis-server for one measurement: a process on a free port, in a temporary folder, stopped by its pid. */
import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { mkdtemp, rm } from 'node:fs/promises'
import { createServer, type AddressInfo } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { Redis } from 'ioredis'

export interface BenchServer {
  readonly port: number
  /** A client for questions about the server. */
  readonly client: Redis
}

/** What a server has done and holds. */
export interface Usage {
  /** Commands carried out, those inside scripts included. */
  readonly commands: number
  /** Bytes received and sent. */
  readonly bytes: number
  /** Bytes of memory in use. */
  readonly memory: number
}

/** @param durable whether it writes an append-only file, synced every second */
export async function withServer<T>(
  use: (server: BenchServer) => Promise<T>,
  durable: boolean = false,
): Promise<T> {
  const folder = await mkdtemp(join(tmpdir(), 'neotask-bench-'))
  const port = await freePort()
  const options = ['--port', port, '--bind', '127.0.0.1', '--dir', folder, '--save', '']
  const aof = ['--appendonly', durable ? 'yes' : 'no', '--appendfsync', 'everysec']
  const server = spawn('redis-server', [...options, ...aof].map(String), { stdio: 'ignore' })
  const failed = new Promise<never>((_, reject) => server.once('error', reject))
  const client = new Redis(port, '127.0.0.1', { retryStrategy: () => 5, maxRetriesPerRequest: null })
  client.on('error', () => {})
  try {
    await Promise.race([client.ping(), failed])
    return await use({ port, client })
  } finally {
    client.disconnect()
    const ended = once(server, 'exit')
    if (server.kill('SIGKILL')) await ended
    await rm(folder, { recursive: true, force: true })
  }
}

export async function usageOf({ client }: BenchServer): Promise<Usage> {
  const info = await client.info('everything')
  const figure = (name: string): number => Number(new RegExp(`^${name}:(\\d+)`, 'm').exec(info)?.[1])
  let commands = 0
  for (const [, name, calls] of info.matchAll(/^cmdstat_([^:]+):calls=(\d+)/gm)) {
    if (name !== 'info' && name !== 'ping') commands += Number(calls)
  }
  const bytes = figure('total_net_input_bytes') + figure('total_net_output_bytes')
  return { commands, bytes, memory: figure('used_memory') }
}

/** Calls that clients make in a while; what scripts do inside is not counted. */
export async function callsDuring({ port }: BenchServer, wait: () => Promise<void>): Promise<number> {
  const watching = new Redis(port, '127.0.0.1')
  const monitor = await watching.monitor()
  let calls = 0
  monitor.on('monitor', (_time: string, _args: string[], source: string) => {
    if (source !== 'lua') calls++
  })
  await wait()
  monitor.disconnect()
  watching.disconnect()
  return calls
}

async function freePort(): Promise<number> {
  const listener = createServer().listen(0, '127.0.0.1')
  await once(listener, 'listening')
  const { port } = listener.address() as AddressInfo
  listener.close()
  await once(listener, 'close')
  return port
}
