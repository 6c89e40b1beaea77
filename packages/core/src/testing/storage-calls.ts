/** The calls of a storage by their names, with what they are given and answer, and how a batch is cut in half. */
import type { Storage, WorkRequest } from '../storage.js'

export type Faces = Pick<Storage, 'queue' | 'session' | 'upkeep' | 'records' | 'locks' | 'notices'>
type Method = (...args: never[]) => Promise<unknown>

/** `queue.enqueue`, `session.work` …: every call that a storage answers with a promise. */
export type StorageCall = {
  [Face in keyof Faces]: {
    [Name in keyof Faces[Face]]-?: Faces[Face][Name] extends Method ? `${Face}.${Name & string}` : never
  }[keyof Faces[Face]]
}[keyof Faces]

type MethodOf<Call extends StorageCall> = Call extends `${infer Face extends keyof Faces}.${infer Name}`
  ? Name extends keyof Faces[Face]
    ? Extract<Faces[Face][Name], Method>
    : never
  : never

/** What the call is given. */
export type ArgumentsOf<Call extends StorageCall> = Parameters<MethodOf<Call>>
/** What the call answers. */
export type ReplyOf<Call extends StorageCall> = Awaited<ReturnType<MethodOf<Call>>>

/** The methods of each face. */
export const METHODS: { readonly [Face in keyof Faces]: readonly (keyof Faces[Face] & string)[] } = {
  queue: [
    'enqueue',
    'get',
    'watch',
    'list',
    'counts',
    'history',
    'errors',
    'cancel',
    'retry',
    'promote',
    'reprioritize',
    'remove',
    'complete',
    'pause',
    'setGroup',
  ],
  session: ['open', 'work', 'resume', 'end'],
  upkeep: ['reclaim', 'drain', 'prune', 'revoke', 'reconcile'],
  records: ['get', 'put', 'putAll', 'delete', 'list', 'claimDue'],
  locks: ['acquire', 'extend', 'release'],
  notices: ['publish', 'subscribe'],
}

/** The first half of a batch, or the only one of it. */
const firstHalf = <T>(batch: readonly T[]): readonly T[] => batch.slice(0, Math.ceil(batch.length / 2))

const halveBatch = ([ref, batch, ...rest]: unknown[]): unknown[] => [
  ref,
  firstHalf(batch as unknown[]),
  ...rest,
]
const halveLimit = (args: unknown[]): unknown[] => [
  ...args.slice(0, -1),
  Math.ceil((args.at(-1) as number) / 2),
]

function halveWork([request]: unknown[]): unknown[] {
  const whole = request as WorkRequest
  const half: WorkRequest = {
    ...whole,
    marks: firstHalf(whole.marks),
    reports: firstHalf(whole.reports),
    settlements: firstHalf(whole.settlements),
    renew: false,
    want: 0,
  }
  return [half]
}

/** What is left of a call that is cut in the middle. What is not here has no middle. */
export const HALVES: Readonly<Partial<Record<StorageCall, (args: unknown[]) => unknown[]>>> = {
  'queue.enqueue': halveBatch,
  'queue.get': halveBatch,
  'queue.watch': halveBatch,
  'queue.cancel': halveBatch,
  'queue.retry': halveBatch,
  'queue.promote': halveBatch,
  'queue.reprioritize': halveBatch,
  'queue.remove': halveBatch,
  'records.putAll': halveBatch,
  'session.work': halveWork,
  'session.end': halveLimit,
  'upkeep.reclaim': halveLimit,
  'upkeep.drain': halveLimit,
  'upkeep.prune': halveLimit,
  'upkeep.reconcile': halveLimit,
  'upkeep.revoke': halveBatch,
}
