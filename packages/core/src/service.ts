/**
 * What lives as long as a pool: schedulers, watch-dogs, collectors, and whatever a user adds with `pool.use`.
 *
 * The contract: `start` is called once, after the pool consumes; `stop` only after a `start` that succeeded, in the
 * reverse order, before the pool's session ends, and the service is finished when it resolves. {@link Services}
 * keeps it, so a service need not guard itself.
 */
import { checkMethods, checkObject, checkText } from './checks.js'
import { NeoTaskError } from './errors.js'

export interface Service<Pool = unknown> {
  /** For messages. */
  readonly name: string
  /** The pool consumes already: awaiting its `start` here would wait for this very call. */
  start(pool: Pool): Promise<void> | void
  stop(): Promise<void> | void
}

interface Entry<Pool> {
  readonly service: Service<Pool>
  started: boolean
  /** The start or stop under way, or the last one. */
  turn: Promise<void>
}

export class Services<Pool> {
  readonly #pool: Pool
  readonly #entries: Entry<Pool>[] = []
  #running = false

  constructor(pool: Pool) {
    this.#pool = pool
  }

  /** Adds a service, and starts it when the others run already. The same one twice is one. */
  async add(service: Service<Pool>): Promise<void> {
    checkObject(service, 'service')
    checkMethods(service, 'service', ['start', 'stop'])
    checkText(service.name, 'service.name', 128)
    let entry = this.#entries.find((known) => known.service === service)
    if (entry === undefined) {
      entry = { service, started: false, turn: Promise.resolve() }
      this.#entries.push(entry)
    }
    if (this.#running) await this.#start(entry)
  }

  /** Starts those that do not run, in the order in which they were added. */
  async startAll(): Promise<void> {
    this.#running = true
    for (const entry of this.#entries) await this.#start(entry)
  }

  /** Stops those that run, last first. @returns what went wrong, one error for each service */
  async stopAll(): Promise<NeoTaskError[]> {
    this.#running = false
    const errors: NeoTaskError[] = []
    for (const entry of [...this.#entries].reverse()) {
      await entry.turn.catch(() => {})
      if (!entry.started) continue
      entry.started = false
      try {
        await entry.service.stop()
      } catch (cause) {
        errors.push(
          new NeoTaskError('SERVICE_FAILED', `service ${entry.service.name} did not stop`, { cause }),
        )
      }
    }
    return errors
  }

  #start(entry: Entry<Pool>): Promise<void> {
    entry.turn = entry.turn
      .catch(() => {})
      .then(async () => {
        if (entry.started || !this.#running) return
        try {
          await entry.service.start(this.#pool)
        } catch (cause) {
          throw new NeoTaskError('SERVICE_FAILED', `service ${entry.service.name} did not start`, { cause })
        }
        entry.started = true
      })
    return entry.turn
  }
}
