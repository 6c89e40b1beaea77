/** The names of keys: all of a shard begin with one hash tag, so a script may touch any of them, also in a cluster. */
import { optionError, type QueueRef } from '@neotask/core'

const NAMESPACE = /^[A-Za-z0-9._-]{1,64}$/

export function checkNamespace(namespace: unknown): string {
  if (typeof namespace !== 'string' || !NAMESPACE.test(namespace))
    throw optionError('namespace', '1 to 64 characters of A-Z a-z 0-9 . _ -', namespace)
  return namespace
}

export class Keys {
  readonly namespace: string
  /** The prefix of the only shard, for now. */
  readonly shard: string

  constructor(namespace: string) {
    this.namespace = namespace
    this.shard = `{${namespace}.0}:`
  }

  queue({ tenant, queue }: QueueRef): string {
    return `${this.shard}${encodeURIComponent(tenant)}/${encodeURIComponent(queue)}:`
  }

  channel(channel: string): string {
    return `${this.namespace}:${channel}`
  }
}

/** A name in keys: no name runs into what follows. */
export const escapeName = (name: string): string => encodeURIComponent(name)

/** From `tenant/queue id`, as scripts report tasks of several queues; id characters may be slashes. */
export function parseTaskName(text: string): QueueRef & { readonly id: string } {
  const space = text.indexOf(' ')
  const [tenant = '', queue = ''] = text.slice(0, space).split('/')
  return { tenant: decodeURIComponent(tenant), queue: decodeURIComponent(queue), id: text.slice(space + 1) }
}
