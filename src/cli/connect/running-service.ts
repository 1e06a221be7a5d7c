import { randomBytes, timingSafeEqual } from "node:crypto";
import { closeSync, fstatSync, openSync, readFileSync, statSync } from "node:fs";
import { join } from "node:path";
import {
  type Credentials,
  DATA_FILES,
  ownershipProof,
  parseCredentials,
  parseServerFile,
  type ServerFile,
} from "../../contract/data-directory.ts";
import { ImgbatchError } from "../../contract/errors.ts";
import { routes } from "../../contract/routes.ts";
import { boundedText, send } from "../../http/transport.ts";
import type { ReachableService } from "./connection.ts";

const PROBE_TIMEOUT_MS = 2000;
const MAX_ANSWER_BYTES = 4096;

/**
 * Finds the service that runs on a data directory. The program at the recorded address must prove that it can read the
 * directory, because ports are reused. Null if none does. Throws `API_KEY_REQUIRED` if a service runs but its key cannot
 * be read. `confirm` asks for the proof again: the process may have ended since, and another program may have taken its port.
 */
export async function findRunning(
  dataDirectory: string,
): Promise<(Required<ReachableService> & Pick<ServerFile, "workers"> & { endsWithCommand: boolean }) | null> {
  const server = readServer(dataDirectory);
  if (server === null) return null;
  const { url: baseUrl, workers, providers, ends_with_command: endsWithCommand = false } = server;
  const confirm = async (signal: AbortSignal) => {
    if (isProof(await askProof(baseUrl, signal), server)) return;
    throw new ImgbatchError("NETWORK", `${baseUrl} is no longer the service of ${dataDirectory}.`);
  };
  try {
    await confirm(AbortSignal.timeout(PROBE_TIMEOUT_MS));
  } catch {
    return null;
  }
  const { api_key: apiKey } = readCredentials(dataDirectory);
  return { baseUrl, apiKey, confirm, isLocal: true, workers, endsWithCommand, providers };
}

/** The response to a challenge. It is not verified yet: any program can respond. */
interface Proof {
  challenge: string;
  port: number;
  answer: string;
}

/**
 * Sends a challenge to a base URL; null if the response is not one of an imgbatch service. Throws the signal's reason.
 * Default signal: a time limit of two seconds.
 */
async function askProof(
  baseUrl: string,
  signal: AbortSignal = AbortSignal.timeout(PROBE_TIMEOUT_MS),
): Promise<Proof | null> {
  const challenge = randomBytes(32).toString("base64url");
  try {
    const url = `${baseUrl}${routes.health}?challenge=${challenge}`;
    const response = await send(url, { signal, silenceMs: PROBE_TIMEOUT_MS });
    const { proof } = JSON.parse((await boundedText(response.body, MAX_ANSWER_BYTES)) ?? "{}");
    // The default port of HTTP.
    const port = Number(new URL(baseUrl).port || 80);
    return typeof proof === "string" ? { challenge, port, answer: proof } : null;
  } catch {
    signal.throwIfAborted();
    return null;
  }
}

/**
 * Returns which of the data directories the service at an address has, and its process; `unknown` for a service of this program
 * on another one. Null if no service of this program answers at the address.
 */
export async function serviceAt(
  { host, port }: { host: string; port: number },
  directories: readonly string[],
): Promise<{ directory: string; pid: number } | "unknown" | null> {
  const reachable = host === "0.0.0.0" ? "127.0.0.1" : host === "::" ? "::1" : host;
  const name = reachable.includes(":") ? `[${reachable}]` : reachable;
  const proof = await askProof(`http://${name}:${port}`).catch(() => null);
  if (proof === null) return null;
  for (const directory of directories) {
    const server = readServer(directory);
    if (server !== null && isProof(proof, server)) return { directory, pid: server.pid };
  }
  return "unknown";
}

/** Whether the proof comes from the service that wrote the file. */
function isProof(proof: Proof | null, { secret }: ServerFile): boolean {
  if (proof === null) return false;
  const right = Buffer.from(ownershipProof(secret, proof.challenge, proof.port));
  const given = Buffer.from(proof.answer);
  return given.length === right.length && timingSafeEqual(given, right);
}

/**
 * Reads the address of the service of a data directory. Null if there is none, or if the file cannot be trusted: it must
 * belong to the owner of the key file and be private, because in a shared directory others could put a file there.
 */
function readServer(dataDirectory: string): ServerFile | null {
  // Both files are small, and each turn of the event loop takes longer than they do.
  try {
    const { uid } = statSync(join(dataDirectory, DATA_FILES.credentials));
    const file = openSync(join(dataDirectory, DATA_FILES.server), "r");
    try {
      const facts = fstatSync(file);
      const isPrivate = process.platform === "win32" || (facts.uid === uid && (facts.mode & 0o077) === 0);
      return isPrivate ? parseServerFile(readFileSync(file, "utf8")) : null;
    } finally {
      closeSync(file);
    }
  } catch {
    return null;
  }
}

function readCredentials(dataDirectory: string): Credentials {
  const path = join(dataDirectory, DATA_FILES.credentials);
  try {
    return parseCredentials(readFileSync(path, "utf8"));
  } catch (cause) {
    const message = `${path} cannot be read: it holds the key of the embedded service. Restart the service to get a new one.`;
    throw new ImgbatchError("API_KEY_REQUIRED", message, { cause });
  }
}
