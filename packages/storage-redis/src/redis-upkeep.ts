/** The upkeep face: bounded, repeatable pieces of work that anybody may do at any time. */
import type { OperationOutcome, QueueRef, ReclaimReport, Retention, UpkeepFace } from '@neotask/core'
import type { Argument, Connection } from './connection.js'
import { parseTaskName } from './keys.js'
import { operate } from './redis-queue.js'
import { listOf, numberOf, textsOf } from './reply.js'

/** What one call does at most, so that none takes longer than 5 ms. */
const MOST = 400
const ENDLESS = 1e15

export class RedisUpkeep implements UpkeepFace {
  readonly #connection: Connection

  constructor(connection: Connection) {
    this.#connection = connection
  }

  async reclaim(limit: number): Promise<ReclaimReport> {
    const reply = await this.#connection.run('reclaim', [Math.min(limit, MOST)])
    const [suspected, condemned, reclaimed, poisoned] = listOf(reply).map(textsOf) as [
      string[],
      string[],
      string[],
      string[],
    ]
    return {
      suspected,
      condemned,
      reclaimed: reclaimed.map(parseTaskName),
      poisoned: poisoned.map(parseTaskName),
    }
  }

  async drain(ref: QueueRef, limit: number): Promise<'done' | 'more'> {
    return (await this.#run(ref, 'drain', limit)) > 0 ? 'more' : 'done'
  }

  async prune(ref: QueueRef, retention: Retention, limit: number): Promise<'done' | 'more'> {
    const { success, failed } = retention
    const rules = [success.age, success.count, failed.age, failed.count]
    const finite = rules.map((value) => Math.min(value, ENDLESS))
    return (await this.#run(ref, 'prune', limit, finite)) > 0 ? 'more' : 'done'
  }

  async revoke(ref: QueueRef, ids: readonly string[]): Promise<OperationOutcome[]> {
    return operate(this.#connection, ref, 'revoke', ids, { none: 1 })
  }

  async reconcile(ref: QueueRef, limit: number): Promise<{ readonly mended: number }> {
    return { mended: await this.#run(ref, 'reconcile', limit) }
  }

  async #run(ref: QueueRef, what: string, limit: number, rest: readonly Argument[] = []): Promise<number> {
    const { keys } = this.#connection
    const args = [what, Math.min(limit, MOST), ...rest]
    return numberOf(await this.#connection.runIn('upkeep', keys.queue(ref), args))
  }
}
