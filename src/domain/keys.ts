import { ImgbatchError } from "../contract/errors.ts";
import { sha256Hex } from "../kernel/ids.ts";
import type { Repositories } from "./ports/stores.ts";
import type { ApiKeyRecord } from "./records.ts";

/**
 * The caller of the live view of `serve`, which sees and manages the batches of all keys. No key of the database is it: only
 * an application with an `operatorToken`, which no other process can reach, lets it in.
 */
export const OPERATOR: Readonly<ApiKeyRecord> = {
  id: "operator",
  name: "operator",
  prefix: "",
  accountId: "",
  group: "",
  createdAtMs: 0,
  expiresAtMs: null,
  disabledAtMs: null,
  enabledAtMs: null,
};

const PREFIX_CHARS = 12;

/** The record of a new key. The key itself is shown once and not stored: only its hash and first characters are. */
export function keyRecord(
  key: string,
  facts: Pick<ApiKeyRecord, "id" | "name" | "accountId" | "group" | "createdAtMs" | "expiresAtMs">,
): ApiKeyRecord & { sha256: string } {
  const prefix = key.slice(0, PREFIX_CHARS);
  return { ...facts, prefix, disabledAtMs: null, enabledAtMs: null, sha256: sha256Hex(key) };
}

/**
 * The key that a request shows, when it is active. Looking up the hash makes the time independent of how much of a
 * guessed key is right. Throws `API_KEY_REQUIRED`, `INVALID_API_KEY` or `API_KEY_DISABLED`.
 */
export async function authenticate(
  repositories: Repositories,
  key: string | null,
  nowMs: number,
): Promise<ApiKeyRecord> {
  if (key === null) throw new ImgbatchError("API_KEY_REQUIRED");
  const record = await repositories.keys.bySha256(sha256Hex(key));
  if (!record) throw new ImgbatchError("INVALID_API_KEY");
  return active(record, nowMs);
}

/** The key of this id, when it is active. Throws `API_KEY_DISABLED`. */
export async function activeKey(
  repositories: Repositories,
  id: string,
  nowMs: number,
): Promise<ApiKeyRecord> {
  return active(await repositories.keys.byId(id), nowMs);
}

function active(key: ApiKeyRecord | null, nowMs: number): ApiKeyRecord {
  if (key === null || keyState(key, nowMs) !== "active") throw new ImgbatchError("API_KEY_DISABLED");
  return key;
}

/** Whether a key is accepted, and if not, why. A key that was disabled is called so even when it has also expired. */
export type KeyState = "active" | "disabled" | "expired";

export function keyState(key: ApiKeyRecord, nowMs: number): KeyState {
  if (key.disabledAtMs !== null) return "disabled";
  return key.expiresAtMs !== null && key.expiresAtMs <= nowMs ? "expired" : "active";
}
