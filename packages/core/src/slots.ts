/**
 * The attempts that this process makes, by task: how many slots are taken, and when none is.
 *
 * A slot is taken for as long as its handler is at work. So two kinds of attempt still count although their task
 * cannot be found here any more: the *displaced*, whose task was lost and claimed again by this very process, and the
 * *stopping*, whose end is decided and whose handler has not ended yet.
 */
import type { Execution } from './execution.js'

export class Slots {
  readonly #running = new Map<string, Execution>()
  readonly #displaced = new Set<Execution>()
  readonly #stopping = new Set<Execution>()
  #idle: (() => void)[] = []

  /** How many are taken. */
  get active(): number {
    return this.#running.size + this.#displaced.size + this.#stopping.size
  }

  /** Those whose end is not decided. */
  get executions(): readonly Execution[] {
    return [...this.#running.values(), ...this.#displaced]
  }

  /** The attempt that this process makes of the task, if it does. */
  find(id: string): Execution | undefined {
    return this.#running.get(id)
  }

  add(execution: Execution): void {
    const older = this.#running.get(execution.id)
    if (older !== undefined) this.#displaced.add(older)
    this.#running.set(execution.id, execution)
  }

  /** Its end is decided; its slot stays taken until it is removed. */
  stop(execution: Execution): void {
    this.#forget(execution)
    this.#stopping.add(execution)
  }

  /** Its slot is free. */
  remove(execution: Execution): void {
    if (this.#stopping.size === 0 || !this.#stopping.delete(execution)) this.#forget(execution)
    if (this.active > 0 || this.#idle.length === 0) return
    const waiting = this.#idle
    this.#idle = []
    for (const resolve of waiting) resolve()
  }

  /** Resolves when no slot is taken. */
  async idle(): Promise<void> {
    if (this.active === 0) return
    await new Promise<void>((resolve) => this.#idle.push(resolve))
  }

  #forget(execution: Execution): void {
    if (this.#running.get(execution.id) === execution) this.#running.delete(execution.id)
    else this.#displaced.delete(execution)
  }
}
