import type { Request } from "express";
import { nativeErrorBody } from "../../contract/native-api/errors.ts";
import type { GenerateContentResponse } from "../../contract/native-api/generate-content.ts";
import type { Framing } from "../answer-stream.ts";
import { fieldError } from "../request-problems.ts";
import { openingView } from "./response/content-view.ts";

type ContentFraming = Framing<GenerateContentResponse>;

/** Nothing but `data:` lines: clients of this protocol stumble over comments, event names and end marks. */
const event = (value: object) => `data: ${JSON.stringify(value)}\n\n`;

const EVENTS: ContentFraming = {
  type: "text/event-stream",
  opening: event(openingView()),
  result: event,
  failure: (error) => event(nativeErrorBody(error)),
  end: "",
};
const ARRAY: ContentFraming = {
  type: "application/json; charset=utf-8",
  opening: `[${JSON.stringify(openingView())}`,
  result: (value, isFirst) => `${isFirst ? "[" : ",\n"}${JSON.stringify(value)}`,
  failure: (error) => `,\n${JSON.stringify(nativeErrorBody(error))}`,
  end: "]",
};

/** How the result of a request is streamed: as events with `alt=sse`, else as one JSON array. Throws `REALTIME_INVALID_ARGUMENT` for an `alt` that is not known. */
export function framingOf(request: Request): ContentFraming {
  const { alt } = request.query;
  if (alt === "sse") return EVENTS;
  if (alt === undefined || alt === "" || alt === "json") return ARRAY;
  throw fieldError("REALTIME_INVALID_ARGUMENT", "alt", "must be sse or json");
}
