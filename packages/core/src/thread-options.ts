/** The option `threads`: how many threads run the handlers that are files, and when one is stopped. */
import { availableParallelism } from 'node:os'
import { checkInteger, checkKeys, checkObject } from './checks.js'
import { parseDuration, type Duration } from './duration.js'

export interface ThreadOptions {
  /** Threads, and so handlers in them at the same time, 1 to 1 000. Default: the cores less one, at least 1. */
  size?: number | undefined
  /** The JavaScript heap of each thread, in MiB, 16 to 1 048 576. Default: Node's own limit. */
  memoryLimit?: number | undefined
  /** How long a thread with nothing to do is kept. 0: each task gets a new one. Default: `'30s'`. */
  idleTimeout?: Duration | undefined
  /** How long a handler may go on after its signal aborted; then its thread is stopped. Default: `'100ms'`. */
  grace?: Duration | undefined
  /** How long a thread may take to start, to load a handler's file and to take a task up. At least 1 ms. Default: `'30s'`. */
  startTimeout?: Duration | undefined
}

/** Checked {@link ThreadOptions}; times in ms. */
export interface ThreadPolicy {
  readonly size: number
  readonly memoryLimit: number | undefined
  readonly idleTimeout: number
  readonly grace: number
  readonly startTimeout: number
}

const KEYS = ['size', 'memoryLimit', 'idleTimeout', 'grace', 'startTimeout']
/** MiB in which a thread can start at all, with something to spare. */
const LEAST_MEMORY = 16

export function resolveThreads(options: ThreadOptions): ThreadPolicy {
  checkObject(options, 'threads')
  checkKeys(options, KEYS, 'threads.')
  const { size = Math.max(1, availableParallelism() - 1), memoryLimit } = options
  const { idleTimeout = '30s', grace = '100ms', startTimeout = '30s' } = options
  return {
    size: checkInteger(size, 'threads.size', 1, 1000),
    memoryLimit:
      memoryLimit === undefined
        ? undefined
        : checkInteger(memoryLimit, 'threads.memoryLimit', LEAST_MEMORY, 2 ** 20),
    idleTimeout: parseDuration(idleTimeout, 'threads.idleTimeout'),
    grace: parseDuration(grace, 'threads.grace'),
    startTimeout: parseDuration(startTimeout, 'threads.startTimeout', { min: 1 }),
  }
}
