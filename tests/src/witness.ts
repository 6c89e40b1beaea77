/** What workers wrote down about their own doings, put together by task. See `kill-worker.ts`. */
import { readFileSync } from 'node:fs'
import type { WitnessEvent } from './kill-worker.js'

/** One call of a handler. */
export interface Execution {
  readonly id: string
  readonly token: number
  readonly pid: number
  ended: boolean
  lost: boolean
  accepted: boolean
  refused: boolean
}

/** All calls of handlers, by task, in the order of their starts. */
export function readWitness(log: string): Map<string, Execution[]> {
  const byTask = new Map<string, Execution[]>()
  // What was cut off by a kill has no end of line.
  for (const line of readFileSync(log, 'utf8').split('\n').slice(0, -1)) {
    const [event, id, token, pid] = line.split(' ') as [WitnessEvent, string, string, string]
    let executions = byTask.get(id)
    if (executions === undefined) byTask.set(id, (executions = []))
    if (event === 'start') {
      executions.push({
        id,
        token: Number(token),
        pid: Number(pid),
        ended: false,
        lost: false,
        accepted: false,
        refused: false,
      })
      continue
    }
    const execution = executions.find((other) => other.token === Number(token) && other.pid === Number(pid))
    if (execution === undefined) throw new Error(`a handler that was never called: ${line}`)
    if (event === 'end') execution.ended = true
    else execution[event] = true
  }
  return byTask
}
