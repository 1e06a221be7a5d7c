import { PATHS } from "../../contract/routes.ts";
import { send } from "../api/request.ts";
import type { Change } from "./changes.ts";

/** The service sends a line every 15 s at least: a stream that is silent for longer is dead. */
const SILENCE_MS = 40_000;

/**
 * Reads the service's events until the stream ends (`EventSource` could not send the token). `onSign` is called for every sign
 * of life. Throws `ApiError` when there is no stream.
 */
export async function readEvents(
  onChange: (change: Change) => void,
  onSign: () => void,
  signal: AbortSignal,
): Promise<void> {
  const dead = new AbortController();
  const response = await send(PATHS.events, { signal: AbortSignal.any([signal, dead.signal]) });
  let timer: ReturnType<typeof setTimeout> | undefined;
  const live = () => {
    clearTimeout(timer);
    timer = setTimeout(() => dead.abort(), SILENCE_MS);
    onSign();
  };
  try {
    let rest = "";
    const text = response.body?.pipeThrough(new TextDecoderStream());
    for await (const piece of text ?? []) {
      live();
      const blocks = (rest + piece).split("\n\n");
      rest = blocks.pop() ?? "";
      for (const change of blocks.map(changeOf)) if (change !== null) onChange(change);
    }
  } finally {
    clearTimeout(timer);
  }
}

/** Returns the change that an event reports; null for comments and unknown events. */
function changeOf(block: string): Change | null {
  const field = (name: string) => new RegExp(`^${name}: ?(.*)$`, "m").exec(block)?.[1];
  const data = JSON.parse(field("data") ?? "{}") as { id?: string; items?: string[] | null };
  switch (field("event")) {
    case "ready":
      return { kind: "all" };
    case "batch":
      return { kind: "batch", id: data.id ?? "", items: data.items ?? null };
    case "batch_deleted":
      return { kind: "deleted", id: data.id ?? "" };
    case "account":
      return { kind: "account" };
    default:
      return null;
  }
}
