import { Worker } from "node:worker_threads";
import PQueue from "p-queue";
import { ImgbatchError } from "../../contract/errors.ts";
import { FIXED_LIMITS } from "../../contract/limits.ts";
import { type JsonBounds, jsonExcess } from "../../kernel/json/json-shape.ts";
import {
  type JsonMessage,
  type JsonPath,
  type JsonProblem,
  type JsonWork,
  serveJson,
} from "./json-worker.ts";
import type { StringProblem } from "./string-decoder.ts";

const MIB = 1024 * 1024;
/** Above this size parsing would hold up other requests for too long. */
const OFF_THREAD_BYTES = MIB;
const LONG_TEXT_CHARS = 64 * 1024;

const LARGE_BYTES = 4 * MIB;

const BOUNDS: JsonBounds = { maxDepth: FIXED_LIMITS.jsonDepth, maxElements: FIXED_LIMITS.jsonElements };

/**
 * Parses the bodies of one service. Parsing a large body takes several times its size in memory, so large bodies are
 * parsed one at a time. Smaller bodies do not wait for them.
 */
export class JsonParser {
  readonly #large = new PQueue({ concurrency: 1 });
  readonly #medium = new PQueue({ concurrency: 1 });

  /**
   * Parses JSON from its pieces. A large body is parsed in a worker, and its pieces cannot be used afterwards. `problem`
   * is the problem of a string that was taken out of it. Throws `INVALID_JSON`, also for JSON that is nested too deep or
   * has too many elements.
   */
  async parse(pieces: Uint8Array<ArrayBuffer>[], problem: StringProblem | null = null): Promise<unknown> {
    const size = pieces.reduce((sum, piece) => sum + piece.length, 0);
    if (size <= OFF_THREAD_BYTES) return parseHere(Buffer.concat(pieces), problem);
    const queue = size > LARGE_BYTES ? this.#large : this.#medium;
    return queue.add(() =>
      parseInWorker({ pieces, problem, bounds: BOUNDS, longTextChars: LONG_TEXT_CHARS }),
    );
  }
}

const UTF_8 = new TextDecoder("utf-8", { fatal: true });

function parseHere(bytes: Buffer, problem: StringProblem | null): unknown {
  const excess = jsonExcess(bytes, BOUNDS);
  if (excess !== null) throw invalidJson(excess);
  let text: string;
  try {
    text = UTF_8.decode(bytes);
  } catch {
    throw invalidJson("utf-8");
  }
  if (problem !== null) throw invalidJson(problem);
  try {
    return JSON.parse(text);
  } catch {
    throw invalidJson("json");
  }
}

const WORKER_SOURCE = `
  const { parentPort, workerData } = require("node:worker_threads");
  (${serveJson.toString()})(parentPort, workerData, ${jsonExcess.toString()});
`;

async function parseInWorker(work: JsonWork): Promise<unknown> {
  const transferList = work.pieces.map((piece) => piece.buffer);
  const worker = new Worker(WORKER_SOURCE, { eval: true, workerData: work, transferList });
  try {
    return await receive(worker);
  } finally {
    await worker.terminate();
  }
}

/** Asks the worker for one part after another, so that the event loop serves other requests in between. */
function receive(worker: Worker): Promise<unknown> {
  let root: unknown;
  return new Promise((resolve, reject) => {
    worker.on("message", (message: JsonMessage) => {
      if (message.kind === "problem") return reject(invalidJson(message.problem));
      if (message.kind === "end") return resolve((root as { value: unknown }).value);
      if (message.kind === "value") root = message.value;
      else change(root, message.path, (text) => (text ?? "") + message.part);
      worker.postMessage("next");
    });
    worker.once("error", reject);
    worker.once("exit", () => reject(new Error("the parser ended without a result")));
  });
}

/** The worker left null at each of these paths as an own property, so a name such as `__proto__` is safe. */
function change(root: unknown, path: JsonPath, to: (before: string | null) => unknown): void {
  let holder = root as Record<string | number, unknown>;
  for (const name of path.slice(0, -1)) holder = holder[name] as Record<string | number, unknown>;
  const last = path.at(-1) ?? "";
  holder[last] = to(holder[last] as string | null);
}

function invalidJson(problem: JsonProblem): ImgbatchError {
  const messages = {
    depth: `The body is nested deeper than ${FIXED_LIMITS.jsonDepth} levels.`,
    elements: `The body has more than ${FIXED_LIMITS.jsonElements} elements.`,
    "utf-8": "The body is not valid UTF-8.",
    json: undefined,
  };
  return new ImgbatchError("INVALID_JSON", messages[problem]);
}
