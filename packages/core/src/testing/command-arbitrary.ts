/** Which commands a random run is made of, and how often. */
import type { Arbitrary } from 'fast-check'
import type { Command, EndSpec, Choice, TaskSpec } from './random-commands.js'

type FastCheck = typeof import('fast-check')

/** The numbers stand for what is likely: what is rare in a queue is rare here too. */
export function commandArbitrary(fc: FastCheck): Arbitrary<Command> {
  const pick = fc.nat(999)
  const some = (max: number): Arbitrary<readonly Choice[]> => fc.array(pick, { minLength: 1, maxLength: max })
  /** Given in so many of 100 cases, and left out when a run is made smaller. */
  const maybe = <T>(arbitrary: Arbitrary<T>, percent: number): Arbitrary<T | undefined> =>
    fc.oneof(
      { withCrossShrink: true },
      { weight: 100 - percent, arbitrary: fc.constant(undefined) },
      { weight: percent, arbitrary },
    )
  const often = (percent: number): Arbitrary<boolean> => fc.nat(99).map((n) => n >= 100 - percent)
  /** Most commands go through the first instance, and to the first queue. */
  const via = fc.nat(9).map((n) => (n < 6 ? 0 : 1))
  const q = fc.nat(19).map((n) => (n < 18 ? 0 : 1))
  const time = fc.oneof(fc.integer({ min: 1, max: 300 }), fc.integer({ min: 1, max: 3000 }))

  const parents = maybe(some(3), 25)
  const task: Arbitrary<TaskSpec> = fc.record({
    id: pick,
    kind: pick,
    priority: pick,
    size: fc.nat(30),
    nonce: fc.constantFrom('own', 'own', 'none', 'other'),
    delay: maybe(time, 20),
    runAt: maybe(fc.integer({ min: -500, max: 2000 }), 5),
    after: parents,
    on: fc.constantFrom('success', 'final'),
    hold: often(5),
    group: maybe(pick, 25),
    exempt: often(20),
    expiresIn: maybe(time, 12),
    debounce: maybe(fc.record({ key: pick, maxWait: maybe(time, 50) }), 15),
    watcher: maybe(pick, 20),
    bad: maybe(fc.constantFrom('id', 'priority', 'parent', 'key'), 4),
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
    after: maybe(some(3), 50),
    on: fc.constantFrom('success', 'final'),
    until: maybe(time, 50),
    cancelGroup: often(10),
    more: often(50),
  })
  const limit = fc.oneof(fc.constant(100), fc.integer({ min: 1, max: 3 }))
  const want = fc.integer({ min: 0, max: 5 })
  const work = fc.record({
    do: fc.constant('work' as const),
    node: pick,
    want,
    wantBytes: maybe(fc.integer({ min: 1, max: 60 }), 12),
    moreUrgentThan: maybe(fc.nat(3), 10),
    renew: often(25),
    ackTaken: often(70),
    marks: fc.array(pick, { maxLength: 2 }),
    reports: fc.array(pick, { maxLength: 2 }),
    ends: fc.array(end, { maxLength: 2 }),
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
        maxQueueSize: maybe(fc.integer({ min: 1, max: 40 }), 8),
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
        maxReclaims: fc.constantFrom(2, 1, 0, 0),
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
    { weight: 3, arbitrary: fc.record({ do: fc.constant('lose' as const), node: pick, via, limit }) },
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
    { weight: 2, arbitrary: fc.record({ do: fc.constant('pause' as const), via, q, paused: often(25) }) },
    {
      weight: 4,
      arbitrary: fc.record({
        do: fc.constant('setGroup' as const),
        via,
        q,
        group: pick,
        cancelled: often(15),
        paused: maybe(often(50), 80),
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
      weight: 6,
      arbitrary: fc.record({
        do: fc.constant('record' as const),
        via,
        key: pick,
        what: fc.constantFrom('put', 'put', 'anew', 'delete', 'get'),
        version: fc.constantFrom('any', 'present', 'other', 'none'),
        dueIn: maybe(fc.oneof(fc.constant(0), time), 60),
        expiresIn: maybe(time, 30),
      }),
    },
    {
      weight: 4,
      arbitrary: fc.record({
        do: fc.constant('claimRecords' as const),
        via,
        prefix: pick,
        limit: fc.integer({ min: 1, max: 3 }),
        leaseMs: time,
        maxBytes: maybe(fc.integer({ min: 1, max: 30 }), 40),
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
