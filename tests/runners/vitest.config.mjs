/** Only this folder's program; without a file of its own, vitest would take the repository's. */
export default { test: { include: ['vitest.test.mjs'] } }
