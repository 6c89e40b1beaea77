/**
 * Messages by publish and subscribe, on the connection for messages that the storages of a process share. Best effort:
 * what is said while that connection is down is not heard; when it is back, every listener hears `CHANGED`.
 */
import { CHANGED, type FinalRecord, type Handed, type NoticesFace } from '@neotask/core'
import { randomUUID } from 'node:crypto'
import type { Connection } from './connection.js'
import type { Listener } from './shared-connection.js'
import { parseHanded, successIn } from './task-record.js'

export class RedisNotices implements NoticesFace {
  readonly #connection: Connection
  /** Of this storage alone, by the full names of channels. */
  readonly #listeners = new Map<string, Set<Listener>>()
  readonly #ends = new Set<() => Promise<void>>()
  /** Stands behind what this storage has published and heard of already. */
  readonly origin: string = randomUUID()

  constructor(connection: Connection) {
    this.#connection = connection
  }

  async publish(channel: string, message: string): Promise<void> {
    await this.#connection.publish(this.#connection.keys.channel(channel), message)
  }

  /**
   * Tells this storage's listeners of a message that its own call has just published, before it comes back from Redis:
   * whoever submitted may count on it.
   */
  deliver(channel: string, message: string): void {
    for (const listener of [...(this.#listeners.get(channel) ?? [])]) {
      try {
        listener(message)
      } catch {
        // A notice is a hint: whoever fails to take it polls. There is nobody here to tell.
      }
    }
  }

  async subscribe(channel: string, listener: Listener): Promise<() => Promise<void>> {
    const isHead = channel.startsWith('head:')
    const heard: Listener = (message) => {
      const [text = '', origin] = isHead ? message.split(' ') : [message]
      if (origin !== this.origin) listener(text)
    }
    const unsubscribe = await this.#connection.subscribe(this.#connection.keys.channel(channel), heard)
    const own: Listener = (message) => listener(message)
    let listeners = this.#listeners.get(channel)
    if (listeners === undefined) this.#listeners.set(channel, (listeners = new Set()))
    listeners.add(own)
    const end = async (): Promise<void> => {
      if (!this.#ends.delete(end)) return
      listeners.delete(own)
      if (listeners.size === 0 && this.#listeners.get(channel) === listeners) this.#listeners.delete(channel)
      await unsubscribe()
    }
    this.#ends.add(end)
    return end
  }

  /** Behind the ids stand the records of all of them, a line each, when they are plain and together not large. */
  endsIn(message: string): readonly FinalRecord[] {
    const [ids = '', ...records] = message.split('\n')
    if (records.length === 0) return []
    return ids.split(' ').map((id, index) => successIn(id, Buffer.from(records[index] ?? '')))
  }

  handedIn(message: string): Handed | undefined {
    return message === '' || message === CHANGED ? undefined : parseHanded(Buffer.from(message))
  }

  /** Ends what this storage listens to; others may listen on. */
  close(): void {
    // Nobody waits for the answers of a server that may be gone.
    for (const end of [...this.#ends]) end().catch(() => undefined)
  }
}
