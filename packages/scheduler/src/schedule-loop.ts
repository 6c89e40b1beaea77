/**
 * Fires schedules: claims those that are due, decides, enqueues the tasks of their slots, and puts the records back with
 * their next slots. Any number of processes do this side by side, and need to know nothing of each other.
 *
 * - Only the storage's time decides what is due. This process's clock says how long to sleep, and whoever wakes early finds
 *   nothing. So a host's clock that is wrong, or is set, fires nothing early, late or twice.
 * - Enqueued first, put afterwards: what that means for a node that dies in between is told in `policies.ts`. Tasks of one
 *   batch are late by one claim and one enqueue; the next batch is claimed while the records of this one are put.
 * - It sleeps until the next one is due and at most {@link POLL} ms, so a notice that gets lost costs no more than that; and
 *   an idle process asks once in that time.
 * - It ends with {@link ScheduleLoop.stop} and nothing else: what fails is told and tried again, and what was claimed comes
 *   back when its lease is over.
 */
import { CHANGED, NeoTaskError, type Guard, type Timer } from '@neotask/core'
import type { PlacedTask, Stored, Tier } from '@neotask/core/tier'
import { advance, asks, decide, planOf, reasonOf, type Decision, type Firing, type Plan } from './policies.js'
import { recordDueAt, type Entry, type Schedule } from './schedule.js'
import type { Claim, ScheduleStore, Versioned } from './schedule-store.js'

/** ms between two looks while nothing is due. */
const POLL = 1000
/** ms for which claimed schedules are this process's own. If it dies, others fire them then. */
const LEASE = 5000
/** Schedules of a claim: few at first, so that other processes have their share, and twice as many each time there are more. */
const FIRST_BATCH = 100
const MOST_IN_BATCH = 500
/** Batches between their claim and their put. */
const FLIGHTS = 4
/** Slots that are fired or told of before the records say so. */
const PIECE = 1000
/** ms before a look after one that failed: doubled each time, up to {@link LONGEST_PAUSE}. */
const FIRST_PAUSE = 100
const LONGEST_PAUSE = 5000
/** ms between two looks because something, whatever it was, changed. */
const CHANGED_PAUSE = 100

export class ScheduleLoop {
  readonly #tier: Tier
  readonly #store: ScheduleStore
  readonly #channel: string
  #running = false
  #timer: Timer | undefined
  /** Monotonic time at which the timer fires. */
  #wakeAt = Infinity
  /** Fires when the next schedule is due that lies beyond the next poll: a clock which a test moves stops there. */
  #far: Timer | undefined
  #farAt = Infinity
  #turn: Promise<void> | undefined
  /** Something came due during the turn, perhaps after it had asked. */
  #again = false
  readonly #flights = new Set<Promise<void>>()
  #failures = 0
  #lastLook = -Infinity
  #subscribing: Promise<void> | undefined
  #unsubscribe: (() => Promise<void>) | undefined

  constructor(tier: Tier, store: ScheduleStore) {
    this.#tier = tier
    this.#store = store
    const { tenant, queue } = tier.ref
    this.#channel = `schedules:${tenant}/${queue}`
  }

  start(): void {
    this.#running = true
    this.#arm(0)
  }

  /** Claims no more; resolves when what was claimed is fired and put back. */
  async stop(): Promise<void> {
    this.#running = false
    this.#disarm()
    this.#far?.cancel()
    await this.#turn
    await Promise.all(this.#flights)
    await this.#subscribing
    const unsubscribe = this.#unsubscribe
    this.#unsubscribe = undefined
    await unsubscribe?.()
  }

  /** A schedule is due then: tells this loop, and those of other processes when their next look may be too late. */
  expect(dueAt: number): void {
    this.#expectHere(dueAt)
    if ((this.#store.delayTo(dueAt) ?? 0) >= POLL) return
    // Whoever does not hear it looks by himself soon enough.
    this.#tier
      .call('publish', (storage) => storage.notices.publish(this.#channel, String(dueAt)))
      .catch(() => {})
  }

  #expectHere(dueAt: number): void {
    if (this.#running) this.#arm(this.#store.delayTo(dueAt) ?? 0)
  }

  #subscribe(): void {
    if (this.#unsubscribe !== undefined || this.#subscribing !== undefined || !this.#running) return
    const heard = (message: string): void => {
      if (message !== CHANGED) this.#expectHere(Number(message))
      else if (this.#running) this.#arm(this.#lastLook + CHANGED_PAUSE - this.#tier.clock.monotonic())
    }
    this.#subscribing = this.#tier
      .call('subscribe', (storage) => storage.notices.subscribe(this.#channel, heard))
      .then(
        (unsubscribe) => void (this.#unsubscribe = unsubscribe),
        // Tried again with the next look, which tells of a storage that is away.
        () => {},
      )
      .finally(() => (this.#subscribing = undefined))
  }

  // ------------------------------------------------------------------------------------------------- turns

  /** @param poll nothing is known to be due then */
  #arm(delay: number, poll = false): void {
    const wakeAt = this.#tier.clock.monotonic() + Math.max(0, delay)
    if (wakeAt >= this.#wakeAt) return
    this.#disarm()
    this.#wakeAt = wakeAt
    const wake = (): void => {
      this.#wakeAt = Infinity
      this.#timer = undefined
      this.#look()
    }
    this.#timer = this.#tier.clock.after(delay, wake, { poll })
  }

  #armFar(delay: number): void {
    const wakeAt = this.#tier.clock.monotonic() + delay
    if (wakeAt >= this.#farAt) return
    this.#far?.cancel()
    this.#farAt = wakeAt
    const wake = (): void => {
      this.#farAt = Infinity
      this.#far = undefined
      this.#look()
    }
    this.#far = this.#tier.clock.after(delay, wake)
  }

  #disarm(): void {
    this.#timer?.cancel()
    this.#timer = undefined
    this.#wakeAt = Infinity
  }

  #look(): void {
    this.#again = true
    if (!this.#running || this.#turn !== undefined) return
    this.#turn = this.#takeTurn().then((pause) => {
      this.#turn = undefined
      if (this.#running) this.#arm(this.#again ? 0 : pause, pause === POLL)
    })
  }

  /** Fires all that is due. Never rejects. @returns ms until the next look */
  async #takeTurn(): Promise<number> {
    try {
      this.#subscribe()
      for (let batch = FIRST_BATCH; this.#running; batch = Math.min(MOST_IN_BATCH, batch * 2)) {
        this.#again = false
        this.#lastLook = this.#tier.clock.monotonic()
        const claim = await this.#store.claim(batch, LEASE)
        this.#failures = 0
        if (claim.due.length > 0) {
          await this.#takeOff(claim)
          // A storage that answers at once must not keep what was fired from beginning.
          await nextTurn()
        }
        const { nextDueIn = Infinity } = claim
        if (nextDueIn > POLL && nextDueIn < Infinity) this.#armFar(nextDueIn)
        if (nextDueIn > 0) return Math.min(POLL, nextDueIn)
      }
    } catch (error) {
      this.#again = false
      this.#tier.trouble(error, 'schedules')
      return Math.min(LONGEST_PAUSE, FIRST_PAUSE * 2 ** this.#failures++)
    }
    return POLL
  }

  /** Begins with a batch; waits only while too many are under way. */
  async #takeOff(claim: Claim): Promise<void> {
    const flight = this.#fire(claim)
      // Its schedules come back when their lease is over.
      .catch((error: unknown) => this.#tier.trouble(error, 'schedules'))
      .finally(() => this.#flights.delete(flight))
    this.#flights.add(flight)
    if (this.#flights.size >= FLIGHTS) await Promise.race(this.#flights)
  }

  // ------------------------------------------------------------------------------------------------- firing

  /** In pieces: after a long time many slots of one schedule may be due, or many of them are to be asked for. */
  async #fire({ due, now, since }: Claim): Promise<void> {
    let piece: Claimed[] = []
    let weight = 0
    for (const each of due) {
      const plan = this.#attempt(each, () => planOf(each.schedule, now))
      if (plan === undefined) continue
      piece.push({ ...each, plan })
      weight += plan.wanted.length + plan.missed.length
      if (weight < PIECE) continue
      await this.#firePiece(piece, since)
      piece = []
      weight = 0
      await nextTurn()
    }
    await this.#firePiece(piece, since)
  }

  async #firePiece(piece: readonly Claimed[], since: number): Promise<void> {
    if (piece.length === 0) return
    const asked = piece.flatMap(({ plan }) => asks(plan))
    const known = asked.length === 0 ? undefined : await this.#store.tasks(asked)
    const decided: Decided[] = []
    for (const each of piece) {
      const decision = this.#attempt(each, () => decide(each.plan, (id) => known?.get(id)))
      if (decision !== undefined) decided.push({ ...each, decision })
    }
    // Others have them by now. What is enqueued is guarded all the same, for this process may stop at any point.
    if (this.#tier.clock.monotonic() - since > LEASE) return
    await this.#cancel(decided.flatMap(({ decision }) => decision.cancel))
    const entries = await this.#enqueue(decided)
    const done: Done[] = []
    for (const [index, each] of decided.entries()) {
      const all = entries[index]
      // One that could not be fired now is tried again when its lease is over.
      if (all === undefined) continue
      const { plan } = each
      const schedule = this.#attempt(each, () => advance(each.schedule, plan, all))
      if (schedule !== undefined) done.push({ plan, entries: all, schedule, version: each.version })
    }
    await this.#put(done)
  }

  /** What this throws is the fault of one schedule, which is put off, and of no other. */
  #attempt<T>(each: Versioned, action: () => T): T | undefined {
    try {
      return action()
    } catch (error) {
      void this.#store.setAside(each, error)
      return undefined
    }
  }

  async #cancel(ids: readonly string[]): Promise<void> {
    if (ids.length === 0) return
    const options = { message: 'the next slot of its schedule has come' }
    await this.#tier.call('cancel', (storage) => storage.queue.cancel(this.#tier.ref, ids, options))
  }

  /** @returns for each how all of its slots went, in order; `undefined` when that is not known yet */
  async #enqueue(decided: readonly Decided[]): Promise<(Entry[] | undefined)[]> {
    const placed = decided.flatMap((each) => {
      const guard = this.#store.guardOf(each)
      return each.decision.fire.map((firing) => placedOf(each.schedule, firing, guard))
    })
    const outcomes = placed.length === 0 ? [] : await this.#tier.enqueue(placed)
    await this.#withoutParents(placed, outcomes)
    let next = 0
    return decided.map(({ schedule, decision: { fire, entries } }) => {
      const all: Entry[] = [...entries]
      let isKnown = true
      for (const { slot } of fire) {
        const outcome = outcomes[next++]
        if (!(outcome instanceof Error)) all.push({ slot, code: 'fired' })
        else if (isRefused(outcome)) all.push({ slot, code: 'refused' })
        else isKnown = false
        if (outcome instanceof Error && !isOverByNow(outcome))
          this.#tier.trouble(outcome, `the schedule ${schedule.id}`)
      }
      return isKnown ? all.sort((one, other) => one.slot - other.slot) : undefined
    })
  }

  /** A task that was to wait for another which is gone by now has nothing to wait for. */
  async #withoutParents(placed: readonly PlacedTask[], outcomes: Stored[]): Promise<void> {
    const orphans = placed.flatMap((task, index) => {
      const outcome = outcomes[index]
      return outcome instanceof NeoTaskError && outcome.code === 'DEPENDENCY_NOT_FOUND'
        ? [{ task, index }]
        : []
    })
    if (orphans.length === 0) return
    const again = await this.#tier.enqueue(orphans.map(({ task }) => ({ ...task, after: undefined })))
    for (const [place, { index }] of orphans.entries()) outcomes[index] = again[place] as Stored
  }

  async #put(done: readonly Done[]): Promise<void> {
    if (done.length === 0) return
    const outcomes = await this.#store.putAll(done)
    for (const [index, isPut] of outcomes.entries()) {
      const { plan, entries, schedule } = done[index] as Done
      if (isPut) this.#tell(schedule, entries)
      else await this.#putLater(plan, entries)
    }
  }

  /** Somebody has changed the record since the claim. */
  async #putLater(plan: Plan, entries: readonly Entry[]): Promise<void> {
    const change = await this.#store.change(plan.schedule.id, (current) => advance(current, plan, entries))
    if (change?.isChanged === true) this.#tell(change.schedule, entries)
  }

  #tell(schedule: Schedule, entries: readonly Entry[]): void {
    const dueAt = recordDueAt(schedule)
    if (dueAt !== undefined) this.#expectHere(dueAt)
    const { id } = schedule
    for (const entry of entries) {
      const { slot } = entry
      const reason = reasonOf(entry)
      if (reason === undefined) {
        if (this.#tier.hears('schedule.fired')) {
          this.#tier.emit('schedule.fired', { id, slot, taskId: `${id}~${slot}` })
        }
      } else if (this.#tier.hears('schedule.skipped')) {
        this.#tier.emit('schedule.skipped', { id, slot, reason })
      }
    }
  }
}

function nextTurn(): Promise<void> {
  return new Promise((resolve) => {
    setImmediate(resolve)
  })
}

interface Claimed extends Versioned {
  readonly plan: Plan
}

interface Decided extends Claimed {
  readonly decision: Decision
}

interface Done extends Claimed {
  readonly entries: readonly Entry[]
}

function placedOf({ definition }: Schedule, { taskId, after }: Firing, guard: Guard): PlacedTask {
  const { kind, payload, codec, priority, options } = definition.task
  return {
    kind,
    payload,
    codec,
    priority,
    options,
    id: taskId,
    after: after === undefined ? undefined : { ids: [after], on: 'final' },
    guard,
  }
}

const codeOf = (error: Error): string => (error instanceof NeoTaskError ? error.code : '')

/** Whether the task itself is at fault, and will be so next time. */
function isRefused(error: Error): boolean {
  return ['PAYLOAD_INVALID', 'PAYLOAD_TOO_LARGE', 'OPTION_INVALID'].includes(codeOf(error))
}

/** Whether it only says that the schedule is for others to fire. */
function isOverByNow(error: Error): boolean {
  return ['LEASE_LOST', 'POOL_CLOSED'].includes(codeOf(error))
}
