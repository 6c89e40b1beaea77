/**
 * Who hears of what. Inside this process exactly, as in memory; from other processes only *that* something changed.
 *
 * Another process is noticed by a watch on the log file and by a look at `PRAGMA data_version` every 100 ms,
 * slowing to 1 s while nothing happens; both only while somebody listens. Messages of `publish` travel through a
 * small table as well, and are forgotten after 10 s.
 */
import {
  CHANGED,
  finalChannel,
  headChannel,
  wakeChannel,
  type NoticesFace,
  type QueueRef,
  type Timer,
} from '@neotask/core'
import { randomUUID } from 'node:crypto'
import { watch, type FSWatcher } from 'node:fs'
import type { Connection } from './connection.js'
import type { Database } from './database.js'
import type { Effects } from './effects.js'
import { PENDING, placeOf, priorityOf } from './layout.js'

type Listener = (message: string) => void

/** Sessions woken by one step at most. */
const WOKEN = 16
const POLL_FAST = 100
const POLL_SLOW = 1000
/** ms between two looks that file events cause. */
const PAUSE = 10
/** ms that a message waits in its table for other processes. */
const MEMORY = 10_000

const POST = 'INSERT INTO neotask_notices (origin, channel, message, at) VALUES (?, ?, ?, ?)'
const FORGET = 'DELETE FROM neotask_notices WHERE at <= ?'
const NEWEST = 'SELECT coalesce(max(notice), 0) FROM neotask_notices'
const NEW =
  'SELECT notice, origin, channel, message FROM neotask_notices WHERE notice > ? ORDER BY notice LIMIT 500'
const HEAD = 'SELECT rank FROM neotask_tasks WHERE place = ? ORDER BY rank LIMIT 1'
const QUEUE = 'SELECT tenant, queue FROM neotask_queues WHERE q = ?'
const LIVING = 'SELECT 1 FROM neotask_sessions WHERE id = ? AND state = 0'

interface Idle {
  readonly q: number
  readonly kinds: ReadonlySet<string>
}

export class SqliteNotices implements NoticesFace {
  readonly #connection: Connection
  readonly #origin = randomUUID()
  readonly #channels = new Map<string, Set<Listener>>()
  /** Sessions of this process whose last claim came back short. */
  readonly #idle = new Map<string, Idle>()
  #pending: [channel: string, message: string][] = []
  #poll: Timer | undefined
  #pause = POLL_FAST
  #soon: Timer | undefined
  #watcher: FSWatcher | undefined
  #version = 0
  #seen = 0

  constructor(connection: Connection) {
    this.#connection = connection
  }

  async publish(channel: string, message: string): Promise<void> {
    const { database } = this.#connection
    this.#send(channel, message)
    const { clock } = database
    if (!database.durable) return
    await database.patiently(() =>
      database.write(() => {
        database.run(FORGET, clock.now() - MEMORY)
        database.run(POST, this.#origin, channel, message, clock.now())
      }),
    )
  }

  subscribe(channel: string, listener: Listener): Promise<() => Promise<void>> {
    let listeners = this.#channels.get(channel)
    if (!listeners) this.#channels.set(channel, (listeners = new Set()))
    // Its own function, so that the same listener may subscribe twice.
    const own: Listener = (message) => listener(message)
    listeners.add(own)
    this.start()
    return Promise.resolve(() => {
      const present = this.#channels.get(channel)
      if (present?.delete(own) && present.size === 0) this.#channels.delete(channel)
      if (this.#channels.size === 0) this.stop()
      return Promise.resolve()
    })
  }

  /** Whether the session waits for work, in the same step as its claim: nothing runs in between. */
  setIdle(session: string, idle: Idle | undefined): void {
    if (idle) this.#idle.set(session, idle)
    else this.#idle.delete(session)
  }

  /** Tells this process what a committed step did. */
  deliver(effects: Effects): void {
    this.#deliverFinals(effects)
    for (const session of effects.over) this.#idle.delete(session)
    for (const session of [...effects.taken, ...effects.wake]) this.#send(wakeChannel(session), '')
    if (this.#idle.size > 0) this.#wakeIdle(effects)
    if (effects.best !== undefined) this.#deliverHead(effects.q, effects.best)
  }

  /** The same for a step in a transaction of the handle's owner: told when he has ended it, whichever way. */
  deliverLater(effects: Effects): void {
    const { database } = this.#connection
    const look = (): void => {
      if (!this.#connection.isOpen) return
      if (database.occupied) database.clock.after(1, look)
      else this.deliver(effects)
    }
    queueMicrotask(look)
  }

  /** Ends the looks at other processes; a new subscription begins them again. */
  stop(): void {
    this.#poll?.cancel()
    this.#soon?.cancel()
    this.#watcher?.close()
    this.#poll = this.#soon = this.#watcher = undefined
  }

  // ---------------------------------------------------------------------------------------- in this process

  #deliverFinals(effects: Effects): void {
    if (effects.finals.length === 0) return
    const ids = new Map<string, string[]>()
    for (const [watcher, id] of effects.finals) {
      const known = ids.get(watcher)
      if (known) known.push(id)
      else ids.set(watcher, [id])
    }
    for (const [watcher, some] of ids) this.#send(finalChannel(watcher), some.join(' '))
  }

  #wakeIdle(effects: Effects): void {
    // As many for each kind: one session may not be able to take what another is waiting for.
    for (const [kind, count] of effects.kinds) this.#wakeSome(effects.q, Math.min(count, WOKEN), kind)
    // One of them must learn of a new earliest time, or go on with what the step left.
    if (effects.earliest !== undefined || effects.backlog) this.#wakeSome(effects.q, 1)
  }

  #wakeSome(q: number, limit: number, kind?: string): void {
    let left = limit
    for (const [session, idle] of this.#idle) {
      if (left <= 0) return
      if (idle.q !== q || (kind !== undefined && !idle.kinds.has(kind))) continue
      this.#idle.delete(session)
      left--
      this.#send(wakeChannel(session), '')
    }
  }

  #deliverHead(q: number, best: number): void {
    if (this.#channels.size === 0) return
    const { database } = this.#connection
    const found = database.get<[string, string]>(QUEUE, q)
    if (!found) return
    const ref: QueueRef = { tenant: found[0], queue: found[1] }
    if (!this.#channels.has(headChannel(ref))) return
    // The newcomer is first in the order, so it is more urgent than the first of before.
    if (database.get<[number]>(HEAD, placeOf(q, PENDING))?.[0] !== best) return
    this.#send(headChannel(ref), String(priorityOf(best)))
  }

  /** A listener is called in a microtask after the step, never inside it. */
  #send(channel: string, message: string): void {
    if (!this.#channels.has(channel)) return
    this.#pending.push([channel, message])
    if (this.#pending.length > 1) return
    queueMicrotask(() => {
      const pending = this.#pending
      this.#pending = []
      for (const [name, text] of pending) {
        for (const listener of [...(this.#channels.get(name) ?? [])]) call(listener, text)
      }
    })
  }

  // ------------------------------------------------------------------------------------ from other processes

  /** Begins to look at other processes, when somebody listens. */
  start(): void {
    if (this.#poll || this.#channels.size === 0 || !this.#connection.isOpen) return
    const { database } = this.#connection
    if (!database.durable) return
    this.#version = database.dataVersion
    this.#seen = database.get<[number]>(NEWEST)?.[0] ?? 0
    this.#pause = POLL_FAST
    this.#watchLog(database)
    this.#arm(database)
  }

  /** Sessions of this process that another has ended sleep no more. */
  #forgetOver(database: Database): void {
    for (const session of this.#idle.keys())
      if (database.get(LIVING, session) === undefined) this.#idle.delete(session)
  }

  #arm(database: Database): void {
    this.#poll = database.clock.after(this.#pause, () => {
      const changed = this.#look(database)
      this.#pause = changed ? POLL_FAST : Math.min(POLL_SLOW, this.#pause * 1.25)
      if (this.#poll) this.#arm(database)
    })
  }

  #watchLog(database: Database): void {
    const { log } = database
    if (log === undefined) return
    try {
      this.#watcher = watch(log, { persistent: false }, () => {
        this.#soon ??= database.clock.after(PAUSE, () => {
          this.#soon = undefined
          if (this.#look(database)) this.#pause = POLL_FAST
        })
      })
      this.#watcher.on('error', () => this.#watcher?.close())
    } catch {
      // The poll does without it.
    }
  }

  /** @returns whether another process has changed anything since the last look */
  #look(database: Database): boolean {
    try {
      if (!this.#connection.isOpen || database.occupied) return false
      const version = database.dataVersion
      if (version === this.#version) return false
      this.#version = version
      this.#forgetOver(database)
      for (const [notice, origin, channel, message] of database.all<[number, string, string, string]>(
        NEW,
        this.#seen,
      )) {
        this.#seen = notice
        if (origin !== this.#origin) this.#send(channel, message)
      }
      for (const listeners of [...this.#channels.values()]) {
        for (const listener of [...listeners]) call(listener, CHANGED)
      }
      return true
    } catch {
      // Somebody writes just now: the next look will see it.
      return false
    }
  }
}

/** A listener that throws harms nobody else. */
function call(listener: Listener, message: string): void {
  try {
    listener(message)
  } catch {
    // Theirs to report.
  }
}
