/**
 * What runs in a thread: takes one attempt at a time, loads its handler's file when it comes for the first time, and
 * calls the handler with a `ctx` like that of any other.
 *
 * What is sent ahead waits here until it is its turn, and may be taken back by the pool until then.
 */
import { receiveMessageOnPort, workerData } from 'node:worker_threads'
import { systemClock as clock, type Timer } from './clock.js'
import { encodePayload, jsonCodec } from './codec.js'
import type { Handler } from './define-task.js'
import { NeoTaskError, optionError } from './errors.js'
import { Execution, type ExecutionHost } from './execution.js'
import type { Claimed, Encoded } from './storage.js'
import { isThenable } from './thenable.js'
import {
  CALLED,
  NEXT,
  readThrown,
  tellThrown,
  transferOf,
  v8Codec,
  type FromThread,
  type RunMessage,
  type ThreadData,
  type ToThread,
} from './thread-protocol.js'

const { port, shared, ref, codec: wire, maxPayload } = workerData as ThreadData
const flags = new Int32Array(shared)
const codec = wire === 'json' ? jsonCodec : v8Codec
// The codec of the user has its own sizes: the pool measures what that makes.
const limit = wire === 'json' ? maxPayload : Infinity
/** Progress and lines go at most this often, in ms: a handler that reports in a loop must not flood the pool's. */
const REPORT_EVERY = 50

const handlers = new Map<string, Handler<never>>()
/** The attempt under way, and its ticket. */
let current: ThreadExecution | undefined
let currentTicket = -1
/** Attempts sent ahead while one was under way. */
const waiting: RunMessage[] = []
let reportTimer: Timer | undefined
let reportedAt = -Infinity
/** Checkpoints that are being stored, by their number. */
const saving = new Map<number, { resolve: () => void; reject: (error: Error) => void }>()
let checkpoints = 0

/** Messages cannot come in while a handler computes, so its look at `ctx.signal` takes in what waits. */
class ThreadExecution extends Execution {
  override get signal(): AbortSignal {
    if (Atomics.exchange(flags, CALLED, 0) !== 0) {
      for (let next = receiveMessageOnPort(port); next; next = receiveMessageOnPort(port)) {
        receive(next.message as ToThread)
      }
    }
    return super.signal
  }
}

const host: ExecutionHost = {
  ref,
  codec,
  maxPayload: limit,
  now: () => clock.now(),
  report: (execution) => {
    if (execution !== current) return
    const wait = reportedAt + REPORT_EVERY - clock.monotonic()
    if (wait <= 0) flushReport(execution)
    else reportTimer ??= clock.after(wait, () => flushReport(execution))
  },
  checkpoint: (execution, state) =>
    new Promise((resolve, reject) => {
      if (execution !== current) {
        const message = `the attempt of task ${execution.id} has ended`
        reject(new NeoTaskError('LEASE_LOST', message, { taskId: execution.id }))
        return
      }
      const number = ++checkpoints
      saving.set(number, { resolve, reject })
      post(['checkpoint', number, state], state)
    }),
}

port.on('message', receive)

function receive(message: ToThread): void {
  switch (message[0]) {
    case 'run': {
      waiting.push(...message[1])
      const next = current === undefined ? takeUp() : undefined
      if (next !== undefined) run(next, false)
      break
    }
    case 'abort':
      if (message[1] === currentTicket) current?.abort(message[2])
      break
    case 'saved':
      saved(message[1], message[2] === undefined ? undefined : readThrown(message[2]))
      break
    case 'exit':
      // Runs what the handlers' modules have set on the `exit` of their process.
      process.exit()
  }
}

/** The next attempt that the pool has not taken back, which it cannot from now on. */
function takeUp(): RunMessage | undefined {
  for (let message = waiting.shift(); message !== undefined; message = waiting.shift()) {
    const ticket = message[0]
    if (Atomics.compareExchange(flags, NEXT, ticket, (ticket + 1) | 0) === ticket) return message
  }
  return undefined
}

/** @param isTold whether the pool knows that it was taken up */
function run(message: RunMessage, isTold: boolean): void {
  const [ticket, file, id, kind, token, attempts, payload, checkpoint, parents, timedOut] = message
  const claimed: Claimed = {
    id,
    token,
    kind,
    payload,
    codec: codec.id,
    priority: 0,
    attempts,
    reclaims: 0,
    probation: false,
    waited: 0,
    checkpoint,
    parents,
    timedOut,
  }
  const execution = new ThreadExecution(host, claimed, '', 0)
  current = execution
  currentTicket = ticket
  reportedAt = -Infinity
  const handler = handlers.get(file)
  if (handler === undefined) {
    void load(file, execution)
    return
  }
  if (!isTold) post(['started'])
  call(handler, execution)
}

/** Never rejects. */
async function load(file: string, execution: ThreadExecution): Promise<void> {
  let handler: Handler<never>
  try {
    handler = handlerOf(await import(file), file)
  } catch (error) {
    // Nothing else is taken up: the pool ends this thread.
    post(['unloadable', tellThrown(error)])
    return
  }
  handlers.set(file, handler)
  post(['started'])
  call(handler, execution)
}

function handlerOf(module: unknown, file: string): Handler<never> {
  const { default: main, handler } = module as { default?: unknown; handler?: unknown }
  // The second is what a CommonJS module that was an ES module once has as its default.
  const found = [main, (main as { default?: unknown } | undefined)?.default, handler]
  const callable = found.find((candidate) => typeof candidate === 'function')
  if (callable !== undefined) return callable as Handler<never>
  throw optionError(`handler ${file}`, 'a function as its default export, or as its export handler', main)
}

function call(handler: Handler<never>, execution: ThreadExecution): void {
  let value: unknown
  try {
    // It was told to end while the file was loaded.
    if (execution.aborted !== undefined) throw execution.signal.reason
    value = handler(codec.decode(execution.claimed.payload) as never, execution)
    if (isThenable(value)) {
      value.then(
        (result) => succeed(execution, result),
        (error: unknown) => fail(execution, error),
      )
      return
    }
  } catch (error) {
    fail(execution, error)
    return
  }
  succeed(execution, value)
}

function succeed(execution: ThreadExecution, value: unknown): void {
  // A promise of another library may settle twice.
  if (execution !== current) return
  let result: Encoded
  try {
    result = encodePayload(codec, value, 'result', limit)
  } catch (error) {
    fail(execution, error)
    return
  }
  const next = finish(execution)
  post(['result', result, next !== undefined], result)
  if (next !== undefined) run(next, true)
}

function fail(execution: ThreadExecution, error: unknown): void {
  if (execution !== current) return
  const next = finish(execution)
  post(['failed', tellThrown(error), next !== undefined])
  if (next !== undefined) run(next, true)
}

/** @returns what is taken up after it, once its end is told */
function finish(execution: ThreadExecution): RunMessage | undefined {
  // What it said last goes before its end, for afterwards nobody would take it.
  if (execution.progressed !== undefined || execution.lines !== undefined) flushReport(execution)
  reportTimer?.cancel()
  reportTimer = undefined
  current = undefined
  return takeUp()
}

function flushReport(execution: Execution): void {
  reportTimer?.cancel()
  reportTimer = undefined
  reportedAt = clock.monotonic()
  const { progressed, lines } = execution
  execution.progressed = undefined
  execution.lines = undefined
  post(['report', progressed, lines], progressed)
}

function saved(number: number, error: Error | undefined): void {
  const waiting = saving.get(number)
  saving.delete(number)
  if (error === undefined) waiting?.resolve()
  else waiting?.reject(error)
}

/** @param own bytes that nobody else here knows */
function post(message: FromThread, own?: Encoded): void {
  if (typeof own === 'object') port.postMessage(message, transferOf(own))
  else port.postMessage(message)
}
