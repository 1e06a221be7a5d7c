import sharp from "sharp";
import { describe, expect, it } from "vitest";
import type { OpenaiBody } from "../../../src/contract/openai-api.ts";
import { checkInvariants } from "../../../src/domain/check-invariants.ts";
import { KEPT } from "../../../src/domain/retention.ts";
import { systemClock } from "../../../src/kernel/clock.ts";
import { createProceduralProvider } from "../../../src/providers/procedural/provider.ts";
import { FakeClock } from "../../support/fake-clock.ts";
import { FakeProvider, FakeUpstream, made, tinyPng, troubled } from "../../support/fake-provider.ts";
import { ask, errorOf, refusalOf, shapesOf } from "../../support/openai-images.ts";
import { openBeside, otherKey, startTestService, type TestService } from "../../support/service.ts";

const PRICE = 67_000;
const drawings = () =>
  createProceduralProvider({ name: "procedural", concurrency: 4, models: () => true, clock: systemClock });
const TOOLS = [{ type: "image_generation" }];
const PATH = "/v1/responses";

type View = OpenaiBody<"Response">;
type Headers = Record<string, string>;

const create = (service: TestService, body: object, headers: Headers = {}) =>
  ask(service, PATH, { model: "gpt-5.5", input: "a red fox", tools: TOOLS, ...body }, { headers });

async function viewOf(answer: Response | Promise<Response>): Promise<View> {
  const { status } = await answer;
  const text = await (await answer).text();
  if (status !== 200) throw new Error(`answered ${status}: ${text}`);
  return JSON.parse(text);
}

const resultOf = ({ output }: View) => output[0]?.result ?? "";
const bytesOf = (view: View) => Buffer.from(resultOf(view), "base64");

function at(service: TestService, id: string, init: RequestInit = {}, query = ""): Promise<Response> {
  const headers = { authorization: `Bearer ${service.credentials.api_key}`, ...init.headers };
  return fetch(`${service.url}${PATH}/${id}${query}`, { ...init, headers });
}

const user = (...content: object[]) => ({ role: "user", content });
const text = (words: string) => ({ type: "input_text", text: words });
const image = (bytes: Buffer) => ({
  type: "input_image",
  image_url: `data:image/png;base64,${bytes.toString("base64")}`,
});

/** A service whose provider makes another picture each time, and keeps the references of its requests. */
async function rememberingService(provider = new FakeProvider()) {
  const references: Buffer[][] = [];
  provider.answer = async (request) => {
    references.push(await Promise.all(request.references.map((each) => each.read())));
    return made(await tinyPng(references.length));
  };
  const service = await startTestService({ workers: false, providers: [provider] });
  return { service, provider, references };
}

describe("a response", () => {
  it("[OAI-10] has a picture and words beside it, is paid once, and can be got until it is deleted", async () => {
    const service = await startTestService({ workers: false, providers: [drawings()] });
    const tools = [{ type: "image_generation", size: "1536x1024", output_format: "webp", quality: "high" }];
    const view = await viewOf(create(service, { tools, metadata: { a: "b" } }));
    expect(view).toMatchObject({
      object: "response",
      status: "completed",
      model: "gpt-5.5",
      metadata: { a: "b" },
      error: null,
      output: [
        { type: "image_generation_call", status: "completed", size: "1536x1024", quality: "high" },
        { type: "message", role: "assistant", content: [{ type: "output_text", text: expect.any(String) }] },
      ],
      tool_usage: { image_gen: { output_tokens: expect.any(Number) } },
    });
    expect(view.id).toMatch(/^resp_/);
    expect(await shapesOf([bytesOf(view)])).toEqual(["1536x1024 webp"]);
    expect(await viewOf(at(service, view.id))).toEqual(view);
    const { stores, blobs } = await openBeside(service.data);
    expect((await stores.read.usage.list()).map(({ amountMicroUsd }) => amountMicroUsd)).toEqual([PRICE]);
    await service.expectBooks();
    expect(await (await at(service, view.id, { method: "DELETE" })).json()).toEqual({
      id: view.id,
      object: "response",
      deleted: true,
    });
    expect((await refusalOf(await at(service, view.id)))[0]).toBe(404);
    expect(await blobs.list("interactions/")).toEqual([]);
    await service.expectBooks();
  });

  it("[OAI-11] is continued: the picture is edited, and the earlier words are known", async () => {
    const { service, provider, references } = await rememberingService();
    const first = await viewOf(create(service, { instructions: "in oil" }));
    const second = await viewOf(create(service, { input: "make it blue", previous_response_id: first.id }));
    expect(second.previous_response_id).toBe(first.id);
    const third = await viewOf(create(service, { input: "add a hat", previous_response_id: second.id }));
    expect(provider.requests.map(({ earlier, prompt }) => [earlier, prompt])).toEqual([
      ["in oil", "a red fox"],
      ["a red fox", "make it blue"],
      ["a red fox\nmake it blue", "add a hat"],
    ]);
    expect(references).toEqual([[], [bytesOf(first)], [bytesOf(second)]]);
    const anew = [{ type: "image_generation", action: "generate" }];
    await viewOf(create(service, { tools: anew, previous_response_id: third.id }));
    expect(references[3]).toEqual([]);
  });

  it("[OAI-11] edits the picture of a call that its input names, and pictures that come with it", async () => {
    const { service, references } = await rememberingService();
    const first = await viewOf(create(service, {}));
    const own = await tinyPng(99);
    const [call, message] = first.output;
    const inputs = [
      [{ type: "image_generation_call", id: call?.id }, user(text("make it blue"))],
      [user(text("a red fox")), call, message, user(text("and this"), image(own))],
      [{ type: "item_reference", id: call?.id }, user(text("x"))],
    ];
    for (const input of inputs) await viewOf(create(service, { input }));
    const kept = bytesOf(first);
    expect(references.slice(1)).toEqual([[kept], [kept, own], [kept]]);
    const unkept = await viewOf(create(service, { store: false }));
    const { id, result } = unkept.output[0] ?? {};
    const input = (more: object) => [{ type: "image_generation_call", id, ...more }, user(text("x"))];
    await viewOf(create(service, { input: input({ result }) }));
    expect(references.at(-1)).toEqual([bytesOf(unkept)]);
    expect(await refusalOf(await create(service, { input: input({}) }))).toEqual([
      400,
      "REALTIME_INVALID_ARGUMENT",
      "input[0].id",
    ]);
  });

  it("[OAI-11] reads large pictures from the body as they come", async () => {
    const { service, references } = await rememberingService();
    const noise = { type: "gaussian", mean: 128, sigma: 60 } as const;
    const random = { width: 900, height: 700, channels: 3, background: "#000", noise } as const;
    const large = await sharp({ create: random }).png().toBuffer();
    expect(large.length).toBeGreaterThan(1_000_000);
    const call = { type: "image_generation_call", id: "ig_x", result: large.toString("base64") };
    await viewOf(create(service, { input: [call, user(image(large), text("both"))] }));
    expect(references).toEqual([[large, large]]);
    const bare = { type: "input_image", image_url: large.toString("base64") };
    expect(await refusalOf(await create(service, { input: [user(text("x"), bare)] }))).toMatchObject([
      400,
      "REALTIME_INVALID_ARGUMENT",
      "input[0].content[1].image_url",
    ]);
  });

  it("[OAI-12] of another key is unknown, and so is one that was not stored", async () => {
    const service = await startTestService({ workers: false });
    const view = await viewOf(create(service, {}));
    const { headers } = await otherKey(service);
    const unstored = await viewOf(create(service, { store: false }));
    for (const [id, init] of [
      [view.id, { headers }],
      [view.id, { headers, method: "DELETE" }],
      [unstored.id, {}],
      ["resp_none", {}],
      [`${view.id}%00`, {}],
    ] as const) {
      const answer = await at(service, id, init);
      expect([id, answer.status]).toEqual([id, 404]);
      expect((await errorOf(answer)).code).toBe("REALTIME_INTERACTION_NOT_FOUND");
    }
    const asked = { previous_response_id: view.id };
    for (const [body, sent] of [
      [asked, headers],
      [{ previous_response_id: unstored.id }, {}],
      [{ previous_response_id: "resp_none" }, {}],
    ] as const)
      expect(await refusalOf(await create(service, body, sent))).toEqual([
        400,
        "previous_response_not_found",
        "previous_response_id",
      ]);
    const call = [{ type: "image_generation_call", id: view.output[0]?.id }, user(text("x"))];
    expect((await refusalOf(await create(service, { input: call }, headers)))[2]).toBe("input[0].id");
    await viewOf(at(service, view.id));
  });

  it("[OAI-12] that cannot be made is refused with its field, and costs nothing", async () => {
    const service = await startTestService({ workers: false, providers: [drawings()] });
    const tool = (more: object) => ({ tools: [{ type: "web_search" }, { ...TOOLS[0], ...more }] });
    const far = { type: "input_image", image_url: "https://example.com/fox.png" };
    const wrong: [body: object, param: string | null, code?: string][] = [
      [{ tools: [] }, "tools"],
      [{ tools: undefined }, "tools"],
      [{ tools: [{ type: "web_search" }] }, "tools"],
      [{ tool_choice: "none" }, "tool_choice"],
      [{ tool_choice: { type: "function", name: "f" } }, "tool_choice"],
      [{ background: true }, "background"],
      [{ conversation: "conv_1" }, "conversation"],
      [{ input: undefined }, "input"],
      [{ input: 7 }, "input"],
      [{ input: "" }, "input"],
      [{ input: [] }, "input"],
      [{ input: [user(far, text("x"))] }, "input[0].content[0].image_url"],
      [{ input: [user({ type: "input_file", file_data: "x" })] }, "input[0].content[0]"],
      [{ input: [{ role: "robot", content: "x" }] }, "input[0].role"],
      [{ input: [{ type: "function_call_output", output: "x" }] }, "input[0].type"],
      [{ input: [user(text("x"), image(Buffer.from("no image")))] }, "input[0].content[1]"],
      [tool({ size: "17x3" }), "tools[1].size"],
      [tool({ quality: "best" }), "tools[1].quality"],
      [tool({ model: "sora" }), "tools[1].model", "model_not_found"],
      [tool({ output_format: "gif" }), "tools[1].output_format"],
      [tool({ action: "edit" }), "tools[1].action"],
      [tool({ action: "paint" }), "tools[1].action"],
      [
        tool({ input_image_mask: { image_url: image(await tinyPng()).image_url } }),
        "tools[1].input_image_mask",
      ],
      [{ input: "[[refuse]] a fox" }, null, "moderation_blocked"],
      [{ input: "[[empty]] a fox" }, null, "no_image"],
    ];
    for (const [body, param, code = "REALTIME_INVALID_ARGUMENT"] of wrong) {
      const answer = await create(service, body);
      const status = code === "model_not_found" ? 404 : 400;
      expect([body, ...(await refusalOf(answer))]).toEqual([body, status, code, param]);
    }
    const { stores, blobs } = await openBeside(service.data);
    expect(await stores.read.usage.count()).toBe(0);
    expect(await blobs.list("interactions/")).toEqual([]);
    const tools = [{ ...TOOLS[0], moderation: "low" }, { type: "web_search" }];
    const more = { temperature: 1, tools };
    const ignored = (await create(service, more)).headers.get("x-imgbatch-ignored");
    expect(ignored).toBe("temperature, tools[1], tools[0].moderation");
  });

  it("[OAI-12] whose answer is lost upstream has a final status, and an equal one is not sent", async () => {
    const provider = new FakeUpstream("painter");
    provider.answer = () => Promise.reject(troubled("ambiguous"));
    const service = await startTestService({ workers: false, providers: [provider] });
    for (let turn = 0; turn < 2; turn++) {
      const answer = await create(service, {}, { "x-imgbatch-max-cost": "1" });
      await answer.arrayBuffer();
      expect([answer.status, answer.headers.get("x-should-retry")]).toEqual([424, "false"]);
    }
    expect(provider.requests).toHaveLength(1);
    const { blobs } = await openBeside(service.data);
    expect(await blobs.list("interactions/")).toEqual([]);
  });

  it("[OAI-12] with an idempotency key is made once", async () => {
    const { service, provider } = await rememberingService();
    const keyed = () => create(service, {}, { "idempotency-key": "k" });
    const first = await (await keyed()).text();
    const again = await keyed();
    expect([await again.text(), again.headers.get("idempotency-replayed")]).toEqual([first, "true"]);
    expect(provider.requests).toHaveLength(1);
    const other = await create(service, { metadata: { a: "b" } }, { "idempotency-key": "k" });
    expect((await refusalOf(other))[0]).toBe(409);
  });

  it("is kept as long as files are, and its pictures are checked with the data", async () => {
    const clock = new FakeClock();
    const service = await startTestService({ clock });
    const { id } = await viewOf(create(service, {}));
    const { stores, blobs } = await openBeside(service.data);
    await clock.advance(KEPT.interactions.forMs);
    expect((await at(service, id)).status).toBe(404);
    let polls = 0;
    const later = async () => {
      if (polls++ % 50 === 0) await clock.advance(KEPT.links.forMs / 2);
      return [await blobs.list("interactions/"), await stores.read.interactions.find(id)];
    };
    await expect.poll(later).toEqual([[], null]);
    const { id: next } = await viewOf(create(service, {}));
    const [blob] = await blobs.list("interactions/");
    await blobs.delete(blob?.key ?? "");
    expect((await checkInvariants(stores, blobs)).problems).toEqual([
      `an image of ${next}: ${blob?.key} is missing`,
    ]);
    expect((await refusalOf(await at(service, next)))[1]).toBe("BATCH_IMAGE_RESULT_MISSING");
  });
});
