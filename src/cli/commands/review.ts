import { resolve } from "node:path";
import { readRunState } from "../../runs/directory/run-state.ts";
import { decisionOn, readPictures } from "../../runs/reports/review-run.ts";
import { readReview } from "../../runs/review.ts";
import type { CommandContext, CommandDetails, CommandResult } from "../command.ts";
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
  options: [{ flags: "--no-open", description: "print the link of the page, and open no browser" }],
  examples: ["imgbatch review", "imgbatch review prompts-images", "imgbatch review prompts-images --no-open"],
  notes: [
    "Keys in the page: k keep, x make again, d drop, e say what should change, 1–9 choose among the images of a prompt, u undo, arrows another picture, ? all keys.",
    "Each decision is in review.jsonl of the run at once. The page is served to this machine alone, until Ctrl-C. Its link works once, within 10 minutes.",
  ],
  exits: ["conflict", "saving"],
  run,
};

/** `imgbatch review`: shows the pictures of a run in the browser, to decide on them, and says at the end what was decided. */
async function run(context: CommandContext): Promise<CommandResult> {
  const { cwd, clock, global, options, results } = context;
  const [named] = context.arguments;
  const shownDir = named ?? (await newestRun(cwd));
  const dir = resolve(cwd, shownDir);
  if ((await readRunState(dir)) === null) throw noRun(shownDir, cwd);
  // Nobody would end it in a script.
  const hasPerson = results.isForPeople || options.open === false;
  if (hasPerson && !global.json) {
    // Loaded only here: the page brings a server.
    const { showReview } = await import("../review-page.ts");
    await showReview(context, { dir, shownDir });
  }
  const [{ lines }, review] = await Promise.all([
    readPictures(dir, shownDir, clock.nowMs()),
    readReview(dir),
  ]);
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
  const again = counts.again === 0 ? null : nextCommand(global, "retry", shownDir, { flag: "--rejected" });
  const goOn = counts.undecided === 0 ? null : nextCommand(global, "review", shownDir);
  return { json: { directory: shownDir, counts }, lines: [said.join(", ")], next: again ?? goOn };
}
