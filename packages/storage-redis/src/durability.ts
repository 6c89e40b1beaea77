/**
 * How many replicas must have what was written before it counts, by `WAIT`. It is sent right behind a script, on the same
 * connection, and answers with the number of replicas that have everything the server had written by then. So it also holds
 * for a repeat that changes nothing.
 */
import { optionError, parseDuration, systemClock, type Duration } from '@neotask/core'

export interface DurabilityOptions {
  /** From 1 to 16. */
  readonly replicas: number
  /** How long they are waited for, from 1 ms to 3 s. Default: `'1s'`. */
  readonly timeout?: Duration | undefined
}

export interface Durability {
  readonly replicas: number
  /** ms. */
  readonly timeout: number
}

const MOST_REPLICAS = 16
const USUAL_TIMEOUT = 1_000
/** Longer, and the connection would be taken for lost. */
const LONGEST_TIMEOUT = 3_000
/** ms between two warnings of the same storage. */
const WARNING_PAUSE = 60_000

/** Callers without types get the same errors. */
export function resolveDurability(given: unknown): Durability | undefined {
  if (given === undefined) return undefined
  if (given === null || typeof given !== 'object')
    throw optionError('durability', '{ replicas, timeout }', given)
  const { replicas, timeout: wanted = USUAL_TIMEOUT, ...rest } = given as Partial<DurabilityOptions>
  for (const name of Object.keys(rest))
    throw optionError(`durability.${name}`, 'no such option', (rest as Record<string, unknown>)[name])
  if (!(Number.isInteger(replicas) && (replicas as number) >= 1 && (replicas as number) <= MOST_REPLICAS))
    throw optionError('durability.replicas', `an integer from 1 to ${MOST_REPLICAS}`, replicas)
  const timeout = parseDuration(wanted, 'durability.timeout')
  if (!(timeout >= 1 && timeout <= LONGEST_TIMEOUT))
    throw optionError('durability.timeout', 'from 1 ms to 3 s', wanted)
  return { replicas: replicas as number, timeout: Math.round(timeout) }
}

/** Says that results are not as safe as asked for, now and then. */
export class ReplicaWarning {
  #next = -Infinity

  /** @param confirmed by how many replicas */
  warn(confirmed: number, { replicas, timeout }: Durability): void {
    const now = systemClock.monotonic()
    if (now < this.#next) return
    this.#next = now + WARNING_PAUSE
    process.emitWarning(
      `Redis: results were confirmed by ${confirmed} of ${replicas} replicas, not within ${timeout} ms by all; they count all the same`,
      'NeoTaskWarning',
      'NEOTASK_REDIS_REPLICAS',
    )
  }
}
