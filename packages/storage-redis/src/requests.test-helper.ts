/** What tests of the driver ask of a storage: a task, a session's options, a call that says nothing. */
import type { NewTask, SessionOptions, Settlement, WorkRequest } from '@neotask/core'

export const REF = { tenant: 'acme', queue: 'mail' }
const RULE = { age: 1e9, count: 1e6 }

export const OPTIONS: SessionOptions = {
  ttl: 25_000,
  node: { id: 'node', host: 'here', pid: 1, concurrency: 1, queue: 'mail', kinds: [''] },
  serves: { ...REF, kinds: [''] },
  retention: { success: RULE, failed: RULE },
  maxReclaims: 3,
}

export const task = (id: string, details: Partial<NewTask> = {}): NewTask => ({
  id,
  kind: '',
  payload: 'payload',
  codec: 'json',
  priority: 2,
  ...details,
})

export const call: WorkRequest = {
  session: 'session',
  ack: 0,
  ackTaken: 0,
  marks: [],
  reports: [],
  settlements: [],
  renew: false,
  want: 0,
}

export const success = ({ id, token }: { id: string; token: number }): Settlement => ({
  id,
  token,
  outcome: 'success',
  result: 'done',
  codec: 'json',
})
