/** Random numbers that are the same for the same seed. */
export interface Random {
  readonly below: (limit: number) => number
  readonly pick: <T>(all: readonly T[]) => T
}

/** Minimal standard (Park and Miller). */
export function randomOf(seed: number): Random {
  let state = (seed % 2_147_483_646) + 1
  const below = (limit: number): number => {
    state = (state * 48_271) % 2_147_483_647
    return Math.floor((state / 2_147_483_647) * limit)
  }
  return { below, pick: <T>(all: readonly T[]) => all[below(all.length)] as T }
}
