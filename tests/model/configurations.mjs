/**
 * What is searched, exhaustively each. A configuration combines features whose rules touch each other; all of them in
 * one would have too many states. `docs/reference/model.md` tells what is never combined.
 */

/**
 * @typedef {object} Configuration
 * @property {string} name
 * @property {boolean} [short]  Belongs to the short form.
 * @property {boolean} [cycles]  Searched for endless runs, beside the invariants.
 * @property {import('./bounds.mjs').Bounds} bounds
 */

/** Two tasks, one after the other. */
const CHAIN = { after: [[], [0]] }
/** Three tasks, of which the last waits for the other two. */
const JOIN = { tasks: 3, after: [[], [], [0, 1]] }
/** Three tasks in a row. */
const ROW = { tasks: 3, after: [[], [0], [1]] }
/** A task that kills its process, and its neighbours. */
const KILLER = { marks: true, killers: [1] }
/** Three tasks, the second after the first, of which attempts may be suspended after any. */
const CIRCLES = {
  tasks: 3,
  after: [[], [0]],
  suspendAfter: [
    [0, 1, 2],
    [0, 1, 2],
    [0, 1, 2],
  ],
}

/** @type {readonly Configuration[]} */
export const configurations = [
  // The short form: a little of everything
  { name: 'network', short: true, bounds: { ...CHAIN, pauses: 1, losses: 1 } },
  { name: 'suspicion', short: true, bounds: { ...CHAIN, suspicion: true, pauses: 1, losses: 1 } },
  { name: 'probation', short: true, bounds: { ...KILLER, maxReclaims: 2 } },
  { name: 'group', short: true, bounds: { group: [0, 1], groupFailures: 1, groupPauses: 1, losses: 1 } },
  {
    name: 'waiting',
    short: true,
    bounds: { held: [1], suspendAfter: [[1]], suspensions: 2, timeouts: 1, cancels: 1, losses: 1 },
  },
  { name: 'endless', short: true, cycles: true, bounds: { ...CHAIN, losses: 1, revokes: 1 } },

  // Claims, settlements, notices, under everything that a network and a process can do
  { name: 'join-crashes', bounds: { ...JOIN, crashes: 2, losses: 1, lates: 1 } },
  { name: 'join-releases', bounds: { ...JOIN, retries: 1, releases: 1, losses: 1, lates: 1 } },
  { name: 'join-operations', bounds: { ...JOIN, cancels: 1, revokes: 1, losses: 1, lates: 1 } },
  { name: 'join-pause', bounds: { ...JOIN, pauses: 1, losses: 1, lates: 1 } },
  { name: 'chain-lates', bounds: { ...CHAIN, retries: 1, pauses: 1, losses: 1, lates: 2 } },
  { name: 'lapse-cancel', bounds: { lapses: 1, cancels: 1, losses: 1, lates: 1 } },
  { name: 'graceful-end', bounds: { ends: 1, releases: 1, losses: 1, lates: 1 } },
  {
    name: 'row-failure-revival',
    bounds: { ...ROW, spread: true, failures: 1, revivals: 1, crashes: 1, losses: 1, lates: 1 },
  },

  // Suspicion in two steps, fences, resume
  { name: 'suspicion-join', bounds: { ...JOIN, suspicion: true, pauses: 1, losses: 1, lates: 1 } },
  { name: 'suspicion-lapses', bounds: { suspicion: true, lapses: 3, losses: 1, lates: 1 } },
  { name: 'suspicion-pause-lapse', bounds: { suspicion: true, pauses: 1, lapses: 2, losses: 1 } },
  { name: 'fence', bounds: { suspicion: true, timely: true, fences: 2, lapses: 2, losses: 1 } },
  {
    name: 'fence-late',
    bounds: { suspicion: true, timely: true, fences: 1, lapses: 2, losses: 1, lates: 1 },
  },
  { name: 'resume', bounds: { fences: 1, lates: 1, revokes: 1 } },

  // Marks, probation, poison
  { name: 'probation-crashes', bounds: { marks: true, maxReclaims: 1, crashes: 2, losses: 1 } },
  {
    name: 'probation-suspicion',
    bounds: { marks: true, maxReclaims: 1, suspicion: true, crashes: 2, releases: 1 },
  },
  { name: 'probation-revoke', bounds: { marks: true, maxReclaims: 0, crashes: 1, revokes: 1, losses: 1 } },
  { name: 'killer', bounds: { ...KILLER, maxReclaims: 2, losses: 2 } },
  { name: 'killer-apart', bounds: { ...KILLER, maxReclaims: 1, apart: true, losses: 2 } },
  { name: 'killer-apart-three', bounds: { ...KILLER, tasks: 3, maxReclaims: 1, apart: true } },

  // Groups
  {
    name: 'fail-fast',
    bounds: { ...JOIN, onFinal: [2], group: [0, 1], groupFailures: 1, crashes: 1, losses: 1, lates: 1 },
  },
  {
    name: 'group-join',
    bounds: { ...JOIN, onFinal: [2], group: [0, 1], groupCancels: 1, groupPauses: 2, retries: 1, losses: 1 },
  },
  {
    name: 'group-revival',
    bounds: { tasks: 3, group: [0, 1, 2], groupCancels: 1, groupPauses: 1, revivals: 1, losses: 1 },
  },

  // Held and suspended tasks
  {
    name: 'held-group',
    bounds: {
      tasks: 3,
      after: [[], [0]],
      held: [0],
      group: [0, 1],
      groupCancels: 1,
      cancels: 1,
      revivals: 1,
      losses: 1,
      lates: 1,
    },
  },
  {
    name: 'held-suspended',
    bounds: { tasks: 3, held: [2], suspendAfter: [[2], [2]], suspensions: 2, crashes: 1, losses: 1 },
  },
  {
    name: 'held-timeout',
    bounds: {
      held: [1],
      suspendAfter: [[1]],
      suspensions: 2,
      timeouts: 1,
      cancels: 1,
      crashes: 1,
      losses: 1,
      lates: 1,
    },
  },
  {
    name: 'suspended-spread',
    bounds: {
      tasks: 3,
      spread: true,
      suspendAfter: [[1, 2], [2]],
      suspensions: 2,
      timeouts: 1,
      cancels: 1,
      losses: 1,
    },
  },
  {
    name: 'levels',
    bounds: { ...CIRCLES, levels: [1, 0, 2], suspensions: 3, timeouts: 1, cancels: 1, losses: 1 },
  },
  { name: 'levels-crash', bounds: { ...CIRCLES, levels: [0, 0, 1], suspensions: 3, crashes: 1, losses: 1 } },

  // Features of one kind with those of another
  {
    name: 'suspicion-group',
    bounds: { suspicion: true, group: [0, 1], groupFailures: 1, pauses: 1, losses: 1, lates: 1 },
  },
  {
    name: 'suspicion-waiting',
    bounds: {
      suspicion: true,
      held: [1],
      suspendAfter: [[1]],
      suspensions: 2,
      timeouts: 1,
      pauses: 1,
      losses: 1,
      lates: 1,
    },
  },
  {
    name: 'probation-group',
    bounds: {
      marks: true,
      maxReclaims: 1,
      suspicion: true,
      group: [0, 1],
      groupFailures: 1,
      crashes: 1,
      losses: 1,
    },
  },
  {
    name: 'spread-group',
    bounds: {
      tasks: 3,
      after: [[], [0], [0]],
      spread: true,
      group: [1, 2],
      groupCancels: 1,
      failures: 1,
      losses: 1,
      lates: 1,
    },
  },
  { name: 'levels-late', bounds: { ...CIRCLES, levels: [0, 0, 1], suspensions: 2, losses: 1, lates: 1 } },
  { name: 'killer-late', bounds: { ...KILLER, maxReclaims: 1, apart: true, lates: 1 } },

  // Runs do end
  {
    name: 'endless-chain',
    cycles: true,
    bounds: { ...CHAIN, retries: 1, pauses: 1, losses: 1, lates: 1 },
  },
  { name: 'endless-join', cycles: true, bounds: { ...JOIN, crashes: 1, revokes: 1, losses: 1 } },
  { name: 'endless-suspicion', cycles: true, bounds: { suspicion: true, pauses: 1, lapses: 2, losses: 1 } },
  {
    name: 'endless-fence',
    cycles: true,
    bounds: { suspicion: true, timely: true, fences: 2, lapses: 2 },
  },
  {
    name: 'endless-probation',
    cycles: true,
    bounds: { marks: true, maxReclaims: 1, crashes: 2, losses: 1 },
  },
  {
    name: 'endless-group',
    cycles: true,
    bounds: { group: [0, 1], groupCancels: 1, groupPauses: 2, revivals: 1, losses: 1 },
  },
  {
    name: 'endless-levels',
    cycles: true,
    bounds: { ...CIRCLES, levels: [0, 0, 1], suspensions: 3, timeouts: 1, cancels: 1 },
  },
]
