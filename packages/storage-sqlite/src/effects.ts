/**
 * What others are to be told of a step, once it is committed.
 */

/** The state of {@link Effects} at an instant, to go back to. */
export type EffectsMark = readonly [
  Map<string, number>,
  number | undefined,
  number | undefined,
  number,
  number,
  number,
]

export class Effects {
  readonly q: number
  /** How many tasks of each kind became ready. */
  #ready = new Map<string, number>()
  #best: number | undefined
  #earliest: number | undefined
  /** Ids that became final or were removed, with who waits for them. */
  readonly finals: [watcher: string, id: string][] = []
  /** Ids of sessions from which something was taken. */
  readonly taken: string[] = []
  /** Ids of sessions that may have work now for another reason. */
  readonly wake: string[] = []
  /** Ids of sessions that are over: they sleep no more. */
  readonly over: string[] = []

  /** Whether releases or sweeps are left for later steps. */
  backlog = false

  constructor(q: number) {
    this.q = q
  }

  ready(kind: string, score: number): void {
    this.#ready.set(kind, (this.#ready.get(kind) ?? 0) + 1)
    if (this.#best === undefined || score < this.#best) this.#best = score
  }

  /** How many tasks of each kind became ready. */
  get kinds(): ReadonlyMap<string, number> {
    return this.#ready
  }

  /** The most urgent score that became ready. */
  get best(): number | undefined {
    return this.#best
  }

  /** The earliest instant at which something new is due. */
  get earliest(): number | undefined {
    return this.#earliest
  }

  due(at: number): void {
    if (this.#earliest === undefined || at < this.#earliest) this.#earliest = at
  }

  final(watcher: string, id: string): void {
    this.finals.push([watcher, id])
  }

  mark(): EffectsMark {
    const { finals, taken, wake } = this
    return [new Map(this.#ready), this.#best, this.#earliest, finals.length, taken.length, wake.length]
  }

  restore(mark: EffectsMark): void {
    const [ready, best, earliest, finals, taken, wake] = mark
    this.#ready = ready
    this.#best = best
    this.#earliest = earliest
    this.finals.length = finals
    this.taken.length = taken
    this.wake.length = wake
  }
}
