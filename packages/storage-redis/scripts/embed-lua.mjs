/**
 * Puts the scripts of `src/lua` into `src/lua-scripts.ts`, so that they are there in the source, in `dist` and in a bundle
 * alike. A line `--! prelude records …` of a script stands for those parts; the part `queue` is all files of one queue,
 * wrapped in a function. So a call pays for the closures of the parts only when it gets as far as their line.
 *
 * `node scripts/embed-lua.mjs` writes the file, `--check` fails when it is not as it would be written.
 */
import { readFileSync, readdirSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'

const folder = fileURLToPath(new URL('../src/lua', import.meta.url))
const target = fileURLToPath(new URL('../src/lua-scripts.ts', import.meta.url))
const INCLUDE = /^ *--! (.*)\n/m
const QUEUE = ['tasks', 'ends', 'groups', 'retention', 'wake', 'claim', 'settle', 'debounce']

const read = (/** @type {string} */ name) => readFileSync(join(folder, `${name}.lua`), 'utf8')

/** Without whole-line comments and what indents, which the server need not keep. */
const strip = (/** @type {string} */ source) =>
  source
    .split('\n')
    .map((line) => line.trim())
    .filter((line) => line !== '' && !line.startsWith('--'))
    .join('\n')

const queue = () =>
  `local queues = {}
local function queue(Q)
if queues[Q] then return queues[Q] end
${QUEUE.map((name) => strip(read(name))).join('\n')}
queues[Q] = q
return q
end`

const part = (/** @type {string} */ name) => (name === 'queue' ? queue() : strip(read(name)))

const literal = (/** @type {string} */ text) => `\`${text.replace(/[\\`]|\$\{/g, '\\$&')}\``

function generate() {
  /** @type {Map<string, string>} */
  const parts = new Map()
  /** @type {string[]} */
  const names = []
  const scripts = readdirSync(folder)
    .filter((file) => file.endsWith('.lua'))
    .map((file) => file.slice(0, -4))
    .sort()
    .flatMap((name) => {
      const source = read(name)
      if (!INCLUDE.test(source)) return []
      names.push(name)
      const pieces = source.split(new RegExp(INCLUDE, 'gm')).map((piece, index) => {
        if (index % 2 === 0) return `${literal(strip(piece))}`
        const needed = piece.split(' ')
        for (const one of needed) parts.set(one, part(one))
        return needed.map((one) => `PARTS.${one}`).join(', ')
      })
      const list = pieces.filter((piece) => piece !== '``').map((piece) => `    ${piece},`)
      return [`  ${name}: [`, ...list, '  ],']
    })
  const shared = [...parts].map(([name, source]) => `  ${name}: ${literal(source)},`)
  return [
    '// Made of src/lua by scripts/embed-lua.mjs.',
    'const PARTS = {',
    ...shared,
    '} as const',
    `export type ScriptName = ${names.map((name) => `'${name}'`).join(' | ')}`,
    'export const SCRIPTS: Readonly<Record<ScriptName, readonly string[]>> = {',
    ...scripts,
    '}',
    '',
  ].join('\n')
}

const text = generate()
if (process.argv.includes('--check')) {
  if (readFileSync(target, 'utf8') !== text) {
    console.error('src/lua-scripts.ts is not what src/lua says: node scripts/embed-lua.mjs')
    process.exit(1)
  }
} else writeFileSync(target, text)
