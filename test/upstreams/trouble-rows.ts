import { isInTurn } from "../support/fuzz-runs.ts";
import type { Answer, Behaviour, FakeUpstream, RequestKind } from "../support/upstreams/fake-upstream.ts";
import * as hostile from "../support/upstreams/hostile.ts";
import { nativeBlocks, nativeErrors } from "../support/upstreams/native.ts";
import type { Dialect } from "../support/upstreams/openai-dialects.ts";
import { DIALECTS } from "../support/upstreams/openai-dialects.ts";
import { openaiErrors, silentModeration } from "../support/upstreams/openai-errors.ts";
import { sdapiErrors } from "../support/upstreams/sdapi.ts";

/** One trouble of an upstream, and what becomes of a batch with a single item whose prompt is the name of the row. */
export interface Row {
  name: string;
  service: "native" | "openai" | "sdapi";
  behaviour: (fake: FakeUpstream) => Behaviour;
  /** Which requests it is about; default those for images. */
  towards?: RequestKind;
  /** Towards requests for images, when the row is about others. */
  images?: Behaviour;
  /**
   * `final`: it fails at once; `retried`: it succeeds after `asked` requests; `exhausted`: it fails after three;
   * `marked`: it succeeds with the second request, and is marked; `given up`: it fails after the second;
   * `waits`: it waits; `refused`: nothing was sent, it waits; `elsewhere`: it waits, and no redirect was followed.
   */
  fate: "final" | "retried" | "exhausted" | "marked" | "given up" | "waits" | "refused" | "elsewhere";
  codes?: readonly string[];
  /** A piece of what the upstream says. */
  words?: string;
  asked?: number;
  /** The second request comes at least this long after the first. */
  afterMs?: number;
  /** The announced wait, from and to; left out when there is none. */
  minutes?: readonly [number, number];
  timeoutSeconds?: number;
  dialect?: Dialect;
  entry?: object;
}

type Plain = Omit<Row, "service" | "behaviour"> & { behaviour: Behaviour | Row["behaviour"] };

const row = (
  service: Row["service"],
  name: string,
  behaviour: Behaviour,
  rest: Omit<Plain, "name" | "behaviour">,
): Row => ({
  ...{ service, name, behaviour: () => behaviour },
  ...rest,
});
const once = (answer: Answer) => hostile.first(1, hostile.answers(answer));
const always = (answer: Answer) => hostile.answers(answer);
const INVALID = ["INVALID_ARGUMENT"];
const BLOCKED = ["SAFETY_BLOCKED"];
const EMPTY = ["EMPTY_IMAGE_OUTPUT"];

/** Words that no caller is told. */
const SECRET_WORDS = "tenant-7 of pool-9";

/** The statuses that every service may send, in its own envelope or in none. */
function common(service: Row["service"], envelope: (code: number, message: string) => Answer): Row[] {
  const hidden = (code: number) => envelope(code, `broken: ${SECRET_WORDS}`);
  const of = (name: string, behaviour: Behaviour, rest: Omit<Plain, "name" | "behaviour">) =>
    row(service, name, behaviour, rest);
  const ambiguous = (code: number) =>
    of(`${code} once`, once(hidden(code)), { fate: "marked", words: SECRET_WORDS });
  const mark = { fate: "marked", timeoutSeconds: 5 } as const;
  // One client sends the requests to both services, so that each of these meets one of the two in turn.
  const inTurn = (rows: Row[]) => rows.filter((_, at) => isInTurn(at, service === "native" ? 0 : 1, 2));
  return [
    of("413", always(envelope(413, "the body has 9 MB")), { fate: "final", codes: INVALID, words: "9 MB" }),
    of("422", always(envelope(422, "steps: too many")), {
      fate: "final",
      codes: INVALID,
      words: "steps: too many",
    }),
    of("401", always(hidden(401)), { fate: "waits", words: SECRET_WORDS }),
    of("402", always(hidden(402)), { fate: "waits", minutes: [8, 11], words: SECRET_WORDS }),
    of("403", always(hidden(403)), { fate: "waits", minutes: [8, 11], words: SECRET_WORDS }),
    of("403 with a page, twice", hostile.first(2, hostile.html(403)), {
      fate: "retried",
      asked: 3,
      words: "Checking",
    }),
    of("429 without a time", once(hidden(429)), {
      fate: "retried",
      asked: 2,
      afterMs: 3000,
      words: SECRET_WORDS,
    }),
    of("429 with Retry-After", once({ ...hidden(429), headers: { "retry-after": "2" } }), {
      ...{ fate: "retried", asked: 2, afterMs: 1500 },
    }),
    ...inTurn([408, 409, 502, 504, 520, 524].map(ambiguous)),
    of("502 always", always(hidden(502)), { fate: "given up", words: SECRET_WORDS }),
    // The pause before the next try is random, from nothing to a second.
    ...[500, 529].map((code) => of(`${code} once`, once(hidden(code)), { fate: "retried", asked: 2 })),
    of("503 twice", hostile.first(2, hostile.answers(hidden(503))), { fate: "retried", asked: 3 }),
    of("500 always", always(hidden(500)), { fate: "exhausted", words: SECRET_WORDS }),
    ...inTurn([
      of("a hang", hostile.first(1, hostile.hang), mark),
      of("a hang, always", hostile.hang, { fate: "given up", timeoutSeconds: 2 }),
      of("an answer after the time limit", hostile.first(1, hostile.late(60_000, { made: true })), mark),
      of("a byte a second", hostile.first(1, hostile.slow()), mark),
      of("an endless answer", hostile.first(1, hostile.endless), { fate: "marked", timeoutSeconds: 5 }),
      of("a reset after the work", hostile.first(1, hostile.resetAfter({ made: true })), { fate: "marked" }),
      of("a reset before the work, always", hostile.resetAfter({ made: false }), { fate: "given up" }),
      of("a reset in the answer", hostile.first(1, hostile.resetMidway), { fate: "marked" }),
      of("half a document", hostile.first(1, hostile.halfJson), { fate: "marked" }),
      of("half a document, always", hostile.halfJson, { fate: "given up" }),
      of("a page with 200", hostile.first(1, hostile.html(200)), { fate: "marked", words: "Checking" }),
      of("less than it promised", hostile.first(1, hostile.liesAboutLength(9)), { fate: "marked" }),
      of("more than it promised", hostile.first(1, hostile.liesAboutLength(-9)), { fate: "marked" }),
    ]),
    of("bytes that are no image", hostile.answering({ bytes: Buffer.from("<svg/>") }), { fate: "given up" }),
    {
      ...{ service, name: "a redirect", fate: "elsewhere" },
      behaviour: (fake) => hostile.redirect(`${fake.url}/elsewhere`, 307),
    },
    of("nobody listens", hostile.hang, { fate: "refused", entry: { baseUrl: "http://127.0.0.1:2" } }),
  ];
}

const native = (name: string, answer: Answer, rest: Omit<Plain, "name" | "behaviour">) =>
  row("native", name, rest.fate === "retried" ? once(answer) : always(answer), rest);

const nativeStatus: Record<number, string> = {
  401: "UNAUTHENTICATED",
  403: "PERMISSION_DENIED",
  429: "RESOURCE_EXHAUSTED",
};

/** A day of this quota ends at midnight on the Pacific coast. In the last minutes before, there is nothing to see. */
function dailyQuota(): Row[] {
  const format = {
    timeZone: "America/Los_Angeles",
    hourCycle: "h23",
    hour: "numeric",
    minute: "numeric",
  } as const;
  const [hours = 0, minutes = 0] = new Intl.DateTimeFormat("en", format)
    .format(new Date())
    .split(":")
    .map(Number);
  const left = 24 * 60 - hours * 60 - minutes;
  // An hour more or less on the days on which clocks change.
  const range = [Math.max(2, left - 65), left + 65] as const;
  return left < 5 ? [] : [native("a day's quota", nativeErrors.perDay(), { fate: "waits", minutes: range })];
}

export const NATIVE_TROUBLES: Row[] = [
  ...common("native", (code, message) =>
    nativeErrors.other(code, nativeStatus[code] ?? "UNAVAILABLE", message),
  ),
  native("400", nativeErrors.invalid("seed: out of range"), {
    fate: "final",
    codes: INVALID,
    words: "out of range",
  }),
  native("a blocked prompt", nativeBlocks.prompt("PROHIBITED_CONTENT"), {
    ...{ fate: "final", codes: BLOCKED, words: "PROHIBITED_CONTENT" },
  }),
  native("a blocked image", nativeBlocks.image("IMAGE_SAFETY", "It shows a knife."), {
    ...{ fate: "final", codes: BLOCKED, words: "It shows a knife." },
  }),
  native("no image", nativeBlocks.noImage(), { fate: "final", codes: EMPTY }),
  native("words alone", nativeBlocks.words("I would rather talk."), { fate: "final", codes: EMPTY }),
  native("a key that is not valid", nativeErrors.invalidKey(), { fate: "waits", words: "Please pass" }),
  native("billing that is off", nativeErrors.billing(), {
    fate: "waits",
    minutes: [8, 11],
    words: "Please enable",
  }),
  native("a quota of nothing", nativeErrors.noQuota(), {
    fate: "waits",
    minutes: [8, 11],
    words: "free_tier",
  }),
  native("a model that is gone", nativeErrors.noModel("m", "v1beta"), {
    fate: "waits",
    minutes: [55, 65],
    words: "v1beta",
  }),
  native("a leaked key", nativeErrors.leakedKey(), { fate: "waits", minutes: [8, 11], words: "reported as" }),
  native("a minute's quota", nativeErrors.limited({ retryDelay: "1.25s" }), {
    fate: "retried",
    asked: 2,
    afterMs: 900,
  }),
  ...dailyQuota(),
  native("too much load", nativeErrors.overloaded(), { fate: "retried", asked: 2 }),
  row("native", "its own deadline", once(nativeErrors.deadline()), { fate: "marked" }),
];

const openai = (name: string, answer: Answer, rest: Omit<Plain, "name" | "behaviour">) =>
  row("openai", name, rest.fate === "retried" ? once(answer) : always(answer), rest);
const plain = (code: number, message: string): Answer => ({
  ...{ status: code, body: JSON.stringify({ error: { message, type: "error", param: null, code: null } }) },
});
const flagged = "Your input was flagged for violence";

export const OPENAI_TROUBLES: Row[] = [
  ...common("openai", plain),
  openai("400", openaiErrors.invalid("Invalid value: 'x'.", "quality"), {
    ...{ fate: "final", codes: INVALID, words: "Invalid value: 'x'." },
  }),
  openai("moderation", openaiErrors.refused("violence"), {
    fate: "final",
    codes: BLOCKED,
    words: "[violence]",
  }),
  openai(
    "moderation of a relay",
    openaiErrors.invalid("Prompt breaks the content policy.", null, "content_policy_violation"),
    { fate: "final", codes: BLOCKED, words: "breaks the content policy" },
  ),
  openai(
    "moderation with 403",
    { ...openaiErrors.invalid(flagged, null, "content_policy_violation"), status: 403 },
    { fate: "final", codes: BLOCKED, words: flagged },
  ),
  openai(
    "moderation of a router",
    {
      status: 403,
      body: JSON.stringify({ error: { code: 403, message: flagged, metadata: { reasons: ["violence"] } } }),
    },
    { fate: "final", codes: BLOCKED, words: flagged, dialect: DIALECTS.openrouter },
  ),
  openai("moderation that says nothing", silentModeration.empty(), {
    ...{
      fate: "final",
      codes: [...EMPTY, ...BLOCKED],
      dialect: DIALECTS.xai,
      entry: { sizeAs: "aspect_ratio" },
    },
  }),
  openai("moderation that says little", silentModeration.flagged(), {
    ...{
      fate: "final",
      codes: [...EMPTY, ...BLOCKED],
      dialect: DIALECTS.xai,
      entry: { sizeAs: "aspect_ratio" },
    },
  }),
  openai("a key that is not valid", openaiErrors.invalidKey(), { fate: "waits", words: "account settings" }),
  openai("no money left", openaiErrors.noMoney(), {
    fate: "waits",
    minutes: [8, 11],
    words: "billing details",
  }),
  openai("a model that is gone", openaiErrors.noModel("m"), {
    fate: "waits",
    minutes: [55, 65],
    words: "have access",
  }),
  openai("retry-after-ms", openaiErrors.limited({ "retry-after-ms": "6500" }), {
    ...{ fate: "retried", asked: 2, afterMs: 5800 },
  }),
  openai("no credits, said with 200", openaiErrors.inside200(402, "Insufficient credits"), {
    ...{ fate: "waits", minutes: [8, 11], words: "Insufficient", dialect: DIALECTS.openrouter },
  }),
  openai("a limit, said with 200", openaiErrors.inside200(429, "Rate limit"), {
    ...{ fate: "retried", asked: 2, dialect: DIALECTS.openrouter },
  }),
  {
    ...{ service: "openai", name: "an address that fails", fate: "given up", dialect: DIALECTS.local },
    ...{ towards: "files", behaviour: () => hostile.status(404) },
  },
  {
    ...{ service: "openai", name: "an address without an end", fate: "given up", dialect: DIALECTS.local },
    ...{ towards: "files", behaviour: () => hostile.endless, timeoutSeconds: 5 },
  },
  {
    ...{ service: "openai", name: "a private address", fate: "given up", dialect: DIALECTS.local },
    behaviour: () => hostile.answering({ url: "http://127.0.0.1:2/elsewhere" }),
  },
  {
    ...{
      service: "openai",
      name: "a redirect to a private address",
      fate: "given up",
      dialect: DIALECTS.local,
    },
    ...{ towards: "files", behaviour: () => hostile.redirect("http://169.254.169.254/elsewhere") },
  },
];

const sdapi = (name: string, behaviour: Behaviour, rest: Omit<Plain, "name" | "behaviour">) =>
  row("sdapi", name, behaviour, rest);

export const SDAPI_TROUBLES: Row[] = [
  sdapi("422", always(sdapiErrors.invalid("steps", "value is not a valid integer")), {
    fate: "final",
    codes: INVALID,
  }),
  sdapi("401", always({ status: 401, body: '{"detail":"Incorrect username or password"}' }), {
    fate: "waits",
  }),
  sdapi("no memory, once", once(sdapiErrors.noMemory()), { fate: "retried", asked: 2, words: "CUDA" }),
  sdapi("504 once", once({ status: 504, body: "" }), { fate: "marked" }),
  sdapi("504 always, for nothing", always({ status: 504, body: "" }), {
    fate: "exhausted",
    entry: { free: true },
  }),
  sdapi("a reset after the work", hostile.first(1, hostile.resetAfter({ made: true })), { fate: "marked" }),
  sdapi("no image", always({ status: 200, body: '{"images":[],"parameters":{},"info":"{}"}' }), {
    ...{ fate: "final", codes: EMPTY },
  }),
];
