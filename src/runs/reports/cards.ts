import type { ResultFile } from "../directory/results-file.ts";
import { escapeMarkup } from "./escape.ts";
import { fileFacts } from "./facts.ts";
import { fileHref, type ReportImage } from "./run-report.ts";

/** A list element of the contact sheet. `sources` are the addresses of the small pictures, in the order of the files. */
export function cardOf(image: ReportImage, sources: readonly string[]): string {
  const { id, prompt, files, origin, notes, error } = image;
  const pictures = error === null ? picturesOf(image, sources) : failurePanel(error);
  const said = prompt === null ? "" : `<p class="prompt" dir="auto">${escapeMarkup(prompt)}</p>`;
  const [first] = files;
  const size = first === undefined ? "" : line("size", sizeOf(first, files.length));
  const made = origin.length === 0 ? "" : line("made", origin.join(" · "));
  const noted = notes.map((note) => line("note", note)).join("");
  const about = `${said}<p class="id"><bdi>${escapeMarkup(id)}</bdi></p>${size}${made}${noted}`;
  return `<li class="${error === null ? "ok" : "fail"}">${pictures}<div class="about">${about}</div></li>\n`;
}

function line(name: string, text: string): string {
  return `<p class="${name}" dir="auto">${escapeMarkup(text)}</p>`;
}

function picturesOf({ id, files }: ReportImage, sources: readonly string[]): string {
  const [main = "", ...others] = files.map((file, i) => picture(id, file, sources[i] ?? ""));
  return others.length === 0 ? main : `${main}<div class="more">${others.join("")}</div>`;
}

function picture(id: string, file: ResultFile, source: string): string {
  const href = escapeMarkup(fileHref(file.path));
  if (file.entry !== undefined)
    return `<a class="pic zip" href="${href}">${escapeMarkup(file.entry)}<br>in ${escapeMarkup(file.path)}</a>`;
  const name = escapeMarkup(`Open ${id}`);
  return `<a class="pic" href="${href}" aria-label="${name}"><img src="${escapeMarkup(source)}" alt="" loading="lazy" decoding="async"></a>`;
}

function failurePanel({ code, message }: { code: string; message: string }): string {
  return `<button type="button" class="pic"><span class="code">${escapeMarkup(code)}</span>\n<span class="why" dir="auto">${escapeMarkup(message)}</span></button>`;
}

function sizeOf(file: ResultFile, count: number): string {
  return [...fileFacts(file), ...(count > 1 ? [`${count} files`] : [])].join(" · ");
}
