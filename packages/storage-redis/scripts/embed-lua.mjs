/**
 * Puts the scripts of `src/lua` into `src/lua-scripts.ts`, so that they are there in the source, in `dist` and in a bundle
 * alike. A script names the parts that it needs in its first line, `--! prelude records …`; the part `queue` is all files of
 * one queue, wrapped in a function, so that a call that does not need them does not pay for their closures.
 *
 * `node scripts/embed-lua.mjs` writes the file, `--check` fails when it is not as it would be written.
 */
import { readFileSync, readdirSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'

const folder = fileURLToPath(new URL('../src/lua', import.meta.url))
const target = fileURLToPath(new URL('../src/lua-scripts.ts', import.meta.url))
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
  const scripts = readdirSync(folder)
    .filter((file) => file.endsWith('.lua'))
    .map((file) => file.slice(0, -4))
    .sort()
    .flatMap((name) => {
      const source = read(name)
      const needed = source.match(/^--! (.*)\n/)?.[1]?.split(' ')
      if (!needed) return []
      for (const one of needed) parts.set(one, part(one))
      const list = needed.map((one) => `'${one}'`).join(', ')
      return [`  ${name}: {\n    parts: [${list}],\n    body: ${literal(strip(source))},\n  },`]
    })
  const shared = [...parts].map(([name, source]) => `  ${name}: ${literal(source)},`)
  return [
    '// Made of src/lua by scripts/embed-lua.mjs.',
    'export const PARTS = {',
    ...shared,
    '} as const',
    'export const SCRIPTS = {',
    ...scripts,
    '} as const',
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
