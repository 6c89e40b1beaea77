/** Numbers that look random and are the same in every run with the same seed. */

export interface SeededRandom {
  /** From 0 to 1, without 1. */
  next(): number
  /** A whole number from 0 to `bound`, without `bound`. */
  below(bound: number): number
}

/** The generator mulberry32 of Tommy Ettinger (public domain): 32 bits of state, good enough to choose faults by. */
export function seededRandom(seed: number): SeededRandom {
  let state = seed >>> 0
  const next = (): number => {
    state = (state + 0x6d2b79f5) >>> 0
    let bits = Math.imul(state ^ (state >>> 15), state | 1)
    bits ^= bits + Math.imul(bits ^ (bits >>> 7), bits | 61)
    return ((bits ^ (bits >>> 14)) >>> 0) / 2 ** 32
  }
  return { next, below: (bound) => Math.floor(next() * bound) }
}
