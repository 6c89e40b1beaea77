/** That messages of a step came to whom they are due: watchers, idle sessions, and sessions that lost an entry. */
import assert from 'node:assert/strict'
import { systemClock } from '../clock.js'
import { CHANGED } from '../storage.js'
import type { ModelQueue } from './model-queue.js'
import { isHeldBack, type ModelNotice, type ModelTask } from './model-task.js'
import type { Node } from './random-world.js'

/** Somebody who waits for ends. */
export interface Listener {
  readonly name: string
  /** The instance of the storage through which it listens. */
  readonly via: number
  readonly heard: string[]
  /** Ids of which it has to hear: those that ended here at once, the others when its instance looks. */
  readonly owed: Map<string, 'here' | 'elsewhere'>
  /** Ids of which it may hear besides, and until when, in monotonic ms. */
  readonly allowed: Map<string, number>
  /** How long a message may be on its way, in ms. */
  readonly messageDelay: number
}

export interface SentMessages {
  /** The instance of the storage that carried out the step. Others learn of it later. */
  readonly instance: number
  readonly queue: ModelQueue
  /** Tasks that became ready, and that the driver must have reached. */
  readonly ready: ReadonlySet<ModelTask>
  /** Tasks that may be claimed again after a pause. */
  readonly reopened: ReadonlySet<ModelTask>
  /** A task that the driver has left to later steps. */
  readonly left: string | undefined
  readonly listeners: readonly Listener[]
  /** How long a message may be on its way, in ms. */
  readonly messageDelay: number
  readonly nodes: readonly Node[]
  /** The node whose call it was. */
  readonly acting: Node | undefined
  /** Whether another instance ended the session, of which this one may not know yet. */
  readonly endedElsewhere: (node: Node) => boolean
  /** Nodes whose sessions were idle before. */
  readonly asleep: readonly Node[]
  readonly heardBefore: ReadonlyMap<Node, number>
  readonly takenBefore: ReadonlySet<ModelNotice>
}

/** Sessions that one step has to wake for a kind. */
const WOKEN = 16

/** Notes who has to be told of ends that a step brought. */
export function owe(listeners: readonly Listener[], queue: ModelQueue, instance: number): void {
  for (const listener of listeners) {
    const own = ({ watcher }: { watcher: string }): boolean => watcher === listener.name
    for (const { id } of queue.maybeTold.filter(own)) listener.allowed.set(id, latest(listener))
    for (const { id } of queue.told.filter(own))
      listener.owed.set(id, listener.via === instance ? 'here' : 'elsewhere')
  }
}

/** Begins a step: takes note of what came since the last one, and forgets what should have come by now. */
export function beginStep(listener: Listener): void {
  unheard(listener)
  const now = systemClock.monotonic()
  for (const [id, until] of listener.allowed) if (until <= now) listener.allowed.delete(id)
}

const latest = ({ messageDelay }: Listener): number => systemClock.monotonic() + messageDelay

export async function checkMessages(sent: SentMessages): Promise<void> {
  await patiently(() => missing(sent), sent.messageDelay)
  for (const node of sent.nodes) {
    const messages = node.heard.slice(sent.heardBefore.get(node))
    if (messages.length === 0 || node.session.idle !== true) continue
    // It may as well count as idle still, when the message is for what was taken, or does not say for what, or came
    // in the very step in which it fell asleep.
    const isForWork = messages.includes('') && sent.asleep.includes(node) && !wasTakenFrom(sent, node)
    node.session.idle = isForWork ? false : undefined
  }
}

/** Waits until nothing is missing, and fails when that does not come within so many ms. */
export async function patiently(look: () => string | undefined, ms: number): Promise<void> {
  const until = systemClock.monotonic() + ms
  while (look() !== undefined && systemClock.monotonic() < until)
    await new Promise<void>((resolve) => systemClock.after(1, resolve, { hold: true }))
  assert.equal(look(), undefined)
}

/** Takes note of what the listener heard. @returns of which end nobody told it, though it happened at its instance */
export function unheard(listener: Listener): string | undefined {
  const { heard, owed, allowed } = listener
  for (const message of heard.splice(0)) {
    if (message === CHANGED) {
      // It looks for itself. It may be told of the same by name as well.
      for (const id of owed.keys()) allowed.set(id, latest(listener))
      owed.clear()
      continue
    }
    for (const id of message.split(' ')) {
      const isDue = owed.delete(id)
      assert.ok(isDue || allowed.has(id), `${listener.name} is told of ${id}, which it does not watch`)
    }
  }
  return [...owed].find(([, where]) => where === 'here')?.[0]
}

function missing(sent: SentMessages): string | undefined {
  for (const listener of sent.listeners) {
    const id = unheard(listener)
    if (id !== undefined) return `nobody told ${listener.name} of the end of ${id}`
  }
  const isWoken = (node: Node): boolean => node.heard.length > (sent.heardBefore.get(node) ?? 0)
  for (const node of sent.nodes) {
    const { session, via } = node
    const isTaken = session.taken.some((notice) => !sent.takenBefore.has(notice))
    if (
      isTaken &&
      node !== sent.acting &&
      via === sent.instance &&
      session.over === undefined &&
      !isWoken(node)
    )
      return `nobody told ${session.id} that something was taken from it`
  }
  return asleepWith(sent, isWoken)
}

const wasTakenFrom = (sent: SentMessages, { session }: Node): boolean =>
  session.taken.some((notice) => !sent.takenBefore.has(notice))

/** Whom the tasks that are ready now should have woken. */
function asleepWith(sent: SentMessages, isWoken: (node: Node) => boolean): string | undefined {
  const { queue, instance, acting, left } = sent
  const sleepers = sent.asleep.filter(
    (node) =>
      node.via === instance && node.queue === queue && node !== acting && node.session.over === undefined,
  )
  // Where sessions of all instances wait in one line, one of another instance may be woken instead.
  const elsewhere = sent.nodes.filter(
    (node) =>
      node.via !== instance &&
      node.queue === queue &&
      node.heard.slice(sent.heardBefore.get(node)).some((message) => message !== CHANGED),
  )
  const isLeft = left !== undefined && sleepers.length > 0
  if (isLeft && !sleepers.some(isWoken) && elsewhere.length === 0)
    return `${left} is left to later steps, and nobody was woken to go on`
  if (queue.paused) return undefined
  const readyOf = (tasks: ReadonlySet<ModelTask>): ModelTask[] =>
    [...tasks].filter((task) => task.state === 'pending' && !isHeldBack(task) && !queue.hasExpired(task))
  const kinds = (tasks: readonly ModelTask[]): Set<string> => new Set(tasks.map((task) => task.kind))
  const serving = (kind: string): Node[] =>
    sent.nodes.filter(
      (node) =>
        node.via === instance &&
        node.queue === queue &&
        (node.session.over === undefined || (sent.endedElsewhere(node) && isWoken(node))) &&
        node.session.kinds.includes(kind),
    )
  // Of tasks that became ready, as many sessions of their kind have to be woken as there are both.
  const ready = readyOf(sent.ready)
  for (const kind of kinds(ready)) {
    const count = ready.filter((task) => task.kind === kind).length
    // Of those that may or may not count as idle, one that is woken does.
    const idle = serving(kind).filter(
      (node) => (sent.asleep.includes(node) && node !== acting) || isWoken(node),
    )
    const others = elsewhere.filter((node) => node.session.kinds.includes(kind)).length
    if (idle.filter(isWoken).length + others < Math.min(count, idle.length + others, WOKEN))
      return `too few of ${idle.length} idle sessions were woken for ${count} tasks of kind ${kind}`
  }
  // For what comes out of a pause somebody may have been woken before.
  for (const kind of kinds(readyOf(sent.reopened))) {
    const all = serving(kind)
    const others = elsewhere.some((node) => node.session.kinds.includes(kind))
    if (all.length > 0 && !others && all.every((node) => sent.asleep.includes(node) && !isWoken(node)))
      return `every session that serves ${kind} sleeps on after a pause`
  }
  return undefined
}
