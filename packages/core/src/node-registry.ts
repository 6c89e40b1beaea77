/** Who takes part: the registrations that sessions keep in the storage while they live. */
import type { NodeInfo, Storage } from './storage.js'

export interface NodeStatus extends NodeInfo {
  /** The session under which it works now. */
  session: string
}

/** The live consuming nodes of the tenant, in the order of their sessions. */
export async function listNodes(storage: Storage, tenant: string): Promise<NodeStatus[]> {
  const nodes: NodeStatus[] = []
  let cursor: string | undefined
  do {
    const query = { prefix: PREFIX, limit: 500, ...(cursor === undefined ? {} : { cursor }) }
    const page = await storage.records.list(tenant, query)
    for (const { key, value } of page.records) {
      nodes.push({ ...(JSON.parse(value as string) as NodeInfo), session: key.slice(PREFIX.length) })
    }
    cursor = page.cursor
  } while (cursor !== undefined)
  return nodes
}

const PREFIX = 'node:'
