/**
 * A storage that fails on purpose: any other one, with calls that are refused, cut in half, carried out without a
 * reply, delayed or repeated, and messages that get lost.
 *
 * What happens to a call is decided by, in this order: {@link FlakyStorage.isDown}, the newest {@link
 * FlakyStorage.intercept}, the oldest rule of {@link FlakyStorage.fail} that fits, and the seeded plan. The plan draws
 * its numbers call by call, so the same calls in the same order meet the same faults. Whatever it does, it does to
 * whole calls of the contract: what was carried out stays carried out, and the steps of the inner storage stay atomic.
 */
import { systemClock, type Clock } from '../clock.js'
import { optionError, StorageUnavailableError } from '../errors.js'
import type { Storage, StorageInfo } from '../storage.js'
import { seededRandom, type SeededRandom } from './seeded-random.js'
import {
  HALVES,
  METHODS,
  type ArgumentsOf,
  type Faces,
  type ReplyOf,
  type StorageCall,
} from './storage-calls.js'

/**
 * What happens to a call.
 *
 * - `before`: nothing is carried out, and it rejects
 * - `middle`: the first half of its batch is carried out (of `work` the first half of marks, reports and settlements,
 *   and neither renewal nor claim; of upkeep half the limit), and it rejects. What has no batch is treated as `after`
 * - `after`: it is carried out, and rejects: the reply was lost
 * - `silent`: it is carried out, and never answers
 * - `late`: it is carried out after a time, and then answers
 * - `slow`: it is carried out at once, and answers after a time
 * - `repeat`: it is carried out, answers, and is carried out once more, at once or after a time; the second reply, or
 *   error, is heard by nobody
 *
 * What rejects does so with a `StorageUnavailableError`: retryable, and `uncertain` unless it is `before`.
 */
export type FaultKind = 'before' | 'middle' | 'after' | 'silent' | 'late' | 'slow' | 'repeat'

export const FAULT_KINDS: readonly FaultKind[] = [
  'before',
  'middle',
  'after',
  'silent',
  'late',
  'slow',
  'repeat',
]

export interface Fault<Call extends StorageCall = StorageCall> {
  readonly kind: FaultKind
  /** ms that `late`, `slow` and `repeat` wait. Default: 0, which is at once. */
  readonly ms?: number
  /** Only calls for which this is true. Default: all. */
  readonly when?: (...args: ArgumentsOf<Call>) => boolean
  /** How many calls it meets. Default: every one. */
  readonly times?: number
}

export interface FlakyStorageOptions {
  /** Begins the plan. The same seed and the same calls give the same faults. Default: 1. */
  readonly seed?: number
  /** How likely each fault is, from 0 to 1, together 1 at most. Default: none. @example { after: 0.05, repeat: 0.05 } */
  readonly rates?: Readonly<Partial<Record<FaultKind, number>>>
  /** How likely a message is lost on its way to a listener, from 0 to 1. Default: 0. */
  readonly lostMessages?: number
  /** The longest time in ms of a planned `late`, `slow` or `repeat`. Default: 1000. */
  readonly longest?: number
  /** The calls that the plan may meet. Default: all but those of `notices`. */
  readonly only?: readonly StorageCall[]
  /** Where delays are waited for. Give the clock of the inner storage. Default: the system's. */
  readonly clock?: Clock
}

/** A call that came, with what happened to it. */
export interface RecordedCall<Call extends StorageCall = StorageCall> {
  readonly call: Call
  readonly args: ArgumentsOf<Call>
  /** `down` and the kinds of faults; `undefined` for a call that went through, or was intercepted. */
  readonly fault: FaultKind | 'down' | undefined
}

/** Ends what was asked for, and tells how many calls it has met. */
export interface Trap {
  readonly hits: number
  end(): void
}

interface Rule {
  readonly call: StorageCall
  readonly fault: Fault
  hits: number
}

type Intercept = (forward: () => Promise<unknown>, ...args: unknown[]) => Promise<unknown>

/** @example new FlakyStorage(memoryStorage({ clock }), { clock, seed: 7, rates: { after: 0.1 } }) */
export class FlakyStorage implements Storage {
  readonly name: string
  readonly durable: boolean
  readonly queue: Storage['queue']
  readonly session: Storage['session']
  readonly upkeep: Storage['upkeep']
  readonly records: Storage['records']
  readonly locks: Storage['locks']
  readonly notices: Storage['notices']
  /** Every call so far, also those that failed. */
  readonly calls: RecordedCall[] = []
  /** While set, every call is refused, as if the storage were away. */
  isDown = false
  /** While set, no message reaches a listener. */
  isDeaf = false

  readonly #inner: Storage
  readonly #clock: Clock
  readonly #plan: Plan
  readonly #rules: Rule[] = []
  readonly #intercepts = new Map<StorageCall, Intercept[]>()

  /** @param inner what carries the calls out. It may be used beside this one, which then is a node's bad connection. */
  constructor(inner: Storage, options: FlakyStorageOptions = {}) {
    this.#inner = inner
    this.#clock = options.clock ?? systemClock
    this.#plan = new Plan(options)
    this.name = inner.name
    this.durable = inner.durable
    this.queue = this.#face('queue')
    this.session = this.#face('session')
    this.upkeep = this.#face('upkeep')
    this.records = this.#face('records')
    this.locks = this.#face('locks')
    this.notices = this.#face('notices')
    // It belongs to the transaction of its caller, who learns at once what became of it: there is no reply to lose.
    if (inner.queue.enqueueSync) this.queue.enqueueSync = inner.queue.enqueueSync.bind(inner.queue)
    // What a message says is there for whoever has heard it.
    const { notices } = inner
    if (notices.endsIn) this.notices.endsIn = notices.endsIn.bind(notices)
    if (notices.handedIn) this.notices.handedIn = notices.handedIn.bind(notices)
  }

  get limits(): Storage['limits'] {
    return this.#inner.limits
  }

  open(): Promise<StorageInfo> {
    return this.#inner.open()
  }

  close(): Promise<void> {
    return this.#inner.close()
  }

  /**
   * Lets calls fail. Of several rules that fit, the first that was made has its way.
   *
   * @example storage.fail('session.work', { kind: 'after', when: (request) => request.want > 0, times: 1 })
   */
  fail<Call extends StorageCall>(call: Call, fault: Fault<Call>): Trap {
    if (!FAULT_KINDS.includes(fault.kind)) {
      throw optionError('kind', `one of ${FAULT_KINDS.join(' ')}`, fault.kind)
    }
    // The arguments of a rule are those of its own call.
    const rule: Rule = { call, fault: fault, hits: 0 }
    this.#rules.push(rule)
    return trap(rule, () => removeFrom(this.#rules, rule))
  }

  /**
   * Hands calls to a function, which carries them out with `forward`, or not, and answers what it likes. It stands
   * before every rule; the newest one has its way.
   *
   * @example storage.intercept('session.work', async (forward) => { await gate; return await forward() })
   */
  intercept<Call extends StorageCall>(
    call: Call,
    action: (forward: () => Promise<ReplyOf<Call>>, ...args: ArgumentsOf<Call>) => Promise<ReplyOf<Call>>,
  ): Trap {
    const counted = { hits: 0 }
    const intercept: Intercept = (forward, ...args) => {
      counted.hits++
      return (action as unknown as Intercept)(forward, ...args)
    }
    const list = this.#intercepts.get(call) ?? []
    this.#intercepts.set(call, list)
    list.push(intercept)
    return trap(counted, () => removeFrom(list, intercept))
  }

  /** The calls of this name so far, also those that failed. */
  callsOf<Call extends StorageCall>(call: Call): RecordedCall<Call>[] {
    return this.calls.filter((recorded): recorded is RecordedCall<Call> => recorded.call === call)
  }

  // ---------------------------------------------------------------------------------------------- one call

  #face<Face extends keyof Faces>(face: Face): Faces[Face] {
    const wrapped = METHODS[face].map((name) => {
      const call = `${face}.${name}` as StorageCall
      return [name, (...args: unknown[]) => this.#call(call, args)]
    })
    return Object.fromEntries(wrapped) as Faces[Face]
  }

  async #call(call: StorageCall, args: unknown[]): Promise<unknown> {
    const given = call === 'notices.subscribe' ? [args[0], this.#earOf(args[1])] : args
    const forward = (some: unknown[] = given): Promise<unknown> => {
      const [face, name] = call.split('.') as [keyof Faces, string]
      const inner = this.#inner[face] as unknown as Record<string, (...all: unknown[]) => Promise<unknown>>
      return (inner[name] as (...all: unknown[]) => Promise<unknown>).apply(inner, some)
    }
    const planned = this.#plan.next(call)
    const intercept = this.#intercepts.get(call)?.at(-1)
    const fault = this.isDown || intercept ? undefined : (this.#ruleFor(call, args) ?? planned)
    this.calls.push({
      call,
      args: args as ArgumentsOf<StorageCall>,
      fault: this.isDown ? 'down' : fault?.kind,
    })
    if (this.isDown) throw unavailable(call, 'the storage is down', false)
    if (intercept) return await intercept(() => forward(), ...args)
    return fault ? await this.#meet(call, given, fault, forward) : await forward()
  }

  #ruleFor(call: StorageCall, args: unknown[]): Fault | undefined {
    for (const rule of this.#rules) {
      const { times = Infinity, when } = rule.fault
      if (rule.call !== call || rule.hits >= times) continue
      if (when && !(when as (...all: unknown[]) => boolean)(...args)) continue
      rule.hits++
      return rule.fault
    }
    return undefined
  }

  async #meet(
    call: StorageCall,
    args: unknown[],
    { kind, ms = 0 }: Fault,
    forward: (some?: unknown[]) => Promise<unknown>,
  ): Promise<unknown> {
    switch (kind) {
      case 'before':
        throw unavailable(call, 'it was refused', false)
      case 'middle':
        await forward(HALVES[call]?.(args))
        throw unavailable(call, 'it was cut in the middle', true)
      case 'after':
        await forward()
        throw unavailable(call, 'its reply was lost', true)
      case 'silent':
        await forward()
        return await new Promise(() => {})
      case 'late':
        await this.#wait(ms)
        return await forward()
      case 'slow': {
        const reply = await forward()
        await this.#wait(ms)
        return reply
      }
      case 'repeat': {
        const reply = await forward()
        const again = this.#wait(ms).then(() => forward())
        // Nobody hears what becomes of it.
        const heard = again.then(NOTHING, NOTHING)
        if (ms === 0) await heard
        return reply
      }
    }
  }

  async #wait(ms: number): Promise<void> {
    if (ms > 0) await new Promise<void>((resolve) => this.#clock.after(ms, resolve, { hold: true }))
  }

  #earOf(listener: unknown): unknown {
    return (message: string) => {
      if (this.isDeaf || this.#plan.losesMessage()) return
      ;(listener as (message: string) => void)(message)
    }
  }
}

/** The faults that a seed chooses. */
class Plan {
  readonly #random: SeededRandom
  /** Of messages, which come as others please: they must not shift what meets the calls. */
  readonly #messages: SeededRandom
  readonly #rates: readonly (readonly [FaultKind, number])[]
  readonly #only: readonly StorageCall[] | undefined
  readonly #longest: number
  readonly #lostMessages: number

  constructor({ seed = 1, rates = {}, lostMessages = 0, longest = 1000, only }: FlakyStorageOptions) {
    if (!Number.isInteger(seed)) throw optionError('seed', 'an integer', seed)
    if (!isRate(lostMessages)) throw optionError('lostMessages', 'a number from 0 to 1', lostMessages)
    if (!(Number.isFinite(longest) && longest >= 1)) throw optionError('longest', 'at least 1 ms', longest)
    for (const [kind, rate] of Object.entries(rates)) {
      if (!FAULT_KINDS.some((known) => known === kind))
        throw optionError('rates', FAULT_KINDS.join(' '), kind)
      if (!isRate(rate)) throw optionError(`rates.${kind}`, 'a number from 0 to 1', rate)
    }
    this.#rates = FAULT_KINDS.map((kind) => [kind, rates[kind] ?? 0])
    const sum = this.#rates.reduce((total, [, rate]) => total + rate, 0)
    if (sum > 1.000_001) throw optionError('rates', 'together 1 at most', sum)
    this.#random = seededRandom(seed)
    this.#messages = seededRandom(~seed)
    this.#only = only
    this.#longest = longest
    this.#lostMessages = lostMessages
  }

  /** Two numbers for each call, whether it may fail or not: a rule or an end of `isDown` shifts nothing. */
  next(call: StorageCall): Fault | undefined {
    if (this.#only ? !this.#only.includes(call) : call.startsWith('notices.')) return undefined
    let left = this.#random.next()
    const ms = 1 + Math.floor(this.#random.next() * this.#longest)
    for (const [kind, rate] of this.#rates) {
      if (left < rate) return { kind, ms }
      left -= rate
    }
    return undefined
  }

  losesMessage(): boolean {
    return this.#lostMessages > 0 && this.#messages.next() < this.#lostMessages
  }
}

// -------------------------------------------------------------------------------------------------- helpers

const NOTHING = (): void => undefined
const isRate = (value: unknown): boolean => typeof value === 'number' && value >= 0 && value <= 1

function unavailable(call: StorageCall, what: string, uncertain: boolean): StorageUnavailableError {
  return new StorageUnavailableError('STORAGE_UNAVAILABLE', `a fault on purpose: ${what} (${call})`, {
    retryable: true,
    uncertain,
  })
}

function trap(counted: { readonly hits: number }, end: () => void): Trap {
  return {
    get hits() {
      return counted.hits
    },
    end,
  }
}

function removeFrom<T>(list: T[], item: T): void {
  const index = list.indexOf(item)
  if (index >= 0) list.splice(index, 1)
}
