/**
 * The declarations of the packages, type-checked as a TypeScript user gets them: with what each package depends on and
 * without its optional peers, and with the declarations themselves checked, since not everybody sets `skipLibCheck`.
 */
import { spawnSync } from 'node:child_process'
import {
  cpSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs'
import { tmpdir } from 'node:os'
import { dirname, join } from 'node:path'
import { afterEach, beforeEach, expect, test } from 'vitest'

interface Manifest {
  name: string
  exports?: Record<string, { types?: string }>
  dependencies?: Record<string, string>
  peerDependencies?: Record<string, string>
  peerDependenciesMeta?: Record<string, { optional?: boolean }>
}

const root = join(import.meta.dirname, '../..')
const tsc = join(root, 'node_modules', 'typescript', 'bin', 'tsc')
const packages = new Map(
  readdirSync(join(root, 'packages')).map((folder) => {
    const dir = join(root, 'packages', folder)
    const manifest = JSON.parse(readFileSync(join(dir, 'package.json'), 'utf8')) as Manifest
    return [manifest.name, { dir, manifest }]
  }),
)
const entries = [...packages.values()].map(({ manifest: { name, exports = {} } }) => ({
  name,
  specifiers: Object.entries(exports).flatMap(([path, { types }]) =>
    types === undefined ? [] : [name + path.slice(1)],
  ),
}))

/** The compiler reads every declaration of Node too. */
const LONGEST = { timeout: 120_000 }

let project: string
beforeEach(() => {
  project = mkdtempSync(join(tmpdir(), 'neotask-declarations-'))
})
afterEach(() => rmSync(project, { recursive: true }))

test.for(entries)(
  'those of $name need nothing that is not installed with it',
  LONGEST,
  ({ name, specifiers }) => {
    install(name)
    link('@types/node', join(root, 'node_modules', '@types', 'node'))
    const lines = specifiers.map((specifier, n) => `export * as entry${n} from '${specifier}'\n`)
    writeFileSync(join(project, 'user.mts'), lines.join(''))
    const compilerOptions = {
      target: 'es2023',
      lib: ['es2023', 'esnext.disposable'],
      module: 'nodenext',
      types: ['node'],
      strict: true,
      skipLibCheck: false,
      noEmit: true,
    }
    writeFileSync(join(project, 'tsconfig.json'), JSON.stringify({ compilerOptions, files: ['user.mts'] }))
    const { stdout } = spawnSync(process.execPath, [tsc, '-p', '.'], { cwd: project, encoding: 'utf8' })
    expect(stdout).toBe('')
  },
)

/** Puts the declarations of a package in the project, with all that npm would install beside them. */
function install(name: string): void {
  const { dir, manifest } = packages.get(name) as { dir: string; manifest: Manifest }
  const { dependencies = {}, peerDependencies = {}, peerDependenciesMeta = {} } = manifest
  // A copy: a link would lead the compiler to what is there for the development of the package.
  const target = join(project, 'node_modules', name)
  mkdirSync(target, { recursive: true })
  cpSync(join(dir, 'package.json'), join(target, 'package.json'))
  cpSync(join(dir, 'dist'), join(target, 'dist'), {
    recursive: true,
    filter: (path) => !path.endsWith('.js') && !path.includes('.test.'),
  })
  const peers = Object.keys(peerDependencies).filter((peer) => peerDependenciesMeta[peer]?.optional !== true)
  for (const needed of [...Object.keys(dependencies), ...peers]) {
    if (packages.has(needed)) install(needed)
    else link(needed, join(dir, 'node_modules', needed))
  }
}

function link(name: string, to: string): void {
  const path = join(project, 'node_modules', name)
  mkdirSync(dirname(path), { recursive: true })
  symlinkSync(to, path, 'junction')
}
