/**
 * What the memory storage keeps of one task: a single object of a fixed shape.
 *
 * Nothing here says in which state a task is: {@link Task.where} names the structure that holds it, and the
 * structure is the state. So a task cannot be in two, and no state can disagree with its structure.
 */
import { PlainValue } from './plain-value.js'
import type { Dependencies, Encoded } from './storage.js'
import type { TaskState } from './task.js'

/** One of the places of CONTRACT.md section 2. Entering differs from one to another, leaving does not. */
export interface Structure {
  readonly state: TaskState
  readonly size: number
  /** Lets the task go. Afterwards it is {@link NOWHERE}, and the same step puts it elsewhere or forgets it. */
  leave(task: Task): void
}

/** Where a task is before its first structure, after its removal, and between two structures within a step. */
export const NOWHERE: Structure = { state: 'pending', size: 0, leave: () => undefined }

/** Sequence numbers in a priority. 1 001 priorities of them are exact in a double. */
const BAND = 2 ** 43

/** The place in line: by priority, first in first out within one. Unique among the unfinished tasks of a queue. */
export const scoreOf = (priority: number, sequence: number): number => priority * BAND + sequence

/**
 * About 200 bytes, one number for its times and one entry of a map and of an order. The fields are all defined before
 * the constructor sets them: V8 then lets the tasks of a batch share that number (measured: 32 bytes less).
 */
export class Task {
  readonly id: string
  readonly kind: string
  payload: Kept
  codec: string
  options: string | undefined
  nonce: string | undefined
  readonly createdAt: number
  where: Structure = NOWHERE
  /** When it entered `where`. A lane counts as one with ready: being put aside changes nothing for the task. */
  since: number
  priority: number
  /** Its age within its priority. Once final: the number of its end. */
  sequence: number
  /** Neighbours within a {@link Chain}. */
  prev: Task | undefined = undefined
  next: Task | undefined = undefined
  /** Running: the token of its lease entry. Final: that of the settlement which decided, 0 when another thing did. */
  token = 0
  /** Of the last accepted settlement, of whatever kind. Tells a repeat from a stale one. Never reset. */
  settledToken = 0
  started = false
  attempts = 0
  result: Kept | undefined = undefined
  resultCodec: string | undefined = undefined
  duration: number | undefined = undefined
  watch: Watch | undefined = undefined
  rare: Rare | undefined = undefined

  constructor(
    id: string,
    kind: string,
    payload: Kept,
    codec: string,
    options: string | undefined,
    nonce: string | undefined,
    priority: number,
    sequence: number,
    now: number,
  ) {
    this.id = id
    this.kind = kind
    this.payload = payload
    this.codec = codec
    this.options = options
    this.nonce = nonce
    this.priority = priority
    this.sequence = sequence
    this.createdAt = now
    this.since = now
  }

  /** Its place in line. */
  get score(): number {
    return scoreOf(this.priority, this.sequence)
  }
}

/** A registration of a watcher. Of a final task: only until when its record stays for those who were told. */
export interface Watch {
  readonly watcher: string
  readonly until: number
  readonly next: Watch | undefined
}

/** What a task with a debounce key keeps of it. */
export interface Window {
  readonly key: string
  /** When it opened: what `maxWait` counts from. `undefined` when the next task that comes opens it anew. */
  openedAt: number | undefined
  /** The id of the last task that went into this one. */
  newest: string | undefined
}

/** What few tasks have, made when the first of it is needed. */
export class Rare {
  /** Not used up yet: it starts when nothing blocks the task any more. */
  delay: number | undefined = undefined
  runAt: number | undefined = undefined
  /** The key in `due`, while it is there. */
  dueAt: number | undefined = undefined
  /** The key in the deadline index, while it has one. */
  deadline: number | undefined = undefined
  /** What the deadline ends: a suspension, or else (`expiresIn`) the task, unless it has started by then. */
  suspended = false
  held = false
  after: Dependencies | undefined = undefined
  /** The parents in `after` that were not final yet, by name: a set, never a counter. */
  open: Set<string> | undefined = undefined
  /** The unfinished tasks that name this one in `after`. They keep its record. */
  dependents: Set<Task> | undefined = undefined
  group: Group | undefined = undefined
  exempt = false
  reclaims = 0
  probation = false
  timedOut = false
  error: string | undefined = undefined
  fingerprint: string | undefined = undefined
  reason: string | undefined = undefined
  message: string | undefined = undefined
  window: Window | undefined = undefined
  progress: Kept | undefined = undefined
  checkpoint: Kept | undefined = undefined
  logs: string[] | undefined = undefined
}

/** The rare fields of a task, made if it has none. */
export function rareOf(task: Task): Rare {
  return (task.rare ??= new Rare())
}

export class Group {
  readonly id: string
  cancelled = false
  paused = false
  /** Unfinished members that obey the flags. */
  readonly members: Set<Task> = new Set<Task>()
  /** Records of members, finished or exempt ones too. The flags outlive the last of them by 24 h. */
  records = 0
  emptySince = 0

  constructor(id: string) {
    this.id = id
  }
}

/** Whether the flag of its group ends the task. */
export const isDoomed = (rare: Rare): boolean =>
  rare.group !== undefined && rare.group.cancelled && !rare.exempt

/** Bytes that the storage may keep: a caller's array may change, or be a slice of something large. */
export const keepBytes = (value: Encoded): Encoded =>
  value instanceof Uint8Array ? new Uint8Array(value) : value

/**
 * An encoded value as it is kept: text and bytes as they are, and of a {@link PlainValue} what is in it, so that the
 * wrapping does not have to live as long as the task does. A text that stands for itself keeps it.
 */
export type Kept = string | number | boolean | object | null

export function keep(value: Encoded): Kept {
  const given: Kept = value
  if (!(given instanceof PlainValue)) return keepBytes(value)
  return typeof given.value === 'string' ? given : (given.value as Kept)
}

/** What was kept, as it was given. */
export function told(kept: Kept): Encoded
export function told(kept: Kept | undefined): Encoded | undefined
export function told(kept: Kept | undefined): Encoded | undefined {
  if (kept === undefined || typeof kept === 'string' || kept instanceof Uint8Array) return kept
  return (kept instanceof PlainValue ? kept : new PlainValue(kept)) as unknown as Encoded
}
