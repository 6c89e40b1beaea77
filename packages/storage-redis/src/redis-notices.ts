/**
 * Messages by publish and subscribe: on a connection of their own, made when somebody listens. Best effort: what is said
 * while the connection is down is not heard, and whoever listens polls as well.
 */
import type { NoticesFace } from '@neotask/core'
import { randomUUID } from 'node:crypto'
import type { Client, Connection } from './connection.js'

type Listener = (message: string) => void

export class RedisNotices implements NoticesFace {
  readonly #connection: Connection
  readonly #listeners = new Map<string, Set<Listener>>()
  /** Stands behind what this process has published and heard of already. */
  readonly origin: string = randomUUID()
  #subscriber: Client | undefined

  constructor(connection: Connection) {
    this.#connection = connection
  }

  async publish(channel: string, message: string): Promise<void> {
    const { client, keys } = this.#connection
    await client.publish(keys.channel(channel), message)
  }

  /**
   * Tells this process of a message that its own call has just published, before it comes back from Redis: whoever
   * submitted may count on it.
   */
  deliver(channel: string, message: string): void {
    this.#call(this.#connection.keys.channel(channel), message)
  }

  async subscribe(channel: string, listener: Listener): Promise<() => Promise<void>> {
    const name = this.#connection.keys.channel(channel)
    // Its own function, so that the same listener may subscribe twice.
    const own: Listener = (message) => listener(message)
    let listeners = this.#listeners.get(name)
    if (listeners === undefined) this.#listeners.set(name, (listeners = new Set()))
    listeners.add(own)
    await this.#connected().subscribe(name)
    return async () => {
      const present = this.#listeners.get(name)
      if (present?.delete(own) !== true || present.size > 0) return
      this.#listeners.delete(name)
      await this.#subscriber?.unsubscribe(name)
    }
  }

  async close(): Promise<void> {
    this.#listeners.clear()
    const subscriber = this.#subscriber
    this.#subscriber = undefined
    subscriber?.disconnect()
  }

  #connected(): Client {
    if (this.#subscriber !== undefined) return this.#subscriber
    const subscriber = (this.#connection.client as { duplicate(): Client }).duplicate()
    subscriber.on('error', () => undefined)
    const heads = this.#connection.keys.channel('head:')
    subscriber.on('message', (channel: string, message: string) => {
      const [text = '', origin] = channel.startsWith(heads) ? message.split(' ') : [message]
      if (origin !== this.origin) this.#call(channel, text)
    })
    this.#subscriber = subscriber
    return subscriber
  }

  #call(channel: string, message: string): void {
    for (const listener of [...(this.#listeners.get(channel) ?? [])]) call(listener, message)
  }
}

/** A listener that throws harms nobody else. */
function call(listener: Listener, message: string): void {
  try {
    listener(message)
  } catch {
    // A notice is a hint: whoever fails to take it polls. There is nobody here to tell.
  }
}
