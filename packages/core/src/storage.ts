/**
 * The storage contract: what a driver must do for the pool and for every tier above it.
 *
 * A storage speaks in intents, not in CRUD: each operation is one atomic step over a batch, and it is the only
 * place where the state of a task changes. Who fulfils this file and passes `storageSuite` of
 * `@neotask/core/testing` works with every tier. The rules that types cannot say are numbered in
 * `docs/reference/contract.md`, one test case for each number; `memory-storage.ts` is their readable form.
 *
 * Times given to a storage are durations in ms, compared with the storage's own clock; only `runAt` and `dueAt`
 * are absolute (ms since 1970). Payloads, results, errors, options and checkpoints are opaque to it.
 */
import type { ErrorCode } from './errors.js'
import type { FinalState, Operation, TakenReason, TaskState } from './task.js'

/** What a codec made of a value: text, or bytes. */
export type Encoded = string | Uint8Array

/** Where a task lives. A required argument everywhere, so that no query can forget its tenant. */
export interface QueueRef {
  readonly tenant: string
  readonly queue: string
}

export interface Storage {
  /** The driver's name: `memory`, `sqlite`, `redis`. */
  readonly name: string
  /** Whether tasks outlive this process. */
  readonly durable: boolean
  /**
   * Whether it keeps what it is given by reference, within this process. Then an {@link Encoded} may also be a
   * `PlainValue`, a copy in place of the text; the type does not tell, so that no other driver has to think of it.
   * Default: false.
   */
  readonly keepsValues?: boolean | undefined
  /** The largest batches that the driver takes in one call. Callers split what is larger. */
  readonly limits: StorageLimits
  readonly queue: QueueFace
  readonly session: SessionFace
  readonly upkeep: UpkeepFace
  readonly records: RecordsFace
  readonly locks: LocksFace
  readonly notices: NoticesFace
  /** Connects, checks the stored format, migrates. Safe to call twice; the other calls need it first. */
  open(): Promise<StorageInfo>
  /** Lets go of what the driver itself opened. Safe to call twice. */
  close(): Promise<void>
}

export interface StorageLimits {
  /** Tasks in one `enqueue`, unless a single unit is larger. */
  readonly enqueue: number
  /** Settlements, and tasks claimed, in one `work`. */
  readonly work: number
  /**
   * Calls of `enqueue` that a pool may have under way at a time. More than one says that the storage works in another
   * process, and carries out and answers calls in the order of their sending. Then a session may also have a call of `work`
   * with nothing but settlements and reports under way beside the other. Default: 1.
   */
  readonly flights?: number | undefined
}

export interface StorageInfo {
  /** The version of the stored format. */
  readonly format: number
  /** Changes when the storage may have lost what it had acknowledged (a new memory, a failover). */
  readonly runId: string
  /**
   * Makes ids unique: a whole number that no other storage gets which is open on the same data, nor one with the same
   * remainder by {@link GENERATORS}. The last one plus 1; a storage that may have lost some leaps beyond them. The object
   * stays the same while the storage is open, also through a wrapper.
   */
  readonly generator: number
}

// ---------------------------------------------------------------------------------------------------- queue

export interface QueueFace {
  /**
   * Accepts tasks. A unit (one task, or a list) is accepted or refused whole, and a bad unit never harms its
   * neighbours; within a unit a parent stands before its children.
   *
   * @returns one outcome for each task, in order, units flattened
   */
  enqueue(ref: QueueRef, units: readonly Unit[], options?: EnqueueOptions): Promise<EnqueueOutcome[]>
  /**
   * The same for one task, done when the call returns. Only where a step costs no more for one task than for many,
   * as in memory: a pool then sends each task by itself, and gathers no batches.
   */
  enqueueNow?(ref: QueueRef, task: NewTask, options?: EnqueueOptions): EnqueueOutcome
  /** The same, inside the caller's own open transaction. Only where the storage is an embedded database. */
  enqueueSync?(ref: QueueRef, units: readonly Unit[], options?: EnqueueOptions): EnqueueOutcome[]
  /** The records of the ids, `undefined` for those that are unknown. */
  get(ref: QueueRef, ids: readonly string[]): Promise<(TaskRecord | undefined)[]>
  /**
   * Registers a waiter and says what is final already, in one step. A registration lasts `ttl` ms and is made
   * longer by a repeat. When a watched task becomes final or is removed, its id is published to
   * {@link finalChannel} of the watcher.
   */
  watch(ref: QueueRef, ids: readonly string[], options: WatchOptions): Promise<WatchOutcome[]>
  /** One page of the tasks in a state, in the order in which they will run or, when final, newest first. */
  list(ref: QueueRef, query: ListQuery): Promise<TaskPage>
  /** How many tasks are in each state, counted in one step. */
  counts(ref: QueueRef): Promise<QueueCounts>
  /** What happened in each minute that has something to tell, oldest first, kept for 24 h. */
  history(ref: QueueRef, range: { from: number; to: number }): Promise<HistoryBucket[]>
  /** The failed tasks grouped by the fingerprint of their error, largest group first. */
  errors(ref: QueueRef, options: { limit: number }): Promise<ErrorGroup[]>
  /** Makes tasks final at once, wherever they are; who runs one is told. */
  cancel(ref: QueueRef, ids: readonly string[], options?: CancelOptions): Promise<OperationOutcome[]>
  /** Gives failed or cancelled tasks another life: no attempts, no reclaims, a new place in the order. */
  retry(ref: QueueRef, ids: readonly string[], options?: ReviveOptions): Promise<OperationOutcome[]>
  /** Makes scheduled tasks ready now. */
  promote(ref: QueueRef, ids: readonly string[]): Promise<OperationOutcome[]>
  /** Changes the priority of waiting tasks; each keeps its place within the new one by its age. */
  reprioritize(ref: QueueRef, ids: readonly string[], priority: number): Promise<OperationOutcome[]>
  /** Removes every trace. Waiters learn of it. */
  remove(ref: QueueRef, ids: readonly string[]): Promise<OperationOutcome[]>
  /** Ends a held task as `success` with this result. */
  complete(ref: QueueRef, id: string, result: Encoded, codec: string): Promise<OperationOutcome>
  /** Stops or allows claims from the queue, for every node. */
  pause(ref: QueueRef, paused: boolean): Promise<void>
  /** Sets the flags of a group. They hold for members that come later too. */
  setGroup(ref: QueueRef, group: string, flags: GroupFlags): Promise<void>
}

/** One task, or several that are accepted together or not at all. */
export type Unit = NewTask | readonly NewTask[]

export interface NewTask {
  readonly id: string
  /** The name of the task's definition; empty for the pool's executor. A session claims only kinds that it serves. */
  readonly kind: string
  readonly payload: Encoded
  /** Id of the codec that made the payload. */
  readonly codec: string
  /** From 0 to 1 000; smaller first. */
  readonly priority: number
  /** What the node needs to run it (retry policy, timeout, tags), opaque, returned with each claim. */
  readonly options?: string | undefined
  /** Tells a repeated call from a second task with the same id. Needed with ids that a caller chose. */
  readonly nonce?: string | undefined
  /** ms from when the task would be ready (now, or the release by its parents). */
  readonly delay?: number | undefined
  /** Not before this instant, up to the last one of a Date. */
  readonly runAt?: number | undefined
  readonly after?: Dependencies | undefined
  /** Blocked until `complete`. */
  readonly hold?: boolean | undefined
  readonly group?: { readonly id: string; readonly exempt?: boolean | undefined } | undefined
  /** ms after which the task ends `cancelled` with `TASK_EXPIRED` if it has not been claimed and started. */
  readonly expiresIn?: number | undefined
  /** Goes into the task with the same key that waits, if there is one. Nothing else may stand beside it but `delay`. */
  readonly debounce?: Debounce | undefined
  /** Registers this watcher in the same step. */
  readonly watcher?: string | undefined
  /** Refused with `LEASE_LOST` when the claim that it comes from holds no more; a known id is told as such all the same. */
  readonly guard?: Guard | undefined
}

/** A claim of a record of the same tenant: it holds while the record has the version that the claim gave it. */
export interface Guard {
  readonly key: string
  readonly version: number
}

/**
 * A key names the newest task of its queue and kind that was stored with it. While that one waits, scheduled or ready, a
 * task with the key is not stored: that one takes its payload, codec, options, priority and delay, and begins anew, with
 * no attempts. A task whose key names none, or one that is blocked, running or final, is stored, and named from then on.
 */
export interface Debounce {
  /** As an id. */
  readonly key: string
  /** ms after the first task of the window by which it is ready, whatever comes. Default: no limit. */
  readonly maxWait?: number | undefined
}

/** Tasks of the same queue that must be final first. */
export interface Dependencies {
  /** At most 100. */
  readonly ids: readonly string[]
  /** `success`: each must succeed, or the task ends `cancelled` with `DEPENDENCY_FAILED`. `final`: any end will do. */
  readonly on: 'success' | 'final'
}

export interface EnqueueOptions {
  /** Refuse with `QUEUE_FULL` what would make pending + scheduled + blocked more than this. */
  readonly maxQueueSize?: number | undefined
}

/**
 * - `accepted`: stored now
 * - `repeated`: this very task was stored before (the same nonce, or a generated id)
 * - `duplicate`: another task has the id, or had it within the last 24 h; nothing changed
 * - {@link Absorbed}: it is in another task now, and its own id is unknown; also told to a repeat
 * - a {@link Refusal}: the unit was not stored; with `NOT_REPLICATED` it was, on fewer servers than the driver was asked for
 */
export type EnqueueOutcome = 'accepted' | 'repeated' | 'duplicate' | Absorbed | Refusal

/** The task of the same {@link Debounce} key that has taken it up. */
export interface Absorbed {
  readonly into: string
}

export interface Refusal {
  readonly code: ErrorCode
  readonly message: string
}

export function isRefusal(outcome: EnqueueOutcome): outcome is Refusal {
  return typeof outcome === 'object' && 'code' in outcome
}

/** Everything that is known of a task. */
export interface TaskRecord {
  readonly id: string
  readonly kind: string
  readonly state: TaskState
  readonly priority: number
  readonly payload: Encoded
  readonly codec: string
  readonly options?: string | undefined
  readonly createdAt: number
  /** When it entered the structure in which it is: ready since, running since, final since. */
  readonly since: number
  /** When it is due (scheduled only). */
  readonly dueAt?: number | undefined
  /** When it expires, or its suspension times out. */
  readonly deadline?: number | undefined
  /** Whether its handler is known to have been called (running only). */
  readonly started: boolean
  /** The session and the node that hold it (running only). */
  readonly session?: string | undefined
  readonly node?: string | undefined
  /** The token of the last accepted settlement; 0 when something else decided. */
  readonly settledToken: number
  /** Attempts that ended in success or failure, those of the present life only. */
  readonly attempts: number
  /** How often a started attempt was taken back from a lost or revoked session. */
  readonly reclaims: number
  readonly after?: Dependencies | undefined
  /** Parents that are not final yet (blocked only). */
  readonly waitsFor?: readonly string[] | undefined
  /** Whether it waits for `complete` (blocked only). */
  readonly held: boolean
  readonly group?: { readonly id: string; readonly exempt?: boolean | undefined } | undefined
  /** The lane that it stands aside in: `kind:<name>` or `group:<id>` (pending only). */
  readonly lane?: string | undefined
  readonly result?: Encoded | undefined
  /** The codec of the result. */
  readonly resultCodec?: string | undefined
  /** The last attempt's error, as the node encoded it. */
  readonly error?: string | undefined
  /** Why it was cancelled, skipped or failed without an attempt of its own: a code such as `TASK_EXPIRED`. */
  readonly reason?: string | undefined
  /** What the caller of `cancel` said. */
  readonly message?: string | undefined
  /** ms that the last settled attempt took, as its node measured. */
  readonly duration?: number | undefined
  readonly progress?: Encoded | undefined
  readonly checkpoint?: Encoded | undefined
  /** The newest lines, at most 100. */
  readonly logs?: readonly string[] | undefined
}

export interface WatchOptions {
  /** Who waits; the name of the {@link finalChannel}. */
  readonly watcher: string
  /** ms that the registration lasts. */
  readonly ttl: number
}

/** Final: its record. `open`: registered. `forgotten`: it was here, its record is gone. `unknown`: never seen. */
export type WatchOutcome = FinalRecord | 'open' | 'forgotten' | 'unknown'

export type FinalRecord = Pick<
  TaskRecord,
  'id' | 'result' | 'resultCodec' | 'error' | 'reason' | 'message' | 'attempts' | 'duration'
> & { readonly state: FinalState }

export interface ListQuery {
  readonly state: TaskState
  readonly kind?: string | undefined
  readonly group?: string | undefined
  /** Tasks on a page, at most 500. */
  readonly limit: number
  /** Payload and result bytes on a page; the first task always fits. Default: 1 MiB. */
  readonly bytes?: number | undefined
  /** The `cursor` of the page before. */
  readonly cursor?: string | undefined
}

export interface TaskPage {
  readonly tasks: TaskRecord[]
  /** Given when there may be more; a page with a filter may be short, or empty, and still have it. */
  readonly cursor?: string | undefined
}

export type QueueCounts = Record<TaskState, number> & {
  /** Of the running ones, those not known to have started. Approximate. */
  prefetched: number
  paused: boolean
}

export interface HistoryBucket {
  /** The start of the minute. */
  readonly at: number
  readonly enqueued: number
  readonly success: number
  readonly failed: number
  readonly cancelled: number
  readonly skipped: number
  readonly retried: number
}

export interface ErrorGroup {
  readonly fingerprint: string
  readonly count: number
  /** A recent member, with its error. */
  readonly id: string
  readonly error: string
  readonly lastAt: number
}

export interface CancelOptions {
  /** Stored as the record's `reason`. Default: `TASK_CANCELLED`. */
  readonly code?: ErrorCode | undefined
  /** Stored as the record's `message`. */
  readonly message?: string | undefined
}

export interface ReviveOptions {
  /** Replaces the payload. */
  readonly payload?: { readonly payload: Encoded; readonly codec: string } | undefined
}

/** `done`; `unknown` id; or why not: the state it is in, and for `remove` the dependent that still needs it. */
export type OperationOutcome =
  'done' | 'unknown' | { readonly state: TaskState; readonly neededBy?: string | undefined }

/** The operations that take ids and answer with one {@link OperationOutcome} for each. */
export type QueueOperation = Exclude<Operation, 'complete' | 'revoke'>

export interface GroupFlags {
  /** Cancels its members that are not exempt, also those that come later. Cannot be taken back. */
  readonly cancelled?: true | undefined
  /** Sets its waiting members aside, with their place in the order. */
  readonly paused?: boolean | undefined
}

// -------------------------------------------------------------------------------------------------- session

export interface SessionFace {
  /** Creates a session. Its id is random and is never used again. */
  open(session: string, options: SessionOptions): Promise<void>
  /** The one call of a running node. Every part may be empty; they are carried out in the order of their listing. */
  work(request: WorkRequest): Promise<WorkReply>
  /** After any doubt: what the session holds, and what became of the ids. Also a renewal. */
  resume(session: string, ids: readonly string[]): Promise<ResumeReply>
  /** Gives back what the session holds, at most `limit` tasks a call, to their old places. Until `done`, `more`. */
  end(session: string, limit: number): Promise<'done' | 'more'>
}

export interface SessionOptions {
  /** T, at least 1 000 ms: suspect after 0.6 T without a beat, condemned 0.4 T later. Others judge by this value. */
  readonly ttl: number
  /** Stored as the record `node:<session>` of the tenant for as long as the session lives. */
  readonly node: NodeInfo
  readonly serves: Serves
  readonly retention: Retention
  /** A started task is taken back this often; once more makes it `failed` with `POISON`. */
  readonly maxReclaims: number
  /**
   * The watcher of the node itself. A storage may leave out to tell it of ends that this session settles: the reply
   * does.
   */
  readonly watcher?: string | undefined
}

export interface NodeInfo {
  /** The name of the node. */
  readonly id: string
  readonly host: string
  readonly pid: number
  readonly concurrency: number
  /** What it claims. */
  readonly queue: string
  readonly kinds: readonly string[]
}

/** What a session claims. */
export interface Serves extends QueueRef {
  readonly kinds: readonly string[]
}

/** How long final records stay. `cancelled` and `skipped` follow `success`. */
export interface Retention {
  readonly success: RetentionRule
  readonly failed: RetentionRule
}

export interface RetentionRule {
  /** ms. */
  readonly age: number
  /** Records. */
  readonly count: number
}

export interface WorkRequest {
  readonly session: string
  /** The newest token of which this node has the claim's reply; 0 at first. */
  readonly ack: number
  /** The `takenSeq` of the last reply whose `taken` this node has carried out; 0 at first. */
  readonly ackTaken: number
  /** 1. Handlers that were called: their entries become started. Ignored when the entry is gone. */
  readonly marks: readonly Mark[]
  /** 1. Progress, logs and checkpoints. Dropped when the entry is gone. */
  readonly reports: readonly Report[]
  /** 2. Ends of attempts. */
  readonly settlements: readonly Settlement[]
  /** 5. Whether this call is a beat too. */
  readonly renew: boolean
  /** 6. How many tasks the node would take; 0 for none. */
  readonly want: number
  /** Payload bytes that the node would take; the first task always fits. Default: 1 MiB. */
  readonly wantBytes?: number | undefined
  /** Claim only tasks with a priority smaller (more urgent) than this. */
  readonly moreUrgentThan?: number | undefined
  /**
   * How many tasks the node would start at once. While its last claim is one that came back short, a driver may hand the
   * session up to so many of those that come later, see {@link NoticesFace.handedIn}; a call that wants nothing tells how
   * many they are by now. Default: 0 with a claim, as many as before with a call that wants nothing.
   */
  readonly free?: number | undefined
}

export interface Mark {
  readonly id: string
  readonly token: number
}

export interface Report extends Mark {
  readonly progress?: Encoded | undefined
  readonly checkpoint?: Encoded | undefined
  readonly logs?: readonly string[] | undefined
}

interface SettlementBase extends Mark {
  /** ms that the attempt took. */
  readonly duration?: number | undefined
}

/** How an attempt ended. */
export type Settlement =
  | (SettlementBase & { readonly outcome: 'success'; readonly result: Encoded; readonly codec: string })
  | (SettlementBase & {
      readonly outcome: 'failed'
      readonly error: string
      /** Groups equal errors. */
      readonly fingerprint: string
      /** Sets the `cancelled` flag of the task's group in the same step. */
      readonly cancelGroup?: boolean | undefined
    })
  | (SettlementBase & { readonly outcome: 'retry'; readonly in: number; readonly error: string })
  | (SettlementBase & {
      readonly outcome: 'cancelled' | 'skipped'
      readonly reason: string
      readonly message?: string
    })
  /** Back to its old place; costs no attempt. */
  | (SettlementBase & { readonly outcome: 'released' })
  /** Waits without a slot, costs no attempt: for other tasks, for `until` ms, or for whichever comes first. */
  | (SettlementBase & {
      readonly outcome: 'suspended'
      readonly after?: Dependencies | undefined
      readonly until?: number | undefined
      readonly checkpoint?: Encoded | undefined
    })

export interface WorkReply {
  /**
   * - `ok`: carried out
   * - `again`: the reply of an earlier claim was lost; `claimed` gives those entries again and nothing else
   * - `gone`: the session is over. Settlements not listed as stale were accepted all the same.
   */
  readonly status: 'ok' | 'again' | 'gone'
  /** The newest token issued to the session. */
  readonly token: number
  readonly claimed: readonly Claimed[]
  /** Indices into `settlements` of those that changed nothing, because the entry was gone. */
  readonly stale: readonly number[]
  /** Indices into `reports`, likewise. */
  readonly staleReports: readonly number[]
  /** Entries taken from the session, sent until acknowledged. Abort a task only if its token is not newer. */
  readonly taken: readonly Taken[]
  readonly takenSeq: number
  /** How many entries the session has now. */
  readonly held: number
  /** ms until the next scheduled task is due or the next deadline passes. */
  readonly nextDueIn?: number | undefined
  /** The priority of the most urgent task that is still ready for this session. */
  readonly head?: number | undefined
  readonly paused: boolean
}

export interface Taken extends Mark {
  readonly reason: TakenReason
}

/** A task that the session holds from now on. */
export interface Claimed extends Mark {
  readonly kind: string
  readonly payload: Encoded
  readonly codec: string
  readonly options?: string | undefined
  readonly priority: number
  /** Attempts that ended before this one. */
  readonly attempts: number
  readonly reclaims: number
  /** It came back unmarked from a lost session: write the mark and await it before calling the handler. */
  readonly probation: boolean
  /** ms from when it was ready to this claim. */
  readonly waited: number
  readonly checkpoint?: Encoded | undefined
  /** Its parents and their final states. Their results are read by `get`. */
  readonly parents?: readonly Parent[] | undefined
  /** Set when its suspension timed out rather than being released. */
  readonly timedOut?: boolean | undefined
}

export interface Parent {
  readonly id: string
  readonly state: FinalState
}

export interface ResumeReply {
  readonly status: 'ok' | 'gone'
  /** The newest token issued to the session. */
  readonly token: number
  /** Everything that the session holds. */
  readonly entries: readonly Claimed[]
  /** One for each id asked for, `undefined` for the unknown. */
  readonly tasks: readonly ({ readonly state: TaskState; readonly settledToken: number } | undefined)[]
}

// --------------------------------------------------------------------------------------------------- upkeep

/** Bounded, idempotent pieces of work that anybody may do at any time. `work` does a little of each. */
export interface UpkeepFace {
  /** Looks for suspect and condemned sessions, and takes back at most `limit` entries of condemned ones. */
  reclaim(limit: number): Promise<ReclaimReport>
  /** Promotes due tasks, passes deadlines, goes on with releases and group sweeps. `more`: there is more to do. */
  drain(ref: QueueRef, limit: number): Promise<'done' | 'more'>
  /** Removes final records beyond their retention, tombstones, watchers and history. */
  prune(ref: QueueRef, retention: Retention, limit: number): Promise<'done' | 'more'>
  /** Takes running tasks away from their sessions; counts as a reclaim. */
  revoke(ref: QueueRef, ids: readonly string[]): Promise<OperationOutcome[]>
  /** Compares states with structures and mends what disagrees. Finds nothing unless something is broken. */
  reconcile(ref: QueueRef, limit: number): Promise<{ readonly mended: number }>
}

export interface ReclaimReport {
  readonly suspected: readonly string[]
  readonly condemned: readonly string[]
  /** Tasks that are ready again. */
  readonly reclaimed: readonly (QueueRef & { readonly id: string })[]
  /** Tasks that are `failed` now with `POISON`. */
  readonly poisoned: readonly (QueueRef & { readonly id: string })[]
}

// -------------------------------------------------------------------------------------------------- records

/**
 * Small durable values with compare-and-set, labels, a due time and an end: schedules, runs, nodes, tenants.
 *
 * Puts with a time that is not finite, or beyond ±8.64e15 ms, reject `OPTION_INVALID`, and nothing of the call is written:
 * a driver asks {@link checkPut}.
 */
export interface RecordsFace {
  get(tenant: string, key: string): Promise<StoredRecord | undefined>
  /** @returns the new version, or `conflict` when `ifVersion` is not the present one */
  put(tenant: string, key: string, value: Encoded, options?: PutOptions): Promise<number | 'conflict'>
  /**
   * The same for at most 500 records in one step, each by itself: a conflict of one does not touch the others.
   *
   * @returns one outcome for each, in order
   */
  putAll(tenant: string, puts: readonly RecordPut[]): Promise<(number | 'conflict')[]>
  /** @returns whether it was there (and, with `ifVersion`, had that version) */
  delete(tenant: string, key: string, options?: { ifVersion?: number }): Promise<boolean>
  /** One page by key order. */
  list(tenant: string, query: RecordQuery): Promise<{ records: StoredRecord[]; cursor?: string }>
  /**
   * Takes records that are due, longest due first, and puts their due time `leaseMs` ahead in the same step, so
   * that nobody else takes them meanwhile. The version grows, so that only the claimer's compare-and-set holds. With a
   * limit of 0 it takes nothing, and tells the time. It ends before its values are more than `maxBytes`; what it leaves
   * stays due.
   *
   * What a key begins with, up to its first `/`, is its group: a claim by a prefix that has a `/` costs by what its own
   * group has, however much is due in others.
   */
  claimDue(tenant: string, query: DueQuery): Promise<DueReply>
}

export interface DueQuery {
  readonly prefix?: string | undefined
  /** Records, at most 500. */
  readonly limit: number
  readonly leaseMs: number
  /** Bytes of the values that are taken; the first record always fits. Default: 1 MiB. */
  readonly maxBytes?: number | undefined
}

export interface DueReply {
  readonly records: StoredRecord[]
  /** The storage's time, ms since 1970, by which it was decided what is due. */
  readonly now: number
  /**
   * ms until the next record of the prefix is due, those included that were taken now; 0 when more are due already,
   * `undefined` when none has a due time. Behind 100 other records of its group a storage need not look further: then it
   * is the time until the last of those is due, which is no later.
   */
  readonly nextDueIn?: number | undefined
}

export interface RecordPut {
  readonly key: string
  readonly value: Encoded
  readonly options?: PutOptions | undefined
}

export interface StoredRecord {
  readonly key: string
  readonly value: Encoded
  /**
   * A whole number that grows by 1 with every change. The first one is `max(last + 1, time in µs)`, where `last` is the highest
   * that a record of this key has had, one that was deleted or has expired included. So a record that is made anew never
   * has a version of an earlier one, and whoever had read that meets a conflict.
   */
  readonly version: number
  readonly labels: readonly string[]
  /** Absolute. */
  readonly dueAt?: number | undefined
  /** Absolute. */
  readonly expiresAt?: number | undefined
}

/** What is not given is not set: a record put without `dueIn` is due no more. */
export interface PutOptions {
  /** 0: only if it does not exist. */
  readonly ifVersion?: number | undefined
  /** ms from now. */
  readonly dueIn?: number | undefined
  /** Absolute, for slots. Has precedence over `dueIn`. */
  readonly dueAt?: number | undefined
  /** ms from now after which the record is gone. */
  readonly expiresIn?: number | undefined
  readonly labels?: readonly string[] | undefined
}

export interface RecordQuery {
  readonly prefix?: string | undefined
  readonly label?: string | undefined
  /** Records on a page, at most 500. */
  readonly limit: number
  readonly cursor?: string | undefined
}

// ---------------------------------------------------------------------------------------------------- locks

export interface LocksFace {
  /**
   * Takes the lock for `ttl` ms. The fencing number is `max(last + 1, time in µs)`, so it grows for ever, also
   * when the storage has lost its memory. Who holds it already gets `undefined` like anybody else.
   */
  acquire(
    tenant: string,
    key: string,
    owner: string,
    ttl: number,
  ): Promise<{ readonly fence: number } | undefined>
  /** Whether the owner still held it, for `ttl` ms from now. */
  extend(tenant: string, key: string, owner: string, ttl: number): Promise<boolean>
  /** Whether the owner still held it. */
  release(tenant: string, key: string, owner: string): Promise<boolean>
}

// -------------------------------------------------------------------------------------------------- notices

/**
 * Messages to whoever listens now: best effort, at most once. Everything stays correct without them, by polling.
 * The storage itself publishes to the channels below. A driver that only learns *that* something changed calls
 * every listener with {@link CHANGED}.
 */
export interface NoticesFace {
  publish(channel: string, message: string): Promise<void>
  /** @returns the function that ends the subscription */
  subscribe(channel: string, listener: (message: string) => void): Promise<() => Promise<void>>
  /**
   * The ends that a message of {@link finalChannel} brings with it, behind its first line. Only of drivers that put them
   * there; it saves the question for them.
   */
  endsIn?(message: string): readonly FinalRecord[]
  /**
   * The tasks that a message of {@link wakeChannel} hands to the session: they were claimed for it in the step that stored
   * them, and this is the claim's reply. It may be lost like any other; the next claim then answers `again`. Only of drivers
   * that do this; it saves a call.
   */
  handedIn?(message: string): Handed | undefined
}

/** What a claim answers that nobody asked for. */
export interface Handed {
  /** The session's newest token before it: the entries count only for a node that has acknowledged just this one. */
  readonly after: number
  readonly token: number
  readonly claimed: readonly Claimed[]
}

/** The message of a driver that cannot say what changed: look for yourself. */
export const CHANGED = '*'

/** Tells a session that there is work, or that something was taken from it. Message: empty, or the driver's. */
export const wakeChannel = (session: string): string => `wake:${session}`

/** Tells the sessions of a queue that its most urgent ready task is more urgent than before. Message: its priority. */
export const headChannel = (ref: QueueRef): string => `head:${ref.tenant}/${ref.queue}`

/** Tells a watcher what is final or removed. Message: ids, separated by spaces; other lines are the driver's. */
export const finalChannel = (watcher: string): string => `final:${watcher}`

/** The ids that a message on a {@link finalChannel} names. */
export const idsIn = (message: string): string[] => (message.split('\n', 1)[0] ?? '').split(' ')
