/**
 * The database once it is open, and the ways in which the faces carry out their steps on it.
 */
import { StorageUnavailableError } from '@neotask/core'
import type { Database } from './database.js'

/** ms after which a transaction is ended and another begun, so that others get their turn. */
const LONG = 5

export class Connection {
  #database: Database | undefined

  get isOpen(): boolean {
    return this.#database !== undefined
  }

  get database(): Database {
    if (!this.#database) {
      throw new StorageUnavailableError('STORAGE_UNAVAILABLE', 'the storage is not open: call open() first')
    }
    return this.#database
  }

  set(database: Database | undefined): void {
    this.#database = database
  }
}

/** Tells a loop inside a transaction when to stop. */
export class Turn {
  readonly #database: Database
  readonly #end: number

  constructor(database: Database) {
    this.#database = database
    this.#end = database.clock.monotonic() + LONG
  }

  get over(): boolean {
    return this.#database.clock.monotonic() > this.#end
  }
}

/** Lets everything else run between two transactions. */
export function yieldTurn(): Promise<void> {
  return new Promise((resolve) => setImmediate(resolve))
}
