/** Answers the question that every user of a queue asks: why does this task not run? */
import type { NodeStatus } from './node-registry.js'
import type { QueueCounts, TaskRecord } from './storage.js'
import type { TaskState } from './task.js'

export type ReasonCode =
  | 'ended'
  | 'running'
  | 'prefetched'
  | 'queue-paused'
  | 'due-later'
  | 'retry-later'
  | 'held'
  | 'waits-for-parents'
  | 'group-paused'
  | 'unknown-kind'
  | 'no-consumer'
  | 'nodes-overloaded'
  | 'waits-for-slot'

export interface Explanation {
  id: string
  state: TaskState
  /** The first is what it waits for now; the others would hold it next. */
  reasons: { code: ReasonCode; text: string }[]
}

export interface Facts {
  counts: QueueCounts
  nodes: readonly NodeStatus[]
  /** Wall time in ms. */
  now: number
}

/** Pure: what the facts say about the task. */
export function explainTask(record: TaskRecord, { counts, nodes, now }: Facts): Explanation {
  const reasons: Explanation['reasons'] = []
  const say = (code: ReasonCode, text: string): void => void reasons.push({ code, text })
  const { state } = record
  switch (state) {
    case 'running':
      if (record.started)
        say('running', `runs on node ${record.node ?? 'unknown'}, attempt ${record.attempts + 1}`)
      else
        say(
          'prefetched',
          `claimed by node ${record.node ?? 'unknown'}, which has not said yet that it started`,
        )
      break
    case 'scheduled': {
      const left = Math.max(0, (record.dueAt ?? now) - now)
      if (record.attempts > 0)
        say('retry-later', `attempt ${record.attempts} failed; the next is due in ${left} ms`)
      else say('due-later', `is due in ${left} ms`)
      break
    }
    case 'blocked': {
      if (record.held) say('held', 'is held until complete() is called')
      const parents = record.waitsFor ?? []
      if (parents.length > 0)
        say('waits-for-parents', `waits for ${parents.length} tasks: ${parents.slice(0, 5).join(', ')}`)
      break
    }
    case 'pending':
      if (record.lane?.startsWith('group:'))
        say('group-paused', `its group ${record.lane.slice(6)} is paused`)
      if (record.lane?.startsWith('kind:')) {
        say(
          'unknown-kind',
          `a node that claimed has no handler for ${JSON.stringify(record.kind)}; it waits for one that has`,
        )
      }
      break
    default: {
      const why = record.reason ?? (record.error === undefined ? '' : ': the last attempt threw')
      say('ended', `ended as ${state}${why === '' ? '' : ` ${why}`}, and does not run any more`)
      return { id: record.id, state, reasons }
    }
  }
  if (state !== 'running') {
    if (counts.paused) say('queue-paused', 'the queue is paused')
    const name = JSON.stringify(record.kind)
    const able = nodes.filter(({ kinds }) => kinds.includes(record.kind))
    if (nodes.length === 0) say('no-consumer', 'no node consumes from the queue')
    else if (able.length === 0) {
      if (!reasons.some(({ code }) => code === 'unknown-kind'))
        say('unknown-kind', `no node has a handler for ${name}`)
    } else if (able.every(({ overload }) => overload !== undefined)) {
      say(
        'nodes-overloaded',
        `every node that could run it is over its load limit: ${able.map(describe).join(', ')}`,
      )
    } else if (state === 'pending' && reasons.length === 0) {
      say(
        'waits-for-slot',
        `${counts.pending} tasks are ready and ${counts.running} are held by ${nodes.length} nodes`,
      )
    }
  }
  return { id: record.id, state, reasons }
}

function describe({ id, overload }: NodeStatus): string {
  if (overload === undefined) return id
  const { measure, value, limit } = overload
  return measure === 'memory'
    ? `${id} (memory ${percent(value)}, limit ${percent(limit)})`
    : `${id} (event loop delay ${Math.round(value)} ms, limit ${limit} ms)`
}

const percent = (part: number): string => `${Math.round(part * 100)} %`
