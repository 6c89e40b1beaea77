/**
 * A map from task ids, made for what most of them are: ids that `TaskIds` made one after another.
 *
 * Such an id tells its block and its place there, so an array for each block holds the values and nothing has to be
 * hashed. What is left of a nearly empty block moves into an ordinary map. Ids of another form are in one of their own.
 */
import { blockOf, idAt, isInBlockOf, placeOf } from './task.js'

/** A block with fewer values than this share of its places is given up. */
const SPARSE = 1 / 16
/** Places that an array may be filled up by for one value. */
const GAP = 64

interface Block<V> {
  /** An id of the block. */
  readonly example: string
  readonly values: (V | undefined)[]
  size: number
}

export class IdMap<V extends object> {
  readonly #blocks = new Map<string, Block<V>>()
  /** The block that was used last. It is kept while it is empty, for more may come. */
  #last: Block<V> | undefined
  /** Values of blocks that were given up, and of places far from others. */
  readonly #left = new Map<string, V>()
  /** Values of ids that tell no place. */
  readonly #others = new Map<string, V>()
  #inBlocks = 0

  get size(): number {
    return this.#inBlocks + this.#left.size + this.#others.size
  }

  /** Blocks that have an array of their own. */
  get blocks(): number {
    return this.#blocks.size
  }

  get(id: string): V | undefined {
    const place = placeOf(id)
    if (place < 0) return this.#others.get(id)
    const value = this.#find(id)?.values[place]
    return value === undefined && this.#left.size > 0 ? this.#left.get(id) : value
  }

  has(id: string): boolean {
    return this.get(id) !== undefined
  }

  set(id: string, value: V): void {
    const place = placeOf(id)
    if (place < 0) {
      this.#others.set(id, value)
      return
    }
    const known = this.#find(id)
    // Who chooses such an id makes no block of it, and an array is not filled up for one value.
    if (place > (known?.values.length ?? 0) + GAP) {
      this.#left.set(id, value)
      return
    }
    const block = known ?? this.#add(id)
    const { values } = block
    while (values.length < place) values.push(undefined)
    if (values[place] === undefined) {
      block.size++
      this.#inBlocks++
      this.#left.delete(id)
    }
    values[place] = value
  }

  /** Takes the value out. @returns it, `undefined` when there is none */
  take(id: string): V | undefined {
    const place = placeOf(id)
    if (place < 0) return takeFrom(this.#others, id)
    const block = this.#find(id)
    const value = block?.values[place]
    if (block === undefined || value === undefined)
      return this.#left.size === 0 ? undefined : takeFrom(this.#left, id)
    block.values[place] = undefined
    block.size--
    this.#inBlocks--
    return value
  }

  clear(): void {
    this.#blocks.clear()
    this.#last = undefined
    this.#left.clear()
    this.#others.clear()
    this.#inBlocks = 0
  }

  /** Every value. Of those that come or go meanwhile it may tell or not. */
  *values(): Generator<V, undefined, undefined> {
    for (const { values } of this.#blocks.values()) {
      for (const value of values) if (value !== undefined) yield value
    }
    yield* this.#left.values()
    yield* this.#others.values()
    return undefined
  }

  #find(id: string): Block<V> | undefined {
    const last = this.#last
    if (last !== undefined && isInBlockOf(last.example, id)) return last
    const block = this.#blocks.get(blockOf(id))
    if (block !== undefined) this.#turnTo(block)
    return block
  }

  #add(id: string): Block<V> {
    const block: Block<V> = { example: id, values: [], size: 0 }
    this.#blocks.set(blockOf(id), block)
    this.#turnTo(block)
    return block
  }

  /** The block before is looked at now: while it was the last, it may have lost what it had. */
  #turnTo(block: Block<V>): void {
    const before = this.#last
    this.#last = block
    if (before === undefined) return
    const { example, values, size } = before
    if (size > 0 && size >= values.length * SPARSE) return
    this.#blocks.delete(blockOf(example))
    this.#inBlocks -= size
    for (let place = 0; place < values.length; place++) {
      const value = values[place]
      if (value !== undefined) this.#left.set(idAt(example, place), value)
    }
  }
}

function takeFrom<V>(map: Map<string, V>, id: string): V | undefined {
  const value = map.get(id)
  if (value !== undefined) map.delete(id)
  return value
}
