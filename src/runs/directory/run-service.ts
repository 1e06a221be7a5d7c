import type { ProviderIdentity } from "../../contract/data-directory.ts";
import type { RunEvent } from "../../contract/events.ts";
import type { Http } from "../../http/http.ts";
import { sha256Hex } from "../../kernel/ids.ts";
import type { RunBatch } from "./run-state-schema.ts";

/** The base URL in the run state of a run whose service is embedded: its port changes from run to run. */
export const EMBEDDED = "embedded";

/** The service of a run. */
export interface RunService {
  http: Http;
  /** `embedded`, or the base URL. */
  identity: string;
  keyFingerprint: string;
  /** The upstream that the command named for the embedded service; null when it named none. */
  upstream: string | null;
  /** The data directory of the embedded service. */
  dataDirectory?: string;
  /** Lets a stopped batch go on, because the command names it. Left out by a service that cannot stop any. */
  goOn?(batchId: string): Promise<void>;
  /** Whether short polling intervals are fair. */
  isLocal: boolean;
  /** Whether each command starts it anew, with the configuration as it is then. Default: yes. */
  readsConfiguration?: boolean;
  /** The providers of an embedded service. Default: not known. */
  providers?: readonly ProviderIdentity[];
}

/** Returns 12 hexadecimal digits of a key's SHA-256: they distinguish keys without revealing one. */
export function keyFingerprint(apiKey: string): string {
  return sha256Hex(apiKey).slice(0, 12);
}

/**
 * Whether two identities can be the same service. Services of this machine change their ports, so any two of them
 * match; the key then decides.
 */
export function isSameService(a: string, b: string): boolean {
  return a === b || (isOnThisMachine(a) && isOnThisMachine(b));
}

/** Returns why a service is not the one, with the same key, that made a batch; null if it is. */
export function otherMaker(
  { base_url, key_fingerprint }: Pick<RunBatch, "base_url" | "key_fingerprint">,
  {
    identity,
    keyFingerprint,
    dataDirectory,
  }: Pick<RunService, "identity" | "keyFingerprint" | "dataDirectory">,
): string | null {
  if (!isSameService(base_url, identity))
    return `it is of another service (${inWords(base_url)}, not ${inWords(identity)})`;
  if (key_fingerprint === keyFingerprint) return null;
  // Services of this machine change their ports, so another address may mean another service, too.
  if (base_url !== identity && base_url !== EMBEDDED && identity !== EMBEDDED)
    return `it is of another service or API key (${base_url}, not ${identity})`;
  return dataDirectory === undefined
    ? "it is of another API key, which alone can see it"
    : `the data of the embedded service in ${dataDirectory} are new, or have another key`;
}

const inWords = (identity: string) => (identity === EMBEDDED ? "the embedded one" : identity);

/** Whether an identity or an address is that of a server on this machine. */
export function isOnThisMachine(identity: string): boolean {
  if (identity === EMBEDDED) return true;
  const host = URL.canParse(identity) ? new URL(identity).hostname : "";
  return host === "localhost" || host === "[::1]" || /^127(\.\d{1,3}){3}$/.test(host);
}

/** Takes the messages of a run while it works. */
export interface RunReporter {
  /** A line that stays visible. */
  note(line: string): void;
  /** A line for verbose output. */
  detail(line: string): void;
  /** The progress; the next one replaces it. `sinceMs`: when the work began, if its duration should be shown. */
  progress(text: string, sinceMs?: number): void;
  /** An event for programs that follow the run. */
  event?(event: RunEvent): void;
}
