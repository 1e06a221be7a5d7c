import { randomBytes, timingSafeEqual } from "node:crypto";
import { open, readFile, stat } from "node:fs/promises";
import { join } from "node:path";
import {
  type Credentials,
  credentialsSchema,
  DATA_FILES,
  ownershipProof,
  type ServerFile,
  serverFileSchema,
} from "../../contract/data-directory.ts";
import { ImgbatchError } from "../../contract/errors.ts";
import { routes } from "../../contract/routes.ts";
import { boundedText } from "../../http/bounded-body.ts";

const PROBE_TIMEOUT_MS = 2000;
const MAX_ANSWER_BYTES = 4096;

/** The service that runs on a data directory, and has proved it. */
export interface RunningService {
  url: string;
  workers: boolean;
  apiKey: string;
  /**
   * Asks for the proof once more: its process may have ended since, and another program may have its port. Throws
   * `NETWORK` when it does not prove itself.
   */
  confirm(signal: AbortSignal): Promise<void>;
}

/**
 * The service of the directory, when what listens at its address proves that it can read the directory: ports are
 * reused, and other programs can repeat what a service said. Null when none does. Throws `API_KEY_REQUIRED` when one
 * runs and its key cannot be read.
 */
export async function findRunning(dataDirectory: string): Promise<RunningService | null> {
  const server = await readServer(dataDirectory);
  if (server === null) return null;
  const { url, workers } = server;
  const confirm = async (signal: AbortSignal) => {
    if (isProof(await askProof(url, signal), server)) return;
    throw new ImgbatchError("NETWORK", `${url} is no longer the service of ${dataDirectory}.`);
  };
  try {
    await confirm(AbortSignal.timeout(PROBE_TIMEOUT_MS));
  } catch {
    return null;
  }
  return { url, workers, apiKey: (await readCredentials(dataDirectory)).api_key, confirm };
}

/** An answer to a challenge. Another program can answer too. */
export interface Proof {
  challenge: string;
  port: number;
  answer: string;
}

/**
 * Challenges what listens at a base URL; null when it does not answer as a service of this program. Throws the signal's
 * reason; default: a time limit of two seconds.
 */
export async function askProof(
  baseUrl: string,
  signal: AbortSignal = AbortSignal.timeout(PROBE_TIMEOUT_MS),
): Promise<Proof | null> {
  const challenge = randomBytes(32).toString("base64url");
  try {
    const url = `${baseUrl}${routes.health}?challenge=${challenge}`;
    const response = await fetch(url, { redirect: "manual", signal });
    const { proof } = JSON.parse((await boundedText(response, MAX_ANSWER_BYTES)) ?? "{}");
    // An address of HTTP without a port has this one.
    const port = Number(new URL(baseUrl).port || 80);
    return typeof proof === "string" ? { challenge, port, answer: proof } : null;
  } catch {
    signal.throwIfAborted();
    return null;
  }
}

/** Whether the proof is of the service that wrote the file. */
export function isProof(proof: Proof | null, { secret }: Pick<ServerFile, "secret">): boolean {
  if (proof === null) return false;
  const right = Buffer.from(ownershipProof(secret, proof.challenge, proof.port));
  const given = Buffer.from(proof.answer);
  return given.length === right.length && timingSafeEqual(given, right);
}

/**
 * The file that says where the service of a data directory runs; null when none does, or the file cannot be trusted.
 * Whoever wrote the key must have written it, and nobody else may have read it: in a directory that others can write,
 * they can put one of their own there.
 */
export async function readServer(dataDirectory: string): Promise<ServerFile | null> {
  try {
    const { uid } = await stat(join(dataDirectory, DATA_FILES.credentials));
    const file = await open(join(dataDirectory, DATA_FILES.server));
    try {
      const facts = await file.stat();
      const isPrivate = process.platform === "win32" || (facts.uid === uid && (facts.mode & 0o077) === 0);
      return isPrivate ? serverFileSchema.parse(JSON.parse(await file.readFile("utf8"))) : null;
    } finally {
      await file.close();
    }
  } catch {
    return null;
  }
}

async function readCredentials(dataDirectory: string): Promise<Credentials> {
  const path = join(dataDirectory, DATA_FILES.credentials);
  try {
    return credentialsSchema.parse(JSON.parse(await readFile(path, "utf8")));
  } catch (cause) {
    const message = `${path} cannot be read: it holds the key of the embedded service. Restart the service to get a new one.`;
    throw new ImgbatchError("API_KEY_REQUIRED", message, { cause });
  }
}
