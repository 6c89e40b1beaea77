/** Reads the replies of scripts, whose shape stands beside each script. */
import type { Reply } from './connection.js'

/** Scripts tell an empty list as an empty text, which costs them less. */
export const listOf = (reply: Reply | undefined): readonly Reply[] =>
  Array.isArray(reply) ? (reply as readonly Reply[]) : []
export const bytesOf = (reply: Reply | undefined): Buffer => reply as Buffer
export const textOf = (reply: Reply | undefined): string => (reply as Buffer).toString()
/** Of an integer, or of one that is written as text because it may be large or have a fraction. */
export const numberOf = (reply: Reply | undefined): number =>
  typeof reply === 'number' ? reply : Number((reply as Buffer).toString())
export const textsOf = (reply: Reply | undefined): string[] => listOf(reply).map(textOf)
export const numbersOf = (reply: Reply | undefined): number[] => listOf(reply).map(numberOf)
