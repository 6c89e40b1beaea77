/**
 * The model of the sessions of a storage. It is told what was asked and what the driver answered, says whether the
 * contract permits that answer, and follows the driver where the contract leaves a choice.
 */
import assert from 'node:assert/strict'
import type {
  Mark,
  ReclaimReport,
  Report,
  ResumeReply,
  SessionOptions,
  Settlement,
  WorkReply,
  WorkRequest,
} from '../storage.js'
import { checkClaim, checkEntries } from './model-claim.js'
import type { ModelQueue } from './model-queue.js'
import { isDoomed, isEnded, type ModelSession, type ModelTask } from './model-task.js'

const SUSPECT_AFTER = 0.6
const CONDEMN_AFTER = 0.4
const MAX_LOGS = 100

export interface OpenSession {
  readonly session: ModelSession
  readonly queue: ModelQueue
}

export class ModelSessions {
  readonly byId: Map<string, OpenSession> = new Map<string, OpenSession>()
  /** The newest token that was issued to anybody. */
  #token = 0

  /** @returns whether the session may be opened */
  open(queue: ModelQueue, id: string, options: SessionOptions): boolean {
    const known = this.byId.get(id)?.session
    if (known?.over !== undefined) return false
    if (known !== undefined) {
      this.#beat(known, queue.now)
      return true
    }
    const session: ModelSession = {
      id,
      kinds: options.serves.kinds,
      ttl: options.ttl,
      maxReclaims: options.maxReclaims,
      retention: options.retention,
      beatAt: queue.now,
      suspectAt: undefined,
      over: undefined,
      overAt: 0,
      isDrained: false,
      token: 0,
      entries: new Set(),
      taken: [],
      takenSeq: 0,
      idle: false,
    }
    this.byId.set(id, { session, queue })
    queue.sessions.add(session)
    queue.retention = options.retention
    return true
  }

  // ---------------------------------------------------------------------------------------------------- work

  work(request: WorkRequest, reply: WorkReply): void {
    const found = this.byId.get(request.session)
    if (found === undefined) {
      assert.equal(reply.status, 'gone', 'a session that never was')
      assert.deepEqual(reply.stale, [...request.settlements.keys()])
      return
    }
    const { session, queue } = found
    for (const mark of request.marks) this.#mark(queue, session, mark)
    const staleReports = indicesOf(request.reports, (report) => !this.#report(queue, session, report))
    assert.deepEqual([...reply.staleReports], staleReports, 'stale reports')
    for (const [index, settlement] of request.settlements.entries()) {
      const isStale = reply.stale.includes(index)
      assert.equal(
        isStale,
        !this.#settle(queue, session, settlement, isStale),
        `settlement ${index} (${settlement.outcome} of ${settlement.id} ${settlement.token}) is ${isStale ? 'stale' : 'accepted'}`,
      )
    }
    queue.sweep()
    if (session.over !== undefined) {
      this.#checkGone(reply)
      return
    }
    session.taken = session.taken.filter(({ seq }) => seq === undefined || seq > request.ackTaken)
    if (request.renew) this.#beat(session, queue.now)
    if (request.want > 0 && session.token === request.ack) this.#claimStep(queue, session, request, reply)
    else {
      if (request.want > 0) this.#again(queue, session, request.ack, reply)
      else {
        assert.equal(reply.status, 'ok', 'a call that claims nothing')
        assert.deepEqual([...reply.claimed], [])
      }
      // A driver that looks for the head may end what has expired on its way.
      if (queue.in('pending').some((task) => queue.hasExpired(task))) queue.isBehind = true
      this.#checkReply(queue, session, reply)
    }
  }

  #mark(queue: ModelQueue, session: ModelSession, { id, token }: Mark): void {
    const task = queue.tasks.get(id)
    if (!holds(session, task, token)) return
    task.started = true
    task.probation = false
    task.deadline = undefined
  }

  #report(queue: ModelQueue, session: ModelSession, report: Report): boolean {
    const task = queue.tasks.get(report.id)
    if (!holds(session, task, report.token)) return false
    if (report.progress !== undefined) task.progress = report.progress
    if (report.checkpoint !== undefined) task.checkpoint = report.checkpoint
    if (report.logs !== undefined) task.logs = [...(task.logs ?? []), ...report.logs].slice(-MAX_LOGS)
    return true
  }

  /** @returns whether it counts as accepted */
  #settle(queue: ModelQueue, session: ModelSession, settlement: Settlement, isStale: boolean): boolean {
    const { id, token } = settlement
    const task = queue.tasks.get(id)
    // Of a group that the same call cancels, members may end by that or by their own settlement.
    if (
      isStale &&
      holds(session, task, token) &&
      task.group &&
      queue.swept.has(task.group) &&
      isDoomed(task)
    ) {
      queue.end(task, 'cancelled', 'GROUP_CANCELLED')
    }
    if (!holds(session, task, token)) return token > 0 && queue.tasks.get(id)?.settledToken === token
    task.settledToken = token
    if (settlement.outcome !== 'released') task.timedOut = false
    if (settlement.duration !== undefined) task.duration = settlement.duration
    switch (settlement.outcome) {
      case 'success':
        task.attempts++
        task.error = undefined
        task.result = settlement.result
        task.resultCodec = settlement.codec
        queue.finish(task, 'success', token)
        break
      case 'failed':
        task.attempts++
        task.error = settlement.error
        task.fingerprint = settlement.fingerprint
        queue.finish(task, 'failed', token)
        if (settlement.cancelGroup === true && task.group !== undefined) queue.cancelGroup(task.group)
        break
      case 'cancelled':
      case 'skipped':
        task.reason = settlement.reason
        task.otherReason = undefined
        task.message = settlement.message
        queue.finish(task, settlement.outcome, token)
        break
      case 'retry':
        task.attempts++
        task.error = settlement.error
        queue.count('retried')
        queue.pauseAttempt(task)
        queue.retryIn(task, settlement.in)
        break
      case 'released':
        queue.giveBack(task)
        break
      case 'suspended':
        if (settlement.checkpoint !== undefined) task.checkpoint = settlement.checkpoint
        queue.pauseAttempt(task)
        queue.suspend(task, settlement.after, settlement.until)
    }
    return true
  }

  #again(queue: ModelQueue, session: ModelSession, ack: number, reply: WorkReply): void {
    assert.equal(reply.status, 'again', 'a claim whose predecessor was not acknowledged')
    const newer = [...session.entries].filter((task) => task.token > ack)
    checkEntries(queue, newer, reply.claimed, 'again')
  }

  #claimStep(queue: ModelQueue, session: ModelSession, request: WorkRequest, reply: WorkReply): void {
    queue.pass()
    this.look(queue)
    this.#drainAll(queue)
    if (session.over !== undefined) {
      this.#checkGone(reply)
      return
    }
    assert.equal(reply.status, 'ok', 'a claim')
    const left = checkClaim(queue, session, request, reply.claimed)
    if (reply.claimed.length > 0) {
      const token = reply.claimed[0]?.token ?? 0
      assert.ok(token > this.#token, `token ${token} is not newer than ${this.#token}`)
      this.#token = token
      session.token = token
    }
    session.idle = reply.claimed.length === request.want ? false : left
    this.#checkReply(queue, session, reply)
  }

  #checkGone(reply: WorkReply): void {
    assert.equal(reply.status, 'gone', 'a session that is over')
    assert.deepEqual([...reply.claimed], [])
  }

  /** What every reply to a living session tells. */
  #checkReply(queue: ModelQueue, session: ModelSession, reply: WorkReply): void {
    assert.equal(reply.token, session.token, 'the newest token')
    assert.equal(reply.paused, queue.paused)
    if (!queue.isBehind) {
      if (!queue.hasSpread || reply.nextDueIn !== 0)
        assert.equal(reply.nextDueIn, queue.nextDueIn(), 'nextDueIn')
      const head = queue.claimable(session).map((task) => task.place.priority)
      if (reply.status === 'ok')
        assert.equal(reply.head, head.length === 0 ? undefined : Math.min(...head), 'the head')
    }
    const plain = session.taken.map(({ id, token, reason }) => `${id} ${token} ${reason}`)
    assert.deepEqual(
      reply.taken.map(({ id, token, reason }) => `${id} ${token} ${reason}`).sort(),
      plain.sort(),
      'what was taken',
    )
    assert.ok(reply.takenSeq >= session.takenSeq, 'takenSeq goes back')
    session.takenSeq = reply.takenSeq
    for (const notice of session.taken) notice.seq ??= reply.takenSeq
    assert.equal(reply.held, session.entries.size, 'entries held')
  }

  // ------------------------------------------------------------------------------------------- life and death

  #beat(session: ModelSession, now: number): void {
    session.beatAt = now
    session.suspectAt = undefined
  }

  /** A look at the sessions of the queue: silent ones are suspect, those suspect for long are condemned. */
  look(queue: ModelQueue): ModelSession[] {
    const condemned: ModelSession[] = []
    for (const session of queue.sessions) {
      if (session.over !== undefined) continue
      if (session.suspectAt === undefined) {
        if (queue.now - session.beatAt >= SUSPECT_AFTER * session.ttl) session.suspectAt = queue.now
      } else if (queue.now - session.suspectAt >= CONDEMN_AFTER * session.ttl) {
        this.#close(queue, session, 'condemned')
        condemned.push(session)
      }
    }
    return condemned
  }

  /** Whether a look would change anything. */
  wouldChange(queue: ModelQueue, now: number): boolean {
    return [...queue.sessions].some(({ over, entries, suspectAt, beatAt, ttl }) =>
      over === undefined
        ? suspectAt === undefined
          ? now - beatAt >= SUSPECT_AFTER * ttl
          : now - suspectAt >= CONDEMN_AFTER * ttl
        : entries.size > 0,
    )
  }

  #close(queue: ModelQueue, session: ModelSession, how: 'ended' | 'condemned'): void {
    session.over = how
    session.overAt = queue.now
    session.taken = []
    session.idle = false
  }

  /** Takes back every entry of sessions that are over. */
  #drainAll(queue: ModelQueue): void {
    for (const session of queue.sessions) {
      if (session.over === undefined) continue
      for (const task of [...session.entries]) this.#takeBack(queue, session, task)
      session.isDrained = true
    }
  }

  #takeBack(queue: ModelQueue, session: ModelSession, task: ModelTask): 'reclaimed' | 'poisoned' | 'free' {
    if (session.over === 'condemned') return queue.takeBack(task, task.started, session.maxReclaims)
    queue.giveBack(task)
    return 'free'
  }

  /**
   * @param queues every queue, with its step begun
   * @param isStillHeld what the driver says of an entry of a session that is over, when the limit left a choice
   */
  async reclaim(
    queues: readonly ModelQueue[],
    limit: number,
    report: ReclaimReport,
    isStillHeld: (queue: ModelQueue, task: ModelTask) => Promise<boolean>,
  ): Promise<void> {
    const draining = new Set<string>()
    const condemned: string[] = []
    for (const queue of queues) {
      for (const { id, over, isDrained } of queue.sessions)
        if (over === 'condemned' && !isDrained) draining.add(id)
      for (const { id } of this.look(queue)) condemned.push(id)
    }
    const told = report.condemned.filter((id) => !draining.has(id))
    assert.deepEqual(told.sort(), condemned.sort(), 'the condemned')
    const suspected = queues.flatMap((queue) =>
      [...queue.sessions].filter((one) => one.over === undefined && one.suspectAt !== undefined),
    )
    assert.deepEqual([...report.suspected].sort(), suspected.map(({ id }) => id).sort(), 'the suspects')

    const entries = queues.flatMap((queue) =>
      [...queue.sessions].flatMap((session) =>
        session.over === undefined ? [] : [...session.entries].map((task) => ({ queue, session, task })),
      ),
    )
    const expected: { reclaimed: string[]; poisoned: string[] } = { reclaimed: [], poisoned: [] }
    let count = 0
    for (const { queue, session, task } of entries) {
      if (entries.length > limit && (await isStillHeld(queue, task))) continue
      count++
      const how = this.#takeBack(queue, session, task)
      if (how !== 'free') expected[how].push(`${queue.ref.queue}/${task.id}`)
    }
    for (const queue of count < limit ? queues : [])
      for (const session of queue.sessions) session.isDrained ||= session.over !== undefined
    assert.ok(count <= limit, `${count} entries were taken back, the limit is ${limit}`)
    assert.ok(entries.length === 0 || count > 0, 'nothing was taken back')
    for (const how of ['reclaimed', 'poisoned'] as const) {
      const got = report[how].map(({ queue, id }) => `${queue}/${id}`)
      assert.deepEqual(got.sort(), expected[how].sort(), `the ${how}`)
    }
  }

  /** @param isStillHeld as for {@link reclaim} */
  async end(
    id: string,
    limit: number,
    answer: 'done' | 'more',
    isStillHeld: (queue: ModelQueue, task: ModelTask) => Promise<boolean>,
  ): Promise<void> {
    const found = this.byId.get(id)
    if (found === undefined) {
      assert.equal(answer, 'done')
      return
    }
    const { session, queue } = found
    if (session.over === undefined) this.#close(queue, session, 'ended')
    const entries = [...session.entries]
    for (const task of entries) {
      if (entries.length > limit && (await isStillHeld(queue, task))) continue
      this.#takeBack(queue, session, task)
    }
    assert.equal(session.entries.size, Math.max(0, entries.length - limit), 'entries left after an end')
    assert.equal(answer, session.entries.size === 0 ? 'done' : 'more', 'the end of a session')
  }

  resume(id: string, ids: readonly string[], reply: ResumeReply): void {
    const found = this.byId.get(id)
    if (found === undefined) {
      assert.equal(reply.status, 'gone')
      return
    }
    const { session, queue } = found
    const tasks = ids.map((name) => {
      const task = queue.tasks.get(name)
      return task && { state: task.state, settledToken: settledTokenOf(task) }
    })
    assert.deepEqual(
      reply.tasks.map((task) => task && { ...task }),
      tasks,
      'what resume tells of tasks',
    )
    if (session.over !== undefined) {
      assert.equal(reply.status, 'gone', 'a session that is over')
      return
    }
    this.#beat(session, queue.now)
    assert.equal(reply.status, 'ok', 'resume')
    assert.equal(reply.token, session.token)
    checkEntries(queue, [...session.entries], reply.entries, 'resume')
  }
}

/** Ownership is the entry, nothing else. */
function holds(session: ModelSession, task: ModelTask | undefined, token: number): task is ModelTask {
  return task !== undefined && task.session === session && task.token === token
}

/** Of a final task: 0 when something else than a settlement decided. */
export const settledTokenOf = (task: ModelTask): number =>
  isEnded(task) && task.decided ? 0 : task.settledToken

function indicesOf<T>(list: readonly T[], check: (item: T) => boolean): number[] {
  return list.flatMap((item, index) => (check(item) ? [index] : []))
}
