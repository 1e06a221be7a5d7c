import { resolve } from "node:path";
import { ImgbatchError } from "../../contract/errors.ts";
import type { Verdict } from "../../contract/review-api.ts";
import { counted } from "../../kernel/text.ts";
import { REVIEW_FILE } from "../../runs/directory/names.ts";
import { readRunState } from "../../runs/directory/run-state.ts";
import { decisionOn, readPictures } from "../../runs/reports/review-run.ts";
import {
  addDecisions,
  chooseAmong,
  namedImages,
  namedLine,
  type Review,
  type ReviewedLine,
  readReview,
  readReviewedLines,
} from "../../runs/review.ts";
import { type CommandContext, type CommandResult, defineCommand } from "../command.ts";
import { withChosenFiles } from "../finish-run.ts";
import { judgePictures, readJudge } from "../judge.ts";
import * as option from "../options.ts";
import { nextCommand } from "../output/next-step.ts";
import { noRun } from "../targets.ts";
import { newestRun } from "./open.ts";
import { judgeOptions } from "./shared-options.ts";

const options = {
  noOpen: option.flag({
    flags: "--no-open",
    description: "print the link of the page, and open no browser",
  }),
  keep: option.list({
    flags: "--keep <ids>",
    description: "these pictures are good, such as fox,'icon-*'; may be repeated, as all of these",
  }),
  again: option.list({
    flags: "--again <ids=words>",
    description: "these are to be made again, and what should change, such as owl='hands are wrong'",
  }),
  drop: option.list({ flags: "--drop <ids>", description: "these are not wanted at all" }),
  choose: option.list({
    flags: "--choose <id=which>",
    description:
      "of several images of a prompt, the one with this number, such as fox=2; or an earlier picture, by its SHA-256",
  }),
  ...judgeOptions,
};
type Context = CommandContext<option.Values<typeof options>>;

export const command = defineCommand({
  arguments: [
    {
      name: "[dir]",
      description: "the output directory of a run; without it, this directory, else the newest run in it",
    },
  ],
  options,
  examples: [
    "imgbatch review",
    "imgbatch review prompts-images --no-open",
    "imgbatch review prompts-images --keep 'icon-*' --again owl='six toes'",
    "imgbatch review prompts-images --choose fox=2",
    "imgbatch retry prompts-images --rejected --edit",
  ],
  notes: [
    "Without --keep, --again, --drop and --choose, the pictures open in the browser. Keys in the page: k keep, x make again, d drop, e say what should change, 1–9 choose among the images of a prompt, u undo, arrows another picture, ? all keys.",
    `Each decision is in ${REVIEW_FILE} of the run at once; the last one about a picture counts. The page is served to this machine alone, until Ctrl-C. Its link works once, within 10 minutes.`,
  ],
  exits: ["conflict", "saving"],
  run,
});

type NewDecision = Parameters<typeof addDecisions>[1][number];

/**
 * `imgbatch review`: shows the pictures of a run in the browser, to decide on them, or records the decisions of the options. Says
 * at the end what was decided.
 */
async function run(context: Context): Promise<CommandResult> {
  const { cwd, clock, global, options, output, results } = context;
  const [named] = context.arguments;
  const shownDir = named ?? (await newestRun(cwd));
  const dir = resolve(cwd, shownDir);
  if ((await readRunState(dir)) === null) throw noRun(shownDir, cwd);
  const isTyped =
    option.firstTyped(command.options, options, ["keep", "again", "drop", "choose"]) !== undefined;
  // Nobody would end it in a script.
  const hasPerson = results.isForPeople || options.noOpen;
  const judge = await readJudge(context);
  if (isTyped) await decide(context, dir);
  if (judge !== null) for (const note of (await judgePictures(context, dir))?.notes ?? []) output.note(note);
  if (!isTyped && hasPerson && !global.json) {
    // Loaded only here: the page brings a server.
    const { showReview } = await import("../review-page.ts");
    await showReview(context, { dir, shownDir, opens: !options.noOpen });
  }
  const [{ lines }, review, reviewed] = await Promise.all([
    readPictures(dir, shownDir, clock.nowMs()),
    readReview(dir),
    readReviewedLines(dir),
  ]);
  const result = describe(shownDir, lines, { review, reviewed }, global);
  return withChosenFiles(context, { dir, shownDir }, result);
}

/** Records the decisions of the options: all of them or, if one cannot be, none. */
async function decide({ options, clock }: Context, dir: string): Promise<void> {
  const lines = await readReviewedLines(dir);
  const review = await readReview(dir);
  const decided = [
    ...verdicts(lines, options.keep, "--keep", "keep"),
    ...options.again.flatMap((text) => againOf(lines, text)),
    ...verdicts(lines, options.drop, "--drop", "drop"),
  ];
  requireOnce(decided);
  const chosen = options.choose.flatMap((text) => choiceOf(lines, text, review));
  await addDecisions(dir, [...decided, ...chosen], clock);
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

/** Reads `fox=2` and `fox=SHA`. */
function choiceOf(lines: readonly ReviewedLine[], text: string, review: Review): NewDecision[] {
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
  const of = (image: string, version: string, choose: number | string): NewDecision[] =>
    chooseAmong(line, { id: image, version, verdict: "keep" }, choose, review);
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
  lines: Awaited<ReturnType<typeof readPictures>>["lines"],
  { review, reviewed }: { review: Review; reviewed: readonly ReviewedLine[] },
  global: CommandContext["global"],
): CommandResult {
  const counts = { keep: 0, again: 0, drop: 0, undecided: 0, failed: 0 };
  for (const line of lines)
    counts[line.images.length === 0 ? "failed" : (decisionOn(line, review)?.verdict ?? "undecided")]++;
  const said = [
    `${counts.keep} kept`,
    `${counts.again} to make again`,
    `${counts.drop} dropped`,
    `${counts.undecided} undecided`,
    ...(counts.failed === 0 ? [] : [`${counts.failed} without a picture`]),
  ];
  const decisions = [...review.verdicts.values(), ...review.choices.values()];
  // Images without a picture may be wanted again, too.
  const wanted = reviewed
    .flatMap(({ images }) => images)
    .flatMap(({ id, version }) => {
      const { verdict, words = "", version: seen } = review.verdicts.get(id) ?? {};
      return verdict === "again" && seen === version ? [words] : [];
    });
  // Without --edit, the words of a review change nothing.
  const edit = wanted.every((words) => words !== "") ? [{ flag: "--edit" } as const] : [];
  const again =
    wanted.length === 0 ? null : nextCommand(global, "retry", shownDir, { flag: "--rejected" }, ...edit);
  const goOn = counts.undecided === 0 ? null : nextCommand(global, "review", shownDir);
  return { json: { directory: shownDir, counts, decisions }, lines: [said.join(", ")], next: again ?? goOn };
}
