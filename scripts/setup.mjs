/**
 * Everything between a fresh clone and a usable one: the Node version, the pinned pnpm, the dependencies (with
 * better-sqlite3 compiled where no prebuilt file can be had) and the build of what changed.
 *
 * Later calls cost a fraction of a second: the install is skipped while `node_modules/.setup-stamp` matches the
 * lockfile, the manifests and the Node version, and turbo builds only what changed. Calls at the same time take
 * turns. Every line goes to stderr, because stdout belongs to the program that runs afterwards.
 */
import { spawn, spawnSync } from 'node:child_process'
import { createHash } from 'node:crypto'
import { existsSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { delimiter, join, resolve } from 'node:path'
import { missingTools } from '../tests/model/spin.mjs'
import { takeTurn } from './turn.mjs'
import { readManifest, root, workspacePackages } from './workspace.mjs'

const stampFile = join(root, 'node_modules', '.setup-stamp')
const { engines, packageManager = '' } = readManifest(root)

/** A step failed for a reason that the message explains; a stack trace would add nothing. */
export class SetupError extends Error {}

/** Makes the checkout ready to run, test and publish from. Rejects with a {@link SetupError}. */
export async function setup() {
  checkNode()
  const leave = await takeTurn(join(root, '.setup.lock'), say)
  try {
    await installDependencies()
    await run('building the packages', 'turbo', ['run', 'build', '--output-logs=errors-only'])
  } finally {
    leave()
  }
}

/**
 * Gets what the model of the protocol is checked with, where that takes no question. Where it is not to be had, who needs
 * it says what to install. Never rejects.
 */
export async function setupModelChecker() {
  if (missingTools().length === 0) return
  await install('installing Spin, which checks the model of the protocol', ['spin', 'gcc', 'libc6-dev'])
}

/**
 * Gets the server that the Redis storage is tested with, unless `NEOTASK_TEST_REDIS_URL` names one, and openssl for its
 * certificate. As above: whoever needs them says what to install, and it never rejects.
 */
export async function setupRedis() {
  const missing = []
  if (!process.env.NEOTASK_TEST_REDIS_URL && spawnSync('redis-server', ['--version']).error)
    missing.push('redis-server')
  if (spawnSync('openssl', ['version']).error) missing.push('openssl')
  if (missing.length > 0) await install(`installing ${missing.join(' and ')}, which tests start`, missing)
}

/**
 * Installs Debian's packages, as root.
 *
 * @param {string} label
 * @param {string[]} packages
 */
async function install(label, packages) {
  if (process.getuid?.() !== 0 || !existsSync('/usr/bin/apt-get')) return
  const leave = await takeTurn(join(root, '.setup.lock'), say)
  try {
    const patience = [
      '-o',
      'Acquire::Retries=0',
      '-o',
      'Acquire::http::Timeout=10',
      '-o',
      'DPkg::Lock::Timeout=30',
    ]
    const command = ['install', '-y', '--no-install-recommends', ...packages]
    const aptGet = (/** @type {string[]} */ args) =>
      run(label, 'apt-get', [...patience, ...args], {
        isOptional: true,
        // In this run level no package starts its service.
        env: { DEBIAN_FRONTEND: 'noninteractive', RUNLEVEL: '1' },
      })
    // The lists of packages may be old, or not there at all; to fetch them takes longer than the installation.
    if (!(await aptGet(command)) && (await aptGet(['update']))) await aptGet(command)
  } finally {
    leave()
  }
}

/** @param {string} line */
export function say(line) {
  process.stderr.write(`[setup] ${line}\n`)
}

function checkNode() {
  const [needMajor = 0, needMinor = 0] = engines.node.match(/\d+/g)?.map(Number) ?? []
  const [major = 0, minor = 0] = process.versions.node.split('.').map(Number)
  if (major < needMajor || (major === needMajor && minor < needMinor)) {
    throw new SetupError(`NeoTask needs Node ${engines.node}; this is ${process.version}.`)
  }
}

async function installDependencies() {
  const stamp = fingerprint()
  if (existsSync(stampFile) && readFileSync(stampFile, 'utf8') === stamp) return
  rmSync(stampFile, { force: true })

  // The first install cannot rely on a pnpm on the PATH, nor on corepack; npx comes with npm.
  const pnpm = ['--yes', packageManager]
  const label = `installing dependencies with ${packageManager}, which may have to compile SQLite`
  try {
    await run(label, 'npx', [...pnpm, 'install', '--frozen-lockfile', '--config.confirm-modules-purge=false'])
    // pnpm finds nothing to do after a change of Node version, but the compiled file belongs to the old one.
    if (sqliteProblem()) {
      await run('compiling SQLite for this Node', 'npx', [...pnpm, '-r', 'rebuild', 'better-sqlite3'])
    }
  } catch (error) {
    const installed = existsSync(join(sqliteHome, 'node_modules', 'better-sqlite3'))
    if (!installed || !sqliteProblem()) throw error
  }
  const problem = sqliteProblem()
  if (problem) throw new SetupError(`${problem}\n${compilerHint}`)
  writeFileSync(stampFile, stamp)
}

/** Changes whenever an install could give another result. */
function fingerprint() {
  const hash = createHash('sha256').update(
    `${process.version} ${process.versions.modules} ${process.platform} ${process.arch}`,
  )
  const inputs = ['pnpm-lock.yaml', 'pnpm-workspace.yaml', '.npmrc'].map((name) => join(root, name))
  const manifests = [root, ...workspacePackages().map(({ dir }) => dir)].map((dir) =>
    join(dir, 'package.json'),
  )
  for (const file of [...inputs, ...manifests]) hash.update(`\0${file}\0`).update(readFileSync(file))
  return hash.digest('hex')
}

const sqliteHome = join(root, 'packages', 'storage-sqlite')
const compilerHint = `better-sqlite3 has to be compiled here. That takes python3, make and g++ (Debian: apt-get install python3
make g++; macOS: xcode-select --install) and the headers of this very Node ${process.version}: they are downloaded,
unless npm_config_nodedir names the folder whose include/node/node.h belongs to it.`

/**
 * Why better-sqlite3 does not load, if so. Asks a process of its own, since a module built for another Node may take the
 * process down with it.
 */
function sqliteProblem() {
  const program = `
    try { new (require('better-sqlite3'))(':memory:').close() }
    catch (error) { console.log(error.message.split(' Tried:')[0]); process.exit(1) }`
  const { status, signal, stdout } = spawnSync(process.execPath, ['-e', program], {
    cwd: sqliteHome,
    encoding: 'utf8',
  })
  if (status === 0) return undefined
  return `better-sqlite3 does not load: ${signal ?? stdout.trim()}`
}

/**
 * Runs a program of the repository, telling what it is doing once that takes more than a second and showing its output
 * only when it fails.
 *
 * @param {string} label  What is being done, as in "building the packages".
 * @param {string} command
 * @param {string[]} args
 * @param {{ isOptional?: boolean, env?: NodeJS.ProcessEnv }} [options]  Of what is optional nobody hears that it failed.
 * @returns {Promise<boolean>}  Whether it succeeded; rejects when it did not and is not optional.
 */
function run(label, command, args, { isOptional = false, env } = {}) {
  const start = performance.now()
  const seconds = () => `${((performance.now() - start) / 1000).toFixed(0)} s`
  let announced = false
  const announce = setTimeout(() => {
    announced = true
    say(label)
  }, 1_000)
  const remind = setInterval(() => say(`still ${label} (${seconds()})`), 30_000)

  /** @type {Promise<boolean>} */
  const ended = new Promise((done, fail) => {
    const child = spawn(command, args, {
      cwd: root,
      env: { ...toolEnvironment(), ...env },
      shell: process.platform === 'win32',
      stdio: ['ignore', 'pipe', 'pipe'],
    })
    /** @type {Buffer[]} */
    const output = []
    child.stdout.on('data', (chunk) => output.push(chunk))
    child.stderr.on('data', (chunk) => output.push(chunk))
    child.once('error', (error) => {
      if (isOptional) return done(false)
      fail(new SetupError(`${command} could not be started: ${error.message}`))
    })
    child.once('close', (code, signal) => {
      if (code === 0) {
        if (announced) say(`done in ${seconds()}`)
        return done(true)
      }
      if (isOptional) return done(false)
      process.stderr.write(Buffer.concat(output))
      fail(new SetupError(`failed while ${label} (${command} ended with ${signal ?? code})`))
    })
  })
  return ended.finally(() => {
    clearTimeout(announce)
    clearInterval(remind)
  })
}

/**
 * The environment for the repository's own tools: they find each other (turbo calls pnpm), and native code is compiled
 * with headers that are here already, if some belong to this Node, instead of downloaded ones. npm passes `nodedir` of
 * the user's configuration on, which may belong to another Node.
 */
function toolEnvironment() {
  /** @type {NodeJS.ProcessEnv} */
  const env = { ...process.env, TURBO_TELEMETRY_DISABLED: '1' }
  const path = Object.keys(env).find((name) => name.toUpperCase() === 'PATH') ?? 'PATH'
  env[path] = [join(root, 'node_modules', '.bin'), env[path]].join(delimiter)
  const nodedir = [env.npm_config_nodedir, resolve(process.execPath, '..', '..')].find(hasHeadersOfThisNode)
  if (nodedir) env.npm_config_nodedir = nodedir
  return env
}

function hasHeadersOfThisNode(/** @type {string | undefined} */ prefix) {
  const header = join(prefix ?? '', 'include', 'node', 'node_version.h')
  if (!prefix || !existsSync(header)) return false
  const [major = ''] = process.versions.node.split('.')
  return new RegExp(`define NODE_MAJOR_VERSION ${major}\\b`).test(readFileSync(header, 'utf8'))
}
