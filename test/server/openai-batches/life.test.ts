import { describe, expect, it } from "vitest";
import type { OpenaiBatch } from "../../../src/contract/openai-api.ts";
import { FakeProvider, made, tinyPng } from "../../support/fake-provider.ts";
import { gate } from "../../support/gate.ts";
import {
  ask,
  batchNow,
  batchOf,
  create,
  createOf,
  ended,
  fileOf,
  jsonl,
  line,
  listOf,
  resultsOf,
  sendFile,
} from "../../support/openai-batches.ts";
import { refusalOf } from "../../support/openai-images.ts";
import { MODEL, otherKey, startTestService } from "../../support/service.ts";

describe("the life of a batch of OpenAI's API", () => {
  it("is cancelled with what was made, which is paid for; an ended one stays as it is", async () => {
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

  it("has failed with the reason when it cannot be paid, and shows how a drawn one was asked to end", async () => {
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

  it("is listed from behind an id, newest first, and belongs to its key and its API", async () => {
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
  it("say how long they are, come in parts, and can be deleted one by one", async () => {
    const service = await startTestService({ config: { retention: { outputHours: 2 } } });
    const keptFor = async (seconds: number) => {
      const asked = { output_expires_after: { anchor: "created_at", seconds } };
      const { output_file_id: id } = await ended(service, await createOf(service, [line("a", "x")], asked));
      const file = await fileOf(await ask(service, `files/${id}`));
      return (file.expires_at ?? 0) - file.created_at;
    };
    expect([await keptFor(3600), await keptFor(10_000)]).toEqual([3600, 7200]);
    const lines = [line("a", "x"), line("b", "")];
    const batch = await ended(service, await createOf(service, lines));
    const { output_file_id: output = "", error_file_id: errors = "" } = batch;
    const shown = await fileOf(await ask(service, `files/${output}`));
    const whole = Buffer.from(await (await ask(service, `files/${output}/content`)).arrayBuffer());
    expect(shown).toMatchObject({
      bytes: whole.length,
      purpose: "batch_output",
      filename: `${output}.jsonl`,
    });
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
  it("gets the batch of an equal one when the library says that it repeats it", async () => {
    const service = await startTestService();
    await service.setPaused(true);
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
