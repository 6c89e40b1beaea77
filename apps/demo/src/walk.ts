/** Finds the files below a folder. What is found may have changed or gone by the time somebody reads it. */
import { createHash } from 'node:crypto'
import { lstat, readdir } from 'node:fs/promises'
import { join } from 'node:path'

/** A file as it was when it was found. */
export interface FoundFile {
  /** Relative to the folder, with `/` between the parts. */
  readonly path: string
  readonly size: number
  /** ms since 1970, with fractions. */
  readonly modified: number
}

export interface Found {
  /** In the order of their paths, part by part. */
  readonly files: FoundFile[]
  /** Folders that could not be listed, and why: what is below them is unknown. */
  readonly unlisted: { readonly path: string; readonly reason: string }[]
}

export interface WalkOptions {
  /** Absolute paths to leave out. */
  readonly except?: readonly string[]
  readonly signal?: AbortSignal
}

const SKIPPED_FOLDERS = new Set(['.git', '.turbo', 'node_modules', 'dist'])
const AT_ONCE = 64

/**
 * All regular files below the folder. Symbolic links are not followed, and links, sockets, pipes and devices are left
 * out. Rejects only when the signal aborts.
 */
export async function walk(root: string, { except = [], signal }: WalkOptions = {}): Promise<Found> {
  const skipped = new Set(except)
  const found: Found = { files: [], unlisted: [] }
  // A stack instead of recursion, so that the depth of the tree does not matter.
  const folders = ['']
  for (let folder = folders.pop(); folder !== undefined; folder = folders.pop()) {
    signal?.throwIfAborted()
    const inside = folder
    try {
      const entries = await readdir(join(root, inside), { withFileTypes: true })
      entries.sort((a, b) => (a.name < b.name ? -1 : 1))
      const below = entries.filter((entry) => entry.isDirectory() && !SKIPPED_FOLDERS.has(entry.name))
      folders.push(...below.map(({ name }) => within(inside, name)).reverse())
      const paths = entries
        // In a worktree, .git is a file.
        .filter((entry) => entry.isFile() && entry.name !== '.git')
        .map(({ name }) => within(inside, name))
        .filter((path) => !skipped.has(join(root, path)))
      for (let start = 0; start < paths.length; start += AT_ONCE) {
        const some = paths.slice(start, start + AT_ONCE)
        found.files.push(...(await Promise.all(some.map((path) => look(root, path)))))
      }
    } catch (error) {
      const { code = String(error) } = error as NodeJS.ErrnoException
      found.unlisted.push({ path: inside === '' ? '.' : inside, reason: code })
    }
  }
  return found
}

/**
 * The id of the task for a file: the same for the same path, size and time of change, so that a second start finds
 * the task of the first, and a file that has changed gets a new one.
 */
export function taskIdOf({ path, size, modified }: FoundFile): string {
  return createHash('sha256').update(`${path}\0${size}\0${modified}`).digest('base64url').slice(0, 32)
}

const within = (folder: string, name: string): string => (folder === '' ? name : `${folder}/${name}`)

async function look(root: string, path: string): Promise<FoundFile> {
  try {
    const { size, mtimeMs } = await lstat(join(root, path))
    return { path, size, modified: mtimeMs }
  } catch {
    // Gone already, or not ours to see: its task will find out why.
    return { path, size: 0, modified: 0 }
  }
}
