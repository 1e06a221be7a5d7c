import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { runInProcess } from "../support/cli-in-process.ts";
import { isInTurn } from "../support/fuzz-runs.ts";
import { Chain, isMarked, model } from "../support/upstreams/chain.ts";
import type { Answer, Behaviour, FakeUpstream, RequestKind } from "../support/upstreams/fake-upstream.ts";
import * as hostile from "../support/upstreams/hostile.ts";
import { nativeBlocks, nativeErrors } from "../support/upstreams/native.ts";
import {
  DIALECTS,
  type Dialect,
  openaiErrors,
  silentModeration,
} from "../support/upstreams/openai-dialects.ts";
import { sdapiErrors } from "../support/upstreams/sdapi.ts";
import { startFake } from "./services.ts";

/** One trouble of an upstream, and what becomes of a batch with a single item whose prompt is the name of the row. */
interface Row {
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

const NATIVE_TROUBLES: Row[] = [
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

const OPENAI_TROUBLES: Row[] = [
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

const SDAPI_TROUBLES: Row[] = [
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

interface Case extends Row {
  id: string;
  fake: FakeUpstream;
  batch: string;
}

/** Every row has an upstream, a provider and a model of its own, and all of them are one service. */
const cases = new Map<string, Case>();
let chain: Chain;

beforeAll(async () => {
  const rows = [...NATIVE_TROUBLES, ...OPENAI_TROUBLES, ...SDAPI_TROUBLES];
  const providers = [];
  const models = [];
  for (const [at, row] of rows.entries()) {
    const id = `row-${at + 1}`;
    const { fake, entry, model: upstreamId } = await startFake(row.service, { dialect: row.dialect });
    const timeoutSeconds = row.timeoutSeconds ?? 20;
    fake.setBehaviour(row.behaviour(fake), row.towards);
    if (row.towards) fake.setBehaviour(row.images ?? null);
    cases.set(`${row.service}: ${row.name}`, { ...row, id, fake, batch: "" });
    providers.push({ name: id, timeoutSeconds, models: { [id]: upstreamId }, ...entry, ...row.entry });
    models.push(model(id));
  }
  chain = await Chain.startHere({ models, providers });
  // The owner of the service, whose key the chain has, may read all that upstreams say.
  const created = await runInProcess(["admin", "keys", "create", "--json", ...chain.where], {
    cwd: chain.directory,
  });
  chain.key = String(created.json().key);
  for (const one of cases.values()) one.batch = (await chain.submit(one.id, [one.name])).id;
});

afterAll(async () => {
  await chain?.close();
  for (const { fake } of cases.values()) await fake.close();
});

const known = [...NATIVE_TROUBLES, ...OPENAI_TROUBLES, ...SDAPI_TROUBLES];
const named = (kinds: readonly Row["fate"][]) =>
  known.filter((row) => kinds.includes(row.fate)).map((row) => `${row.service}: ${row.name}`);

function caseOf(name: string): Case {
  const found = cases.get(name);
  if (!found) throw new Error(`there is no row ${name}`);
  return found;
}

async function outcome(one: Case) {
  const batch = await chain.until(one.batch);
  const [item] = await chain.items(one.batch);
  if (!item) throw new Error("the batch has no item");
  return { batch, item };
}

/** The parts of an item that a caller who is not the owner may read. */
const told = (...parts: unknown[]) => JSON.stringify(parts);

describe("an upstream that", () => {
  it.each(named(["final"]))(
    "refuses for good (%s) is asked once, and its words reach the caller",
    async (name) => {
      const one = caseOf(name);
      const { batch, item } = await outcome(one);
      expect(batch).toMatchObject({ status: "completed", fail_count: 1, actual_cost: 0 });
      expect(item).toMatchObject({ status: "failed", error: { source: "provider" } });
      expect(one.codes).toContain(item.error?.code);
      expect([one.fake.asked(one.name), isMarked(item)]).toEqual([1, false]);
      if (one.words) expect(item.error?.message).toContain(one.words);
    },
  );

  it.each(named(["retried"]))(
    "says that it made nothing (%s) is asked again, without a mark",
    async (name) => {
      const one = caseOf(name);
      const { batch, item } = await outcome(one);
      expect(batch).toMatchObject({ status: "completed", success_count: 1, actual_cost: expect.any(Number) });
      expect([item.status, one.fake.asked(one.name), isMarked(item)]).toEqual(["success", one.asked, false]);
      expect(one.fake.bill.get(one.name)).toHaveLength(1);
      const [first, second] = one.fake.requests.filter((request) => request.prompt === one.name);
      expect((second?.time ?? 0) - (first?.time ?? 0)).toBeGreaterThanOrEqual(one.afterMs ?? 0);
      if (one.words) expect(told(item)).not.toContain(one.words);
    },
  );

  it.each(named(["exhausted"]))("goes on saying so (%s) fails the item after three tries", async (name) => {
    const one = caseOf(name);
    const { item } = await outcome(one);
    expect([item.status, one.fake.asked(one.name), isMarked(item)]).toEqual(["failed", 3, false]);
    if (one.words) expect(told(item)).not.toContain(one.words);
  });

  it.each(named(["marked"]))(
    "leaves open whether it made an image (%s) is asked once more, with a mark",
    async (name) => {
      const one = caseOf(name);
      const { batch, item } = await outcome(one);
      expect([item.status, one.fake.asked(one.name), isMarked(item)]).toEqual(["success", 2, true]);
      expect(batch.actual_cost).toBeGreaterThan(0);
      if (one.words) expect(told(item)).not.toContain(one.words);
    },
  );

  it.each(named(["given up"]))("leaves it open again (%s) is not asked a third time", async (name) => {
    const one = caseOf(name);
    const { item } = await outcome(one);
    expect([item.status, one.fake.asked(one.name), isMarked(item)]).toEqual(["failed", 2, true]);
    if (one.words) expect(told(item)).not.toContain(one.words);
  });

  it.each(named(["waits"]))(
    "cannot be used for now (%s) makes the item wait, and nobody asks it again",
    async (name) => {
      const one = caseOf(name);
      const batch = await chain.until(one.batch, ({ waiting }) => waiting !== null && waiting !== undefined);
      expect(batch).toMatchObject({ status: "running", success_count: 0, fail_count: 0 });
      const [item] = await chain.items(one.batch);
      expect(item).toMatchObject({ status: "pending", error: null });
      const answer = await chain.realtime(one.id, [{ text: `${one.name}, now` }]);
      // A model whose only provider is disabled is no longer in the list.
      expect(one.minutes ? [503] : [503, 404]).toContain(answer.status);
      expect(one.fake.requests.filter(({ kind }) => kind === "images")).toHaveLength(1);
      if (one.words) expect(told(item, batch, await answer.text())).not.toContain(one.words);
      const until = batch.waiting?.until ?? null;
      if (one.minutes === undefined) {
        expect(until).toBeNull();
        return;
      }
      const wait = (Number(until) * 1000 - Date.now()) / 60_000;
      expect(wait).toBeGreaterThan(one.minutes[0]);
      expect(wait).toBeLessThan(one.minutes[1]);
      expect(Number(answer.headers.get("retry-after"))).toBeGreaterThan(one.minutes[0] * 60);
    },
  );

  it.each(named(["refused"]))("does not listen (%s) costs no item", async (name) => {
    const one = caseOf(name);
    const answer = await chain.realtime(one.id, [{ text: "now" }]);
    expect([502, 503]).toContain(answer.status);
    const batch = await chain.batch(one.batch);
    expect(batch).toMatchObject({ status: "running", success_count: 0, fail_count: 0 });
  });

  it.each(named(["elsewhere"]))("sends its caller elsewhere (%s) gets no image from there", async (name) => {
    const one = caseOf(name);
    const batch = await chain.until(one.batch, ({ waiting }) => waiting !== null && waiting !== undefined);
    expect(batch.waiting?.code).toBe("PROVIDER_MODEL_MISSING");
    expect(one.fake.asked(one.name)).toBe(1);
    const requests = [...cases.values()].flatMap(({ fake }) => fake.requests);
    expect(requests.filter(({ path }) => path.includes("elsewhere"))).toEqual([]);
  });

  it("has made nothing that is not on an item, and the books agree", async () => {
    const ended = named(["final", "retried", "exhausted", "marked", "given up"]);
    for (const name of ended) {
      const one = caseOf(name);
      const { item } = await outcome(one);
      const unseen = (one.fake.bill.get(one.name)?.length ?? 0) - (item.status === "success" ? 1 : 0);
      if (unseen > 0) expect([name, isMarked(item)]).toEqual([name, true]);
    }
    const check = await chain.run(["admin", "check"]);
    expect([check.code, check.stdout]).toEqual([0, expect.stringMatching(/^ok/)]);
  });
});
