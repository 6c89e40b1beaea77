/**
 * The connection to Redis, and the one way in which scripts are called: by their hash, and with their text where the
 * server does not know it (any more).
 */
import { StorageUnavailableError, type Clock } from '@neotask/core'
import type { Cluster, Redis } from 'ioredis'
import { createHash } from 'node:crypto'
import type { Keys } from './keys.js'
import { SCRIPTS, type ScriptName } from './lua-scripts.js'

export type Argument = string | number | Buffer
/** What a script answers: texts come as bytes. */
export type Reply = number | Buffer | null | readonly Reply[]

export type Client = Redis | Cluster

interface Script {
  readonly source: string
  readonly hash: string
}

const assembled = new Map<ScriptName, Script>()

/** Put together when it is called for the first time. */
function scriptOf(name: ScriptName): Script {
  let script = assembled.get(name)
  if (script === undefined) {
    const source = SCRIPTS[name].join('\n')
    script = { source, hash: createHash('sha1').update(source).digest('hex') }
    assembled.set(name, script)
  }
  return script
}

export class Connection {
  readonly keys: Keys
  readonly #clock: Clock | undefined
  #client: Client | undefined

  /** @param clock a test's; without it the server's time counts */
  constructor(keys: Keys, clock: Clock | undefined) {
    this.keys = keys
    this.#clock = clock
  }

  get client(): Client {
    if (this.#client === undefined) {
      throw new StorageUnavailableError('STORAGE_UNAVAILABLE', 'the storage is not open: call open() first')
    }
    return this.#client
  }

  set(client: Client | undefined): void {
    this.#client = client
  }

  /** Calls a script of the shard. */
  run(script: ScriptName, args: readonly Argument[]): Promise<Reply> {
    return this.#call(script, [this.keys.shard], args)
  }

  /** Calls a script of a queue. @param queue the prefix of its keys */
  runIn(script: ScriptName, queue: string, args: readonly Argument[]): Promise<Reply> {
    return this.#call(script, [this.keys.shard, queue], args)
  }

  async #call(script: ScriptName, keys: readonly string[], args: readonly Argument[]): Promise<Reply> {
    const { client } = this
    const { source, hash } = scriptOf(script)
    const rest = [keys.length, ...keys, this.#clock?.now() ?? '', ...args]
    try {
      try {
        return (await client.callBuffer('evalsha', [hash, ...rest])) as Reply
      } catch (error) {
        if (!(error as Error).message.startsWith('NOSCRIPT')) throw error
        return (await client.callBuffer('eval', [source, ...rest])) as Reply
      }
    } catch (error) {
      throw unavailable(script, error)
    }
  }
}

/** What Redis answered was not carried out; when there was no answer, nobody knows. */
function unavailable(script: ScriptName, error: unknown): StorageUnavailableError {
  const { message, name } = error as Error
  const isAnswer = name === 'ReplyError'
  return new StorageUnavailableError('STORAGE_UNAVAILABLE', `Redis: ${script}: ${message}`, {
    cause: error,
    retryable: !isAnswer || /^(OOM|BUSY|LOADING|READONLY|CLUSTERDOWN|TRYAGAIN|MASTERDOWN)/.test(message),
    uncertain: !isAnswer,
  })
}
