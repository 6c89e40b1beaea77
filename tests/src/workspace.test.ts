import { execFileSync } from 'node:child_process'
import { readdirSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import { expect, test } from 'vitest'

const root = join(import.meta.dirname, '../..')

interface Manifest {
  name: string
  packageManager?: string
  devDependencies?: Record<string, string>
  exports?: Record<string, unknown>
}

const manifestOf = (dir: string): Manifest =>
  JSON.parse(readFileSync(join(dir, 'package.json'), 'utf8')) as Manifest

const entryPoints = readdirSync(join(root, 'packages')).flatMap((folder) => {
  const dir = join(root, 'packages', folder)
  const { name, exports = {} } = manifestOf(dir)
  return Object.keys(exports).map((path) => ({ dir, specifier: name + path.slice(1) }))
})

// A package may import itself by name, which takes the way through `exports` that its users take.
// What a thread begins with needs the thread that begins it: its own tests load it.
const loadable = entryPoints.filter(({ specifier }) => !specifier.endsWith('/thread-entry'))
test.for(loadable)('$specifier loads with import and with require', ({ dir, specifier }) => {
  const attributes = specifier.endsWith('.json') ? `, { with: { type: 'json' } }` : ''
  const program = `
    await import('${specifier}'${attributes})
    process.getBuiltinModule('module').createRequire(process.cwd() + '/')('${specifier}')`
  execFileSync(process.execPath, ['--no-warnings', '--input-type=module', '-e', program], { cwd: dir })
})

test('the pnpm that turbo calls is the one that packageManager names', () => {
  const { packageManager, devDependencies = {} } = manifestOf(root)
  expect(packageManager).toBe(`pnpm@${devDependencies['pnpm'] ?? ''}`)
})
