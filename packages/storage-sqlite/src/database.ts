/**
 * One connection to an SQLite database: opening, statements, transactions, and what its errors mean.
 *
 * Everything here is synchronous, as better-sqlite3 is. A write waits at most `busyTimeout` for another process,
 * because that wait blocks the event loop; who wants to wait longer repeats it with {@link Database.patiently}.
 * A handle that a user gave is his: its pragmas stay as they are, it is never closed, and nothing is written into a
 * transaction that he has open, except by `enqueueSync`.
 */
import { NeoTaskError, StorageUnavailableError, type Clock, type Refusal, type Timer } from '@neotask/core'
import Sqlite from 'better-sqlite3'
import { randomUUID } from 'node:crypto'
import { resolve } from 'node:path'
import { ALONE, Checkpointer, LARGE_LOG } from './checkpointer.js'
import { checkFile, checkFormat, checkVersion, format, unavailable } from './file-check.js'
import { APPLICATION_ID, MIGRATIONS } from './schema.js'

export interface DatabaseOptions {
  readonly path: string | undefined
  /** A user's own handle, instead of `path`. */
  readonly handle: Sqlite.Database | undefined
  readonly synchronous: 'normal' | 'full'
  readonly busyTimeout: number
  readonly clock: Clock
  /** The steps to the present format; their number is its version. Tests give others. */
  readonly migrations?: readonly string[] | undefined
}

/** ms that operations which nobody repeats wait for other writers. */
const PATIENCE = 10_000
/** ms without a write after which the log is emptied. */
const IDLE = 2000

type Statement = Sqlite.Statement
type Value = string | number | Uint8Array | null

const NEW_GENERATOR = `INSERT INTO neotask_meta (key, value) VALUES ('generator', ?)
  ON CONFLICT (key) DO UPDATE SET value = cast(value AS INTEGER) + 1
  RETURNING cast(value AS INTEGER)`
const OCCUPIED = 'a transaction is open on the handle'

export class Database {
  /** What error messages call it. */
  readonly name: string
  /** Whether its data outlives the process. */
  readonly durable: boolean
  readonly clock: Clock
  readonly #handle: Sqlite.Database
  readonly #owned: boolean
  readonly #busyTimeout: number
  readonly #migrations: readonly string[]
  readonly #statements = new Map<string, Statement>()
  /** Of a file that is ours. */
  readonly #checkpointer: Checkpointer | undefined
  #writes = 0
  #idle: Timer | undefined
  #closed = false

  private constructor(handle: Sqlite.Database, name: string, options: DatabaseOptions) {
    this.#handle = handle
    this.#owned = options.handle === undefined
    this.#busyTimeout = options.busyTimeout
    this.#migrations = options.migrations ?? MIGRATIONS
    this.name = name
    this.durable = !handle.memory
    this.clock = options.clock
    if (!this.#owned || !this.durable) return
    this.#checkpointer = new Checkpointer(name, options.clock, (pages) => {
      if (handle.open) handle.pragma(`wal_autocheckpoint = ${pages}`)
    })
  }

  /** Opens, checks and migrates. Waits for whoever is writing. */
  static async open(options: DatabaseOptions): Promise<Database> {
    const { handle, path = '' } = options
    if (handle) {
      if (!handle.open) throw unavailable(handle.name, 'the handle is closed')
      const database = new Database(handle, handle.name, options)
      await database.patiently(() => database.#adopt())
      return database
    }
    const inMemory = path === ':memory:' || path === ''
    const name = inMemory ? path : resolve(path)
    const fileMustExist = !inMemory && checkFile(name, (options.migrations ?? MIGRATIONS).length)
    const database = new Database(
      connect(name, { fileMustExist, timeout: options.busyTimeout }),
      name,
      options,
    )
    try {
      await database.patiently(() => database.#prepareFile(options.synchronous))
      return database
    } catch (error) {
      await database.close()
      throw error
    }
  }

  /** The version of the stored format. */
  get format(): number {
    return this.#migrations.length
  }

  /** The log beside the file, where there is one that other processes write to as well. */
  get log(): string | undefined {
    if (!this.durable || this.#handle.pragma('journal_mode', { simple: true }) !== 'wal') return undefined
    return `${this.name}-wal`
  }

  /** Changes when another connection has committed something. */
  get dataVersion(): number {
    return this.get<[number]>('PRAGMA data_version')?.[0] ?? 0
  }

  /** Whether the owner of the handle has a transaction open, which is none of ours. */
  get occupied(): boolean {
    return this.#handle.inTransaction
  }

  get runId(): string {
    return this.get<[string]>(`SELECT value FROM neotask_meta WHERE key = 'run_id'`)?.[0] ?? ''
  }

  /** A number that no other connection gets. */
  newGenerator(): number {
    const seconds = Math.floor(this.clock.now() / 1000)
    return this.write(() => this.get<[number]>(NEW_GENERATOR, seconds)?.[0] as number)
  }

  // -------------------------------------------------------------------------------------------- statements

  /** The prepared statement; rows are arrays. */
  statement(sql: string): Statement {
    let statement = this.#statements.get(sql)
    if (!statement) {
      statement = this.#handle.prepare(sql)
      if (statement.reader) statement.raw(true).safeIntegers(false)
      this.#statements.set(sql, statement)
    }
    return statement
  }

  // eslint-disable-next-line @typescript-eslint/no-unnecessary-type-parameters -- the row that the statement is known to give
  get<T extends unknown[]>(sql: string, ...values: Value[]): T | undefined {
    return this.statement(sql).get(...values) as T | undefined
  }

  all<T extends unknown[]>(sql: string, ...values: Value[]): T[] {
    return this.statement(sql).all(...values) as T[]
  }

  /** @returns how many rows changed */
  run(sql: string, ...values: Value[]): number {
    return this.statement(sql).run(...values).changes
  }

  /** Inserts one row. @returns its number */
  insert(sql: string, ...values: Value[]): number {
    return Number(this.statement(sql).run(...values).lastInsertRowid)
  }

  // ------------------------------------------------------------------------------------------ transactions

  /** Carries out the action in one transaction that nobody else writes in. */
  write<T>(action: () => T): T {
    this.#ensureFree()
    try {
      this.#begin()
      const value = action()
      this.statement('COMMIT').run()
      this.#written()
      return value
    } catch (error) {
      this.#rollback()
      throw this.translate(error)
    }
  }

  /** Several reads that see one state. */
  read<T>(action: () => T): T {
    this.#ensureFree()
    try {
      this.statement('BEGIN').run()
      const value = action()
      this.statement('COMMIT').run()
      return value
    } catch (error) {
      this.#rollback()
      throw this.translate(error)
    }
  }

  /** Inside a transaction: undoes the action alone when it throws. */
  savepoint<T>(action: () => T): T {
    this.statement('SAVEPOINT neotask').run()
    try {
      return action()
    } catch (error) {
      if (this.#handle.inTransaction) this.statement('ROLLBACK TO neotask').run()
      throw error
    } finally {
      if (this.#handle.inTransaction) this.statement('RELEASE neotask').run()
    }
  }

  /** Inside the transaction of the handle's owner, or one of our own when he has none. */
  within<T>(action: () => T): T {
    if (!this.#handle.inTransaction) return this.write(action)
    try {
      return this.savepoint(action)
    } catch (error) {
      throw this.translate(error)
    }
  }

  /** Repeats what failed because others were writing, with pauses of random length, for up to 10 s. */
  patiently<T>(action: () => T): Promise<T> {
    return this.#repeat(action, (error, waited) => error.retryable && waited <= PATIENCE)
  }

  /**
   * Waits for the handle's owner to end his transaction, and for others that write a while only: whoever calls repeats
   * everything else himself.
   *
   * @param patience ms. Default: 0
   */
  politely<T>(action: () => T, patience = 0): Promise<T> {
    return this.#repeat(
      action,
      (error, waited) =>
        error.retryable && waited <= (error.message.includes(OCCUPIED) ? PATIENCE : patience),
    )
  }

  async #repeat<T>(action: () => T, again: (error: NeoTaskError, waited: number) => boolean): Promise<T> {
    const start = this.clock.monotonic()
    for (let turn = 0; ; turn++) {
      try {
        return action()
      } catch (error) {
        if (!(error instanceof NeoTaskError) || !again(error, this.clock.monotonic() - start)) throw error
      }
      const pause = Math.min(100, 2 ** Math.min(turn, 7)) * (0.5 + Math.random())
      await new Promise<void>((done) => this.clock.after(pause, done, { hold: true }))
    }
  }

  async close(): Promise<void> {
    if (this.#closed) return
    this.#closed = true
    this.#idle?.cancel()
    await this.#checkpointer?.close()
    this.#statements.clear()
    if (this.#owned) this.#handle.close()
  }

  /** What an error of SQLite means for the caller. */
  translate(error: unknown): unknown {
    if (error instanceof NeoTaskError) return error
    const code = sqliteCode(error)
    const message = error instanceof Error ? error.message : String(error)
    if (code === undefined) {
      // Somebody iterates over a result of the handle: like an open transaction, only of another kind.
      if (message.includes('busy executing a query')) return this.#unavailable(OCCUPIED, error, true)
      if (message.includes('connection is not open'))
        return this.#unavailable('the handle is closed', error, false)
      return error
    }
    if (/^SQLITE_(NOTADB|CORRUPT)/.test(code)) return format(this.name, `it is damaged (${message})`, error)
    if (/^SQLITE_(BUSY|LOCKED)/.test(code))
      return this.#unavailable('another process is writing to it', error, true)
    if (/^SQLITE_(READONLY)/.test(code))
      return this.#unavailable(`it is read-only (${message})`, error, false)
    if (/^SQLITE_(FULL|IOERR|NOMEM|CANTOPEN|PROTOCOL|INTERRUPT)/.test(code))
      return this.#unavailable(message, error, true)
    return error
  }

  // ----------------------------------------------------------------------------------------------- opening

  #prepareFile(synchronous: 'normal' | 'full'): void {
    const handle = this.#handle
    try {
      this.#create(() => {
        handle.pragma(`application_id = ${APPLICATION_ID}`)
        handle.pragma(`user_version = ${this.format}`)
      })
      // Created before the log exists, so that the file's header always carries our mark.
      if (this.durable && handle.pragma('journal_mode = WAL', { simple: true }) !== 'wal') {
        throw unavailable(this.name, 'its file system does not support a write-ahead log')
      }
      handle.pragma(`synchronous = ${synchronous}`)
      handle.pragma(`wal_autocheckpoint = ${ALONE}`)
      handle.pragma(`journal_size_limit = ${LARGE_LOG / 2}`)
      handle.pragma('cache_size = -16000')
      const version = Number(handle.pragma('user_version', { simple: true }))
      checkVersion(this.name, Number(handle.pragma('application_id', { simple: true })), version, this.format)
      if (version < this.format) this.#migrate(version)
      this.#probe()
    } catch (error) {
      throw this.translate(error)
    }
  }

  /** A user's own database: our tables stand beside his, and their version in a table rather than in his header. */
  #adopt(): void {
    if (this.#handle.readonly) throw unavailable(this.name, 'the handle is read-only')
    try {
      this.#create(() => undefined)
      const version = this.#storedFormat()
      checkFormat(this.name, version, this.format)
      if (version < this.format) this.#migrate(version)
      this.#probe()
    } catch (error) {
      throw this.translate(error)
    }
  }

  #storedFormat(): number {
    return this.get<[number]>(`SELECT value FROM neotask_meta WHERE key = 'format'`)?.[0] ?? 0
  }

  #exists(): boolean {
    return this.get(`SELECT 1 FROM sqlite_schema WHERE name = 'neotask_meta'`) !== undefined
  }

  #create(mark: () => void): void {
    if (this.#exists()) return
    this.write(() => {
      if (this.#exists()) return
      for (const step of this.#migrations) this.#handle.exec(step)
      this.#setFormat()
      this.run(`INSERT INTO neotask_meta VALUES ('run_id', ?)`, randomUUID())
      mark()
    })
  }

  #migrate(from: number): void {
    this.write(() => {
      // Somebody else may have been faster.
      const version = this.#storedFormat()
      for (const step of this.#migrations.slice(Math.max(from, version))) this.#handle.exec(step)
      this.#setFormat()
      if (this.#owned) this.#handle.pragma(`user_version = ${this.format}`)
    })
    // An older version that opens the file must see the new number in its header.
    if (this.#owned) this.#handle.pragma('wal_checkpoint(TRUNCATE)')
  }

  #setFormat(): void {
    this.run(`INSERT OR REPLACE INTO neotask_meta VALUES ('format', ?)`, this.format)
  }

  /** Touches the first page of each of our tables and indices: a damaged file should be found now. */
  #probe(): void {
    const tables = this.all<[string]>(
      `SELECT name FROM sqlite_schema WHERE type = 'table' AND name GLOB 'neotask_*'`,
    )
    for (const [table] of tables) this.#handle.prepare(`SELECT 1 FROM "${table}" LIMIT 1`).get()
  }

  // ----------------------------------------------------------------------------------------------- helpers

  #ensureFree(): void {
    if (this.#closed) throw this.#unavailable('the storage is closed', undefined, false)
    if (this.#handle.inTransaction) throw this.#unavailable(OCCUPIED, undefined, true)
  }

  #begin(): void {
    if (this.#owned) {
      this.statement('BEGIN IMMEDIATE').run()
      return
    }
    // His time-out may be seconds long, and the wait would block his event loop.
    const timeout = Number(this.#handle.pragma('busy_timeout', { simple: true }))
    if (timeout <= this.#busyTimeout) {
      this.statement('BEGIN IMMEDIATE').run()
      return
    }
    this.#handle.pragma(`busy_timeout = ${this.#busyTimeout}`)
    try {
      this.statement('BEGIN IMMEDIATE').run()
    } finally {
      this.#handle.pragma(`busy_timeout = ${timeout}`)
    }
  }

  #rollback(): void {
    // A full disk rolls back by itself.
    if (this.#handle.open && this.#handle.inTransaction) this.statement('ROLLBACK').run()
  }

  #written(): void {
    this.#writes++
    this.#checkpointer?.committed()
    if (!this.#owned || !this.durable || this.#idle) return
    const watch = (seen: number): void => {
      this.#idle = this.clock.after(IDLE, () => {
        this.#idle = undefined
        if (this.#closed) return
        if (this.#writes !== seen) watch(this.#writes)
        else this.#emptyLog()
      })
    }
    watch(this.#writes)
  }

  #emptyLog(): void {
    if (this.#checkpointer?.empty() === true) return
    try {
      this.#handle.pragma('wal_checkpoint(TRUNCATE)')
    } catch {
      // Somebody reads from the log: the next idle time will do.
    }
  }

  #unavailable(what: string, cause: unknown, retryable: boolean): StorageUnavailableError {
    return new StorageUnavailableError('STORAGE_UNAVAILABLE', `${this.name}: ${what}`, { cause, retryable })
  }
}

/** The result code of an error of SQLite, of this or another copy of better-sqlite3. */
function sqliteCode(error: unknown): string | undefined {
  const code = (error as { code?: unknown } | undefined)?.code
  return typeof code === 'string' && code.startsWith('SQLITE_') ? code : undefined
}

function connect(name: string, options: Sqlite.Options): Sqlite.Database {
  try {
    return new Sqlite(name, options)
  } catch (cause) {
    throw unavailable(name, (cause as Error).message, cause)
  }
}

/** What an item is told that SQLite does not take. @throws what concerns the whole database */
export function refusalFrom(error: unknown): Refusal {
  if (error instanceof NeoTaskError) throw error
  const message = error instanceof Error ? error.message : String(error)
  return { code: sqliteCode(error) === 'SQLITE_TOOBIG' ? 'PAYLOAD_TOO_LARGE' : 'PAYLOAD_INVALID', message }
}
