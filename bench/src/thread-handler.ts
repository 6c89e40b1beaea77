/** The handler of the suite `threads`, for NeoTask and its peers alike: computes for `ms`, and gives `i` back. */
import type { Payload } from './workload.js'

export default function handler(data: Payload & { ms?: number }): number {
  const end = data.ms === undefined ? 0 : performance.now() + data.ms
  while (performance.now() < end);
  return data.i
}
