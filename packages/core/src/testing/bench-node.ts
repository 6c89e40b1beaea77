/**
 * A node that keeps the protocol's rules about tokens and acknowledgements, for the cases of the storage suite.
 */
import assert from 'node:assert/strict'
import type { Claimed, Mark, Storage, WorkReply, WorkRequest } from '../storage.js'
import { ending } from './sketch.js'
import type { Outcome } from './sketch.js'

/** A node, as far as the storage can see one. */
export class BenchNode {
  readonly session: string
  /** The newest token of which the claim's reply is known. */
  ack = 0
  /** The newest notices that were carried out. */
  ackTaken = 0
  readonly #storage: Storage
  readonly #tokens = new Map<string, number>()

  constructor(storage: Storage, session: string) {
    this.#storage = storage
    this.session = session
  }

  /** The same session, seen through another instance of the storage. */
  through(storage: Storage): BenchNode {
    const node = new BenchNode(storage, this.session)
    node.ack = this.ack
    node.ackTaken = this.ackTaken
    for (const [id, token] of this.#tokens) node.#tokens.set(id, token)
    return node
  }

  /** One call, with the reply as it comes: nothing is taken note of. */
  work(part: Partial<WorkRequest> = {}): Promise<WorkReply> {
    return this.#storage.session.work({
      session: this.session,
      ack: this.ack,
      ackTaken: this.ackTaken,
      marks: [],
      reports: [],
      settlements: [],
      renew: false,
      want: 0,
      ...part,
    })
  }

  /** Takes note of a reply: what was claimed, and its token. */
  learn(reply: WorkReply): void {
    for (const task of reply.claimed) if (task.token > this.ack) this.#tokens.set(task.id, task.token)
    this.ack = Math.max(this.ack, reply.token)
  }

  async claim(want = 1, part: Partial<WorkRequest> = {}): Promise<readonly Claimed[]> {
    const reply = await this.work({ want, ...part })
    assert.equal(reply.status, 'ok')
    this.learn(reply)
    return reply.claimed
  }

  /** Claims call by call until nothing more comes. */
  async claimAll(): Promise<Claimed[]> {
    const all: Claimed[] = []
    for (let calls = 0; calls < 1000; calls++) {
      const claimed = await this.claim(100)
      if (claimed.length === 0) return all
      all.push(...claimed)
    }
    assert.fail('the claims do not end')
  }

  /** The mark of the last claim of this task, also when it was taken away meanwhile. */
  mark(id: string): Mark {
    const token = this.#tokens.get(id)
    assert.ok(token !== undefined, `${id} was not claimed`)
    return { id, token }
  }

  async start(...ids: string[]): Promise<void> {
    const reply = await this.work({ marks: ids.map((id) => this.mark(id)) })
    assert.equal(reply.status, 'ok')
  }

  /** Ends the attempt; it must be accepted. */
  async settle(id: string, outcome: Outcome, details: object = {}): Promise<void> {
    const reply = await this.work({ settlements: [ending(this.mark(id), outcome, details)] })
    assert.deepEqual(reply.stale, [], `the settlement of ${id} is stale`)
  }

  /** Whether a settlement that comes now is stale. */
  async isStale(id: string, outcome: Outcome = 'success', details: object = {}): Promise<boolean> {
    const reply = await this.work({ settlements: [ending(this.mark(id), outcome, details)] })
    return reply.stale.length === 1
  }

  beat(): Promise<WorkReply> {
    return this.work({ renew: true })
  }
}
