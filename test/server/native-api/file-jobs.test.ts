import { describe, expect, it } from "vitest";
import type { NativeBody } from "../../../src/contract/native-api.ts";
import { checkInvariants } from "../../../src/domain/check-invariants.ts";
import { FakeProvider, made, tinyPng } from "../../support/fake-provider.ts";
import { createJob, endedJob, resultLineSchema } from "../../support/jobs.ts";
import { content, generate, imagePart, imagesOf } from "../../support/realtime.ts";
import { openBeside, startTestService, type TestService } from "../../support/service.ts";
import { ask, upload } from "../../support/uploads.ts";

type Line = Record<string, unknown>;

const jsonl = (lines: readonly (Line | string)[]) =>
  lines.map((line) => `${typeof line === "string" ? line : JSON.stringify(line)}\n`).join("");

async function fromFile(
  service: TestService,
  lines: readonly (Line | string)[],
  name?: string,
): Promise<NativeBody<"Job">> {
  const file = await upload(service, jsonl(lines), { mimeType: "jsonl" });
  return createJob(service, { fileName: file.name }, name);
}

async function resultsOf(service: TestService, job: NativeBody<"Job">) {
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

  it("[LINES-4] has an error for each line that cannot be read, and makes the others", async () => {
    const service = await startTestService({ config: { limits: { realtimeBodyBytes: 2048 } } });
    const good = (key: string) => JSON.stringify({ key, request: content("fox") });
    const wrong = [
      ['{"key":"a","request":{', undefined],
      ["[1]", undefined],
      ["null", undefined],
      ['{"key":"b"}', "b"],
      ['{"key":"c","request":7}', "c"],
      ['{"key":"d","request":{"contents":"no"}}', "d"],
      [JSON.stringify({ key: "large", request: content("x".repeat(5000)) }), undefined],
    ] as const;
    const lines = [`\ufeff${good("first")}\r`, ...wrong.map(([line]) => line), " \t\r", good("last")];
    const job = await endedJob(service, await fromFile(service, lines));
    const results = await resultsOf(service, job);
    expect(results.map(({ key, error }) => [key, error === undefined])).toEqual([
      ["first", true],
      ...wrong.map(([, key]) => [key, false]),
      ["last", true],
    ]);
    expect(results.at(-2)?.error?.message).toBe("The line is larger than 2048 bytes.");
    expect(results.map(({ error }) => error?.message).join()).not.toContain("body");
  });

  it("[LINES-11] works below /v1 for clients with the vendor's key", async () => {
    const service = await startTestService();
    const file = await upload(service, jsonl([{ key: "a", request: content("x") }]), {}, { prefix: "/v1" });
    const body = { batch: { displayName: "v1", inputConfig: { fileName: file.uri } } };
    const created = await generate(service, body, { verb: "batchGenerateContent", prefix: "/v1" });
    const job = await endedJob(service, (await created.json()) as NativeBody<"Job">);
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
