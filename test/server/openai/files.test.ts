import { describe, expect, it } from "vitest";
import type { OpenaiBody } from "../../../src/contract/openai-api.ts";
import { FakeClock } from "../../support/fake-clock.ts";
import { tinyPng } from "../../support/fake-provider.ts";
import {
  ask,
  batchNow,
  createOf,
  ended,
  fileOf,
  line,
  listOf,
  resultsOf,
  sendFile,
} from "../../support/openai-batches.ts";
import { edit, imagesOf, refusalOf } from "../../support/openai-images.ts";
import { startTestService } from "../../support/service.ts";
import { ask as askNative, listOf as nativeListOf, upload } from "../../support/uploads.ts";

const expiry = (seconds: string, anchor = "created_at") =>
  [
    ["purpose", "batch"],
    ["expires_after[anchor]", anchor],
    ["expires_after[seconds]", seconds],
  ] as const;

describe("files of OpenAI's API", () => {
  it("are uploaded as a form, whatever stands first, shown, fetched and deleted", async () => {
    const service = await startTestService({ workers: false });
    const file = await fileOf(await sendFile(service, '{"a":1}\n', undefined, 'größe "1".jsonl'));
    expect(file).toEqual({
      id: expect.stringMatching(/^[a-z0-9]{12}$/),
      object: "file",
      bytes: 8,
      created_at: expect.any(Number),
      expires_at: file.created_at + 48 * 3600,
      filename: expect.stringMatching(/^größe .*\.jsonl$/),
      purpose: "batch",
      status: "processed",
    });
    expect(await fileOf(await ask(service, `files/${file.id}`))).toEqual(file);
    const part = await ask(service, `files/${file.id}/content`, { headers: { range: "bytes=2-4" } });
    expect([part.status, await part.text()]).toEqual([206, 'a":']);
    const gone = await ask(service, `files/${file.id}`, { method: "DELETE" });
    expect(await gone.json()).toEqual({ id: file.id, object: "file", deleted: true });
    for (const path of [`files/${file.id}`, `files/${file.id}/content`, "files/output-none"]) {
      expect(await refusalOf(await ask(service, path))).toEqual([404, "FILE_NOT_FOUND", "file"]);
    }
  });

  it("are kept as long as asked, and no wrong form leaves one behind", async () => {
    const clock = new FakeClock();
    const service = await startTestService({ workers: false, clock });
    const { id } = await fileOf(await sendFile(service, "x", expiry("3600")));
    for (const [fields, param] of [
      [expiry("3599"), "expires_after.seconds"],
      [expiry("2592001"), "expires_after.seconds"],
      [expiry("soon"), "expires_after.seconds"],
      [expiry("3600", "now"), "expires_after.anchor"],
      [[["purpose", "fine-tune"]], "purpose"],
      [[], "purpose"],
    ] as const) {
      const refusal = await refusalOf(await sendFile(service, "x", fields));
      expect(refusal).toEqual([400, "REALTIME_INVALID_ARGUMENT", param]);
    }
    const empty = await refusalOf(await sendFile(service, ""));
    expect(empty).toEqual([400, "REALTIME_INVALID_ARGUMENT", "file"]);
    const body = new FormData();
    body.append("purpose", "batch");
    const missing = await refusalOf(await ask(service, "files", { method: "POST", body }));
    expect(missing).toEqual([400, "REALTIME_INVALID_ARGUMENT", "file"]);
    const wrong: [name: string, value: string | Blob][][] = [
      [
        ["purpose", "batch"],
        ["file", "lines.jsonl"],
      ],
      [
        ["file", new Blob(["x"])],
        ["purpose", new Blob(["batch"])],
      ],
    ];
    for (const fields of wrong) {
      const body = new FormData();
      for (const [name, value] of fields) body.append(name, value);
      const refused = await refusalOf(await ask(service, "files", { method: "POST", body }));
      expect(refused).toEqual([400, "REALTIME_INVALID_ARGUMENT", fields[1]?.[0]]);
    }
    const files = await listOf<OpenaiBody<"OpenaiFile">>(await ask(service, "files"));
    expect(files.data.map((file) => file.id)).toEqual([id]);
    clock.advance(3_600_000);
    expect((await ask(service, `files/${id}`)).status).toBe(404);
  });

  it("[LIMIT-2] are as large, one and together, as the configuration allows", async () => {
    const limits = { uploadBytes: 10, uploadBytesPerKey: 15 };
    const service = await startTestService({ workers: false, config: { limits } });
    const statuses = [];
    for (const size of [11, 10, 6, 5, 1]) statuses.push((await sendFile(service, "x".repeat(size))).status);
    expect(statuses).toEqual([413, 200, 429, 200, 429]);
    const announced = { "x-goog-upload-command": "start", "x-goog-upload-header-content-length": "11" };
    const begun = await fetch(`${service.url}/upload/v1beta/files`, {
      method: "POST",
      headers: { "x-vendorx-api-key": service.credentials.api_key, ...announced },
    });
    expect(begun.status).toBe(413);
  });

  it("are listed in both orders and by purpose", async () => {
    const service = await startTestService({ workers: false });
    const ids: string[] = [];
    for (const purpose of ["batch", "vision", "batch"])
      ids.push((await fileOf(await sendFile(service, "x", [["purpose", purpose]]))).id);
    const [a = "", b = "", c = ""] = ids;
    const page = async (query: string) =>
      (await listOf<OpenaiBody<"OpenaiFile">>(await ask(service, `files?${query}`))).data.map(({ id }) => id);
    expect(await page(`order=asc&after=${a}&limit=10000`)).toEqual([b, c]);
    expect(await page("purpose=vision")).toEqual([b]);
    for (const query of ["after=none", "limit=0", "order=up", "purpose=x"]) {
      const refusal = await refusalOf(await ask(service, `files?${query}`));
      expect(refusal).toEqual([400, "BATCH_IMAGE_INVALID_QUERY", query.split("=")[0]]);
    }
  });

  it("are the files of the vendor's API: the key's header decides which of the two is asked", async () => {
    const service = await startTestService({ workers: false });
    const ours = await fileOf(await sendFile(service, await tinyPng(), [["purpose", "vision"]], "fox.png"));
    const theirs = await upload(service, "x", { name: "files/my-lines", displayName: "lines" });
    const shown = await fileOf(await ask(service, "files/my-lines"));
    expect(shown).toMatchObject({ filename: "lines", purpose: "user_data", bytes: 1 });
    const native = await nativeListOf(await askNative(service, "/v1/files"));
    expect(native.files?.map(({ name }) => name)).toEqual([theirs.name, `files/${ours.id}`]);
    const wanted = { prompt: "x", images: [{ file_id: ours.id }] };
    expect((await imagesOf(await edit(service, wanted))).bytes).toHaveLength(1);
    const refused = await fetch(`${service.url}/v1/files?key=${service.credentials.api_key}`);
    expect(await refusalOf(refused)).toEqual([401, "API_KEY_REQUIRED", null]);
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
