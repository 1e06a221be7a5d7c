import { describe, expect, it } from "vitest";
import { answerError } from "../../../src/providers/upstream/classify.ts";

const NOW_MS = Date.UTC(2030, 0, 2, 3, 4, 5);

interface Told {
  body?: unknown;
  isHtml?: boolean;
  headers?: Record<string, string>;
  asked?: string;
}

function told(status: number, { body, isHtml = false, headers = {}, asked = "" }: Told = {}) {
  const answer = { status, headers: new Headers(headers), body, isHtml, asked };
  const error = answerError("painter", answer, NOW_MS);
  return {
    code: error.code,
    trouble: error.trouble,
    retryable: error.retryable,
    message: error.message,
    error,
  };
}

const native = (code: number, status: string, message = "words", details: unknown[] = []) => ({
  body: { error: { code, status, message, details } },
});
const openai = (error: object) => ({ body: { error: { message: "words", ...error } } });
const info = (reason: string) => ({ "@type": "type.googleapis.com/google.rpc.ErrorInfo", reason });

/** Beside the answers that are tried on whole services, as `test/upstreams/troubles.test.ts` does. */
const ROWS: readonly [string, number, Told, string, string | null][] = [
  ["an unknown 4xx", 418, {}, "INVALID_ARGUMENT", null],
  ["a content filter", 403, openai({ code: "content_filter" }), "SAFETY_BLOCKED", null],
  [
    "an inner filter",
    400,
    openai({ code: "BadRequest", innererror: { code: "ResponsibleAIPolicyViolation" } }),
    "SAFETY_BLOCKED",
    null,
  ],
  [
    "a refusal in words",
    400,
    openai({ message: "Your request was rejected by the safety system." }),
    "SAFETY_BLOCKED",
    null,
  ],
  ["legal reasons", 451, {}, "SAFETY_BLOCKED", null],
  ["no image of another imgbatch", 400, openai({ code: "no_image" }), "EMPTY_IMAGE_OUTPUT", null],
  [
    "a bad key in words",
    400,
    { body: { code: "Client specified an invalid argument", error: "Incorrect API key provided: xa***ey." } },
    "PROVIDER_ITEM_FAILED",
    "credential",
  ],
  [
    "limit: 0.5 is a limit",
    429,
    native(429, "RESOURCE_EXHAUSTED", "limit: 0.5"),
    "PROVIDER_RATE_LIMITED",
    "limited",
  ],
  ["a hard limit", 400, openai({ code: "billing_hard_limit_reached" }), "PROVIDER_ITEM_FAILED", "billing"],
  [
    "credits in words",
    429,
    native(429, "RESOURCE_EXHAUSTED", "Your prepayment credits are depleted."),
    "PROVIDER_ITEM_FAILED",
    "billing",
  ],
  [
    "a wrong region",
    400,
    native(400, "FAILED_PRECONDITION", "User location is not supported."),
    "PROVIDER_ITEM_FAILED",
    "forbidden",
  ],
  [
    "a key that is for batches only",
    400,
    native(400, "INVALID_ARGUMENT", "words", [info("REALTIME_GROUP_NOT_NATIVE")]),
    "PROVIDER_ITEM_FAILED",
    "forbidden",
  ],
  ["499", 499, native(499, "CANCELLED"), "PROVIDER_ITEM_FAILED", "ambiguous"],
  ["a model of others", 403, openai({ code: "model_not_found" }), "PROVIDER_ITEM_FAILED", "no-model"],
  ["408", 408, {}, "PROVIDER_TIMEOUT", "ambiguous"],
  ["504", 504, native(504, "DEADLINE_EXCEEDED"), "PROVIDER_TIMEOUT", "ambiguous"],
  ["524", 524, {}, "PROVIDER_TIMEOUT", "ambiguous"],
  ["521", 521, {}, "PROVIDER_ITEM_FAILED", "ambiguous"],
  ["522", 522, {}, "PROVIDER_ITEM_FAILED", "ambiguous"],
  ["523", 523, {}, "PROVIDER_ITEM_FAILED", "ambiguous"],
  [
    "200 with a state",
    200,
    { body: { error: { status: "UNAUTHENTICATED", message: "words" } } },
    "PROVIDER_ITEM_FAILED",
    "credential",
  ],
  ["200 with a code", 200, openai({ code: "rate_limit_exceeded" }), "PROVIDER_RATE_LIMITED", "limited"],
  ["200 with a refusal", 200, openai({ code: "moderation_blocked" }), "SAFETY_BLOCKED", null],
  [
    "200 with an unknown error",
    200,
    { body: { error: "CUDA out of memory" } },
    "PROVIDER_ITEM_FAILED",
    "failing",
  ],
  [
    "200 with an error in a list",
    200,
    { body: [{ error: { code: 503, message: "words" } }] },
    "PROVIDER_ITEM_FAILED",
    "failing",
  ],
];

describe("an answer that is no success", () => {
  it.each(ROWS)("[UPSTREAM-1] means what the table says: %s", (_name, status, given, code, trouble) => {
    const { error, ...outcome } = told(status, given);
    expect(outcome).toMatchObject({ code, trouble, retryable: trouble !== null });
    expect(error.upstreamStatus).toBe(status);
  });

  it("shows the upstream's words for refusals and invalid requests only", () => {
    const words = "ask for 1024x1024";
    expect(told(400, openai({ message: words })).message).toBe(words);
    expect(told(400, openai({ message: words, code: "moderation_blocked" })).message).toBe(words);
    expect(told(422, { body: { detail: words } }).message).toBe(words);
    expect(told(400, { body: { error: words } }).message).toBe(words);
    for (const status of [401, 402, 403, 404, 408, 429, 500, 502, 503]) {
      const { message } = told(status, openai({ message: words }));
      expect(message).not.toContain(words);
      expect(message).toContain("painter");
      expect(message).toContain(`HTTP ${status}`);
    }
    expect(told(413).message).toBe("painter does not accept the request (HTTP 413).");
  });

  it("names the host to which a redirect leads, and no more of its address", () => {
    const location = "https://user:secret@images.example:8443/key/secret?key=secret#secret";
    expect(told(308, { headers: { location } }).message).toBe(
      "painter redirects to images.example:8443: configure the address that it leads to as `baseUrl` (HTTP 308).",
    );
    for (const headers of [{}, { location: "/secret" }, { location: "http://[" }] as Record<string, string>[])
      expect(told(302, { headers }).message).toContain("painter redirects elsewhere: ");
  });

  const repeated: readonly [string, number, string, (prompt: string) => object][] = [
    ["a key", 400, "a poster: API key not valid", (prompt) => openai({ message: `Bad prompt: ${prompt}` })],
    ["billing", 400, "the billing account", (prompt) => openai({ message: JSON.stringify({ prompt }) })],
    ["money", 403, "credits\tare\ndepleted", (prompt) => openai({ message: prompt.split(/\s/).join(" ") })],
    [
      "quota",
      429,
      'sign "INSUFFICIENT  CREDITS"',
      (prompt) => ({ body: { detail: prompt.toLowerCase().replace("  ", " ") } }),
    ],
    [
      "a tier",
      429,
      "speed limit: 0, and more of it",
      (prompt) => openai({ message: `Too long: ${prompt.slice(0, 20)}…` }),
    ],
    ["a refusal", 422, "our content policy", (prompt) => ({ body: { detail: [{ msg: `not ${prompt}` }] } })],
    [
      "two turns",
      400,
      "enable\nbilling",
      (prompt) => native(400, "INVALID_ARGUMENT", prompt.replace("\n", " ")),
    ],
  ];
  it.each(repeated)("is not judged by a prompt that it repeats: %s", (_name, status, asked, given) => {
    const plain = told(status);
    const answer = given(asked);
    expect(told(status, answer)).not.toMatchObject({ code: plain.code, trouble: plain.trouble });
    expect(told(status, { ...answer, asked })).toMatchObject({ code: plain.code, trouble: plain.trouble });
  });

  it("is judged by its own words beside a repeated prompt", () => {
    const message = "the billing account: your credit balance is too low";
    expect(told(400, { ...openai({ message }), asked: "the billing account" }).trouble).toBe("billing");
    const asked = "a clock: try again in 9h, in this location";
    const limited = openai({ message: `${asked}. Please try again in 7s.` });
    expect(told(429, { ...limited, asked }).error.retryAfterMs).toBe(7000);
    const region = native(400, "FAILED_PRECONDITION", `Enable it. ${asked}`);
    expect(told(400, { ...region, asked }).trouble).toBe("billing");
  });

  it("[HEALTH-11] a refusal that names a model concerns that model only", () => {
    const quota = { violations: [{ quotaId: "q", quotaDimensions: { model: "painter-3" } }] };
    const ofModel = [
      told(403, openai({ message: "Your organization must be verified to use the model `painter-3`." })),
      told(403, native(403, "PERMISSION_DENIED", "No access to model painter-3.")),
      told(429, native(429, "RESOURCE_EXHAUSTED", "Quota exceeded, limit: 0, model: painter-3")),
      told(429, native(429, "RESOURCE_EXHAUSTED", "Quota exceeded, limit: 0", [quota])),
    ];
    const ofKey = [
      told(403, native(403, "PERMISSION_DENIED", "The consumer has been suspended.")),
      told(400, native(400, "FAILED_PRECONDITION", "User location is not supported.")),
      told(429, openai({ code: "insufficient_quota", message: "No quota for any model." })),
      told(
        400,
        openai({ code: "billing_hard_limit_reached", message: "Billing hard limit for this model." }),
      ),
      told(401, openai({ message: "This key is not for the model." })),
    ];
    expect(ofModel.map(({ error }) => error.isOfModel)).toEqual([true, true, true, true]);
    expect(ofModel.map(({ trouble }) => trouble)).toEqual(["forbidden", "forbidden", "billing", "billing"]);
    expect(ofModel[0]?.message).toBe("painter does not permit the model (HTTP 403).");
    expect(ofKey.map(({ error }) => error.isOfModel)).toEqual([false, false, false, false, false]);
  });

  it("carries the announced pause of a trouble, never of a final answer", () => {
    const headers = { "retry-after": "7" };
    expect(told(429, { headers }).error.retryAfterMs).toBe(7000);
    expect(told(503, { headers }).error.retryAfterMs).toBe(7000);
    expect(told(400, { headers }).error.retryAfterMs).toBeNull();
  });

  it("[UPSTREAM-1] survives bodies of any shape", () => {
    for (const body of [
      null,
      0,
      "text",
      [],
      [[]],
      { error: 7 },
      { error: [] },
      { error: { code: {}, details: "x" } },
    ]) {
      expect(told(500, { body }).trouble).toBe("failing");
      expect(told(400, { body }).code).toBe("INVALID_ARGUMENT");
    }
  });
});
