/**
 * The packed definition of a task: all that does not change while it lives, in one value that Lua takes apart with a few
 * byte reads. Six bytes hold the time of its creation in their low 42 bits (until 2109) and above it the flags, which say
 * what follows: two bytes of the priority, seven bits each, unless it is the usual one; then, of a task that has nothing but
 * a kind and a payload in JSON, the kind and a space, unless it is empty. Of those that have a watcher, a nonce, options or
 * another codec three bytes of the header's length and the header: kind, watcher, nonce, codec and the options' length, with
 * a space behind each, and the options. The rest is the payload.
 *
 * So the usual task costs six bytes beside its payload. All but the six is text unless the payload is not.
 */
import { Priority, type Encoded, type NewTask } from '@neotask/core'

const WATCHED = 1
const BYTES = 2
const SHORT = 4
const PRIORITY = 8
const KIND = 16
/** So that flags are a letter in the arguments of a script. */
const LETTER = 0x40
const SPACE = 0x20
const TIME = 6
const USUAL_PRIORITY = Priority.normal

export interface Definition {
  readonly priority: number
  readonly kind: string
  readonly codec: string
  readonly options: string | undefined
  readonly payload: Encoded
}

const PLAIN = /^[\w.:@/+=~#-]*$/

/** A text without spaces, which stand between texts. */
export const escapeText = (text: string): string => (PLAIN.test(text) ? text : encodeURIComponent(text))
export const unescapeText = (text: string): string => (text.includes('%') ? decodeURIComponent(text) : text)

/** A letter that tells a script what {@link encodeDefinition} gives. */
export function flagsOf(
  { kind, watcher, nonce, codec, options, payload }: NewTask,
  priority: number,
): string {
  const isShort = !watcher && !nonce && options === undefined && codec === 'json'
  const flags =
    (watcher ? WATCHED : 0) +
    (typeof payload === 'string' ? 0 : BYTES) +
    (isShort ? SHORT : 0) +
    (priority === USUAL_PRIORITY ? 0 : PRIORITY) +
    (kind === '' ? 0 : KIND)
  return LETTERS[flags] as string
}

const LETTERS = Array.from({ length: 2 * KIND }, (_, flags) => String.fromCharCode(LETTER + flags))

/** All but the six bytes of flags and time, which the script puts in front. */
export function encodeDefinition(task: NewTask, flags: string, priority: number): string | Buffer {
  const bits = flags.charCodeAt(0)
  const { payload } = task
  let text = bits & PRIORITY ? String.fromCharCode(priority >> 7, priority & 127) : ''
  if (!(bits & SHORT)) text += longHeader(task)
  else if (bits & KIND) text += `${escapeText(task.kind)} `
  return typeof payload === 'string' ? text + payload : Buffer.concat([Buffer.from(text), payload])
}

function longHeader({ kind, watcher = '', nonce = '', codec, options }: NewTask): string {
  const size = options === undefined ? '' : Buffer.byteLength(options)
  const fields = `${[kind, watcher, nonce, codec].map(escapeText).join(' ')} ${size} `
  const length = fields.length + (size || 0)
  return String.fromCharCode(length >> 14, (length >> 7) & 127, length & 127) + fields + (options ?? '')
}

export function decodeDefinition(bytes: Buffer): Definition & { readonly createdAt: number } {
  const first = byteAt(bytes, 0)
  const createdAt =
    (((first & 3) << 16) + (byteAt(bytes, 1) << 8) + byteAt(bytes, 2)) * 2 ** 24 + numberAt(bytes, 3)
  const { priority, kind, codec, options, payload } = decodeRest(first >> 2, bytes, TIME, bytes.length)
  return { createdAt, priority, kind, codec, options, payload }
}

/** What {@link encodeDefinition} gave, with a letter of flags. */
export function decodeEncoded(letter: number, bytes: Buffer, from: number, to: number): Definition {
  return decodeRest(letter - LETTER, bytes, from, to)
}

// Once for each task that is claimed: every byte is read by itself, for a view or an iterator costs more than all of it.
function decodeRest(flags: number, bytes: Buffer, from: number, to: number): Definition {
  let at = from
  let priority: number = USUAL_PRIORITY
  if (flags & PRIORITY) {
    priority = (byteAt(bytes, at) << 7) + byteAt(bytes, at + 1)
    at += 2
  }
  if (flags & SHORT) {
    let kind = ''
    if (flags & KIND) {
      const start = at
      while (byteAt(bytes, at) !== SPACE) at++
      kind = unescapeText(bytes.toString('latin1', start, at++))
    }
    return { priority, kind, codec: 'json', options: undefined, payload: payloadOf(bytes, flags, at, to) }
  }
  const end = at + 3 + (byteAt(bytes, at) << 14) + (byteAt(bytes, at + 1) << 7) + byteAt(bytes, at + 2)
  const header = bytes.toString('utf8', at + 3, end)
  const [kind = '', , , codec = '', size = ''] = header.split(' ', 5)
  return {
    priority,
    kind: unescapeText(kind),
    codec: unescapeText(codec),
    options: size === '' ? undefined : header.slice(fifthSpace(header) + 1),
    payload: payloadOf(bytes, flags, end, to),
  }
}

const byteAt = (bytes: Buffer, at: number): number => bytes[at] as number
const numberAt = (bytes: Buffer, at: number): number =>
  (byteAt(bytes, at) << 16) + (byteAt(bytes, at + 1) << 8) + byteAt(bytes, at + 2)
const payloadOf = (bytes: Buffer, flags: number, from: number, to: number): Encoded =>
  flags & BYTES ? new Uint8Array(bytes.subarray(from, to)) : bytes.toString('utf8', from, to)

function fifthSpace(header: string): number {
  let at = -1
  for (let i = 0; i < 5; i++) at = header.indexOf(' ', at + 1)
  return at
}

/** A value with a letter before it that tells text from bytes. */
export function tagged(value: Encoded): string | Buffer {
  return typeof value === 'string' ? `t${value}` : Buffer.concat([Buffer.from('b'), value])
}

export function untagged(bytes: Buffer): Encoded {
  return bytes[0] === 0x62 ? new Uint8Array(bytes.subarray(1)) : bytes.toString('utf8', 1)
}
