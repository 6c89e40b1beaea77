/**
 * A master and its replica, and Sentinels that watch over both: processes of their own on free ports. The replica hears
 * its master through a link that a test can cut, as a network does, since on one machine it would hardly ever miss anything.
 */
import { Redis } from 'ioredis'
import { spawn, type ChildProcess } from 'node:child_process'
import { once } from 'node:events'
import { mkdtemp, rm, writeFile } from 'node:fs/promises'
import { connect, createServer, type AddressInfo, type Server, type Socket } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { sleep } from './load.test-helper.js'
import { freePorts, ready } from './redis-server.test-helper.js'
import { RestartableServer } from './restartable-server.test-helper.js'

/** ms of silence after which each Sentinel takes the master for down: two of them stand for election, and agree at once. */
const DOWN_AFTER = [700, 700, 5_000]
/** ms. Until then they also leave a replica alone whose master has another address than they think. */
const FAILOVER_TIMEOUT = 30_000

/** The name under which Sentinels know the master. */
export const NAME = 'mymaster'

export class Replicated {
  readonly master: RestartableServer
  readonly replica: RestartableServer
  /** Between the replica and its master. */
  readonly link: Link
  readonly #folder: string
  readonly #sentinels: ChildProcess[] = []

  private constructor(folder: string, master: RestartableServer, replica: RestartableServer, link: Link) {
    this.#folder = folder
    this.master = master
    this.replica = replica
    this.link = link
  }

  /** Resolves when the replica follows. */
  static async start(): Promise<Replicated> {
    const folder = await mkdtemp(join(tmpdir(), 'neotask-sentinel-'))
    // It waits for more replicas otherwise before it sends its data.
    const master = await RestartableServer.start('--repl-diskless-sync-delay', '0')
    const link = await Link.start(master.port)
    const replica = await RestartableServer.start('--replicaof', '127.0.0.1', String(link.port))
    await ask(replica.url, async (client) => {
      while (!/master_link_status:up/.test(await client.info('replication'))) await sleep(20)
    })
    return new Replicated(folder, master, replica, link)
  }

  /** Three, of which two decide. Resolves when all know each other. @returns where they are */
  async watch(): Promise<{ host: string; port: number }[]> {
    const ports = await freePorts(DOWN_AFTER.length)
    for (const [index, port] of ports.entries()) {
      const downAfter = DOWN_AFTER[index] as number
      this.#sentinels.push(await startSentinel(this.#folder, port, this.master.port, downAfter))
    }
    for (const port of ports) await acquainted(port)
    return ports.map((port) => ({ host: '127.0.0.1', port }))
  }

  async stop(): Promise<void> {
    for (const sentinel of this.#sentinels) {
      const ended = once(sentinel, 'exit')
      if (sentinel.kill('SIGKILL')) await ended
    }
    await this.replica.stop()
    await this.link.stop()
    await this.master.stop()
    await rm(this.#folder, { recursive: true, force: true })
  }
}

async function acquainted(sentinel: number): Promise<void> {
  await ask(`redis://127.0.0.1:${sentinel}`, async (client) => {
    for (;;) {
      const reply = (await client.call('SENTINEL', 'MASTER', NAME)) as string[]
      const of = (key: string): number => Number(reply[reply.indexOf(key) + 1])
      if (of('num-slaves') === 1 && of('num-other-sentinels') === DOWN_AFTER.length - 1) return
      await sleep(20)
    }
  })
}

/** What has been replicated: bytes of the stream that a master has written, or a replica read. */
export async function offsetOf(server: RestartableServer): Promise<number> {
  const info = await ask(server.url, (client) => client.info('replication'))
  const key = info.includes('role:master') ? 'master_repl_offset' : 'slave_repl_offset'
  return Number(new RegExp(`^${key}:(\\d+)`, 'm').exec(info)?.[1])
}

export async function roleOf(server: RestartableServer): Promise<string> {
  const info = await ask(server.url, (client) => client.info('replication'))
  return /^role:(\w+)/m.exec(info)?.[1] ?? ''
}

export async function ask<T>(url: string, question: (client: Redis) => Promise<T>): Promise<T> {
  const client = new Redis(url, { protocol: 2 })
  client.on('error', () => undefined)
  try {
    return await question(client)
  } finally {
    client.disconnect()
  }
}

async function startSentinel(
  folder: string,
  port: number,
  master: number,
  downAfter: number,
): Promise<ChildProcess> {
  const file = join(folder, `${port}.conf`)
  const lines = [
    `port ${port}`,
    'bind 127.0.0.1',
    `dir ${folder}`,
    `sentinel monitor ${NAME} 127.0.0.1 ${master} 2`,
    `sentinel down-after-milliseconds ${NAME} ${downAfter}`,
    `sentinel failover-timeout ${NAME} ${FAILOVER_TIMEOUT}`,
  ]
  await writeFile(file, lines.join('\n') + '\n')
  const sentinel = spawn('redis-server', [file, '--sentinel'], { stdio: 'ignore' })
  await ready(sentinel, `redis://127.0.0.1:${port}`)
  return sentinel
}

/** Passes bytes to a server, and back. */
export class Link {
  readonly #server: Server
  readonly #sockets = new Set<Socket>()
  #port: number
  #isCut = false

  private constructor(port: number) {
    this.#port = port
    this.#server = createServer((client) => {
      const server = connect(this.#port, '127.0.0.1')
      this.#pass(client, server)
      this.#pass(server, client)
    })
  }

  /** @param port of the server */
  static async start(port: number): Promise<Link> {
    const link = new Link(port)
    link.#server.listen(0, '127.0.0.1')
    await once(link.#server, 'listening')
    return link
  }

  get port(): number {
    return (this.#server.address() as AddressInfo).port
  }

  /** Nothing comes through any more, and nobody is told. */
  cut(): void {
    this.#isCut = true
  }

  /** Leads new connections to another server. */
  lead(port: number): void {
    this.#port = port
  }

  async stop(): Promise<void> {
    const closed = once(this.#server.close(), 'close')
    for (const socket of this.#sockets) socket.destroy()
    await closed
  }

  #pass(from: Socket, to: Socket): void {
    this.#sockets.add(from)
    from.on('data', (data) => this.#isCut || to.write(data))
    from.on('error', () => undefined)
    from.on('close', () => {
      this.#sockets.delete(from)
      if (!this.#isCut) to.destroy()
    })
  }
}
