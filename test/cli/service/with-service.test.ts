import { expect, it, onTestFinished } from "vitest";
import type { CommandContext } from "../../../src/cli/command.ts";
import type { ServiceConnection } from "../../../src/cli/connect/connection.ts";
import { withService } from "../../../src/cli/connect/with-service.ts";
import { explainStop } from "../../../src/cli/interruption.ts";
import { getBatch, listModels } from "../../../src/client/batches.ts";
import { ImgbatchError } from "../../../src/contract/errors.ts";
import { systemClock } from "../../../src/kernel/clock.ts";
import { FAKE_KEY, startFakeService } from "../../support/fake-service.ts";

type Kind = ServiceConnection["kind"];

const ON_DATA_DIRECTORY = {
  ...{ dataDirectory: "d", providers: [], upstream: null, disabled: () => [], noteDrawings: () => {} },
  ...{ failed: new AbortController().signal, paidRequests: () => 0 },
};

/** A context whose connections go to these addresses, one after the other. */
function contextOf(connections: { baseUrl: string; kind: Kind }[]) {
  const closed: string[] = [];
  const notes: string[] = [];
  const note = (line: string) => void notes.push(line);
  const output = { note, warn: note, annotate() {}, detail() {}, progress() {}, settle() {}, event() {} };
  const connect = async (): Promise<ServiceConnection> => {
    const next = connections.shift();
    if (next === undefined) throw new Error("no more connections");
    const close = async () => void closed.push(next.kind);
    return { ...next, apiKey: FAKE_KEY, isLocal: true, close, ...ON_DATA_DIRECTORY };
  };
  return { context: { output, connect, clock: systemClock } as unknown as CommandContext, closed, notes };
}

async function liveUrl(): Promise<string> {
  const fake = await startFakeService();
  onTestFinished(() => fake.close());
  return fake.url;
}

async function deadUrl(): Promise<string> {
  const fake = await startFakeService();
  await fake.close();
  return fake.url;
}

it("when the service of another command ends, the work is done again with the next one", async () => {
  const connections = [
    { baseUrl: await deadUrl(), kind: "running" as const },
    { baseUrl: await liveUrl(), kind: "embedded" as const },
  ];
  const { context, closed, notes } = contextOf(connections);
  const models = await withService(context, { workers: true }, async ({ http, kind }) =>
    kind === "running" ? http.json({ method: "GET", path: "/", maxRetries: 0 }) : listModels(http),
  );
  expect(models).toHaveLength(2);
  expect(closed).toEqual(["embedded"]);
  expect(notes).toHaveLength(1);
});

it("a service that was named by the caller is not replaced, and refusals are final", async () => {
  const dead = contextOf([{ baseUrl: await deadUrl(), kind: "remote" }]);
  const look = withService(dead.context, { workers: false }, ({ http }) =>
    getBatch(http, "x", { maxRetries: 0 }),
  );
  await expect(look).rejects.toMatchObject({ code: "NETWORK" });
  const shared = contextOf([{ baseUrl: await liveUrl(), kind: "running" }]);
  const missing = withService(shared.context, { workers: false }, ({ http }) => getBatch(http, "x"));
  await expect(missing).rejects.toMatchObject({ code: "BATCH_IMAGE_NOT_FOUND" });
  expect([...dead.closed, ...shared.closed]).toEqual([]);
});

it("a submission that an earlier command left open does not mean that the service has ended", async () => {
  const unknown = (cause?: unknown) => new ImgbatchError("SUBMISSION_UNKNOWN", "left open", { cause });
  const work = async (error: Error) => {
    const { context, notes } = contextOf([
      { baseUrl: await deadUrl(), kind: "running" },
      { baseUrl: await deadUrl(), kind: "embedded" },
    ]);
    await withService(context, { workers: true }, () => Promise.reject(error)).catch(() => {});
    return notes.length;
  };
  expect(await work(unknown())).toBe(0);
  expect(await work(unknown(new ImgbatchError("SERVICE_GONE")))).toBeGreaterThan(0);
});

it("[CLI-10] a stop says whether the batch goes on without this command", () => {
  const stop = (kind: Kind) => (explainStop(new ImgbatchError("INTERRUPTED"), kind, ["b1"]) as Error).message;
  expect(stop("remote")).toBe("Interrupted; b1 goes on.");
  expect(stop("running")).toBe("Interrupted; b1 goes on while its service runs.");
  expect(stop("embedded")).toBe("Interrupted; b1 is paused; run the same command to continue.");
  const other = new ImgbatchError("NETWORK");
  expect(explainStop(other, "embedded", ["b1"])).toBe(other);
});
