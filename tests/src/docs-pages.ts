/** The pages of the documentation, and the programs in them, for the tests that keep both true. */
import { readdirSync, readFileSync } from 'node:fs'
import { join, relative } from 'node:path'

export const root: string = join(import.meta.dirname, '..', '..')

export interface Page {
  /** Relative to the root, with slashes. */
  readonly name: string
  readonly text: string
}

/** A program: a block that begins with an import, and the blocks after it that do not. */
export interface Program {
  /** The page and the line of its first block. */
  readonly name: string
  /** `ts` is type-checked before it runs. */
  readonly language: 'ts' | 'js'
  /** Each line stands where it stands in the page, so that messages name the right one. */
  readonly source: string
  /** What its `console.log(…) // text` lines promise, in order. */
  readonly prints: readonly string[]
}

/** A file that programs of a page find beside them: a block that begins with a comment of its name, `// hash.js`. */
export interface ProgramFile {
  readonly name: string
  readonly source: string
}

/** Every page that the repository shows to its readers, English and Chinese. */
export function pages(): Page[] {
  const found = ['README.md', 'README.zh-CN.md', ...markdownIn('docs')]
  return found.map((name) => ({ name, text: readFileSync(join(root, name), 'utf8') }))
}

function markdownIn(folder: string): string[] {
  const entries = readdirSync(join(root, folder), { recursive: true, withFileTypes: true })
  return entries
    .filter((entry) => entry.isFile() && entry.name.endsWith('.md'))
    .map((entry) => relative(root, join(entry.parentPath, entry.name)).replaceAll('\\', '/'))
    .sort()
}

/** The files of a page. */
export function filesOf({ text }: Page): ProgramFile[] {
  return [...text.matchAll(/^```js\n\/\/ ([\w-]+\.js)\n([^]*?)^```$/gm)].map(
    ([, name = '', source = '']) => ({ name, source }),
  )
}

/** The programs of a page. Blocks in other languages than `ts` and `js` are not run. */
export function programsOf({ name, text }: Page): Program[] {
  const lines = text.split('\n')
  const programs: { line: number; language: 'ts' | 'js'; lines: string[] }[] = []
  let open: { fence: string; lines: string[] | undefined } | undefined
  for (const [index, line] of lines.entries()) {
    if (open !== undefined) {
      if (line.trim() === open.fence) open = undefined
      else if (open.lines !== undefined) open.lines[index] = line
      continue
    }
    const [, fence, language] = /^(`{3,})(\w*)/.exec(line) ?? []
    if (fence === undefined) continue
    open = { fence, lines: undefined }
    if (language !== 'ts' && language !== 'js') continue
    if (/^\/\/ [\w-]+\.js$/.test(lines[index + 1] ?? '')) continue
    if (lines[index + 1]?.startsWith('import ')) programs.push({ line: index + 2, language, lines: [] })
    const program = programs.at(-1)
    if (program?.language !== language) throw new Error(`${name}:${index + 1}: no program to go on with`)
    open.lines = program.lines
  }
  return programs.map(({ line, language, lines: own }) => ({
    name: `${name}:${line}`,
    language,
    // Lines between its blocks are holes, which join as empty ones.
    source: `${own.join('\n')}\n`,
    prints: own.flatMap((text) => /console\.log\(.*\) \/\/ (.+)$/.exec(text)?.[1] ?? []),
  }))
}
