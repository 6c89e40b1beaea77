/** A worker in a process of its own: told its peer, port and concurrency, it says what it was given, in pieces. */
import { PEERS, type Peer } from './redis-peers.js'

const [name = '', port, concurrency] = process.argv.slice(2)
let heard: number[] = []
const tell = (): void => {
  if (heard.length === 0) return
  process.send?.(heard)
  heard = []
}
setInterval(tell, 20)
const stop = await (PEERS[name] as Peer).work(Number(port), Number(concurrency), ({ i }) => {
  heard.push(i)
})
process.send?.('ready')
process.once('message', () => {
  tell()
  void stop().finally(() => process.exit())
})
