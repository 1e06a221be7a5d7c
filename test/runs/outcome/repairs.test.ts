import fc from "fast-check";
import { expect, it } from "vitest";
import { type Repair, repairsOf } from "../../../src/runs/outcome/standing.ts";

/** Each outcome of an image, with the step that makes the image come. */
const FATES = {
  here: { status: "success" },
  failed: { status: "failed", code: "PROVIDER_ITEM_FAILED" },
  refused: { status: "failed", code: "SAFETY_BLOCKED" },
  late: { status: "success", code: "HTTP_503" },
  lost: { status: "success", code: "BATCH_IMAGE_RESULT_MISSING" },
  deleted: { status: "success", code: "BATCH_IMAGE_OUTPUT_DELETED" },
} as const;
type Fate = keyof typeof FATES;

/** Every command that brings images: those that it makes, which are paid, and those that are here afterwards. */
const COMMANDS: Record<string, { pays: readonly Fate[]; brings: readonly Fate[] }> = {
  fetch: { pays: [], brings: ["late"] },
  retry: { pays: ["failed"], brings: ["late", "failed"] },
  retryLost: { pays: ["failed", "lost", "deleted"], brings: ["late", "failed", "lost", "deleted"] },
  retryRefused: { pays: ["failed", "refused"], brings: ["late", "failed"] },
  submitNew: {
    pays: ["here", "failed", "refused", "late", "lost", "deleted"],
    brings: ["failed", "late", "lost", "deleted"],
  },
};

const FILE = { path: "images/a.png", sha256: "", bytes: 1, mime_type: "image/png", width: 1, height: 1 };

function lineOf(fate: Fate) {
  const { status, code }: { status: string; code?: string } = FATES[fate];
  if (code === undefined) return { status, files: [FILE] };
  return { status, files: [], error: { code, message: "x", source: "service" } };
}

const count = (fates: readonly Fate[], some: readonly Fate[]) =>
  fates.filter((fate) => some.includes(fate)).length;

it("[REPAIR-1] no advice costs more than another command that brings the same images, and the cheapest comes first", () => {
  const fates = fc.array(fc.constantFrom(...(Object.keys(FATES) as Fate[])), { minLength: 1, maxLength: 12 });
  fc.assert(
    fc.property(fates, (run) => {
      const advised = repairsOf(run.map(lineOf)).filter(({ kind }) => kind !== "edit");
      for (const { kind, images } of advised) {
        const command = COMMANDS[kind];
        expect(images).toBe(count(run, command?.pays ?? []));
        for (const other of Object.values(COMMANDS)) {
          const doesAll = run.every((fate) => !command?.brings.includes(fate) || other.brings.includes(fate));
          if (doesAll) expect(count(run, other.pays)).toBeGreaterThanOrEqual(images);
        }
      }
      const prices = advised.map(({ images }) => images);
      expect(prices).toEqual(prices.toSorted((a, b) => a - b));
      const brought = new Set(advised.flatMap(({ kind }) => COMMANDS[kind]?.brings ?? []));
      for (const fate of run) if (fate !== "here" && fate !== "refused") expect(brought).toContain(fate);
    }),
  );
});

it("[REPAIR-1] refused prompts have to change, and a whole run needs nothing", () => {
  const kinds = (...run: Fate[]): [Repair["kind"], number][] =>
    repairsOf(run.map(lineOf)).map(({ kind, images }) => [kind, images]);
  expect(kinds("here", "refused")).toEqual([["edit", 1]]);
  expect(kinds("here", "here")).toEqual([]);
  expect(kinds("lost", "failed", "here")).toEqual([
    ["fetch", 0],
    ["retry", 1],
    ["retryLost", 2],
  ]);
  expect(kinds("deleted")).toEqual([["retryLost", 1]]);
});
