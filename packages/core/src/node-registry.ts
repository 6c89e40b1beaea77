/** Who takes part: the registrations that sessions keep in the storage while they live. */
import type { Overload } from './load-limit.js'
import type { NodeInfo, QueueRef, RecordsFace, Storage, StoredRecord } from './storage.js'

export interface NodeStatus extends NodeInfo {
  /** The session under which it works now. */
  session: string
  /** What it has too much of, while it is over its `loadLimit` and claims nothing. */
  overload?: Overload | undefined
}

const NODE = 'node:'
const OVERLOAD = 'load:'
/** ms after which the word of an overload is forgotten, unless it is repeated. */
export const OVERLOAD_TTL = 15_000

/** The live nodes that consume from the queue, in the order of their sessions. */
export async function listNodes(storage: Storage, { tenant, queue }: QueueRef): Promise<NodeStatus[]> {
  const overloads = new Map<string, Overload>()
  for (const { key, value } of await listAll(storage.records, tenant, OVERLOAD))
    overloads.set(key.slice(OVERLOAD.length), JSON.parse(value as string) as Overload)
  const nodes: NodeStatus[] = []
  for (const { key, value } of await listAll(storage.records, tenant, NODE)) {
    const info = JSON.parse(value as string) as NodeInfo
    if (info.queue !== queue) continue
    const session = key.slice(NODE.length)
    const overload = overloads.get(session)
    nodes.push(overload === undefined ? { ...info, session } : { ...info, session, overload })
  }
  return nodes
}

/** Tells everybody that the node of the session is over a limit, or (`undefined`) no more. */
export async function tellOverload(
  records: RecordsFace,
  tenant: string,
  session: string,
  overload: Overload | undefined,
): Promise<void> {
  const key = OVERLOAD + session
  if (overload === undefined) await records.delete(tenant, key)
  else await records.put(tenant, key, JSON.stringify(overload), { expiresIn: OVERLOAD_TTL })
}

async function listAll(records: RecordsFace, tenant: string, prefix: string): Promise<StoredRecord[]> {
  const all: StoredRecord[] = []
  let cursor: string | undefined
  do {
    const page = await records.list(tenant, {
      prefix,
      limit: 500,
      ...(cursor === undefined ? {} : { cursor }),
    })
    all.push(...page.records)
    cursor = page.cursor
  } while (cursor !== undefined)
  return all
}
