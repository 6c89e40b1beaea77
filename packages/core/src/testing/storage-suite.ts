/**
 * The published conformance suite: whoever writes a storage runs it, and a storage that passes works with every
 * tier.
 *
 * Each rule of the contract has a number, and each number is one case; `docs/reference/contract.md` lists them.
 * The suite asserts with `node:assert` and takes the caller's `test`, so it runs under any test runner. It never
 * looks at a clock of its own: all waiting goes through {@link Opened.advance}, so a storage with a real clock can
 * pass too.
 */
import { Bench } from './harness.js'
import type { Opened, Rule } from './harness.js'
import { claimRules } from './suite-claim.js'
import { debounceRules } from './suite-debounce.js'
import { dependencyRules } from './suite-dependencies.js'
import { enqueueRules } from './suite-enqueue.js'
import { expiryRules } from './suite-expiry.js'
import { groupRules } from './suite-groups.js'
import { isolationRules } from './suite-isolation.js'
import { noticeRules } from './suite-notices.js'
import { operationRules } from './suite-operations.js'
import { orderRules } from './suite-order.js'
import { placeRules } from './suite-places.js'
import { queueRules } from './suite-queue.js'
import { reclaimRules } from './suite-reclaim.js'
import { recordRules } from './suite-records.js'
import { retentionRules } from './suite-retention.js'
import { sessionRules } from './suite-session.js'
import { settleRules } from './suite-settle.js'
import { suspensionRules } from './suite-suspension.js'
import { upkeepRules } from './suite-upkeep.js'
import { waitingRules } from './suite-waiting.js'
import { workRules } from './suite-work.js'

export interface StorageSuiteOptions {
  /** The runner's function: `test` of node:test, vitest or jest. The name starts with the number of the rule. */
  readonly test: (name: string, body: () => Promise<void>) => void
  /** Opens a fresh, empty storage for one case. */
  readonly open: () => Promise<Opened>
  /**
   * The longest time, in ms, that a case may move the clock. Cases that need more are left out: a storage with a
   * real clock gives 130 000. Default: no limit.
   */
  readonly patience?: number
}

/** Declares every case of the suite. */
export function storageSuite(options: StorageSuiteOptions): void {
  const { test, open, patience = Infinity } = options
  const known = new Set<string>()
  const rule: Rule = (number, sentence, body, { moves = 0 } = {}) => {
    if (known.has(number)) throw new Error(`two rules have the number ${number}`)
    known.add(number)
    if (moves > patience) return
    test(`${number} ${sentence}`, async () => {
      const opened = await open()
      const bench = new Bench(opened)
      try {
        await opened.storage.open()
        await body(bench)
      } finally {
        await bench.close()
      }
    })
  }
  placeRules(rule)
  orderRules(rule)
  operationRules(rule)
  queueRules(rule)
  enqueueRules(rule)
  debounceRules(rule)
  expiryRules(rule)
  workRules(rule)
  settleRules(rule)
  claimRules(rule)
  sessionRules(rule)
  reclaimRules(rule)
  dependencyRules(rule)
  suspensionRules(rule)
  groupRules(rule)
  waitingRules(rule)
  retentionRules(rule)
  upkeepRules(rule)
  recordRules(rule)
  noticeRules(rule)
  isolationRules(rule)
}
