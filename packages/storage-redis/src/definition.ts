/**
 * The packed definition of a task: all that does not change while it lives, in one value that Lua takes apart with a few
 * byte reads. Six bytes of the time of its creation, which the script puts in front; one of flags; two of the priority,
 * seven bits each, so that they are text too. Then of most tasks the kind, a space, and the payload; of those that have a
 * watcher, a nonce, options or another codec than JSON three bytes of the header's length, kind, watcher, nonce, codec and
 * the options' length, with a space behind each, the options, and the payload.
 */
import type { Encoded, NewTask } from '@neotask/core'

const WATCHED = 1
const BYTES = 2
const SHORT = 4
const FIXED = 12
const FIXED_SHORT = 9
const FLAGS = 0x40
const SPACE = 0x20

export interface Definition {
  readonly createdAt: number
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

/** Without the time of the creation. */
export function encodeDefinition(task: NewTask, priority: number): string | Buffer {
  const { kind, watcher = '', nonce = '', codec, options, payload } = task
  const isShort = watcher === '' && nonce === '' && options === undefined && codec === 'json'
  const flags =
    FLAGS + (watcher === '' ? 0 : WATCHED) + (typeof payload === 'string' ? 0 : BYTES) + (isShort ? SHORT : 0)
  const front = String.fromCharCode(flags, priority >> 7, priority & 127)
  const header = isShort ? `${escapeText(kind)} ` : longHeader([kind, watcher, nonce, codec], options)
  const text = front + header
  return typeof payload === 'string' ? text + payload : Buffer.concat([Buffer.from(text), payload])
}

function longHeader(texts: readonly string[], options: string | undefined): string {
  const size = options === undefined ? '' : Buffer.byteLength(options)
  const fields = `${texts.map(escapeText).join(' ')} ${size} `
  const length = FIXED + fields.length + (size || 0)
  const front = String.fromCharCode(length >> 14, (length >> 7) & 127, length & 127)
  return front + fields + (options ?? '')
}

// Once for each task that is claimed: every byte is read by itself, for a view or an iterator costs more than all of it.
export function decodeDefinition(bytes: Buffer): Definition {
  const flags = byteAt(bytes, 6)
  const createdAt = numberAt(bytes, 0) * 2 ** 24 + numberAt(bytes, 3)
  const priority = (byteAt(bytes, 7) << 7) + byteAt(bytes, 8)
  if (flags & SHORT) {
    let space = FIXED_SHORT
    while (byteAt(bytes, space) !== SPACE) space++
    const kind = space === FIXED_SHORT ? '' : unescapeText(bytes.toString('latin1', FIXED_SHORT, space))
    const payload = payloadOf(bytes, flags, space + 1)
    return { createdAt, priority, kind, codec: 'json', options: undefined, payload }
  }
  const length = (byteAt(bytes, 9) << 14) + (byteAt(bytes, 10) << 7) + byteAt(bytes, 11)
  const header = bytes.toString('utf8', FIXED, length)
  const [kind = '', , , codec = '', size = ''] = header.split(' ', 5)
  return {
    createdAt,
    priority,
    kind: unescapeText(kind),
    codec: unescapeText(codec),
    options: size === '' ? undefined : header.slice(fifthSpace(header) + 1),
    payload: payloadOf(bytes, flags, length),
  }
}

const byteAt = (bytes: Buffer, at: number): number => bytes[at] as number
const numberAt = (bytes: Buffer, at: number): number =>
  (byteAt(bytes, at) << 16) + (byteAt(bytes, at + 1) << 8) + byteAt(bytes, at + 2)
const payloadOf = (bytes: Buffer, flags: number, from: number): Encoded =>
  flags & BYTES ? new Uint8Array(bytes.subarray(from)) : bytes.toString('utf8', from)

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
