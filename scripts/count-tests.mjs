/**
 * A vitest reporter whose only output is the last line of the run, `tests: 12 passed, 0 failed, 1 skipped`, counted over
 * all packages and including type tests. It makes a run fail in which no test ran at all.
 */
export default class CountTests {
  /** @param {import('vitest/node').Vitest} vitest */
  onInit(vitest) {
    if (vitest.config.watch) return
    // At exit, so that nothing that tears down after the run prints below.
    process.once('exit', () => {
      const { passed, failed, skipped } = this.#count
      if (failed > 0 || passed === 0) process.exitCode ||= 1
      process.stdout.write(`tests: ${passed} passed, ${failed} failed, ${skipped} skipped\n`)
    })
  }

  /**
   * @param {readonly import('vitest/node').TestModule[]} modules
   * @param {readonly unknown[]} unhandledErrors
   */
  onTestRunEnd(modules, unhandledErrors) {
    const count = { passed: 0, failed: unhandledErrors.length, skipped: 0 }
    for (const module of modules) {
      const states = [...module.children.allTests()].map((test) => test.result().state)
      // A file that could not be loaded, or a hook that threw, fails without a failed test.
      if (module.state() === 'failed' && !states.includes('failed')) count.failed++
      for (const state of states) count[state === 'pending' ? 'skipped' : state]++
    }
    this.#count = count
  }

  #count = { passed: 0, failed: 0, skipped: 0 }
}
