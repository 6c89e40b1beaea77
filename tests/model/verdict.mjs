/** What a search has to show, and whether it does. */

/**
 * A configuration has to hold in an exhaustive search; a fault has to be caught, by whichever invariant.
 *
 * @param {Pick<import('./spin.mjs').Outcome, 'violated' | 'incomplete'>} outcome
 * @param {boolean} isFault
 * @returns {string | undefined}  Why it does not, if so.
 */
export function problemOf({ violated, incomplete }, isFault) {
  if (violated !== undefined) return isFault ? undefined : `violates ${violated}`
  if (incomplete !== undefined) return `not exhaustive: ${incomplete}`
  return isFault ? 'not caught' : undefined
}
