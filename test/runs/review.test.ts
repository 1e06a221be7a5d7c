import { appendFile, readFile, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { expect, it } from "vitest";
import { systemClock } from "../../src/kernel/clock.ts";
import { sha256Hex } from "../../src/kernel/ids.ts";
import { REVIEW_FILE } from "../../src/runs/directory/names.ts";
import { addDecisions, readReview } from "../../src/runs/review.ts";
import { InstantClock } from "../support/instant-clock.ts";
import { tempDir } from "../support/temp-dir.ts";

const clock = new InstantClock(Date.parse("2026-11-29T08:00:00Z"));
const [FOX, OLD_FOX] = [sha256Hex("fox"), sha256Hex("an earlier fox")];
const AGAIN = { id: "fox", version: FOX, verdict: "again", words: "hands are wrong" } as const;

it("[REV-1] the last verdict for an image and the last choice for a line count, until they are taken back", async () => {
  const dir = await tempDir();
  expect((await readReview(dir)).verdicts.size).toBe(0);
  await addDecisions(dir, [{ id: "fox", version: FOX, verdict: "keep" }], clock);
  await addDecisions(dir, [AGAIN, { id: "fox", version: OLD_FOX, choose: OLD_FOX }], clock);
  await addDecisions(dir, [{ id: "owl", version: null, verdict: "drop" }], clock);
  const review = await readReview(dir);
  expect(review.verdicts.get("fox")).toEqual({ ...AGAIN, date: "2026-11-29T08:00:00.000Z" });
  expect(review.choices.get("fox")).toMatchObject({ choose: OLD_FOX, version: OLD_FOX });
  expect(review.verdicts.get("owl")).toMatchObject({ verdict: "drop", version: null });
  await addDecisions(dir, [{ id: "fox", version: FOX, verdict: null }], clock);
  const after = await readReview(dir);
  expect([...after.verdicts.keys()]).toEqual(["owl"]);
  expect(after.choices.has("fox")).toBe(true);
  expect((await readFile(join(dir, REVIEW_FILE), "utf8")).trim().split("\n")).toHaveLength(5);
});

it("[REV-1] a line that was cut off by a kill loses none before it, and the next decision mends the file", async () => {
  const dir = await tempDir();
  await addDecisions(dir, [AGAIN], clock);
  const whole = await readFile(join(dir, REVIEW_FILE), "utf8");
  const next = whole.replace("fox", "owl");
  for (const length of [1, 20, next.length - 2]) {
    await writeFile(join(dir, REVIEW_FILE), whole + next.slice(0, length));
    expect([...(await readReview(dir)).verdicts.keys()]).toEqual(["fox"]);
    await addDecisions(dir, [{ id: "cat", version: FOX, verdict: "keep" }], clock);
    const text = await readFile(join(dir, REVIEW_FILE), "utf8");
    expect(text.startsWith(whole)).toBe(true);
    expect(text.trimEnd().split("\n")).toHaveLength(2);
    expect([...(await readReview(dir)).verdicts.keys()]).toEqual(["fox", "cat"]);
  }
  // Only the line feed is missing: the decision is whole.
  await writeFile(join(dir, REVIEW_FILE), whole + next.trimEnd());
  await addDecisions(dir, [{ id: "cat", version: FOX, verdict: "keep" }], clock);
  expect([...(await readReview(dir)).verdicts.keys()]).toEqual(["fox", "owl", "cat"]);
});

it("[REV-1] writers that decide at the same time mix no lines", async () => {
  const dir = await tempDir();
  const write = async (name: string) => {
    for (let i = 0; i < 30; i++) {
      const words = name.repeat(3000);
      await addDecisions(dir, [{ id: `${name}${i}`, version: null, verdict: "again", words }], systemClock);
    }
  };
  await Promise.all([write("a"), write("b")]);
  const { verdicts } = await readReview(dir);
  expect(verdicts.size).toBe(60);
  for (const { id, words } of verdicts.values()) expect(words).toBe(id.slice(0, 1).repeat(3000));
});

it("[REV-1] a line of a newer version, or edited by hand, is an error with file and line", async () => {
  const dir = await tempDir();
  await addDecisions(dir, [AGAIN], clock);
  const path = join(dir, REVIEW_FILE);
  const whole = await readFile(path, "utf8");
  const second = (change: object) => `${JSON.stringify({ ...JSON.parse(whole), ...change })}\n`;
  for (const [line, message] of [
    [second({ rating: 1 }), `${path}:2: rating: is no field of a decision that this version knows`],
    [second({ verdict: "maybe" }), `${path}:2: verdict: must be keep, again, drop, or null to take it back`],
    [second({ verdict: undefined }), `${path}:2: needs either verdict or choose`],
    ["keep fox\n", `${path}:2: is not JSON`],
  ] as const) {
    await writeFile(path, whole + line + whole);
    await expect(readReview(dir)).rejects.toMatchObject({ code: "INVALID_INPUT", message });
  }
  await writeFile(path, whole);
  await appendFile(path, second({ verdict: "maybe" }).trimEnd());
  await expect(addDecisions(dir, [AGAIN], clock)).rejects.toThrow(`${path}:2: verdict`);
});
