/**
 * The packed definition of a task: all that does not change while it lives, in one value that Lua takes apart with a few
 * byte reads. Six bytes of the time of its creation, which the script puts in front; one of flags; two of the priority,
 * three of the header's length (seven bits each, so that they are text too); then kind, watcher, nonce, codec and the
 * options' length, with a space behind each, the options, and the payload.
 */
import type { Encoded, NewTask } from '@neotask/core'

const WATCHED = 1
const BYTES = 2
const FIXED = 12
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
  const isText = typeof payload === 'string'
  const size = options === undefined ? '' : Buffer.byteLength(options)
  const fields = [kind, watcher, nonce, codec].map(escapeText).join(' ')
  const header = `${fields} ${size} `
  const length = FIXED + header.length + (size || 0)
  const flags = FLAGS + (watcher === '' ? 0 : WATCHED) + (isText ? 0 : BYTES)
  const front = String.fromCharCode(
    flags,
    priority >> 7,
    priority & 127,
    length >> 14,
    (length >> 7) & 127,
    length & 127,
  )
  const text = front + header + (options ?? '')
  return isText ? text + payload : Buffer.concat([Buffer.from(text), payload])
}

export function decodeDefinition(bytes: Buffer): Definition {
  const [flags = 0, high = 0, low = 0, long = 0, middle = 0, short = 0] = bytes.subarray(6, FIXED)
  const length = (long << 14) + (middle << 7) + short
  const header = bytes.toString('utf8', FIXED, length)
  const [kind = '', , , codec = '', size = ''] = header.split(' ', 5)
  const options = size === '' ? undefined : header.slice(fifthSpace(header) + 1)
  return {
    createdAt: bytes.readUIntBE(0, 6),
    priority: (high << 7) + low,
    kind: unescapeText(kind),
    codec: unescapeText(codec),
    options,
    payload: flags & BYTES ? new Uint8Array(bytes.subarray(length)) : bytes.toString('utf8', length),
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
