import { randomBytes } from "node:crypto";
import { createServer } from "node:http";
import express from "express";
import { describe, expect, it } from "vitest";
import { ownershipProof } from "../../../src/contract/data-directory.ts";
import type { Stores } from "../../../src/domain/ports/stores.ts";
import { routesOf } from "../../../src/server/app.ts";
import type { HandlerDeps } from "../../../src/server/deps.ts";
import { monitoring } from "../../../src/server/monitoring/readiness.ts";
import { listening } from "../../support/listening.ts";
import { startTestService } from "../../support/service.ts";

const GIB = 1024 ** 3;

describe("the service tells whether it is ready", () => {
  it("[OPS-7] says yes when it can write, has space, and its workers run", async () => {
    expect(await readiness({})).toEqual([200, { status: "ready", problems: [] }]);
    const service = await startTestService();
    const ready = await fetch(`${service.url}/readyz`);
    expect([ready.status, await ready.json()]).toEqual([200, { status: "ready", problems: [] }]);
  });

  it.each<[string, Partial<HandlerDeps>, string]>([
    [
      "the disk is full",
      { freeDiskBytes: async () => 100 * 1024 ** 2 - 1 },
      "less than 100 MiB of disk space is free",
    ],
    [
      "the disk cannot be asked",
      { freeDiskBytes: () => Promise.reject(new Error("/secret/path")) },
      "the free disk space cannot be read",
    ],
    ["the database refuses to write", { stores: refusingStores() }, "the database cannot be written"],
    [
      "the bucket does not answer",
      { askBucket: () => Promise.reject(new Error("AKID")) },
      "the bucket of the images cannot be used",
    ],
    ["it stops", { isStopping: () => true, workersRunning: () => false }, "the service is stopping"],
    ["the workers ended", { workersRunning: () => false }, "the workers are not running"],
  ])("[OPS-7] says no, and why, when %s", async (_, deps, problem) => {
    expect(await readiness(deps)).toEqual([503, { status: "not_ready", problems: [problem] }]);
  });

  it("[OPS-7] a database without any answer is a problem after three seconds, and is not asked again meanwhile", async () => {
    let asked = 0;
    const write = () => {
      asked++;
      return new Promise<never>(() => {});
    };
    const url = await serveOperations({ stores: { ...refusingStores(), write } });
    for (let i = 0; i < 3; i++) {
      const response = await fetch(`${url}/readyz`);
      expect(await response.json()).toMatchObject({ problems: ["the database cannot be written"] });
    }
    expect(asked).toBe(1);
  });

  it("[OPS-7] names every problem at once", async () => {
    const [status, { problems }] = await readiness({
      stores: refusingStores(),
      freeDiskBytes: async () => 0,
      workersRunning: () => false,
    });
    expect([status, problems.length]).toEqual([503, 3]);
  });

  it.each([
    [false, 503],
    [true, 200],
  ])(
    "[OPS-7] without workers, it serves what is there, and takes work if batches may wait (%s)",
    async (accepts, status) => {
      const features = { workers: false, acceptWithoutWorkers: accepts };
      const service = await startTestService({ config: { features } });
      const ready = await fetch(`${service.url}/readyz`);
      expect([ready.status, await ready.json()]).toEqual([200, { status: "ready", problems: [] }]);
      expect((await fetch(`${service.url}/readyz?for=work`)).status).toBe(status);
      const other = await fetch(`${service.url}/readyz?for=play`);
      expect([other.status, await other.json()]).toMatchObject([400, { error: { param: "for" } }]);
    },
  );

  it("is alive even when it is not ready", async () => {
    const url = await serveOperations({ stores: refusingStores() });
    const alive = await fetch(`${url}/healthz`);
    expect([alive.status, await alive.json()]).toEqual([200, { status: "ok" }]);
  });

  it("proves to each challenge that it has the secret, for its own port alone", async () => {
    const url = await serveOperations({ secret: "s".repeat(43) });
    const challenge = randomBytes(32).toString("base64url");
    const headers = { host: "127.0.0.1:1" };
    const answer = await fetch(`${url}/healthz?challenge=${challenge}`, { headers });
    const port = Number(new URL(url).port);
    const proof = ownershipProof("s".repeat(43), challenge, port);
    expect(await answer.json()).toEqual({ status: "ok", proof });
    const others = [
      ownershipProof("t".repeat(43), challenge, port),
      ownershipProof("s".repeat(43), `${challenge}x`, port),
      ownershipProof("s".repeat(43), challenge, port + 1),
    ];
    expect(new Set([proof, ...others]).size).toBe(4);
  });

  it("takes no challenge that could be guessed", async () => {
    const { url } = await startTestService({ workers: false });
    for (const challenge of ["short", "x".repeat(129), `${"x".repeat(40)}%20`, "a&challenge=b"]) {
      const answer = await fetch(`${url}/healthz?challenge=${challenge}`);
      expect([answer.status, await answer.json()]).toMatchObject([400, { error: { param: "challenge" } }]);
    }
  });

  it.each(["/healthz", "/readyz", "/metrics", "/openapi.json"])(
    "%s needs no key, answers HEAD, and takes no other method",
    async (path) => {
      const service = await startTestService({ workers: false, config: { features: { workers: false } } });
      const head = await fetch(service.url + path, { method: "HEAD" });
      expect([head.status, await head.text()]).toEqual([200, ""]);
      const posted = await fetch(service.url + path, { method: "POST" });
      expect([posted.status, posted.headers.get("allow")]).toEqual([405, "GET, HEAD"]);
    },
  );
});

function refusingStores(): Stores {
  return { write: () => Promise.reject(new Error("disk I/O error")) } as unknown as Stores;
}

/** The operations alone, on a free port; parts that are left out work. */
async function serveOperations(deps: Partial<HandlerDeps>): Promise<string> {
  const working = {
    stores: { write: async () => undefined } as unknown as Stores,
    secret: "s".repeat(43),
    hasWorkers: true,
    workersRunning: () => true,
    features: { acceptWithoutWorkers: false },
    freeDiskBytes: async () => GIB,
    askBucket: null,
    isStopping: () => false,
    metrics: { observe: () => {}, answer: () => {} },
    openApi: () => {},
  };
  const routes = routesOf(monitoring, { ...working, ...deps } as HandlerDeps);
  return listening(createServer(express().use(routes)));
}

async function readiness(
  deps: Partial<HandlerDeps>,
): Promise<[number, { status: string; problems: string[] }]> {
  const answer = await fetch(`${await serveOperations(deps)}/readyz`);
  return [answer.status, (await answer.json()) as { status: string; problems: string[] }];
}
