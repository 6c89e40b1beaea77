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
import { CHANGED, NeoTaskError, type Timer } from '@neotask/core'
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
/** ms before a look after one that failed: doubled each time, up to the second. */
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

  async #fire({ due: claimed, now }: Claim): Promise<void> {
    const due: Versioned[] = []
    const plans: Plan[] = []
    for (const each of claimed) {
      try {
        plans.push(planOf(each.schedule, now))
        due.push(each)
      } catch (error) {
        await this.#store.setAside(each, error)
      }
    }
    const asked = plans.flatMap(asks)
    const known = asked.length === 0 ? undefined : await this.#store.tasks(asked)
    const decisions = plans.map((plan) => decide(plan, (id) => known?.get(id)))
    await this.#cancel(decisions.flatMap(({ cancel }) => cancel))
    const entries = await this.#enqueue(decisions)
    const done: Done[] = []
    for (const [index, decision] of decisions.entries()) {
      const all = entries[index]
      const { version } = due[index] as Versioned
      // One that could not be fired now is tried again when its lease is over.
      if (all === undefined) continue
      const schedule = advance(decision.plan.schedule, decision.plan, all)
      if (schedule !== undefined) done.push({ decision, entries: all, schedule, version })
    }
    await this.#put(done)
  }

  async #cancel(ids: readonly string[]): Promise<void> {
    if (ids.length === 0) return
    const options = { message: 'the next slot of its schedule has come' }
    await this.#tier.call('cancel', (storage) => storage.queue.cancel(this.#tier.ref, ids, options))
  }

  /** @returns for each decision how all of its slots went, in order; `undefined` when that is not known yet */
  async #enqueue(decisions: readonly Decision[]): Promise<(Entry[] | undefined)[]> {
    const placed = decisions.flatMap(({ plan, fire }) =>
      fire.map((firing) => placedOf(plan.schedule, firing)),
    )
    const outcomes = placed.length === 0 ? [] : await this.#tier.enqueue(placed)
    await this.#withoutParents(placed, outcomes)
    let next = 0
    return decisions.map(({ plan, fire, entries }) => {
      const all: Entry[] = [...entries]
      let isKnown = true
      for (const { slot } of fire) {
        const outcome = outcomes[next++]
        if (!(outcome instanceof Error)) all.push({ slot, code: 'fired' })
        else if (mayHelpLater(outcome)) isKnown = false
        else all.push({ slot, code: 'refused' })
        if (outcome instanceof Error) this.#tier.trouble(outcome, `the schedule ${plan.schedule.id}`)
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
      const { decision, entries, schedule } = done[index] as Done
      if (isPut) this.#tell(schedule, entries)
      else await this.#putLater(decision, entries)
    }
  }

  /** Somebody has changed the record since the claim. */
  async #putLater({ plan }: Decision, entries: readonly Entry[]): Promise<void> {
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

interface Done extends Versioned {
  readonly decision: Decision
  readonly entries: readonly Entry[]
}

function placedOf({ definition }: Schedule, { taskId, after }: Firing): PlacedTask {
  const { kind, payload, codec, priority, options } = definition.task
  return {
    kind,
    payload,
    codec,
    priority,
    options,
    id: taskId,
    after: after === undefined ? undefined : { ids: [after], on: 'final' },
  }
}

function mayHelpLater(error: Error): boolean {
  return !(error instanceof NeoTaskError) || error.retryable
}
