import type { Request, RequestHandler, Response } from "express";
import { ImgbatchError, type ServiceErrorCode } from "../../contract/errors.ts";
import { FAULT_HEADER, PATHS, TEST_HEADER } from "../../contract/routes.ts";
import { FAULT_FIELDS, type Fault, readFault, type Vendor } from "../../contract/test-api.ts";
import { didYouMean } from "../../kernel/did-you-mean.ts";
import { parseJson } from "../../kernel/json.ts";
import type { ApiDeps } from "../deps.ts";
import { headerKey } from "../http/authenticate.ts";
import { invalidArgument, schemaProblem } from "../http/errors.ts";
import { goneSignal, onEnded, shownPath } from "../http/exchange.ts";
import { PARAMETERS } from "../http/parameters.ts";
import type { Operation, Surface } from "../operation.ts";
import { peekBody } from "../request-body/json-body.ts";
import { type SeenBody, seenBody } from "./seen-request.ts";
import type { TestBench } from "./test-bench.ts";
import {
  type AnsweredRequest,
  emptyAnswer,
  errorAnswer,
  kindOf,
  refusalAnswer,
  type VendorAnswer,
} from "./vendor-answers.ts";

/** A longer body is neither shown nor searched. */
const MOST_SEEN_BYTES = 64 * 1024 * 1024;
const MOST_FAULT_BYTES = 64 * 1024;

/** Paths that are not in the journal: the console, monitoring, and the API of the tests themselves. */
const OWN_PATHS =
  /^\/(?:imgbatch\/|v1\/(?:console|events)(?:\/|$)|healthz$|readyz$|metrics$|openapi\.json$|assets\/|$)/;

/** Notes every request of a program in the journal, with its body and the status of its answer. */
export function followRequests(bench: TestBench): RequestHandler {
  return async (request, response, next) => {
    if (OWN_PATHS.test(request.path)) return next();
    const answer: { status: number | null } = { status: null };
    const noted = { method: request.method, path: shownPath(request.path), body: null as unknown, answer };
    // Where a fault has cut the connection, the caller has seen the status all the same.
    onEnded(response, () => {
      if (response.headersSent) answer.status = response.statusCode;
    });
    const bytes = await peekBody(request, response, MOST_SEEN_BYTES);
    const seen = bytes && (await seenBody(request, bytes));
    noted.body = seen === null ? "(too long to be shown)" : seen.body;
    response.locals.seen = seen;
    bench.note(noted, testOf(request));
    next();
  };
}

/** The test that a request belongs to; null without a name. Throws `REALTIME_INVALID_ARGUMENT`. */
function testOf(request: Request): string | null {
  const name = request.get(TEST_HEADER);
  if (name === undefined) return null;
  if (PARAMETERS.TestName.schema.safeParse(name).success) return name;
  throw invalidArgument(TEST_HEADER, "must be 1 to 200 printable ASCII characters");
}

/** Lets a request to a vendor's API meet the fault that a test has ordered for it, before its operation runs. */
export function meetFaults(
  vendor: Vendor,
  { testBench, clock }: Pick<ApiDeps, "testBench" | "clock">,
): RequestHandler {
  return async (request, response, next) => {
    const { seen } = response.locals as { seen?: SeenBody | null };
    const { body = null, models = [], texts = [] } = seen ?? {};
    const { method, path } = request;
    const kind = kindOf(method, path);
    const makes = method === "POST";
    const asksForImages = kind !== null;
    const test = testOf(request);
    const fault = testBench?.meet({ vendor, test, models, texts, asksForImages, makes }) ?? null;
    if (fault === null) return next();
    response.setHeader(FAULT_HEADER, "true");
    if (fault.delay_ms !== undefined) {
      const gone = goneSignal(response);
      await clock.sleep(fault.delay_ms, gone).catch(() => {});
      if (gone.aborted) return;
    }
    if (fault.cut_after !== undefined) cutAfter(response, fault.cut_after);
    if (fault.lost) loseAnswer(response);
    const asked = { vendor, path, hasSse: request.query.alt === "sse", model: models[0] ?? null, body };
    const answer = answerOf(fault, asked, kind);
    if (answer === null) return next();
    for (const [name, value] of Object.entries(answer.headers)) response.setHeader(name, value);
    response.status(answer.status).end(answer.body);
  };
}

/** The answer in place of the operation's; null when the operation answers. */
function answerOf(
  { status, retry_after, empty, refuse }: Fault,
  asked: AnsweredRequest,
  kind: ReturnType<typeof kindOf>,
): VendorAnswer | null {
  if (status !== undefined) return errorAnswer(asked, status, retry_after);
  if (kind === null) return null;
  if (empty) return emptyAnswer(asked, kind);
  return refuse === undefined ? null : refusalAnswer(asked, kind, refuse);
}

/** Drops what is written to a response from now on. Writers are called back, so that they do not wait. */
function ignoreWrites(response: Response): void {
  const ignore = (...args: unknown[]) => {
    const done = args.find((arg) => typeof arg === "function");
    if (typeof done === "function") process.nextTick(done);
  };
  response.write = (...args: unknown[]) => {
    ignore(...args);
    return true;
  };
  response.end = (...args: unknown[]) => {
    ignore(...args);
    return response;
  };
}

/** Ends the connection of a response when its answer is ready, instead of sending the answer. */
function loseAnswer(response: Response): void {
  ignoreWrites(response);
  response.end = () => response.destroy();
}

/** Ends the connection of a response after so many bytes of its body. A body that is not longer is sent whole. */
function cutAfter(response: Response, bytes: number): void {
  const write = response.write.bind(response);
  const end = response.end.bind(response);
  let left = bytes;
  /** Sends the part of a chunk that there is room for, and ends the connection, if the chunk is too long. Returns whether it was. */
  const isCut = (chunk: unknown, encoding: unknown): boolean => {
    if (chunk === undefined || chunk === null || typeof chunk === "function") return false;
    const bytes =
      typeof chunk === "string"
        ? Buffer.from(chunk, typeof encoding === "string" ? (encoding as BufferEncoding) : "utf8")
        : Buffer.from(chunk as Uint8Array);
    const isLonger = bytes.length > left;
    if (!isLonger) {
      left -= bytes.length;
      return false;
    }
    if (left > 0) write(bytes.subarray(0, left));
    else response.flushHeaders();
    ignoreWrites(response);
    response.socket?.destroySoon();
    return true;
  };
  response.write = ((chunk: never, ...rest: never[]) =>
    isCut(chunk, rest[0]) || write(chunk, ...rest)) as Response["write"];
  response.end = ((chunk: never, ...rest: never[]) =>
    isCut(chunk, rest[0]) ? response : end(chunk, ...rest)) as Response["end"];
}

/** `POST /imgbatch/test/faults`. */
function orderFault({ testBench }: ApiDeps): RequestHandler {
  return async (request, response) => {
    const bytes = await peekBody(request, response, MOST_FAULT_BYTES);
    if (bytes === null) throw new ImgbatchError("REQUEST_TOO_LARGE");
    const fault = faultIn(bytes.toString());
    testBench?.order(fault, testOf(request));
    response.json(fault);
  };
}

/** Throws `INVALID_JSON`, and `REALTIME_INVALID_ARGUMENT` with the name of the field at fault. */
function faultIn(text: string): Fault {
  let value: unknown;
  try {
    value = parseJson(text);
  } catch (cause) {
    throw new ImgbatchError("INVALID_JSON", undefined, { cause });
  }
  const read = readFault(value);
  if (read.success) return read.data;
  const [issue] = read.error.issues;
  if (issue?.code !== "unrecognized_keys") throw schemaProblem(read.error, "REALTIME_INVALID_ARGUMENT");
  const [name = ""] = issue.keys;
  const meant = didYouMean(name, FAULT_FIELDS);
  const advice = meant === null ? `the fields are ${FAULT_FIELDS.join(", ")}` : `did you mean ${meant}?`;
  throw invalidArgument(name, `is no field of a fault; ${advice}`);
}

/** `NOT_FOUND`: the service is not for tests. */
const errors: readonly ServiceErrorCode[] = ["REALTIME_INVALID_ARGUMENT", "NOT_FOUND"];
const ended = { 204: { description: "They are gone." } };

const operations: readonly Operation[] = [
  {
    id: "orderFault",
    method: "post",
    path: PATHS.testFaults,
    summary: "Order a fault for the next requests that match",
    parameters: ["TestName"],
    body: "Fault",
    answers: { 200: { description: "The fault, as it is ordered.", schema: "Fault" } },
    errors: [...errors, "INVALID_JSON", "REQUEST_TOO_LARGE", "REQUEST_TIMEOUT"],
    handler: orderFault,
  },
  {
    id: "listFaults",
    method: "get",
    path: PATHS.testFaults,
    summary: "The faults that can still meet a request",
    parameters: ["TestName"],
    answers: { 200: { description: "In the order in which they were ordered.", schema: "FaultList" } },
    errors,
    handler:
      ({ testBench }) =>
      (request, response) =>
        void response.json({ faults: testBench?.faults(testOf(request)) ?? [] }),
  },
  {
    id: "endFaults",
    method: "delete",
    path: PATHS.testFaults,
    summary: "End all faults",
    parameters: ["TestName"],
    answers: ended,
    errors,
    handler:
      ({ testBench }) =>
      (request, response) => {
        testBench?.clearFaults(testOf(request));
        response.status(204).end();
      },
  },
  {
    id: "listTestRequests",
    method: "get",
    path: PATHS.testRequests,
    summary: "The requests that the service has had, without keys and long images",
    parameters: ["TestName"],
    answers: { 200: { description: "The last 1,000 at most.", schema: "TestRequestList" } },
    errors,
    handler:
      ({ testBench }) =>
      (request, response) =>
        void response.json(testBench?.requests(testOf(request)) ?? { requests: [], forgotten: 0 }),
  },
  {
    id: "forgetTestRequests",
    method: "delete",
    path: PATHS.testRequests,
    summary: "Empty the journal of requests",
    parameters: ["TestName"],
    answers: ended,
    errors,
    handler:
      ({ testBench }) =>
      (request, response) => {
        testBench?.clearRequests(testOf(request));
        response.status(204).end();
      },
  },
];

/** Faults at run time, and the journal of requests. Other services than those for tests have none of these paths. */
export const testApi: Surface = {
  tag: "tests",
  vendor: null,
  prefix: "/imgbatch/test",
  isForTests: true,
  operations,
  credential: headerKey,
};
