/** The memory storage against the contract. */
import { test } from 'vitest'
import { memoryStorage } from './memory-storage.js'
import { ManualClock } from './testing/manual-clock.js'
import { storageSuite } from './testing/storage-suite.js'

storageSuite({
  test,
  open: async () => {
    const clock = new ManualClock()
    const storage = memoryStorage({ clock })
    return { storage, advance: (ms) => clock.advanceAsync(ms), close: () => storage.close() }
  },
})
