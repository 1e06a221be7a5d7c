import type { Request, Response } from "express";
import type { ImgbatchError } from "../../contract/errors.ts";
import { nativeErrorBody } from "../../contract/native-api/errors.ts";
import type { ApiDeps } from "../deps.ts";
import { toServiceError } from "../middleware/errors.ts";
import { fieldError } from "../request-problems.ts";
import { openingView } from "./response/content-view.ts";

/** A stream without a result sends an opening event after this time, so that the connection does not look dead. */
export const STREAM_OPENING_MS = 10_000;

/** The format in which the events of a stream are written. */
export interface Framing {
  type: string;
  first(json: string): string;
  next(json: string): string;
  end: string;
}

/** Nothing but `data:` lines: clients of this protocol stumble over comments, event names and end marks. */
const EVENTS: Framing = {
  type: "text/event-stream",
  first: (json) => `data: ${json}\n\n`,
  next: (json) => `data: ${json}\n\n`,
  end: "",
};
const ARRAY: Framing = {
  type: "application/json; charset=utf-8",
  first: (json) => `[${json}`,
  next: (json) => `,\n${json}`,
  end: "]",
};

/**
 * Sends the result of the work, which is JSON, as a stream: events with `alt=sse`, else one JSON array. A failure before the first event
 * is an ordinary error response; a later one is the last event.
 */
export async function answerStream(
  deps: Pick<ApiDeps, "clock" | "log">,
  framing: Framing,
  response: Response,
  work: Promise<Buffer>,
): Promise<void> {
  const settled = new AbortController();
  const outcome = work.finally(() => settled.abort());
  outcome.catch(() => {});
  const isLate = await deps.clock.sleep(STREAM_OPENING_MS, settled.signal).then(
    () => true,
    () => false,
  );
  const send = (json: string) => {
    // The work may go on after its caller has left.
    if (response.destroyed) return;
    if (response.headersSent) response.write(framing.next(json));
    else {
      response.status(200).setHeader("Content-Type", framing.type);
      response.setHeader("Cache-Control", "no-cache");
      response.write(framing.first(json));
    }
  };
  if (isLate) send(JSON.stringify(openingView()));
  try {
    send((await outcome).toString());
  } catch (error) {
    if (!response.headersSent) throw error;
    send(JSON.stringify(nativeErrorBody(toStreamError(deps, response, error))));
  }
  response.end(framing.end);
}

/** Throws `REALTIME_INVALID_ARGUMENT` for an `alt` that is not known. */
export function framingOf(request: Request): Framing {
  const { alt } = request.query;
  if (alt === "sse") return EVENTS;
  if (alt === undefined || alt === "" || alt === "json") return ARRAY;
  throw fieldError("REALTIME_INVALID_ARGUMENT", "alt", "must be sse or json");
}

function toStreamError({ log }: Pick<ApiDeps, "log">, response: Response, thrown: unknown): ImgbatchError {
  const error = toServiceError(thrown);
  if (error.code === "INTERNAL_ERROR") {
    log.error("unexpected error", { request_id: response.locals.requestId, error: String(thrown) });
  }
  return error;
}
