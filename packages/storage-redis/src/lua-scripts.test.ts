import { spawnSync } from 'node:child_process'
import { fileURLToPath } from 'node:url'
import { expect, test } from 'vitest'

test('the embedded scripts are those of src/lua', () => {
  const program = fileURLToPath(new URL('../scripts/embed-lua.mjs', import.meta.url))
  const { status, stderr } = spawnSync(process.execPath, [program, '--check'], { encoding: 'utf8' })
  expect({ status, stderr }).toEqual({ status: 0, stderr: '' })
})
