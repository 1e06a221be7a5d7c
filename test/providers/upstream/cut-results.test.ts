import type { ServerResponse } from "node:http";
import { expect, it, onTestFinished } from "vitest";
import { type JobEntry, providerEntrySchema } from "../../../src/contract/provider-entries.ts";
import type { JobResult } from "../../../src/domain/ports/image-provider.ts";
import { createNativeBatchAdapter } from "../../../src/providers/native/provider.ts";
import { createOpenaiBatchAdapter } from "../../../src/providers/openai/provider.ts";
import { asJobProvider } from "../../../src/providers/upstream/provider.ts";
import { fuzzRuns } from "../../support/fuzz-runs.ts";
import { rangeOf } from "../../support/upstreams/job-book.ts";
import { depsWith, impatient, json, never, PNG, type Seen, scriptedServer } from "./scripted-server.ts";

const data = PNG.toString("base64");
const KEYS = ["a", "b", "c"];
const parts = [{ inlineData: { data } }];

const UPSTREAMS = {
  "native-batch": {
    create: createNativeBatchAdapter,
    line: (key: string) => ({ key, response: { candidates: [{ content: { parts } }] } }),
    job: {
      name: "batches/b1",
      metadata: {
        ...{ state: "BATCH_STATE_SUCCEEDED", output: { responsesFile: "files/f1" } },
        batchStats: { requestCount: "3", successfulRequestCount: "2", failedRequestCount: "1" },
      },
    },
    file: "/v1beta/files/f1:download?alt=media",
  },
  "openai-batch": {
    create: createOpenaiBatchAdapter,
    line: (key: string) => ({
      custom_id: key,
      response: { status_code: 200, body: { data: [{ b64_json: data }] } },
    }),
    job: {
      ...{ id: "b1", status: "completed", output_file_id: "f1" },
      request_counts: { total: 3, completed: 3, failed: 0 },
    },
    file: "/v1/files/f1/content",
  },
};

/** How a download of this many bytes ends before its time. All but the first two look like the end of the file. */
const ENDS: Record<string, (answer: ServerResponse, part: Buffer, whole: Buffer) => void> = {
  "breaks off before its length": (answer, part, whole) => {
    answer.setHeader("content-length", whole.length);
    answer.write(part, () => answer.destroy());
    if (part.length === 0) answer.flushHeaders();
  },
  "breaks off between chunks": (answer, part) => {
    answer.flushHeaders();
    answer.write(part, () => answer.destroy());
  },
  "ends with its connection": (answer, part) => {
    answer.useChunkedEncodingByDefault = false;
    answer.writeHead(200, { connection: "close" }).end(part);
  },
  "has the length of what came": (answer, part) => answer.setHeader("content-length", part.length).end(part),
};

/** A provider of a job whose results `answer` sends. `job`: the job as the upstream shows it. */
async function connect(
  type: keyof typeof UPSTREAMS,
  answer: (response: ServerResponse, seen: Seen, whole: Buffer) => void,
  job: object = UPSTREAMS[type].job,
) {
  const { create, line, file } = UPSTREAMS[type];
  const whole = Buffer.from(KEYS.map((key) => `${JSON.stringify(line(key))}\n`).join(""));
  const server = await scriptedServer((seen, response, socket) =>
    seen.url === file ? answer(response, seen, whole) : json(job)(seen, response, socket),
  );
  const written = { type, name: "jobs", baseUrl: server.url, apiKeyEnv: "JOBS_KEY" };
  const entry = providerEntrySchema.parse(written) as JobEntry & never;
  const deps = depsWith({ JOBS_KEY: "a key" }, impatient);
  const provider = asJobProvider(entry, create(entry, deps), deps);
  onTestFinished(() => provider.close());
  return { provider, whole };
}

/** Where a file is cut: at its start, around each end of a line, and at some of the other bytes, of which a soak takes all. */
function cutsOf(whole: Buffer): number[] {
  const { length } = whole;
  const step = Math.round(length / fuzzRuns(length));
  const isNearEnd = (at: number) => whole.subarray(Math.max(0, at - 2), at + 3).includes("\n");
  return Array.from(whole.keys()).filter((at) => at < 3 || at % step === 0 || isNearEnd(at));
}

function send(answer: ServerResponse, { status, headers, body }: ReturnType<typeof rangeOf>): void {
  answer.writeHead(status, headers).end(body);
}

for (const type of Object.keys(UPSTREAMS) as (keyof typeof UPSTREAMS)[])
  it.each(Object.entries(ENDS))(
    `a download of ${type} that %s, at any byte, loses no result`,
    async (_, endAt) => {
      let cut = 0;
      let isFirst = true;
      const { provider, whole } = await connect(type, (response, { headers }, whole) => {
        if (!isFirst) return send(response, rangeOf(whole, cut % 2 === 0 ? headers.range : undefined));
        isFirst = false;
        endAt(response, whole.subarray(0, cut), whole);
      });
      for (cut of cutsOf(whole)) {
        isFirst = true;
        const keys = new Set<string>();
        for (let isShort = true, tries = 0; isShort; tries++) {
          expect(tries, `cut at ${cut}`).toBeLessThan(2);
          isShort = false;
          for await (const result of provider.results("b1", "image-model", never)) {
            if ("key" in result && "output" in result) keys.add(result.key);
            else isShort = "endsEarly" in result;
          }
        }
        expect([...keys], `cut at ${cut}`).toEqual(KEYS);
      }
    },
    60_000,
  );

it("a download goes on behind a part that is shorter than the one asked for", async () => {
  const { provider } = await connect("native-batch", (response, { headers }, whole) => {
    const { range } = headers;
    if (range === undefined) ENDS["breaks off between chunks"]?.(response, whole.subarray(0, 9), whole);
    else send(response, rangeOf(whole, `${range}${Number(range.slice(6, -1)) + 99}`));
  });
  const keys: unknown[] = [];
  for await (const result of provider.results("b1", "image-model", never))
    keys.push("key" in result && result.key);
  expect(keys).toEqual(KEYS);
});

it.each([
  ["native-batch", { name: "batches/b1", metadata: { state: "BATCH_STATE_RUNNING" } }],
  ["openai-batch", { id: "b1", status: "finalizing", output_file_id: null }],
] as const)("a job of %s that runs again after its end has no results yet", async (type, job) => {
  const { provider } = await connect(type, () => {}, job);
  const results: JobResult[] = [];
  for await (const result of provider.results("b1", "image-model", never)) results.push(result);
  expect(results).toEqual([{ endsEarly: expect.stringContaining("before its end") }]);
});

it.each([
  [
    "native-batch",
    {
      name: "batches/b1",
      metadata: { state: "BATCH_STATE_SUCCEEDED", batchStats: { successfulRequestCount: "3" } },
    },
  ],
  ["openai-batch", { id: "b1", status: "completed", request_counts: { total: 3, completed: 3, failed: 0 } }],
] as const)("a job of %s that counts results and names no file of them says so", async (type, job) => {
  const { provider } = await connect(type, () => {}, job);
  const results: JobResult[] = [];
  for await (const result of provider.results("b1", "image-model", never)) results.push(result);
  expect(results).toEqual([{ endsEarly: expect.stringContaining("0 of the 3") }]);
});
