/**
 * The attempts that this process makes: how many slots are taken, and when none is.
 *
 * A slot is taken for as long as its handler is at work. So two kinds of attempt still count although nobody asks for
 * them any more: an older one of a task that was lost and claimed again by this very process, and the *stopping*,
 * whose end is decided and whose handler has not ended yet.
 *
 * Attempts come and go with every task and are seldom looked for, so they stand in an array and know their places:
 * that costs a tenth of what a map of their ids does.
 */
import type { Execution } from './execution.js'

export class Slots {
  /** Those whose end is not decided. */
  readonly #running: Execution[] = []
  readonly #stopping = new Set<Execution>()
  #idle: (() => void)[] = []

  /** How many are taken. */
  get active(): number {
    return this.#running.length + this.#stopping.size
  }

  /** Those whose end is not decided. */
  get executions(): readonly Execution[] {
    return [...this.#running]
  }

  /** The newest attempt that this process makes of the task, if it makes one. Looks through all of them. */
  find(id: string): Execution | undefined {
    let newest: Execution | undefined
    for (const execution of this.#running) {
      if (execution.id === id && (newest === undefined || execution.token > newest.token)) newest = execution
    }
    return newest
  }

  add(execution: Execution): void {
    execution.slot = this.#running.push(execution) - 1
  }

  /** Its end is decided; its slot stays taken until it is removed. */
  stop(execution: Execution): void {
    this.#forget(execution)
    this.#stopping.add(execution)
  }

  /** Its slot is free. */
  remove(execution: Execution): void {
    if (this.#stopping.size === 0 || !this.#stopping.delete(execution)) this.#forget(execution)
    if (this.#idle.length === 0 || this.active > 0) return
    const waiting = this.#idle
    this.#idle = []
    for (const resolve of waiting) resolve()
  }

  /** Resolves when no slot is taken. */
  async idle(): Promise<void> {
    if (this.active === 0) return
    await new Promise<void>((resolve) => this.#idle.push(resolve))
  }

  /** The last one takes its place. */
  #forget(execution: Execution): void {
    const last = this.#running.at(-1)
    if (last === undefined || this.#running[execution.slot] !== execution) return
    this.#running.pop()
    if (last === execution) return
    this.#running[execution.slot] = last
    last.slot = execution.slot
  }
}
