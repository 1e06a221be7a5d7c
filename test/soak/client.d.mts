import type { Entry, Memory, Want } from "./memory.mjs";

export class Gone extends Error {}

export interface ClientAnswer {
  status: number;
  headers: Headers;
  bytes: Buffer;
  json?: { error?: { code: string } } & Record<string, unknown>;
  code: string | undefined;
  what: string;
}

export class Client {
  url: string;
  memory: Memory;
  constructor(url: string, memory: Memory);
  mayAnswer(status: number): boolean;
  /** `path` is below the batches, or begins with `/v1beta`. */
  ask(key: string, path: string, init?: RequestInit): Promise<ClientAnswer>;
  create(want: Want): Promise<Entry | null>;
  look(entry: Entry): Promise<Entry["view"] | null>;
  items(entry: Entry): Promise<{ custom_id: string; status: string }[] | null>;
}

export function sha256(bytes: Uint8Array): string;
