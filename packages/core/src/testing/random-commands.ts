/**
 * What a random run may do: plain values, so that a failing run can be printed, shrunk and kept.
 *
 * Commands name tasks, nodes and claims by numbers, which the run resolves against what there is at the time. So a
 * command means something wherever it stands, and a list stays valid when commands are taken out of it.
 */
import type { Arbitrary } from 'fast-check'
import type { QueueOperation } from '../storage.js'
import type { Outcome } from './sketch.js'

type FastCheck = typeof import('fast-check')

/** A number that is taken modulo whatever there is to choose from. */
type Pick = number

export interface TaskSpec {
  readonly id: Pick
  readonly kind: Pick
  readonly priority: Pick
  readonly size: number
  readonly nonce: 'none' | 'own' | 'other'
  readonly delay?: number | undefined
  readonly runAt?: number | undefined
  readonly after?: readonly Pick[] | undefined
  readonly on?: 'success' | 'final' | undefined
  readonly hold?: boolean | undefined
  readonly group?: Pick | undefined
  readonly exempt?: boolean | undefined
  readonly expiresIn?: number | undefined
  readonly watcher?: Pick | undefined
  /** Makes the unit one that is refused. */
  readonly bad?: 'id' | 'priority' | 'parent' | undefined
}

export interface EndSpec {
  /** Which claim: of those held, or of all that the node ever made. */
  readonly claim: Pick
  readonly from: 'held' | 'all' | 'others'
  /** Added to its token. */
  readonly skew: number
  readonly outcome: Outcome
  readonly in: number
  readonly after?: readonly Pick[] | undefined
  readonly on: 'success' | 'final'
  readonly until?: number | undefined
  readonly cancelGroup: boolean
  readonly more: boolean
}

/** `via` says through which instance of the storage; a node stays with its own. `q` says in which queue. */
export type Command =
  | {
      do: 'enqueue'
      via: Pick
      q: Pick
      units: readonly (readonly TaskSpec[])[]
      maxQueueSize?: number | undefined
    }
  | { do: 'enqueueAgain'; via: Pick; back: Pick }
  | {
      do: 'open'
      via: Pick
      q: Pick
      kinds: Pick
      ttl: Pick
      retention: Pick
      maxReclaims: number
    }
  | { do: 'openAgain'; node: Pick }
  | {
      do: 'work'
      node: Pick
      want: number
      wantBytes?: number | undefined
      moreUrgentThan?: number | undefined
      renew: boolean
      ackTaken: boolean
      marks: readonly Pick[]
      reports: readonly Pick[]
      ends: readonly EndSpec[]
      /** What becomes of the reply: the node learns it, or it is lost, and then sent again or not. */
      reply: 'heard' | 'lost' | 'sent twice'
    }
  | { do: 'workAgain'; back: Pick }
  | { do: 'resume'; node: Pick; ids: readonly Pick[] }
  | { do: 'end'; node: Pick; limit: number }
  | { do: 'crash'; node: Pick }
  | { do: 'advance'; ms: number }
  | { do: 'reclaim'; via: Pick; limit: number }
  | { do: 'drain'; via: Pick; q: Pick; limit: number }
  | { do: 'prune'; via: Pick; q: Pick; retention: Pick; limit: number }
  | {
      do: 'operate'
      via: Pick
      q: Pick
      operation: QueueOperation | 'revoke'
      ids: readonly Pick[]
      priority: Pick
      payload: boolean
    }
  | { do: 'complete'; via: Pick; q: Pick; id: Pick }
  | { do: 'pause'; via: Pick; q: Pick; paused: boolean }
  | { do: 'setGroup'; via: Pick; q: Pick; group: Pick; cancelled: boolean; paused?: boolean | undefined }
  | { do: 'watch'; via: Pick; q: Pick; ids: readonly Pick[]; watcher: Pick; ttl: number }
  | { do: 'look'; via: Pick; q: Pick; limit: number }
  | {
      do: 'record'
      via: Pick
      key: Pick
      what: 'put' | 'delete' | 'get'
      version: 'any' | 'present' | 'other' | 'none'
      dueIn?: number | undefined
      expiresIn?: number | undefined
    }
  | { do: 'claimRecords'; via: Pick; prefix: Pick; limit: number; leaseMs: number }
  | { do: 'lock'; via: Pick; key: Pick; owner: Pick; what: 'acquire' | 'extend' | 'release'; ttl: number }

/** The numbers stand for what is likely: what is rare in a queue is rare here too. */
export function commandArbitrary(fc: FastCheck): Arbitrary<Command> {
  const pick = fc.nat(999)
  const some = (max: number): Arbitrary<readonly Pick[]> => fc.array(pick, { minLength: 1, maxLength: max })
  const maybe = <T>(arbitrary: Arbitrary<T>, freq: number): Arbitrary<T | undefined> =>
    fc.option(arbitrary, { nil: undefined, freq })
  const often = (percent: number): Arbitrary<boolean> => fc.nat(99).map((n) => n >= 100 - percent)
  /** Most commands go through the first instance, and to the first queue. */
  const via = fc.nat(9).map((n) => (n < 6 ? 0 : 1))
  const q = fc.nat(19).map((n) => (n < 18 ? 0 : 1))
  const time = fc.oneof(fc.integer({ min: 1, max: 300 }), fc.integer({ min: 1, max: 3000 }))

  const parents = fc.oneof(
    { weight: 2, arbitrary: fc.constant(undefined) },
    { weight: 1, arbitrary: some(3) },
  )
  const task: Arbitrary<TaskSpec> = fc.record({
    id: pick,
    kind: pick,
    priority: pick,
    size: fc.nat(30),
    nonce: fc.constantFrom('own', 'own', 'none', 'other'),
    delay: maybe(time, 5),
    runAt: maybe(fc.integer({ min: -500, max: 2000 }), 20),
    after: parents,
    on: fc.constantFrom('success', 'final'),
    hold: often(7),
    group: maybe(pick, 3),
    exempt: often(20),
    expiresIn: maybe(time, 5),
    watcher: maybe(pick, 4),
    bad: fc.nat(39).map((n) => (['id', 'priority', 'parent'] as const)[39 - n]),
  })
  const units = fc.oneof(
    { weight: 3, arbitrary: fc.tuple(fc.tuple(task)) },
    {
      weight: 2,
      arbitrary: fc.array(fc.array(task, { minLength: 1, maxLength: 3 }), { minLength: 1, maxLength: 3 }),
    },
  )
  const end: Arbitrary<EndSpec> = fc.record({
    claim: pick,
    from: fc.constantFrom('held', 'held', 'held', 'all', 'others'),
    skew: fc.nat(19).map((n) => (n === 19 ? 1 : n === 18 ? -1 : 0)),
    outcome: fc.constantFrom(
      'success',
      'success',
      'failed',
      'retry',
      'cancelled',
      'skipped',
      'released',
      'suspended',
      'suspended',
    ),
    in: fc.oneof(fc.constant(0), time),
    after: parents,
    on: fc.constantFrom('success', 'final'),
    until: maybe(time, 1),
    cancelGroup: often(10),
    more: often(50),
  })
  const limit = fc.oneof(fc.constant(100), fc.integer({ min: 1, max: 3 }))
  const want = fc.integer({ min: 0, max: 4 })
  const work = fc.record({
    do: fc.constant('work' as const),
    node: pick,
    want,
    wantBytes: maybe(fc.integer({ min: 1, max: 60 }), 8),
    moreUrgentThan: maybe(fc.nat(3), 10),
    renew: often(30),
    ackTaken: often(70),
    marks: fc.array(pick, { maxLength: 2 }),
    reports: fc.array(pick, { maxLength: 2 }),
    ends: fc.array(end, { maxLength: 3 }),
    reply: fc.constantFrom('heard', 'heard', 'heard', 'heard', 'lost', 'sent twice'),
  })
  const ms = fc.oneof(
    { weight: 6, arbitrary: fc.integer({ min: 1, max: 500 }) },
    { weight: 3, arbitrary: fc.integer({ min: 500, max: 4000 }) },
    { weight: 1, arbitrary: fc.constantFrom(11_000, 30_000, 61_000, 70_000) },
  )
  return fc.oneof(
    {
      weight: 20,
      arbitrary: fc.record({
        do: fc.constant('enqueue' as const),
        via,
        q,
        units,
        maxQueueSize: maybe(fc.integer({ min: 1, max: 40 }), 10),
      }),
    },
    { weight: 3, arbitrary: fc.record({ do: fc.constant('enqueueAgain' as const), via, back: pick }) },
    {
      weight: 5,
      arbitrary: fc.record({
        do: fc.constant('open' as const),
        via,
        q,
        kinds: pick,
        ttl: pick,
        retention: pick,
        maxReclaims: fc.nat(2),
      }),
    },
    { weight: 1, arbitrary: fc.record({ do: fc.constant('openAgain' as const), node: pick }) },
    { weight: 36, arbitrary: work },
    { weight: 4, arbitrary: fc.record({ do: fc.constant('workAgain' as const), back: pick }) },
    {
      weight: 2,
      arbitrary: fc.record({
        do: fc.constant('resume' as const),
        node: pick,
        ids: fc.array(pick, { maxLength: 3 }),
      }),
    },
    { weight: 2, arbitrary: fc.record({ do: fc.constant('end' as const), node: pick, limit }) },
    { weight: 2, arbitrary: fc.record({ do: fc.constant('crash' as const), node: pick }) },
    { weight: 14, arbitrary: fc.record({ do: fc.constant('advance' as const), ms }) },
    { weight: 5, arbitrary: fc.record({ do: fc.constant('reclaim' as const), via, limit }) },
    { weight: 5, arbitrary: fc.record({ do: fc.constant('drain' as const), via, q, limit }) },
    {
      weight: 3,
      arbitrary: fc.record({ do: fc.constant('prune' as const), via, q, retention: pick, limit }),
    },
    {
      weight: 16,
      arbitrary: fc.record({
        do: fc.constant('operate' as const),
        via,
        q,
        operation: fc.constantFrom('cancel', 'retry', 'retry', 'promote', 'reprioritize', 'remove', 'revoke'),
        ids: some(3),
        priority: pick,
        payload: often(30),
      }),
    },
    { weight: 2, arbitrary: fc.record({ do: fc.constant('complete' as const), via, q, id: pick }) },
    { weight: 2, arbitrary: fc.record({ do: fc.constant('pause' as const), via, q, paused: often(40) }) },
    {
      weight: 4,
      arbitrary: fc.record({
        do: fc.constant('setGroup' as const),
        via,
        q,
        group: pick,
        cancelled: often(15),
        paused: maybe(often(50), 5),
      }),
    },
    {
      weight: 4,
      arbitrary: fc.record({
        do: fc.constant('watch' as const),
        via,
        q,
        ids: some(3),
        watcher: pick,
        ttl: fc.constantFrom(500, 5000, 60_000),
      }),
    },
    {
      weight: 6,
      arbitrary: fc.record({ do: fc.constant('look' as const), via, q, limit: fc.constantFrom(2, 100) }),
    },
    {
      weight: 4,
      arbitrary: fc.record({
        do: fc.constant('record' as const),
        via,
        key: pick,
        what: fc.constantFrom('put', 'put', 'delete', 'get'),
        version: fc.constantFrom('any', 'present', 'other', 'none'),
        dueIn: maybe(time, 2),
        expiresIn: maybe(time, 3),
      }),
    },
    {
      weight: 2,
      arbitrary: fc.record({
        do: fc.constant('claimRecords' as const),
        via,
        prefix: pick,
        limit: fc.integer({ min: 1, max: 3 }),
        leaseMs: time,
      }),
    },
    {
      weight: 3,
      arbitrary: fc.record({
        do: fc.constant('lock' as const),
        via,
        key: pick,
        owner: pick,
        what: fc.constantFrom('acquire', 'acquire', 'extend', 'release'),
        ttl: time,
      }),
    },
  )
}
