/**
 * The session face: the one call of a running node, and the beginning and end of its incarnation.
 */
import {
  NeoTaskError,
  optionError,
  type ResumeReply,
  type SessionFace,
  type SessionOptions,
  type TakenReason,
  type WorkReply,
  type WorkRequest,
} from '@neotask/core'
import { claim, claimDue, entriesAfter, headFor, type Taken } from './claim.js'
import type { Connection } from './connection.js'
import type { Database } from './database.js'
import type { Effects } from './effects.js'
import { FLAG, PENDING, stateOf } from './layout.js'
import { putRecord } from './record-store.js'
import { conclude, pruneRest, pruneTasks, retentionOf, type PruneCursors } from './retention.js'
import {
  closeSession,
  drainSession,
  findSession,
  heldBy,
  LIVE,
  lookAtSessions,
  nodeKey,
  type SessionRow,
} from './sessions.js'
import { mark, report, settle } from './settle.js'
import type { SqliteNotices } from './sqlite-notices.js'
import { Step } from './step.js'
import { drainSome, hasOnlyDue, nextDueIn } from './upkeep-steps.js'

/** Settlements in one call, and tasks in one claim: together as many rows as a transaction may write. */
export const WORK = 250
/** Due tasks, deadlines, members and lost entries that one claim deals with, of each. */
const PIECE = 200
/**
 * ms for which a call waits for others that write before its node tells of it. A checkpoint that begins the log anew holds
 * them all up for as long as the disk takes, and that is no trouble.
 */
const WORK_PATIENCE = 1000
/** Records that one renewal removes. */
const RENEWAL_PRUNE = 100
const SHORTEST_TTL = 1000
const EVERYTHING = 10_000

const INSERT = `INSERT INTO neotask_sessions (id, q, ttl, beat, max_reclaims, node, kinds, retention)
  VALUES (?, ?, ?, ?, ?, ?, ?, ?)`
const BEAT = 'UPDATE neotask_sessions SET beat = ?, suspect = NULL WHERE s = ?'
const TOKEN = 'UPDATE neotask_sessions SET token = ? WHERE s = ?'
const ACKNOWLEDGE = 'DELETE FROM neotask_taken WHERE s = ? AND seq <= ?'
const ACKNOWLEDGED = 'UPDATE neotask_sessions SET taken_ack = ? WHERE s = ?'
const TAKEN = 'SELECT id, token, reason FROM neotask_taken WHERE s = ? ORDER BY seq'
const ENDS = 'UPDATE neotask_sessions SET max_reclaims = -1 - max_reclaims WHERE s = ?'
const RETENTION = 'UPDATE neotask_queues SET retention = ? WHERE q = ?'
const EXPIRES = 'UPDATE neotask_records SET expires = ? WHERE tenant = ? AND key = ?'
const NODE = 'SELECT node FROM neotask_sessions WHERE s = ?'
const TENANT = 'SELECT tenant FROM neotask_queues WHERE q = ?'

const NOBODY = { claimed: [], head: undefined }

export class SqliteSession implements SessionFace {
  readonly #connection: Connection
  readonly #notices: SqliteNotices
  readonly #cursors: PruneCursors
  /** What sessions of this process serve, so that a claim need not parse it. */
  readonly #kinds = new Map<string, ReadonlySet<string>>()

  constructor(connection: Connection, notices: SqliteNotices, cursors: PruneCursors) {
    this.#connection = connection
    this.#notices = notices
    this.#cursors = cursors
  }

  async open(session: string, options: SessionOptions): Promise<void> {
    const { database } = this.#connection
    const { ttl, node, serves, retention, maxReclaims } = options
    if (!(Number.isFinite(ttl) && ttl >= SHORTEST_TTL))
      throw optionError('ttl', `at least ${SHORTEST_TTL} ms`, ttl)
    await database.patiently(() =>
      database.write(() => {
        const known = findSession(database, session)
        if (known && known.state !== LIVE) {
          throw new NeoTaskError('ILLEGAL_STATE', `session ${session} is over, and an id is not used again`)
        }
        const step = Step.in(database, serves)
        if (known) {
          this.#renew(step, known)
          return
        }
        const kinds = JSON.stringify(serves.kinds)
        const keeps = JSON.stringify(retention)
        database.run(INSERT, session, step.q, ttl, step.now, maxReclaims, JSON.stringify(node), kinds, keeps)
        database.run(RETENTION, keeps, step.q)
        putRecord(
          database,
          serves.tenant,
          nodeKey(session),
          JSON.stringify(node),
          { expiresIn: ttl },
          step.now,
        )
      }),
    )
  }

  async work(request: WorkRequest): Promise<WorkReply> {
    const { database } = this.#connection
    const { reply, effects, idle } = await database.politely(() => {
      const once = (alone: boolean): Worked => database.write(() => this.#work(database, request, alone))
      try {
        return once(false)
      } catch (error) {
        if (error instanceof NeoTaskError || request.settlements.length === 0) throw error
        return once(true)
      }
    }, WORK_PATIENCE)
    if (idle !== 'as before') this.#notices.setIdle(request.session, idle)
    if (effects) this.#notices.deliver(effects)
    return reply
  }

  resume(id: string, ids: readonly string[]): Promise<ResumeReply> {
    const { database } = this.#connection
    return database.patiently(() =>
      database.write(() => {
        const session = findSession(database, id)
        if (!session) return { status: 'gone', token: 0, entries: [], tasks: ids.map(() => undefined) }
        const step = Step.of(database, session.q)
        const rows = step.rows(ids)
        const tasks = ids.map((name) => {
          const row = rows.get(name)
          return (
            row && { state: stateOf(row.place), settledToken: row.flags & FLAG.decided ? 0 : row.settled }
          )
        })
        const { token } = session
        if (session.state !== LIVE) return { status: 'gone', token, entries: [], tasks }
        this.#renew(step, session)
        return { status: 'ok', token, entries: entriesAfter(step, session.s, -1, EVERYTHING), tasks }
      }),
    )
  }

  async end(id: string, limit: number): Promise<'done' | 'more'> {
    const { database } = this.#connection
    this.#notices.setIdle(id, undefined)
    this.#kinds.delete(id)
    const { done, effects } = await database.patiently(() =>
      database.write(() => {
        const session = findSession(database, id)
        if (!session) return { done: true, effects: undefined }
        const step = Step.of(database, session.q)
        const isLive = session.state === LIVE
        if (isLive) {
          closeSession(step, session)
          database.run(ENDS, session.s)
        }
        // One that is condemned already comes back as such: what it had started counts.
        const ending = isLive ? { ...session, maxReclaims: -1 } : session
        if (session.state < 2) drainSession(step, ending, limit)
        const left = heldBy(database, session.s)
        return { done: left === 0, effects: conclude(step, this.#cursors) }
      }),
    )
    if (effects) this.#notices.deliver(effects)
    return done ? 'done' : 'more'
  }

  // --------------------------------------------------------------------------------------------- one call

  #work(database: Database, request: WorkRequest, alone: boolean): Worked {
    const session = findSession(database, request.session)
    if (!session) return { reply: unknown(request), effects: undefined, idle: 'as before' }
    const step = Step.of(database, session.q)
    mark(step, session.s, request.marks)
    const staleReports = report(step, session.s, request.reports)
    const stale = settle(step, session.s, request.settlements, alone)
    const refused = { stale, staleReports }
    if (session.state !== LIVE) return this.#gone(step, session, refused)
    this.#acknowledge(database, session, request.ackTaken)
    if (request.renew) {
      this.#renew(step, session)
      this.#prune(step)
    }
    if (request.want > 0 && session.token !== request.ack) {
      const claimed = entriesAfter(step, session.s, request.ack, EVERYTHING)
      return this.#reply(step, session, 'again', { ...NOBODY, claimed }, session.token, refused)
    }
    if (request.want <= 0) {
      const head = step.paused ? undefined : headFor(step, this.#kindsOf(session))
      return this.#reply(step, session, 'ok', { ...NOBODY, head }, session.token, refused)
    }
    const kinds = this.#kindsOf(session)
    const wanted = limitsOf(request)
    let token = session.token
    const issue = (): number => {
      token = step.nextToken()
      database.run(TOKEN, token, session.s)
      return token
    }
    const isOnlyDue = hasOnlyDue(step)
    if (!isOnlyDue) drainSome(step, PIECE)
    // The look may condemn this very session, or take back from another what stands before all that is due.
    const isLive = !lookAtSessions(step, PIECE).condemned.includes(session.id)
    const mayTake = isOnlyDue && isLive && step.counts[PENDING] === 0
    const due = mayTake ? claimDue(step, session.s, kinds, wanted, PIECE, issue) : undefined
    if (isOnlyDue && !due) drainSome(step, PIECE)
    if (!isLive) return this.#gone(step, session, refused)
    if (step.paused)
      return this.#reply(step, session, 'ok', { ...NOBODY, short: true }, session.token, refused)
    const taken = due ?? claim(step, session.s, kinds, wanted, issue)
    return this.#reply(step, session, 'ok', taken, token, refused)
  }

  #reply(
    step: Step,
    session: SessionRow,
    status: 'ok' | 'again',
    { claimed, head, short }: Reported,
    token: number,
    refused: Pick<WorkReply, 'stale' | 'staleReports'>,
  ): Worked {
    const { db } = step
    const noted = findSession(db, session.id)?.taken ?? session.taken
    const taken = noted > session.takenAck ? db.all<[string, number, TakenReason]>(TAKEN, session.s) : []
    const effects = conclude(step, this.#cursors)
    const reply: WorkReply = {
      status,
      token,
      claimed,
      ...refused,
      taken: taken.map(([id, entry, reason]) => ({ id, token: entry, reason })),
      takenSeq: noted,
      held: heldBy(db, session.s),
      nextDueIn: nextDueIn(step),
      head,
      paused: step.paused === 1,
    }
    if (short === undefined) return { reply, effects, idle: 'as before' }
    const idle = short ? { q: session.q, kinds: this.#kindsOf(session) } : undefined
    return { reply, effects, idle }
  }

  #gone(step: Step, session: SessionRow, refused: Pick<WorkReply, 'stale' | 'staleReports'>): Worked {
    this.#kinds.delete(session.id)
    this.#notices.setIdle(session.id, undefined)
    return {
      reply: { ...GONE, token: session.token, ...refused },
      effects: conclude(step, this.#cursors),
      idle: undefined,
    }
  }

  #acknowledge(database: Database, session: SessionRow, seq: number): void {
    if (seq <= session.takenAck || session.taken <= session.takenAck) return
    database.run(ACKNOWLEDGE, session.s, seq)
    database.run(ACKNOWLEDGED, Math.min(seq, session.taken), session.s)
  }

  /** A beat, which extends the node's registration as well. */
  #renew(step: Step, session: SessionRow): void {
    const { db, now } = step
    db.run(BEAT, now, session.s)
    const tenant = db.get<[string]>(TENANT, session.q)?.[0] ?? ''
    const key = nodeKey(session.id)
    if (db.run(EXPIRES, Math.ceil(now + session.ttl), tenant, key) > 0) return
    // It was silent for so long that its registration is gone, and lives all the same.
    const node = db.get<[string]>(NODE, session.s)?.[0] ?? ''
    putRecord(db, tenant, key, node, { expiresIn: session.ttl }, now)
  }

  #prune(step: Step): void {
    const retention = retentionOf(step)
    const removed = retention ? pruneTasks(step, retention, RENEWAL_PRUNE, this.#cursors).removed : 0
    if (removed < RENEWAL_PRUNE) pruneRest(step, RENEWAL_PRUNE - removed)
  }

  #kindsOf(session: SessionRow): ReadonlySet<string> {
    let kinds = this.#kinds.get(session.id)
    if (!kinds) {
      kinds = new Set(JSON.parse(session.kinds) as string[])
      this.#kinds.set(session.id, kinds)
    }
    return kinds
  }
}

interface Worked {
  readonly reply: WorkReply
  readonly effects: Effects | undefined
  /** Whether the session sleeps from now on, and for what. Only a claim changes that. */
  readonly idle: { q: number; kinds: ReadonlySet<string> } | 'as before' | undefined
}

/** What a claim took, or what a call reports that claimed nothing. */
type Reported = Omit<Taken, 'short'> & Partial<Pick<Taken, 'short'>>

function limitsOf({ want, wantBytes, moreUrgentThan }: WorkRequest) {
  return { want: Math.min(want, WORK), bytes: wantBytes, moreUrgentThan }
}

const GONE: WorkReply = {
  status: 'gone',
  token: 0,
  claimed: [],
  stale: [],
  staleReports: [],
  taken: [],
  takenSeq: 0,
  held: 0,
  nextDueIn: undefined,
  head: undefined,
  paused: false,
}

/** Nothing of a session that was never heard of can be valid. */
function unknown({ settlements, reports }: WorkRequest): WorkReply {
  return { ...GONE, stale: [...settlements.keys()], staleReports: [...reports.keys()] }
}
