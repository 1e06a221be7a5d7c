import { describe, expect, it, onTestFinished } from "vitest";
import { lookAt, showsPrompt } from "./images.ts";
import type { JobPlan, LineFault } from "./job-book.ts";
import { OPENAI_KEY } from "./openai.ts";
import { startOpenaiBatch } from "./openai-batch.ts";

// biome-ignore lint/suspicious/noExplicitAny: the shapes of other services are read loosely here.
type Loose = any;

const HOUR_MS = 3_600_000;
const ENDPOINT = "/v1/images/generations";
const CREATE = { endpoint: ENDPOINT, completion_window: "24h" };

async function opened(options: Parameters<typeof startOpenaiBatch>[0] = {}) {
  const clock = { ms: Date.UTC(2030, 0, 1) };
  const fake = await startOpenaiBatch({ now: () => clock.ms, ...options });
  onTestFinished(() => fake.close());
  const ask = async (method: string, path: string, body?: object) => {
    const isForm = body instanceof FormData;
    const answer = await fetch(`${fake.url}/v1${path}`, {
      method,
      headers: {
        authorization: `Bearer ${OPENAI_KEY}`,
        ...(body && !isForm && { "content-type": "application/json" }),
      },
      ...(body && { body: isForm ? body : JSON.stringify(body) }),
    });
    const text = await answer.text();
    const json: Loose = path.endsWith("/content") ? text : JSON.parse(text);
    return { status: answer.status, json };
  };
  const upload = (text: string, fields: Record<string, string> = { purpose: "batch" }, name = "in.jsonl") => {
    const form = new FormData();
    for (const [field, value] of Object.entries(fields)) form.append(field, value);
    form.append("file", new Blob([text]), name);
    return ask("POST", "/files", form);
  };
  const create = async (lines: readonly object[], more: object = {}) => {
    const { json: file } = await upload(lines.map((line) => JSON.stringify(line)).join("\n"));
    return (await ask("POST", "/batches", { ...CREATE, input_file_id: file.id, ...more })).json;
  };
  const ended = async (prompts: readonly string[], plan: JobPlan = {}) => {
    fake.book.plan = () => plan;
    const { id } = await create(prompts.map((prompt, at) => lineOf(`k${at + 1}`, prompt)));
    return (await ask("GET", `/batches/${id}`)).json;
  };
  const rows = async (id: string | null): Promise<Loose[]> => {
    const { json } = await ask("GET", `/files/${id}/content`);
    return json
      .split("\n")
      .filter(Boolean)
      .map((row: string) => JSON.parse(row));
  };
  return { fake, clock, ask, upload, create, ended, rows };
}

const lineOf = (id: string, prompt: string, more: object = {}) => ({
  ...{ custom_id: id, method: "POST", url: ENDPOINT },
  body: { model: "gpt-image-2", prompt, size: "1536x1024", ...more },
});

describe("the fake of OpenAI's batch jobs", () => {
  it("[FAKE-4] takes a job through its states, and has good and bad answers in two files", async () => {
    const { fake, clock, ask, create, rows } = await opened({ finalizingMs: HOUR_MS });
    fake.book.plan = () => ({ pendingMs: HOUR_MS, runningMs: 2 * HOUR_MS });
    const job = await create([lineOf("a", "a hill"), lineOf("b", "a lake", { size: "7x7" })], {
      metadata: { mine: "1" },
    });
    const states = [job.status];
    for (let hour = 0; hour < 3; hour++) {
      clock.ms += HOUR_MS;
      states.push((await ask("GET", `/batches/${job.id}`)).json.status);
    }
    expect(states).toEqual(["validating", "in_progress", "finalizing", "completed"]);
    const done = (await ask("GET", `/batches/${job.id}`)).json;
    expect(done).toMatchObject({
      request_counts: { total: 2, completed: 1, failed: 1 },
      ...{ metadata: { mine: "1" }, errors: null, cancelled_at: null },
    });
    const [good] = await rows(done.output_file_id);
    const image = Buffer.from(good.response.body.data[0].b64_json, "base64");
    expect([good.custom_id, good.error, await lookAt(image), await showsPrompt(image, "a hill")]).toEqual([
      ...["a", null, { type: "png", width: 1536, height: 1024 }, true],
    ]);
    const [bad] = await rows(done.error_file_id);
    expect([bad.custom_id, bad.response.status_code, bad.response.body.error.param]).toEqual([
      "b",
      400,
      "size",
    ]);
    expect(fake.book.payments().map(({ key, prompt }) => [key, prompt])).toEqual([["a", "a hill"]]);
  });

  it("[FAKE-2] refuses keys, forms, files and parameters at once, and bad lines by a job that fails", async () => {
    const { fake, ask, upload, create } = await opened({ echoesKey: true });
    const stranger = await fetch(`${fake.url}/v1/batches`, { headers: { authorization: "Bearer x" } });
    expect([stranger.status, await stranger.text()]).toEqual([401, expect.stringContaining(OPENAI_KEY)]);
    expect((await upload("{}", { purpose: "batch" }, "in.json")).json.error.param).toBe("file");
    expect((await upload("{}", { purpose: "batch", "expires_after[seconds]": "3600" })).status).toBe(400);
    const { json: file } = await upload("{}", { purpose: "vision" });
    for (const wrong of [
      { input_file_id: file.id },
      { completion_window: "1h" },
      { endpoint: "/v1/none" },
      { name: "x" },
    ]) {
      const { json } = await ask("POST", "/batches", { ...CREATE, input_file_id: file.id, ...wrong });
      expect(json.error.param).toBe(Object.keys(wrong)[0]);
    }
    const codes = async (lines: readonly object[]) => {
      const { id } = await create(lines);
      const { status, errors } = (await ask("GET", `/batches/${id}`)).json;
      return [status, ...errors.data.map(({ code, line }: Loose) => `${code} ${line}`)];
    };
    expect(await codes([lineOf("a", "x"), lineOf("a", "y")])).toEqual(["failed", "duplicate_custom_id 2"]);
    expect(await codes([{ ...lineOf("a", "x"), url: "/v1/images/edits" }])).toEqual([
      "failed",
      "invalid_url 1",
    ]);
    expect(await codes([lineOf("a", "x", { model: "other" })])).toEqual(["failed", "model_not_found 1"]);
    expect(fake.book.payments()).toEqual([]);
  });

  it("[FAKE-4] keeps what cancelled and expired jobs have made, and says what they have not", async () => {
    const { fake, clock, ask, ended, rows } = await opened();
    const made: JobPlan["made"] = (_, at) => at === 0;
    const stuck = await ended(["a", "b"], { runningMs: Number.POSITIVE_INFINITY, cancelMs: HOUR_MS, made });
    expect((await ask("POST", `/batches/${stuck.id}/cancel`)).json.status).toBe("cancelling");
    clock.ms += HOUR_MS;
    const cancelled = (await ask("GET", `/batches/${stuck.id}`)).json;
    expect([cancelled.status, (await rows(cancelled.output_file_id))[0].custom_id]).toEqual([
      "cancelled",
      "k1",
    ]);
    expect(
      (await rows(cancelled.error_file_id)).map(({ custom_id, error }) => [custom_id, error.code]),
    ).toEqual([["k2", "batch_cancelled"]]);
    expect((await ask("POST", `/batches/${stuck.id}/cancel`)).status).toBe(409);
    const late = await ended(["c", "d"], { pendingMs: Number.POSITIVE_INFINITY, made });
    clock.ms += 24 * HOUR_MS;
    const expired = (await ask("GET", `/batches/${late.id}`)).json;
    expect([expired.status, (await rows(expired.error_file_id))[0].error.code]).toEqual([
      "expired",
      "batch_expired",
    ]);
    const refused = await ended(["e"], { end: "failed", reason: "Enqueued." });
    expect([refused.errors.data[0].message, refused.output_file_id]).toEqual(["Enqueued.", null]);
    expect(fake.book.payments().map(({ prompt }) => prompt)).toEqual(["a", "c"]);
  });

  it("[FAKE-4] loses, doubles and shuffles rows, and lists from behind an id", async () => {
    const { fake, clock, ask, ended, rows } = await opened();
    const faults: LineFault[] = ["lost", "twice", "error", "statusError", "refused", "noImage"];
    const job = await ended([...faults, "good"], { fault: (_, at) => faults[at] ?? null, isShuffled: true });
    expect((await rows(job.output_file_id)).map((row) => row.custom_id)).toEqual(["k7", "k6", "k2", "k2"]);
    expect((await rows(job.error_file_id)).map((row) => row.response?.status_code ?? row.error.code)).toEqual(
      [...[400, "batch_expired", 500]],
    );
    expect(fake.book.payments().map(({ prompt }) => prompt)).toEqual(["lost", "twice", "good"]);
    clock.ms += 1;
    fake.addForeign("holiday", ["a beach"]);
    clock.ms += 1;
    const { id } = await ended(["later"]);
    const list = async (query: string) => (await ask("GET", `/batches?${query}`)).json;
    const first = await list("limit=1");
    expect([first.data[0].id, first.has_more]).toEqual([id, true]);
    const rest = await list(`limit=2&after=${first.last_id}`);
    expect([rest.data[0].metadata, rest.data[1].id, rest.has_more]).toEqual([
      { label: "holiday" },
      job.id,
      false,
    ]);
    expect((await ask("DELETE", `/files/${job.output_file_id}`)).json.deleted).toBe(true);
    expect((await ask("GET", `/files/${job.output_file_id}/content`)).status).toBe(404);
  });
});
