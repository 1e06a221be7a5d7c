import { expect, it } from "vitest";
import type { ReviewDecision } from "../../../src/contract/review-api.ts";
import { sha256Hex } from "../../../src/kernel/ids.ts";
import { decisionOn, decisionsFor } from "../../../src/runs/reports/review-run.ts";
import { addDecisions, readReview } from "../../../src/runs/review.ts";
import { InstantClock } from "../../support/instant-clock.ts";
import { tempDir } from "../../support/temp-dir.ts";

const picture = (name: string) => ({
  sha256: sha256Hex(name),
  version: sha256Hex(name),
  width: null,
  height: null,
});
const image = (id: string, number: number) => ({ ...picture(id), id, number });
const LINE = { id: "logo", images: [image("logo_01", 1), image("logo_02", 2)], earlier: [] };
const FOX = { id: "fox", images: [image("fox", 1)], earlier: [{ ...picture("an earlier fox"), words: "" }] };
const decided = (verdict: ReviewDecision["verdict"], chosen: string | null = null, words = "") => ({
  verdict,
  chosen,
  words,
});

async function begin() {
  const dir = await tempDir();
  const clock = new InstantClock();
  const give = async (line: typeof LINE | typeof FOX, decision: ReviewDecision) => {
    const { made, undo } = decisionsFor(line, decision, await readReview(dir));
    await addDecisions(dir, made, clock);
    expect(decisionOn(line, await readReview(dir))).toEqual(decision);
    return () => addDecisions(dir, undo, clock);
  };
  const now = async (line: typeof LINE | typeof FOX) => decisionOn(line, await readReview(dir));
  return { dir, clock, give, now };
}

it("[REV-21] undo restores what was decided before about each image of a prompt, also from the command line", async () => {
  const { dir, clock, give, now } = await begin();
  const again = { id: "logo_02", version: sha256Hex("logo_02"), verdict: "again", words: "hands" } as const;
  await addDecisions(dir, [again], clock);
  const before = await readReview(dir);
  expect(await now(LINE)).toEqual(decided("again", null, "hands"));
  const undoKeep = await give(LINE, decided("keep"));
  const undoChoice = await give(LINE, decided("keep", sha256Hex("logo_02")));
  const undoDrop = await give(LINE, decided("drop"));
  await undoDrop();
  expect(await now(LINE)).toEqual(decided("keep", sha256Hex("logo_02")));
  await undoChoice();
  expect(await now(LINE)).toEqual(decided("keep"));
  await undoKeep();
  const after = await readReview(dir);
  expect([...after.verdicts]).toEqual([...before.verdicts]);
  expect(after.choices.size).toBe(0);
});

it("[REV-22] a verdict about a picture that was made again counts no more; an earlier one can be chosen", async () => {
  const { dir, clock, give, now } = await begin();
  await addDecisions(dir, [{ id: "fox", version: sha256Hex("an earlier fox"), verdict: "keep" }], clock);
  expect(await now(FOX)).toBeNull();
  const undo = await give(FOX, decided("keep", sha256Hex("an earlier fox")));
  await undo();
  expect(await now(FOX)).toBeNull();
});
