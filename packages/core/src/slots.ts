/**
 * The attempts that this process makes: how many slots are taken, and when none is.
 *
 * A slot is taken for as long as its handler is at work. So two kinds of attempt still count although nobody asks for
 * them any more: an older one of a task that was lost and claimed again by this very process, and the *stopping*,
 * whose end is decided and whose handler has not ended yet.
 *
 * Attempts come and go with every task and are seldom looked for, so they stand in an array and know their places: a map
 * of their ids took half a microsecond of each. Where many are and some are looked for, there is one for a while.
 */
import type { Execution } from './execution.js'

/** So many are looked through one by one. */
const FEW = 32

export class Slots {
  /** Those whose end is not decided. */
  readonly #running: Execution[] = []
  readonly #stopping = new Set<Execution>()
  /** The newest of each task, made when one of many is looked for. */
  #byId: Map<string, Execution> | undefined
  /** Attempts begun since one was looked for. */
  #unasked = 0
  #idle: (() => void)[] = []

  /** How many are taken. */
  get active(): number {
    return this.#running.length + this.#stopping.size
  }

  /** Those whose end is not decided. */
  get executions(): readonly Execution[] {
    return [...this.#running]
  }

  /** The newest attempt that this process makes of the task, if it makes one. */
  find(id: string): Execution | undefined {
    const running = this.#running
    if (this.#byId === undefined) {
      if (running.length <= FEW) return newestOf(running.filter((execution) => execution.id === id))
      this.#byId = new Map()
      for (const execution of running) {
        const other = this.#byId.get(execution.id)
        if (other === undefined || other.token < execution.token) this.#byId.set(execution.id, execution)
      }
    }
    this.#unasked = 0
    return this.#byId.get(id)
  }

  add(execution: Execution): void {
    execution.slot = this.#running.push(execution) - 1
    if (this.#byId === undefined) return
    if (++this.#unasked > 4 * this.#running.length) this.#byId = undefined
    else this.#byId.set(execution.id, execution)
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
    if (this.#byId?.get(execution.id) === execution) this.#byId.delete(execution.id)
    if (last === execution) return
    this.#running[execution.slot] = last
    last.slot = execution.slot
  }
}

function newestOf(executions: readonly Execution[]): Execution | undefined {
  let newest: Execution | undefined
  for (const execution of executions)
    if (newest === undefined || newest.token < execution.token) newest = execution
  return newest
}
