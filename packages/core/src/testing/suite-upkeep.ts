/** U: upkeep in bounded pieces, and the two invariants under random use. */
import assert from 'node:assert/strict'
import { isFinal } from '../task.js'
import type { TaskState } from '../task.js'
import type { BenchNode } from './bench-node.js'
import type { Bench, Rule } from './harness.js'
import { ending, HOUR, ids, idsOf, OUTCOMES, SECOND, SHORT_TTL, sketch } from './sketch.js'

const LIMIT = 3
/** Steps of random use between two looks at every task. */
const CHECK_EVERY = 5

export function upkeepRules(rule: Rule): void {
  rule('U1', 'drain makes due tasks ready, no more than its limit in a call', async (bench) => {
    await bench.enqueue([ids('t', 7).map((id) => sketch({ id, delay: SECOND }))])
    assert.equal(await bench.storage.upkeep.drain(bench.ref, LIMIT), 'done')
    await bench.advance(2 * SECOND)
    await inSteps(bench, 'pending', 7)
  })

  rule('U2', 'drain ends what has expired, no more than its limit in a call', async (bench) => {
    await bench.enqueue([ids('t', 7).map((id) => sketch({ id, expiresIn: SECOND }))])
    await bench.advance(2 * SECOND)
    await inSteps(bench, 'cancelled', 7)
  })

  rule('U3', 'drain sweeps cancelled groups, no more than its limit in a call', async (bench) => {
    const members = ids('t', 450)
    await bench.enqueue([members.map((id) => sketch({ id, group: { id: 'run' } }))])
    await bench.storage.queue.setGroup(bench.ref, 'run', { cancelled: true })
    await inSteps(bench, 'cancelled', 450, 50)
  })

  rule('U4', 'drain of a queue with nothing to do, or of one that never was, is done', async (bench) => {
    assert.equal(await bench.storage.upkeep.drain({ tenant: 'no', queue: 'body' }, 10), 'done')
    await bench.add('a', { id: 'b', delay: HOUR }, { id: 'c', hold: true })
    assert.equal(await bench.storage.upkeep.drain(bench.ref, 10), 'done')
    assert.deepEqual(await bench.states('a', 'b', 'c'), ['pending', 'scheduled', 'blocked'])
  })

  rule('U5', 'upkeep that two do at once is done once', async (bench) => {
    const peer = await bench.peer()
    const node = await bench.node({ ttl: SHORT_TTL })
    await bench.add(...ids('t', 20))
    await node.claim(20)
    await bench.add(...ids('due', 20).map((id) => ({ id, delay: 100 })))
    await bench.advance(0.7 * SHORT_TTL)
    await bench.storage.upkeep.reclaim(10)
    await bench.advance(0.5 * SHORT_TTL)
    const reclaimed: string[] = []
    for (let turn = 0; turn < 4; turn++) {
      const reports = await Promise.all([bench.storage, peer].map((storage) => storage.upkeep.reclaim(10)))
      for (const report of reports) reclaimed.push(...idsOf(report.reclaimed))
      await Promise.all([bench.storage, peer].map((storage) => storage.upkeep.drain(bench.ref, 10)))
    }
    assert.deepEqual(reclaimed.sort(), ids('t', 20))
    assert.equal((await bench.storage.queue.counts(bench.ref)).pending, 40)
    await bench.census()
  })

  rule('U6', 'reconcile finds nothing to mend in a storage that was used by the rules', async (bench) => {
    await bench.makeIn('failed')
    await bench.makeIn('running')
    await bench.makeIn('blocked')
    await bench.add({ id: 'rare', kind: 'rare' }, { id: 'member', group: { id: 'run' } })
    await bench.storage.queue.setGroup(bench.ref, 'run', { paused: true })
    await (await bench.hand()).claim(5)
    const before = await bench.census()
    assert.equal((await bench.storage.upkeep.reconcile(bench.ref, 100)).mended, 0)
    assert.deepEqual(await bench.census(), before)
  })

  rule('U7', 'opening twice, and closing twice, does no harm', async (bench) => {
    const info = await bench.storage.open()
    assert.ok(Number.isInteger(info.format) && info.runId.length > 0)
    assert.ok(Number.isSafeInteger(info.generator) && info.generator >= 0)
    await bench.add('task')
    const again = await bench.storage.open()
    // The same object: pools that share a storage share what makes their ids.
    assert.equal(again, info)
    assert.equal(await bench.stateOf('task'), 'pending')
    assert.ok(bench.storage.name.length > 0 && typeof bench.storage.durable === 'boolean')
    await bench.storage.close()
    await bench.storage.close()
  })

  for (const seed of [1, 2, 3]) {
    rule(
      `U-invariants-${seed}`,
      'under random use each task stands in one place, and of each claim one settlement at most is accepted',
      (bench) => new Monkey(bench, seed).run(200),
      { moves: 60 * SECOND },
    )
  }
}

async function inSteps(bench: Bench, state: TaskState, count: number, limit = LIMIT): Promise<void> {
  let before = (await bench.storage.queue.counts(bench.ref))[state]
  for (let calls = 0, answer = 'more'; answer === 'more'; calls++) {
    assert.ok(calls < 100, 'drain does not end')
    answer = await bench.storage.upkeep.drain(bench.ref, limit)
    const now = (await bench.storage.queue.counts(bench.ref))[state]
    assert.ok(now - before <= limit, `${now - before} in one call`)
    before = now
  }
  assert.equal(before, count)
  assert.equal(await bench.storage.upkeep.drain(bench.ref, limit), 'done')
}

/** Does anything at random that the contract permits, and looks now and then whether the invariants hold. */
class Monkey {
  readonly #bench: Bench
  #random: number
  readonly #known = new Set<string>()
  readonly #final = new Map<string, TaskState>()
  /** Claims of which an end was accepted, as `id token`. */
  readonly #ended = new Map<string, string>()
  /** Every claim that was ever made, so that late settlements come too. */
  readonly #claims: { node: BenchNode; id: string; token: number }[] = []
  #nodes: BenchNode[] = []
  #count = 0

  constructor(bench: Bench, seed: number) {
    this.#bench = bench
    this.#random = seed * 7919
  }

  async run(steps: number): Promise<void> {
    for (let step = 1; step <= steps; step++) {
      await this.#step()
      if (step % CHECK_EVERY === 0) await this.#check()
    }
    await this.#bench.storage.queue.pause(this.#bench.ref, false)
    await this.#bench.drain()
    assert.equal((await this.#bench.storage.upkeep.reconcile(this.#bench.ref, 1000)).mended, 0)
    await this.#check()
  }

  /** A whole number below `bound`, the same in every run with the seed. */
  #below(bound: number): number {
    this.#random = (Math.imul(this.#random, 1_664_525) + 1_013_904_223) >>> 0
    return Math.floor((this.#random / 2 ** 32) * bound)
  }

  #pick<T>(from: readonly T[]): T | undefined {
    return from[this.#below(from.length)]
  }

  #id(): string {
    return this.#pick([...this.#known]) ?? 'nobody'
  }

  async #step(): Promise<void> {
    const { storage, ref } = this.#bench
    const dice = this.#below(100)
    if (dice < 25) return this.#enqueue()
    if (dice < 45) return this.#claim()
    if (dice < 70) return this.#settle()
    if (dice < 74) await storage.upkeep.drain(ref, 10)
    else if (dice < 77) await storage.upkeep.reclaim(5)
    else if (dice < 82) await this.#bench.advance(this.#below(400))
    else if (dice < 84) await storage.queue.pause(ref, this.#below(2) === 0)
    else if (dice < 86)
      await storage.queue.setGroup(ref, `g${this.#below(3)}`, { paused: this.#below(2) === 0 })
    else if (dice < 87) await storage.queue.setGroup(ref, `g${this.#below(30)}`, { cancelled: true })
    else if (dice < 88) await this.#endSession()
    else await this.#operate()
  }

  async #enqueue(): Promise<void> {
    const unit = Array.from({ length: 1 + this.#below(4) }, () => {
      const id = `t${this.#count++}`
      return sketch({
        id,
        kind: this.#below(8) ? 'job' : 'rare',
        priority: this.#below(3),
        ...(this.#below(4) === 0 && { delay: this.#below(2 * SECOND) }),
        ...(this.#below(3) === 0 &&
          this.#known.size > 0 && {
            after: {
              ids: [this.#id(), this.#id()],
              on: this.#below(2) ? ('final' as const) : ('success' as const),
            },
          }),
        ...(this.#below(12) === 0 && { hold: true }),
        ...(this.#below(5) === 0 && { debounce: { key: `k${this.#below(3)}`, maxWait: SECOND } }),
        ...(this.#below(6) === 0 && { expiresIn: 1 + this.#below(3 * SECOND) }),
        ...(this.#below(4) === 0 && { group: { id: `g${this.#below(3)}`, exempt: this.#below(4) === 0 } }),
      })
    })
    const outcomes = await this.#bench.enqueue([unit])
    for (const [index, outcome] of outcomes.entries()) {
      if (outcome === 'accepted') this.#known.add(unit[index]?.id ?? '')
    }
  }

  async #claim(): Promise<void> {
    if (this.#nodes.length < 3) {
      const kinds = this.#below(2) ? ['job', 'rare'] : ['job']
      this.#nodes.push(await this.#bench.node({ ttl: SHORT_TTL, maxReclaims: 1, kinds }))
    }
    const node = this.#pick(this.#nodes)
    if (!node) return
    const reply = await node.work({ want: 1 + this.#below(4), renew: this.#below(3) > 0 })
    if (reply.status === 'gone') {
      this.#nodes = this.#nodes.filter((one) => one !== node)
      return
    }
    // Now and then the reply is lost.
    if (this.#below(6) === 0) return
    node.learn(reply)
    for (const { id, token } of reply.claimed) {
      assert.ok(this.#known.has(id), `${id} is claimed and unknown`)
      this.#claims.push({ node, id, token })
    }
    if (this.#below(2)) await node.work({ marks: reply.claimed.map(({ id, token }) => ({ id, token })) })
  }

  async #settle(): Promise<void> {
    const claim = this.#below(3) ? this.#claims.at(-1 - this.#below(5)) : this.#pick(this.#claims)
    if (!claim) return
    const { node, id, token } = claim
    const outcome = this.#pick(OUTCOMES) ?? 'success'
    const other = this.#id()
    const forms = [
      { until: SECOND },
      { after: { ids: [other], on: 'final' } },
      { after: { ids: [other], on: 'success' }, until: 500 },
    ]
    // A task that waits for itself or for its own children would wait for ever; only the caller can know.
    const suspended = other < id ? this.#pick(forms) : forms[0]
    const details =
      outcome === 'suspended'
        ? suspended
        : outcome === 'retry'
          ? { in: this.#below(SECOND) }
          : outcome === 'failed'
            ? { cancelGroup: this.#below(20) === 0 }
            : {}
    const before = await this.#bench.stateOf(id)
    const reply = await node.work({ settlements: [ending({ id, token }, outcome, details)] })
    if (reply.stale.length > 0) return
    const key = `${id} ${token}`
    const record = await this.#bench.storage.queue.get(this.#bench.ref, [id])
    if (this.#ended.has(key) || before !== 'running') {
      assert.equal(record[0]?.state ?? 'unknown', before, `a repeat moved ${id}`)
      assert.ok(this.#ended.has(key), `${key} was accepted without its entry`)
    } else {
      this.#ended.set(key, outcome)
    }
  }

  async #operate(): Promise<void> {
    const id = this.#id()
    const operation = this.#pick([
      'cancel',
      'promote',
      'reprioritize',
      'remove',
      'retry',
      'complete',
      'revoke',
    ] as const)
    const outcome = await this.#bench.operate(operation ?? 'cancel', id)
    if (outcome !== 'done') return
    if (operation === 'retry') this.#final.delete(id)
    if (operation === 'remove') {
      this.#final.delete(id)
      this.#known.delete(id)
    }
  }

  async #endSession(): Promise<void> {
    const node = this.#pick(this.#nodes)
    if (node && (await this.#bench.storage.session.end(node.session, 2)) === 'done') {
      this.#nodes = this.#nodes.filter((one) => one !== node)
    }
  }

  async #check(): Promise<void> {
    const places = await this.#bench.census()
    assert.deepEqual(
      [...places.keys()].sort(),
      [...this.#known].sort(),
      'a task was lost, or came from nowhere',
    )
    for (const [id, state] of places) {
      const before = this.#final.get(id)
      if (before !== undefined) assert.equal(state, before, `${id} was ${before} already`)
      else if (isFinal(state)) this.#final.set(id, state)
    }
  }
}
