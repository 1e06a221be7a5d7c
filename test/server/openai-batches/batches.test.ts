import { describe, expect, it } from "vitest";
import type { OpenaiBatch } from "../../../src/contract/openai-batches/batches.ts";
import { checkInvariants } from "../../../src/domain/check-invariants.ts";
import { ProviderError } from "../../../src/domain/ports/image-provider.ts";
import { batchOfOpenaiId } from "../../../src/server/openai-batches/ids.ts";
import { FakeProvider, made, tinyPng } from "../../support/fake-provider.ts";
import { gate } from "../../support/gate.ts";
import {
  ask,
  batchNow,
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
import { MODEL, openBeside, otherKey, startTestService } from "../../support/service.ts";
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
      ratio: "3:2",
      tier: "1K",
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
    const shown = await service.batch(batchOfOpenaiId(batch.id));
    expect(shown).toMatchObject({ source: "openai", success_count: 2, actual_cost: 0.067 });
    expect((await service.ask(`/${shown.id}/retry`, { method: "POST" })).status).toBe(400);
    const { stores, blobs } = await openBeside(service.data);
    expect((await checkInvariants(stores, blobs)).problems).toEqual([]);
  });

  it("[OAIB-5] edits data URLs and files of either API, each line by itself", async () => {
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
    expect(provider.requests.map(({ ratio }) => ratio)).toEqual(["21:9", "21:9"]);
    const errors = await resultsOf(service, batch.error_file_id);
    expect(errors.map(({ custom_id: id, response }) => [id, response?.body.error?.param])).toEqual([
      ["c", "images[0].file_id"],
      ["d", "images[0].image_url"],
      ["e", "mask"],
    ]);
  });

  it("[OAIB-6] refuses at once what can be no batch, and takes a model by any name that stands for it", async () => {
    const service = await startTestService({ workers: true });
    service.view.setPaused(true);
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

  it("[OAIB-7] takes a line only once by its name, with the address, the model and the count of its batch", async () => {
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

  it("[OAIB-8] is cancelled with what was made, which is paid for; an ended one stays as it is", async () => {
    const provider = new FakeProvider();
    const [first, rest] = [gate(), gate()];
    provider.answer = async ({ prompt }) => {
      if (prompt === "first") first.open();
      else await rest.promise;
      return made(await tinyPng());
    };
    const service = await startTestService({ providers: [provider] });
    const batch = await createOf(service, [line("a", "first"), line("b", "later"), line("c", "later")]);
    await first.promise;
    await expect.poll(async () => (await batchNow(service, batch.id)).request_counts.completed).toBe(1);
    const cancel = () => ask(service, `batches/${batch.id}/cancel`, { method: "POST" });
    const cancelled = await batchOf(await cancel());
    rest.open();
    expect(cancelled).toMatchObject({
      status: "cancelled",
      cancelled_at: expect.any(Number),
      request_counts: { total: 3, completed: 1, failed: 2 },
    });
    expect((await resultsOf(service, cancelled.output_file_id)).map(({ custom_id: id }) => id)).toEqual([
      "a",
    ]);
    const errors = await resultsOf(service, cancelled.error_file_id);
    expect(errors.map(({ custom_id: id, response, error }) => [id, response, error?.code])).toEqual([
      ["b", null, "batch_cancelled"],
      ["c", null, "batch_cancelled"],
    ]);
    expect(await batchOf(await cancel())).toEqual(cancelled);
  });

  it("[OAIB-9] has failed with the reason when it cannot be paid, and shows how a drawn one was asked to end", async () => {
    const service = await startTestService();
    const fileless = await createOf(service, ["", " "]);
    const failed = await ended(service, fileless);
    expect(failed).toMatchObject({
      status: "failed",
      failed_at: expect.any(Number),
      ...{ output_file_id: null, error_file_id: null },
      errors: { object: "list", data: [{ code: "BATCH_IMAGE_INVALID_ITEMS", line: null, param: null }] },
    });
    const late = await ended(service, await createOf(service, [line("a", "[[job-expire]] a fox")]));
    expect(late).toMatchObject({ status: "expired", errors: null, expired_at: expect.any(Number) });
    const stopped = [line("a", "x"), line("b", "[[job-partial]] a fox")];
    const partly = await ended(service, await createOf(service, stopped));
    expect(partly.status).toBe("failed");
    expect((await resultsOf(service, partly.output_file_id)).map(({ custom_id: id }) => id)).toEqual(["a"]);
    const poor = await otherKey(service, "poor");
    const form = new FormData();
    form.append("purpose", "batch");
    const many = Array.from({ length: 40 }, (_, i) => line(String(i), "x"));
    form.append("file", new Blob([jsonl(many)]), "many.jsonl");
    const { id } = await fileOf(await ask(service, "files", { method: "POST", body: form, key: poor.key }));
    const batch = await batchOf(await create(service, { input_file_id: id }, poor.headers));
    await expect
      .poll(async () => {
        const now = await batchOf(await ask(service, `batches/${batch.id}`, { key: poor.key }));
        return [now.status, now.errors?.data[0]?.code];
      })
      .toEqual(["failed", "BATCH_IMAGE_INSUFFICIENT_BALANCE"]);
  });

  it("[OAIB-10] is listed from behind an id, newest first, and belongs to its key and its API", async () => {
    const service = await startTestService();
    const ids: string[] = [];
    for (const name of ["a", "b", "c"]) ids.push((await createOf(service, [line(name, name)])).id);
    const [a = "", b = "", c = ""] = ids;
    const page = async (query: string) => {
      const { data, ...rest } = await listOf<OpenaiBatch>(await ask(service, `batches?${query}`));
      return [data.map(({ id }) => id), rest];
    };
    expect(await page("limit=2")).toEqual([
      [c, b],
      { object: "list", first_id: c, last_id: b, has_more: true },
    ]);
    expect(await page(`after=${b}`)).toEqual([
      [a],
      { object: "list", first_id: a, last_id: a, has_more: false },
    ]);
    const refusal = await refusalOf(await ask(service, "batches?after=none"));
    expect(refusal).toEqual([400, "BATCH_IMAGE_INVALID_QUERY", "after"]);
    const { key } = await otherKey(service);
    const { id: other } = await service.submit({ model: MODEL, items: [{ custom_id: "i", prompt: "x" }] });
    const foreign = other.replace("imgbatch_", "batch_");
    for (const [path, init] of [
      [`batches/${a}`, { key }],
      [`batches/${foreign}`, {}],
      [`batches/${a.replace("batch_", "imgbatch_")}`, {}],
      [`batches/${a}/cancel`, { key, method: "POST" }],
    ] as const) {
      expect(await refusalOf(await ask(service, path, init))).toEqual([404, "JOB_NOT_FOUND", null]);
    }
    await ended(service, { id: a });
    expect((await ask(service, `files/output-${a.slice("batch_".length)}/content`, { key })).status).toBe(
      404,
    );
  });
});

describe("the result files of a batch", () => {
  it("[OAIB-11] say how long they are, come in parts, and can be deleted one by one", async () => {
    const service = await startTestService();
    const expiry = { output_expires_after: { anchor: "created_at", seconds: 3600 } };
    const lines = [line("a", "x"), line("b", "")];
    const batch = await ended(service, await createOf(service, lines, expiry));
    const { output_file_id: output = "", error_file_id: errors = "" } = batch;
    const shown = await fileOf(await ask(service, `files/${output}`));
    const whole = Buffer.from(await (await ask(service, `files/${output}/content`)).arrayBuffer());
    expect(shown).toMatchObject({
      bytes: whole.length,
      purpose: "batch_output",
      filename: `${output}.jsonl`,
    });
    expect((shown.expires_at ?? 0) - shown.created_at).toBe(3600);
    const headers = { range: "bytes=100-199" };
    const part = await ask(service, `files/${output}/content`, { headers });
    expect(Buffer.from(await part.arrayBuffer())).toEqual(whole.subarray(100, 200));
    const remove = async (id: string | null) =>
      (await (await ask(service, `files/${id}`, { method: "DELETE" })).json()) as object;
    expect(await remove(output)).toEqual({ id: output, object: "file", deleted: true });
    expect((await ask(service, `files/${output}/content`)).status).toBe(404);
    const left = await batchNow(service, batch.id);
    expect(left).toMatchObject({ status: "completed", output_file_id: null, error_file_id: errors });
    expect(await resultsOf(service, errors)).toHaveLength(1);
    await remove(errors);
    expect(await batchNow(service, batch.id)).toMatchObject({ status: "completed", error_file_id: null });
    expect(await refusalOf(await ask(service, `files/${errors}`))).toEqual([404, "FILE_NOT_FOUND", "file"]);
  });
});

describe("a repeated request for a batch", () => {
  it("[OAIB-12] gets the batch of an equal one when the library says that it repeats it", async () => {
    const service = await startTestService();
    service.view.setPaused(true);
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
    const { data } = await listOf<OpenaiBatch>(await ask(service, "batches"));
    expect(data).toHaveLength(4);
  });
});
