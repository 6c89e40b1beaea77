/**
 * A storage's way to Redis, and the one way in which scripts are called: by their hash, and with their text where the
 * server does not know it (any more).
 */
import { StorageUnavailableError, type Clock } from '@neotask/core'
import { createHash } from 'node:crypto'
import type { Durability } from './durability.js'
import type { Keys } from './keys.js'
import { SCRIPTS, type ScriptName } from './lua-scripts.js'
import type { Client, Listener, SharedConnection } from './shared-connection.js'

export type Argument = string | number | Buffer
/** What a script answers: texts come as bytes. */
export type Reply = number | Buffer | null | readonly Reply[]

interface Script {
  readonly source: string
  readonly hash: string
}

type Command = [name: string, args: Argument[]]
type Sender = (client: Client, command: Command) => Promise<Reply>

const plainly: Sender = async (client, command) => (await client.callBuffer(...command)) as Reply

/** ms for which replicas are waited for while they are known to be late, so that they do not hold up all other calls. */
const LATE_TIMEOUT = 20

interface Called {
  readonly error?: Error | undefined
  readonly reply: Reply
  readonly confirmed: number
}

/** As one pipeline, so that on a Cluster both go to the same server. */
async function sendAndWait(
  client: Client,
  command: Command,
  replicas: number,
  timeout: number,
): Promise<Called> {
  const [called, waited] = (await client
    .pipeline()
    .callBuffer(...command)
    .wait(replicas, timeout)
    .exec()) as [[Error | null, unknown], [Error | null, unknown]]
  if (called[0] !== null) return { error: called[0], reply: null, confirmed: 0 }
  if (waited[0] !== null) {
    // The script was carried out, by a server that is perhaps no primary any more.
    const message = `Redis: wait: ${waited[0].message}`
    const options = { retryable: true, uncertain: true, cause: waited[0] }
    throw new StorageUnavailableError('STORAGE_UNAVAILABLE', message, options)
  }
  return { reply: called[1] as Reply, confirmed: waited[1] as number }
}

/** Scripts that only read: what a lost connection left open is simply asked again. */
const READS: ReadonlySet<ScriptName> = new Set(['get', 'list', 'counts', 'errors', 'history'])

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
  readonly durability: Durability | undefined
  readonly #clock: Clock | undefined
  #shared: SharedConnection | undefined

  /** @param options.clock a test's; without it the server's time counts */
  constructor(keys: Keys, options: { clock: Clock | undefined; durability: Durability | undefined }) {
    this.keys = keys
    this.durability = options.durability
    this.#clock = options.clock
  }

  set(shared: SharedConnection | undefined): void {
    this.#shared = shared
  }

  /** Calls a script of the shard. */
  run(script: ScriptName, args: readonly Argument[]): Promise<Reply> {
    return this.#call(script, [this.keys.shard], args)
  }

  /** Calls a script of a queue. @param queue the prefix of its keys */
  runIn(script: ScriptName, queue: string, args: readonly Argument[]): Promise<Reply> {
    return this.#call(script, [this.keys.shard, queue], args)
  }

  /** Calls a script and waits for replicas. @returns the reply, and how many have what it wrote */
  async runReplicated(
    script: ScriptName,
    queue: string | undefined,
    args: readonly Argument[],
    { replicas, timeout }: Durability,
  ): Promise<{ reply: Reply; confirmed: number }> {
    const keys = queue === undefined ? [this.keys.shard] : [this.keys.shard, queue]
    const shared = this.#open
    const patience = shared.replicasAreLate ? Math.min(timeout, LATE_TIMEOUT) : timeout
    let confirmed = 0
    const reply = await this.#call(script, keys, args, async (client, command) => {
      let called = await sendAndWait(client, command, replicas, patience)
      if (called.error !== undefined && /^(MOVED|ASK) /.test(called.error.message)) {
        // A pipeline does not follow, a command does, and then its client knows the way. The repeat changes nothing.
        await plainly(client, command)
        called = await sendAndWait(client, command, replicas, patience)
      }
      if (called.error !== undefined) throw called.error
      confirmed = called.confirmed
      return called.reply
    })
    if (confirmed < replicas) shared.tellLate()
    return { reply, confirmed }
  }

  /** Rejects when `WAIT` may not be called. */
  async checkWait(): Promise<void> {
    await this.#send('wait', (client) => client.call('wait', 0, 1))
  }

  async publish(channel: string, message: string): Promise<void> {
    await this.#send('publish', (client) => client.publish(channel, message))
  }

  /** @returns the function that ends it */
  async subscribe(channel: string, listener: Listener): Promise<() => Promise<void>> {
    try {
      return await this.#open.subscribe(channel, listener)
    } catch (error) {
      throw unavailable('subscribe', error)
    }
  }

  get #open(): SharedConnection {
    if (this.#shared === undefined) {
      throw new StorageUnavailableError('STORAGE_UNAVAILABLE', 'the storage is not open: call open() first')
    }
    return this.#shared
  }

  async #call(
    script: ScriptName,
    keys: readonly string[],
    args: readonly Argument[],
    send: Sender = plainly,
  ): Promise<Reply> {
    const { source, hash } = scriptOf(script)
    const rest = [keys.length, ...keys, this.#clock?.now() ?? '', ...args]
    const call = (): Promise<Reply> =>
      this.#send(script, async (client) => {
        try {
          return await send(client, ['evalsha', [hash, ...rest]])
        } catch (error) {
          if (!(error as Error).message.startsWith('NOSCRIPT')) throw error
          return await send(client, ['eval', [source, ...rest]])
        }
      })
    if (!READS.has(script)) return call()
    try {
      return await call()
    } catch (error) {
      if (!(error as StorageUnavailableError).uncertain) throw error
      return call()
    }
  }

  async #send<T>(what: string, command: (client: Client) => Promise<T>): Promise<T> {
    const shared = this.#open
    try {
      // Without a step of the promise queue when it is, which nearly always holds.
      if (shared.commands.status !== 'ready') await shared.ready()
      return await command(shared.commands)
    } catch (error) {
      throw unavailable(what, error)
    }
  }
}

/** Answers that may be others later. Older servers put what a script met into the middle of a sentence. */
const TEMPORARY =
  /(?:^|-)(OOM|BUSY|LOADING|READONLY|MISCONF|NOREPLICAS|MASTERDOWN|CLUSTERDOWN|TRYAGAIN|UNKILLABLE)\b/

/** What Redis answered was not carried out; when there was no answer, nobody knows. */
export function unavailable(what: string, error: unknown): StorageUnavailableError {
  if (error instanceof StorageUnavailableError) return error
  const { message, name } = error as Error
  const isAnswer = name === 'ReplyError'
  // The socket was closed between the look at it and the command.
  const isUnsent = message.startsWith("Stream isn't writeable")
  const text = isUnsent
    ? 'there is no connection'
    : name === 'MaxRetriesPerRequestError'
      ? 'the connection was lost before the answer came'
      : message
  return new StorageUnavailableError('STORAGE_UNAVAILABLE', `Redis: ${what}: ${text}`, {
    cause: error,
    retryable: !isAnswer || TEMPORARY.test(message),
    uncertain: !isAnswer && !isUnsent,
  })
}
