import { measureClaims } from "./claims.mjs";
import { measureFinishes } from "./finishes.mjs";
import { openSharedStores } from "./shared-stores.mjs";

/** The benchmarks that need PostgreSQL; none without it. */
export async function measureOnPostgres() {
  const shared = await openSharedStores();
  if (shared === null) {
    process.stderr.write("SKIPPED: claims and finishes on PostgreSQL, which is not here\n");
    return [];
  }
  try {
    return [...(await measureFinishes(shared)), await measureClaims(shared)];
  } finally {
    await shared.close();
  }
}
