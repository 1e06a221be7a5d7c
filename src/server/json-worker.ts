import type { Hash } from "node:crypto";
import type { MessagePort } from "node:worker_threads";
import type { JsonBounds, jsonExcess } from "../kernel/json-shape.ts";

export type JsonProblem = "depth" | "elements" | "utf-8" | "json";
/** Where something stands in a value: names and indexes, from outside in. */
export type JsonPlace = readonly (string | number)[];

/** What the worker tells, one message each time it is asked. */
export type JsonMessage =
  | { kind: "problem"; problem: JsonProblem }
  /** The value, with null in the places of long texts. */
  | { kind: "value"; value: unknown }
  /** A long text at this place was strict Base64 of these bytes. */
  | { kind: "bytes"; place: JsonPlace; bytes: Uint8Array; sha256: string }
  /** The next part of the long text at this place. */
  | { kind: "text"; place: JsonPlace; part: string }
  | { kind: "end" };

export interface JsonWork {
  pieces: Uint8Array<ArrayBuffer>[];
  bounds: JsonBounds;
  /** Texts of this name are decoded when they are long and strict Base64; null for none. */
  base64Name: string | null;
  longTextChars: number;
}

interface Tools {
  findExcess: typeof jsonExcess;
  createHash(algorithm: string): Hash;
}

/**
 * Parses JSON in a worker and hands it over in parts that each take the receiver a few milliseconds at most. Stands
 * alone, so that its source can be sent to a worker: whatever it needs is a parameter.
 */
export function serveJson(port: MessagePort, work: JsonWork, tools: Tools): void {
  const messages = tell();
  port.on("message", next);
  next();

  function next(): void {
    const { value: message, done } = messages.next();
    if (done) return;
    const owned = message.kind === "bytes" ? [message.bytes.buffer as ArrayBuffer] : [];
    port.postMessage(message, owned);
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
      const bytes = place.at(-1) === work.base64Name ? decode(text) : null;
      if (bytes) {
        yield { kind: "bytes", place, bytes, sha256: tools.createHash("sha256").update(bytes).digest("hex") };
        continue;
      }
      const chars = 32 * work.longTextChars;
      for (let from = 0; from < text.length; from += chars) {
        yield { kind: "text", place, part: text.slice(from, from + chars) };
      }
    }
    yield { kind: "end" };
  }

  function parse(): { value: unknown } | { problem: JsonProblem } {
    const bytes = join(work.pieces);
    const problem = tools.findExcess(bytes, work.bounds);
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

  /** Node skips what is not Base64; only a round trip shows it. */
  function decode(text: string): Uint8Array | null {
    const bytes = Buffer.from(text, "base64");
    if (bytes.toString("base64") !== text) return null;
    return bytes.buffer.byteLength === bytes.length ? bytes : new Uint8Array(bytes);
  }
}
