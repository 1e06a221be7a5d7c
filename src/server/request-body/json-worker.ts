import type { MessagePort } from "node:worker_threads";
import type { JsonBounds, jsonExcess } from "../../kernel/json/json-shape.ts";

export type JsonProblem = "depth" | "elements" | "utf-8" | "json";
/** The path of a value: names and indexes, from the outside in. */
export type JsonPath = readonly (string | number)[];

/** The messages of the worker, one for each request. */
export type JsonMessage =
  | { kind: "problem"; problem: JsonProblem }
  /** The value, with null in place of each long string. */
  | { kind: "value"; value: unknown }
  /** The next part of the long string at this path. */
  | { kind: "text"; path: JsonPath; part: string }
  | { kind: "end" };

export interface JsonWork {
  pieces: Uint8Array<ArrayBuffer>[];
  bounds: JsonBounds;
  /** The problem of a string that was taken out before. */
  problem: "utf-8" | "json" | null;
  longTextChars: number;
}

/**
 * Parses JSON in a worker and sends it in parts that each cost the receiver a few milliseconds at most. The function uses
 * only its parameters, so that its source can be sent to a worker.
 */
export function serveJson(port: MessagePort, work: JsonWork, findExcess: typeof jsonExcess): void {
  const messages = messagesOf();
  port.on("message", next);
  next();

  function next(): void {
    const { value: message, done } = messages.next();
    if (done) return;
    port.postMessage(message);
  }

  function* messagesOf(): Generator<JsonMessage> {
    const parsed = parse();
    if ("problem" in parsed) return yield { kind: "problem", problem: parsed.problem };
    const root = { value: parsed.value };
    const texts: { path: (string | number)[]; text: string }[] = [];
    takeTexts(root as unknown as Record<string, unknown>, [], texts);
    yield { kind: "value", value: root };
    for (let long = texts.shift(); long; long = texts.shift()) {
      const { path, text } = long;
      const chars = 32 * work.longTextChars;
      for (let from = 0; from < text.length; from += chars) {
        yield { kind: "text", path, part: text.slice(from, from + chars) };
      }
    }
    yield { kind: "end" };
  }

  function parse(): { value: unknown } | { problem: JsonProblem } {
    const bytes = join(work.pieces);
    const problem = findExcess(bytes, work.bounds);
    if (problem !== null) return { problem };
    let text: string;
    try {
      text = new TextDecoder("utf-8", { fatal: true }).decode(bytes);
    } catch {
      return { problem: "utf-8" };
    }
    if (work.problem !== null) return { problem: work.problem };
    try {
      return { value: JSON.parse(text) };
    } catch {
      return { problem: "json" };
    }
  }

  function join(pieces: Uint8Array[]): Uint8Array {
    const only = pieces[0];
    if (pieces.length === 1 && only) return only;
    const whole = new Uint8Array(pieces.reduce((sum, piece) => sum + piece.length, 0));
    let at = 0;
    for (let piece = pieces.shift(); piece; piece = pieces.shift()) {
      whole.set(piece, at);
      at += piece.length;
    }
    return whole;
  }

  /** Takes long strings out of the value. Long field names stay. */
  function takeTexts(
    holder: Record<string, unknown>,
    path: (string | number)[],
    texts: { path: (string | number)[]; text: string }[],
  ): void {
    for (const name of Object.keys(holder)) {
      const inner = holder[name];
      const at = [...path, Array.isArray(holder) ? Number(name) : name];
      if (typeof inner === "string" && inner.length >= work.longTextChars) {
        texts.push({ path: at, text: inner });
        holder[name] = null;
      } else if (inner !== null && typeof inner === "object") {
        takeTexts(inner as Record<string, unknown>, at, texts);
      }
    }
  }
}
