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

export function decodeDefinition(bytes: Buffer): Definition {
  const [flags = 0, high = 0, low = 0, long = 0, middle = 0, short = 0] = bytes.subarray(6, FIXED)
  const common = { createdAt: bytes.readUIntBE(0, 6), priority: (high << 7) + low }
  const payloadFrom = (from: number): Encoded =>
    flags & BYTES ? new Uint8Array(bytes.subarray(from)) : bytes.toString('utf8', from)
  if (flags & SHORT) {
    const space = bytes.indexOf(' ', FIXED_SHORT)
    const kind = unescapeText(bytes.toString('latin1', FIXED_SHORT, space))
    return { ...common, kind, codec: 'json', options: undefined, payload: payloadFrom(space + 1) }
  }
  const length = (long << 14) + (middle << 7) + short
  const header = bytes.toString('utf8', FIXED, length)
  const [kind = '', , , codec = '', size = ''] = header.split(' ', 5)
  const options = size === '' ? undefined : header.slice(fifthSpace(header) + 1)
  return {
    ...common,
    kind: unescapeText(kind),
    codec: unescapeText(codec),
    options,
    payload: payloadFrom(length),
  }
}

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
