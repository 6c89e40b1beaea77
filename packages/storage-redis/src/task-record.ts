/** From what scripts tell of tasks (`view.lua`, `describe` in `claim.lua`) to the records of the contract. */
import {
  isFinal,
  type Claimed,
  type FinalRecord,
  type FinalState,
  type Handed,
  type Parent,
  type TaskRecord,
  type TaskState,
} from '@neotask/core'
import type { Reply } from './connection.js'
import { decodeDefinition, decodeEncoded, unescapeText, untagged } from './definition.js'
import { unpackMap, type Unpacked, type UnpackedMap } from './msgpack.js'
import { bytesOf, listOf, numberOf, textOf } from './reply.js'

/** A letter for each place; pending tasks stand in ready or in a lane. */
const STATES: Readonly<Record<string, TaskState>> = {
  r: 'pending',
  l: 'pending',
  d: 'scheduled',
  n: 'blocked',
  o: 'running',
  s: 'success',
  f: 'failed',
  c: 'cancelled',
  k: 'skipped',
}

export function stateOf(place: string): TaskState {
  return STATES[place] as TaskState
}

export const numberIn = (map: UnpackedMap, key: string): number | undefined => {
  const value = map.get(key)
  return value === undefined ? undefined : typeof value === 'number' ? value : Number(value)
}
const textIn = (map: UnpackedMap, key: string): string | undefined =>
  (map.get(key) as Buffer | undefined)?.toString()
const textsIn = (map: UnpackedMap, key: string): string[] | undefined =>
  (map.get(key) as readonly Unpacked[] | undefined)?.map((one) => (one as Buffer).toString())
const encodedIn = (map: UnpackedMap, key: string): TaskRecord['payload'] | undefined => {
  const value = map.get(key) as Buffer | undefined
  return value && untagged(value)
}

/** The record of an end: letter, token, time, whether somebody was told; duration; of a success codec and result. */
function parseEnd(bytes: Buffer, isSuccess: boolean) {
  const spaces = [bytes.indexOf(' ')]
  for (let i = 0; i < 2; i++) spaces.push(bytes.indexOf(' ', (spaces[i] as number) + 1))
  const third = spaces[1] as number
  const codecFrom = bytes.indexOf(' ', third + 1)
  const duration = isSuccess
    ? bytes.toString('utf8', third + 1, codecFrom)
    : bytes.toString('utf8', third + 1)
  const resultFrom = isSuccess ? bytes.indexOf(' ', codecFrom + 1) + 1 : -1
  return {
    token: Number(bytes.toString('utf8', 1, spaces[0])),
    since: Number.parseInt(bytes.toString('utf8', (spaces[0] as number) + 1, third), 10),
    duration: duration === '' ? undefined : Number(duration),
    ...(isSuccess && {
      resultCodec: unescapeText(bytes.toString('utf8', codecFrom + 1, resultFrom - 1)),
      result: untagged(bytes.subarray(resultFrom)),
    }),
  }
}

/** @returns undefined for the unknown */
export function parseView(reply: Reply): TaskRecord | undefined {
  const view = listOf(reply)
  if (view.length === 0) return undefined
  const [id, place, packed, position, session, node, lane, ended, rest, settled] = view
  const letter = textOf(place)
  const state = stateOf(letter)
  const definition = decodeDefinition(bytesOf(packed))
  const rare = unpackMap(bytesOf(rest))
  const end = isFinal(state) ? parseEnd(bytesOf(ended), letter === 's') : undefined
  const entry = state === 'running' ? textOf(position) : ''
  const group = textIn(rare, 'g')
  const after = textsIn(rare, 'a')
  const kindOrGroup = textOf(lane)
  return {
    id: textOf(id),
    kind: definition.kind,
    state,
    priority: definition.priority,
    payload: definition.payload,
    codec: definition.codec,
    options: definition.options,
    createdAt: definition.createdAt,
    since:
      end?.since ?? (entry ? Number(entry.split(' ')[1]) : (numberIn(rare, 's') ?? definition.createdAt)),
    dueAt: state === 'scheduled' ? numberOf(position) : undefined,
    deadline: numberIn(rare, 'D'),
    started: entry.startsWith('+'),
    session: entry ? textOf(session) : undefined,
    node: entry ? textOf(node) : undefined,
    settledToken: end ? end.token : numberOf(settled),
    attempts: attemptsOf(rare, end?.token, letter),
    reclaims: numberIn(rare, 'rc') ?? 0,
    after: after && { ids: after, on: textIn(rare, 'm') === 's' ? 'success' : 'final' },
    waitsFor: state === 'blocked' ? (textsIn(rare, 'o') ?? []) : undefined,
    held: state === 'blocked' && rare.get('h') !== undefined,
    group:
      group === undefined ? undefined : { id: group, ...(rare.get('x') !== undefined && { exempt: true }) },
    lane:
      kindOrGroup === '' ? undefined : `${kindOrGroup}:${kindOrGroup === 'kind' ? definition.kind : group}`,
    result: end?.result,
    resultCodec: end?.resultCodec,
    error: textIn(rare, 'e'),
    reason: textIn(rare, 're'),
    message: textIn(rare, 'ms'),
    duration: end ? end.duration : numberIn(rare, 'du'),
    progress: encodedIn(rare, 'pr'),
    checkpoint: encodedIn(rare, 'cp'),
    logs: textsIn(rare, 'lg'),
  }
}

/** A success that was settled needs no other trace of its only attempt. */
function attemptsOf(rare: UnpackedMap, token: number | undefined, place: string): number {
  return numberIn(rare, 'at') ?? (place === 's' && (token ?? 0) > 0 ? 1 : 0)
}

/** Of a plain success, which has nothing but its record: its only attempt. */
export function parseSuccess(reply: Reply): FinalRecord {
  const [id, ended] = listOf(reply)
  return successIn(textOf(id), bytesOf(ended))
}

export function successIn(id: string, ended: Buffer): FinalRecord {
  const { token, duration, result, resultCodec } = parseEnd(ended, true)
  return { id, state: 'success', result, resultCodec, attempts: token > 0 ? 1 : 0, duration }
}

export function finalOf(record: TaskRecord): FinalRecord {
  const { id, result, resultCodec, error, reason, message, attempts, duration } = record
  const state = record.state as FinalState
  return { id, state, result, resultCodec, error, reason, message, attempts, duration }
}

/** What few tasks have, as a claim tells it. */
interface Special {
  readonly rare: UnpackedMap
  readonly parents: string
  readonly since: number
}

const PLAIN: UnpackedMap = new Map<string, Unpacked>()

/** @param now ms of the storage's time at the claim; `undefined` when it was another one */
export function parseClaimed(reply: Reply | undefined, token: number, now: number | undefined): Claimed[] {
  const [text, defs, others, more] = listOf(reply)
  const definitions = listOf(defs)
  if (definitions.length === 0) return []
  const rest = listOf(others)
  const tokens = now === undefined ? listOf(more) : []
  // All of them were due, and are ready since this very claim.
  const isDue = now !== undefined && more !== undefined
  const special = new Map<number, Special>()
  for (let i = 0; i < rest.length; i += 4) {
    const [rare, parents, since] = rest.slice(i + 1, i + 4)
    special.set(numberOf(rest[i]) - 1, {
      rare: unpackMap(bytesOf(rare)),
      parents: textOf(parents),
      since: numberOf(since),
    })
  }
  return textOf(text)
    .split(' ')
    .map((id, index) => {
      const { createdAt, priority, kind, payload, codec, options } = decodeDefinition(
        bytesOf(definitions[index]),
      )
      const { rare = PLAIN, parents = '', since = isDue ? now : createdAt } = special.get(index) ?? {}
      return {
        id,
        token: now === undefined ? numberOf(tokens[index]) : token,
        kind,
        payload,
        codec,
        options,
        priority,
        attempts: numberIn(rare, 'at') ?? 0,
        reclaims: numberIn(rare, 'rc') ?? 0,
        probation: rare.get('pb') !== undefined,
        waited: now === undefined ? 0 : Math.max(0, now - since),
        checkpoint: encodedIn(rare, 'cp'),
        parents: rare.get('a') === undefined ? undefined : parseParents(parents),
        timedOut: rare.get('to') === undefined ? undefined : true,
      }
    })
}

const parseParents = (text: string): Parent[] =>
  text === ''
    ? []
    : text.split(' ').map((one) => ({ id: one.slice(1), state: stateOf(one.charAt(0)) as FinalState }))

/**
 * What a message hands over (`hand.lua`): the token before it and its own; then for each task its id, and with a letter of
 * flags the size of what follows flags and time in its definition; on the next line all of those.
 */
export function parseHanded(message: Buffer): Handed {
  let at = message.indexOf('\n') + 1
  const [after, number, ...tasks] = message.toString('latin1', 0, at - 1).split(' ')
  const token = Number(number)
  const claimed: Claimed[] = []
  for (let i = 0; i < tasks.length; i += 2) {
    const size = tasks[i + 1] as string
    const end = at + Number(size.slice(1))
    const { kind, payload, codec, options, priority } = decodeEncoded(size.charCodeAt(0), message, at, end)
    claimed.push({
      id: tasks[i] as string,
      token,
      kind,
      payload,
      codec,
      options,
      priority,
      attempts: 0,
      reclaims: 0,
      probation: false,
      waited: 0,
      checkpoint: undefined,
      parents: undefined,
      timedOut: undefined,
    })
    at = end
  }
  return { after: Number(after), token, claimed }
}
