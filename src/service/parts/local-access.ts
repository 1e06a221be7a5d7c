import { join } from "node:path";
import type { Config } from "../../config/schema.ts";
import { type Credentials, DATA_FILES, type ProviderIdentity } from "../../contract/data-directory.ts";
import { topUpReal } from "../../domain/accounts.ts";
import type { Stores } from "../../domain/ports/stores.ts";
import type { Clock } from "../../kernel/clock.ts";
import { type Ids, sha256Hex } from "../../kernel/ids.ts";
import type { Log } from "../../kernel/log.ts";
import { ensureCredentials } from "../local-credentials.ts";
import { removeServerFile, writeServerFile } from "../server-file.ts";
import type { Teardown } from "./teardown.ts";

/** How programs on this machine use the service of a data directory. */
export interface LocalAccess {
  /** Path of the file with the key. */
  credentialsFile: string;
  credentials: Credentials;
  /** The key of the file. Its owner sees the whole service. */
  ownerKeyId: string | null;
  /** The same key, where it can carry the consent of the person at this machine. */
  localKeyId: string | null;
}

interface AccessOptions {
  config: Config;
  dataDirectory: string;
  announceUrl: boolean;
  budgetMicroUsd?: number | undefined;
  facts: { url: string; workers: boolean; providers: ProviderIdentity[]; secret: string };
}

/** Writes the files by which programs on this machine find the service, with its key. */
export async function openLocalAccess(
  { config, dataDirectory, announceUrl, budgetMicroUsd, facts }: AccessOptions,
  deps: { stores: Stores; clock: Clock; ids: Ids; log: Log },
  teardown: Teardown,
): Promise<LocalAccess> {
  const { stores, clock } = deps;
  const credentials = await ensureCredentials({ config, dataDirectory, announceUrl, url: facts.url }, deps);
  const key = await stores.read.keys.bySha256(sha256Hex(credentials.api_key));
  if (key && budgetMicroUsd) await stores.write((tx) => topUpReal(tx, deps, key.accountId, budgetMicroUsd));
  await writeServerFile(dataDirectory, facts, clock);
  teardown.add(() => removeServerFile(dataDirectory, facts.secret));
  return {
    credentialsFile: join(dataDirectory, DATA_FILES.credentials),
    credentials,
    ownerKeyId: key?.id ?? null,
    localKeyId: key && budgetMicroUsd === undefined ? key.id : null,
  };
}
