/** A Redis server that a test may kill, start again on the same data, and freeze: a process of its own on a TCP port. */
import { Redis } from 'ioredis'
import { spawn, type ChildProcess } from 'node:child_process'
import { once } from 'node:events'
import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { freePorts, ready } from './redis-server.test-helper.js'

export class RestartableServer {
  readonly port: number
  readonly #folder: string
  readonly #args: readonly string[]
  #process: ChildProcess | undefined

  private constructor(port: number, folder: string, args: readonly string[]) {
    this.port = port
    this.#folder = folder
    this.#args = args
  }

  /** @param args more arguments of redis-server, which writes every command to its append-only file at once */
  static async start(...args: string[]): Promise<RestartableServer> {
    const [port] = await freePorts(1)
    const folder = await mkdtemp(join(tmpdir(), 'neotask-redis-'))
    const server = new RestartableServer(port as number, folder, args)
    await server.start()
    return server
  }

  get url(): string {
    return `redis://127.0.0.1:${this.port}`
  }

  async start(): Promise<void> {
    const fixed = ['--port', String(this.port), '--bind', '127.0.0.1', '--dir', this.#folder, '--save', '']
    const durable = ['--appendonly', 'yes', '--appendfsync', 'always']
    this.#process = spawn('redis-server', [...fixed, ...durable, ...this.#args], { stdio: 'ignore' })
    await ready(this.#process, this.url)
  }

  async kill(): Promise<void> {
    const running = this.#process
    this.#process = undefined
    if (running === undefined) return
    const ended = once(running, 'exit')
    running.kill('SIGKILL')
    await ended
  }

  pause(): void {
    this.#process?.kill('SIGSTOP')
  }

  resume(): void {
    this.#process?.kill('SIGCONT')
  }

  /** A client for the test's own commands; the caller disconnects it. */
  control(): Redis {
    const client = new Redis(this.url, { maxRetriesPerRequest: null, protocol: 2 })
    client.on('error', () => undefined)
    return client
  }

  async stop(): Promise<void> {
    await this.kill()
    await rm(this.#folder, { recursive: true, force: true })
  }
}
