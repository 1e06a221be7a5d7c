import { randomBytes } from "node:crypto";
import { appendFile, copyFile, writeFile } from "node:fs/promises";
import { dirname, join, relative, sep } from "node:path";
import { saving } from "../../client/file-errors.ts";
import { makeDirectory } from "../../kernel/files.ts";
import { type Cost, costText, formatUsd, microsToNumber, paidText } from "../../kernel/money.ts";
import { counted, truncateCodePoints } from "../../kernel/text.ts";
import type { FileLine } from "../../prompts/problems.ts";
import type { LockState } from "../lock.ts";
import { type MakeThumbnail, writeGallery } from "./gallery.ts";
import {
  escapeMarkup,
  fileFacts,
  fileHref,
  printable,
  type ReportImage,
  type RunReport,
  shortDate,
} from "./run-report.ts";

/** The requested reports of a run, with their paths. */
interface ReportOptions {
  /** Absolute paths. */
  junit?: string | undefined;
  markdown?: string | undefined;
  gallery: boolean;
  /** Null outside GitHub Actions. */
  actions: ActionsFiles | null;
  loadThumbnail: () => Promise<MakeThumbnail | null>;
  /** A line for people who read a log. */
  say(line: string): void;
  /** A line that GitHub makes an annotation of. */
  annotate(line: string): void;
  signal?: AbortSignal | undefined;
}

/**
 * Writes the reports of a run. Throws `SAVE_FAILED` when a report that the caller named cannot be written. A failure of
 * the contact sheet, or of the files for GitHub, is only noted in a line.
 */
export async function writeReports(dir: string, report: RunReport, options: ReportOptions): Promise<void> {
  const { junit, markdown, gallery, actions, say, signal } = options;
  if (actions !== null) {
    for (const line of annotations(report)) options.annotate(line);
    await orSay(say, "the step summary", () => writeActionsFiles(report, actions));
  }
  if (gallery)
    await orSay(say, "the contact sheet", () =>
      writeGallery(dir, report, { loadThumbnail: options.loadThumbnail, signal }),
    );
  signal?.throwIfAborted();
  if (junit !== undefined) await writeReport(junit, toJunit(report));
  if (markdown === undefined) return;
  const directory = relative(dirname(markdown), dir).replaceAll(sep, "/") || ".";
  await writeReport(markdown, toMarkdown(report, directory));
}

async function writeReport(path: string, text: string): Promise<void> {
  await saving(path, async () => {
    await makeDirectory(dirname(path));
    await writeFile(path, text);
  });
}

async function orSay(say: (line: string) => void, what: string, work: () => Promise<unknown>): Promise<void> {
  try {
    await work();
  } catch (error) {
    say(`could not write ${what}: ${error instanceof Error ? error.message : error}`);
  }
}

/** A line of a lock file as its reports show it. */
export interface CheckedPicture {
  id: string;
  prompt: string | null;
  /** Null for an entry that no prompt has. */
  fileLine: FileLine | null;
  /** The prompt file as typed. */
  file: string;
  state: LockState;
  /** Why, in words; empty for `ok`. */
  reason: string;
  /** From the working directory on, with `/`. */
  files: readonly string[];
  /** What it costs to make it; null where nobody knows. */
  costMicroUsd: number | null;
  /** Several pictures were made, the first is used, and a person has chosen none. */
  isUndecided: boolean;
}

/** Says what it costs to make a picture; empty for nothing. */
export function priceText({ costMicroUsd: micros }: Pick<CheckedPicture, "costMicroUsd">): string {
  if (micros === null) return "its price is not known here";
  return micros === 0 ? "" : `about ${formatUsd(micros)}`;
}

/** A picture whose file has changed. `before` and `now` are null where there was or is no file. */
export interface ChangedPicture {
  id: string;
  /** The file, from the working directory on, with `/`. */
  file: string;
  before: ChangedSide | null;
  now: ChangedSide | null;
}

interface ChangedSide {
  /** Absolute. */
  path: string;
  /** Its address in the repository, for the summary of a job, which cannot show the files of the job; null where it is not known. */
  link: string | null;
}

/** Writes a page with the old pictures beside the new ones into a directory, and the pictures themselves. Throws `SAVE_FAILED`. */
export async function writeComparison(
  dir: string,
  changed: readonly ChangedPicture[],
  title: string,
): Promise<void> {
  const rows: string[] = [];
  for (const { id, file, before, now } of changed) {
    const cells: string[] = [];
    for (const [side, picture] of Object.entries({ before, now })) {
      const name = `${side}/${file.replaceAll(/(^|\/)\.\.(?=\/)/g, "$1_")}`;
      if (picture === null) cells.push(`<td>${side === "now" ? "removed" : "new"}</td>`);
      else {
        const target = join(dir, name);
        await saving(target, async () => {
          await makeDirectory(dirname(target));
          await copyFile(picture.path, target);
        });
        cells.push(
          `<td><a href="${escapeMarkup(fileHref(name))}"><img src="${escapeMarkup(fileHref(name))}" alt=""></a></td>`,
        );
      }
    }
    rows.push(
      `<tr><th>${escapeMarkup(id)}<br><small>${escapeMarkup(file)}</small></th>${cells.join("")}</tr>`,
    );
  }
  const page = `<!doctype html>
<html lang="en"><meta charset="utf-8"><title>${escapeMarkup(title)}</title>
<style>body{font:16px system-ui;margin:2rem}td,th{padding:.5rem;vertical-align:top;text-align:left}img{max-width:40vw;max-height:60vh}</style>
<h1>${escapeMarkup(title)}: ${counted(changed.length, "picture")} changed</h1>
<table><tr><th></th><th>before</th><th>now</th></tr>
${rows.join("\n")}
</table></html>
`;
  await writeReport(join(dir, "index.html"), page);
}

/** Writes the reports of lock files. Throws `SAVE_FAILED` for one that the caller named and that cannot be written. */
export async function writeCheckReports(
  pictures: readonly CheckedPicture[],
  {
    title,
    at,
    summary,
    changed = [],
    ...options
  }: Pick<ReportOptions, "junit" | "markdown" | "actions" | "say" | "annotate"> & {
    title: string;
    /** ISO 8601 in UTC. */
    at: string;
    summary: string;
    /** Pictures to show beside their earlier ones. Default: none. */
    changed?: readonly ChangedPicture[];
  },
): Promise<void> {
  const { junit, markdown, actions, say } = options;
  const images = pictures.map(asCase);
  const failedCount = images.filter(({ error }) => error !== null).length;
  const report: CaseReport = {
    title,
    images,
    failedCount,
    directory: title,
    directoryFromRoot: ".",
    startedAt: at,
    endedAt: at,
    model: null,
    batches: [],
    cost: null,
    paidNowMicroUsd: 0,
  };
  const markdownOf = (linkOf: (side: ChangedSide) => string | null) =>
    [checkMarkdown(pictures, title, summary), ...changedRows(changed, linkOf)].join("\n");
  if (actions !== null) {
    for (const line of annotations(report)) options.annotate(line);
    const { summary: file } = actions;
    if (file !== undefined)
      await orSay(say, "the step summary", () => appendFile(file, `${markdownOf(({ link }) => link)}\n`));
  }
  if (junit !== undefined) await writeReport(junit, toJunit(report));
  if (markdown === undefined) return;
  const linkOf = ({ path }: ChangedSide) => fileHref(relative(dirname(markdown), path).replaceAll(sep, "/"));
  await writeReport(markdown, markdownOf(linkOf));
}

/** A report as JUnit and annotations need it. */
interface CaseReport
  extends Pick<
    RunReport,
    | "title"
    | "failedCount"
    | "startedAt"
    | "endedAt"
    | "directory"
    | "directoryFromRoot"
    | "model"
    | "batches"
    | "cost"
    | "paidNowMicroUsd"
  > {
  images: readonly CaseImage[];
}

interface CaseImage extends Pick<ReportImage, "id" | "prompt" | "notes" | "error" | "tookMs" | "fileLine"> {
  files: readonly { path: string }[];
}

function asCase({ id, prompt, fileLine, state, reason, files, ...cost }: CheckedPicture): CaseImage {
  const price = priceText(cost);
  const message = price === "" ? reason : `${reason} (${price})`;
  const error = state === "ok" ? null : { code: state, message };
  return { id, prompt, fileLine, files: files.map((path) => ({ path })), error, notes: [], tookMs: null };
}

/** Old pictures beside the new ones, in Markdown. `linkOf` returns the address of a picture; null for none. */
function changedRows(
  changed: readonly ChangedPicture[],
  linkOf: (side: ChangedSide) => string | null,
): string[] {
  if (changed.length === 0) return [];
  const side = (picture: ChangedSide | null, word: string) => {
    if (picture === null) return word;
    const link = linkOf(picture);
    return link === null ? "see the page of the job" : `<img src="${escapeMarkup(link)}" width="300" alt="">`;
  };
  return [
    "| picture | before | now |",
    "|---|---|---|",
    ...changed
      .slice(0, MAX_FAILURES)
      .map(({ id, before, now }) => `| ${cell(id)} | ${side(before, "new")} | ${side(now, "removed")} |`),
    ...(changed.length > MAX_FAILURES ? ["", `… and ${changed.length - MAX_FAILURES} more.`] : []),
    "",
  ];
}

/** The prompts whose pictures are not right, in Markdown. */
function checkMarkdown(pictures: readonly CheckedPicture[], title: string, summary: string): string {
  const wrong = pictures.filter(({ state }) => state !== "ok");
  const rows = wrong
    .slice(0, MAX_FAILURES)
    .map(({ id, state, reason, files, fileLine, ...cost }) =>
      row([
        id,
        state,
        reason,
        priceText(cost),
        files.join(", "),
        fileLine === null ? "" : `${fileLine.file}:${fileLine.line}`,
      ]),
    );
  return [
    `### ${wrong.length === 0 ? "✅" : "⚠️"} ${cell(title)}: ${escapeMarkdown(summary)}`,
    "",
    ...(wrong.length === 0
      ? []
      : [
          "| picture | state | why | costs | files | prompt |",
          "|---|---|---|---|---|---|",
          ...rows,
          ...(wrong.length > MAX_FAILURES ? ["", `… and ${wrong.length - MAX_FAILURES} more.`] : []),
          "",
        ]),
  ].join("\n");
}

/** The files into which a step of GitHub Actions writes its summary and outputs. Undefined where there is none. */
interface ActionsFiles {
  summary: string | undefined;
  output: string | undefined;
  /** The output `directory`. Default: as the caller named it. */
  directory?: string;
}

/** GitHub shows this many annotations of a step, and takes this much of a summary. */
const MAX_ANNOTATIONS = 10;
const MAX_SUMMARY_BYTES = 1_000_000;

/**
 * Appends the step's summary, and its outputs `batch_id` (several between blanks), `directory`, `success_count` and
 * `fail_count`. A summary that does not fit into the file is left out.
 */
async function writeActionsFiles(report: RunReport, files: ActionsFiles): Promise<void> {
  // A link of a summary leads to no file of the job.
  const summary = toMarkdown(report, null);
  if (files.summary !== undefined && Buffer.byteLength(summary) <= MAX_SUMMARY_BYTES)
    await appendFile(files.summary, `${summary}\n`);
  if (files.output !== undefined) await appendFile(files.output, outputText(report, files.directory));
}

function outputText(
  { batches, directory: shown, images, failedCount }: RunReport,
  directory = shown,
): string {
  const values = {
    batch_id: batches.map(({ id }) => id).join(" "),
    directory,
    success_count: images.length - failedCount,
    fail_count: failedCount,
  };
  // A value cannot end its own text early: it does not know the delimiter.
  const end = `imgbatch_${randomBytes(16).toString("hex")}`;
  return Object.entries(values)
    .map(([name, value]) => `${name}<<${end}\n${value}\n${end}\n`)
    .join("");
}

/** Returns the failures as annotations, a line each, with file and line of the prompt. The last line counts the failures that are not shown. */
function annotations({ images, failedCount, directory }: CaseReport): string[] {
  const shown = failedCount > MAX_ANNOTATIONS ? MAX_ANNOTATIONS - 1 : failedCount;
  const failed = images.filter((image) => image.error !== null).slice(0, shown);
  const lines = failed.map(({ id, error, fileLine }) =>
    annotation(`${id}: ${error?.code}`, error?.message ?? "", fileLine),
  );
  const more = failedCount - shown;
  return more > 0
    ? [...lines, annotation("imgbatch", `${more} more images failed; see results.jsonl in ${directory}`)]
    : lines;
}

function annotation(title: string, message: string, fileLine: ReportImage["fileLine"] = null): string {
  const at = fileLine === null ? "" : `file=${escapeProperty(fileLine.file)},line=${fileLine.line},`;
  return `::error ${at}title=${escapeProperty(title)}::${escapeData(message)}`;
}

function escapeData(text: string): string {
  return text.replaceAll("%", "%25").replaceAll("\r", "%0D").replaceAll("\n", "%0A");
}

function escapeProperty(text: string): string {
  return escapeData(text).replaceAll(":", "%3A").replaceAll(",", "%2C");
}

/** The most rows of each kind that are shown; the results have them all. */
const MAX_FAILURES = 50;
const MAX_NOTED = 20;
const MAX_IMAGES = 100;
const MAX_CELL_CHARS = 160;

/**
 * The run in Markdown: how it went, what failed and how to go on, and the images. `directory` is where their links lead, from
 * the Markdown on; null for no links.
 */
function toMarkdown(report: RunReport, directory: string | null = report.directory): string {
  const { images, failedCount, title, batches, model, cost } = report;
  const good = images.length - failedCount;
  const sign = failedCount === 0 && good > 0 ? "✅" : good === 0 ? "❌" : "⚠️";
  const outcome = [counted(good, "image"), ...(failedCount === 0 ? [] : [`**${failedCount} failed**`])];
  const facts = [
    ...(model === null ? [] : [code(model)]),
    ...(cost === null ? [] : [paidText(cost, report.paidNowMicroUsd)]),
    shortDate(report.endedAt),
    ...batches.map(({ id, status }) => `${code(id)} (${escapeMarkdown(status)})`),
  ];
  return [
    `### ${sign} ${cell(title)}: ${outcome.join(", ")}`,
    "",
    facts.join(" · "),
    "",
    ...failureRows(report),
    ...noteRows(report),
    ...imageRows(report, directory),
    "",
  ].join("\n");
}

function failureRows({ images, failedCount, retryCommand }: RunReport): string[] {
  if (failedCount === 0) return [];
  const failed = images.filter((image) => image.error !== null);
  const rows = failed
    .slice(0, MAX_FAILURES)
    .map(({ id, error, prompt }) => row([id, error?.code ?? "", error?.message ?? "", prompt ?? ""]));
  return [
    "| failed | code | why | prompt |",
    "|---|---|---|---|",
    ...rows,
    ...rest(failed.length - MAX_FAILURES),
    "",
    ...(retryCommand === null ? [] : ["Try these again:", "", "```sh", printable(retryCommand), "```", ""]),
  ];
}

function noteRows({ images }: RunReport): string[] {
  const noted = images.filter(({ notes }) => notes.length > 0);
  if (noted.length === 0) return [];
  return [
    "| image | notes |",
    "|---|---|",
    ...noted.slice(0, MAX_NOTED).map(({ id, notes }) => row([id, notes.join("; ")])),
    ...rest(noted.length - MAX_NOTED),
    "",
  ];
}

function imageRows({ images }: RunReport, directory: string | null): string[] {
  const good = images.filter((image) => image.error === null);
  if (good.length === 0) return [];
  const rows = good.slice(0, MAX_IMAGES).map((image) => imageRow(image, directory));
  return [
    `<details><summary>${counted(good.length, "image")}</summary>`,
    "",
    "| image | size | prompt |",
    "|---|---|---|",
    ...rows,
    ...rest(good.length - MAX_IMAGES),
    "",
    "</details>",
  ];
}

function imageRow({ id, files, prompt }: ReportImage, directory: string | null): string {
  const [file] = files;
  const place = directory === null ? null : fileHref(directory.replace(/[\\/]+$/, ""));
  const name = place === null ? cell(id) : `[${cell(id)}](<${place}/${fileHref(file?.path ?? "")}>)`;
  const facts = file === undefined ? "" : fileFacts(file).join(", ");
  return `| ${name} | ${cell(facts)} | ${cell(prompt ?? "")} |`;
}

function rest(count: number): string[] {
  return count > 0 ? ["", `… and ${count} more in \`results.jsonl\`.`] : [];
}

function row(cells: readonly string[]): string {
  return `| ${cells.map(cell).join(" | ")} |`;
}

function cell(text: string): string {
  return escapeMarkdown(truncateCodePoints(text, MAX_CELL_CHARS, "…"));
}

function code(text: string): string {
  return `<code>${escapeMarkdown(text)}</code>`;
}

/** Formatting, tags, mentions, addresses, emoji names and issue numbers; at the start, what begins a heading or a list. */
const MARKDOWN =
  /[\\`*[\]|~<>&@]|(?<![a-z0-9])_|_(?![a-z0-9])|:(?=\/\/|[\w+-]+:)|(?<=\bwww)\.|#(?=\d)|^[#+-]/gi;

/** For one line of Markdown, inside a table too: nothing in it is formatting, a link, a mention or a tag. */
function escapeMarkdown(text: string): string {
  return printable(text)
    .replace(/\s+/g, " ")
    .replace(MARKDOWN, (c) => `&#${c.charCodeAt(0)};`);
}

/**
 * Formats a run as JUnit XML: one suite with a test case for each image, so that CI systems list each failure with its
 * reason. It has every attribute and element that strict readers of the format require.
 */
function toJunit(report: CaseReport): string {
  const { images, failedCount, title } = report;
  const seconds = Math.max(0, Date.parse(report.endedAt) - Date.parse(report.startedAt)) / 1000;
  const counts = { tests: images.length, failures: failedCount, errors: 0, time: seconds.toFixed(3) };
  const suite = {
    id: 0,
    package: "imgbatch",
    name: title,
    ...counts,
    skipped: 0,
    timestamp: report.endedAt.slice(0, 19),
    hostname: "localhost",
  };
  const properties = propertiesOf(report).map(
    ([name, value]) => `      <property${attributes({ name, value })}/>`,
  );
  return [
    '<?xml version="1.0" encoding="UTF-8"?>',
    `<testsuites${attributes({ name: "imgbatch", ...counts })}>`,
    `  <testsuite${attributes(suite)}>`,
    "    <properties>",
    ...properties,
    "    </properties>",
    ...images.map((image) => testCase(image, report)),
    "    <system-out/>",
    "    <system-err/>",
    "  </testsuite>",
    "</testsuites>",
    "",
  ].join("\n");
}

function propertiesOf({ model, batches, cost, paidNowMicroUsd, directory }: CaseReport): [string, string][] {
  return [
    ["directory", directory],
    ...(model === null ? [] : [["model", model] as [string, string]]),
    ...batches.map(({ id }): [string, string] => ["batch_id", id]),
    ...(cost === null ? [] : costsOf(cost, paidNowMicroUsd)),
  ];
}

/** What this run of the command paid; what earlier ones had paid stands apart, so that a sum over runs is what was spent. */
function costsOf(cost: Cost, nowMicroUsd: number): [string, string][] {
  if (cost.isPlay) return [["cost", costText(cost)]];
  const before = cost.micros - nowMicroUsd;
  return [
    ["cost_usd", String(microsToNumber(nowMicroUsd))],
    ...(before > 0 ? [["cost_usd_earlier", String(microsToNumber(before))] as [string, string]] : []),
  ];
}

function testCase(
  { id, prompt, files, notes, error, tookMs }: CaseImage,
  { title, directoryFromRoot }: CaseReport,
): string {
  const head = `    <testcase${attributes({ name: id, classname: title, time: ((tookMs ?? 0) / 1000).toFixed(3) })}>`;
  const said = [...(prompt === null ? [] : [prompt]), ...notes];
  const body =
    error === null
      ? // The second kind of line makes GitLab show the picture beside the test.
        element("system-out", [
          ...said,
          ...files.map(({ path }) => `[[ATTACHMENT|${directoryFromRoot.replace(/[\\/]+$/, "")}/${path}]]`),
        ])
      : element("failure", [`${error.code}: ${error.message}`, ...said], {
          message: `${error.code}: ${error.message}`,
          type: error.code,
        });
  return `${head}\n      ${body}\n    </testcase>`;
}

function element(
  name: string,
  lines: readonly string[],
  values: Readonly<Record<string, string>> = {},
): string {
  return `<${name}${attributes(values)}>${escapeMarkup(lines.join("\n"))}</${name}>`;
}

function attributes(values: Readonly<Record<string, string | number>>): string {
  return Object.entries(values)
    .map(([name, value]) => ` ${name}="${escapeAttribute(String(value))}"`)
    .join("");
}

/** For an XML attribute, where a plain line break would be read as a blank. */
function escapeAttribute(text: string): string {
  return escapeMarkup(text).replace(/[\t\n\r]/g, (c) => `&#${c.charCodeAt(0)};`);
}
