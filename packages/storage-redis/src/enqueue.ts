/** The enqueue step: units are checked here as far as that needs no storage, and the script does the rest. */
import {
  isGeneratedId,
  isRefusal,
  isStorableDuration,
  isStorableId,
  isStorableInstant,
  MAX_PRIORITY,
  type EnqueueOutcome,
  type ErrorCode,
  type NewTask,
  type Refusal,
  type Unit,
} from '@neotask/core'
import type { Argument, Reply } from './connection.js'
import { encodeDefinition, escapeText, flagsOf } from './definition.js'
import type { Durability } from './durability.js'
import { pack, type Packable } from './msgpack.js'
import { listOf, numberOf, textOf } from './reply.js'

const MAX_UNIT_TASKS = 500
const MAX_UNIT_BYTES = 1024 * 1024
const MAX_PARENTS = 100

/** Whole units, of which one call takes at most so many tasks and bytes, unless a single unit is larger. */
export function* batchesOf(units: readonly Unit[]): Generator<readonly Unit[], undefined> {
  let batch: Unit[] = []
  let tasks = 0
  let bytes = 0
  for (const unit of units) {
    const size = isList(unit) ? unit.length : 1
    const more = isList(unit) ? bytesOf(unit) : Buffer.byteLength(unit.payload)
    if (batch.length > 0 && (tasks + size > MAX_UNIT_TASKS || bytes + more > MAX_UNIT_BYTES)) {
      yield batch
      batch = []
      tasks = bytes = 0
    }
    batch.push(unit)
    tasks += size
    bytes += more
  }
  if (batch.length > 0) yield batch
  return undefined
}

/** What is sent of the units, and what is known of the outcomes before. */
export class EnqueueRequest {
  readonly #limit: number
  readonly #outcomes: (EnqueueOutcome | undefined)[] = []
  /** The tasks that are sent, and where the outcome of each goes. */
  readonly #tasks: NewTask[] = []
  readonly #places: number[] = []
  readonly #refusals = new Map<number, Refusal>()
  readonly #sizes: number[] = []
  #replicated: Refusal | undefined

  constructor(units: readonly Unit[], limit: number) {
    this.#limit = limit
    for (const unit of units) {
      if (!isList(unit)) this.#add([unit], 0)
      else if (unit.length > 0) this.#add(unit, unit.length)
    }
  }

  get isEmpty(): boolean {
    return this.#tasks.length === 0
  }

  /** Of the script. @param origin whose call it is */
  arguments(origin: string, tenant: string): Argument[] {
    const limit = Number.isFinite(this.#limit) ? this.#limit : ''
    const options = this.#tasks.map((task, index) => {
      const refusal = checkTask(task)
      if (refusal) this.#refusals.set(index, refusal)
      return optionsOf(task, refusal)
    })
    const isEachAlone = this.#sizes.every((size) => size === 0)
    const guards = this.#guards(tenant)
    if (isEachAlone && options.every((one) => one === ''))
      return [limit, origin, ...this.#plainArguments(guards)]
    const args: Argument[] = []
    let letters = ''
    for (const [index, task] of this.#tasks.entries()) {
      const priority = this.#refusals.has(index) ? 0 : task.priority
      const flags = flagsOf(task, priority)
      letters += flags
      args.push(task.id, encodeDefinition(task, flags, priority), options[index] ?? '')
    }
    return [limit, origin, '', isEachAlone ? '' : pack(this.#sizes), letters, guards, ...args]
  }

  /** The tenant, and of each task that has one its index, key and version; empty when none has. */
  #guards(tenant: string): Argument {
    const guards: Packable[] = []
    for (const [index, { guard }] of this.#tasks.entries())
      if (guard !== undefined) guards.push(index, guard.key, guard.version)
    return guards.length === 0 ? '' : pack([tenant, ...guards])
  }

  #plainArguments(guards: Argument): Argument[] {
    const kinds = new Set<string>()
    const ids = new Set<string>()
    const args: Argument[] = []
    let isGenerated = true
    let isAscending = true
    let last = ''
    let letters = ''
    for (const task of this.#tasks) {
      const flags = flagsOf(task, task.priority)
      kinds.add(task.kind)
      ids.add(task.id)
      isGenerated &&= isGeneratedId(task.id)
      isAscending &&= task.id > last
      last = task.id
      letters += flags
      args.push(task.id, encodeDefinition(task, flags, task.priority))
    }
    const names = [...kinds].map((kind) => `${escapeText(kind)} `).join('')
    const areNew = isGenerated && (isAscending || ids.size === this.#tasks.length)
    return [names, areNew ? (isAscending ? 2 : 1) : '', letters, guards, ...args]
  }

  /** Reads what the script answered. */
  take(reply: Reply): void {
    for (const place of this.#places) this.#outcomes[place] = 'accepted'
    const list = listOf(reply)
    /** The reason of a unit that was refused for one of its tasks. */
    let bad: Refusal | undefined
    for (let i = 0; i < list.length; i += 2) {
      const index = numberOf(list[i])
      const text = textOf(list[i + 1])
      if (text === 'b') bad = this.#badOf(index)
      this.#outcomes[this.#places[index] as number] = this.#outcomeOf(
        text,
        this.#tasks[index] as NewTask,
        bad,
      )
    }
  }

  /** All that is stored has fewer copies than asked for. */
  notReplicated(confirmed: number, { replicas, timeout }: Durability): void {
    this.#replicated = refuse(
      'NOT_REPLICATED',
      `stored, and confirmed by ${confirmed} of ${replicas} replicas, not within ${timeout} ms by all`,
    )
  }

  outcomes(): EnqueueOutcome[] {
    const outcomes = this.#outcomes as EnqueueOutcome[]
    const refusal = this.#replicated
    return refusal === undefined ? outcomes : outcomes.map((one) => (isRefusal(one) ? one : refusal))
  }

  #add(unit: readonly NewTask[], size: number): void {
    const refusal = size > 0 ? checkUnit(unit) : undefined
    for (const task of unit) {
      if (refusal === undefined) {
        this.#places.push(this.#outcomes.length)
        this.#tasks.push(task)
      }
      this.#outcomes.push(refusal)
    }
    if (refusal === undefined) this.#sizes.push(size)
  }

  /** The reason of the first bad task in the unit of this one. */
  #badOf(index: number): Refusal | undefined {
    let from = 0
    for (const size of this.#sizes) {
      const to = from + Math.max(1, size)
      for (let i = from; i < to && index < to; i++) {
        const refusal = this.#refusals.get(i)
        if (refusal) return refusal
      }
      from = to
    }
    return undefined
  }

  #outcomeOf(text: string, task: NewTask, bad: Refusal | undefined): EnqueueOutcome {
    const rest = text.slice(1)
    switch (text.charAt(0)) {
      case 'r':
        return 'repeated'
      case 'd':
        return isGeneratedId(task.id) ? 'repeated' : 'duplicate'
      case 'i':
        return { into: rest }
      case 'p':
        return refuse('DEPENDENCY_NOT_FOUND', `after: no task ${rest}`)
      case 'g':
        return refuse('LEASE_LOST', `the claim of ${rest} is lost`)
      case 'f':
        return refuse('QUEUE_FULL', `the queue holds ${rest} waiting tasks, its limit is ${this.#limit}`)
      default:
        return bad ?? refuse('OPTION_INVALID', `a task that cannot be stored: ${task.id}`)
    }
  }
}

const bytesOf = (unit: readonly NewTask[]): number =>
  unit.reduce((sum, { payload }) => sum + Buffer.byteLength(payload), 0)
const isList = (unit: Unit): unit is readonly NewTask[] => Array.isArray(unit)
const refuse = (code: ErrorCode, message: string): Refusal => ({ code, message })

function checkUnit(unit: readonly NewTask[]): Refusal | undefined {
  if (unit.length > MAX_UNIT_TASKS) {
    return refuse(
      'OPTION_INVALID',
      `a unit holds at most ${MAX_UNIT_TASKS} tasks, this one has ${unit.length}`,
    )
  }
  if (unit.length === 1) return undefined
  const bytes = bytesOf(unit)
  if (bytes <= MAX_UNIT_BYTES) return undefined
  return refuse(
    'PAYLOAD_TOO_LARGE',
    `the payloads of a unit are at most ${MAX_UNIT_BYTES} bytes, not ${bytes}`,
  )
}

function checkTask({
  id,
  priority,
  delay,
  runAt,
  expiresIn,
  group,
  debounce,
  after,
}: NewTask): Refusal | undefined {
  if (!isStorableId(id)) return refuse('OPTION_INVALID', `not an id that can be stored: ${id}`)
  if (!(Number.isInteger(priority) && priority >= 0 && priority <= MAX_PRIORITY)) {
    return refuse(
      'OPTION_INVALID',
      `priority: expected an integer from 0 to ${MAX_PRIORITY}, got ${priority}`,
    )
  }
  if (!isStorableDuration(delay) || !isStorableInstant(runAt) || !isStorableDuration(expiresIn)) {
    return refuse(
      'OPTION_INVALID',
      'delay, runAt and expiresIn: expected ms from 0 to 100 000 years, or an instant of a Date',
    )
  }
  if (group !== undefined && !isStorableId(group.id)) {
    return refuse('OPTION_INVALID', `not a group id that can be stored: ${group.id}`)
  }
  if (debounce !== undefined && !(isStorableId(debounce.key) && isStorableDuration(debounce.maxWait))) {
    return refuse('OPTION_INVALID', `debounce: not a key and a time that can be stored: ${debounce.key}`)
  }
  if (after !== undefined && after.ids.length > MAX_PARENTS) {
    return refuse('OPTION_INVALID', `after: at most ${MAX_PARENTS} tasks, not ${after.ids.length}`)
  }
  return undefined
}

/** What the script has to know of a task besides its definition; empty for most. */
function optionsOf(task: NewTask, refusal: Refusal | undefined): Argument {
  if (refusal) return pack({ bad: 1 })
  const { delay, runAt, after, hold, group, expiresIn, debounce } = task
  const isPlain =
    !delay &&
    runAt === undefined &&
    after === undefined &&
    group === undefined &&
    expiresIn === undefined &&
    debounce === undefined &&
    !hold
  if (isPlain) return ''
  return pack({
    d: delay,
    r: runAt,
    a: after?.ids.length ? after.ids : undefined,
    m: after && (after.on === 'success' ? 's' : 'f'),
    h: hold ? 1 : undefined,
    g: group?.id,
    x: group?.exempt ? 1 : undefined,
    e: expiresIn,
    b: debounce && `${escapeText(task.kind)} ${debounce.key}`,
    w: debounce?.maxWait,
  })
}
