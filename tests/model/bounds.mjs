/** The bounds of a search in words, and the macros of `session.pml` that they become. */

/**
 * Sets of tasks are lists of their numbers, from 0. What is not given is none, or 0.
 *
 * @typedef {object} Bounds
 * @property {number} [tasks]  2, the default, or 3.
 * @property {number[][]} [after]  For each task, those that it waits for.
 * @property {number[]} [onFinal]  Tasks for which any end of what they wait for will do.
 * @property {number[]} [held]
 * @property {number[]} [group]  The members of the one group that obey its flags.
 * @property {number[][]} [suspendAfter]  For each task, those that an attempt may be suspended after.
 * @property {number[]} [levels]  Turns the rule of levels on, with the level of each task.
 *
 * @property {boolean} [marks]  Starts are marked, and entries that come back are counted or on probation.
 * @property {number} [maxReclaims]
 * @property {number[]} [killers]  Tasks whose handler kills its process, always.
 * @property {boolean} [apart]  Turns the rule on that probation and what was reclaimed do not run at once.
 * @property {boolean} [suspicion]  Silent sessions are suspect before they are condemned, and beats are told apart.
 * @property {boolean} [timely]  A silent node has fenced itself before it is condemned.
 * @property {boolean} [spread]  Dependents are told one by one, in steps of their own.
 *
 * @property {number} [losses]  Requests or replies that are lost.
 * @property {number} [lates]  Requests that are carried out twice, or after their node gave them up.
 * @property {number} [crashes]
 * @property {number} [pauses]  Processes that stand still and go on later.
 * @property {number} [lapses]  A running node that seems silent: two for a condemnation with suspicion, one without.
 * @property {number} [fences]  Nodes that had no answer for too long and fence themselves.
 * @property {number} [ends]  Graceful ends of sessions.
 * @property {number} [retries]  Attempts that end to be retried.
 * @property {number} [releases]
 * @property {number} [failures]
 * @property {number} [groupFailures]  Attempts that fail and cancel their group.
 * @property {number} [suspensions]
 * @property {number} [timeouts]  Suspensions whose time ends them.
 * @property {number} [cancels]
 * @property {number} [revokes]
 * @property {number} [revivals]  The operation retry.
 * @property {number} [groupCancels]
 * @property {number} [groupPauses]
 */

/**
 * @param {Bounds} bounds
 * @param {string} fault  `NONE`, or the one that is put in.
 * @returns {Record<string, number | string>}
 */
export function macrosOf(bounds, fault) {
  const { tasks = 2, maxReclaims = 3, killers = [], suspicion = false, marks = false, lapses = 0 } = bounds
  const { crashes = 0, pauses = 0, ends = 0, fences = 0 } = bounds
  if (fences > 0 && marks) throw new RangeError('fences and marks: expected only one of both')
  const condemned = suspicion ? Math.floor(lapses / 2) : lapses
  const killed = killers.length > 0 ? maxReclaims + 2 : 0
  const all = Array.from({ length: tasks }, (_, task) => task)
  return {
    FAULT: fault,
    TASKS: tasks,
    // As many as could ever be opened, so that no run ends for want of one.
    SESSIONS: 2 + crashes + pauses + ends + condemned + killed,
    AFTER: packed(bounds.after?.map(setOf)),
    ON_FINAL: setOf(bounds.onFinal),
    HELD: setOf(bounds.held),
    GROUP: setOf(bounds.group),
    SUSPEND_AFTER: packed(bounds.suspendAfter?.map(setOf)),
    LEVELS: Number(bounds.levels !== undefined),
    LEVEL: packed(bounds.levels),
    MARKS: Number(marks),
    MAX_RECLAIMS: maxReclaims,
    KILLER: setOf(killers),
    INNOCENT: killers.length > 0 ? setOf(all.filter((task) => !killers.includes(task))) : 0,
    APART: Number(bounds.apart ?? false),
    SUSPICION: Number(suspicion),
    TIMELY: Number(bounds.timely ?? false),
    SPREAD: Number(bounds.spread ?? false),
    LOSSES: bounds.losses ?? 0,
    LATES: bounds.lates ?? 0,
    CRASHES: crashes,
    PAUSES: pauses,
    LAPSES: lapses,
    FENCES: fences,
    ENDS: ends,
    RETRIES: bounds.retries ?? 0,
    RELEASES: bounds.releases ?? 0,
    FAILURES: bounds.failures ?? 0,
    GROUP_FAILURES: bounds.groupFailures ?? 0,
    SUSPENSIONS: bounds.suspensions ?? 0,
    TIMEOUTS: bounds.timeouts ?? 0,
    CANCELS: bounds.cancels ?? 0,
    REVOKES: bounds.revokes ?? 0,
    REVIVALS: bounds.revivals ?? 0,
    GROUP_CANCELS: bounds.groupCancels ?? 0,
    GROUP_PAUSES: bounds.groupPauses ?? 0,
  }
}

/** @param {number[]} [tasks] */
const setOf = (tasks = []) => tasks.reduce((set, task) => set | (1 << task), 0)

/** Eight bits for each task. */
const packed = (/** @type {number[]} */ numbers = []) =>
  numbers.reduce((sum, number, task) => sum | (number << (8 * task)), 0)
