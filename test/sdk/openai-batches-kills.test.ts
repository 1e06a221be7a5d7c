import { writeFile } from "node:fs/promises";
import { connect, createServer } from "node:net";
import { join, resolve } from "node:path";
import { expect, it, onTestFinished } from "vitest";
import type { OpenaiBody } from "../../src/contract/openai-api.ts";
import { checkInvariants } from "../../src/domain/check-invariants.ts";
import { listening } from "../support/listening.ts";
import { jsonl, line, type ResultLine } from "../support/openai-batches.ts";
import { startNode } from "../support/processes.ts";
import { openBeside } from "../support/service.ts";
import { tempDir } from "../support/temp-dir.ts";
import { areInstalled, startSdk } from "./sdk.ts";

const KILLED_SERVICE = resolve(import.meta.dirname, "../support/killed-service.mjs");
/** One job lives through all of them. The first is the creation, before its answer. */
const MOMENTS = ["queued", "queued", "running", "making:2", "item:2", "settling", "completed"];
const STATUSES = ["validating", "in_progress", "finalizing", "completed"];
const IDS = ["a", "b", "c", "d"];

/** An address that stays while services come and go behind it; it refuses while there is none. */
async function startAddress() {
  let port: number | null = null;
  const server = createServer((near) => {
    if (port === null) {
      near.resetAndDestroy();
      return;
    }
    const far = connect(port, "127.0.0.1");
    for (const [one, other] of [
      [near, far],
      [far, near],
    ] as const) {
      one.on("error", () => {});
      one.on("close", () => other.destroy());
      one.pipe(other);
    }
  });
  const lead = (url: string | null) => {
    port = url === null ? null : Number(new URL(url).port);
  };
  return { url: await listening(server), lead };
}

it.skipIf(!areInstalled)(
  "OpenAI's library sees a pause and nothing else when the service is killed at each step of a batch",
  async () => {
    const data = await tempDir();
    const address = await startAddress();
    const moments = [...MOMENTS, "never"];
    const killedAt: string[] = [];
    let service = startNode([KILLED_SERVICE, data, moments[0] ?? ""]);
    const first = JSON.parse(await service.line()) as { url: string; key: string };
    address.lead(first.url);
    // Each service follows the one before, until the last one stays.
    const lives = (async () => {
      for (const [at, moment] of moments.entries()) {
        if (at > 0) {
          service = startNode([KILLED_SERVICE, data, moment]);
          // It may die before it is ready: recovery comes first.
          const ready = await service.line().catch(() => null);
          if (ready !== null) address.lead(JSON.parse(ready).url);
        }
        if (moment === "never") return;
        const { signal, stderr } = await service.exited;
        address.lead(null);
        expect(signal, `${moment}: ${stderr}`).toBe("SIGKILL");
        killedAt.push(moment);
      }
    })();
    const sdk = startSdk("openai", { apiKey: first.key, baseURL: `${address.url}/v1`, maxRetries: 15 });
    onTestFinished(() => sdk.close());
    const call = async <T>(method: string, ...args: unknown[]): Promise<T> => {
      const { value, error } = await sdk.call<T>(method, ...args);
      expect(error).toBeUndefined();
      return value;
    };

    const path = join(await tempDir(), "lines.jsonl");
    await writeFile(
      path,
      jsonl([...IDS.map((id) => line(id, `picture ${id}`)), line("odd", "a fox", { n: 2 })]),
    );
    const file = await call<{ id: string }>("files.create", { file: { stream: path }, purpose: "batch" });
    const wanted = { input_file_id: file.id, endpoint: "/v1/images/generations", completion_window: "24h" };
    const created = await call<OpenaiBody<"OpenaiBatch">>("batches.create", wanted);
    let batch = created;
    while (batch.status !== "completed") {
      const next = await call<OpenaiBody<"OpenaiBatch">>("batches.retrieve", created.id);
      expect(STATUSES.indexOf(next.status)).toBeGreaterThanOrEqual(STATUSES.indexOf(batch.status));
      expect(next).toMatchObject({ created_at: created.created_at, input_file_id: file.id });
      batch = next;
    }
    await lives;
    expect(killedAt).toEqual(MOMENTS);
    expect((await call<OpenaiBody<"OpenaiBatch">[]>("batches.list")).map(({ id }) => id)).toEqual([
      created.id,
    ]);
    expect(batch.request_counts).toEqual({ total: 5, completed: 4, failed: 1 });
    const read = async (id: string | null) =>
      (await call<string>("files.content", id))
        .trimEnd()
        .split("\n")
        .map((text): ResultLine => JSON.parse(text));
    const output = await read(batch.output_file_id);
    expect(output.map(({ custom_id }) => custom_id)).toEqual(IDS);
    for (const { response } of output) expect(response?.body.data?.[0]?.b64_json).toBeTruthy();
    expect((await read(batch.error_file_id)).map(({ custom_id }) => custom_id)).toEqual(["odd"]);
    const { stores, blobs } = await openBeside(data);
    expect((await checkInvariants(stores, blobs)).problems).toEqual([]);
    const [paid] = await stores.read.batches.all();
    expect(paid).toMatchObject({ successCount: 4, failCount: 1 });
  },
  180_000,
);
