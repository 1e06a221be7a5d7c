import { type ChildProcessWithoutNullStreams, spawn } from "node:child_process";
import { once } from "node:events";
import { existsSync } from "node:fs";
import { join } from "node:path";
import { createInterface } from "node:readline";

const MODULES = join(import.meta.dirname, "node_modules");

/** The client libraries are large and of no use to users: they are installed apart. */
export const areInstalled = existsSync(join(MODULES, "@ai-sdk/openai"));
if (!areInstalled) {
  process.stderr.write("test/sdk is skipped: install the client libraries with `npm --prefix test/sdk ci`\n");
}

export type Library =
  | "genai-2"
  | "genai-3"
  | "openai"
  | "openai-7"
  | "@ai-sdk/google"
  | "@ai-sdk/openai"
  | "@ai-sdk/openai-compatible";

/** The others want a newer Node than this program does; npm brings one. */
const OLDER_LIBRARIES: readonly Library[] = ["genai-2", "openai"];
const IS_NODE_22 = Number(process.versions.node.split(".")[0]) >= 22;
/** A Node of at least that version. */
export const NODE_22 = IS_NODE_22 ? process.execPath : join(MODULES, "node", "bin", "node");

/** The outcome of a call, as far as JSON can tell it. */
export interface SdkAnswer<T> {
  value: T;
  /** The error that was thrown instead. */
  error?: {
    name: string;
    /** The library's own error classes that it is of. */
    classes: string[];
    status: number;
    message: string;
    code?: string | null;
    type?: string | null;
    requestID?: string | null;
    /** The parts that a stream gave before it failed. */
    before: T;
  };
}

export interface Sdk {
  /** Calls a method of the client, `models.list`; lists and streams are read to their end. */
  call<T = unknown>(method: string, ...args: unknown[]): Promise<SdkAnswer<T>>;
  close(): Promise<void>;
}

/** A client of the library, in a process of its own. */
export function startSdk(library: Library, options: object): Sdk {
  const node = OLDER_LIBRARIES.includes(library) ? process.execPath : NODE_22;
  const driver = join(import.meta.dirname, "driver.mjs");
  const child: ChildProcessWithoutNullStreams = spawn(node, [driver, library, JSON.stringify(options)]);
  let complaint = "";
  child.stderr.on("data", (chunk) => {
    complaint += chunk;
  });
  const exited = once(child, "close");
  const lines = createInterface({ input: child.stdout })[Symbol.asyncIterator]();
  return {
    call: async (method, ...args) => {
      child.stdin.write(`${JSON.stringify({ method, args })}\n`);
      const { value, done } = await lines.next();
      if (done) throw new Error(`the client library ended: ${complaint}`);
      return JSON.parse(value);
    },
    close: async () => {
      child.kill();
      await exited;
    },
  };
}
