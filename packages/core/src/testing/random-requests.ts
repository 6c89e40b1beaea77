/** What the numbers of random commands stand for, and the requests that are made of them. */
import type { Debounce, Dependencies, Mark, NewTask, Report, Retention, Settlement } from '../storage.js'
import type { ModelQueue } from './model-queue.js'
import { isEnded } from './model-task.js'
import type { EndSpec, TaskSpec } from './random-commands.js'
import { WATCHERS, type Node, type RandomWorld } from './random-world.js'
import { DAY, ending, HOUR, KEEP, SECOND } from './sketch.js'

const KINDS = ['job', 'job', 'mail', 'rare'] as const
/** The kinds that sessions serve. */
export const SERVED: readonly (readonly string[])[] = [
  ['job', 'mail', 'rare'],
  ['job'],
  ['mail', 'job'],
  ['rare'],
]
export const PRIORITIES: readonly number[] = [2, 2, 0, 1, 1000]
export const TTLS: readonly number[] = [100 * DAY, 1000, 1000, 5000]
export const RETENTIONS: readonly Retention[] = [
  KEEP,
  KEEP,
  { success: { age: 20 * SECOND, count: 4 }, failed: { age: 60 * SECOND, count: 3 } },
  { success: { age: 0, count: 0 }, failed: { age: HOUR, count: 2 } },
]
export const RECORDS = ['a', 'b', 'ab', 'b%', 'c_d'] as const
export const PREFIXES = ['', 'a', 'b', 'b%'] as const
export const OWNERS = ['me', 'you'] as const
export const TENANT = 'shop'

/** The element of that number, counted round and round. */
export function at<T>(list: readonly T[], pick: number): T | undefined {
  return list[pick % list.length]
}

/** An id: chosen, composed or generated. */
function anyId(pick: number): string {
  const n = pick % 110
  if (n < 90) return `t${n}`
  return n < 100 ? `run~${n}` : `generated0${n}~`
}

/** Most ids that are named are known ones. */
export function idOf(queue: ModelQueue, pick: number): string {
  const known = pick % 30 === 0 ? undefined : at([...queue.tasks.keys()], Math.floor(pick / 10))
  return known ?? anyId(pick)
}

/** Half of the parents are unfinished, so that there are chains. */
function parentOf(queue: ModelQueue, pick: number): string {
  const unfinished = [...queue.tasks.values()].filter((task) => !isEnded(task))
  return (pick % 2 === 0 ? undefined : at(unfinished, Math.floor(pick / 2))?.id) ?? idOf(queue, pick)
}

/** Flags of an empty group may be forgotten after a day: each day has its own groups. */
export function groupOf(world: RandomWorld, pick: number): string {
  return `g${pick % 3}.${world.day}`
}

export function taskOf(world: RandomWorld, queue: ModelQueue, spec: TaskSpec): NewTask {
  const { size, nonce, delay, runAt, hold, expiresIn, bad } = spec
  // What is bad has an id that nothing else has: a known one is a duplicate before it is bad.
  const id = bad === 'id' ? 'not an id' : bad === undefined || bad === 'parent' ? anyId(spec.id) : 'badly'
  const text = `${id}${'.'.repeat(size)}`
  const after: Dependencies | undefined = spec.after && {
    ids: bad === 'parent' ? ['nobody'] : spec.after.map((pick) => parentOf(queue, pick)),
    on: spec.on ?? 'success',
  }
  const debounce = debounceOf(spec)
  const rest: Partial<NewTask> = {
    ...(runAt !== undefined && { runAt: world.now + runAt }),
    ...(after && { after }),
    ...(hold === true && { hold }),
    ...(spec.group !== undefined && { group: { id: groupOf(world, spec.group), exempt: spec.exempt } }),
    ...(expiresIn !== undefined && { expiresIn }),
  }
  return {
    id,
    kind: at(KINDS, spec.kind) ?? '',
    payload: size % 5 === 0 ? Buffer.from(text) : text,
    codec: 'json',
    priority: bad === 'priority' ? 1001 : (at(PRIORITIES, spec.priority) ?? 0),
    ...(size % 3 === 0 && { options: `options of ${id}` }),
    ...(nonce !== 'none' && { nonce: nonce === 'own' ? `of ${id}` : `other ${size}` }),
    ...(delay !== undefined && { delay }),
    ...(debounce ? { debounce } : rest),
    ...(spec.watcher !== undefined && { watcher: at(WATCHERS, spec.watcher) }),
  }
}

function debounceOf({ bad, debounce }: TaskSpec): Debounce | undefined {
  if (bad === 'key') return { key: 'not a key' }
  return debounce && { key: `key${debounce.key % 2}`, maxWait: debounce.maxWait }
}

/** @param waits what earlier suspensions of the same request wait for, to which this one is added */
export function settlementOf(
  world: RandomWorld,
  node: Node,
  held: readonly Mark[],
  spec: EndSpec,
  waits: Map<string, string[]>,
): Settlement | undefined {
  const { claims, queue } = node
  const others = world.everyNode.flatMap((other) => (other.queue === queue ? other.claims : []))
  const from = { held, all: claims, others }[spec.from]
  const claim = at(from, spec.claim) ?? at(claims, spec.claim)
  if (claim === undefined) return undefined
  const { outcome, until, on, more, cancelGroup } = spec
  const waitsForOwn = (id: string): boolean =>
    id === claim.id || [...(queue.tasks.get(id)?.open ?? []), ...(waits.get(id) ?? [])].some(waitsForOwn)
  const ids = (spec.after ?? [])
    .map((pick) => (pick % 20 === 0 ? 'nobody' : idOf(queue, pick)))
    // Nobody but the caller can know that tasks wait for each other, and they would for ever.
    .filter((id) => !waitsForOwn(id))
  if (outcome === 'suspended') waits.set(claim.id, [...(waits.get(claim.id) ?? []), ...ids])
  const duration = more ? 7 : 3
  const details = {
    success: { result: more ? 'result' : Buffer.from('bytes'), duration },
    failed: { fingerprint: more ? 'broken' : 'torn', duration, ...(cancelGroup && { cancelGroup }) },
    retry: { in: spec.in, duration },
    cancelled: more ? { message: 'a message' } : {},
    skipped: more ? { message: 'a message' } : {},
    released: {},
    suspended: {
      ...(ids.length > 0 ? { after: { ids, on } } : { after: undefined }),
      ...(until !== undefined && { until }),
      ...(more && { checkpoint: 'of a suspension' }),
    },
  }[outcome]
  return ending({ id: claim.id, token: claim.token + spec.skew }, outcome, details)
}

export const reportOf = (mark: Mark, index: number): Report => ({
  ...mark,
  logs: [`line ${index}`],
  ...(mark.token % 2 === 0 && { progress: `progress ${index}` }),
  ...(mark.token % 3 === 0 && { checkpoint: Buffer.from(`checkpoint ${index}`) }),
})
