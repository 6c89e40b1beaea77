/**
 * Notices of the memory storage: a listener is called in a microtask after the step that published, never inside it,
 * so it always sees the step's whole effect. A listener that throws harms nobody else.
 */
import { finalChannel, type NoticesFace } from './storage.js'

type Listener = (message: string) => void

const DONE = Promise.resolve()

export class MemoryNotices implements NoticesFace {
  readonly #listeners = new Map<string, Set<Listener>>()
  /** Channel and message, in turn. */
  #pending: string[] = []
  /** The final ids of a step by their watcher, so that each watcher gets one message. */
  readonly #finals = new Map<string, string[]>()
  #scheduled = false

  async publish(channel: string, message: string): Promise<void> {
    this.send(channel, message)
  }

  async subscribe(channel: string, listener: Listener): Promise<() => Promise<void>> {
    // Wrapped, so that one function subscribed twice is two subscriptions.
    const entry: Listener = (message) => listener(message)
    let listeners = this.#listeners.get(channel)
    if (listeners === undefined) this.#listeners.set(channel, (listeners = new Set()))
    listeners.add(entry)
    return async () => {
      const left = this.#listeners.get(channel)
      if (left?.delete(entry) && left.size === 0) this.#listeners.delete(channel)
    }
  }

  /** Publishes from within a step. */
  send(channel: string, message: string): void {
    if (!this.#listeners.has(channel)) return
    this.#pending.push(channel, message)
    this.#schedule()
  }

  /** Tells a watcher that a task is final or removed. */
  sendFinal(watcher: string, id: string): void {
    const ids = this.#finals.get(watcher)
    if (ids !== undefined) {
      ids.push(id)
      return
    }
    if (!this.#listeners.has(finalChannel(watcher))) return
    this.#finals.set(watcher, [id])
    this.#schedule()
  }

  #schedule(): void {
    if (this.#scheduled) return
    this.#scheduled = true
    // Not by queueMicrotask, which some test runners replace with a fake that never runs.
    void DONE.then(() => this.#deliver())
  }

  #deliver(): void {
    this.#scheduled = false
    const pending = this.#pending
    this.#pending = []
    for (const [watcher, ids] of this.#finals) pending.push(finalChannel(watcher), ids.join(' '))
    this.#finals.clear()
    for (let i = 0; i < pending.length; i += 2) this.#call(pending[i] as string, pending[i + 1] as string)
  }

  #call(channel: string, message: string): void {
    for (const listener of this.#listeners.get(channel) ?? []) {
      try {
        listener(message)
      } catch {
        // A notice is a hint: whoever fails to take it polls. There is nobody here to tell.
      }
    }
  }
}
