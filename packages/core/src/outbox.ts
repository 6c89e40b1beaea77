/**
 * Ends of attempts on their way to the storage: kept in the order in which they came, and sent again, identical, until they
 * were answered. A flight takes some off the front; what it does not bring home goes back to the front.
 */
import type { Settlement } from './storage.js'

interface Waiting {
  readonly session: string
  readonly settlement: Settlement
}

/** Settlements of one session that are under way in one call. */
export interface Flight {
  readonly session: string
  readonly settlements: readonly Settlement[]
}

export class Outbox {
  #waiting: Waiting[] = []
  readonly #flights = new Set<Flight>()

  /** Settlements that no call has under way. */
  get waiting(): number {
    return this.#waiting.length
  }

  /** Whether everything was answered. */
  get isEmpty(): boolean {
    return this.#waiting.length === 0 && this.#flights.size === 0
  }

  push(settlement: Settlement, session: string): void {
    this.#waiting.push({ session, settlement })
  }

  /** The session of the oldest one that waits. Each call speaks for one session, so those of an older one go alone. */
  get session(): string | undefined {
    return this.#waiting[0]?.session
  }

  /** Sends the oldest of a session on their way, if they are at the front. @param most of them */
  take(session: string, most: number): Flight {
    let count = 0
    while (count < most && this.#waiting[count]?.session === session) count++
    const settlements = this.#waiting.splice(0, count).map(({ settlement }) => settlement)
    const flight = { session, settlements }
    if (count > 0) this.#flights.add(flight)
    return flight
  }

  /** Its call was answered. */
  landed(flight: Flight): void {
    this.#flights.delete(flight)
  }

  /** Its call was not answered: they go again, before all others. */
  lost(flight: Flight): void {
    const { session, settlements } = flight
    if (this.#flights.delete(flight)) {
      this.#waiting.unshift(...settlements.map((settlement) => ({ session, settlement })))
    }
  }

  /** The tasks of this session, or of any, whose end was not answered. */
  tasks(session?: string): string[] {
    const under = [...this.#flights].flatMap((flight) =>
      flight.settlements.map((settlement) => ({ session: flight.session, settlement })),
    )
    return [...under, ...this.#waiting]
      .filter((each) => session === undefined || each.session === session)
      .map(({ settlement }) => settlement.id)
  }
}
