import type { Request } from "express";
import { nativeErrorBody } from "../../contract/errors.ts";
import type { Framing } from "../answer-stream.ts";
import { fieldError } from "../request-problems.ts";
import { openingView } from "./response/content-view.ts";

const OPENING = JSON.stringify(openingView());

/** Nothing but `data:` lines: clients of this protocol stumble over comments, event names and end marks. */
const event = (json: string | Buffer) => `data: ${json}\n\n`;

const EVENTS: Framing = {
  type: "text/event-stream",
  opening: event(OPENING),
  result: event,
  failure: (error) => event(JSON.stringify(nativeErrorBody(error))),
  end: "",
};
const ARRAY: Framing = {
  type: "application/json; charset=utf-8",
  opening: `[${OPENING}`,
  result: (json, isFirst) => `${isFirst ? "[" : ",\n"}${json}`,
  failure: (error) => `,\n${JSON.stringify(nativeErrorBody(error))}`,
  end: "]",
};

/** How the result of a request is streamed: as events with `alt=sse`, else as one JSON array. Throws `REALTIME_INVALID_ARGUMENT` for an `alt` that is not known. */
export function framingOf(request: Request): Framing {
  const { alt } = request.query;
  if (alt === "sse") return EVENTS;
  if (alt === undefined || alt === "" || alt === "json") return ARRAY;
  throw fieldError("REALTIME_INVALID_ARGUMENT", "alt", "must be sse or json");
}
