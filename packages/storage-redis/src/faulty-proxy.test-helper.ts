/**
 * A proxy between clients and a Redis server that loses, delays and repeats what passes, or falls silent without closing
 * anything, as networks do.
 */
import { systemClock } from '@neotask/core'
import { once } from 'node:events'
import { connect, createServer, type AddressInfo, type Server, type Socket } from 'node:net'

/** What happens to a call. */
export type Fate = 'pass' | 'lose the reply' | 'delay the reply' | 'send twice' | 'send again later'

/** How long a reply is delayed, in ms. */
const DELAY = 700
/** When a call is sent again later, in ms. */
const AGAIN = 2_500

export class FaultyProxy {
  readonly #port: number
  readonly #server: Server
  readonly #sockets = new Set<Socket>()
  readonly #again = new Set<Promise<void>>()
  /** Decides about each call of a script; what else is sent passes. */
  fate: () => Fate = () => 'pass'

  private constructor(port: number) {
    this.#port = port
    this.#server = createServer((client) => this.#join(client))
  }

  /** @param port of the server */
  static async start(port: number): Promise<FaultyProxy> {
    const proxy = new FaultyProxy(port)
    proxy.#server.listen(0, '127.0.0.1')
    await once(proxy.#server, 'listening')
    return proxy
  }

  get url(): string {
    return `redis://127.0.0.1:${(this.#server.address() as AddressInfo).port}`
  }

  /** What stands now passes nothing on any more, and is not closed. New connections work. */
  silence(): void {
    for (const socket of this.#sockets) socket.emit('silence')
  }

  /** Resolves when all that is to be sent again was sent and answered. */
  async settled(): Promise<void> {
    await Promise.all(this.#again)
  }

  async stop(): Promise<void> {
    this.#server.close()
    for (const socket of this.#sockets) socket.destroy()
    await once(this.#server, 'close')
  }

  #join(client: Socket): void {
    const server = connect(this.#port, '127.0.0.1')
    this.#sockets.add(client)
    let isSilent = false
    client.on('silence', () => (isSilent = true))
    const end = (): void => {
      this.#sockets.delete(client)
      client.destroy()
      server.destroy()
    }
    for (const socket of [client, server]) socket.on('error', end).on('close', end).setNoDelay(true)

    /** Of calls that were sent, in the order of their replies. */
    const sent: (Fate | 'swallow')[] = []
    let held: Promise<void> | undefined
    const reply = async (frame: Buffer): Promise<void> => {
      if (frame[0] !== PUSH) {
        const fate = sent.shift()
        if (fate === 'swallow') return
        if (fate === 'lose the reply') {
          end()
          return
        }
        if (fate === 'delay the reply') await later(DELAY)
      }
      client.write(frame)
    }
    const requests = new Frames((frame) => {
      const fate = /evalsha/i.test(frame.subarray(0, 24).toString('latin1')) ? this.fate() : 'pass'
      // A subscription is answered by pushes.
      if (!/subscribe/i.test(frame.subarray(0, 24).toString('latin1'))) sent.push(fate)
      server.write(frame)
      if (fate === 'send twice') {
        sent.push('swallow')
        server.write(frame)
      }
      if (fate === 'send again later') this.#sendAgain(frame)
    })
    const replies = new Frames((frame) => {
      // A delayed reply holds back those behind it.
      held = held === undefined ? reply(frame) : held.then(() => reply(frame))
    })
    client.on('data', (data) => isSilent || requests.push(data))
    server.on('data', (data) => isSilent || replies.push(data))
  }

  /** Sends it on a connection of its own, and reads no reply. */
  #sendAgain(frame: Buffer): void {
    const sent = later(AGAIN).then(async () => {
      const aside = connect(this.#port, '127.0.0.1')
      aside.on('error', () => undefined).on('data', () => aside.destroy())
      aside.write(frame)
      await once(aside, 'close')
      this.#again.delete(sent)
    })
    this.#again.add(sent)
  }
}

const later = (ms: number): Promise<void> =>
  new Promise((resolve) => systemClock.after(ms, resolve, { hold: true }))

const PUSH = '>'.charCodeAt(0)
const AGGREGATES = '*~>'
const BULKS = '$=!'

/** Cuts a stream of the protocol into whole requests or replies. */
class Frames {
  readonly #each: (frame: Buffer) => void
  #rest: Buffer = Buffer.alloc(0)

  constructor(each: (frame: Buffer) => void) {
    this.#each = each
  }

  push(data: Buffer): void {
    this.#rest = this.#rest.length === 0 ? data : Buffer.concat([this.#rest, data])
    for (let end = endOf(this.#rest, 0); end > 0; end = endOf(this.#rest, 0)) {
      this.#each(this.#rest.subarray(0, end))
      this.#rest = this.#rest.subarray(end)
    }
  }
}

/** Where the value that begins there ends, or -1 when it has not come whole. */
function endOf(data: Buffer, start: number): number {
  const line = data.indexOf('\r\n', start)
  if (line < 0) return -1
  const type = String.fromCharCode(data[start] as number)
  const length = Number(data.subarray(start + 1, line).toString('latin1'))
  let end = line + 2
  if (BULKS.includes(type)) {
    if (length >= 0) end += length + 2
    return end > data.length ? -1 : end
  }
  const parts = AGGREGATES.includes(type) ? length : type === '%' ? length * 2 : 0
  for (let part = 0; part < parts && end > 0; part++) end = endOf(data, end)
  return end
}
