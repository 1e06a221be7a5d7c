import { createHmac } from "node:crypto";
import { fieldsOf } from "../kernel/json.ts";
import type { ProviderEntry } from "./provider-entries.ts";

/** The facts by which another process recognises a provider. They hold no secrets. */
export interface ProviderIdentity {
  name: string;
  type: string;
  /** The base URL without user and query, or the program; null for drawings. */
  address: string | null;
  /** Whether its images cost nothing, or only play money. */
  free: boolean;
  /** Why a running service cannot use it until it starts again, such as a missing key; left out when it can. */
  disabled?: string | undefined;
  /** The hash of entry and key by which a running service keeps its health. Drawings have none. */
  fingerprint?: string | undefined;
}

export function identityOf(entry: ProviderEntry): ProviderIdentity {
  const { name, type } = entry;
  if (entry.type === "procedural") return { name, type, address: null, free: true };
  if (entry.type === "replay")
    return { name, type, address: null, free: !entry.records || identityOf(entry.of).free };
  const address = entry.type === "command" ? (entry.argv[0] ?? "") : addressOf(entry.baseUrl);
  return { name, type, address, free: entry.free };
}

/** The environment variables that must be set for an entry. */
export function secretVariables(entry: ProviderEntry): string[] {
  if (entry.type === "procedural") return [];
  if (entry.type === "replay") return entry.records ? secretVariables(entry.of) : [];
  const names =
    entry.type === "command"
      ? entry.env
      : entry.type === "sdapi"
        ? [entry.userEnv, entry.passwordEnv]
        : [entry.apiKeyEnv];
  return names.filter((name) => name !== null);
}

/** What people copy with a key: the name of a variable, a field or a header, and the scheme of one. */
const BEFORE_KEY =
  /^(?:export |set |\$env:)?(?:["']?[\w-]{0,40}(?:key|token|secret)["']? ?[=:] ?["']?|(?:authorization: ?)?bearer )(?==*[^=\s])/i;
/** What no header can carry, quotes of an env file, brackets of an example, and a variable that nothing has replaced. */
const NOT_OF_KEY = /[^\x21-\x7e]|^["'`<{[]|["'`>}\]]$|^\$(?=\{|[A-Z_]+$)/gu;

/** Says what of a key cannot belong to it, with the place that the key comes from; null for any other key. */
export function keyProblem(place: string, key: string): string | null {
  const codes = [...new Set(key.match(NOT_OF_KEY))]
    .slice(0, 3)
    .map((char) => `U+${char.codePointAt(0)?.toString(16).toUpperCase().padStart(4, "0")}`);
  const before = BEFORE_KEY.exec(key)?.[0].trim();
  const way = before === undefined ? "" : `: leave out ${before} and keep the key alone`;
  if (codes.length > 0)
    return `${place} holds characters that no key has: ${codes.join(", ")}${way.replace(":", ";")}`;
  return before === undefined ? null : `${place} begins with more than a key${way}`;
}

/** Returns the problem of the key of an entry, as `keyProblem` does; null when it has none, and without a key. */
export function keyProblemOf(entry: ProviderEntry, secret: (name: string) => string | null): string | null {
  if (entry.type === "replay") return entry.records ? keyProblemOf(entry.of, secret) : null;
  const variable = "apiKeyEnv" in entry ? entry.apiKeyEnv : null;
  const key = variable === null ? null : secret(variable);
  if (variable === null || key === null) return null;
  const header = "keyHeader" in entry ? entry.keyHeader : "auth" in entry ? entry.auth : "";
  // There the key has its scheme with it: `Bearer abc`.
  const hasScheme = header.toLowerCase() === "authorization";
  return keyProblem(variable, hasScheme ? key.replace(/^[A-Za-z]+ /, "") : key);
}

/** Whether every provider only draws, so that the money is play money. False without any provider. */
export function isProceduralOnly({ providers }: { providers: readonly { type: string }[] }): boolean {
  return providers.length > 0 && providers.every(({ type }) => type === "procedural");
}

/** Whether a JSON value is an identity. It may have other fields. */
function isProviderIdentity(value: unknown): value is ProviderIdentity {
  const fields = fieldsOf(value);
  if (fields === null) return false;
  const { name, type, address, free, disabled = "", fingerprint = "" } = fields;
  const texts = [name, type, address ?? "", disabled, fingerprint];
  return (
    texts.every((text) => typeof text === "string") && address !== undefined && typeof free === "boolean"
  );
}

function addressOf(baseUrl: string): string {
  const { origin, pathname } = new URL(baseUrl);
  return `${origin}${pathname}`.replace(/\/+$/, "");
}

/** The files of a data directory that other processes may read. */
export const DATA_FILES = {
  database: "imgbatch.db",
  lock: "lock.db",
  blobs: "blobs",
  credentials: "credentials.json",
  server: "server.json",
  /** Bytes on their way to a bucket. */
  scratch: "scratch",
  /** Where the data went, when it was moved away. */
  moved: "moved.json",
  /** In a directory that `imgbatch admin backup` has written: when it last succeeded. */
  backup: "backup.json",
} as const;

/** `credentials.json`: what a client on this machine needs. Readable by its owner only. */
export interface Credentials {
  base_url: string;
  api_key: string;
}

/** Reads the text of `credentials.json`. Throws for any other text. */
export function parseCredentials(text: string): Credentials {
  const value: unknown = JSON.parse(text);
  const { base_url, api_key } = fieldsOf(value) ?? {};
  if (![base_url, api_key].every((each) => typeof each === "string")) throw new Error("not credentials");
  return value as Credentials;
}

/** `server.json`: exists while a service runs on the directory. Readable by its owner only. */
export interface ServerFile {
  url: string;
  pid: number;
  workers: boolean;
  /** Set when the service is that of a command, and ends with the command. */
  ends_with_command?: boolean;
  /** The providers of the service, in their order. */
  providers: ProviderIdentity[];
  /** Another one after every start. Never sent: `ownershipProof` shows who has it. */
  secret: string;
  started_at: number;
}

const LEAST_SECRET_CHARS = 43;

/** Reads the text of `server.json`. Throws for any other text. */
export function parseServerFile(text: string): ServerFile {
  const value: unknown = JSON.parse(text);
  const { url, pid, workers, providers, secret, started_at } = fieldsOf(value) ?? {};
  const isServerFile =
    typeof url === "string" &&
    Number.isSafeInteger(pid) &&
    typeof workers === "boolean" &&
    Array.isArray(providers) &&
    providers.every(isProviderIdentity) &&
    typeof secret === "string" &&
    secret.length >= LEAST_SECRET_CHARS &&
    Number.isSafeInteger(started_at);
  if (!isServerFile) throw new Error("not a server file");
  return value as ServerFile;
}

/** A challenge that `/healthz` takes. A client makes a fresh one for every question. */
export const CHALLENGE = /^[\w-]{32,128}$/;

/**
 * The proof that a program on `port` can read `server.json`: HMAC with SHA-256 (RFC 2104) in base64url. It is of use for
 * this challenge and port alone, so that neither an old answer nor one of a service elsewhere passes for it.
 */
export function ownershipProof(secret: string, challenge: string, port: number): string {
  return createHmac("sha256", secret).update(`imgbatch healthz ${port} ${challenge}`).digest("base64url");
}

/** The ready file of `serve`: written when the service listens and its workers run. */
export interface ReadyFile {
  url: string;
  pid: number;
  data: string;
  /** Path of `credentials.json`. Left out where the keys are in a shared database. */
  credentials?: string;
}
