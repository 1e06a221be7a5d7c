import { describe, expect, it } from "vitest";
import { runInProcess } from "../support/cli-in-process.ts";
import { startTestService } from "../support/service.ts";
import { tempDir } from "../support/temp-dir.ts";

describe("imgbatch console", () => {
  it("prints a link that signs in once to the running service of the data directory", async () => {
    const service = await startTestService({ workers: false });
    const args = ["console", "--data", service.data];
    const { code, stdout } = await runInProcess(args, { cwd: service.data });
    expect(code).toBe(0);
    const link = new URL(stdout.trim());
    expect(`${link.origin}${link.pathname}`).toBe(`${service.url}/`);
    const signIn = () =>
      fetch(`${service.url}/v1/console/sessions`, {
        method: "POST",
        headers: { authorization: `Bearer ${link.hash.slice("#code=".length)}` },
      });
    expect([(await signIn()).status, (await signIn()).status]).toEqual([200, 401]);
    const asJson = (await runInProcess([...args, "--json"], { cwd: service.data })).json();
    expect(asJson).toMatchObject({ ok: true, expires_at: expect.any(Number) });
    expect(asJson.url).toMatch(/\/#code=[\w-]{43}$/);
    expect(asJson.url).not.toBe(link.href);
  });

  it("says what to do where no service runs, and where it has no console", async () => {
    const data = await tempDir();
    const none = await runInProcess(["console", "--data", data], { cwd: data });
    expect([none.code, none.stdout]).toEqual([7, ""]);
    expect(none.stderr).toContain(`next: start one with imgbatch serve --data ${data}, or`);
    const off = await startTestService({ workers: false, config: { features: { console: false } } });
    const refused = await runInProcess(["console", "--data", off.data], { cwd: off.data });
    expect(refused.code).toBe(10);
    expect(refused.stderr).toContain("has no web console");
    expect(refused.stderr).toContain("features.console");
  });
});
