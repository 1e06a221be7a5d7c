import { costText } from "../../kernel/money.ts";
import { counted } from "../../kernel/text.ts";
import { escapeMarkup } from "./escape.ts";
import { shortDate } from "./facts.ts";
import type { ReportImage, RunReport } from "./run-report.ts";

/** The texts above and below the images of the contact sheet: the values for the slots of its template. */
export function pageSlots(report: RunReport): Record<string, string> {
  const { title, images, failedCount } = report;
  return {
    title: escapeMarkup(title),
    facts: factsOf(report),
    failures: failuresOf(report),
    all: String(images.length),
    ok: String(images.length - failedCount),
    failed: String(failedCount),
    footer: `Made by imgbatch. The images lie beside this page, in <code>images/</code>; what is known of each is in <code>results.jsonl</code>.`,
  };
}

function factsOf({ images, failedCount, model, cost, endedAt, batches }: RunReport): string {
  const good = images.length - failedCount;
  const facts = [
    escapeMarkup(counted(good, "image")),
    ...(model === null ? [] : [`<code>${escapeMarkup(model)}</code>`]),
    ...(cost === null ? [] : [costText(cost)]),
    `<time datetime="${escapeMarkup(endedAt)}">${escapeMarkup(shortDate(endedAt))}</time>`,
  ];
  const ids = batches.map(({ id, status }) => `<code>${escapeMarkup(id)}</code> ${escapeMarkup(status)}`);
  if (ids.length === 1) facts.push(...ids);
  const line = `<p class="facts">${facts.map((fact) => `<span>${fact}</span>`).join("")}</p>`;
  if (ids.length < 2) return line;
  const list = ids.map((id) => `<li>${id}</li>`).join("");
  return `${line}\n<details class="batches"><summary>${ids.length} batches</summary><ul>${list}</ul></details>`;
}

function failuresOf({ images, failedCount, retryCommand }: RunReport): string {
  if (failedCount === 0) return "";
  const codes = countCodes(images).map(([code, count]) => `${escapeMarkup(code)} ${count}`);
  const command =
    retryCommand === null
      ? ""
      : `<div class="command"><code>${escapeMarkup(retryCommand)}</code><button type="button" class="plain copy">Copy</button></div>`;
  return `<div class="failed-note"><p><strong>${counted(failedCount, "image")} failed</strong></p><p class="codes">${codes.join(" · ")}</p>${command}</div>`;
}

/** The codes of the failures, the most frequent first. */
function countCodes(images: readonly ReportImage[]): [string, number][] {
  const counts = new Map<string, number>();
  for (const { error } of images)
    if (error !== null) counts.set(error.code, (counts.get(error.code) ?? 0) + 1);
  return [...counts].sort(([, a], [, b]) => b - a);
}
