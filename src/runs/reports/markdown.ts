import { costText } from "../../kernel/money.ts";
import { counted, truncateCodePoints } from "../../kernel/text.ts";
import {
  escapeMarkdown,
  fileFacts,
  fileHref,
  printable,
  type ReportImage,
  type RunReport,
  shortDate,
} from "./run-report.ts";

/** The most rows of each kind that are shown; the results have them all. */
const MAX_FAILURES = 50;
const MAX_NOTED = 20;
const MAX_IMAGES = 100;
const MAX_CELL_CHARS = 160;

/**
 * The run in Markdown: how it went, what failed and how to go on, and the images. `directory` is where their links lead, from
 * the Markdown on; null for no links.
 */
export function toMarkdown(report: RunReport, directory: string | null = report.directory): string {
  const { images, failedCount, title, batches, model, cost } = report;
  const good = images.length - failedCount;
  const sign = failedCount === 0 && good > 0 ? "✅" : good === 0 ? "❌" : "⚠️";
  const outcome = [counted(good, "image"), ...(failedCount === 0 ? [] : [`**${failedCount} failed**`])];
  const facts = [
    ...(model === null ? [] : [code(model)]),
    ...(cost === null ? [] : [costText(cost)]),
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
