/**
 * The connections of a process to one Redis server: one for commands and, once somebody listens, one for messages, however
 * many storages and pools there are. Storages with the same target hold them together; with the last, they are closed.
 *
 * What it guarantees:
 * - no command waits for a connection for longer than {@link PATIENCE}, and one whose connection is lost is rejected at
 *   once, never sent again behind its caller's back;
 * - a server that answers nothing for {@link SILENCE} is taken for lost, its connection closed and another one made, the
 *   one for messages too, which asks for a sign of life while nothing is said on it;
 * - after each reconnection every channel is subscribed again, and only then every listener is called with `CHANGED`,
 *   because anything may have been missed.
 */
import { CHANGED, StorageUnavailableError, systemClock, type Timer } from '@neotask/core'
import { Redis, type Cluster, type RedisOptions } from 'ioredis'
import { isDeepStrictEqual } from 'node:util'

export type Client = Redis | Cluster
export type Listener = (message: string) => void

/** Where a server is: `url`, `options` or both, or a client that its owner made and closes. */
export interface Target {
  readonly url?: string | undefined
  readonly options?: RedisOptions | undefined
  readonly client?: Client | undefined
}

/** ms without a word, while an answer is due, after which a connection is closed and made anew. */
const SILENCE = 4_000
/** ms between signs of life on a connection that only listens. */
const SIGN_OF_LIFE = 5_000
/** ms for which a command waits for a connection that is being made. */
const PATIENCE = 2_000
/** ms for which replicas that did not confirm in time count as late. */
const LATE = 1_000
/** ms between attempts to connect, at most. */
const LONGEST_PAUSE = 500

/** What may not be left to a caller, since the guarantees above rest on it. */
const OURS = {
  autoResubscribe: false,
  autoResendUnfulfilledCommands: false,
  enableOfflineQueue: false,
  maxRetriesPerRequest: 0,
  lazyConnect: false,
  replyMapping: 'legacy',
} as const satisfies RedisOptions

const DEFAULTS = {
  connectionName: 'neotask',
  connectTimeout: SILENCE,
  socketTimeout: SILENCE,
  keepAlive: 5_000,
  retryStrategy: (times: number): number =>
    Math.min(LONGEST_PAUSE, 20 * 2 ** Math.min(times, 10)) * (0.5 + Math.random() / 2),
  // A server that has become a replica: its name may lead to the new master by now.
  reconnectOnError: ({ message }: Error): boolean => message.includes('READONLY'),
} satisfies RedisOptions

const shared: SharedConnection[] = []

export class SharedConnection {
  readonly #target: Target
  readonly commands: Client
  readonly #listeners = new Map<string, Set<Listener>>()
  #holders = 0
  #subscriber: Redis | undefined
  #signs: Timer | undefined
  /** The connection for messages was lost since its channels were subscribed. */
  #missed = false
  #lateUntil = -Infinity

  private constructor(target: Target) {
    this.#target = target
    this.commands = target.client ?? connect(target)
  }

  /** The connections to that target, which are made when nobody holds them. Each holder calls `release` once. */
  static acquire(target: Target): SharedConnection {
    let found = shared.find((one) => isSame(one.#target, target))
    if (found === undefined) shared.push((found = new SharedConnection(target)))
    found.#holders++
    return found
  }

  release(): void {
    if (--this.#holders > 0) return
    shared.splice(shared.indexOf(this), 1)
    this.#listeners.clear()
    this.#signs?.cancel()
    this.#subscriber?.disconnect()
    this.#subscriber = undefined
    if (this.#target.client === undefined) this.commands.disconnect()
  }

  /** Whether replicas did not confirm in time a moment ago. Whoever waits for them holds up all calls behind him. */
  get replicasAreLate(): boolean {
    return systemClock.monotonic() < this.#lateUntil
  }

  tellLate(): void {
    if (!this.replicasAreLate) this.#lateUntil = systemClock.monotonic() + LATE
  }

  /** Rejects when there is no connection within {@link PATIENCE}; nothing was sent then. */
  async ready(): Promise<void> {
    if (this.commands.status !== 'ready') await isReady(this.commands)
  }

  /** @returns the function that ends it */
  async subscribe(channel: string, listener: Listener): Promise<() => Promise<void>> {
    // Its own function, so that the same listener may subscribe twice.
    const own: Listener = (message) => listener(message)
    let listeners = this.#listeners.get(channel)
    if (listeners === undefined) this.#listeners.set(channel, (listeners = new Set()))
    listeners.add(own)
    try {
      const subscriber = this.#listening()
      if (subscriber.status !== 'ready') await isReady(subscriber)
      await subscriber.subscribe(channel)
    } catch (error) {
      this.#forget(channel, own)
      throw error
    }
    return async () => {
      if (this.#forget(channel, own) && this.#subscriber?.status === 'ready')
        await this.#subscriber.unsubscribe(channel)
    }
  }

  /** Whether nobody listens there any more. */
  #forget(channel: string, listener: Listener): boolean {
    const listeners = this.#listeners.get(channel)
    if (listeners?.delete(listener) !== true || listeners.size > 0) return false
    return this.#listeners.delete(channel)
  }

  /** The connection for messages, made when it is first asked for. */
  #listening(): Redis {
    if (this.#subscriber !== undefined && this.#subscriber.status !== 'end') return this.#subscriber
    if (this.#signs === undefined) this.#giveSigns()
    const { commands } = this
    // A message in a cluster reaches every node, so one connection to any of them hears all.
    const node = commands.isCluster ? anyOf((commands as Cluster).nodes('master')) : (commands as Redis)
    if (node === undefined) throw new Error('no node of the cluster is known')
    const subscriber = node.duplicate({
      ...(this.#target.client && DEFAULTS),
      ...OURS,
      // Of a cluster another node may be there.
      ...(commands.isCluster && {
        retryStrategy: (times: number) => (times > 3 ? null : DEFAULTS.retryStrategy(times)),
      }),
    })
    subscriber.on('error', () => undefined)
    subscriber.on('message', (channel: string, message: string) => this.#call(channel, message))
    subscriber.on('close', () => (this.#missed = true))
    subscriber.on('ready', () => void this.#subscribeAgain(subscriber))
    this.#subscriber = subscriber
    return subscriber
  }

  async #subscribeAgain(subscriber: Redis): Promise<void> {
    if (!this.#missed) return
    const channels = [...this.#listeners.keys()]
    try {
      if (channels.length > 0) await subscriber.subscribe(...channels)
    } catch {
      // This connection is lost too, and the next one comes here again.
      return
    }
    this.#missed = false
    for (const channel of [...this.#listeners.keys()]) this.#call(channel, CHANGED)
  }

  /**
   * A server that is gone is found by what it does not answer, and on the connection for messages nothing is asked
   * otherwise. One that was given up is made anew.
   */
  #giveSigns(): void {
    this.#signs = systemClock.after(SIGN_OF_LIFE, () => {
      try {
        const subscriber = this.#listening()
        if (subscriber.status === 'ready') subscriber.ping().catch(() => undefined)
      } catch {
        // No node is known now; the next sign looks again.
      }
      this.#giveSigns()
    })
  }

  #call(channel: string, message: string): void {
    for (const listener of [...(this.#listeners.get(channel) ?? [])]) {
      try {
        listener(message)
      } catch {
        // A notice is a hint: whoever fails to take it polls. There is nobody here to tell.
      }
    }
  }
}

const anyOf = <T>(list: readonly T[]): T | undefined => list[Math.floor(Math.random() * list.length)]

function isSame(one: Target, other: Target): boolean {
  if (one.client !== undefined || other.client !== undefined) return one.client === other.client
  return one.url === other.url && isDeepStrictEqual(one.options, other.options)
}

function connect({ url, options }: Target): Client {
  const all = { ...DEFAULTS, ...options, ...OURS }
  const client = url === undefined ? new Redis(all) : new Redis(url, all)
  // Without a listener an error of the connection would end the process; calls reject with it all the same.
  client.on('error', () => undefined)
  return client
}

/** Resolves when commands can be sent. */
function isReady(client: Client): Promise<void> {
  // It connects with its first command, or keeps what it is given until it is connected.
  if (client.status === 'wait' || client.isCluster) return Promise.resolve()
  return new Promise((resolve, reject) => {
    let last: Error | undefined
    const fail = (what: string): void => {
      end()
      const message = `Redis: ${what}${last === undefined ? '' : `: ${last.message}`}`
      reject(
        new StorageUnavailableError('STORAGE_UNAVAILABLE', message, {
          retryable: !isRefusal(last),
          cause: last,
        }),
      )
    }
    const ended = (): void => fail('the connection is closed')
    const failed = (error: Error): void => {
      last = error
      if (isRefusal(error))
        fail(isUntrusted(error) ? 'the server is not trusted' : 'the server refuses the connection')
    }
    const ready = (): void => {
      end()
      resolve()
    }
    const end = (): void => {
      timer.cancel()
      client.off('ready', ready).off('end', ended).off('error', failed)
    }
    const late = (): void => fail(`no connection within ${PATIENCE} ms`)
    const timer = systemClock.after(PATIENCE, late, { hold: true })
    if (client.status === 'end') ended()
    else client.on('ready', ready).on('end', ended).on('error', failed)
  })
}

/** Trying again with the same name and password does not help, nor with the same trust in certificates. */
const isRefusal = (error: Error | undefined): boolean =>
  error !== undefined && (/^(WRONGPASS|NOAUTH|NOPERM)\b/.test(error.message) || isUntrusted(error))

const isUntrusted = (error: NodeJS.ErrnoException): boolean => UNTRUSTED.test(error.code ?? '')

/** The codes of Node for a certificate that is not accepted. */
const UNTRUSTED =
  /^(CERT_|UNABLE_TO_(GET_ISSUER|VERIFY|DECRYPT_CERT)|(DEPTH_ZERO_)?SELF_SIGNED_CERT|ERR_TLS_CERT_|HOSTNAME_MISMATCH$|INVALID_(CA|PURPOSE)$)/
