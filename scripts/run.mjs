/**
 * The commands of the root package.json: `node scripts/run.mjs <command> [arguments]`. Each does the set-up that it
 * needs first, so that a machine with nothing but Node and npm can use them on a fresh clone.
 *
 * The program asked for runs in this very process: terminal, signals and exit code are its own.
 */
import { spawnSync } from 'node:child_process'
import { join } from 'node:path'
import { pathToFileURL } from 'node:url'
import { checkPackages } from './check-packages.mjs'
import { say, setup, setupModelChecker, setupRedis, SetupError } from './setup.mjs'
import { root, workspacePackages } from './workspace.mjs'

const eslint = 'node_modules/eslint/bin/eslint.js'
const prettier = 'node_modules/prettier/bin/prettier.cjs'
const tsc = 'node_modules/typescript/bin/tsc'

/** @type {Record<string, (args: string[]) => unknown>} */
const commands = {
  build: () => say('everything is built'),
  start: (args) => become('apps/demo/dist/index.js', args),
  bench: (args) => become('bench/dist/index.js', args),
  soak: (args) => become('tests/dist/soak.js', args),
  faults: (args) => become('tests/dist/faults.js', args),
  test: async (args) => {
    await setupModelChecker()
    await setupRedis()
    await become('node_modules/vitest/vitest.mjs', ['run', ...reporters(args), ...args])
  },
  model: async (args) => {
    await setupModelChecker()
    await become('tests/model/run.mjs', args)
  },
  lint: () => inTurn([eslint, '--max-warnings=0', '.'], [prettier, '--check', '.']),
  format: () => inTurn([eslint, '--fix', '.'], [prettier, '--write', '.']),
  types: () => inTurn([tsc, '-b', root, ...workspacePackages().map(({ dir }) => dir)]),
  check: () => checkPackages(),
}

const [name = '', ...args] = process.argv.slice(2)
const command = commands[name]
if (command) {
  try {
    await setup()
    await command(args)
  } catch (error) {
    if (!(error instanceof SetupError)) throw error
    say(error.message)
    process.exitCode = 1
  }
} else {
  say(`unknown command "${name}"; there are ${Object.keys(commands).join(', ')}`)
  process.exitCode = 1
}

/**
 * Goes on as the program in `file`.
 *
 * @param {string} file
 * @param {string[]} args
 */
async function become(file, args) {
  const path = join(root, file)
  process.argv.splice(1, Infinity, path, ...args)
  await import(pathToFileURL(path).href)
}

/**
 * Runs Node programs one after the other, all of them even if one fails, and fails when one did.
 *
 * @param {string[][]} programs
 */
function inTurn(...programs) {
  for (const program of programs) {
    const { status } = spawnSync(process.execPath, program, { cwd: root, stdio: 'inherit' })
    if (status !== 0) process.exitCode = 1
  }
}

/**
 * The count of tests is printed whatever reporter the caller prefers.
 *
 * @param {string[]} args
 */
function reporters(args) {
  const own = `--reporter=${join(root, 'scripts', 'count-tests.mjs')}`
  return args.some((arg) => arg.startsWith('--reporter')) ? [own] : ['--reporter=default', own]
}
