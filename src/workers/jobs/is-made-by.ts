import { identityOf } from "../../domain/offers.ts";
import type { JobProvider } from "../../domain/ports/image-provider.ts";
import type { WorkerDeps } from "../deps.ts";

/** Whether the jobs of a batch are those of a provider, or of one with another name at the same upstream. */
export async function isMadeBy(
  { stores, providers }: WorkerDeps,
  provider: JobProvider,
  batchId: string,
): Promise<boolean> {
  const batch = await stores.read.batches.byId(batchId);
  if (!batch) return false;
  if (batch.provider === provider.name) return true;
  const isConfigured = providers.some(({ name }) => name === batch.provider);
  return !isConfigured && batch.upstream === identityOf(provider);
}
