import { MOST_SEED } from "../contract/image-formats.ts";
import { customIdProblem, FIXED_LIMITS, type Limits } from "../contract/limits.ts";
import { didYouMean } from "../kernel/did-you-mean.ts";
import { codePointLength, hasUnstorableText, truncateCodePoints } from "../kernel/text.ts";
import { type FormatName, isBlank, isNoValue, isWordless } from "./lines.ts";
import { checkOptions, OPTION_FIELDS, type Options } from "./options.ts";
import type { FileLine, Report } from "./problems.ts";
import { checkFiles, FILE_FIELDS, type FileRules, type LineFiles, type WantedFile } from "./wanted-files.ts";

/** The fields of a line. Any other one counts as metadata. */
export const FIELDS: readonly string[] = [
  "prompt",
  "vars",
  "custom_id",
  "output_count",
  "reference_images",
  "model",
  ...OPTION_FIELDS,
  ...FILE_FIELDS,
  "metadata",
];
/** Names of other programs, and of our own API, for fields. */
const OTHER_NAMES: Readonly<Record<string, string>> = {
  image_size: "size",
  imageSize: "size",
  aspectRatio: "aspect_ratio",
  negativePrompt: "negative_prompt",
};
/** The names that data sets have for the prompt of a picture. */
const CAPTIONS = [
  "prompts",
  "caption",
  "captions",
  "text",
  "texts",
  "description",
  "instruction",
  "sentence",
];

/** Returns the name among those of a line that is most likely its prompt. */
export function captionIn(names: readonly string[]): string | undefined {
  const found = CAPTIONS.map((caption) => names.find((name) => name.toLowerCase() === caption));
  return found.find((name) => name !== undefined);
}

/** What a line of a run's own input, given as a prompt file, has besides: where its prompt was read at first, and a digest. */
const OF_INPUT = ["source", "digest"];
/** The part of a data URL before its data is no longer. */
const MOST_URL_HEAD = 200;
const REFERENCE_FIELDS = ["path", "data", "mime_type", "id", "type"];

/** A row of a prompt file with everything checked but its reference images. */
export interface CheckedRow extends Options {
  customId: string | null;
  prompt: string;
  outputCount: number;
  references: ReferenceSpec[];
  /** Absent: that of the run. */
  model?: string;
  /** The files that are made of its pictures. Absent for none. */
  files?: WantedFile[];
  /** Kept for the results: the fields that are not known here, and those inside `metadata`. Null for none. */
  metadata: Record<string, unknown> | null;
  /** Absent in prompt files that no run has written. */
  source?: RowSource;
  fileLine: FileLine;
  /** The number of the row in the run, from 1. Rows that a list has made share it. */
  number: number;
  /** Which of the rows of its line it is; null for a row without lists. */
  variant: Variant | null;
}

/** The source of a prompt: the id as typed (absent without one), file and line. */
export interface RowSource {
  id?: string;
  file: string;
  line: number;
  /** The values of the lists that made the prompt, by name. */
  values?: Record<string, string>;
  /** The files that are made of its pictures besides those of the run. Paths of directories lead from that of the run. */
  files?: LineFiles;
}

/** Which of the rows of a line it is. */
export interface Variant {
  /** The id that its values give it, unless another image has it. */
  stem: string;
  /** The values of its lists, by name. */
  values: Record<string, string>;
}

/** A reference image as the line names it, not yet read. */
export interface ReferenceSpec {
  /** `reference_images[0]`, for messages. */
  field: string;
  id?: string;
  type?: string;
  /** As written: relative to the prompt file. */
  path?: string;
  /** Base64, with the type that goes with it. */
  inline?: { data: string; mimeType: string };
}

export interface RowRules {
  limits: Limits;
  /** The `output_count` of lines that have none. */
  defaultCount: number;
  /** The format of all files. Default: by the ending of each, else JSON lines. */
  format?: FormatName | null;
  /** Report every unknown field and variable, instead of keeping it as metadata or text. Default: false. */
  isStrict?: boolean;
  /** What holds for the files that are made of pictures. Default: none are made, and lines that want some have a problem. */
  files?: FileRules;
  /** Gets the names of all metadata. */
  kept?: Set<string>;
}

/** Checks every field of a row and reports each problem. The result is valid only if nothing was reported. */
export function checkRow(
  fields: Record<string, unknown>,
  rules: RowRules,
  report: Report,
): Omit<CheckedRow, "fileLine" | "number" | "variant"> {
  const metadata = checkMetadata(fields, rules, report);
  const outputCount = checkCount(fields.output_count ?? rules.defaultCount, rules.limits, report);
  const options = checkOptions(fields, report);
  const { seed = 0 } = options;
  if (seed + outputCount - 1 > MOST_SEED)
    report("seed", `${seed}: the last of ${outputCount} images would have a seed above ${MOST_SEED}`);
  const files = checkFiles(fields, rules.files ?? null, report);
  return {
    metadata,
    prompt: checkPrompt(fields, rules.limits.promptChars, report),
    customId: checkCustomId(fields.custom_id, report),
    outputCount,
    references: checkReferences(fields.reference_images, report),
    ...options,
    ...checkModel(fields.model, report),
    ...(files.length > 0 ? { files } : {}),
    ...(isSource(fields.source) ? { source: ownSource(fields.source) } : {}),
  };
}

const MOST_MODEL_CHARS = 200;
/** A message repeats no more of a value. */
const MOST_SHOWN = 100;

function checkModel(value: unknown, report: Report): { model?: string } {
  if (value === undefined || value === null) return {};
  const model = typeof value === "string" ? value.trim() : "";
  if (model !== "" && codePointLength(model) <= MOST_MODEL_CHARS && !hasUnstorableText(model))
    return { model };
  report("model", `${shown(value)}: write the id of a model`);
  return {};
}

/** Returns the source of a prompt without the files that belong to the run that has written it. */
function ownSource({ id, file, line, values }: RowSource): RowSource {
  return { ...(id === undefined ? {} : { id }), file, line, ...(values === undefined ? {} : { values }) };
}

function isSource(value: unknown): value is RowSource {
  if (typeof value !== "object" || value === null || Array.isArray(value)) return false;
  // Its files belong to the run that has written it.
  const { id, file, line, values = {}, files: _, ...others } = value as Record<string, unknown>;
  const isId = id === undefined || typeof id === "string";
  const areValues = typeof values === "object" && values !== null;
  return (
    isId &&
    areValues &&
    typeof file === "string" &&
    Number.isInteger(line) &&
    Object.keys(others).length === 0
  );
}

/** A field that looks like a misspelt one is reported. */
function checkMetadata(
  fields: Record<string, unknown>,
  { isStrict = false }: RowRules,
  report: Report,
): Record<string, unknown> | null {
  const given = fields.metadata ?? {};
  const isObject = typeof given === "object" && !Array.isArray(given);
  if (!isObject)
    report("metadata", `must be an object, not ${nameOf(given)}; other fields are metadata, too`);
  const own = Object.entries(fields).filter(
    ([name]) => !FIELDS.includes(name) && !(OF_INPUT.includes(name) && isSource(fields.source)),
  );
  for (const [name, value] of own) {
    if (!isTaken(name, isStrict)) report(...unknownField(name));
    else if (name === "options" && isOfApi(value))
      report(name, "is of the API; write its fields in the line itself, and size instead of image_size");
  }
  const found = Object.fromEntries([...(isObject ? Object.entries(given) : []), ...own]);
  if (hasUnstorableText(JSON.stringify(found))) report("metadata", "holds half a character pair; remove it");
  return Object.keys(found).length === 0 ? null : found;
}

/** Whether a value is the options of an item as the batch API has them. */
function isOfApi(value: unknown): boolean {
  const names = typeof value === "object" && value !== null ? Object.keys(value) : [];
  return ["image_size", ...OPTION_FIELDS].some((name) => names.includes(name));
}

/** Too many words, such as `line` and `file`, differ from a shorter name by two letters only. */
const LONGEST_COMMON = 5;

/** Whether a line may have a field: a known one, or one of the caller's own, which does not look like a misspelt one. */
export function isTaken(name: string, isStrict: boolean): boolean {
  const [long, short] = [true, false].map((isLong) =>
    FIELDS.filter((field) => field.length > LONGEST_COMMON === isLong),
  ) as [string[], string[]];
  const isMisspelt =
    Object.hasOwn(OTHER_NAMES, name) ||
    didYouMean(name, long) !== null ||
    short.some((field) => isSlipOf(name.toLowerCase(), field));
  const isOwn = CAPTIONS.includes(name.toLowerCase()) || !isMisspelt;
  return FIELDS.includes(name) || (!isStrict && name !== "" && isOwn);
}

/**
 * Whether a word is a short one with two neighbouring letters swapped, one typed twice, or an inner one left out. Other
 * single letters make other words, such as `site`, `need` and `models`.
 */
function isSlipOf(word: string, known: string): boolean {
  const found = [...known].findIndex((letter, i) => letter !== word[i]);
  const at = found < 0 ? known.length : found;
  const without = (text: string) => text.slice(0, at) + text.slice(at + 1);
  if (word.length > known.length) return word[at] === word[at - 1] && without(word) === known;
  if (word.length < known.length) return at > 0 && at < known.length - 1 && without(known) === word;
  return word === known.slice(0, at) + (known[at + 1] ?? "") + (known[at] ?? "") + known.slice(at + 2);
}

/** Returns the report for an unknown field. */
export function unknownField(name: string, known = FIELDS, prefix = ""): [field: string, message: string] {
  const slip = known.find((field) => isSlipOf(name.toLowerCase(), field));
  const meant = (known === FIELDS ? OTHER_NAMES[name] : undefined) ?? slip ?? didYouMean(name, known);
  const advice = meant === null ? `the fields are ${known.join(", ")}` : `did you mean ${meant}?`;
  return [prefix + (name || '""'), `is not a known field; ${advice}`];
}

function checkPrompt(fields: Record<string, unknown>, maxChars: number, report: Report): string {
  const { prompt: value } = fields;
  if (value === undefined || value === null) {
    const caption = captionIn(Object.keys(fields));
    const way = caption === undefined ? "" : `, or use --prompt-column ${caption}`;
    report("prompt", `is missing; say what the image shows${way}`);
  }
  if (typeof value !== "string") {
    if (value !== undefined && value !== null) report("prompt", `must be a string, not ${nameOf(value)}`);
    return "";
  }
  const prompt = value.trim();
  const length = codePointLength(prompt);
  if (hasUnstorableText(prompt)) report("prompt", "holds NUL or half a character pair; remove it");
  else if (isBlank(prompt)) report("prompt", "is empty; say what the image shows");
  else if (isNoValue(prompt) || prompt === "None")
    report("prompt", `is ${prompt}, as programs write for no value; say what the image shows`);
  else if (isWordless(prompt)) report("prompt", `${shown(prompt)} names nothing; say what the image shows`);
  if (length > maxChars) report("prompt", `has ${length} characters; at most ${maxChars} are allowed`);
  return prompt;
}

function checkCustomId(value: unknown, report: Report): string | null {
  if (value === undefined || value === null) return null;
  if (typeof value !== "string") {
    report("custom_id", `must be a string, not ${nameOf(value)}`);
    return null;
  }
  const problem = customIdProblem(value);
  if (problem !== null) report("custom_id", problem);
  return value;
}

function checkCount(value: unknown, limits: Limits, report: Report): number {
  const max = limits.outputCountPerItem;
  const isRight = typeof value === "number" && Number.isInteger(value) && value >= 1 && value <= max;
  if (!isRight) report("output_count", `must be a whole number from 1 to ${max}, not ${shown(value)}`);
  return isRight ? value : 1;
}

function checkReferences(value: unknown, report: Report): ReferenceSpec[] {
  if (value === undefined || value === null) return [];
  if (Array.isArray(value))
    return value.map((element, i) => checkReference(element, `reference_images[${i}]`, report));
  report("reference_images", `must be a list, not ${nameOf(value)}; write ["photo.png"]`);
  return [];
}

function checkReference(value: unknown, field: string, report: Report): ReferenceSpec {
  if (typeof value === "string")
    return isDataUrl(value) ? checkDataUrl(value, { field }, report) : checkPath(value, { field }, report);
  if (typeof value !== "object" || value === null || Array.isArray(value)) {
    report(field, `must be a path or an object with path or data, not ${nameOf(value)}`);
    return { field };
  }
  for (const name of Object.keys(value))
    if (!REFERENCE_FIELDS.includes(name)) report(...unknownField(name, REFERENCE_FIELDS, `${field}.`));
  const { path, data, mime_type, id, type } = value as Record<string, unknown>;
  const spec: ReferenceSpec = {
    field,
    ...label("id", id, FIXED_LIMITS.referenceIdChars, field, report),
    ...label("type", type, FIXED_LIMITS.referenceTypeChars, field, report),
  };
  if ((path == null) === (data == null)) {
    report(field, "needs either path (a file) or data (Base64), and not both");
    return spec;
  }
  const url = path ?? data;
  if (typeof url === "string" && isDataUrl(url)) return checkDataUrl(url, spec, report);
  if (path != null) return checkPath(path, spec, report);
  if (typeof data !== "string") report(`${field}.data`, `must be a Base64 string, not ${nameOf(data)}`);
  if (typeof mime_type !== "string") {
    report(`${field}.mime_type`, "is missing; say image/png, image/jpeg or image/webp");
  }
  if (typeof data !== "string" || typeof mime_type !== "string") return spec;
  return { ...spec, inline: { data, mimeType: mime_type } };
}

const isDataUrl = (text: string) => /^data:/i.test(text);

/** Reads `data:image/png;base64,…`. */
function checkDataUrl(url: string, spec: ReferenceSpec, report: Report): ReferenceSpec {
  const comma = url.slice(0, MOST_URL_HEAD).indexOf(",");
  const [type = "", ...rest] = url.slice("data:".length, comma).toLowerCase().split(";");
  if (comma > 0 && rest.includes("base64"))
    return {
      ...spec,
      inline: { data: url.slice(comma + 1), mimeType: type.replace("image/jpg", "image/jpeg") },
    };
  report(spec.field, "is a data URL that is not Base64; write data:image/png;base64,…");
  return spec;
}

function checkPath(path: unknown, spec: ReferenceSpec, report: Report): ReferenceSpec {
  if (typeof path === "string" && path !== "" && !path.includes("\0")) return { ...spec, path };
  report(spec.field, "the path must be a string that names a file");
  return spec;
}

function label(
  name: "id" | "type",
  value: unknown,
  maxChars: number,
  field: string,
  report: Report,
): { id?: string; type?: string } {
  if (value === undefined || value === null) return {};
  if (typeof value === "string" && codePointLength(value) <= maxChars && !hasUnstorableText(value))
    return { [name]: value };
  report(`${field}.${name}`, `must be a string of at most ${maxChars} characters`);
  return {};
}

function nameOf(value: unknown): string {
  if (Array.isArray(value)) return "a list";
  if (value === null) return "null";
  return typeof value === "object" ? "an object" : `a ${typeof value}`;
}

function shown(value: unknown): string {
  if (typeof value !== "number" && typeof value !== "string") return nameOf(value);
  return JSON.stringify(typeof value === "string" ? truncateCodePoints(value, MOST_SHOWN, "…") : value);
}
