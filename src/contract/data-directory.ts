import { z } from "zod";

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

/** `server.json`: there while a service runs on the directory. */
export const serverFileSchema = z.looseObject({
  url: z.string(),
  pid: z.int(),
  workers: z.boolean(),
  /** Also answered by `/healthz`: shows that the address still is this service, not another program's. */
  instance: z.string(),
  started_at: z.int(),
});
export type ServerFile = z.infer<typeof serverFileSchema>;

/** The ready file of `serve`: written when the service answers and its workers run. */
export interface ReadyFile {
  url: string;
  pid: number;
  data: string;
  /** Path of `credentials.json`. */
  credentials: string;
}

/** What SQLite says of a database file that it cannot make sense of, wherever in the work that comes to light. */
export function isDatabaseDamage(error: unknown): boolean {
  const code = String((error as { code?: unknown } | null)?.code);
  return code.startsWith("SQLITE_CORRUPT") || code === "SQLITE_NOTADB";
}
