/**
 * The options of a pool and of `submit`: their defaults, and one check for each, so that every bad value is
 * refused by name before anything happens.
 */
import { hostname } from 'node:os'
import {
  checkBoolean,
  checkInstant,
  checkInteger,
  checkKeys,
  checkMethods,
  checkName,
  checkObject,
  checkPriority,
  checkTags,
  checkText,
  oneOf,
} from './checks.js'
import { systemClock, type Clock } from './clock.js'
import { jsonCodec, type Codec } from './codec.js'
import { parseDuration, type Duration } from './duration.js'
import { optionError } from './errors.js'
import { resolveLoadLimit, type LoadLimitOptions, type LoadLimits } from './load-limit.js'
import { resolvePrefetch, type PrefetchOptions, type PrefetchPolicy } from './prefetch.js'
import { resolveRetry, type RetryPolicy, type RetrySetting } from './retry-policy.js'
import type { Debounce, Dependencies, Retention, Storage } from './storage.js'
import { checkTaskId } from './task.js'
import { resolveThreads, type ThreadOptions, type ThreadPolicy } from './thread-options.js'

/** A logger in pino's shape. */
export interface Logger {
  debug(fields: object, message: string): void
  info(fields: object, message: string): void
  warn(fields: object, message: string): void
  error(fields: object, message: string): void
}

export interface PoolOptions {
  /** `'memory:'`, `'sqlite:./tasks.db'`, or a storage that you opened yourself. Default: `'memory:'`. */
  storage?: string | Storage | undefined
  /** The queue's name: 1 to 64 characters of `A-Z a-z 0-9 . _ : -`. Default: `'default'`. */
  queue?: string | undefined
  /** Tasks that run at the same time in this process, 0 to 100 000. 0: submits and waits only. Default: 10. */
  concurrency?: number | undefined
  /** How many tasks to claim ahead of free slots. Default: `'auto'`, about 20 ms of work. See {@link PrefetchOptions}. */
  prefetch?: PrefetchOptions | undefined
  /** Beyond it this node claims no more, and gives back what it has not started, until it has recovered. Default: none. */
  loadLimit?: LoadLimitOptions | undefined
  /** The threads of handlers that are files. See {@link ThreadOptions}. */
  threads?: ThreadOptions | undefined
  /** Default: 3 retries, exponential from 1 s to at most 5 min, full jitter. */
  retry?: RetrySetting | undefined
  /** The longest time for one attempt. Default: none. */
  timeout?: Duration | undefined
  /** A node that is silent this long loses its tasks. At least 1 s. Default: `'25s'`. */
  sessionTtl?: Duration | undefined
  /** The longest that a call to the storage may take. At least 100 ms. Default: `'10s'`. */
  callTimeout?: Duration | undefined
  /** Tasks that may wait (pending, scheduled, blocked). Default: unlimited. */
  maxQueueSize?: number | undefined
  /** What `submit` does when the queue is full: reject `QUEUE_FULL`, or wait for room. Default: `'reject'`. */
  overflow?: 'reject' | 'wait' | undefined
  /** The largest encoded payload or result, in bytes. Default: 1 MiB. */
  maxPayload?: number | undefined
  /** How often a task may be taken back from a lost node before it fails with `POISON`. Default: 3. */
  maxReclaims?: number | undefined
  /** How long final tasks can be read. Default: success 7 d and 100 000, failed 30 d and 100 000. */
  retention?:
    { success?: { age?: Duration; count?: number }; failed?: { age?: Duration; count?: number } } | undefined
  /** Whether `submit` and `run` begin to consume, or only `start()` does. Default: true. */
  autoStart?: boolean | undefined
  /** The name of this node among others. Default: host name and process id. */
  node?: string | undefined
  /** How values become bytes. Default: strict JSON. */
  codec?: Codec | undefined
  /** Default: silent. */
  logger?: Logger | undefined
  /** Where time comes from; for tests. The storage has its own. */
  clock?: Clock | undefined
}

/** The options with every default filled in; times in ms. */
export interface ResolvedOptions {
  readonly storage: string | Storage
  readonly tenant: string
  readonly queue: string
  readonly concurrency: number
  readonly prefetch: PrefetchPolicy
  readonly loadLimit: LoadLimits | undefined
  readonly threads: ThreadPolicy
  readonly retry: RetryPolicy
  readonly timeout: number | undefined
  readonly sessionTtl: number
  readonly callTimeout: number
  readonly maxQueueSize: number | undefined
  readonly overflow: 'reject' | 'wait'
  readonly maxPayload: number
  readonly maxReclaims: number
  readonly retention: Retention
  readonly autoStart: boolean
  readonly node: string
  readonly codec: Codec
  readonly logger: Logger
  readonly clock: Clock
}

export interface SubmitOptions {
  /** The same id twice is one task. Default: generated. */
  id?: string | undefined
  /** 0 to 1 000, smaller first. Default: the definition's, else 2. */
  priority?: number | undefined
  /** Not before this long from now (from the release, with `after`). */
  delay?: Duration | undefined
  /** Not before this instant; one that has passed means now. */
  runAt?: Date | number | undefined
  /** Ids of the same queue that must succeed first; or that must end, with `on: 'final'`. */
  after?: string | readonly string[] | { ids: readonly string[]; on?: 'success' | 'final' } | undefined
  /** Blocked until `pool.complete(id, value)`, which ends it. */
  hold?: boolean | undefined
  /** The group to which it belongs. */
  group?: string | undefined
  /** Ends `cancelled` with `TASK_EXPIRED` if it has not started by then. */
  expiresIn?: Duration | undefined
  /** Of several submits with one key that follow each other, one task runs, with the data of the last. */
  debounce?: DebounceOptions | undefined
  retry?: RetrySetting | undefined
  timeout?: Duration | undefined
  tags?: readonly string[] | undefined
}

export interface DebounceOptions {
  /** What belongs together: 1 to 128 characters as in an `id`. Each definition has keys of its own. Example: `'doc-1'`. */
  key: string
  /** How long there must be no submit before the task runs. 0: it is put off no more than other tasks do. Example: `'5s'`. */
  wait: Duration
  /** The longest time from the first submit to the end of the waiting. At least `wait`. Default: none. Example: `'1m'`. */
  maxWait?: Duration | undefined
}

/** The options of a task with its times in ms. */
export interface ResolvedSubmit {
  readonly id: string | undefined
  readonly priority: number | undefined
  readonly delay: number | undefined
  readonly runAt: number | undefined
  readonly after: Dependencies | undefined
  readonly hold: boolean
  readonly group: { readonly id: string } | undefined
  readonly expiresIn: number | undefined
  readonly debounce: Debounce | undefined
  readonly retry: RetryPolicy | undefined
  readonly timeout: number | undefined
  readonly tags: readonly string[] | undefined
}

const silent = (): void => {}
const STORAGE_EXPECTED = "a URL such as 'sqlite:./tasks.db', or a storage"
const SILENT: Logger = { debug: silent, info: silent, warn: silent, error: silent }

const MIB = 1024 * 1024

/** The keys that a pool takes beside its handlers. */
const POOL_KEYS = [
  ...[
    'storage',
    'queue',
    'concurrency',
    'prefetch',
    'threads',
    'retry',
    'timeout',
    'sessionTtl',
    'callTimeout',
  ],
  ...['maxQueueSize', 'overflow', 'maxPayload', 'maxReclaims', 'retention', 'autoStart', 'node', 'codec'],
  ...['logger', 'clock', 'executor', 'tasks', 'loadLimit'],
]

const SUBMIT_KEYS = [
  ...['id', 'priority', 'delay', 'runAt', 'after', 'hold', 'group', 'expiresIn', 'debounce', 'retry'],
  ...['timeout', 'tags'],
]

export function resolveOptions(options: PoolOptions): ResolvedOptions {
  checkObject(options, 'options')
  checkKeys(options, POOL_KEYS, '')
  const { storage = 'memory:', queue = 'default', autoStart = true } = options
  if (typeof storage !== 'string') checkMethods(storage, 'storage', ['open', 'close'], STORAGE_EXPECTED)
  checkName(queue, 'queue')
  checkBoolean(autoStart, 'autoStart')
  const node = options.node ?? `${hostname()}-${process.pid}`
  checkText(node, 'node', 128)
  const { codec = jsonCodec, logger = SILENT, clock = systemClock } = options
  checkMethods(codec, 'codec', ['encode', 'decode'])
  checkName(codec.id, 'codec.id')
  checkMethods(logger, 'logger', ['debug', 'info', 'warn', 'error'])
  checkMethods(clock, 'clock', ['now', 'monotonic', 'after'])
  return {
    storage,
    tenant: 'default',
    queue,
    concurrency: checkInteger(options.concurrency ?? 10, 'concurrency', 0, 100_000),
    prefetch: resolvePrefetch(options.prefetch ?? 'auto'),
    loadLimit: options.loadLimit === undefined ? undefined : resolveLoadLimit(options.loadLimit),
    threads: resolveThreads(options.threads ?? {}),
    retry: resolveRetry(options.retry ?? {}, 'retry'),
    timeout:
      options.timeout === undefined ? undefined : parseDuration(options.timeout, 'timeout', { min: 1 }),
    sessionTtl: parseDuration(options.sessionTtl ?? '25s', 'sessionTtl', { min: 1000 }),
    callTimeout: parseDuration(options.callTimeout ?? '10s', 'callTimeout', { min: 100 }),
    maxQueueSize:
      options.maxQueueSize === undefined ? undefined : checkInteger(options.maxQueueSize, 'maxQueueSize', 1),
    overflow: oneOf(options.overflow ?? 'reject', 'overflow', ['reject', 'wait']),
    maxPayload: checkInteger(options.maxPayload ?? MIB, 'maxPayload', 1, 512 * MIB),
    maxReclaims: checkInteger(options.maxReclaims ?? 3, 'maxReclaims', 0, 1000),
    retention: resolveRetention(options.retention ?? {}),
    autoStart,
    node,
    codec,
    logger,
    clock,
  }
}

function resolveRetention(retention: NonNullable<PoolOptions['retention']>): Retention {
  checkObject(retention, 'retention')
  checkKeys(retention, ['success', 'failed'], 'retention.')
  const rule = (state: 'success' | 'failed', age: string): Retention['success'] => {
    const given = retention[state] ?? {}
    checkObject(given, `retention.${state}`)
    checkKeys(given, ['age', 'count'], `retention.${state}.`)
    return {
      age: parseDuration(given.age ?? age, `retention.${state}.age`),
      count: checkInteger(given.count ?? 100_000, `retention.${state}.count`, 0),
    }
  }
  return { success: rule('success', '7d'), failed: rule('failed', '30d') }
}

const PLAIN_SUBMIT: ResolvedSubmit = {
  id: undefined,
  priority: undefined,
  delay: undefined,
  runAt: undefined,
  after: undefined,
  hold: false,
  group: undefined,
  expiresIn: undefined,
  debounce: undefined,
  retry: undefined,
  timeout: undefined,
  tags: undefined,
}

export function resolveSubmit(options: SubmitOptions | undefined, base: RetryPolicy): ResolvedSubmit {
  if (options === undefined) return PLAIN_SUBMIT
  checkObject(options, 'submit options')
  checkKeys(options, SUBMIT_KEYS, '')
  const {
    id,
    priority,
    delay,
    runAt,
    after,
    hold = false,
    group,
    expiresIn,
    debounce,
    retry,
    timeout,
    tags,
  } = options
  checkBoolean(hold, 'hold')
  if (delay !== undefined && runAt !== undefined) throw optionError('runAt', 'no delay beside it', runAt)
  const window = debounce === undefined ? undefined : resolveDebounce(debounce, options)
  if (group !== undefined) checkTaskId(group, 'group')
  if (tags !== undefined) checkTags(tags, 'tags')
  return {
    id: id === undefined ? undefined : checkTaskId(id),
    priority: priority === undefined ? undefined : checkPriority(priority, 'priority'),
    delay: window?.wait ?? (delay === undefined ? undefined : parseDuration(delay, 'delay')),
    // What has passed is due at once, however long ago it was.
    runAt: runAt === undefined ? undefined : Math.max(0, checkInstant(runAt, 'runAt')),
    after: after === undefined ? undefined : resolveAfter(after),
    hold,
    group: group === undefined ? undefined : { id: group },
    expiresIn: expiresIn === undefined ? undefined : parseDuration(expiresIn, 'expiresIn', { min: 1 }),
    debounce: window?.debounce,
    retry: retry === undefined ? undefined : resolveRetry(retry, 'retry', base),
    timeout: timeout === undefined ? undefined : parseDuration(timeout, 'timeout', { min: 1 }),
    tags,
  }
}

/** What would hold for one of the submits only, and not for the task that they become. */
const NOT_DEBOUNCED = ['id', 'delay', 'runAt', 'after', 'hold', 'group', 'expiresIn'] as const

function resolveDebounce(
  given: DebounceOptions,
  options: SubmitOptions,
): { wait: number; debounce: Debounce } {
  checkObject(given, 'debounce', '{ key, wait, maxWait }')
  checkKeys(given, ['key', 'wait', 'maxWait'], 'debounce.')
  const other = NOT_DEBOUNCED.find((name) => options[name] !== undefined && options[name] !== false)
  if (other !== undefined) throw optionError(other, 'no debounce beside it', options[other])
  const key = checkTaskId(given.key, 'debounce.key')
  const wait = parseDuration(given.wait, 'debounce.wait')
  if (given.maxWait === undefined) return { wait, debounce: { key } }
  return { wait, debounce: { key, maxWait: parseDuration(given.maxWait, 'debounce.maxWait', { min: wait }) } }
}

function resolveAfter(after: NonNullable<SubmitOptions['after']>): Dependencies | undefined {
  const EXPECTED = "an id, an array of ids, or { ids, on: 'success' | 'final' }"
  let ids: readonly unknown[]
  let on: Dependencies['on'] = 'success'
  if (typeof after === 'string') ids = [after]
  else if (Array.isArray(after)) ids = after as unknown[]
  else {
    checkObject(after, 'after', EXPECTED)
    const given = after as { ids: readonly string[]; on?: Dependencies['on'] }
    checkKeys(given, ['ids', 'on'], 'after.')
    if (!Array.isArray(given.ids)) throw optionError('after.ids', 'an array of ids', given.ids)
    ids = given.ids
    on = oneOf(given.on ?? 'success', 'after.on', ['success', 'final'])
  }
  const unique = new Set<string>()
  for (const id of ids) {
    if (typeof id !== 'string' || id === '') throw optionError('after', EXPECTED, id)
    unique.add(id)
  }
  if (unique.size > 100) throw optionError('after', 'at most 100 ids', ids)
  return unique.size === 0 ? undefined : { ids: [...unique], on }
}
