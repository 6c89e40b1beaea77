/**
 * What a random run may do: plain values, so that a failing run can be printed, shrunk and kept.
 *
 * Commands name tasks, nodes and claims by numbers, which the run resolves against what there is at the time. So a
 * command means something wherever it stands, and a list stays valid when commands are taken out of it.
 */
import type { QueueOperation } from '../storage.js'
import type { Outcome } from './sketch.js'

/** A number that is taken modulo whatever there is to choose from. */
export type Choice = number

export interface TaskSpec {
  readonly id: Choice
  readonly kind: Choice
  readonly priority: Choice
  readonly size: number
  readonly nonce: 'none' | 'own' | 'other'
  readonly delay?: number | undefined
  readonly runAt?: number | undefined
  readonly after?: readonly Choice[] | undefined
  readonly on?: 'success' | 'final' | undefined
  readonly hold?: boolean | undefined
  readonly group?: Choice | undefined
  readonly exempt?: boolean | undefined
  readonly expiresIn?: number | undefined
  /** With it, nothing else stands beside it but the delay. */
  readonly debounce?: { readonly key: Choice; readonly maxWait?: number | undefined } | undefined
  readonly watcher?: Choice | undefined
  /** Makes the unit one that is refused. */
  readonly bad?: 'id' | 'priority' | 'parent' | 'key' | undefined
}

export interface EndSpec {
  /** Which claim: of those held, or of all that the node ever made. */
  readonly claim: Choice
  readonly from: 'held' | 'all' | 'others'
  /** Added to its token. */
  readonly skew: number
  readonly outcome: Outcome
  readonly in: number
  readonly after?: readonly Choice[] | undefined
  readonly on: 'success' | 'final'
  readonly until?: number | undefined
  readonly cancelGroup: boolean
  readonly more: boolean
}

/** `via` says through which instance of the storage; a node stays with its own. `q` says in which queue. */
export type Command =
  | {
      do: 'enqueue'
      via: Choice
      q: Choice
      units: readonly (readonly TaskSpec[])[]
      maxQueueSize?: number | undefined
    }
  | { do: 'enqueueAgain'; via: Choice; back: Choice }
  | {
      do: 'open'
      via: Choice
      q: Choice
      kinds: Choice
      ttl: Choice
      retention: Choice
      maxReclaims: number
    }
  | { do: 'openAgain'; node: Choice }
  | {
      do: 'work'
      node: Choice
      want: number
      wantBytes?: number | undefined
      moreUrgentThan?: number | undefined
      renew: boolean
      ackTaken: boolean
      marks: readonly Choice[]
      reports: readonly Choice[]
      ends: readonly EndSpec[]
      /** What becomes of the reply: the node learns it, or it is lost, and then sent again or not. */
      reply: 'heard' | 'lost' | 'sent twice'
    }
  | { do: 'workAgain'; back: Choice }
  | { do: 'resume'; node: Choice; ids: readonly Choice[] }
  | { do: 'end'; node: Choice; limit: number }
  | { do: 'crash'; node: Choice }
  /** A crash, and the time until its session is condemned. */
  | { do: 'lose'; node: Choice; via: Choice; limit: number }
  | { do: 'advance'; ms: number }
  | { do: 'reclaim'; via: Choice; limit: number }
  | { do: 'drain'; via: Choice; q: Choice; limit: number }
  | { do: 'prune'; via: Choice; q: Choice; retention: Choice; limit: number }
  | {
      do: 'operate'
      via: Choice
      q: Choice
      operation: QueueOperation | 'revoke'
      ids: readonly Choice[]
      priority: Choice
      payload: boolean
    }
  | { do: 'complete'; via: Choice; q: Choice; id: Choice }
  | { do: 'pause'; via: Choice; q: Choice; paused: boolean }
  | {
      do: 'setGroup'
      via: Choice
      q: Choice
      group: Choice
      cancelled: boolean
      paused?: boolean | undefined
    }
  | { do: 'watch'; via: Choice; q: Choice; ids: readonly Choice[]; watcher: Choice; ttl: number }
  | { do: 'look'; via: Choice; q: Choice; limit: number }
  | {
      do: 'record'
      via: Choice
      key: Choice
      /** `anew`: deleted, and put in the same ms. */
      what: 'put' | 'anew' | 'delete' | 'get'
      version: 'any' | 'present' | 'other' | 'none'
      dueIn?: number | undefined
      expiresIn?: number | undefined
    }
  | {
      do: 'claimRecords'
      via: Choice
      prefix: Choice
      limit: number
      leaseMs: number
      maxBytes?: number | undefined
    }
  | {
      do: 'lock'
      via: Choice
      key: Choice
      owner: Choice
      what: 'acquire' | 'extend' | 'release'
      ttl: number
    }
