import type { StoragePlaces } from "../../src/config/storage-places.ts";
import { openAdmin } from "../../src/service/admin.ts";
import { items, MODEL, startTestService } from "./service.ts";

/** The directory of a service that has made a batch of this many images, and was stopped. */
export async function usedDirectory(count = 5): Promise<{ data: string; id: string }> {
  const service = await startTestService();
  const { id } = await service.submit({ model: MODEL, items: items(count) });
  await service.until(id);
  await service.close(0);
  return { data: service.data, id };
}

/** What `imgbatch admin check` finds in a directory. */
export async function checkOf(directory: string, storage?: StoragePlaces) {
  const admin = await openAdmin({ directory, storage });
  return admin.check().finally(() => admin.close());
}
