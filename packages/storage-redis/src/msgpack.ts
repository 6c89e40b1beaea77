/**
 * MessagePack, as far as the scripts speak it: what few tasks have, and options, travel as one packed value, which Lua
 * reads and writes with its own `cmsgpack`.
 *
 * Texts and bytes are both written as texts, since the one of Redis knows nothing else; they are read as bytes, and
 * whoever knows what they are says so.
 */

export type Packable =
  string | number | Uint8Array | readonly Packable[] | { readonly [key: string]: Packable | undefined }

export type Unpacked = number | boolean | null | Buffer | readonly Unpacked[] | UnpackedMap
export type UnpackedMap = ReadonlyMap<string, Unpacked>

/** Fields that are undefined are left out. */
export function pack(value: Packable): Buffer {
  const parts: Buffer[] = []
  write(value, parts)
  return parts.length === 1 ? (parts[0] as Buffer) : Buffer.concat(parts)
}

function write(value: Packable, parts: Buffer[]): void {
  if (typeof value === 'number') parts.push(packNumber(value))
  else if (typeof value === 'string') writeBytes(Buffer.from(value), parts)
  else if (value instanceof Uint8Array) writeBytes(value, parts)
  else if (isList(value)) {
    parts.push(header(0x90, 15, 0xdc, value.length))
    for (const item of value) write(item, parts)
  } else {
    const entries = Object.entries(value).filter(([, item]) => item !== undefined)
    parts.push(header(0x80, 15, 0xde, entries.length))
    for (const [key, item] of entries) {
      writeBytes(Buffer.from(key), parts)
      write(item as Packable, parts)
    }
  }
}

const isList = (value: Packable): value is readonly Packable[] => Array.isArray(value)

function packNumber(value: number): Buffer {
  if (Number.isInteger(value) && value >= 0 && value < 128) return Buffer.from([value])
  const buffer = Buffer.allocUnsafe(9)
  if (Number.isSafeInteger(value)) {
    buffer[0] = 0xd3
    buffer.writeBigInt64BE(BigInt(value), 1)
  } else {
    buffer[0] = 0xcb
    buffer.writeDoubleBE(value, 1)
  }
  return buffer
}

function writeBytes(bytes: Uint8Array, parts: Buffer[]): void {
  parts.push(header(0xa0, 31, 0xda, bytes.length), Buffer.from(bytes.buffer, bytes.byteOffset, bytes.length))
}

/** A length: within the first byte, in two more, or in four more. */
function header(short: number, most: number, long: number, length: number): Buffer {
  if (length <= most) return Buffer.from([short + length])
  if (length <= 0xffff) return Buffer.from([long, length >> 8, length & 0xff])
  const buffer = Buffer.allocUnsafe(5)
  buffer[0] = long + 1
  buffer.writeUInt32BE(length, 1)
  return buffer
}

export function unpack(bytes: Buffer): Unpacked {
  return new Reader(bytes).read()
}

/** What few tasks have. Lua packs an empty table as a list. */
export function unpackMap(bytes: Buffer): UnpackedMap {
  const value = bytes.length === 0 ? undefined : unpack(bytes)
  return value instanceof Map ? (value as UnpackedMap) : new Map<string, Unpacked>()
}

class Reader {
  readonly #bytes: Buffer
  #at = 0

  constructor(bytes: Buffer) {
    this.#bytes = bytes
  }

  read(): Unpacked {
    const type = this.#uint(1)
    if (type < 0x80) return type
    if (type < 0x90) return this.#map(type & 15)
    if (type < 0xa0) return this.#list(type & 15)
    if (type < 0xc0) return this.#take(type & 31)
    if (type >= 0xe0) return type - 0x100
    switch (type) {
      case 0xc0:
        return null
      case 0xc2:
      case 0xc3:
        return type === 0xc3
      case 0xca:
        return this.#take(4).readFloatBE()
      case 0xcb:
        return this.#take(8).readDoubleBE()
      case 0xcc:
      case 0xcd:
      case 0xce:
        return this.#uint(2 ** (type - 0xcc))
      case 0xcf:
        return Number(this.#take(8).readBigUInt64BE())
      case 0xd0:
      case 0xd1:
      case 0xd2: {
        const size = 2 ** (type - 0xd0)
        return this.#take(size).readIntBE(0, size)
      }
      case 0xd3:
        return Number(this.#take(8).readBigInt64BE())
      case 0xd9:
        return this.#take(this.#uint(1))
      case 0xda:
        return this.#take(this.#uint(2))
      case 0xdb:
        return this.#take(this.#uint(4))
      case 0xdc:
        return this.#list(this.#uint(2))
      case 0xdd:
        return this.#list(this.#uint(4))
      case 0xde:
        return this.#map(this.#uint(2))
      case 0xdf:
        return this.#map(this.#uint(4))
      default:
        throw new TypeError(`no such type of MessagePack: ${type}`)
    }
  }

  #uint(size: number): number {
    return this.#take(size).readUIntBE(0, size)
  }

  #take(size: number): Buffer {
    const from = this.#at
    this.#at += size
    return this.#bytes.subarray(from, this.#at)
  }

  #list(length: number): Unpacked[] {
    return Array.from({ length }, () => this.read())
  }

  #map(length: number): UnpackedMap {
    const map = new Map<string, Unpacked>()
    for (let i = 0; i < length; i++) {
      const key = (this.read() as Buffer).toString()
      map.set(key, this.read())
    }
    return map
  }
}
