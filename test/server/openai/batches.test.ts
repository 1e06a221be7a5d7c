import { randomBytes } from "node:crypto";
import sharp from "sharp";
import { describe, expect, it } from "vitest";
import type { OpenaiBody } from "../../../src/contract/openai-api.ts";
import { ProviderError } from "../../../src/domain/ports/image-provider.ts";
import { draftsBelow } from "../../support/drafts.ts";
import { FakeProvider, FakeUpstream, made, tinyPng, troubled } from "../../support/fake-provider.ts";
import {
  ask,
  batchIdOf,
  batchOf,
  create,
  createOf,
  EDITS,
  ended,
  fileOf,
  jsonl,
  line,
  listOf,
  resultsOf,
  sendFile,
} from "../../support/openai-batches.ts";
import { refusalOf, shapesOf } from "../../support/openai-images.ts";
import { picture } from "../../support/realtime.ts";
import { MODEL, startTestService } from "../../support/service.ts";
import { upload } from "../../support/uploads.ts";

describe("a batch of OpenAI's API", () => {
  it("[OAIB-4] makes the image of each line, with the output, the errors, the counts and the facts of its clients", async () => {
    const provider = new FakeProvider();
    provider.answer = async ({ prompt }) => {
      if (prompt === "refused") throw new ProviderError("SAFETY_BLOCKED", "not that");
      if (prompt === "nothing") throw new ProviderError("EMPTY_IMAGE_OUTPUT", "no image");
      return made(await tinyPng(prompt.length));
    };
    const service = await startTestService({ providers: [provider] });
    const lines = [
      line("a", "x", { size: "1536x1024" }),
      line("b", "refused"),
      "{no json",
      "",
      line('q"\n\u2028', "xx", { n: 1, quality: "high", response_format: "b64_json" }),
      line("c", "nothing"),
      line("d", "xxx", { size: "large" }),
    ];
    const created = await createOf(service, lines, { metadata: { nightly: "yes" } });
    expect(created).toMatchObject({
      id: expect.stringMatching(/^batch_[0-9a-f]{32}$/),
      object: "batch",
      status: "validating",
      endpoint: "/v1/images/generations",
      completion_window: "24h",
      model: MODEL,
      metadata: { nightly: "yes" },
      output_file_id: null,
      request_counts: { total: 0, completed: 0, failed: 0 },
    });
    const batch = await ended(service, created);
    expect(batch).toMatchObject({
      status: "completed",
      errors: null,
      request_counts: { total: 6, completed: 2, failed: 4 },
      in_progress_at: expect.any(Number),
      completed_at: expect.any(Number),
      failed_at: null,
    });
    const output = await resultsOf(service, batch.output_file_id);
    expect(output.map(({ custom_id: id }) => id)).toEqual(["a", 'q"\n\u2028']);
    for (const [at, length] of [1, 2].entries()) {
      const { response, error } = output[at] ?? {};
      expect([response?.status_code, error]).toEqual([200, null]);
      const image = Buffer.from(response?.body.data?.[0]?.b64_json ?? "", "base64");
      expect(image).toEqual(await tinyPng(length));
      const facts = { output_format: "png", usage: { output_tokens: 1120 } };
      expect(response?.body).toMatchObject(facts);
      expect((await shapesOf([image]))[0]).toBe(`${response?.body.size} png`);
    }
    expect(provider.requests.find(({ prompt }) => prompt === "x")).toMatchObject({
      options: { ratio: "3:2", size: "1536x1024" },
    });
    const errors = await resultsOf(service, batch.error_file_id);
    expect(
      errors.map(({ custom_id: id, response }) => [
        id,
        response?.status_code,
        response?.body.error?.code,
        response?.body.error?.param,
      ]),
    ).toEqual([
      ["b", 400, "moderation_blocked", null],
      [null, 400, "REALTIME_INVALID_ARGUMENT", null],
      ["c", 400, "no_image", null],
      ["d", 400, "REALTIME_INVALID_ARGUMENT", "size"],
    ]);
    expect(new Set([...output, ...errors].map(({ id }) => id)).size).toBe(6);
    const shown = await service.batch(batchIdOf(batch.id));
    expect(shown).toMatchObject({ source: "openai", success_count: 2, actual_cost: 0.067 });
    expect((await service.ask(`/${shown.id}/retry`, { method: "POST" })).status).toBe(400);
    await service.expectBooks();
  });

  it("edits data URLs and files of either API, each line by itself", async () => {
    const provider = new FakeProvider();
    const inputs = new Map<string, Buffer[]>();
    provider.answer = async ({ prompt, references }) => {
      inputs.set(prompt, await Promise.all(references.map((image) => image.read())));
      return made(await tinyPng());
    };
    const service = await startTestService({ providers: [provider] });
    const [small, large] = [await tinyPng(3), await picture({ widthPx: 900, heightPx: 400 })];
    const ours = await fileOf(await sendFile(service, small, [["purpose", "vision"]], "fox.png"));
    const theirs = await upload(service, large, { mimeType: "image/png" });
    const url = `data:image/png;base64,${large.toString("base64")}`;
    const images = [{ image_url: url }, { file_id: ours.id }];
    const batch = await ended(
      service,
      await createOf(
        service,
        [
          line("a", "both", { images }, EDITS),
          line("b", "theirs", { images: [{ file_id: theirs.name }] }, EDITS),
          line("c", "none", { images: [{ file_id: "nope" }] }, EDITS),
          line("d", "foreign", { images: [{ image_url: "https://example.org/a.png" }] }, EDITS),
          line("e", "masked", { images, mask: { file_id: ours.id } }, EDITS),
        ],
        { endpoint: EDITS },
      ),
    );
    expect(Object.fromEntries(inputs)).toEqual({ both: [large, small], theirs: [large] });
    const kept = { ratio: "21:9", keepsRatio: true };
    expect(provider.requests.map(({ options }) => options)).toMatchObject([kept, kept]);
    const errors = await resultsOf(service, batch.error_file_id);
    expect(errors.map(({ custom_id: id, response }) => [id, response?.body.error?.param])).toEqual([
      ["c", "images[0].file_id"],
      ["d", "images[0].image_url"],
      ["e", "mask"],
    ]);
  });

  it("[OPT-7] carries the mask of a line to the upstream that makes it, and refuses one that has another size", async () => {
    const takes = { maxReferences: 14, ratios: "any", tiers: "any" } as const;
    const options = ["mask"] as const;
    const painter = new FakeUpstream("painter", { concurrency: 1, takes: { ...takes, options } });
    const plain = new FakeUpstream("plain", { takes });
    const read = new Map<string, unknown>();
    let isFirst = true;
    painter.answer = async ({ prompt, references, mask }) => {
      read.set(prompt, [await Promise.all(references.map((each) => each.read())), await mask?.read()]);
      // Another provider would take over, were there no mask.
      if (isFirst) throw troubled("failing");
      return made(await tinyPng());
    };
    const service = await startTestService({ providers: [painter, plain] });
    const [image, mask, large] = [
      await tinyPng(1),
      await tinyPng(2),
      await picture({ widthPx: 90, heightPx: 40 }),
    ];
    const sent = (bytes: Buffer) => ({ image_url: `data:image/png;base64,${bytes.toString("base64")}` });
    const images = [sent(image)];
    const lines = [
      line("a", "masked", { images, mask: sent(mask) }, EDITS),
      line("b", "whole", { images }, EDITS),
      line("c", "itself", { images, mask: sent(image) }, EDITS),
      line("d", "wrong", { images, mask: sent(large) }, EDITS),
    ];
    const { id: input_file_id } = await fileOf(await sendFile(service, jsonl(lines)));
    const asked = { input_file_id, endpoint: EDITS };
    const created = await batchOf(await create(service, asked, { "x-imgbatch-max-cost": "5" }));
    await expect.poll(() => read.size).toBeGreaterThan(0);
    isFirst = false;
    const batch = await ended(service, created);
    expect(batch.request_counts).toEqual({ total: 4, completed: 3, failed: 1 });
    expect(Object.fromEntries(read)).toEqual({
      masked: [[image], mask],
      whole: [[image], undefined],
      itself: [[image], image],
    });
    expect(plain.requests).toEqual([]);
    const [error] = await resultsOf(service, batch.error_file_id);
    expect(error?.response?.body.error).toMatchObject({
      param: "mask",
      message: expect.stringContaining("8x8"),
    });
    // A mask is no reference.
    const [first] = (await (await service.ask(`/${batchIdOf(batch.id)}/items?include=references`)).json())
      .data;
    expect(first.references).toHaveLength(1);
    const picture0 = `/${batchIdOf(batch.id)}/items/${first.custom_id}/references/0`;
    expect(Buffer.from(await (await service.ask(picture0)).arrayBuffer())).toEqual(image);
  });

  it("refuses at once what can be no batch, and takes a model by any name that stands for it", async () => {
    const service = await startTestService();
    const { id } = await fileOf(await sendFile(service, jsonl([line("a", "x")])));
    const pairs = Object.fromEntries(Array.from({ length: 17 }, (_, i) => [`k${i}`, "v"]));
    for (const [wrong, param] of [
      [{}, "input_file_id"],
      [{ input_file_id: id, endpoint: "/v1/responses" }, "endpoint"],
      [{ input_file_id: id, completion_window: "1h" }, "completion_window"],
      [{ input_file_id: id, metadata: pairs }, "metadata"],
      [
        { input_file_id: id, output_expires_after: { anchor: "created_at", seconds: 1 } },
        "output_expires_after.seconds",
      ],
    ] as const) {
      expect(await refusalOf(await create(service, wrong))).toEqual([
        400,
        "REALTIME_INVALID_ARGUMENT",
        param,
      ]);
    }
    const missing = await create(service, { input_file_id: "nope" });
    expect(await refusalOf(missing)).toEqual([400, "JOB_FILE_UNUSABLE", "input_file_id"]);
    const unknown = await fileOf(
      await sendFile(service, jsonl(["", "{", line("a", "x", { model: "sora" })])),
    );
    const answer = await create(service, { input_file_id: unknown.id });
    expect(await refusalOf(answer)).toEqual([404, "model_not_found", "model"]);
    for (const model of [MODEL, "dall-e-3", undefined]) {
      expect((await createOf(service, [line("a", "x", { model })])).model).toBe(MODEL);
    }
  });

  it("finds the model behind a large image, and looks no further than the first line that can be read", async () => {
    const service = await startTestService();
    const pixels = { raw: { width: 900, height: 900, channels: 3 } } as const;
    const noise = await sharp(randomBytes(900 * 900 * 3), pixels)
      .png()
      .toBuffer();
    const image_url = `data:image/png;base64,${noise.toString("base64")}`;
    const first = {
      ...line("a", "x", {}, EDITS),
      body: { images: [{ image_url }], prompt: "x", model: MODEL },
    };
    const lines = ["[]", first, line("b", "y", { model: "sora", images: [{ image_url }] }, EDITS)];
    const batch = await ended(service, await createOf(service, lines, { endpoint: EDITS }));
    expect(batch).toMatchObject({ model: MODEL, request_counts: { total: 3, completed: 1, failed: 2 } });
    const errors = await resultsOf(service, batch.error_file_id);
    expect(errors.map(({ response }) => response?.body.error?.param)).toEqual([null, "body.model"]);
    expect(await draftsBelow(service.data)).toEqual([]);
  });

  it("takes a line only once by its name, with the address, the model and the count of its batch", async () => {
    const service = await startTestService();
    const lines = [
      line("a", "x"),
      line("a", "y"),
      line("", "x"),
      { ...line("b", "x"), custom_id: 7 },
      { ...line("c", "x"), method: "GET" },
      line("d", "x", {}, EDITS),
      { ...line("e", "x"), body: [] },
      line("f", "x", { model: "dall-e-3" }),
      line("g", "x", { n: 2 }),
      line("h", "x", { stream: true }),
      line("i", "x", { response_format: "url" }),
      line("j", ""),
    ];
    const batch = await ended(service, await createOf(service, lines));
    expect(batch.request_counts).toEqual({ total: 12, completed: 1, failed: 11 });
    const errors = await resultsOf(service, batch.error_file_id);
    expect(errors.map(({ custom_id: id, response }) => [id, response?.body.error?.param])).toEqual([
      ["a", "custom_id"],
      ["", "custom_id"],
      [null, "custom_id"],
      ["c", "method"],
      ["d", "url"],
      ["e", "body"],
      ["f", "body.model"],
      ["g", "body.n"],
      ["h", "body.stream"],
      ["i", "body.response_format"],
      ["j", "prompt"],
    ]);
  });
});

describe("a repeated request for a batch", () => {
  it("gets the batch of an equal one when the library says that it repeats it", async () => {
    const service = await startTestService();
    const { id } = await fileOf(await sendFile(service, jsonl([line("a", "x")])));
    const body = { input_file_id: id, metadata: { a: "b" } };
    const send = async (count: string, more: object = {}) =>
      (await batchOf(await create(service, { ...body, ...more }, { "x-stainless-retry-count": count }))).id;
    const first = await send("0");
    expect(await send("1")).toBe(first);
    expect(await send("2")).toBe(first);
    const other = await send("1", { metadata: { a: "c" } });
    const second = await send("0");
    expect(new Set([first, other, second]).size).toBe(3);
    const both = await Promise.all([send("0", { metadata: null }), send("1", { metadata: null })]);
    expect(both[0]).toBe(both[1]);
    const { data } = await listOf<OpenaiBody<"OpenaiBatch">>(await ask(service, "batches"));
    expect(data).toHaveLength(4);
  });
});
