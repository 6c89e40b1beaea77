/**
 * The command line: what may stand on it, and one clear line for what may not. Nothing is opened or created here, so a
 * command that is refused leaves no trace.
 */
import { parseDuration } from '@neotask/core'
import { realpath, stat } from 'node:fs/promises'
import { availableParallelism } from 'node:os'
import { dirname, resolve } from 'node:path'
import { parseArgs, type ParseArgsConfig } from 'node:util'

export interface Arguments {
  /** The real path of the folder to read. */
  readonly folder: string
  /** `memory:`, `sqlite:` and an absolute path, or a Redis URL; `undefined` for a file of the demo's own. */
  readonly storage: string | undefined
  readonly concurrency: number
  readonly fresh: boolean
  /** ms between two looks at the folder; `undefined` to read its files once. */
  readonly every: number | undefined
}

/** What relative paths start from, and the folder that is read when none is named. */
export interface Surroundings {
  readonly base: string
  readonly defaultFolder: string
}

/** Somebody typed something that cannot be meant; the message is one line and says what. */
export class UsageError extends Error {
  override readonly name = 'UsageError'
}

const MOST = 1000
/** ms between two looks, at least and at most. */
const SHORTEST = 1000
const LONGEST = 86_400_000
/** Hashing is done here and compression in Node's four threads, so more does not help much. */
const DEFAULT_CONCURRENCY = Math.max(4, 2 * availableParallelism())

export const HELP: string = `Reads every file below a folder and computes its SHA-256, lines, words and gzip ratio, as tasks of a NeoTask pool
that live in a SQLite file. Stop it, even with kill -9, and start it again: it goes on where it was. With --redis, start
it in several terminals: they share the work.

  npm start -- [folder] [options]

  folder             what to read; default: this repository.
                     .git, node_modules and dist are left out, symbolic links are not followed
  --storage <url>    where the tasks live: sqlite:./tasks.db, or memory: to keep nothing;
                     default: a SQLite file in the cache folder, one for each folder read
  --redis <url>      tasks in a Redis server instead: redis://localhost:6379
  --concurrency <n>  files worked on at the same time, 1 to ${MOST}; default: ${DEFAULT_CONCURRENCY}
  --every <duration> look at the folder again and again, by a schedule that lives with the tasks: 5s, 1h30m
  --fresh            start over, whatever was finished before
  --help             show this

Exit codes: 0 finished (files that could not be read are listed), 2 bad arguments, 130 stopped with Ctrl-C.
`

const OPTIONS = {
  storage: { type: 'string' },
  redis: { type: 'string' },
  concurrency: { type: 'string' },
  every: { type: 'string' },
  fresh: { type: 'boolean', default: false },
  help: { type: 'boolean', short: 'h', default: false },
} as const satisfies ParseArgsConfig['options']

/** Reads the command line. Rejects with a {@link UsageError}. */
export async function readArguments(
  args: readonly string[],
  { base, defaultFolder }: Surroundings,
): Promise<Arguments | 'help'> {
  const { values, positionals } = split(args)
  if (values.help) return 'help'
  if (positionals.length > 1) {
    throw new UsageError(`one folder at a time, got ${positionals.length}: ${positionals.join(' ')}`)
  }
  const [folder] = positionals
  return {
    concurrency: readConcurrency(values.concurrency),
    storage: await readPlace(values, base),
    fresh: values.fresh,
    every: values.every === undefined ? undefined : readEvery(values.every),
    folder: await readFolder(folder === undefined ? defaultFolder : resolve(base, folder), folder),
  }
}

function split(args: readonly string[]): ReturnType<typeof parse> {
  try {
    return parse(args)
  } catch (error) {
    // Node's messages go on to explain what `--` is for.
    const [first = ''] = (error as Error).message.split(/\. |\n/)
    throw new UsageError(first.charAt(0).toLowerCase() + first.slice(1))
  }
}

const parse = (args: readonly string[]) =>
  parseArgs({ args: [...args], options: OPTIONS, allowPositionals: true, strict: true })

function readConcurrency(text: string | undefined): number {
  if (text === undefined) return DEFAULT_CONCURRENCY
  const value = /^\d+$/.test(text) ? Number(text) : NaN
  if (value >= 1 && value <= MOST) return value
  throw new UsageError(`--concurrency: expected a whole number from 1 to ${MOST}, got '${text}'`)
}

function readEvery(text: string): number {
  try {
    return parseDuration(text, '--every', { min: SHORTEST, max: LONGEST })
  } catch (error) {
    throw new UsageError((error as Error).message)
  }
}

/** Where the tasks live, by whichever of the two options is there. */
async function readPlace(
  { storage, redis }: { storage?: string; redis?: string },
  base: string,
): Promise<string | undefined> {
  if (redis === undefined) return storage === undefined ? undefined : await readStorage(storage, base)
  if (storage !== undefined) throw new UsageError('--storage and --redis: one of them, got both')
  return readRedis(redis)
}

function readRedis(url: string): string {
  const { protocol, hostname } = URL.canParse(url) ? new URL(url) : { protocol: '', hostname: '' }
  if ((protocol === 'redis:' || protocol === 'rediss:') && hostname !== '') return url
  throw new UsageError(`--redis: expected a URL such as redis://localhost:6379, got '${url}'`)
}

async function readStorage(url: string, base: string): Promise<string> {
  if (url === 'memory:') return url
  const given = /^sqlite:(?:\/\/(?=\/))?(.+)$/.exec(url)?.[1]
  if (given === undefined || given === ':memory:') {
    throw new UsageError(`--storage: expected sqlite:<file> or memory:, got '${url}'`)
  }
  const file = resolve(base, given)
  if ((await kindOf(dirname(file))) !== 'folder') {
    throw new UsageError(`--storage: there is no folder ${dirname(file)} for the file`)
  }
  if ((await kindOf(file)) === 'folder') throw new UsageError(`--storage: ${file} is a folder, not a file`)
  return `sqlite:${file}`
}

async function readFolder(path: string, given = path): Promise<string> {
  if (given === '') throw new UsageError('the folder has an empty name')
  const kind = await kindOf(path)
  if (kind === 'folder') return await realpath(path)
  throw new UsageError(kind === 'file' ? `${given} is a file, not a folder` : `there is no folder ${given}`)
}

async function kindOf(path: string): Promise<'folder' | 'file' | 'nothing'> {
  try {
    return (await stat(path)).isDirectory() ? 'folder' : 'file'
  } catch {
    return 'nothing'
  }
}
