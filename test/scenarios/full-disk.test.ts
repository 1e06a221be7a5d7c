import { spawnSync } from "node:child_process";
import { randomBytes } from "node:crypto";
import { mkdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { expect, it } from "vitest";
import { createCli } from "../support/cli.ts";
import { FAKE_KEY, png } from "../support/fake-service.ts";
import { BIN, cleanEnvironment } from "../support/processes.ts";
import { runProgram } from "../support/run-program.ts";

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

const WHOLE = [
  "images/a.png",
  "images/b.png",
  "images/c.png",
  "imgbatch.json",
  "index.html",
  "input.jsonl",
  "results.jsonl",
];

/** What is there when the disk has been full, by the moment at which it was. */
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

for (const { when, size, left, batches } of moments) {
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
    20_000,
  );
}
