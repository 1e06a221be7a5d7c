import { type ChildProcessWithoutNullStreams, spawn } from "node:child_process";
import { once } from "node:events";
import { existsSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { openClient } from "./client.mjs";

const MODULES = join(import.meta.dirname, "node_modules");

const { devDependencies } = JSON.parse(readFileSync(join(import.meta.dirname, "package.json"), "utf8"));
/** The client libraries are large and of no use to users: they are installed apart. */
export const areInstalled = Object.keys(devDependencies).every((name) => existsSync(join(MODULES, name)));
if (!areInstalled) {
  process.stderr.write("test/sdk is skipped: install the client libraries with `npm --prefix test/sdk ci`\n");
}

export type Library =
  | "@google/generative-ai"
  | "genai-1"
  | "genai-2"
  | "genai-3"
  | "openai"
  | "openai-7"
  | "@ai-sdk/google"
  | "@ai-sdk/openai"
  | "@ai-sdk/openai-compatible";

/** The others want a newer Node than this program does; npm brings one. */
const OLDER_LIBRARIES: readonly Library[] = ["@google/generative-ai", "genai-1", "genai-2", "openai"];
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

/** A client of the library: inside the test's own process where its Node will do, in another one where not. */
export function startSdk(library: Library, options: object): Sdk {
  // An option that is not set must not be there for the libraries either.
  const given = JSON.parse(JSON.stringify(options));
  if (IS_NODE_22 || OLDER_LIBRARIES.includes(library)) {
    const client = openClient(library, given);
    return {
      call: async (method, ...args) => JSON.parse(JSON.stringify(await (await client)(method, args))),
      close: async () => {},
    };
  }
  driver ??= new Driver();
  const shared = driver;
  shared.users++;
  return {
    call: (method, ...args) => shared.call({ library, options: given, method, args }),
    close: async () => {
      if (--shared.users > 0) return;
      driver = null;
      await shared.end();
    },
  };
}

/** The process of all clients that are open. */
let driver: Driver | null = null;

class Driver {
  users = 0;
  readonly #child: ChildProcessWithoutNullStreams = spawn(NODE_22, [join(import.meta.dirname, "driver.mjs")]);
  readonly #exited = once(this.#child, "close");
  readonly #open = new Map<number, (answer: never) => void>();
  #last = 0;
  #complaint = "";

  constructor() {
    this.#child.stderr.on("data", (chunk) => {
      this.#complaint += chunk;
    });
    createInterface({ input: this.#child.stdout }).on("line", (line) => {
      const { id, ...answer } = JSON.parse(line);
      this.#open.get(id)?.(answer as never);
      this.#open.delete(id);
    });
  }

  async call<T>(call: object): Promise<SdkAnswer<T>> {
    const id = ++this.#last;
    const answer = new Promise<SdkAnswer<T>>((resolve) => this.#open.set(id, resolve));
    this.#child.stdin.write(`${JSON.stringify({ id, ...call })}\n`);
    const ended = this.#exited.then(() => {
      throw new Error(`the client library ended: ${this.#complaint}`);
    });
    return Promise.race([answer, ended]);
  }

  async end(): Promise<void> {
    this.#child.kill();
    await this.#exited;
  }
}
