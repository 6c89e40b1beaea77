/**
 * What the model of a storage knows of one task, of a group and of a session: plain values, nothing derived.
 *
 * The model is written from `docs/reference/contract.md` and shares no code with any driver. It finds everything by
 * looking at everything, so that each of its rules is to be seen at a glance.
 */
import type { Dependencies, Encoded, Retention } from '../storage.js'
import type { FinalState, TaskState } from '../task.js'

/**
 * A place in the order. The contract orders by priority, then by when the place was given; of what one step makes
 * ready it orders only new tasks (by their unit) and due ones (by their times). Anything else of one step may come in
 * any order.
 */
export interface Place {
  readonly priority: number
  /** The number of the step that gave it, or might have: the driver may have left it to the next one. */
  readonly step: number
  latest: number
  readonly by: 'enqueue' | 'due' | 'other'
  /** Within the step: the position in the call, the time at which it was due. */
  readonly rank: number
}

/** Whether the contract says that `a` is claimed before `b`. */
export function isBefore(a: Place, b: Place): boolean {
  if (a.priority !== b.priority) return a.priority < b.priority
  if (a.step !== b.step || a.latest !== b.latest) return a.latest < b.step
  return a.by === b.by && a.by !== 'other' && a.rank < b.rank
}

export interface ModelTask {
  readonly id: string
  readonly kind: string
  payload: Encoded
  codec: string
  options: string | undefined
  nonce: string | undefined
  readonly createdAt: number
  readonly group: ModelGroup | undefined
  readonly exempt: boolean
  state: TaskState
  since: number
  place: Place
  /** Not used up yet: it starts when nothing blocks the task any more. */
  delay: number | undefined
  runAt: number | undefined
  dueAt: number | undefined
  /** When it expires or, while `suspended`, goes on without the parents that are open. */
  deadline: number | undefined
  suspended: boolean
  held: boolean
  after: Dependencies | undefined
  /** Ids of the parents that have not told it of their end. */
  readonly open: Set<string>
  /** The very tasks that it needs until it is final. */
  readonly pins: Set<ModelTask>
  /** Of its entry. */
  session: ModelSession | undefined
  token: number
  started: boolean
  settledToken: number
  /** Whether something else than a settlement made it final. */
  decided: boolean
  attempts: number
  reclaims: number
  probation: boolean
  timedOut: boolean
  result: Encoded | undefined
  resultCodec: string | undefined
  error: string | undefined
  fingerprint: string | undefined
  reason: string | undefined
  /** Another that is as good, when two things ended it at once. */
  otherReason: string | undefined
  /** What a caller or a node said; drivers may say something of their own where nobody did. */
  message: string | undefined
  duration: number | undefined
  progress: Encoded | undefined
  checkpoint: Encoded | undefined
  logs: string[] | undefined
  /** Until when each watcher is registered. */
  readonly watchers: Map<string, number>
  /** Until when its final record stays for those who read it, or (since then) was needed by another task. */
  keptUntil: number
  neededUntil: number
  /** Of its debounce key. */
  window: ModelWindow | undefined
}

export interface ModelWindow {
  readonly key: string
  /** `undefined` when the next task that comes opens it anew. */
  openedAt: number | undefined
  /** The id of the last one that went into the task. */
  newest: string | undefined
}

export interface ModelGroup {
  readonly id: string
  cancelled: boolean
  paused: boolean
}

export interface ModelNotice {
  readonly id: string
  readonly token: number
  readonly reason: string
  /** The `takenSeq` of the first reply that told of it. */
  seq: number | undefined
}

export interface ModelSession {
  readonly id: string
  readonly kinds: readonly string[]
  readonly ttl: number
  readonly maxReclaims: number
  readonly retention: Retention
  beatAt: number
  suspectAt: number | undefined
  over: 'ended' | 'condemned' | undefined
  overAt: number
  /** Whether all that it held was taken back, so that no report names it any more. */
  isDrained: boolean
  /** The newest token issued to it. */
  token: number
  readonly entries: Set<ModelTask>
  taken: ModelNotice[]
  takenSeq: number
  /** Whether its last claim came back short and it was not woken since; `undefined` when the contract leaves it open. */
  idle: boolean | undefined
}

export const FINAL: readonly TaskState[] = [
  'success',
  'failed',
  'cancelled',
  'skipped',
] satisfies FinalState[]

export const isEnded = (task: ModelTask): boolean => FINAL.includes(task.state)

/** Whether the flag of its group ends the task. */
export const isDoomed = (task: ModelTask): boolean => task.group?.cancelled === true && !task.exempt

/** Whether the flag of its group keeps it from being claimed. */
export const isHeldBack = (task: ModelTask): boolean => task.group?.paused === true && !task.exempt

export const sizeOf = (value: Encoded): number =>
  typeof value === 'string' ? Buffer.byteLength(value) : value.byteLength

/** Bytes as text that tells them from text, so that it does not matter in which class a driver gives them. */
const plain = (value: unknown): unknown =>
  value instanceof Uint8Array ? `bytes ${Buffer.from(value).toString('hex')}` : value

/** Without what is undefined or an empty list, with parents in the order of their ids. */
export function tidy(value: object): Record<string, unknown> {
  const entries = Object.entries(value).filter(
    ([, one]) => one !== undefined && !(Array.isArray(one) && one.length === 0),
  )
  return Object.fromEntries(
    entries.map(([key, one]) => {
      if (!Array.isArray(one)) return [key, plain(one)]
      const list = one as unknown[]
      return [key, list.map((item) => (typeof item === 'object' ? { ...item } : item))]
    }),
  )
}
