import { chmod, readFile, stat } from "node:fs/promises";
import { join } from "node:path";
import type { Config } from "../config/schema.ts";
import {
  type Credentials,
  DATA_FILES,
  isProceduralOnly,
  parseCredentials,
} from "../contract/data-directory.ts";
import { ImgbatchError } from "../contract/errors.ts";
import { ensureDefaultAccount, issueKey } from "../domain/accounts.ts";
import type { Stores } from "../domain/ports/stores.ts";
import type { Clock } from "../kernel/clock.ts";
import { writeFileDurably } from "../kernel/files/durable-file.ts";
import { type Ids, sha256Hex } from "../kernel/ids.ts";
import type { Log } from "../kernel/log.ts";

/** The service that the key is for. */
interface CredentialsOptions {
  config: Config;
  dataDirectory: string;
  /** Whether the file names this service's address. */
  announceUrl: boolean;
  url: string;
}

/**
 * Returns the key for clients on this machine. The first start makes it, with the default account. Throws `INVALID_CONFIG` when
 * the file with the key is damaged or cannot be read.
 */
export async function ensureCredentials(
  options: CredentialsOptions,
  deps: { stores: Stores; clock: Clock; ids: Ids; log: Log },
): Promise<Credentials> {
  const path = join(options.dataDirectory, DATA_FILES.credentials);
  const known = await readFile(path, "utf8").then(
    (text) => credentialsIn(path, text),
    (error: NodeJS.ErrnoException) => {
      if (error.code === "ENOENT") return null;
      throw new ImgbatchError("INVALID_CONFIG", `${path} cannot be read (${error.code}).`, { cause: error });
    },
  );
  await closeToOthers(path, deps.log);
  const isKnownHere =
    known !== null && (await deps.stores.read.keys.bySha256(sha256Hex(known.api_key))) !== null;
  if (isKnownHere && (known.base_url === options.url || !options.announceUrl)) return known;
  const api_key = isKnownHere ? known.api_key : await makeFirstKey(options, deps);
  const credentials = { base_url: options.url, api_key };
  await writeFileDurably(path, `${JSON.stringify(credentials, null, 2)}\n`, { mode: 0o600 });
  return credentials;
}

/** A copy or a restored backup can have a key file that every user of the machine reads. */
async function closeToOthers(path: string, log: Log): Promise<void> {
  if (process.platform === "win32") return;
  const facts = await stat(path).catch(() => null);
  if (facts === null || (facts.mode & 0o077) === 0) return;
  const isClosed = await chmod(path, 0o600).then(
    () => true,
    () => false,
  );
  const what = isClosed ? "could be read by others; it is closed to them now" : "can be read by others";
  log.warn(`the file with the key ${what}`, { file: DATA_FILES.credentials });
}

function credentialsIn(path: string, text: string): Credentials {
  try {
    return parseCredentials(text);
  } catch (cause) {
    const message = `${path} is damaged. Delete it to get a new key; batches belong to the key that made them.`;
    throw new ImgbatchError("INVALID_CONFIG", message, { cause });
  }
}

async function makeFirstKey(
  { config }: CredentialsOptions,
  deps: { stores: Stores; clock: Clock; ids: Ids },
): Promise<string> {
  const { key } = await deps.stores.write(async (tx) => {
    const account = await ensureDefaultAccount(tx, deps, isProceduralOnly(config));
    const group = config.groups[0]?.name ?? "default";
    return issueKey(tx, deps, { name: "local", accountId: account.id, group, expiresAtMs: null });
  });
  return key;
}
