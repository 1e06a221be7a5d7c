import sharp from "sharp";
import { describe, expect, it } from "vitest";
import type { BatchObject } from "../../src/contract/batch-api.ts";
import { startQuickService } from "../soak/killed-service.ts";
import { tinyPng } from "../support/fake-provider.ts";
import { MODEL } from "../support/service.ts";
import { type Call, callsOf, needStrace, watchCalls } from "../support/strace.ts";
import { tempDir } from "../support/temp-dir.ts";

const WATCHED = ["-f", "-y", "-s", "5000", "-e", "trace=fsync,fdatasync,rename,pwrite64,write,writev,sendto"];

/** A story of one batch with this reference image, and every call that made it durable or told of it. */
async function record(image: Buffer) {
  const service = await startQuickService(await tempDir());
  const { stop } = await watchCalls(service.child.pid ?? 0, WATCHED);
  const authorization = `Bearer ${service.key}`;
  const reference = { mime_type: "image/png", data: image.toString("base64") };
  const items = [{ custom_id: "a", prompt: "one", reference_images: [reference] }];
  const headers = { authorization, "content-type": "application/json" };
  const url = `${service.url}/v1/images/batches`;
  const created = await fetch(url, {
    method: "POST",
    headers,
    body: JSON.stringify({ model: MODEL, items }),
  });
  const { id } = (await created.json()) as BatchObject;
  for (let batch = null; batch?.status !== "completed"; ) {
    batch = (await (await fetch(`${url}/${id}`, { headers: { authorization } })).json()) as BatchObject;
  }
  return { id, calls: callsOf(await stop()) };
}

/** The first call after the given line whose text has all of these parts. */
function next(calls: readonly Call[], after: number, ...parts: string[]): Call {
  const call = calls.find(({ text, began }) => began > after && parts.every((part) => text.includes(part)));
  if (!call) throw new Error(`no call with ${parts.join(" and ")} after line ${after}`);
  return call;
}

/** Where a blob below the folder was made durable: written, synced, renamed, and its directory synced, in this order. */
function durable(calls: readonly Call[], folder: string): { ended: number; key: string } {
  const synced = next(calls, -1, "fsync(", `/${folder}/`, ".partial>");
  const renamed = next(calls, synced.ended, "rename(", `/${folder}/`, ".partial");
  const directory = next(calls, renamed.ended, "fsync(", `/${folder}>`);
  const key = /", "[^"]*\/blobs\/([^"]+)"/.exec(renamed.text)?.[1] ?? "";
  return { ended: directory.ended, key };
}

describe("the order in which things reach the disk", () => {
  it("[DISK-5] is files, commit, answer: a power cut finds no row without its file and loses no answered batch", async (context) => {
    needStrace(context);
    const { id, calls } = await record(await tinyPng());
    const first = (...parts: string[]) => next(calls, -1, ...parts);

    const reference = durable(calls, `inputs/${id}`);
    const inserted = first("pwrite64(", "imgbatch.db-wal>", reference.key);
    expect(inserted.began).toBeGreaterThan(reference.ended);
    const accepted = next(calls, inserted.ended, "sync(", "imgbatch.db-wal>");
    const answered = first("HTTP/1.1 200", id);
    expect(answered.began).toBeGreaterThan(accepted.ended);

    const image = durable(calls, `outputs/${id}`);
    const recorded = first("pwrite64(", "imgbatch.db-wal>", image.key);
    expect(recorded.began).toBeGreaterThan(image.ended);
    const committed = next(calls, recorded.ended, "sync(", "imgbatch.db-wal>");
    const told = first("HTTP/1.1 200", id, '\\"success_count\\":1');
    expect(told.began).toBeGreaterThan(committed.ended);
  });

  it("shows no batch to any reader before its commit is durable", async (context) => {
    needStrace(context);
    const service = await startQuickService(await tempDir());
    const slow = ["-e", "inject=fsync:delay_enter=200000"];
    const { stop } = await watchCalls(service.child.pid ?? 0, [...WATCHED, ...slow]);
    const headers = { authorization: `Bearer ${service.key}`, "content-type": "application/json" };
    const url = `${service.url}/v1/images/batches`;
    const body = JSON.stringify({ model: MODEL, items: [{ prompt: "one" }] });
    const created = fetch(url, { method: "POST", headers, body }).then((answer) => answer.json());
    const list = async () => (await (await fetch(url, { headers })).json()) as { data: BatchObject[] };
    while ((await list()).data.length === 0);
    const { id } = (await created) as BatchObject;
    const calls = callsOf(await stop());
    const inserted = next(calls, -1, "pwrite64(", "imgbatch.db-wal>", id);
    const durable = next(calls, inserted.ended, "sync(", "imgbatch.db-wal>");
    expect(next(calls, -1, "HTTP/1.1 200", id).began).toBeGreaterThan(durable.ended);
  });

  it("[DISK-5] is bytes, record, answer for an uploaded file", async (context) => {
    needStrace(context);
    const service = await startQuickService(await tempDir());
    const { stop } = await watchCalls(service.child.pid ?? 0, WATCHED);
    const begun = await fetch(`${service.url}/upload/v1beta/files`, {
      method: "POST",
      headers: { "x-vendorx-api-key": service.key, "x-goog-upload-command": "start" },
    });
    const done = await fetch(begun.headers.get("x-goog-upload-url") ?? "", {
      method: "POST",
      headers: { "x-goog-upload-command": "upload, finalize", "x-goog-upload-offset": "0" },
      body: "red fox",
    });
    expect(done.status).toBe(200);
    const calls = callsOf(await stop());
    const written = next(calls, -1, "write(", "/drafts/", "red fox");
    const synced = next(calls, written.ended, "fsync(", "/drafts/");
    const renamed = next(calls, synced.ended, "rename(", "/drafts/", "/files/");
    const directory = next(calls, renamed.ended, "fsync(", "/files>");
    const key = /", "[^"]*\/blobs\/([^"]+)"/.exec(renamed.text)?.[1] ?? "";
    const inserted = next(calls, -1, "pwrite64(", "imgbatch.db-wal>", key);
    expect(inserted.began).toBeGreaterThan(directory.ended);
    const committed = next(calls, inserted.ended, "sync(", "imgbatch.db-wal>");
    expect(next(calls, -1, "HTTP/1.1 200", "sha256Hash").began).toBeGreaterThan(committed.ended);
  });

  it("[DISK-5] is the same for an image that was on the disk before the batch was accepted", async (context) => {
    needStrace(context);
    const create = { width: 700, height: 700, channels: 3 as const, background: "#000" };
    const noise = { type: "gaussian" as const, mean: 128, sigma: 50 };
    const image = await sharp({ create: { ...create, noise } })
      .png()
      .toBuffer();
    const { id, calls } = await record(image);
    const written = next(calls, -1, "write(", "/drafts/");
    const synced = next(calls, written.ended, "fsync(", "/drafts/");
    const renamed = next(calls, synced.ended, "rename(", "/drafts/", `/inputs/${id}/`);
    const directory = next(calls, renamed.ended, "fsync(", `/inputs/${id}>`);
    const key = /", "[^"]*\/blobs\/([^"]+)"/.exec(renamed.text)?.[1] ?? "";
    const inserted = next(calls, -1, "pwrite64(", "imgbatch.db-wal>", key);
    expect(inserted.began).toBeGreaterThan(directory.ended);
  });
});
