/**
 * Rules of the protocol that are broken on purpose, each in bounds that suffice to show it. A model that did not find
 * them would prove nothing.
 */

/**
 * @typedef {object} Fault
 * @property {string} name  As in `session.pml`.
 * @property {string} about  What is done wrong.
 * @property {boolean} [gap]  It is what the contract says today; the rule that closes the gap is a proposal.
 * @property {boolean} [short]  Belongs to the short form.
 * @property {boolean} [cycles]  Shows itself as an endless run.
 * @property {boolean} [large]  Takes more than a moment to find.
 * @property {import('./bounds.mjs').Bounds} bounds
 */

/** @type {readonly Fault[]} */
export const faults = [
  // Claims, settlements, notices
  {
    name: 'NOACK',
    about: 'a claim does not look at `ack`, so what a lost reply held is not given again',
    short: true,
    bounds: { losses: 1 },
  },
  {
    name: 'ACKANY',
    about: 'the node takes the token of any reply for acknowledged, not only that of a claim',
    bounds: { losses: 1 },
  },
  {
    name: 'TOKATT',
    about: 'the token is the number of the attempt, not of the claim',
    short: true,
    bounds: { lates: 1, releases: 1 },
  },
  {
    name: 'NOTTOK',
    about: 'a notice takes the task away whatever its token',
    large: true,
    bounds: { fences: 1, lates: 1, revokes: 1 },
  },
  {
    name: 'CLEARSENT',
    about: 'notices are forgotten when they are sent, not when they are acknowledged',
    bounds: { losses: 1, cancels: 1 },
  },
  {
    name: 'GHOST',
    about: 'a dependent is touched although it is not blocked any more',
    bounds: { after: [[], [0]], cancels: 1 },
  },
  // Sessions
  { name: 'NOGONE', about: 'a claim opens its condemned session again', bounds: { pauses: 1 } },
  {
    name: 'NOENTRY',
    about: 'a settlement of a condemned session is accepted without its entry',
    short: true,
    bounds: { pauses: 1 },
  },
  {
    name: 'EARLY',
    about: 'a suspicion gives the entries away while their node still holds them',
    short: true,
    bounds: { suspicion: true, lapses: 1 },
  },
  { name: 'UNDEAD', about: 'a beat revives a condemned session', bounds: { suspicion: true, pauses: 1 } },
  {
    name: 'DEAF',
    about: 'a beat does not clear a suspicion',
    cycles: true,
    bounds: { suspicion: true, lapses: 1 },
  },
  {
    name: 'NOFENCE',
    about: 'a silent node is condemned before it has fenced itself',
    bounds: { suspicion: true, timely: true, fences: 1, lapses: 2 },
  },
  {
    name: 'NORESUME',
    about: 'after a fence the node goes on without `resume`',
    bounds: { suspicion: true, timely: true, fences: 1, lapses: 1 },
  },
  {
    name: 'IDONLY',
    about: '`resume` compares ids and not tokens',
    large: true,
    bounds: { fences: 1, lates: 1, revokes: 1 },
  },
  // Probation
  {
    name: 'NOPROB',
    about: 'what comes back unmarked is not on probation, so a killer is never counted',
    short: true,
    bounds: { marks: true, killers: [0], maxReclaims: 1 },
  },
  {
    name: 'NOSOLO',
    about: 'reclaimed tasks run at once on a node',
    bounds: { marks: true, killers: [1], maxReclaims: 2 },
  },
  {
    name: 'NOAPART',
    about: 'a reclaimed task runs beside one on probation',
    gap: true,
    short: true,
    bounds: { marks: true, killers: [1], maxReclaims: 1, apart: true },
  },
  // Groups
  {
    name: 'TWICE',
    about: 'a settlement that comes twice counts a member of a group twice',
    short: true,
    bounds: { group: [0, 1], losses: 1 },
  },
  {
    name: 'GCLAIM',
    about: 'a claim does not look at the flag before the sweep has come by',
    bounds: { group: [0, 1], groupCancels: 1 },
  },
  {
    name: 'GSTALE',
    about: 'a stale failure cancels the group',
    bounds: { group: [0, 1], groupFailures: 1, revokes: 1 },
  },
  {
    name: 'SPIN',
    about: 'members of a paused group stay in ready, so nodes ask again and again',
    short: true,
    cycles: true,
    bounds: { group: [0, 1], groupPauses: 1 },
  },
  // Held and suspended tasks
  { name: 'HELDRUN', about: 'a held task is ready when it waits for no other', bounds: { held: [1] } },
  {
    name: 'SUSLATE',
    about: 'a suspension waits for a task that is final already',
    short: true,
    bounds: { suspendAfter: [[1]], suspensions: 1 },
  },
  {
    name: 'SUSEDGE',
    about: 'a suspension that its time ends keeps its edges',
    bounds: { tasks: 3, suspendAfter: [[1, 2]], suspensions: 2, timeouts: 1 },
  },
  {
    name: 'NOLEVEL',
    about: 'an attempt may be suspended after a task that waits for it',
    gap: true,
    short: true,
    bounds: { levels: [0, 0], after: [[], [0]], suspendAfter: [[1]], suspensions: 1 },
  },
  {
    name: 'SAMELEVEL',
    about: 'an attempt may be suspended after a task of its own level',
    bounds: { levels: [0, 0], suspendAfter: [[1], [0]], suspensions: 2 },
  },
  {
    name: 'LOWEDGE',
    about: 'a new task may wait for one of a lower level',
    bounds: { levels: [0, 1], after: [[], [0]], suspendAfter: [[1]], suspensions: 1 },
  },
]
