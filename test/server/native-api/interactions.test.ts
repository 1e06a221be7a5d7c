import { describe, expect, it } from "vitest";
import type { NativeBody } from "../../../src/contract/native-api.ts";
import { systemClock } from "../../../src/kernel/clock.ts";
import { createProceduralProvider } from "../../../src/providers/procedural/provider.ts";
import {
  FakeProvider,
  FakeUpstream,
  made,
  madeAfter,
  tinyPng,
  troubled,
} from "../../support/fake-provider.ts";
import { gate } from "../../support/gate.ts";
import { ask } from "../../support/openai-images.ts";
import { MODEL, openBeside, otherKey, startTestService, type TestService } from "../../support/service.ts";

const PRICE = 67_000;
const START_MICRO_USD = 1_000_000_000;
const PATH = "/v1beta/interactions";
const CONSENT = { "x-imgbatch-max-cost": "1" };

type View = NativeBody<"Interaction">;
type Headers = Record<string, string>;

const drawings = () =>
  createProceduralProvider({ name: "procedural", concurrency: 4, models: () => true, clock: systemClock });

const create = (service: TestService, body: object, headers: Headers = {}) =>
  ask(service, PATH, { model: MODEL, input: "a red fox", ...body }, { headers });

async function viewOf(answer: Response | Promise<Response>): Promise<View> {
  const { status } = await answer;
  const text = await (await answer).text();
  if (status !== 200) throw new Error(`answered ${status}: ${text}`);
  return JSON.parse(text);
}

function at(
  service: TestService,
  id: string | undefined,
  init: RequestInit = {},
  more = "",
): Promise<Response> {
  const headers = { authorization: `Bearer ${service.credentials.api_key}`, ...init.headers };
  return fetch(`${service.url}${PATH}/${id}${more}`, { ...init, headers });
}

/** `[status, code, reason, param]` */
async function refusalOf(answer: Response): Promise<unknown[]> {
  const { error } = (await answer.json()) as NativeBody<"InteractionError">;
  return [answer.status, error.code, error.reason, error.param];
}

const INVALID = [400, "invalid_request", "REALTIME_INVALID_ARGUMENT"];

function pictureOf({ steps }: View): string {
  return steps.at(-1)?.content.find(({ type }) => type === "image")?.data ?? "";
}

async function moneyOf(service: TestService) {
  const { stores } = await openBeside(service.data);
  const { balanceMicroUsd, heldMicroUsd } = (await stores.read.accounts.byName("default")) ?? {};
  return { spent: START_MICRO_USD - (balanceMicroUsd ?? 0), held: heldMicroUsd };
}

const statusOf = async (service: TestService, id: string | undefined) =>
  (await viewOf(at(service, id))).status;

describe("an interaction", () => {
  it("[INT-1] is also below /v1 with the vendor's header, and shows what was asked for", async () => {
    const service = await startTestService({ workers: false });
    const headers = { "x-vendorx-api-key": service.credentials.api_key, "content-type": "application/json" };
    const data = (await tinyPng(5)).toString("base64");
    const input = [
      { type: "text", text: "in autumn" },
      { type: "image", data },
    ];
    const body = JSON.stringify({ model: `models/${MODEL}`, input });
    const view = await viewOf(fetch(`${service.url}/v1/interactions`, { method: "POST", headers, body }));
    const shown = await viewOf(at(service, view.id, {}, "?include_input=true"));
    expect(shown.steps).toEqual([
      {
        type: "user_input",
        content: [
          { type: "text", text: "in autumn" },
          { type: "image", data, mime_type: "image/png" },
        ],
      },
      ...view.steps,
    ]);
    expect(await moneyOf(service)).toEqual({ spent: PRICE, held: 0 });
    await service.expectBooks();
  });

  it("[INT-2] is continued with its turns, pictures and signatures at an upstream of this API", async () => {
    const takes = {
      maxReferences: 14,
      ratios: "any",
      tiers: "any",
      api: "native",
      options: ["systemInstruction"],
    } as const;
    const provider = new FakeUpstream("painter", { takes });
    const read: Buffer[][] = [];
    provider.answer = async ({ references }) => {
      read.push(await Promise.all(references.map((each) => each.read())));
      const parts = [{ text: "There." }, { image: 0, thoughtSignature: "sig" }];
      const fields = { candidates: [{ content: { parts } }], usageMetadata: { promptTokenCount: 4 } };
      return { ...made(await tinyPng(read.length)), answer: { api: "native", fields } };
    };
    const service = await startTestService({ workers: false, providers: [provider] });
    const photo = await tinyPng(77);
    const input = [
      { type: "text", text: "a fox" },
      { type: "image", data: photo.toString("base64") },
    ];
    const first = await viewOf(create(service, { input }, CONSENT));
    expect(first.steps[0]?.content.map(({ type, text }) => text ?? type)).toEqual(["There.", "image"]);
    const more = { previous_interaction_id: first.id, system_instruction: "in oil" };
    await viewOf(create(service, { input: "make it blue", ...more }, CONSENT));
    expect(provider.requests[1]).toMatchObject({
      prompt: "make it blue",
      earlier: "a fox",
      verbatim: {
        fields: {
          systemInstruction: { parts: [{ text: "in oil" }] },
          contents: [
            { role: "user", parts: [{ text: "a fox" }, { reference: 0 }] },
            { role: "model", parts: [{ text: "There." }, { reference: 1, thoughtSignature: "sig" }] },
            { role: "user", parts: [{ text: "make it blue" }] },
          ],
        },
      },
    });
    expect(read[1]).toEqual([photo, await tinyPng(1)]);
  });

  it("[INT-3] is made in the background once its money is held, and paid when it is there", async () => {
    const end = gate();
    const provider = new FakeProvider();
    provider.answer = madeAfter(end);
    const service = await startTestService({ workers: false, providers: [provider] });
    const begun = await viewOf(create(service, { background: true }));
    expect(begun).toMatchObject({ status: "in_progress", steps: [] });
    expect(await moneyOf(service)).toEqual({ spent: PRICE, held: PRICE });
    expect(await viewOf(at(service, begun.id))).toEqual(begun);
    const stream = await at(service, begun.id, {}, "?stream=true");
    end.open();
    const events = (await stream.text()).split("\n\n").map((each) => /^event: (\S+)/.exec(each)?.[1]);
    expect(events.filter((each) => each !== undefined)).toEqual([
      "interaction.created",
      "interaction.status_update",
      "step.start",
      "step.delta",
      "step.delta",
      "step.stop",
      "interaction.completed",
      "done",
    ]);
    expect(await statusOf(service, begun.id)).toBe("completed");
    expect(await moneyOf(service)).toEqual({ spent: PRICE, held: 0 });
    await service.expectBooks();
  });

  it("[INT-3] in the background stops when it is cancelled or deleted, and costs nothing", async () => {
    const provider = new FakeProvider();
    provider.answer = (_, signal) =>
      new Promise((_, reject) => signal.addEventListener("abort", () => reject(signal.reason)));
    const service = await startTestService({ workers: false, providers: [provider] });
    const [first, second] = [
      await viewOf(create(service, { background: true })),
      await viewOf(create(service, { background: true })),
    ];
    const cancelled = await viewOf(at(service, first.id, { method: "POST" }, "/cancel"));
    expect(cancelled.status).toBe("cancelled");
    expect(await (await at(service, second.id, { method: "DELETE" })).json()).toEqual({});
    await expect.poll(() => moneyOf(service)).toEqual({ spent: 0, held: 0 });
    expect(await statusOf(service, first.id)).toBe("cancelled");
    expect(await refusalOf(await at(service, first.id, { method: "POST" }, "/cancel"))).toEqual([
      ...INVALID,
      "id",
    ]);
    expect((await at(service, second.id)).status).toBe(404);
    expect(await refusalOf(await create(service, { previous_interaction_id: first.id }))).toEqual([
      ...INVALID,
      "previous_interaction_id",
    ]);
    await service.expectBooks();
  });

  it("[INT-3] whose process has ended has failed, and costs nothing", async () => {
    const provider = new FakeProvider();
    provider.answer = (_, signal) =>
      new Promise((_, reject) => signal.addEventListener("abort", () => reject(signal.reason)));
    const service = await startTestService({ workers: false, providers: [provider] });
    const { id } = await viewOf(create(service, { background: true }));
    await service.close(0);
    const next = await startTestService({ workers: false, data: service.data });
    const view = await viewOf(at(next, id));
    expect(view).toMatchObject({ status: "failed", errors: [{ reason: "REALTIME_STOPPING" }] });
    expect(await moneyOf(next)).toEqual({ spent: 0, held: 0 });
  });

  it("[INT-3] that cannot begin is an error at once, and one that fails later says why", async () => {
    const models = [{ id: MODEL, prices: { "1K": 600 } }];
    const service = await startTestService({ workers: false, providers: [drawings()], config: { models } });
    const refused = await viewOf(create(service, { input: "[[refuse]] a fox", background: true }));
    await expect.poll(() => statusOf(service, refused.id)).toBe("failed");
    expect(await viewOf(at(service, refused.id))).toMatchObject({
      errors: [
        { code: "invalid_request", reason: "REALTIME_REFUSED", message: expect.stringContaining("refused") },
      ],
    });
    const slow = { input: "[[delay:1h]] a fox", background: true };
    await viewOf(create(service, slow));
    const poor = await create(service, slow);
    expect(await refusalOf(poor)).toEqual([
      402,
      "payment_required",
      "REALTIME_INSUFFICIENT_BALANCE",
      undefined,
    ]);
  });

  it("[INT-3] in the background can be followed from its beginning, also when it fails", async () => {
    const service = await startTestService({ workers: false, providers: [drawings()] });
    for (const [input, status] of [
      ["a fox", "completed"],
      ["[[refuse]] a fox", "failed"],
    ]) {
      const answer = await create(service, { input, background: true, stream: true });
      expect(answer.headers.get("content-type")).toContain("text/event-stream");
      const events = (await answer.text())
        .split("\n\n")
        .flatMap((each) => /^data: (\{.*)$/m.exec(each)?.[1] ?? []);
      const { event_type: type, interaction } = JSON.parse(events.at(-1) ?? "");
      expect([type, interaction.status]).toEqual(["interaction.completed", status]);
      await expect.poll(() => statusOf(service, interaction.id)).toBe(status);
    }
  });

  it("[INT-4] of another key or another API is unknown, and so is one that was not stored", async () => {
    const service = await startTestService({ workers: false });
    const { id } = await viewOf(create(service, {}));
    const { headers } = await otherKey(service);
    const unstored = await viewOf(create(service, { store: false }));
    expect(unstored.id).toBeUndefined();
    for (const [init, more] of [
      [{ headers }, ""],
      [{ headers, method: "DELETE" }, ""],
      [{ headers, method: "POST" }, "/cancel"],
    ] as const)
      expect(await refusalOf(await at(service, id, init, more))).toEqual([
        404,
        "not_found",
        "REALTIME_INTERACTION_NOT_FOUND",
        "id",
      ]);
    const continued = await create(service, { previous_interaction_id: id }, headers);
    expect((await refusalOf(continued)).slice(0, 1)).toEqual([404]);
    const authorization = `Bearer ${service.credentials.api_key}`;
    expect((await fetch(`${service.url}/v1/responses/${id}`, { headers: { authorization } })).status).toBe(
      404,
    );
    await viewOf(at(service, id));
  });

  it("[INT-4] that cannot be made is refused with its field, and costs nothing", async () => {
    const service = await startTestService({ workers: false, providers: [drawings()] });
    const image = (more: object) => ({ response_format: { type: "image", ...more } });
    const part = (more: object) => ({
      input: [
        { type: "text", text: "x" },
        { type: "image", ...more },
      ],
    });
    const wrong: [body: object, param: string | undefined, ...rest: string[]][] = [
      [{ agent: "deep-research", model: undefined }, "agent"],
      [{ model: undefined }, "model"],
      [{ input: undefined }, "input"],
      [{ input: 7 }, "input"],
      [{ input: "" }, "input"],
      [{ input: [] }, "input"],
      [{ response_format: { type: "text" } }, "response_format"],
      [{ response_format: [{ type: "image" }, { type: "audio" }] }, "response_format[1].type"],
      [{ response_modalities: ["text"] }, "response_modalities"],
      [image({ aspect_ratio: "5:7" }), "response_format.aspect_ratio"],
      [image({ image_size: "9K" }), "response_format.image_size"],
      [image({ mime_type: "image/gif" }), "response_format.mime_type"],
      [image({ delivery: "uri" }), "response_format.delivery"],
      [
        { generation_config: { image_config: { aspect_ratio: "5:7" } } },
        "generation_config.image_config.aspect_ratio",
      ],
      [{ generation_config: { seed: -1 } }, "generation_config.seed"],
      [part({}), "input[1]"],
      [part({ data: "%" }), "input[1].data"],
      [part({ uri: "https://example.com/fox.png" }), "input[1].uri"],
      [{ input: [{ type: "video", uri: "x" }] }, "input[0].type"],
      [
        { input: [{ type: "user_input", content: [{ type: "audio", data: "x" }] }] },
        "input[0].content[0].type",
      ],
      [{ background: true, store: false }, "background"],
      [{ input: "[[refuse]] a fox" }, undefined, "REALTIME_REFUSED"],
      [{ input: "[[empty]] a fox" }, undefined, "REALTIME_NO_IMAGE"],
    ];
    for (const [body, param, reason = "REALTIME_INVALID_ARGUMENT"] of wrong)
      expect([body, ...(await refusalOf(await create(service, body)))]).toEqual([
        body,
        400,
        "invalid_request",
        reason,
        param,
      ]);
    expect((await refusalOf(await create(service, { model: "none" })))[0]).toBe(404);
    expect(await moneyOf(service)).toEqual({ spent: 0, held: 0 });
    const ignored = await create(service, {
      labels: { a: "b" },
      generation_config: { top_p: 1, thinking_level: "high" },
    });
    expect(ignored.headers.get("x-imgbatch-ignored")).toBe(
      "labels, generation_config.top_p, generation_config.thinking_level",
    );
  });

  it("[INT-4] whose answer is lost upstream has a status that no client repeats, and an equal one is not sent", async () => {
    const provider = new FakeUpstream("painter");
    provider.answer = () => Promise.reject(troubled("ambiguous"));
    const service = await startTestService({ workers: false, providers: [provider] });
    for (let turn = 0; turn < 2; turn++) {
      const answer = await create(service, {}, CONSENT);
      expect(await refusalOf(answer)).toEqual([424, "failed_dependency", "REALTIME_MAY_BE_PAID", undefined]);
    }
    expect(provider.requests).toHaveLength(1);
  });

  it("[INT-4] with an idempotency key is made once, also in the background", async () => {
    const end = gate();
    const provider = new FakeProvider();
    provider.answer = madeAfter(end);
    const service = await startTestService({ workers: false, providers: [provider] });
    const keyed = () => create(service, { background: true }, { "idempotency-key": "k" });
    const begun = await viewOf(keyed());
    end.open();
    await expect.poll(() => statusOf(service, begun.id)).toBe("completed");
    const again = await viewOf(keyed());
    expect([again.id, again.status, pictureOf(again)]).toEqual([
      begun.id,
      "completed",
      (await tinyPng()).toString("base64"),
    ]);
    expect(provider.requests).toHaveLength(1);
  });
});
