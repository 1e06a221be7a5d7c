import { execFile } from "node:child_process";
import { join } from "node:path";
import { describe, expect, it, onTestFinished } from "vitest";
import { cleanEnvironment } from "../support/processes.ts";
import { SMALL } from "../support/upstreams/images.ts";
import { NATIVE_KEY, startNative } from "../support/upstreams/native.ts";
import { OPENAI_KEY, startOpenai } from "../support/upstreams/openai.ts";

/** Runs the comparison to its end. */
function drift(args: readonly string[], env: Record<string, string>) {
  return new Promise<{ code: unknown; stdout: string; stderr: string }>((done) => {
    const script = join(import.meta.dirname, "drift.mjs");
    execFile(process.execPath, [script, ...args], { env: cleanEnvironment(env) }, (error, stdout, stderr) =>
      done({ code: error?.code ?? 0, stdout, stderr }),
    );
  });
}

describe("the comparison with a real vendor", () => {
  it("[REPO-9] names each field that the vendor has and the tests have not, and the other way round", async () => {
    const vendor = await startNative({ models: ["gemini-3-pro-image"] });
    onTestFinished(() => vendor.close());
    vendor.size = SMALL;
    const args = ["--upstream", "google", "--model", "gemini-3-pro-image", "--max-cost", "0.2", "--base-url"];
    const run = () => drift([...args, vendor.url], { GEMINI_API_KEY: NATIVE_KEY });
    const same = await run();
    expect({ code: same.code, stdout: same.stdout }).toEqual({
      code: 0,
      stdout: `GET /v1beta/models\nPOST /v1beta/models/gemini-3-pro-image:generateContent\n0 differences\n`,
    });
    vendor.setBehaviour(async (exchange) => {
      exchange.send(await exchange.make({ more: { responseId: undefined, modelVersion: 3 } }));
    });
    const other = await run();
    expect(other.code).toBe(1);
    expect(other.stdout).toContain(
      [
        "  + modelVersion number (the vendor has it, the tests have not)",
        "  - modelVersion string (the tests have it, the vendor has not)",
        "  - responseId string (the tests have it, the vendor has not)",
        "3 differences",
      ].join("\n"),
    );
    expect(other.stdout + other.stderr).not.toContain(NATIVE_KEY);
    expect(vendor.billed()).toBe(2);
  });

  it("[REPO-9] asks for no image without a key or beyond what it may cost", async () => {
    const vendor = await startOpenai({ models: ["gpt-image-2.5-flare"] });
    onTestFinished(() => vendor.close());
    const args = ["--upstream", "openai", "--model", "gpt-image-2.5-flare", "--base-url", `${vendor.url}/v1`];
    expect(await drift([...args, "--max-cost", "5"], { OPENAI_API_KEY: "" })).toMatchObject({
      code: 2,
      stderr: "drift: set OPENAI_API_KEY: the vendor is asked with it\n",
    });
    const refused = await drift([...args, "--max-cost", "0.001"], { OPENAI_API_KEY: OPENAI_KEY });
    expect([refused.code, refused.stderr]).toEqual([2, expect.stringMatching(/was not asked for an image/)]);
    expect(vendor.billed()).toBe(0);
  });
});
