import { ImgbatchError } from "../../contract/errors.ts";
import { expandedCustomIds } from "../../contract/limits.ts";
import type { ReviewDecision, ReviewImage, ReviewLine, ReviewPicture } from "../../contract/review-api.ts";
import { formatDuration } from "../../kernel/durations.ts";
import { groupBy } from "../../kernel/json.ts";
import { formatUsd, numberToMicros } from "../../kernel/money.ts";
import { findOddities } from "../checks.ts";
import { type RunInput, readRunInput } from "../directory/input.ts";
import { readResults, readVersions } from "../directory/results.ts";
import { isImagePath, isVersionPath, type ResultFile } from "../directory/run-files.ts";
import { readRunState } from "../directory/run-state.ts";
import { type Decision, type Review, versionOf } from "../review.ts";
import { buildReport, fileFacts, type ReportImage, type RunReport } from "./run-report.ts";

/** A run as its review shows it, and where its pictures are. */
export interface ReviewedPictures {
  title: string;
  /** In the order of the prompts. */
  lines: Omit<ReviewLine, "decision">[];
  /** Paths from the run's directory on, by SHA-256. Nothing else is a picture of the run. */
  pictures: ReadonlyMap<string, string>;
}

/**
 * Reads what the review of a run shows, without the decisions, which change much more often. Throws `DIRECTORY_CONFLICT` for a
 * directory that is no run any more.
 */
export async function readPictures(dir: string, shownDir: string, nowMs: number): Promise<ReviewedPictures> {
  const state = await readRunState(dir);
  if (state === null) throw new ImgbatchError("DIRECTORY_CONFLICT", `${shownDir} is no run any more.`);
  const [lines, input] = await Promise.all([readResults(dir), readRunInput(dir)]);
  const versions = groupBy(await readVersions(dir), (line) => line.custom_id);
  const shownVersions = (id: string) =>
    (versions.get(id) ?? []).flatMap(({ files }) => files.filter(({ path }) => isVersionPath(path)));
  const model = state.request?.model ?? null;
  const oddities = findOddities(dir, lines, input);
  const report = buildReport({
    directory: shownDir,
    name: null,
    model,
    state,
    lines,
    input,
    nowMs,
    oddities,
  });
  const pictures = new Map<string, string>();
  const picture = ({ sha256, path, width = null, height = null }: Named): ReviewPicture => {
    pictures.set(sha256, path);
    return { sha256, width, height };
  };
  const shown = linesOf(report, input).map(({ id, images: own }) => {
    const [first] = own;
    const images = own.flatMap(({ id: imageId, files }, index) =>
      files.filter(isShown).map((file, more) => ({
        ...picture(file),
        id: imageId,
        number: index + more + 1,
        version: versionOf(file),
      })),
    );
    const failed = own.find(({ error }) => error !== null)?.error ?? null;
    const references = input.get(first?.id ?? "")?.reference_images ?? [];
    return {
      id,
      prompt: first?.prompt ?? "",
      images,
      error: failed === null && images.length === 0 ? PACKED : failed,
      notes: [...new Set(own.flatMap(({ notes }) => notes))],
      odd: own.flatMap((image, index) =>
        image.odd.map((text) => (own.length === 1 ? text : `image ${index + 1}: ${text}`)),
      ),
      facts: factsOf(own, report),
      earlier: own
        .flatMap((image) => shownVersions(image.id))
        .reverse()
        .map((file) => ({ ...picture(file), version: versionOf(file), words: "" })),
      references: references.map(({ path }) => picture({ path, sha256: path.replace(/^.*\//, "") })),
    };
  });
  return { title: report.title, lines: shown, pictures };
}

type Named = Pick<ResultFile, "sha256" | "path"> & Partial<Pick<ResultFile, "width" | "height">>;

/** A picture in a ZIP that was kept has no file of its own. */
function isShown({ entry, path }: ResultFile): boolean {
  return entry === undefined && isImagePath(path);
}

/** Returns what counts for a line now. A decision about a picture that was made again since does not. */
export function decisionOn(
  { id, images, earlier }: Pick<ReviewLine, "id" | "images" | "earlier">,
  review: Review,
): ReviewDecision | null {
  const found = [...new Set(images.map((image) => image.id))].map((imageId) =>
    verdictOn(images, imageId, review),
  );
  const again = found.find((each) => each?.verdict === "again");
  if (again) return { verdict: "again", chosen: null, words: again.words ?? "" };
  const choice = review.choices.get(id);
  const chosen = [...images, ...earlier].find(({ version }) => version === choice?.version)?.version ?? null;
  const kept = found.find((each) => each?.verdict === "keep");
  if (chosen !== null || kept) return { verdict: "keep", chosen, words: kept?.words ?? "" };
  const [dropped] = found;
  if (!dropped || found.includes(null)) return null;
  return { verdict: "drop", chosen: null, words: dropped.words ?? "" };
}

function verdictOn(images: readonly ReviewImage[], id: string, { verdicts }: Review) {
  const verdict = verdicts.get(id);
  const isCurrent = images.some((image) => image.id === id && image.version === verdict?.version);
  return isCurrent && verdict ? verdict : null;
}

/** Names the judge that has decided about the pictures of a line, with its scores; nothing where no program did. */
export function judgedFacts({ images }: Pick<ReviewLine, "images">, review: Review): ReviewLine["facts"] {
  const judged = images.flatMap(({ id, number }) => {
    const verdict = verdictOn(images, id, review);
    return verdict?.judge === undefined ? [] : [{ ...verdict, number }];
  });
  const [first] = judged;
  if (first === undefined) return [];
  const scores = judged.flatMap(({ score, number }) =>
    score === undefined ? [] : [images.length === 1 ? `score ${score}` : `image ${number} score ${score}`],
  );
  return [["judged by", [first.judge, ...scores].join(" · ")]];
}

type NewDecision = Omit<Decision, "date">;

/** Returns what a decision about a line appends to `review.jsonl`, and what takes it back. */
export function decisionsFor(
  { id, images, earlier }: Pick<ReviewLine, "id" | "images" | "earlier">,
  { verdict, chosen, words }: ReviewDecision,
  review: Review,
): { made: NewDecision[]; undo: NewDecision[] } {
  const made: NewDecision[] = [];
  const undo: NewDecision[] = [];
  const give = (decision: NewDecision, before: Decision | undefined, none: NewDecision) => {
    made.push(decision);
    const { date: _, ...again } = before ?? { date: "", ...none };
    undo.push(again);
  };
  const firsts = images.filter((image, index) => images.findIndex((each) => each.id === image.id) === index);
  const isEarlier = earlier.some(({ version }) => version === chosen);
  // An earlier version of several images may be that of any of them.
  const chosenId = images.find(({ version }) => version === chosen)?.id ?? (isEarlier ? id : undefined);
  for (const { id: imageId, version: first } of firsts) {
    const isMeant = chosenId === undefined || chosenId === imageId;
    const version = imageId === chosenId ? chosen : first;
    const before = review.verdicts.get(imageId);
    const none = { id: imageId, version, verdict: null };
    if (isMeant) give({ ...none, verdict, ...(words === "" ? {} : { words }) }, before, none);
    else if (before) give(none, before, none);
  }
  const choice = review.choices.get(id);
  const image = images.find(({ version }) => version === chosen);
  if (image) {
    const { version, number } = image;
    give({ id, version, choose: number }, choice, { id, version, choose: null });
  } else if (chosen !== null && isEarlier) {
    give({ id, version: chosen, choose: chosen }, choice, { id, version: chosen, choose: null });
  } else if (choice) {
    const none = { id, version: choice.version, choose: null };
    give(none, choice, none);
  }
  return { made, undo };
}

const PACKED = {
  code: "PACKED",
  message: "The picture is in a ZIP that was kept, which the review does not open.",
};

/** The images of each line of the prompts. Without the prompts, each image is a line. */
function linesOf({ images }: RunReport, input: RunInput): { id: string; images: ReportImage[] }[] {
  const ids = new Map<string, string>();
  for (const { custom_id, output_count = 1 } of input.lines())
    for (const id of expandedCustomIds(custom_id, output_count)) ids.set(id, custom_id);
  const lines = groupBy(images, ({ id }) => ids.get(id) ?? id);
  return [...lines].map(([id, own]) => ({ id, images: own }));
}

/** What is known of the images of a line besides the prompt. */
function factsOf(
  images: readonly ReportImage[],
  { cost, makers }: RunReport,
): [name: string, text: string][] {
  const [first] = images;
  if (first === undefined) return [];
  const [file] = first.files;
  const costs = images.flatMap((image) => image.cost ?? []);
  const tookMs = Math.max(...images.map((image) => image.tookMs ?? 0));
  const rows: [string, string | null][] = [
    ["model", first.variant.values.get("model") ?? makers[0] ?? null],
    ["asked for", first.options.join(" · ")],
    ["picture", file === undefined ? null : fileFacts(file).join(" · ")],
    ["file", file?.path ?? null],
    ["made", first.origin.join(" · ")],
    [
      "cost",
      costs.length === 0 || cost?.isPlay === true
        ? null
        : formatUsd(costs.reduce((sum, each) => sum + numberToMicros(each), 0)),
    ],
    ["made in", tookMs === 0 ? null : formatDuration(tookMs)],
    ["prompt file", first.fileLine === null ? null : `${first.fileLine.file}:${first.fileLine.line}`],
    ...first.metadata.map(([name, text]): [string, string] => [name, text]),
  ];
  return rows.filter((row): row is [string, string] => row[1] !== null && row[1] !== "");
}
