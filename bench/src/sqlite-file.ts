/** A file for one measurement, in a temporary folder. */
import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'

export async function inFile<T>(use: (path: string) => Promise<T>): Promise<T> {
  const folder = mkdtempSync(join(tmpdir(), 'neotask-bench-'))
  try {
    return await use(join(folder, 'tasks.db'))
  } finally {
    rmSync(folder, { recursive: true, force: true })
  }
}
