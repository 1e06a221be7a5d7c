import { describe, expect, it } from "vitest";
import { type Job, resultLineSchema } from "../../../../src/contract/native-api.ts";
import { checkInvariants } from "../../../../src/domain/check-invariants.ts";
import { FakeProvider, made, tinyPng } from "../../../support/fake-provider.ts";
import { batchIdOf, createJob, endedJob, jobOf } from "../../../support/jobs.ts";
import { content, generate, imagePart, imagesOf, refusalOf } from "../../../support/realtime.ts";
import { openBeside, startTestService, type TestService } from "../../../support/service.ts";
import { ask, upload } from "../../../support/uploads.ts";

type Line = Record<string, unknown>;

const jsonl = (lines: readonly (Line | string)[]) =>
  lines.map((line) => `${typeof line === "string" ? line : JSON.stringify(line)}\n`).join("");

async function fromFile(
  service: TestService,
  lines: readonly (Line | string)[],
  name?: string,
): Promise<Job> {
  const file = await upload(service, jsonl(lines), { mimeType: "jsonl" });
  return createJob(service, { fileName: file.name }, name);
}

async function resultsOf(service: TestService, job: Job) {
  const name = job.metadata.output?.responsesFile ?? "";
  const answer = await ask(service, `/v1beta/${name}:download?alt=media`);
  expect(answer.status).toBe(200);
  const text = await answer.text();
  expect(text.endsWith("\n")).toBe(true);
  return text
    .split("\n")
    .slice(0, -1)
    .map((line) => resultLineSchema.parse(JSON.parse(line)));
}

describe("a job from a file", () => {
  it("[LINES-11] keeps its input: a file that is deleted right after the job was created is read all the same", async () => {
    const service = await startTestService({ providers: [new FakeProvider()] });
    await service.setPaused(true);
    const file = await upload(service, jsonl([{ key: "a", request: content("x") }]), { mimeType: "jsonl" });
    const created = await createJob(service, { fileName: file.name });
    expect((await ask(service, `/v1beta/${file.name}`, { method: "DELETE" })).status).toBe(200);
    await service.setPaused(false);
    const job = await endedJob(service, created);
    expect(job.metadata.state).toBe("BATCH_STATE_SUCCEEDED");
    expect(await resultsOf(service, job)).toMatchObject([{ key: "a", response: {} }]);
  });

  it("leaves no input behind when it cannot be processed", async () => {
    const service = await startTestService({
      providers: [new FakeProvider()],
      config: { limits: { linesPerJob: 1 } },
    });
    const lines = ["x", "y"].map((text) => ({ key: text, request: content(text, {}, []) }));
    const job = await endedJob(service, await fromFile(service, lines));
    expect(job.metadata.state).toBe("BATCH_STATE_FAILED");
    const { blobs } = await openBeside(service.data);
    await expect.poll(() => blobs.read(`inputs/${batchIdOf(job)}/lines`).catch(() => null)).toBeNull();
  });

  it("[LINES-11] makes its lines and gives their results in a file, in order, with the keys as they were", async () => {
    const provider = new FakeProvider();
    provider.answer = async ({ prompt }) => made(await tinyPng(prompt.length));
    const service = await startTestService({ providers: [provider] });
    const fox = await tinyPng(77);
    const image = await upload(service, fox, { mimeType: "image/png" });
    const fileData = { fileData: { fileUri: image.uri, mimeType: "image/png" } };
    const job = await endedJob(
      service,
      await fromFile(service, [
        { key: "a", request: content("x") },
        { key: "a", request: content("xx", {}, [imagePart(fox), fileData]) },
        "",
        "{no json",
        { request: content("xxx") },
        { key: 'q"\n\u2028', request: content("xxxx", {}, [{ fileData: { fileUri: "files/none" } }]) },
        content("xxxxx"),
      ]),
    );
    expect(job.metadata).toMatchObject({
      state: "BATCH_STATE_SUCCEEDED",
      inputConfig: { fileName: expect.stringMatching(/^files\/[a-z0-9]{12}$/) },
      batchStats: { requestCount: "6", successfulRequestCount: "4", failedRequestCount: "2" },
      output: { responsesFile: `files/batch-${job.name.slice("batches/".length)}` },
    });
    expect(job.response?.responsesFile).toBe(job.metadata.output?.responsesFile);
    const results = await resultsOf(service, job);
    expect(results.map(({ key }) => key)).toEqual(["a", "a", undefined, undefined, 'q"\n\u2028', undefined]);
    const images = results.map(({ response }) => (response ? imagesOf(response) : []));
    for (const [at, prompt] of [
      [0, "x"],
      [1, "xx"],
      [3, "xxx"],
      [5, "xxxxx"],
    ] as const) {
      expect(images[at]?.map(({ bytes }) => bytes)).toEqual([await tinyPng(prompt.length)]);
    }
    expect(results[2]).toMatchObject({ error: { code: 3, message: "The line is not valid JSON." } });
    expect(results[4]?.error).toMatchObject({ code: 3, message: expect.stringContaining("fileUri") });
    const two = provider.requests.find(({ prompt }) => prompt === "xx");
    expect(two?.keepsRatio).toBe(true);
    expect(await Promise.all(two?.references.map((reference) => reference.read()) ?? [])).toEqual([fox, fox]);
    const list = await (await ask(service, "/v1beta/batches")).json();
    expect(list.operations[0].metadata.output).toEqual(job.metadata.output);
    const files = await (await ask(service, "/v1beta/files")).json();
    expect(files.files.map(({ name }: { name: string }) => name)).not.toContain(
      job.metadata.output?.responsesFile,
    );
    const { stores, blobs } = await openBeside(service.data);
    expect((await checkInvariants(stores, blobs)).problems).toEqual([]);
  });

  it("sends any part of its results, on both paths, and says how long they are", async () => {
    const service = await startTestService();
    const lines = ["one", "two", "three"].map((key) => ({ key, request: content(key) }));
    const job = await endedJob(service, await fromFile(service, lines));
    const name = job.metadata.output?.responsesFile;
    const whole = await ask(service, `/v1beta/${name}:download?alt=media`);
    const bytes = Buffer.from(await whole.arrayBuffer());
    expect(Number(whole.headers.get("content-length"))).toBe(bytes.length);
    const etag = whole.headers.get("etag") ?? "";
    for (const [start, end] of [
      [0, 0],
      [1, 777],
      [500, 501],
      [bytes.length - 5, bytes.length - 1],
    ] as const) {
      const headers = { range: `bytes=${start}-${end}`, "if-range": etag };
      const part = await ask(service, `/download/v1beta/${name}:download?alt=media`, { headers });
      expect(part.status).toBe(206);
      expect(Buffer.from(await part.arrayBuffer()).equals(bytes.subarray(start, end + 1))).toBe(true);
    }
    const other = await ask(service, `/v1beta/files/batch-${"0".repeat(32)}:download?alt=media`);
    expect(other.status).toBe(404);
    await service.ask(`/${batchIdOf(job)}/outputs`, { method: "DELETE" });
    expect((await ask(service, `/v1beta/${name}:download?alt=media`)).status).toBe(404);
    expect((await jobOf(service, job)).metadata).not.toHaveProperty("output");
  });

  it("has failed when its file cannot be used, with the reason", async () => {
    const service = await startTestService({ config: { limits: { linesPerJob: 3 } } });
    const line = { request: content("x") };
    const four = await endedJob(service, await fromFile(service, [line, line, line, line]));
    expect(four).toMatchObject({
      metadata: { state: "BATCH_STATE_FAILED", batchStats: {} },
      error: { code: 3 },
    });
    expect(four.error?.message).toContain("more than 3 lines");
    const blank = await endedJob(service, await fromFile(service, ["", "  "]));
    expect(blank.error?.message).toContain("no lines");
    const three = await endedJob(service, await fromFile(service, [line, "{", line]));
    expect(three.metadata.state).toBe("BATCH_STATE_SUCCEEDED");
    const broken = await endedJob(service, await fromFile(service, ["{", "["]));
    expect(broken.metadata).toMatchObject({
      state: "BATCH_STATE_SUCCEEDED",
      batchStats: { requestCount: "2", failedRequestCount: "2" },
    });
    const { stores, blobs } = await openBeside(service.data);
    expect((await checkInvariants(stores, blobs)).problems).toEqual([]);
  });

  it("refuses a file that the key does not have", async () => {
    const service = await startTestService();
    for (const fileName of ["files/none", "https://elsewhere.test/v1beta/files/none", "../etc/passwd"]) {
      const body = { batch: { inputConfig: { fileName } } };
      const refused = await generate(service, body, { verb: "batchGenerateContent" });
      expect(await refusalOf(refused)).toEqual([400, "FAILED_PRECONDITION", "batch.inputConfig.fileName"]);
    }
  });

  it("[LINES-11] works below /v1 for clients with the vendor's key", async () => {
    const service = await startTestService();
    const file = await upload(service, jsonl([{ key: "a", request: content("x") }]), {}, { prefix: "/v1" });
    const body = { batch: { displayName: "v1", inputConfig: { fileName: file.uri } } };
    const created = await generate(service, body, { verb: "batchGenerateContent", prefix: "/v1" });
    const job = await endedJob(service, (await created.json()) as Job);
    const now = await (await ask(service, `/v1/${job.name}`)).json();
    expect(now).toEqual(job);
    const results = await ask(service, `/v1/${job.metadata.output?.responsesFile}:download?alt=media`);
    expect(await results.text()).toContain('"key":"a"');
    expect(
      await (await ask(service, `/v1/${job.name}:cancel`, { method: "POST", body: "{}" })).json(),
    ).toEqual({});
    expect(await (await ask(service, `/v1/${job.name}`, { method: "DELETE" })).json()).toEqual({});
    expect((await (await ask(service, "/v1/batches?pageSize=5")).json()).operations).toEqual([]);
  });
});
