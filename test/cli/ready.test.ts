import { describe, expect, it } from "vitest";
import { createCli } from "../support/cli.ts";
import { runInProcess } from "../support/cli-in-process.ts";
import { BIN, cleanEnvironment, startNode } from "../support/processes.ts";
import { tempDir } from "../support/temp-dir.ts";
import { endLimitWhen, LIMIT } from "./time-limit.ts";

describe("imgbatch ready", () => {
  it("prints the address of a service that works and takes the key", async () => {
    const cli = await createCli();
    const { code, stdout } = await cli.here(["ready"], { env: {} });
    expect({ code, stdout }).toEqual({ code: 0, stdout: `${cli.fake.url}\n` });
    expect((await cli.here(["ready", "--json"])).json()).toEqual({
      ok: true,
      ready: true,
      url: cli.fake.url,
      exit_code: 0,
    });
    expect(cli.fake.count(/^POST/)).toBe(0);
  });

  it("is 7 while the service is not ready, and says why", async () => {
    const cli = await createCli();
    cli.fake.fault(/readyz/, { status: 503, body: { status: "not_ready", problems: ["the disk is full"] } });
    const { code, stderr } = await cli.here(["ready"], { env: {} });
    expect(code).toBe(7);
    expect(stderr).toContain("Not ready: the disk is full.");
    const down = await cli.here(["ready", "--base-url", "http://127.0.0.1:1"], { env: {} });
    expect(down.code).toBe(7);
    expect(down.stderr).toContain("next: imgbatch ready --wait");
    expect(down.stderr).not.toContain("paid");
  });

  it("asks the running service of the data directory, and starts none", async () => {
    const data = await tempDir();
    const env = cleanEnvironment({ IMGBATCH_DATA: data });
    const none = await runInProcess(["ready", "--data", data], { cwd: data });
    expect(none.code).toBe(7);
    expect(none.stderr).toContain(`next: start one (imgbatch serve --data ${data})`);
    const waiting = startNode([BIN, "ready", "--wait"], { env });
    const serve = startNode([BIN, "serve", "--port", "0"], { env });
    const { url } = JSON.parse(await serve.line());
    const { code, stdout } = await waiting.exited;
    expect({ code, stdout }).toEqual({ code: 0, stdout: `${url}\n` });
  });

  it("a refused or missing key is 3 at once, also with --wait", async () => {
    const cli = await createCli();
    cli.fake.fault(/models/, { status: 401, body: { error: { code: "INVALID_API_KEY", message: "no" } } });
    expect((await cli.here(["ready", "--wait"])).code).toBe(3);
    expect((await cli.here(["ready"], { env: { IMGBATCH_API_KEY: "" } })).code).toBe(3);
  });

  it("--wait looks until it is ready, or until the time is up: then 124", async () => {
    const cli = await createCli();
    const down = { status: 503, body: "" };
    cli.fake.fault(/readyz/, down, down);
    expect((await cli.here(["ready", "--wait"])).code).toBe(0);
    expect(cli.fake.count(/readyz/)).toBe(3);
    cli.fake.fault(/readyz/, ...Array.from({ length: 50 }, () => down));
    // The second look begins when the first one is over.
    endLimitWhen(() => cli.fake.count(/readyz/) > 4);
    const late = await cli.here(["ready", "--wait", "--timeout", LIMIT, "--json"]);
    expect(late.code).toBe(124);
    expect(late.json().error?.message).toContain("HTTP 503");
    const silent = await createCli();
    silent.fake.fault(/readyz/, { silent: true });
    expect((await silent.here(["ready", "--timeout", "300ms"])).code).toBe(124);
  });
});
