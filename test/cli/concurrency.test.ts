import { writeFileSync } from "node:fs";
import { createServer } from "node:http";
import { join } from "node:path";
import { expect, it, vi } from "vitest";
import { runInProcess } from "../support/cli-in-process.ts";
import { gate } from "../support/gate.ts";
import { listening } from "../support/listening.ts";
import { tempDir } from "../support/temp-dir.ts";
import { PNG } from "../support/upstream-adapter.ts";

/** An upstream that answers once so many requests are under way, and that knows how many were. */
async function upstreamOf(count: number) {
  const seen = { now: 0, most: 0 };
  const areThere = gate();
  const server = createServer(async (request, response) => {
    const isImage = request.method === "POST";
    request.resume();
    if (isImage) {
      seen.most = Math.max(seen.most, ++seen.now);
      if (seen.now >= count) areThere.open();
      await areThere.promise;
      seen.now--;
    }
    response.writeHead(200, { "content-type": "application/json" });
    response.end(JSON.stringify({ data: isImage ? [{ b64_json: PNG.toString("base64") }] : [] }));
  });
  return { seen, baseUrl: `${await listening(server)}/v1` };
}

async function submit(baseUrl: string, entry: object, ...flags: string[]) {
  for (const name of ["BASE_URL", "API_KEY", "DATA"]) vi.stubEnv(`IMGBATCH_${name}`, "");
  vi.stubEnv("OPENAI_API_KEY", "a-key-0123456789");
  const cwd = await tempDir();
  writeFileSync(
    join(cwd, "c.json"),
    JSON.stringify({ providers: [{ preset: "openai", baseUrl, ...entry }] }),
  );
  writeFileSync(join(cwd, "p.txt"), Array.from({ length: 14 }, (_, at) => `fox ${at}`).join("\n"));
  const args = ["submit", "p.txt", "--config", "c.json", "--data", join(cwd, "data"), "--max-cost", "5"];
  return runInProcess([...args, ...flags], { cwd });
}

it("--concurrency is how many images the command's own service makes at once", async () => {
  const { seen, baseUrl } = await upstreamOf(7);
  const { code, stderr } = await submit(baseUrl, {}, "-j", "7");
  expect([code, seen.most]).toEqual([0, 7]);
  expect(stderr).not.toContain("at once");
});

it("a number in the configuration wins over --concurrency, and the command says so", async () => {
  const { seen, baseUrl } = await upstreamOf(2);
  const { code, stderr } = await submit(baseUrl, { concurrency: 2 }, "--concurrency", "7");
  expect([code, seen.most]).toEqual([0, 2]);
  expect(stderr).toContain("openai makes 2 at once, as the configuration says");
});
