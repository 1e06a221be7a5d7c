import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { expect, it, onTestFinished, vi } from "vitest";
import { runInProcess } from "../../support/cli-in-process.ts";
import { hasPostgres, newDatabase } from "../../support/postgres.ts";
import { BIN, cleanEnvironment, startNode } from "../../support/processes.ts";
import { fakeBucket } from "../../support/s3/buckets.ts";
import { watchSecret } from "../../support/secrets.ts";
import { tempDir } from "../../support/temp-dir.ts";

it.skipIf(!hasPostgres)(
  "a service of several processes is run, looked at, used and stopped by commands alone",
  async () => {
    const [cwd, url, { settings }] = [await tempDir(), await newDatabase(), await fakeBucket()];
    const { bucket, prefix, endpoint, accessKeyId, secretAccessKey } = settings;
    watchSecret(secretAccessKey);
    const config = join(cwd, "service.json");
    const storage = { database: url, blobs: `s3://${bucket}/${prefix}`, s3: { endpoint } };
    writeFileSync(config, JSON.stringify({ storage }));
    const secrets = {
      AWS_ACCESS_KEY_ID: accessKeyId,
      AWS_SECRET_ACCESS_KEY: secretAccessKey,
      PGPASSWORD: "a password that is not asked for",
    };
    const env = cleanEnvironment(secrets);
    for (const [name, value] of Object.entries(secrets)) vi.stubEnv(name, value);
    onTestFinished(() => void vi.unstubAllEnvs());
    const options = ["--config", config, "--data", join(cwd, "of-commands")];
    const command = (...args: string[]) => runInProcess([...args, ...options], { cwd });
    const serve = async (name: string, role: string) => {
      const data = join(cwd, name);
      // It takes requests for half of the grace, while a proxy may not have seen yet that it stops.
      const about = ["--role", role, "--port", "0", "--grace", "2s"];
      const args = [BIN, "serve", ...about, "--data", data, "--config", config];
      const running = startNode(args, { cwd, env });
      return { ...running, url: JSON.parse(await running.line()).url as string };
    };
    const api = await serve("api", "api");
    const alone = await command("doctor");
    expect(alone.stdout).toContain("processes: 1 take requests, 0 make images");
    const worker = await serve("worker", "worker");
    expect((await fetch(`${worker.url}/readyz`)).status).toBe(200);
    const made = await command("admin", "keys", "create", "--json");
    const { key } = JSON.parse(made.stdout) as { key: string };
    watchSecret(key);
    await expect.poll(async () => (await fetch(`${api.url}/readyz`)).status).toBe(200);
    const doctor = await command("doctor", "--json");
    const findings = (JSON.parse(doctor.stdout) as { findings: { check: string; state: string }[] }).findings;
    expect(findings.filter(({ check }) => /^(database|processes|bucket)$/.test(check))).toMatchObject([
      { state: "ok" },
      { state: "ok" },
      { state: "ok" },
    ]);
    writeFileSync(join(cwd, "prompts.txt"), "a red fox\na blue fox\n");
    vi.stubEnv("IMGBATCH_API_KEY", key);
    const submitted = await command(
      "submit",
      "prompts.txt",
      "--json",
      "--interval",
      "50ms",
      "--base-url",
      api.url,
    );
    expect(submitted.code).toBe(0);
    const providers = await command("providers", "--json");
    expect(JSON.parse(providers.stdout)).toMatchObject({ providers: [{ total: { images: 2 } }] });
    const checked = await command("admin", "check", "--json");
    expect(JSON.parse(checked.stdout)).toMatchObject({ batches: 1, images: 2, problems: [] });
    for (const { child, exited } of [api, worker]) {
      child.kill("SIGTERM");
      expect((await exited).code).toBe(0);
    }
    const left = await command("doctor");
    expect(left.stdout).toContain("processes: 0 take requests, 0 make images");
  },
);
