/**
 * A lock file for programs that start at the same time in one checkout. It holds the id of the process whose turn it
 * is; a lock whose process is gone is taken over, so nothing has to be cleaned up after a crash.
 */
import { linkSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { setTimeout as sleep } from 'node:timers/promises'

/**
 * Waits until no other process holds `file`, then holds it until the returned function is called.
 *
 * @param {string} file
 * @param {(line: string) => void} say  Told once, when there is somebody to wait for.
 * @returns {Promise<() => void>}
 */
export async function takeTurn(file, say) {
  const mine = `${file}.${process.pid}`
  writeFileSync(mine, `${process.pid}`)
  try {
    for (let told = 0; !tryLink(mine, file); await sleep(100)) {
      const holder = readHolder(file)
      if (holder === undefined) continue
      if (!isAlive(holder)) rmSync(file, { force: true })
      else if (told !== holder) say(`waiting for process ${(told = holder)}, which holds ${file}`)
    }
  } finally {
    rmSync(mine, { force: true })
  }
  return () => rmSync(file, { force: true })
}

/** A hard link appears with its content in one step, unlike a file that is created and then written. */
function tryLink(/** @type {string} */ from, /** @type {string} */ to) {
  try {
    linkSync(from, to)
    return true
  } catch (error) {
    if (isErrno(error, 'EEXIST')) return false
    throw error
  }
}

/** The process that holds the lock, or undefined when it was given back meanwhile. */
function readHolder(/** @type {string} */ file) {
  try {
    return Number(readFileSync(file, 'utf8'))
  } catch (error) {
    if (isErrno(error, 'ENOENT')) return undefined
    throw error
  }
}

function isAlive(/** @type {number} */ pid) {
  try {
    return process.kill(pid, 0)
  } catch (error) {
    return isErrno(error, 'EPERM')
  }
}

function isErrno(/** @type {unknown} */ error, /** @type {string} */ code) {
  return error instanceof Error && 'code' in error && error.code === code
}
