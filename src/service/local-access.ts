import { chmod, readFile, rm, stat } from "node:fs/promises";
import { join } from "node:path";
import type { Config } from "../config/schema.ts";
import {
  type Credentials,
  DATA_FILES,
  isProceduralOnly,
  parseCredentials,
  type ServerFile,
} from "../contract/data-directory.ts";
import { ImgbatchError } from "../contract/errors.ts";
import { ensureDefaultAccount, issueKey, openRealAccount, topUp } from "../domain/accounts.ts";
import type { Stores } from "../domain/ports/stores.ts";
import type { Clock } from "../kernel/clock.ts";
import { writeFileDurably } from "../kernel/files.ts";
import { type Ids, sha256Hex } from "../kernel/ids.ts";
import type { Log } from "../kernel/log.ts";

/** How programs on this machine use the service of a data directory. */
export interface LocalAccess {
  /** Path of the file with the key. */
  credentialsFile: string;
  credentials: Credentials;
  /** The key of the file. Its owner sees the whole service. */
  ownerKeyId: string | null;
  /** The same key, where it can carry the consent of the person at this machine. */
  localKeyId: string | null;
  /** Removes the file by which programs find the service. */
  close(): Promise<void>;
}

export interface AccessOptions {
  config: Config;
  dataDirectory: string;
  /** See `LocalServiceOptions`. The file with the key does not name the address of such a service. */
  endsWithCommand?: boolean;
  budgetMicroUsd?: number | undefined;
  facts: Pick<ServerFile, "url" | "workers" | "providers" | "secret" | "ends_with_command">;
}

/** Writes the files by which programs on this machine find the service, with its key. */
export async function openLocalAccess(
  options: AccessOptions,
  deps: { stores: Stores; clock: Clock; ids: Ids; log: Log },
): Promise<LocalAccess> {
  const { stores, clock } = deps;
  const { dataDirectory, budgetMicroUsd, facts } = options;
  const credentials = await ensureCredentials(options, deps);
  const key = await stores.read.keys.bySha256(sha256Hex(credentials.api_key));
  if (key && budgetMicroUsd) {
    await stores.write(async (tx) => {
      const { id } = await openRealAccount(tx, deps, key.accountId);
      await topUp(tx, deps, id, budgetMicroUsd);
    });
  }
  await writeServerFile(dataDirectory, facts, clock);
  return {
    credentialsFile: join(dataDirectory, DATA_FILES.credentials),
    credentials,
    ownerKeyId: key?.id ?? null,
    localKeyId: key && budgetMicroUsd === undefined ? key.id : null,
    close: () => removeServerFile(dataDirectory, facts.secret),
  };
}

/**
 * Returns the key for clients on this machine. The first start makes it, with the default account. Throws `INVALID_CONFIG` when
 * the file with the key is damaged or cannot be read.
 */
async function ensureCredentials(
  { config, dataDirectory, endsWithCommand = false, facts: { url } }: AccessOptions,
  deps: { stores: Stores; clock: Clock; ids: Ids; log: Log },
): Promise<Credentials> {
  const path = join(dataDirectory, DATA_FILES.credentials);
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
  if (isKnownHere && (known.base_url === url || endsWithCommand)) return known;
  const api_key = isKnownHere ? known.api_key : await makeFirstKey(config, deps);
  const credentials = { base_url: url, api_key };
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
  config: Config,
  deps: { stores: Stores; clock: Clock; ids: Ids },
): Promise<string> {
  const { key } = await deps.stores.write(async (tx) => {
    const account = await ensureDefaultAccount(tx, deps, isProceduralOnly(config));
    const group = config.groups[0]?.name ?? "default";
    return issueKey(tx, deps, { name: "local", accountId: account.id, group, expiresAtMs: null });
  });
  return key;
}

/** Writes `server.json`, by which commands find the service of a data directory. */
async function writeServerFile(
  directory: string,
  facts: AccessOptions["facts"],
  clock: Clock,
): Promise<void> {
  const started_at = Math.floor(clock.nowMs() / 1000);
  const file: ServerFile = { ...facts, pid: process.pid, started_at };
  await writeFileDurably(join(directory, DATA_FILES.server), `${JSON.stringify(file)}\n`, { mode: 0o600 });
}

/** Removes `server.json`, unless it is that of another service, which took over a directory whose files were replaced. */
async function removeServerFile(directory: string, secret: string): Promise<void> {
  const path = join(directory, DATA_FILES.server);
  const text = await readFile(path, "utf8").catch(() => "");
  if (text.includes(secret)) await rm(path, { force: true });
}
