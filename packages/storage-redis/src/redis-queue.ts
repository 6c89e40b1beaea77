/** The queue face: tasks, seen from outside. Each method is one call of one script. */
import {
  headChannel,
  isStorableId,
  MAX_PRIORITY,
  optionError,
  type CancelOptions,
  type Encoded,
  type EnqueueOptions,
  type EnqueueOutcome,
  type ErrorGroup,
  type GroupFlags,
  type HistoryBucket,
  type ListQuery,
  type OperationOutcome,
  type Operation,
  type QueueCounts,
  type QueueFace,
  type QueueRef,
  type ReviveOptions,
  type TaskPage,
  type TaskRecord,
  type Unit,
  type WatchOptions,
  type WatchOutcome,
} from '@neotask/core'
import type { Argument, Connection, Reply } from './connection.js'
import { escapeText, tagged } from './definition.js'
import { batchesOf, EnqueueRequest } from './enqueue.js'
import type { ScriptName } from './lua-scripts.js'
import { pack, unpackMap, type Packable } from './msgpack.js'
import type { RedisNotices } from './redis-notices.js'
import { bytesOf, listOf, numberOf, numbersOf, textOf } from './reply.js'
import { finalOf, parseSuccess, parseView, stateOf } from './task-record.js'

const MAX_PAGE = 500
const PAGE_BYTES = 1024 * 1024

const HAPPENINGS: Readonly<Record<string, Exclude<keyof HistoryBucket, 'at'>>> = {
  e: 'enqueued',
  s: 'success',
  f: 'failed',
  c: 'cancelled',
  k: 'skipped',
  r: 'retried',
}

export class RedisQueue implements QueueFace {
  readonly #connection: Connection
  readonly #notices: RedisNotices

  constructor(connection: Connection, notices: RedisNotices) {
    this.#connection = connection
    this.#notices = notices
  }

  async enqueue(ref: QueueRef, units: readonly Unit[], options?: EnqueueOptions): Promise<EnqueueOutcome[]> {
    const outcomes: EnqueueOutcome[] = []
    for (const some of batchesOf(units)) {
      const request = new EnqueueRequest(some, options?.maxQueueSize ?? Infinity)
      if (!request.isEmpty) {
        const [head, list] = listOf(await this.#enqueue(ref, request))
        request.take(list as Reply)
        if (numberOf(head) >= 0) this.#notices.deliver(headChannel(ref), String(numberOf(head)))
      }
      outcomes.push(...request.outcomes())
    }
    return outcomes
  }

  async #enqueue(ref: QueueRef, request: EnqueueRequest): Promise<Reply> {
    const args = request.arguments(this.#notices.origin, ref.tenant)
    const { durability, keys } = this.#connection
    if (durability === undefined) return this.#run('enqueue', ref, args)
    const queue = keys.queue(ref)
    const { reply, confirmed } = await this.#connection.runReplicated('enqueue', queue, args, durability)
    if (confirmed < durability.replicas) request.notReplicated(confirmed, durability)
    return reply
  }

  async get(ref: QueueRef, ids: readonly string[]): Promise<(TaskRecord | undefined)[]> {
    const records: (TaskRecord | undefined)[] = []
    for (const some of pieces(ids)) {
      records.push(...listOf(await this.#run('get', ref, [pack(some)])).map(parseView))
    }
    return records
  }

  async watch(ref: QueueRef, ids: readonly string[], options: WatchOptions): Promise<WatchOutcome[]> {
    const outcomes: WatchOutcome[] = []
    for (const some of pieces(ids)) {
      const args = [escapeText(options.watcher), options.ttl, ...some]
      outcomes.push(...listOf(await this.#run('watch', ref, args)).map(parseWatch))
    }
    return outcomes
  }

  async list(ref: QueueRef, query: ListQuery): Promise<TaskPage> {
    const { state, kind, group, bytes = PAGE_BYTES, cursor } = query
    const limit = Math.max(1, Math.min(query.limit, MAX_PAGE))
    const filter = kind === undefined ? '' : ` ${escapeText(kind)}`
    const reply = await this.#run('list', ref, [state, limit, bytes, filter, group ?? '', cursor ?? ''])
    const [views, next] = listOf(reply)
    const tasks = listOf(views).map((view) => parseView(view) as TaskRecord)
    const last = textOf(next)
    return { tasks, ...(last !== '' && { cursor: last }) }
  }

  async counts(ref: QueueRef): Promise<QueueCounts> {
    const [pending, scheduled, blocked, running, success, failed, cancelled, skipped, prefetched, paused] =
      numbersOf(await this.#run('counts', ref, [])) as [
        number,
        number,
        number,
        number,
        number,
        number,
        number,
        number,
        number,
        number,
      ]
    const states = { pending, scheduled, blocked, running, success, failed, cancelled, skipped }
    return { ...states, prefetched, paused: paused === 1 }
  }

  async history(ref: QueueRef, range: { from: number; to: number }): Promise<HistoryBucket[]> {
    const list = listOf(await this.#run('history', ref, [range.from, range.to]))
    const buckets = new Map<number, { -readonly [K in keyof HistoryBucket]: HistoryBucket[K] }>()
    for (let i = 0; i < list.length; i += 3) {
      const at = numberOf(list[i])
      let bucket = buckets.get(at)
      if (!bucket) {
        bucket = { at, enqueued: 0, success: 0, failed: 0, cancelled: 0, skipped: 0, retried: 0 }
        buckets.set(at, bucket)
      }
      const what = HAPPENINGS[textOf(list[i + 1])]
      if (what) bucket[what] = numberOf(list[i + 2])
    }
    return [...buckets.values()].sort((a, b) => a.at - b.at)
  }

  async errors(ref: QueueRef, options: { limit: number }): Promise<ErrorGroup[]> {
    const list = listOf(await this.#run('errors', ref, [options.limit]))
    const groups: ErrorGroup[] = []
    for (let i = 0; i < list.length; i += 5) {
      const error = unpackMap(bytesOf(list[i + 4])).get('e') as Buffer | undefined
      groups.push({
        fingerprint: textOf(list[i]),
        count: numberOf(list[i + 1]),
        id: textOf(list[i + 2]),
        error: error?.toString() ?? '',
        lastAt: numberOf(list[i + 3]),
      })
    }
    return groups
  }

  async cancel(
    ref: QueueRef,
    ids: readonly string[],
    options: CancelOptions = {},
  ): Promise<OperationOutcome[]> {
    const { code = 'TASK_CANCELLED', message } = options
    return this.#operate(ref, 'cancel', ids, { code, message })
  }

  async retry(
    ref: QueueRef,
    ids: readonly string[],
    options: ReviveOptions = {},
  ): Promise<OperationOutcome[]> {
    if (options.payload === undefined) return this.#operate(ref, 'retry', ids, { none: 1 })
    const { payload, codec } = options.payload
    const bytes = typeof payload === 'string' ? 0 : 1
    return this.#operate(ref, 'retry', ids, { payload, codec: escapeText(codec), bytes })
  }

  async promote(ref: QueueRef, ids: readonly string[]): Promise<OperationOutcome[]> {
    return this.#operate(ref, 'promote', ids, { none: 1 })
  }

  async reprioritize(ref: QueueRef, ids: readonly string[], priority: number): Promise<OperationOutcome[]> {
    if (!(Number.isInteger(priority) && priority >= 0 && priority <= MAX_PRIORITY)) {
      throw optionError('priority', `an integer from 0 to ${MAX_PRIORITY}`, priority)
    }
    return this.#operate(ref, 'reprioritize', ids, { priority })
  }

  async remove(ref: QueueRef, ids: readonly string[]): Promise<OperationOutcome[]> {
    return this.#operate(ref, 'remove', ids, { none: 1 })
  }

  async complete(ref: QueueRef, id: string, result: Encoded, codec: string): Promise<OperationOutcome> {
    const tail = Buffer.concat([Buffer.from(`${escapeText(codec)} `), Buffer.from(tagged(result))])
    const [outcome] = await this.#operate(ref, 'complete', [id], { tail })
    return outcome as OperationOutcome
  }

  async pause(ref: QueueRef, paused: boolean): Promise<void> {
    await this.#run('pause', ref, [paused ? 1 : 0])
  }

  async setGroup(ref: QueueRef, group: string, flags: GroupFlags): Promise<void> {
    if (!isStorableId(group)) throw optionError('group', 'an id that can be stored', group)
    const paused = flags.paused === undefined ? '' : flags.paused ? 1 : 0
    await this.#run('group', ref, [group, flags.cancelled === true ? 1 : 0, paused])
  }

  #operate(
    ref: QueueRef,
    operation: Exclude<Operation, 'revoke'>,
    ids: readonly string[],
    details: Packable,
  ): Promise<OperationOutcome[]> {
    return operate(this.#connection, ref, operation, ids, details)
  }

  #run(script: ScriptName, ref: QueueRef, args: readonly Argument[]): Promise<Reply> {
    return this.#connection.runIn(script, this.#connection.keys.queue(ref), args)
  }
}

/** Ids that one call names at most, so that none takes longer than 5 ms. */
const MAX_IDS = 200

function* pieces(ids: readonly string[]): Generator<readonly string[], undefined> {
  for (let from = 0; from < ids.length; from += MAX_IDS) yield ids.slice(from, from + MAX_IDS)
  return undefined
}

function parseWatch(reply: Reply): WatchOutcome {
  if (!Buffer.isBuffer(reply)) {
    return listOf(reply).length === 2 ? parseSuccess(reply) : finalOf(parseView(reply) as TaskRecord)
  }
  const letter = reply.toString()
  return letter === 'o' ? 'open' : letter === 'f' ? 'forgotten' : 'unknown'
}

/** One operation on tasks of a queue. */
export async function operate(
  connection: Connection,
  ref: QueueRef,
  operation: Operation,
  ids: readonly string[],
  details: Packable,
): Promise<OperationOutcome[]> {
  const outcomes: OperationOutcome[] = []
  for (const some of pieces(ids)) {
    const args = [operation, pack(details), ...some]
    const reply = await connection.runIn('operate', connection.keys.queue(ref), args)
    outcomes.push(...listOf(reply).map(parseOutcome))
  }
  return outcomes
}

function parseOutcome(reply: Reply): OperationOutcome {
  const text = textOf(reply)
  if (text === 'done' || text === 'unknown') return text
  const state = stateOf(text.charAt(0))
  return text.length === 1 ? { state } : { state, neededBy: text.slice(1) }
}
