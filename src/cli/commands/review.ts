import { resolve } from "node:path";
import { ImgbatchError } from "../../contract/errors.ts";
import { counted } from "../../kernel/text.ts";
import { readRunState } from "../../runs/directory/run-state.ts";
import {
  addDecisions,
  namedImages,
  namedLine,
  REVIEW_FILE,
  type ReviewedLine,
  readReview,
  readReviewedLines,
  type Verdict,
} from "../../runs/review.ts";
import type { CommandContext, CommandDetails, CommandResult } from "../command.ts";
import type { TypedOptions } from "../options.ts";
import { nextCommand } from "../output/next-step.ts";
import { noRun } from "../targets.ts";
import { newestRun } from "./open.ts";

export const command: CommandDetails = {
  arguments: [
    {
      name: "[dir]",
      description: "the output directory of a run; without it, this directory, else the newest run in it",
    },
  ],
  options: [
    {
      flags: "--keep <ids>",
      description: "these pictures are good, such as fox,'icon-*'; may be repeated, as all of these",
      repeatable: true,
    },
    {
      flags: "--again <ids=words>",
      description: "these are to be made again, and what should change, such as owl='hands are wrong'",
      repeatable: true,
    },
    { flags: "--drop <ids>", description: "these are not wanted at all", repeatable: true },
    {
      flags: "--choose <id=which>",
      description:
        "of several images of a prompt, the one with this number, such as fox=2; or an earlier picture, by its SHA-256",
      repeatable: true,
    },
  ],
  examples: [
    "imgbatch review prompts-images --keep fox,'icon-*' --again owl='hands are wrong'",
    "imgbatch review prompts-images --choose fox=2",
    "imgbatch retry prompts-images --rejected --edit",
  ],
  notes: [
    `Decisions are lines of ${REVIEW_FILE} in the directory of the run; the last one about a picture counts. They cost nothing. \`imgbatch retry --rejected\` makes the pictures again, with a price first.`,
  ],
  exits: ["conflict", "saving"],
  run,
};

type NewDecision = Parameters<typeof addDecisions>[1][number];

/** `imgbatch review`: records what a person decides about the pictures of a run, and shows what is decided. */
async function run({
  arguments: [named],
  options,
  cwd,
  clock,
  global,
}: CommandContext): Promise<CommandResult> {
  const shownDir = named ?? (await newestRun(cwd));
  const dir = resolve(cwd, shownDir);
  if ((await readRunState(dir)) === null) throw noRun(shownDir, cwd);
  const lines = await readReviewedLines(dir);
  const review = await readReview(dir);
  // Nothing is written unless all of it can be.
  const decided = [
    ...verdicts(lines, wordsOf(options, "keep"), "--keep", "keep"),
    ...wordsOf(options, "again").flatMap((text) => againOf(lines, text)),
    ...verdicts(lines, wordsOf(options, "drop"), "--drop", "drop"),
  ];
  requireOnce(decided);
  const chosen = wordsOf(options, "choose").flatMap((text) => choiceOf(lines, text, review));
  await addDecisions(dir, [...decided, ...chosen], clock);
  return describe(shownDir, lines, await readReview(dir), global);
}

function wordsOf(options: TypedOptions, name: string): string[] {
  const { [name]: typed } = options;
  return Array.isArray(typed) ? typed.map(String) : [];
}

function verdicts(
  lines: readonly ReviewedLine[],
  ids: readonly string[],
  flag: string,
  verdict: Verdict,
  words?: string,
): NewDecision[] {
  return namedImages(lines, ids, flag).map(({ id, version }) => ({
    id,
    version,
    verdict,
    ...(words !== undefined && { words }),
  }));
}

/** Reads `owl`, `owl,fox` or `owl,fox=what should change`. An id may have a `=` itself. */
function againOf(lines: readonly ReviewedLine[], text: string): NewDecision[] {
  const isId = lines.some(({ id, images }) => id === text || images.some((image) => image.id === text));
  const at = isId ? -1 : text.indexOf("=");
  const words = at < 0 ? "" : text.slice(at + 1).trim();
  const ids = at < 0 ? text : text.slice(0, at);
  return verdicts(lines, [ids], "--again", "again", words === "" ? undefined : words);
}

/** Throws `USAGE` for an image with two verdicts: which one was meant is not known. */
function requireOnce(decided: readonly NewDecision[]): void {
  const seen = new Map<string, NewDecision>();
  for (const decision of decided) {
    const other = seen.get(decision.id);
    if (other !== undefined && other.verdict !== decision.verdict) {
      const message = `${decision.id} has two verdicts, --${other.verdict} and --${decision.verdict}: give it one.`;
      throw new ImgbatchError("USAGE", message, { param: `--${decision.verdict}` });
    }
    seen.set(decision.id, decision);
  }
}

/** The beginning of a SHA-256 that is long enough to name a picture. */
const SHA = /^[0-9a-f]{6,64}$/;

/** Reads `fox=2` and `fox=SHA`. What was said about other images of the line is taken back: one of them is chosen. */
function choiceOf(
  lines: readonly ReviewedLine[],
  text: string,
  review: Awaited<ReturnType<typeof readReview>>,
): NewDecision[] {
  const at = text.lastIndexOf("=");
  const [id, which] = [
    text.slice(0, at),
    text
      .slice(at + 1)
      .trim()
      .toLowerCase(),
  ];
  const wrong = (problem: string) =>
    new ImgbatchError("USAGE", `--choose ${text}: ${problem}.`, { param: "--choose" });
  if (at < 1) throw wrong("write ID=NUMBER, such as fox=2, or ID=SHA for an earlier picture");
  const line = namedLine(lines, id, "--choose");
  const { images, earlier } = line;
  const of = (image: string, version: string, choose: number | string): NewDecision[] => {
    const others = images.filter((each) => each.id !== image && review.verdicts.has(each.id));
    return [
      { id: image, version, verdict: "keep" },
      ...others.map((each) => ({ ...each, verdict: null })),
      { id, version, choose },
    ];
  };
  const number = /^\d{1,4}$/.test(which) ? Number(which) : null;
  if (number !== null) {
    const image = images[number - 1];
    if (image === undefined) throw wrong(`${id} has ${counted(images.length, "image")}`);
    if (image.version === null) throw wrong(`image ${number} of ${id} was not made`);
    return of(image.id, image.version, number);
  }
  if (!SHA.test(which)) throw wrong("write the number of an image, or at least 6 digits of a SHA-256");
  const made = images.flatMap((image) =>
    image.version === null ? [] : [{ id: image.id, version: image.version }],
  );
  const found = [...made, ...earlier].filter(({ version }) => version.startsWith(which));
  const [first] = found;
  const versions = new Set(found.map(({ version }) => version));
  if (first === undefined) throw wrong(`${id} has no picture with this SHA-256, now or earlier`);
  if (versions.size > 1) throw wrong("several pictures begin so; write more of the SHA-256");
  return of(first.id, first.version, first.version);
}

function describe(
  shownDir: string,
  lines: readonly ReviewedLine[],
  review: Awaited<ReturnType<typeof readReview>>,
  global: CommandContext["global"],
): CommandResult {
  const counts = { keep: 0, again: 0, drop: 0, undecided: 0, failed: 0 };
  const decisions: object[] = [];
  const shown: string[] = [];
  for (const line of lines) {
    const choice = review.choices.get(line.id);
    for (const { id, version } of line.images) {
      const last = review.verdicts.get(id);
      // A verdict about a picture that was made again since does not count any more; the choice of an earlier one does.
      const isCurrent = last !== undefined && (last.version === version || last.version === choice?.version);
      const verdict = isCurrent ? last.verdict : null;
      counts[verdict ?? (version === null ? "failed" : "undecided")]++;
      decisions.push({ id, version, verdict, words: isCurrent ? (last.words ?? null) : null });
      if (verdict === "again")
        shown.push(`${id}: again${last?.words === undefined ? "" : `: ${last.words}`}`);
      if (verdict === "drop") shown.push(`${id}: drop`);
    }
    if (choice !== undefined) shown.push(`${line.id}: ${choice.choose} is chosen`);
  }
  const { keep, again, drop, undecided, failed } = counts;
  const said = [
    `${keep} kept`,
    `${again} to make again`,
    `${drop} dropped`,
    `${undecided} undecided`,
    ...(failed === 0 ? [] : [`${failed} without a picture`]),
  ];
  const choices = [...review.choices.values()].map(({ id, version, choose }) => ({ id, version, choose }));
  return {
    json: { directory: shownDir, counts, decisions, choices },
    lines: [...shown, said.join(", ")],
    next: again === 0 ? null : nextCommand(global, "retry", shownDir, { flag: "--rejected" }),
  };
}
