import type { MessagePort } from "node:worker_threads";
import type { JsonBounds, jsonExcess } from "../../kernel/json/json-shape.ts";

export type JsonProblem = "depth" | "elements" | "utf-8" | "json";
/** Where something stands in a value: names and indexes, from outside in. */
export type JsonPlace = readonly (string | number)[];

/** What the worker tells, one message each time it is asked. */
export type JsonMessage =
  | { kind: "problem"; problem: JsonProblem }
  /** The value, with null in the places of long texts. */
  | { kind: "value"; value: unknown }
  /** The next part of the long text at this place. */
  | { kind: "text"; place: JsonPlace; part: string }
  | { kind: "end" };

export interface JsonWork {
  pieces: Uint8Array<ArrayBuffer>[];
  bounds: JsonBounds;
  /** What is wrong with texts that were taken out before. */
  problem: "utf-8" | "json" | null;
  longTextChars: number;
}

/**
 * Parses JSON in a worker and hands it over in parts that each take the receiver a few milliseconds at most. Stands
 * alone, so that its source can be sent to a worker: whatever it needs is a parameter.
 */
export function serveJson(port: MessagePort, work: JsonWork, findExcess: typeof jsonExcess): void {
  const messages = tell();
  port.on("message", next);
  next();

  function next(): void {
    const { value: message, done } = messages.next();
    if (done) return;
    port.postMessage(message);
  }

  function* tell(): Generator<JsonMessage> {
    const parsed = parse();
    if ("problem" in parsed) return yield { kind: "problem", problem: parsed.problem };
    const root = { value: parsed.value };
    const texts: { place: (string | number)[]; text: string }[] = [];
    takeTexts(root as unknown as Record<string, unknown>, [], texts);
    yield { kind: "value", value: root };
    for (let long = texts.shift(); long; long = texts.shift()) {
      const { place, text } = long;
      const chars = 32 * work.longTextChars;
      for (let from = 0; from < text.length; from += chars) {
        yield { kind: "text", place, part: text.slice(from, from + chars) };
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

  /** Takes long texts out of the value; names, too, may be long, but they stay. */
  function takeTexts(
    holder: Record<string, unknown>,
    place: (string | number)[],
    texts: { place: (string | number)[]; text: string }[],
  ): void {
    for (const name of Object.keys(holder)) {
      const inner = holder[name];
      const at = [...place, Array.isArray(holder) ? Number(name) : name];
      if (typeof inner === "string" && inner.length >= work.longTextChars) {
        texts.push({ place: at, text: inner });
        holder[name] = null;
      } else if (inner !== null && typeof inner === "object") {
        takeTexts(inner as Record<string, unknown>, at, texts);
      }
    }
  }
}
