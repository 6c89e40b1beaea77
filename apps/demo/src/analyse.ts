/**
 * What is computed of a file. It is read once, as a stream, so a file of any size needs the same small amount of
 * memory.
 */
import { NonRetryableError } from '@neotask/core'
import { createHash } from 'node:crypto'
import { once } from 'node:events'
import { constants, open, type FileHandle } from 'node:fs/promises'
import { finished } from 'node:stream/promises'
import { createGzip } from 'node:zlib'

export interface Analysis {
  /** In hex. */
  sha256: string
  bytes: number
  /** Line feeds, and one more for a last line without one. */
  lines: number
  /** Stretches of bytes that are not ASCII white space. */
  words: number
  /** Bytes after gzip. */
  gzipped: number
}

const CHUNK = 64 * 1024

// No waiting for somebody to write into a pipe, and no following of a link that took the file's place. On systems
// without these flags they are undefined, which adds nothing.
const FLAGS = constants.O_RDONLY | constants.O_NONBLOCK | constants.O_NOFOLLOW

/**
 * Reads the file.
 *
 * Rejects with a {@link NonRetryableError} when another attempt would find the same, with the file system's error when
 * it may go better later (too many open files, a disk that is busy), and with the signal's reason when it aborts.
 */
export async function analyse(path: string, signal?: AbortSignal): Promise<Analysis> {
  signal?.throwIfAborted()
  let file: FileHandle | undefined
  try {
    file = await open(path, FLAGS)
    const stat = await file.stat()
    if (stat.isDirectory()) throw new NonRetryableError('EISDIR: it is a folder now')
    if (!stat.isFile()) throw new NonRetryableError('it is not a regular file any more')
    return await read(file, signal)
  } catch (error) {
    throw explain(error)
  } finally {
    await file?.close()
  }
}

async function read(file: FileHandle, signal: AbortSignal | undefined): Promise<Analysis> {
  const hash = createHash('sha256')
  const gzip = createGzip()
  const totals = { bytes: 0, lines: 0, words: 0, gzipped: 0 }
  gzip.on('data', (chunk: Buffer) => (totals.gzipped += chunk.length))
  const packed = finished(gzip)
  // Should the reading fail first, nobody is left to hear that the packing did too.
  packed.catch(() => {})
  const count = counter()
  try {
    for await (const chunk of file.createReadStream({
      highWaterMark: CHUNK,
      autoClose: false,
    }) as AsyncIterable<Buffer>) {
      signal?.throwIfAborted()
      totals.bytes += chunk.length
      hash.update(chunk)
      count.add(chunk)
      if (!gzip.write(chunk)) await once(gzip, 'drain')
    }
    gzip.end()
    await packed
  } finally {
    gzip.destroy()
  }
  return { sha256: hash.digest('hex'), ...totals, lines: count.lines(), words: count.words() }
}

const LINE_FEED = 0x0a

/** Counts lines and words across the borders of chunks. */
function counter(): { add(chunk: Buffer): void; lines(): number; words(): number } {
  let feeds = 0
  let words = 0
  let inWord = false
  let last = LINE_FEED
  return {
    add(chunk) {
      // By index: an iterator takes several times as long.
      for (let i = 0; i < chunk.length; i++) {
        const byte = chunk[i] as number
        // Space, and tab to carriage return.
        const white = byte === 0x20 || (byte >= 0x09 && byte <= 0x0d)
        if (byte === LINE_FEED) feeds++
        if (!white && !inWord) words++
        inWord = !white
      }
      last = chunk.at(-1) ?? last
    },
    lines: () => (last === LINE_FEED ? feeds : feeds + 1),
    words: () => words,
  }
}

/** Errors that another attempt will not mend, in words. */
const LASTING: Readonly<Record<string, string>> = {
  EACCES: 'no permission to read it',
  EPERM: 'no permission to read it',
  ENOENT: 'it vanished before it was read',
  ENOTDIR: 'its folder vanished before it was read',
  EISDIR: 'it is a folder now',
  ELOOP: 'it is a symbolic link now',
  ENXIO: 'it is not a regular file any more',
  ENAMETOOLONG: 'its path is too long',
}

function explain(error: unknown): unknown {
  const { code } = error as NodeJS.ErrnoException
  const words = code === undefined ? undefined : LASTING[code]
  return words === undefined ? error : new NonRetryableError(`${code}: ${words}`, { cause: error })
}
