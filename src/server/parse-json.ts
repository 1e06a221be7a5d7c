import { Worker } from "node:worker_threads";
import PQueue from "p-queue";
import { ImgbatchError } from "../contract/errors.ts";
import { FIXED_LIMITS } from "../contract/limits.ts";
import { type JsonBounds, jsonExcess } from "../kernel/json-shape.ts";

/** Above this size parsing would hold up other requests for too long. */
const OFF_THREAD_BYTES = 4 * 1024 * 1024;

/** Large bodies need memory many times their size: one at a time. */
const largeBodies = new PQueue({ concurrency: 1 });

type Parsed = { value: unknown } | { problem: "depth" | "elements" | "utf-8" | "json" };

const BOUNDS: JsonBounds = { maxDepth: FIXED_LIMITS.jsonDepth, maxElements: FIXED_LIMITS.jsonElements };

/** Parses JSON bytes; large ones off the main thread. Throws `INVALID_JSON`, also for text that is nested too deep. */
export async function parseJson(bytes: Buffer): Promise<unknown> {
  const parsed =
    bytes.length > OFF_THREAD_BYTES
      ? await largeBodies.add(() => parseInWorker(bytes))
      : parseBytes(bytes, BOUNDS, jsonExcess);
  if ("value" in parsed) return parsed.value;
  const messages = {
    depth: `The body is nested deeper than ${FIXED_LIMITS.jsonDepth} levels.`,
    elements: `The body has more than ${FIXED_LIMITS.jsonElements} elements.`,
    "utf-8": "The body is not valid UTF-8.",
    json: undefined,
  };
  throw new ImgbatchError("INVALID_JSON", messages[parsed.problem]);
}

/** Stands alone, so that its source can be sent to a worker: whatever it needs is a parameter. */
function parseBytes(bytes: Uint8Array, bounds: JsonBounds, findExcess: typeof jsonExcess): Parsed {
  const problem = findExcess(bytes, bounds);
  if (problem !== null) return { problem };
  let text: string;
  try {
    text = new TextDecoder("utf-8", { fatal: true }).decode(bytes);
  } catch {
    return { problem: "utf-8" };
  }
  try {
    return { value: JSON.parse(text) };
  } catch {
    return { problem: "json" };
  }
}

const WORKER_SOURCE = `
  const { parentPort, workerData } = require("node:worker_threads");
  const parseBytes = ${parseBytes.toString()};
  const findExcess = ${jsonExcess.toString()};
  parentPort.postMessage(parseBytes(workerData.bytes, workerData.bounds, findExcess));
`;

function parseInWorker(bytes: Buffer): Promise<Parsed> {
  const own = Uint8Array.from(bytes);
  const workerData = { bytes: own, bounds: BOUNDS };
  const worker = new Worker(WORKER_SOURCE, { eval: true, workerData, transferList: [own.buffer] });
  return new Promise((resolve, reject) => {
    worker.once("message", resolve);
    worker.once("error", reject);
    worker.once("exit", () => reject(new Error("the parser ended without an answer")));
  });
}
