import { spawn, spawnSync } from "node:child_process";
import { randomBytes } from "node:crypto";
import { once } from "node:events";
import { mkdirSync, symlinkSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { expect, it, onTestFinished } from "vitest";
import { createCli } from "../support/cli.ts";
import { FakeProvider } from "../support/fake-provider.ts";
import { FAKE_KEY, png } from "../support/fake-service.ts";
import { BIN, cleanEnvironment } from "../support/processes.ts";
import { items, MODEL, startTestService } from "../support/service.ts";
import { tempDir } from "../support/temp-dir.ts";

/** Runs any program to its end. `onOutput` is told all of standard output so far, each time that there is more. */
async function runProgram(
  program: string,
  args: readonly string[],
  options: { cwd: string; env: NodeJS.ProcessEnv; onOutput?: (stdout: string) => void },
): Promise<{ code: number | null; stdout: string; stderr: string }> {
  const { cwd, env, onOutput } = options;
  const child = spawn(program, args, { cwd, env, stdio: ["ignore", "pipe", "pipe"] });
  onTestFinished(() => void child.kill("SIGKILL"));
  let stdout = "";
  let stderr = "";
  child.stdout.on("data", (chunk) => {
    stdout += chunk;
    onOutput?.(stdout);
  });
  child.stderr.on("data", (chunk) => {
    stderr += chunk;
  });
  const [code] = await once(child, "close");
  return { code, stdout, stderr };
}

const canMount = spawnSync("unshare", ["-rm", "sh", "-c", "mount -t tmpfs tmpfs /mnt"]).status === 0;
if (!canMount)
  process.stderr.write("skipped: no file system of our own can be mounted here, so no disk is full\n");

/** Runs the command on a small disk of its own, looks, makes the disk larger, and runs it again. */
const SCRIPT = `
mount -t tmpfs -o size=$1 tmpfs disk
"$2" "$3" submit p.jsonl -o disk/out -q >/dev/null; echo "first $?"
find disk/out -type f | sort
mount -o remount,size=4m disk
"$2" "$3" submit p.jsonl -o disk/out -q >/dev/null; echo "second $?"
find disk/out -type f | sort
`;

const isSoak = Boolean(process.env.IMGBATCH_SOAK);
const WHOLE = [
  "images/a.png",
  "images/b.png",
  "images/c.png",
  "imgbatch.json",
  "index.html",
  "input.jsonl",
  "results.jsonl",
];

/** The files that exist after the disk was full, by the moment at which it was. */
const moments = [
  { when: "before anything is sent", size: "4k", left: ["imgbatch.json"], batches: 0 },
  {
    when: "when the answer is to be noted",
    size: "8k",
    left: ["imgbatch.json", "input.jsonl"],
    batches: 1,
  },
  {
    when: "in the middle of the ZIP",
    size: "250k",
    left: ["imgbatch.json", "input.jsonl"],
    batches: 1,
  },
  {
    when: "in the middle of unpacking it",
    size: "480k",
    left: ["images/a.png", "imgbatch.json", "input.jsonl"],
    batches: 1,
  },
];

for (const { when, size, left, batches } of moments.filter((_, at) => isSoak || at % 2 === 1)) {
  it.skipIf(!canMount)(
    `[RUN-24] a disk that is full ${when} is exit 9, leaves nothing half-written, and costs nothing`,
    async () => {
      const cli = await createCli();
      const lines = ["a", "b", "c"].map((custom_id) => JSON.stringify({ custom_id, prompt: custom_id }));
      writeFileSync(join(cli.cwd, "p.jsonl"), lines.join("\n"));
      mkdirSync(join(cli.cwd, "disk"));
      const { push } = cli.fake.batches;
      let before: number | null = null;
      cli.fake.batches.push = (...made) => {
        for (const item of made.flatMap((batch) => batch.items))
          item.images = [Buffer.concat([png(item.custom_id), randomBytes(100_000)])];
        return push.apply(cli.fake.batches, made);
      };
      const args = ["-rm", "sh", "-c", SCRIPT, "sh", size, process.execPath, BIN];
      const env = cleanEnvironment({ IMGBATCH_BASE_URL: cli.fake.url, IMGBATCH_API_KEY: FAKE_KEY });
      const { stdout, stderr } = await runProgram("unshare", args, {
        cwd: cli.cwd,
        env,
        onOutput: (text) => {
          if (text.includes("first")) before ??= cli.fake.batches.length;
        },
      });
      const [, first, second] = stdout.split(/(?:first|second) /).map((part) => part.trim().split(/\s+/));
      const names = (found: string[] | undefined) =>
        found
          ?.slice(1)
          .map((name) => name.replace("disk/out/", ""))
          .sort();
      expect({ code: first?.[0], left: names(first), stderr }).toMatchObject({ code: "9", left });
      expect(stderr).toContain("the disk is full");
      expect(before).toBe(batches);
      expect({ code: second?.[0], left: names(second) }).toEqual({ code: "0", left: WHOLE });
      expect(cli.fake.batches).toHaveLength(1);
    },
  );
}

/** Runs the commands on a disk of its own: writable first, then read-only, then with an image gone. */
const READ_ONLY = `
mount -t tmpfs -o size=4m tmpfs disk
run() { name=$1; shift; "$node" "$bin" "$@" -q >/dev/null 2>>log; echo "$name $?"; }
run first submit p.jsonl -o disk/out
mount -o remount,ro disk
run submit submit p.jsonl -o disk/out
run download download disk/out
run retry retry disk/out
run wait wait disk/out
run other submit p.jsonl -o disk/other
mount -o remount,rw disk; rm disk/out/images/a.png; mount -o remount,ro disk
run damaged submit p.jsonl -o disk/out
`;

it.skipIf(!canMount)(
  "a whole run on a disk that is read-only is exit 0, and what must be written there is exit 9",
  async () => {
    const cli = await createCli();
    const lines = ["a", "b"].map((custom_id) => JSON.stringify({ custom_id, prompt: custom_id }));
    writeFileSync(join(cli.cwd, "p.jsonl"), lines.join("\n"));
    mkdirSync(join(cli.cwd, "disk"));
    const env = cleanEnvironment({
      IMGBATCH_BASE_URL: cli.fake.url,
      IMGBATCH_API_KEY: FAKE_KEY,
      node: process.execPath,
      bin: BIN,
    });
    const { stdout } = await runProgram("unshare", ["-rm", "sh", "-c", READ_ONLY], { cwd: cli.cwd, env });
    expect(stdout.trim().split("\n")).toEqual([
      "first 0",
      "submit 0",
      "download 0",
      "retry 0",
      "wait 0",
      "other 9",
      "damaged 9",
    ]);
    expect(cli.fake.batches).toHaveLength(1);
  },
);

/** Backs a data directory up to a small disk of its own, looks, makes the disk larger, and does it again. */
const BACKUP = `
mount -t tmpfs -o size=300k tmpfs disk
"$1" "$2" admin backup disk/copy --data data -q; echo "first $? $(ls disk)"
mount -o remount,size=64m disk
"$1" "$2" admin backup disk/copy --data data -q; echo "second $? $(ls disk)"
`;

it.skipIf(!canMount)(
  "[BACKUP-4] a backup onto a full disk is exit 9, and leaves nothing of itself",
  async () => {
    const service = await startTestService({ providers: [new FakeProvider()] });
    await service.until((await service.submit({ model: MODEL, items: items(2) })).id);
    await service.close(0);
    const cwd = await tempDir();
    symlinkSync(service.data, join(cwd, "data"));
    mkdirSync(join(cwd, "disk"));
    const args = ["-rm", "sh", "-c", BACKUP, "sh", process.execPath, BIN];
    const { stdout, stderr } = await runProgram("unshare", args, { cwd, env: cleanEnvironment() });
    expect(stderr).toContain("could not be written: its disk is full");
    expect(stdout.split("\n").filter((line) => /^(first|second)/.test(line))).toEqual([
      "first 9 ",
      "second 0 copy",
    ]);
  },
);
