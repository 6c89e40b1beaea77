/**
 * One thread, seen from the pool: runs attempts one after the other and tells exactly one end of each, whatever a
 * handler does to its thread.
 *
 * Attempts can be given ahead, so that a thread with tiny tasks need not fall asleep between them. Each has a ticket,
 * and both sides move the number of the next one in shared memory: the thread to take an attempt up, this side to
 * take back all that it has not taken up. So an attempt is either at work in the thread or free to go elsewhere, and
 * nothing in between.
 *
 * To stop an attempt, its signal aborts in the thread; a handler that still runs after the grace is stopped with its
 * thread. Only code that is not JavaScript (a long `scryptSync`, an add-on) cannot be interrupted: it ends when it
 * returns, and {@link Attempt.stuck} says so meanwhile.
 *
 * Threads take real time to start and to end, so this does not go by the clock of the pool, which a test may move.
 */
import { createRequire } from 'node:module'
import { pathToFileURL } from 'node:url'
import { MessageChannel, receiveMessageOnPort, Worker, type MessagePort } from 'node:worker_threads'
import { setImmediate, systemClock, type Timer } from './clock.js'
import { formatDuration } from './duration.js'
import { NeoTaskError } from './errors.js'
import type { Encoded, QueueRef } from './storage.js'
import type { AbortKind } from './task-context.js'
import type { ThreadPolicy } from './thread-options.js'
import {
  CALLED,
  NEXT,
  readThrown,
  SHARED_BYTES,
  tellThrown,
  type FromThread,
  type RunMessage,
  type ThreadData,
  type ToThread,
} from './thread-protocol.js'

/** What a thread tells of an attempt. None of these may throw. */
export interface Attempt {
  /** Nothing stands before it in its thread, which has loaded its file. */
  reached(): void
  /** It was taken up, and its handler is called now. */
  started(): void
  reported(progress: Encoded | undefined, lines: readonly string[] | undefined): void
  /** Rejects when it could not be stored. */
  checkpoint(state: Encoded): Promise<void>
  /** The ends. The thread is free of it, or gone. */
  succeeded(result: Encoded): void
  failed(error: unknown): void
  /** It was not taken up, and never will be by this thread. {@link WorkerThreadContext.recalled} follows. */
  refused(): void
  /** It was stopped, and does not stop. One of the ends follows should it do so after all. */
  stuck(error: unknown): void
}

export interface WorkerThreadContext {
  readonly policy: ThreadPolicy
  readonly ref: QueueRef
  readonly codec: 'json' | 'v8'
  readonly maxPayload: number
  /** All that was taken back together was refused. */
  readonly recalled: () => void
  /** The thread has ended; of this, when it had nothing to do and nobody asked it to. */
  readonly gone: (thread: WorkerThread, error: NeoTaskError | undefined) => void
}

/** How long a thread may take to end once it is told to, in ms. */
export const STUCK = 1000

/** Messages that are taken in before the event loop has its turn. */
const MOST_AT_ONCE = 32

interface Given {
  readonly attempt: Attempt
  readonly file: string
  readonly ticket: number
  /** It was told to end. */
  isAborted: boolean
}

export class WorkerThread {
  readonly #context: WorkerThreadContext
  readonly #worker: Worker
  readonly #port: MessagePort
  readonly #flags: Int32Array
  /** The files that it has loaded. */
  readonly #files = new Set<string>()
  /** Attempts without an end, in their order. All but the first are given ahead. */
  readonly #given: Given[] = []
  /** The ticket of the next attempt. Overflows as the shared number does. */
  #ticket = 0
  readonly #outbox: RunMessage[] = []
  readonly #ownInOutbox: ArrayBuffer[] = []
  #isLoading = false
  /** The first attempt takes long: nothing more is given until it ends. */
  #isSlow = false
  /** The ticket of the first attempt at the last look. */
  #seen = -1
  /** What it died of. */
  #error: unknown
  /** Why it was stopped from here, for the error of an attempt that did not ask for it. */
  #stopped: string | undefined
  /** The time for its start, for the grace of an aborted attempt, or for its end. */
  #timer: Timer | undefined
  #isEnding = false
  #isGone = false
  /** Monotonic ms since which it has nothing to do; `undefined` while it has. */
  idleSince: number | undefined

  /** Throws when the system gives no thread. */
  constructor(context: WorkerThreadContext) {
    this.#context = context
    const { policy, ref, codec, maxPayload } = context
    const { port1, port2 } = new MessageChannel()
    const shared = new SharedArrayBuffer(SHARED_BYTES)
    const workerData: ThreadData = { port: port2, shared, ref, codec, maxPayload }
    // By its public name, which leads to the built file from wherever this code runs. As an import in a text, because
    // a file would be refused in a program that is itself a text (`node --input-type=module`).
    const entry = createRequire(import.meta.url).resolve('@neotask/core/thread-entry')
    this.#worker = new Worker(`import(${JSON.stringify(pathToFileURL(entry).href)})`, {
      eval: true,
      name: 'neotask',
      workerData,
      transferList: [port2],
      resourceLimits: policy.memoryLimit === undefined ? {} : { maxOldGenerationSizeMb: policy.memoryLimit },
    })
    this.#port = port1
    this.#flags = new Int32Array(shared)
    this.#port.on('message', (message: FromThread) => {
      this.#receive(message)
      this.#drain(MOST_AT_ONCE)
    })
    this.#worker.on('error', (error) => (this.#error = error))
    this.#worker.on('exit', (code) => this.#exited(code))
    // The session of the pool holds the process for as long as there may be something to do.
    this.#port.unref()
    this.#worker.unref()
  }

  /** Attempts without an end. */
  get load(): number {
    return this.#given.length
  }

  /** Whether it has ended or is about to. */
  get isEnded(): boolean {
    return this.#isEnding || this.#isGone
  }

  /** Whether an attempt may be given behind the one that it runs. */
  get isOpen(): boolean {
    return !this.#isLoading && !this.#isSlow && !this.isEnded && this.#given[0]?.isAborted !== true
  }

  hasLoaded(file: string): boolean {
    return this.#files.has(file)
  }

  /** The number by which the thread knows the next attempt that it is given. */
  get nextTicket(): number {
    return this.#ticket
  }

  /**
   * @param own memory in the message that nobody else here knows
   * @param mayWait whether it may go with those of the same turn, which wakes the thread once for all of them
   */
  run(
    attempt: Attempt,
    message: RunMessage,
    own: readonly ArrayBuffer[] | undefined,
    mayWait: boolean,
  ): void {
    this.#given.push({ attempt, file: message[1], ticket: message[0], isAborted: false })
    this.#ticket = (this.#ticket + 1) | 0
    this.#outbox.push(message)
    if (own !== undefined) this.#ownInOutbox.push(...own)
    if (!mayWait) this.#flush()
    else if (this.#outbox.length === 1) setImmediate(() => this.#flush())
    if (this.#given.length === 1) this.#begin(false)
  }

  /** Tells the attempt to end, and ends the thread if it does not. One that was not taken up is refused. */
  abort(attempt: Attempt, kind: AbortKind): void {
    const given = this.#given.find((each) => each.attempt === attempt)
    if (given === undefined || this.isEnded) return
    given.isAborted = true
    this.recall()
    if (!this.#given.includes(given)) return
    this.#post(['abort', given.ticket, kind])
    // After the message, so that who sees the one finds the other.
    Atomics.store(this.#flags, CALLED, 1)
    if (given === this.#given[0]) this.#armGrace()
  }

  /** Takes back what it has not taken up. */
  recall(): void {
    const next = Atomics.exchange(this.#flags, NEXT, this.#ticket)
    const from = this.#given.findIndex(({ ticket }) => ((ticket - next) | 0) >= 0)
    if (from < 0) return
    const back = this.#given.splice(from)
    if (from === 0) this.#rest()
    for (const { attempt } of back) attempt.refused()
    this.#context.recalled()
  }

  /**
   * Called every now and then: takes back what stands behind an attempt that has been there since the last look.
   *
   * @returns whether it has to be looked at again
   */
  look(): boolean {
    const first = this.#given[0]?.ticket ?? -1
    if (first === this.#seen && this.#given.length > 1) {
      this.#isSlow = true
      this.recall()
    }
    this.#seen = first
    return this.#given.length > 1
  }

  /** Ends the thread: an idle one by itself, so that what its modules do at their exit is done. */
  end(): void {
    if (this.isEnded) return
    if (this.#given.length > 0) {
      this.#terminate('it was stopped')
      return
    }
    this.#isEnding = true
    this.#post(['exit'])
    this.#after(this.#context.policy.grace, () => this.#terminate('it was stopped'))
  }

  /** Takes in what has come, which costs a fraction of an event for each. */
  #drain(most: number): void {
    for (let left = most; left > 0; left--) {
      const next = receiveMessageOnPort(this.#port)
      if (next === undefined) return
      this.#receive(next.message as FromThread)
    }
  }

  #receive(message: FromThread): void {
    const first = this.#given[0]
    // Nothing comes between two attempts.
    if (first === undefined) return
    const { attempt } = first
    switch (message[0]) {
      case 'started':
        this.#isLoading = false
        this.#files.add(first.file)
        if (!first.isAborted && !this.#isEnding) this.#timer?.cancel()
        attempt.started()
        break
      case 'report':
        attempt.reported(message[1], message[2])
        break
      case 'checkpoint':
        void this.#checkpoint(attempt, message[1], message[2])
        break
      case 'result':
        this.#shift(message[2])
        attempt.succeeded(message[1])
        break
      case 'failed':
        this.#shift(message[2])
        attempt.failed(readThrown(message[1]))
        break
      case 'unloadable':
        this.#given.shift()
        this.#rest()
        this.recall()
        this.end()
        attempt.failed(readThrown(message[1]))
    }
  }

  /** The first attempt is at work, if it was taken up, or will be as soon as the thread can. */
  #begin(isTakenUp: boolean): void {
    const { attempt, file, isAborted } = this.#given[0] as Given
    if (isAborted) this.#armGrace()
    this.#isLoading = !this.#files.has(file)
    if (!this.#isLoading) {
      attempt.reached()
      if (isTakenUp) attempt.started()
    }
    if (isAborted || (isTakenUp && !this.#isLoading)) return
    const { startTimeout } = this.#context.policy
    const late = `it did not start and load ${file} within ${formatDuration(startTimeout)}`
    this.#after(startTimeout, () => this.#terminate(late))
  }

  /** The first attempt has ended. @param goesOn whether the next one is taken up */
  #shift(goesOn: boolean): void {
    this.#given.shift()
    this.#rest()
    if (this.#given.length > 0) this.#begin(goesOn)
  }

  /** Forgets what held for the first attempt. */
  #rest(): void {
    this.#isLoading = false
    this.#isSlow = false
    if (!this.#isEnding) this.#timer?.cancel()
  }

  /** Never rejects. */
  async #checkpoint(attempt: Attempt, number: number, state: Encoded): Promise<void> {
    try {
      await attempt.checkpoint(state)
      this.#post(['saved', number, undefined])
    } catch (error) {
      this.#post(['saved', number, tellThrown(error)])
    }
  }

  #armGrace(): void {
    this.#after(this.#context.policy.grace, () => this.#terminate('it was stopped'))
  }

  #terminate(why: string): void {
    this.#isEnding = true
    this.#stopped = why
    void this.#worker.terminate()
    this.#after(STUCK, () => this.#given[0]?.attempt.stuck(crashError(`${why}, and does not end`)))
  }

  #exited(code: number): void {
    const wasAsked = this.#isEnding
    this.#isEnding = true
    this.#isGone = true
    this.#timer?.cancel()
    // What it said last may be here still unheard, and be the end of its attempt.
    this.#drain(Infinity)
    this.#port.close()
    const error = this.#crash(code)
    this.#context.gone(this, this.#given.length > 0 || wasAsked ? undefined : error)
    // One that never got going would not do so the next time either, so that is told like any crash. Otherwise what
    // it had not taken up has nothing to do with its end.
    if (this.#files.size > 0) this.recall()
    for (const { attempt } of this.#given.splice(0)) attempt.failed(error)
  }

  /** What to say of its death. */
  #crash(code: number): NeoTaskError {
    if (this.#stopped !== undefined) return crashError(this.#stopped)
    const cause = this.#error
    if (cause === undefined) return crashError(`process.exit(${code}) was called in it`)
    const isMemory = (cause as { code?: unknown }).code === 'ERR_WORKER_OUT_OF_MEMORY'
    const what = cause instanceof Error ? String(cause) : 'what was thrown in it'
    return crashError(isMemory ? 'it ran out of memory' : `nobody caught ${what}`, cause)
  }

  #after(ms: number, action: () => void): void {
    this.#timer?.cancel()
    this.#timer = systemClock.after(ms, action, { hold: true })
  }

  #flush(): void {
    if (this.#outbox.length === 0) return
    const message: ToThread = ['run', this.#outbox.splice(0)]
    if (this.#ownInOutbox.length === 0) this.#post(message)
    else this.#port.postMessage(message, this.#ownInOutbox.splice(0))
  }

  #post(message: ToThread): void {
    this.#port.postMessage(message)
  }
}

function crashError(why: string, cause?: unknown): NeoTaskError {
  const options = cause === undefined ? {} : { cause }
  return new NeoTaskError('THREAD_CRASHED', `the thread of the handler ended: ${why}`, options)
}
