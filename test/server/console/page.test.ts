import { mkdir, writeFile } from "node:fs/promises";
import { createServer } from "node:http";
import { join } from "node:path";
import express from "express";
import { describe, expect, it } from "vitest";
import { silentLog } from "../../../src/kernel/log.ts";
import { consolePage } from "../../../src/server/console/page.ts";
import { answerErrors } from "../../../src/server/http/errors.ts";
import { errorStyleOf } from "../../../src/server/surfaces.ts";
import { listening } from "../../support/listening.ts";
import { exchange, requestText } from "../../support/raw-http.ts";
import { startTestService } from "../../support/service.ts";
import { tempDir } from "../../support/temp-dir.ts";

/** The page alone, on a free port. */
async function serve(consoleDirectory: string): Promise<string> {
  const app = express()
    .disable("x-powered-by")
    .use(...consolePage({ features: { console: true } as never, consoleDirectory }))
    .use(answerErrors(silentLog, errorStyleOf));
  return listening(createServer(app));
}

async function built(): Promise<string> {
  const directory = join(await tempDir(), "console");
  await mkdir(join(directory, "assets"), { recursive: true });
  await writeFile(join(directory, "../secret.txt"), "secret");
  await writeFile(join(directory, ".hidden"), "secret");
  await writeFile(join(directory, "index.html"), "<title>the page</title>");
  await writeFile(join(directory, "assets/main-1a2b.js"), "run()");
  return directory;
}

describe("the page of the console", () => {
  it("is served with a policy that lets nothing of another site or of its own text run", async () => {
    const url = await serve(await built());
    const page = await fetch(url);
    expect(await page.text()).toBe("<title>the page</title>");
    const policy = page.headers.get("content-security-policy") ?? "";
    expect(policy).toContain("default-src 'none'; script-src 'self';");
    expect(policy).toContain("frame-ancestors 'none'");
    // Pictures alone may come as data: those of a gallery do.
    expect(policy.replace("img-src 'self' blob: data:;", "")).not.toMatch(/unsafe|\*|https?:|data:/);
    expect(Object.fromEntries(page.headers)).toMatchObject({
      "content-type": "text/html; charset=utf-8",
      "x-content-type-options": "nosniff",
      "cross-origin-opener-policy": "same-origin",
      "referrer-policy": "no-referrer",
      "cache-control": "no-cache",
    });
    const etag = ["If-None-Match", page.headers.get("etag") ?? ""] as const;
    expect((await exchange(url, requestText("GET", "/", [etag])))?.status).toBe(304);
    const script = await fetch(`${url}/assets/main-1a2b.js`);
    expect(script.headers.get("cache-control")).toBe("public, max-age=31536000, immutable");
    expect(script.headers.get("content-security-policy")).toBe(policy);
  });

  it.each(["bytes=1-0", "bytes=99-", "bytes=0-3"])(
    "[HOSTILE-1] comes whole to who asks for %s",
    async (range) => {
      const answer = await exchange(await serve(await built()), requestText("GET", "/", [["Range", range]]));
      expect([answer?.status, String(answer?.body)]).toEqual([200, "<title>the page</title>"]);
    },
  );

  it.each(["/../secret.txt", "/%2e%2e/secret.txt", "/..%2fsecret.txt", "/.hidden", "/assets", "/assets/"])(
    "%s is none of its files",
    async (path) => {
      const answer = await exchange(await serve(await built()), requestText("GET", path));
      expect(answer?.status).toBeGreaterThanOrEqual(400);
      expect(String(answer?.body)).not.toBe("secret");
    },
  );

  it("says how to make it where it is missing", async () => {
    const page = await fetch(await serve(join(await tempDir(), "missing")));
    expect(page.status).toBe(404);
    expect(await page.text()).toContain("npm run build");
  });

  it("is not served under a name that was made to point to this machine", async () => {
    const service = await startTestService({ workers: false });
    const request = "GET / HTTP/1.1\r\nHost: evil.example\r\nConnection: close\r\n\r\n";
    const answer = await exchange(service.url, request);
    expect([answer?.status, JSON.parse(String(answer?.body)).error.code]).toEqual([
      421,
      "MISDIRECTED_REQUEST",
    ]);
  });
});
