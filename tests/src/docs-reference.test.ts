/** The reference names what the code has, and nothing else; every link of the documentation leads somewhere. */
import { existsSync, readdirSync, readFileSync } from 'node:fs'
import { dirname, join } from 'node:path'
import { describe, expect, it } from 'vitest'
import { pages, root } from './docs-pages.js'

const read = (...path: string[]) => readFileSync(join(root, ...path), 'utf8')
const source = (name: string) => read('packages', 'core', 'src', name)
const page = (name: string) => read('docs', 'reference', name)

/** The headings of this level that are one piece of code: `### \`name\``. */
function headings(text: string, level: number): string[] {
  return [...text.matchAll(new RegExp(`^#{${level}} \`([^\`]+)\`$`, 'gm'))].map((match) => match[1] ?? '')
}

/** The part of the page below a heading of level 2. */
function section(text: string, title: string): string {
  const found = text.split(/^## /m).find((part) => part.startsWith(`${title}\n`))
  if (found === undefined) throw new Error(`no section ${title}`)
  return found
}

/** The members of an interface, from its source. */
function members(text: string, name: string): string[] {
  const body = new RegExp(`export interface ${name}\\b[^{]*\\{\\n([^]*?)\\n\\}`).exec(text)?.[1]
  if (body === undefined) throw new Error(`no interface ${name}`)
  return [...body.matchAll(/^ {2}(?:readonly )?'?([\w.]+)'?\??:/gm)].map((match) => match[1] ?? '')
}

describe('errors.md', () => {
  it('has one heading for each code, and no other', () => {
    const union = /export type ErrorCode =\n([^]*?)\n\n/.exec(source('errors.ts'))?.[1] ?? ''
    const codes = [...union.matchAll(/'(\w+)'/g)].map((match) => match[1] ?? '')
    expect(codes.length).toBeGreaterThan(20)
    expect(headings(page('errors.md'), 3).sort()).toEqual(codes.sort())
  })
})

describe('options.md', () => {
  const text = page('options.md')

  it.each([
    ['Options of a pool', 'options.ts', 'PoolOptions', ['executor', 'tasks']],
    ['Options of threads', 'thread-options.ts', 'ThreadOptions', []],
    ['Options of submit', 'options.ts', 'SubmitOptions', []],
    [
      'Options of defineTask',
      'define-task.ts',
      'TaskSpec',
      members(source('define-task.ts'), 'TaskDefaults'),
    ],
    ['Options of retry', 'retry-policy.ts', 'RetryOptions', []],
    ['Options of close', 'task-pool.ts', 'CloseOptions', []],
    ['Options of list', 'task-pool.ts', 'ListOptions', []],
  ])('%s names every option', (title, file, name, more) => {
    expect(headings(section(text, title), 3).sort()).toEqual([...members(source(file), name), ...more].sort())
  })

  it('names every option of schedules', () => {
    const file = read('packages', 'scheduler', 'src', 'schedule-options.ts')
    const options = [...members(file, 'ScheduleOptions'), ...members(file, 'CronOptions')]
    expect(headings(section(text, 'Options of schedules'), 3).sort()).toEqual(options.sort())
  })

  it('names every option of the SQLite storage', () => {
    const options = members(
      read('packages', 'storage-sqlite', 'src', 'sqlite-storage.ts'),
      'SqliteStorageOptions',
    )
    expect(headings(section(text, 'Options of sqliteStorage'), 3).sort()).toEqual(options.sort())
  })

  it('names every option of the Redis storage', () => {
    const options = members(
      read('packages', 'storage-redis', 'src', 'redis-storage.ts'),
      'RedisStorageOptions',
    )
    expect(headings(section(text, 'Options of redisStorage'), 3).sort()).toEqual(options.sort())
  })
})

describe('events.md', () => {
  it('has a row for each event, and no other', () => {
    const events = members(source('pool-events.ts'), 'PoolEvents')
    const rows = [...read('docs', 'guide', 'events.md').matchAll(/^\| `([a-z.]+)` \|/gm)].map(
      (match) => match[1] ?? '',
    )
    expect(events.length).toBeGreaterThan(5)
    expect(rows.sort()).toEqual(events.sort())
  })
})

describe('redis-keys.md', () => {
  const text = page('redis-keys.md')
  const folder = join(root, 'packages', 'storage-redis', 'src', 'lua')
  const scripts = new Map(readdirSync(folder).map((file) => [file, readFileSync(join(folder, file), 'utf8')]))

  /** What stands as code in the first column of the tables. */
  const rows = (title: string): string[] =>
    [
      ...section(text, title)
        .split(/^### /m)[0]!
        .matchAll(/^\|( `[^|]+) \|/gm),
    ].flatMap(([, cell = '']) => [...cell.matchAll(/`([^`]+)`/g)].map((match) => match[1] ?? ''))
  /** Names of keys that scripts put together, without what depends on a task: `done:s` and `done:` are one. */
  const keysBehind = (prefix: string): string[] => {
    const found = [...scripts.values()].flatMap((script) => [
      ...script.matchAll(new RegExp(`\\b${prefix} \\.\\. '([a-z:]+)'`, 'g')),
    ])
    return [...new Set(found.map(([, name = '']) => name.replace(/^(done|kept|look):.*/, '$1:')))].sort()
  }

  it.each([
    ['Of the shard', 'S'],
    ['Of a queue', 'Q'],
  ])('%s: names every key, and no other', (title, prefix) => {
    expect(
      rows(title)
        .map((name) => name.replace(/<.*/, ''))
        .sort(),
    ).toEqual(keysBehind(prefix))
  })

  it('names every script, and no other', () => {
    const whole = [...scripts].filter(([, script]) => script.startsWith('--!'))
    const names = whole.map(([file]) => file.replace('.lua', ''))
    expect(rows('Scripts and their limits').sort()).toEqual(names.sort())
  })
})

describe('links', () => {
  it.each(pages())('$name leads to files and headings that exist', ({ name, text }) => {
    const broken: string[] = []
    for (const [, target = ''] of text.matchAll(/\]\(([^)\s]+)\)/g)) {
      if (/^[a-z]+:/.test(target)) continue
      const [path = '', anchor] = target.split('#')
      const file = path === '' ? join(root, name) : join(root, dirname(name), path)
      if (!existsSync(file)) broken.push(target)
      else if (anchor !== undefined && !anchors(readFileSync(file, 'utf8')).includes(anchor))
        broken.push(target)
    }
    expect(broken).toEqual([])
  })
})

/** The anchors of a page, as GitHub makes them from its headings. */
function anchors(text: string): string[] {
  return [...text.matchAll(/^#+ (.+)$/gm)].map(([, title = '']) =>
    title
      .toLowerCase()
      .replaceAll(/[^\p{L}\p{N}\s_-]/gu, '')
      .replaceAll(' ', '-'),
  )
}
