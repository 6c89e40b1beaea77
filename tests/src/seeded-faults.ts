/**
 * Faults that a driver might have, each put into a copy of the memory storage by changing its text. Whoever looks for
 * faults (the contract suite, the random test) must find them: `npm run faults` tries.
 *
 * The text must stand in the file exactly once. When the file has changed, adapt the text; when what it says is gone,
 * take the fault out.
 */

export interface Fault {
  readonly name: string
  /** Under `packages/core/src`. */
  readonly file: string
  readonly text: string
  readonly fault: string
  /** Why the suite, or the random test, need not find it. */
  readonly unseenBySuite?: string
  readonly unseenByRandom?: string
}

export const FAULTS: readonly Fault[] = [
  // ---------------------------------------------------------------------------------- ownership and settlements
  {
    name: 'a settlement is accepted whatever its token',
    file: 'memory-lease.ts',
    text: 'return task.where === this && task.token === token',
    fault: 'return task.where === this && token > 0',
  },
  {
    name: 'a session settles what another holds',
    file: 'memory-lease.ts',
    text: 'return task.where === this && task.token === token',
    fault: "return task.where.state === 'running' && task.token === token",
  },
  {
    name: 'the repeat of a settlement is stale',
    file: 'memory-settle.ts',
    text: 'return token > 0 && task.settledToken === token',
    fault: 'return false',
  },
  {
    name: 'a late result of a cancelled task is accepted',
    file: 'memory-settle.ts',
    text: 'return token > 0 && task.settledToken === token',
    fault: "return token > 0 && (task.settledToken === token || task.where.state === 'cancelled')",
  },
  {
    name: 'a session that is over goes on claiming',
    file: 'memory-session.ts',
    text: 'if (session.isOver()) return this.#gone(session, reply, now)\n    session.acknowledge',
    fault:
      'if (session.isOver() && session.size === 0) return this.#gone(session, reply, now)\n    session.acknowledge',
  },
  {
    name: 'an attempt that is to be retried is not counted',
    file: 'memory-settle.ts',
    text: "case 'retry':\n      task.attempts++",
    fault: "case 'retry':",
  },
  {
    name: 'a released task takes a new place',
    file: 'memory-settle.ts',
    text: '      lease.leave(task)\n      queue.toReady(task, now)\n      break\n    case',
    fault:
      '      lease.leave(task)\n      queue.renumber(task)\n      queue.toReady(task, now)\n      break\n    case',
  },
  // ------------------------------------------------------------------------------------------------ claims
  {
    name: 'a claim forgets that its predecessor was never acknowledged',
    file: 'memory-session.ts',
    text: 'if (session.token !== request.ack) {',
    fault: 'if (session.token < request.ack) {',
  },
  {
    name: 'a lost claim is answered with everything that the session holds',
    file: 'memory-session.ts',
    text: 'entriesAfter(session, request.ack)',
    fault: 'entriesAfter(session, 0)',
  },
  {
    name: 'tasks are due 1 ms early',
    file: 'memory-queue.ts',
    text: '(task.rare?.dueAt as number) > now) break',
    fault: '(task.rare?.dueAt as number) > now + 1) break',
    unseenBySuite: 'its cases ask well before and after a time, so that storages with a real clock can pass',
  },
  {
    name: 'a bound of urgency includes its own priority',
    file: 'memory-claim.ts',
    text: 'scoreOf(limits.moreUrgentThan, 0)',
    fault: 'scoreOf(limits.moreUrgentThan + 1, 0)',
  },
  // ---------------------------------------------------------------------------------------------- life and death
  {
    name: 'a reclaim is not counted',
    file: 'memory-session.ts',
    text: '++rare.reclaims > maxReclaims',
    fault: 'rare.reclaims > maxReclaims',
  },
  {
    name: 'an entry that was not started comes back without probation',
    file: 'memory-session.ts',
    text: 'if (!counts) rare.probation = true',
    fault: 'if (!counts) rare.probation = false',
  },
  {
    name: 'an end counts as a loss',
    file: 'memory-session.ts',
    text: "const isFree = session.over === 'ended'",
    fault: "const isFree = session.over === 'ended' && !started",
  },
  {
    name: 'every claim is a beat',
    file: 'memory-session.ts',
    text: 'if (request.renew) {',
    fault: 'if (request.renew || request.want > 0) {',
  },
  {
    name: 'a beat leaves the suspicion',
    file: 'memory-session.ts',
    text: '    session.beatAt = now\n    session.suspectAt = undefined',
    fault: '    session.beatAt = now',
  },
  // -------------------------------------------------------------------------------------------------- what is told
  {
    name: 'who runs a cancelled task is not told',
    file: 'memory-queue.ts',
    text: 'lease.noteTaken(task, reason)',
    fault: "if (reason !== 'cancelled') lease.noteTaken(task, reason)",
  },
  {
    name: 'a notice is dropped by any acknowledgement, also an older one',
    file: 'memory-lease.ts',
    text: 'this.#taken = this.#taken.filter((notice) => notice.seq > seq)',
    fault: 'this.#taken = seq > 0 ? [] : this.#taken',
  },
  {
    name: 'a claim that came back short but not empty does not make its session idle',
    file: 'memory-claim.ts',
    text: 'if (isShort && !search.isExhausted)',
    fault: 'if (isShort && claimed.length === 0 && !search.isExhausted)',
  },
  {
    name: 'a step wakes sessions for one kind only',
    file: 'memory-wake.ts',
    text: 'for (const kind of this.#kinds) this.wake(count, kind)',
    fault: 'for (const kind of this.#kinds.slice(0, 1)) this.wake(count, kind)',
  },
  {
    name: 'a task that a claim puts aside wakes nobody',
    file: 'memory-claim.ts',
    text: 'this.#queue.wakeUps.wake(1, task.kind)',
    fault: 'void 0',
  },
  {
    name: 'a second watcher takes the place of the first',
    file: 'memory-watch.ts',
    text: 'others === undefined ? lone(watcher, until) : { watcher, until, next: others }',
    fault: 'lone(watcher, until)',
  },
  {
    name: 'a registration outlives its time',
    file: 'memory-watch.ts',
    text: 'if (entry.until <= now) continue',
    fault: 'if (entry.until < 0) continue',
  },
  // --------------------------------------------------------------------------------------------------- enqueue
  {
    name: 'an id is accepted again when its task has succeeded',
    file: 'memory-enqueue.ts',
    text: 'return known === undefined ? enqueueOne(',
    fault: "return known === undefined || known.where.state === 'success' ? enqueueOne(",
  },
  {
    name: 'a tombstone forgets the nonce',
    file: 'memory-queue.ts',
    text: 'this.tombstones.add(task.id, task.nonce, now)',
    fault: 'this.tombstones.add(task.id, undefined, now)',
  },
  {
    name: 'a delay starts at the enqueue, not at the release',
    file: 'memory-enqueue.ts',
    text: '  rare.delay = given.delay\n  rare.runAt = given.runAt\n  rare.held',
    fault: '  rare.runAt = given.delay === undefined ? given.runAt : now + given.delay\n  rare.held',
  },
  {
    name: 'scheduled tasks do not count for maxQueueSize',
    file: 'memory-queue.ts',
    text: 'return this.pendingCount() + this.due.size + this.need.size',
    fault: 'return this.pendingCount() + this.need.size',
  },
  // -------------------------------------------------------------------------------------------------- debounce
  {
    name: 'a ready task takes up no other of its key',
    file: 'memory-debounce.ts',
    text: 'task.where === queue.due || task.where instanceof Line',
    fault: 'task.where === queue.due',
  },
  {
    name: 'maxWait counts from the latest task of its window',
    file: 'memory-debounce.ts',
    text: 'const openedAt = known.attempts > 0 ? now : (window.openedAt ?? now)',
    fault: 'const openedAt = now',
  },
  {
    name: 'the repeat of a task that went into another is a task of its own',
    file: 'memory-debounce.ts',
    text: 'known.rare?.window?.newest === task.id',
    fault: 'false',
  },
  {
    name: 'a task that takes up another goes on with its attempts',
    file: 'memory-debounce.ts',
    text: '  known.attempts = 0\n',
    fault: '',
  },
  {
    name: 'the removal of an older task frees the key of a newer one',
    file: 'memory-queue.ts',
    text: 'if (rare.window !== undefined && this.windows.get(rare.window.key) === task)',
    fault: 'if (rare.window !== undefined)',
  },
  // ----------------------------------------------------------------------------------------- dependents and groups
  {
    name: 'a task that is skipped releases no dependents',
    file: 'memory-queue.ts',
    text: 'if (rare.dependents !== undefined && rare.dependents.size > 0) {',
    fault: "if (state !== 'skipped' && rare.dependents !== undefined && rare.dependents.size > 0) {",
  },
  {
    name: 'one parent is enough to release a task',
    file: 'memory-queue.ts',
    text: 'else if (rare.open.size === 0 && !rare.held)',
    fault: 'else if (!rare.held)',
  },
  {
    name: 'a suspension is told for ever that its time was over',
    file: 'memory-settle.ts',
    text: "if (task.rare !== undefined && settlement.outcome !== 'released') task.rare.timedOut = false",
    fault: 'void 0',
  },
  {
    name: 'a started task expires',
    file: 'memory-session.ts',
    text: '    rare.probation = false\n    session.queue.clearDeadline(rare)',
    fault: '    rare.probation = false',
  },
  {
    name: 'an exempt member is set aside with its group',
    file: 'memory-claim.ts',
    text: 'if (rare.group?.paused === true && !rare.exempt) {',
    fault: 'if (rare.group?.paused === true) {',
  },
  {
    name: 'the end of a pause leaves the members of a group aside',
    file: 'memory-groups.ts',
    text: 'if (group.paused && !paused) this.#sweeps.push',
    fault: 'if (group.paused && !paused && group.records > 1) this.#sweeps.push',
  },
  {
    name: 'a revived task of a cancelled group runs',
    file: 'memory-queue.ts',
    text: '    if (task.rare !== undefined && isDoomed(task.rare)) {\n      this.endByGroup(task, now)\n      return\n    }\n    this.wakeUps',
    fault:
      '    if (task.rare !== undefined && isDoomed(task.rare) && task.settledToken === 0) {\n      this.endByGroup(task, now)\n      return\n    }\n    this.wakeUps',
  },
  // ----------------------------------------------------------------------------------------------- operations
  {
    name: 'a task that gets another priority loses its age',
    file: 'memory-queue.ts',
    text: '    task.priority = priority\n    if (where === this.ready)',
    fault: '    task.priority = priority\n    this.renumber(task)\n    if (where === this.ready)',
  },
  {
    name: 'a retried task keeps its reclaims',
    file: 'memory-queue.ts',
    text: '      rare.reclaims = 0\n',
    fault: '',
  },
  // -------------------------------------------------------------------------------------------------- retention
  {
    name: 'retention removes what an unfinished task needs',
    file: 'memory-structures.ts',
    text: '(task.watch !== undefined && task.watch.until > now) || hasDependents(task)',
    fault: 'task.watch !== undefined && task.watch.until > now',
  },
  {
    name: 'retention removes what was watched a moment ago',
    file: 'memory-structures.ts',
    text: '(task.watch !== undefined && task.watch.until > now) || hasDependents(task)',
    fault: 'hasDependents(task)',
  },
  {
    name: 'retention removes records of which a repeat may still come',
    file: 'memory-structures.ts',
    text: 'return age >= YOUNG_MS && (age',
    fault: 'return (age',
  },
  // ------------------------------------------------------------------------------------------- records and locks
  {
    name: 'a put with a version creates what is not there',
    file: 'memory-records.ts',
    text: 'options.ifVersion !== (present ?? 0)',
    fault: 'present !== undefined && options.ifVersion !== present',
  },
  {
    name: 'a claim of due records leaves their version',
    file: 'memory-records.ts',
    text: 'version: record.version + 1, dueAt: now + leaseMs',
    fault: 'version: record.version, dueAt: now + leaseMs',
  },
  {
    name: 'a record that is made anew begins with the version 1',
    file: 'memory-records.ts',
    text: 'present === undefined ? records.firstVersion(key, now) : present + 1',
    fault: '(present ?? 0) + 1',
  },
  {
    name: 'a record that is made anew in the same ms has a version of an earlier one',
    file: 'memory-records.ts',
    text: 'this.#removed = Math.max(this.#removed, record.version)',
    fault: 'void 0',
  },
  {
    name: 'a claim of due records takes one more than its bytes hold',
    file: 'memory-records.ts',
    text: '(bytes < 0 && claimed.length > 0)',
    fault: '(bytes < 0 && claimed.length > 1)',
  },
  {
    name: 'anybody may release a lock',
    file: 'memory-records.ts',
    text: 'return this.#isHeld(name, owner) && this.#held.delete(name)',
    fault: 'return this.#held.delete(name)',
  },
  {
    name: 'a lock that has lapsed is extended',
    file: 'memory-records.ts',
    text: 'lock !== undefined && lock.owner === owner && lock.until > this.#now()',
    fault: 'lock !== undefined && lock.owner === owner',
  },
]
