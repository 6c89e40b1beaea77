/**
 * How long things took: counts, mean and percentiles of any number of durations in a fixed 7.8 kB.
 *
 * From 1 µs to 7 days a percentile is within 2 % of the true one; what lies outside counts as the nearest of
 * the two. `record` allocates nothing.
 *
 * The buckets are log-linear: each power of two is cut into equal parts, so that a bucket is found from the bits
 * of a number and the relative error is the same everywhere. This is the algorithm of HdrHistogram (Gil Tene,
 * https://hdrhistogram.github.io/HdrHistogram/).
 */

/** What {@link Histogram} has to say; times in ms, all 0 when nothing was recorded. */
export interface HistogramSnapshot {
  readonly count: number
  readonly mean: number
  readonly min: number
  readonly max: number
  readonly p50: number
  readonly p90: number
  readonly p95: number
  readonly p99: number
}

/** Parts of each power of two. The largest relative error is 1 / (2 * PARTS + 1) = 1.96 %. */
const PARTS = 25
const MIN_US = 1
const MAX_US = 7 * 24 * 3600 * 1e6

// A number seen as its bits. One pair for the module: nothing else runs between writing and reading it.
const asNumber = new Float64Array(1)
const asBits = new Uint32Array(asNumber.buffer)
/** Where the sign, the exponent and the first 20 bits of the fraction are: 1, or 0 on a big-endian machine. */
const HIGH = new Uint8Array(Uint16Array.of(1).buffer)[0] === 1 ? 1 : 0

/** @param us from MIN_US to MAX_US */
function bucketOf(us: number): number {
  asNumber[0] = us
  const high = asBits[HIGH] as number
  const power = (high >>> 20) - 1023
  return power * PARTS + (((high & 0xfffff) * PARTS) >>> 20)
}

/** The value that stands for all of its bucket: the one with the same relative distance to both its ends. */
function valueOf(bucket: number): number {
  const unit = 2 ** Math.floor(bucket / PARTS)
  const low = unit * (1 + (bucket % PARTS) / PARTS)
  const high = low + unit / PARTS
  return (2 * low * high) / (low + high)
}

const BUCKETS = bucketOf(MAX_US) + 1

export class Histogram {
  readonly #counts = new Float64Array(BUCKETS)
  #count = 0
  #sum = 0
  #min = Infinity
  #max = 0

  /** @param ms negative counts as 0, NaN is ignored */
  record(ms: number): void {
    if (ms !== ms) return
    const us = ms * 1000
    const bucket = us >= MAX_US ? BUCKETS - 1 : us > MIN_US ? bucketOf(us) : 0
    ;(this.#counts[bucket] as number)++
    const counted = ms > 0 ? ms : 0
    this.#count++
    this.#sum += counted
    if (counted < this.#min) this.#min = counted
    if (counted > this.#max) this.#max = counted
  }

  get count(): number {
    return this.#count
  }

  /** Exact, in ms; 0 when nothing was recorded. */
  get mean(): number {
    return this.#count === 0 ? 0 : this.#sum / this.#count
  }

  /** Exact, in ms; 0 when nothing was recorded. */
  get min(): number {
    return this.#count === 0 ? 0 : this.#min
  }

  /** Exact, in ms; 0 when nothing was recorded. */
  get max(): number {
    return this.#max
  }

  /**
   * The value that `p` percent of the recorded ones do not exceed (nearest rank).
   *
   * @param p from 0 (the least) to 100 (the largest)
   * @returns ms; 0 when nothing was recorded
   */
  percentile(p: number): number {
    if (!(p >= 0 && p <= 100)) throw new RangeError(`percentile: expected a number from 0 to 100, got ${p}`)
    const rank = Math.ceil((p / 100) * this.#count)
    // The ends are known exactly.
    if (rank <= 1) return this.min
    if (rank >= this.#count) return this.#max
    let seen = 0
    let bucket = 0
    while ((seen += this.#counts[bucket] as number) < rank) bucket++
    return Math.min(Math.max(valueOf(bucket) / 1000, this.#min), this.#max)
  }

  /** Adds everything that another one recorded. */
  merge(other: Histogram): void {
    for (let bucket = 0; bucket < BUCKETS; bucket++) {
      ;(this.#counts[bucket] as number) += other.#counts[bucket] as number
    }
    this.#count += other.#count
    this.#sum += other.#sum
    this.#min = Math.min(this.#min, other.#min)
    this.#max = Math.max(this.#max, other.#max)
  }

  reset(): void {
    this.#counts.fill(0)
    this.#count = 0
    this.#sum = 0
    this.#min = Infinity
    this.#max = 0
  }

  toJSON(): HistogramSnapshot {
    return {
      count: this.count,
      mean: this.mean,
      min: this.min,
      max: this.max,
      p50: this.percentile(50),
      p90: this.percentile(90),
      p95: this.percentile(95),
      p99: this.percentile(99),
    }
  }
}
