import { createHmac } from "node:crypto";
import { z } from "zod";
import { providerIdentitySchema } from "./provider-entries.ts";

/** The files of a data directory that other processes may read. */
export const DATA_FILES = {
  database: "imgbatch.db",
  lock: "lock.db",
  blobs: "blobs",
  credentials: "credentials.json",
  server: "server.json",
} as const;

/** `credentials.json`: what a client on this machine needs. Readable by its owner only. */
export const credentialsSchema = z.looseObject({ base_url: z.string(), api_key: z.string() });
export type Credentials = z.infer<typeof credentialsSchema>;

/** `server.json`: exists while a service runs on the directory. Readable by its owner only. */
export const serverFileSchema = z.looseObject({
  url: z.string(),
  pid: z.int(),
  workers: z.boolean(),
  /** The providers of the service, in their order. Earlier versions, which only draw, write none. */
  providers: z.array(providerIdentitySchema).optional(),
  /** Another one after every start. Never sent: `ownershipProof` shows who has it. */
  secret: z.string().min(43),
  started_at: z.int(),
});
export type ServerFile = z.infer<typeof serverFileSchema>;

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
  /** Path of `credentials.json`. */
  credentials: string;
}

/** Whether SQLite reports a database file that is damaged or is not a database. */
export function isDatabaseDamage(error: unknown): boolean {
  const code = String((error as { code?: unknown } | null)?.code);
  return code.startsWith("SQLITE_CORRUPT") || code === "SQLITE_NOTADB";
}
