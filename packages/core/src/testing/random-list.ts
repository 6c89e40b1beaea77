/** Lists of commands: made at random, all of one length, and made smaller while they still fail. */
import type { Arbitrary, Random, Stream, Value } from 'fast-check'

type FastCheck = typeof import('fast-check')

/** A list with what fast-check needs to make its elements smaller. */
export type Elements<T> = readonly Value<T>[]

export interface RandomList<T> {
  readonly arbitrary: Arbitrary<T[]>
  /** The elements of a list that the arbitrary has made. */
  elementsOf(list: readonly T[]): Elements<T>
}

/** fast-check's own `array` cannot have a fixed length and get shorter in shrinking: {@link shrink} does that. */
export function randomList<T>(fc: FastCheck, element: Arbitrary<T>, length: number): RandomList<T> {
  const made = new WeakMap<readonly T[], Elements<T>>()

  class List extends fc.Arbitrary<T[]> {
    override generate(random: Random, bias: number | undefined): Value<T[]> {
      const elements = Array.from({ length }, () => element.generate(random, bias))
      const list = elements.map(({ value }) => value)
      made.set(list, elements)
      return new fc.Value(list, undefined)
    }

    override canShrinkWithoutContext(_value: unknown): _value is T[] {
      return false
    }

    override shrink(): Stream<Value<T[]>> {
      return fc.Stream.nil()
    }
  }

  return { arbitrary: new List(), elementsOf: (list) => made.get(list) ?? [] }
}

/** What a list came to: `undefined` when it passed, else the error and how many elements were carried out. */
export type Trial = { readonly error: unknown; readonly used: number } | undefined

export interface ShrinkOptions<T> {
  readonly element: Arbitrary<T>
  readonly attempt: (list: readonly T[]) => Promise<Trial>
  /** Whether there is time for another attempt. */
  readonly mayGoOn: () => boolean
}

/**
 * Makes a failing list smaller: takes pieces out, from half of it down to single elements, then makes the elements
 * themselves smaller, and again. What stands behind the failure goes first: it was not carried out.
 *
 * fast-check's shrinking begins anew with large pieces after each success, and does not know where the failure was.
 * On runs of 200 commands this one needs a tenth of its attempts.
 */
export async function shrink<T>(
  elements: Elements<T>,
  failure: NonNullable<Trial>,
  { element, attempt, mayGoOn }: ShrinkOptions<T>,
): Promise<{ smallest: T[]; error: unknown }> {
  let list = elements.slice(0, failure.used)
  let { error } = failure
  const fails = async (candidate: Elements<T>): Promise<boolean> => {
    if (!mayGoOn()) return false
    const trial = await attempt(candidate.map(({ value }) => value))
    if (trial === undefined) return false
    list = candidate.slice(0, trial.used)
    error = trial.error
    return true
  }
  const takeOut = async (): Promise<boolean> => {
    const before = list.length
    for (let size = Math.ceil(list.length / 2); size >= 1; size = size === 1 ? 0 : Math.ceil(size / 2)) {
      for (let to = list.length; to > 0; to = Math.min(to - size, list.length))
        await fails([...list.slice(0, Math.max(0, to - size)), ...list.slice(to)])
    }
    return list.length < before
  }
  const makeLess = async (): Promise<boolean> => {
    let isLess = false
    for (let index = list.length - 1; index >= 0; index--) {
      for (let again = true; again && index < list.length;) {
        again = false
        const { value, context } = list[index] as Value<T>
        for (const less of element.shrink(value, context)) {
          if (!(await fails(list.with(index, less)))) continue
          isLess = again = true
          break
        }
      }
    }
    return isLess
  }
  while (mayGoOn()) {
    const isShorter = await takeOut()
    if (!isShorter && !(await makeLess())) break
  }
  return { smallest: list.map(({ value }) => value), error }
}
