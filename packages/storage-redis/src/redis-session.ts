/** The session face: a node that runs tasks. `work` is one call of one script. */
import {
  NeoTaskError,
  optionError,
  type ResumeReply,
  type Report,
  type SessionFace,
  type SessionOptions,
  type Settlement,
  type Taken,
  type WorkReply,
  type WorkRequest,
} from '@neotask/core'
import type { Argument, Connection, Reply } from './connection.js'
import { escapeText, tagged } from './definition.js'
import { ReplicaWarning } from './durability.js'
import { pack } from './msgpack.js'
import { listOf, numberOf, numbersOf, textOf } from './reply.js'
import { parseClaimed, stateOf } from './task-record.js'

/** Settlements, and tasks claimed, in one call. */
export const MAX_WORK = 200
const CLAIM_BYTES = 1024 * 1024
/** What Lua reads as a number, in place of Infinity. */
const ENDLESS = 1e15

const STATUS = ['ok', 'again', 'gone'] as const

export class RedisSession implements SessionFace {
  readonly #connection: Connection
  readonly #maxLogs: number
  readonly #warning: ReplicaWarning = new ReplicaWarning()

  constructor(connection: Connection, maxLogs: number) {
    this.#connection = connection
    this.#maxLogs = maxLogs
  }

  async open(session: string, options: SessionOptions): Promise<void> {
    if (!(options.ttl >= 1_000)) throw optionError('ttl', 'at least 1000 ms', options.ttl)
    const { serves, retention, node, watcher = '' } = options
    const finite = (value: number): number => Math.min(value, ENDLESS)
    const details = pack({
      ttl: options.ttl,
      mr: finite(options.maxReclaims),
      tenant: encodeURIComponent(serves.tenant),
      node: JSON.stringify(node),
      nid: node.id,
      sa: finite(retention.success.age),
      sc: finite(retention.success.count),
      fa: finite(retention.failed.age),
      fc: finite(retention.failed.count),
    })
    const kinds = ` ${serves.kinds.map(escapeText).join(' ')} `
    const { keys } = this.#connection
    const args = [session, kinds, escapeText(watcher), details]
    const reply = await this.#connection.runIn('open', keys.queue(serves), args)
    if (reply === 0) {
      throw new NeoTaskError('ILLEGAL_STATE', `session ${session} is over, and an id is not used again`)
    }
  }

  async work(request: WorkRequest): Promise<WorkReply> {
    const reply = listOf(
      await this.#work(argumentsOf(request, this.#maxLogs), request.settlements.length > 0),
    )
    const status = STATUS[numberOf(reply[0])] as WorkReply['status']
    const token = numberOf(reply[1])
    const now = status === 'again' ? undefined : numberOf(reply[2])
    const { taken, takenSeq } = parseTaken(textOf(reply[6]))
    const nextDueIn = numberOf(reply[8])
    const head = numberOf(reply[9])
    return {
      status,
      token,
      claimed: parseClaimed(reply[3], token, now),
      stale: numbersOf(reply[4]),
      staleReports: numbersOf(reply[5]),
      taken,
      takenSeq,
      held: numberOf(reply[7]),
      nextDueIn: nextDueIn < 0 ? undefined : nextDueIn,
      head: head < 0 ? undefined : head,
      paused: reply[10] === 1,
    }
  }

  async #work(args: readonly Argument[], settles: boolean): Promise<Reply> {
    const { durability } = this.#connection
    if (durability === undefined || !settles) return this.#connection.run('work', args)
    const { reply, confirmed } = await this.#connection.runReplicated('work', undefined, args, durability)
    if (confirmed < durability.replicas) this.#warning.warn(confirmed, durability)
    return reply
  }

  async resume(session: string, ids: readonly string[]): Promise<ResumeReply> {
    const [status, token, , entries, tasks] = listOf(await this.#connection.run('resume', [session, ...ids]))
    return {
      status: status === 0 ? 'ok' : 'gone',
      token: numberOf(token),
      entries: parseClaimed(entries, 0, undefined),
      tasks: listOf(tasks).map((one) => {
        const text = textOf(one)
        return text === ''
          ? undefined
          : { state: stateOf(text.charAt(0)), settledToken: Number(text.slice(1)) }
      }),
    }
  }

  async end(session: string, limit: number): Promise<'done' | 'more'> {
    return (await this.#connection.run('end', [session, limit])) === 1 ? 'done' : 'more'
  }
}

function argumentsOf(request: WorkRequest, maxLogs: number): Argument[] {
  const { marks, reports, settlements, wantBytes = CLAIM_BYTES, moreUrgentThan, free } = request
  const args: Argument[] = [
    request.session,
    request.ack,
    request.ackTaken,
    request.renew ? 1 : 0,
    Math.min(request.want, MAX_WORK),
    Math.min(wantBytes, ENDLESS),
    moreUrgentThan ?? '',
    maxLogs,
    marks.length,
    reports.length,
    settlements.length,
    free ?? '',
  ]
  for (const { id, token } of marks) args.push(id, token)
  for (const report of reports) args.push(report.id, report.token, reportOf(report))
  let last = -1
  for (const settlement of settlements) {
    const { id, token } = settlement
    args.push(id, token === last ? settlementOf(settlement) : withToken(token, settlementOf(settlement)))
    last = token
  }
  return args
}

function reportOf({ progress, checkpoint, logs }: Report): Buffer {
  return pack({
    none: 1,
    pr: progress === undefined ? undefined : tagged(progress),
    cp: checkpoint === undefined ? undefined : tagged(checkpoint),
    lg: logs,
  })
}

/** Tasks of one claim have the same token, so most settlements do not name theirs. */
function withToken(token: number, details: string | Buffer): string | Buffer {
  const name = `#${token}`
  return typeof details === 'string' ? name + details : Buffer.concat([Buffer.from(name), details])
}

/** A letter for the outcome, a space for success; then of a success the tail of its record, else packed details. */
function settlementOf(settlement: Settlement): string | Buffer {
  const { duration: du } = settlement
  switch (settlement.outcome) {
    case 'success': {
      const { result } = settlement
      const head = ` ${du ?? ''} ${escapeText(settlement.codec)} `
      return typeof result === 'string'
        ? `${head}t${result}`
        : Buffer.concat([Buffer.from(`${head}b`), result])
    }
    case 'failed': {
      const { error, fingerprint, cancelGroup } = settlement
      return detailed('f', { du, e: error, f: fingerprint, g: cancelGroup === true ? 1 : undefined })
    }
    case 'retry':
      return detailed('r', { du, e: settlement.error, i: settlement.in })
    case 'cancelled':
    case 'skipped': {
      const letter = settlement.outcome === 'cancelled' ? 'c' : 'k'
      return detailed(letter, { du, re: settlement.reason, ms: settlement.message })
    }
    case 'released':
      return detailed('x', { du, none: 1 })
    case 'suspended': {
      const { after, until, checkpoint } = settlement
      return detailed('p', {
        du,
        none: 1,
        a: after?.ids.length ? after.ids : undefined,
        m: after && (after.on === 'success' ? 's' : 'f'),
        u: until,
        cp: checkpoint === undefined ? undefined : tagged(checkpoint),
      })
    }
  }
}

const detailed = (letter: string, details: Parameters<typeof pack>[0]): Buffer =>
  Buffer.concat([Buffer.from(letter), pack(details)])

/** `<takenSeq>|`, then for each notice its number, id, token and reason. */
function parseTaken(text: string): { taken: Taken[]; takenSeq: number } {
  const [seq = '', rest = ''] = text.split('|', 2)
  const words = rest.split(' ')
  const taken: Taken[] = []
  for (let i = 0; i + 3 < words.length; i += 4) {
    const [, id = '', token, reason] = words.slice(i, i + 4)
    taken.push({ id, token: Number(token), reason: reason === 'r' ? 'revoked' : 'cancelled' })
  }
  return { taken, takenSeq: Number(seq) }
}
