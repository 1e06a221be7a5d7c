import { generatedCustomId } from "../contract/limits.ts";
import { didYouMean } from "../kernel/did-you-mean.ts";
import { counted, safeFileName, truncateCodePoints } from "../kernel/text.ts";
import { FIELDS, type RowRules, type Variant } from "./check-row.ts";
import { isBlank, isNoValue, type Row } from "./lines.ts";
import { wholeNumberOf } from "./options.ts";
import type { FileLine, Problems, Report } from "./problems.ts";
import { PATH_NAMES } from "./wanted-files.ts";

/** A value of a variable. */
export interface VariableValue {
  text: string;
  /** The path of an image that is the first reference image of the prompt. */
  image?: string;
}

/** A variable: `{{name}}` stands for one of its values. */
export interface Variable {
  name: string;
  values: readonly VariableValue[];
  /** Each value makes images of its own, which are named after it. */
  isList: boolean;
}

export interface VariableRules {
  /** Variables of all lines. A variable, column or field of the line with the same name goes before. Default: none. */
  variables?: readonly Variable[];
  /** The prompt of all lines; the prompt of the line itself is the variable `prompt` then. */
  template?: string | undefined;
  /** The field `file` of lines without one, such as `public/{{slug}}.webp`. Default: none. */
  file?: string | undefined;
  /** The column or field that holds the prompts. Default: `prompt`. */
  promptColumn?: string | undefined;
  /** The column or field that holds the ids. Default: `custom_id`. */
  idColumn?: string | undefined;
  /** Reads the list that `@path` names in a prompt file. Returns a problem as text. Default: there are no lists. */
  readList?: (file: string, path: string) => Promise<Uint8Array | { problem: string }>;
  /** Report `{{name}}` without such a variable, instead of keeping it as text. Default: false. */
  isStrict?: boolean;
}

/** The most images of a run. */
const MOST_IMAGES = 100_000;
const MOST_NAME_CHARS = 80;
const MOST_STEM_CHARS = 100;
const MOST_PART_CHARS = 40;
/** No field takes a longer text. Longer ones would fill the memory before they are checked. */
const MOST_TEXT_CHARS = 100_000;
const PLACEHOLDER = /\{\{\s*([^{}\s](?:[^{}]{0,79}?[^{}\s])?)\s*\}\}/g;
/** A name as other programs mark it: `{name}`, `${name}`, `%(name)s`. */
const BRACED = /(?<!\{)\$?\{([^{}|]{1,80})\}(?!\})|%\(([^()]{1,80})\)s/g;
/** The same, and marks that are likely in a prompt for many lines only: `<name>`, `[name]`, `%name%`, `$name`. */
const MARKED = new RegExp(
  `${BRACED.source}|<([^<>]{1,80})>|\\[([^\\[\\]]{1,80})\\]|%([^%]{1,80})%|\\$(\\w{1,80})`,
  "g",
);
/** A variable with the name of one of these fields sets it. */
const SETTABLE = FIELDS.filter((field) => !["vars", "custom_id", "metadata"].includes(field));
const WHOLE_NUMBERS: readonly string[] = ["output_count", "seed"];
/** They hold bytes, not words. */
const BYTES: readonly string[] = ["data", "mime_type"];

/**
 * Returns the values of a list, one a line. Blank lines and comments, which begin with `#` and a blank, are skipped. Returns a
 * problem as text.
 */
export function readListText(bytes: Uint8Array): string[] | { problem: string } {
  let text: string;
  try {
    text = new TextDecoder("utf-8", { fatal: true }).decode(bytes);
  } catch {
    return { problem: "is not valid UTF-8" };
  }
  if (text.includes("\0")) return { problem: "is not a text file" };
  const lines = text.split(text.trimEnd().includes("\n") ? "\n" : /\r\n?|\n/).map((line) => line.trim());
  const found = lines.filter((line) => !isBlank(line) && !/^#(\s|$)/.test(line));
  return found.length === 0 ? { problem: "holds no values; write one a line" } : found;
}

/**
 * Puts values in the place of variables. The lists that a row uses make a product: in the order of the file, the last list
 * fastest. A value is put in as it is. The rows of a run go through one expander.
 */
export class Expander {
  readonly #rules: VariableRules & Pick<RowRules, "defaultCount">;
  /** The variables of all lines that some line uses, or has one of its own for. */
  readonly #used = new Set<string>();
  /** Names without a variable, with the lines that have them. */
  readonly #unknown = new Map<string, { first: FileLine; lines: number }>();
  /** How the images of each line come about, such as ` × 3 × 4`. */
  readonly #factors = new Set<string>();
  /** Names of the prompt of all lines, with the lines that do not have them. */
  readonly #lacking = new Map<string, FileLine[]>();
  /** Names in the prompt of all lines that other marks than ours are around, by the whole. */
  readonly #misquoted = new Map<string, string>();
  /** The names that some line has. */
  readonly #known = new Set<string>();
  #lines = 0;
  #images = 0;
  #isFull = false;
  #hasLists = false;

  constructor(rules: VariableRules & Pick<RowRules, "defaultCount">) {
    this.#rules = rules;
  }

  /**
   * Yields the fields of a row for each combination of its values, with the names that stand for something in its texts.
   * `variant` is null for a row without lists. A row with a problem, which is reported, yields none. `number` is that of the row
   * in the run, from 1. Cells of a table that are only metadata are values, not texts with variables.
   */
  async *expand(
    row: Row,
    { number, fileLine, isTable }: { number: number; fileLine: FileLine; isTable: boolean },
    report: Report,
  ): AsyncGenerator<
    { fields: Row["fields"]; variant: Variant | null; used: ReadonlySet<string> },
    void,
    undefined
  > {
    const { vars = null, ...given } = row.fields;
    const { template, file } = this.#rules;
    const fields: Record<string, unknown> = {
      ...given,
      ...(template === undefined ? {} : { prompt: template }),
      ...(file === undefined || given.file != null ? {} : { file }),
    };
    const own = vars === null ? [] : await this.#readVars(vars, row.fields, fileLine.file, report);
    if (own === null) return;
    const isText = ([name]: [string, unknown]) => !isTable || FIELDS.includes(name);
    const texts = Object.fromEntries(Object.entries(fields).filter(isText));
    const { metadata: _, ...asking } = Object.fromEntries(
      Object.entries(texts).filter(([name]) => FIELDS.includes(name)),
    );
    const asked = placeholdersOf(asking);
    const variables = this.#variablesOf(row, own, given);
    const { file: path = null, also = null, ...others } = texts;
    const isOfPath = (name: string) =>
      PATH_NAMES.includes(name) && !variables.some((each) => each.name === name);
    const ofPaths = [...placeholdersOf([path, also])].filter((name) => !isOfPath(name));
    const names = new Set([...placeholdersOf(others), ...ofPaths]);
    if (this.#lacks(variables, fileLine) || this.#misquotes(variables, fields.prompt, report)) return;
    const isUsed = ({ name, values }: Variable) =>
      names.has(name) || SETTABLE.includes(name) || values.some(({ image }) => image !== undefined);
    const idle = own.find((variable) => !isUsed(variable));
    if (idle !== undefined) {
      report(`vars.${idle.name}`, `is not used; write {{${idle.name}}} in the prompt, or remove it`);
      return;
    }
    const used = variables.filter(isUsed);
    for (const { name } of used) this.#used.add(name);
    for (const [name, value] of Object.entries(given)) {
      if (isTable || !asked.has(name) || FIELDS.includes(name) || typeof value !== "object") continue;
      if (value === null) continue;
      report(
        name,
        `is ${Array.isArray(value) ? "a list" : "an object"}; {{${name}}} stands for a text or a number`,
      );
      return;
    }
    if (!this.#noteUnknown({ names, asked, variables, fileLine }, report)) return;
    const empty = used.filter(({ name, values }) => asked.has(name) && values.some(isEmpty));
    for (const variable of empty) {
      const field = own.includes(variable) ? `vars.${variable.name}` : variable.name;
      report(field, `is empty, and {{${variable.name}}} stands for it; fill it in, or remove the line`);
    }
    // A value of `vars` or of --var was written as it is by a person.
    const isCell = (variable: Variable) =>
      !own.includes(variable) && Object.hasOwn(row.columns ?? {}, variable.name);
    const lost = used.filter(
      (variable) =>
        asked.has(variable.name) && isCell(variable) && variable.values.some(({ text }) => isNoValue(text)),
    );
    for (const { name, values } of lost)
      report(
        name,
        `is ${values[0]?.text.trim()}, as programs write for no value, and {{${name}}} stands for it; fill it in, or remove the line`,
      );
    if (empty.length + lost.length > 0) return;
    const lists = used.filter(({ isList }) => isList);
    for (const [field, value] of Object.entries(texts)) {
      const chars = longestText(value, used);
      if (chars <= MOST_TEXT_CHARS) continue;
      report(field, `has up to ${chars} characters with its values; at most ${MOST_TEXT_CHARS} are possible`);
      return;
    }
    if (!this.#count(used, given.output_count ?? this.#rules.defaultCount, report)) return;
    const inId = placeholdersOf({ custom_id: fields.custom_id ?? null });
    for (const values of combinations(used)) {
      const made = { ...fields, ...withValues(texts, used, values) };
      // The cells of a used column are no metadata then.
      if (this.#rules.isStrict) for (const { name } of used) if (!FIELDS.includes(name)) delete made[name];
      if (lists.length === 0) yield { fields: made, variant: null, used: names };
      else {
        const { custom_id = null, ...rest } = made;
        const base = typeof custom_id === "string" ? custom_id : String(number);
        const listed = used.flatMap(({ name, isList }, i) =>
          isList ? [[name, values[i]?.text ?? ""] as const] : [],
        );
        // The plan adds the model, unless it is that of the run.
        const isNamed = (name: string) => !inId.has(name) && name !== "model";
        const parts = listed.filter(([name]) => isNamed(name)).map(([, text]) => text);
        const first = custom_id === null && parts.length === 0 ? generatedCustomId(number) : base;
        const stem = truncateCodePoints([first, ...parts].map(namePart).join("-"), MOST_STEM_CHARS);
        const isId = custom_id === null || typeof custom_id === "string";
        const variant = { stem, values: Object.fromEntries(listed) };
        yield { fields: isId ? rest : made, variant, used: names };
      }
    }
  }

  /** Says how many images the lines make; null if no line has a list. */
  get summary(): string | null {
    if (!this.#hasLists) return null;
    const [only = "", ...others] = this.#factors;
    const lines = counted(this.#lines, "line");
    return others.length === 0
      ? `${lines}${only} = ${counted(this.#images, "image")}`
      : `${lines} with their variables make ${counted(this.#images, "image")}`;
  }

  /** The names that stayed text, one note each. */
  get notes(): string[] {
    return [...this.#unknown].map(([name, { first, lines }]) => {
      const also = lines === 1 ? "" : ` and ${counted(lines - 1, "other line")}`;
      return `{{${name}}} has no variable and stays text (${first.file}:${first.line}${also})`;
    });
  }

  /** Whether a line before has used a variable. */
  hasUsed(name: string): boolean {
    return this.#used.has(name);
  }

  /** The variables of all lines that no line uses. */
  get idle(): string[] {
    const all = this.#rules.variables ?? [];
    return all.map(({ name }) => name).filter((name) => !this.#used.has(name));
  }

  /** Null when there is a problem, which is reported. */
  async #readVars(
    vars: unknown,
    fields: Row["fields"],
    file: string,
    report: Report,
  ): Promise<Variable[] | null> {
    if (typeof vars !== "object" || Array.isArray(vars) || vars === null) {
      report("vars", 'must be an object, such as {"animal": ["fox", "owl"]}');
      return null;
    }
    const found: Variable[] = [];
    let isRight = true;
    for (const [name, value] of Object.entries(vars)) {
      const wrong = (message: string) => {
        report(`vars.${name}`, message);
        isRight = false;
      };
      const isField = SETTABLE.includes(name) && name !== "prompt";
      if (isField && fields[name] != null) wrong(`the line has the field ${name}, too; keep one of them`);
      else if (name !== name.trim() || name === "" || name.length > MOST_NAME_CHARS || /[{}]/.test(name))
        wrong("is no name for a variable; use letters, digits and _");
      else if (typeof value === "string" && /^@[^@]/.test(value)) {
        const values = await this.#readList(file, value.slice(1));
        if (Array.isArray(values)) found.push({ name, values, isList: true });
        else wrong(`${value.slice(1)} ${values.problem}`);
      } else if (isValue(value)) {
        const text = String(value).replace(/^@@/, "@");
        found.push({ name, values: [{ text }], isList: false });
      } else if (!Array.isArray(value)) wrong("must be a text, a number, a list of these, or @FILE");
      else if (value.length === 0) wrong("is an empty list; give it a value");
      else if (value.every(isValue))
        found.push({ name, values: value.map((each) => ({ text: String(each) })), isList: true });
      else wrong("must be a list of texts and numbers");
    }
    return isRight ? found : null;
  }

  async #readList(file: string, path: string): Promise<VariableValue[] | { problem: string }> {
    const { readList } = this.#rules;
    if (readList === undefined) return { problem: "cannot be read here" };
    const read = await readList(file, path);
    const values = "problem" in read ? read : readListText(read);
    return "problem" in values ? values : values.map((text) => ({ text }));
  }

  /** The variables of a row: its own, its cells, then those of all lines that it does not have itself. */
  #variablesOf(row: Row, own: readonly Variable[], given: Record<string, unknown>): Variable[] {
    const { template, variables = [] } = this.#rules;
    const single = ([name, text]: [string, string]) => ({ name, values: [{ text }], isList: false });
    const prompt = template !== undefined && typeof given.prompt === "string" ? { prompt: given.prompt } : {};
    const cells = Object.entries({ ...row.columns, ...prompt }).filter(
      ([name]) => !SETTABLE.includes(name) || (name === "prompt" && template !== undefined),
    );
    const isOwn = ([name]: [string, string]) => own.some((variable) => variable.name === name);
    const found: Variable[] = [...own, ...cells.filter((cell) => !isOwn(cell)).map(single)];
    const taken = new Set(found.map(({ name }) => name));
    for (const variable of variables) {
      const { name } = variable;
      if (taken.has(name) || (SETTABLE.includes(name) && given[name] != null)) this.#used.add(name);
      else found.push(variable);
    }
    return found;
  }

  /** Whether the prompt of all lines has a name that this line does not have. It is reported at the end. */
  #lacks(variables: readonly Variable[], fileLine: FileLine): boolean {
    const { template } = this.#rules;
    if (template === undefined) return false;
    for (const { name } of variables) this.#known.add(name);
    const lacking = [...placeholdersOf(template)].filter(
      (name) => !variables.some((each) => each.name === name),
    );
    for (const name of lacking) {
      const lines = this.#lacking.get(name) ?? [];
      lines.push(fileLine);
      this.#lacking.set(name, lines);
    }
    return lacking.length > 0;
  }

  /**
   * Whether a prompt has the name of a variable in the marks of another program, such as `{name}`: every image would show
   * the same. Of the prompt of all lines that is reported at the end.
   */
  #misquotes(variables: readonly Variable[], prompt: unknown, report: Report): boolean {
    const { template } = this.#rules;
    if (typeof prompt !== "string") return false;
    const isKnown = (wanted: string) => variables.some(({ name }) => name === wanted);
    const found = [...prompt.matchAll(template === undefined ? BRACED : MARKED)]
      .map(([whole, ...names]) => ({ whole, name: names.find((name) => name !== undefined)?.trim() ?? "" }))
      .filter(({ name }) => isKnown(name));
    for (const { whole, name } of found) {
      if (template === undefined) report("prompt", `${whole} stays text; write {{${name}}}`);
      else this.#misquoted.set(whole, name);
    }
    return found.length > 0;
  }

  /** Reports the names of the prompt of all lines that no line has, and the lines that lack what others have. */
  reportLacking(problems: Problems): void {
    for (const [whole, name] of this.#misquoted)
      problems.add({ file: "--prompt", line: null }, whole, `stays text; write {{${name}}}`);
    for (const [name, lines] of this.#lacking) {
      if (this.#known.has(name)) {
        for (const fileLine of lines)
          problems.add(
            fileLine,
            name,
            `is missing, and --prompt has {{${name}}}; add it, or remove the line`,
          );
        continue;
      }
      const known = [...this.#known];
      const meant = nearName(name, known);
      const advice = meant === null ? `there are ${namesOf(known)}` : `did you mean {{${meant}}}?`;
      problems.add({ file: "--prompt", line: null }, `{{${name}}}`, `no line has it; ${advice}`);
    }
  }

  /** Remembers names without a variable. Returns false when they are a problem. */
  #noteUnknown(
    {
      names,
      asked,
      variables,
      fileLine,
    }: {
      names: ReadonlySet<string>;
      /** Those of the prompt, and of all else that decides the image. */
      asked: ReadonlySet<string>;
      variables: readonly Variable[];
      fileLine: FileLine;
    },
    report: Report,
  ): boolean {
    const known = variables.map(({ name }) => name);
    const unknown = [...names].filter((name) => !known.includes(name));
    let isRight = true;
    for (const name of unknown) {
      const meant = asked.has(name) ? nearName(name, known) : null;
      const advice = meant === null ? "give it one in vars or with --var" : `did you mean {{${meant}}}?`;
      if (this.#rules.isStrict || meant !== null) {
        report(null, `{{${name}}} has no variable; ${advice}`);
        isRight = false;
      } else {
        const noted = this.#unknown.get(name);
        if (noted === undefined) this.#unknown.set(name, { first: fileLine, lines: 1 });
        else noted.lines++;
      }
    }
    return isRight;
  }

  /** Counts the images of a row. Returns false when the run would have too many, which is reported once. */
  #count(used: readonly Variable[], outputCount: unknown, report: Report): boolean {
    const isCount = ({ name }: Variable) => name === "output_count";
    const own = used.find(isCount)?.values.map(({ text }) => Number(text)) ?? [outputCount];
    const count = own.reduce<number>(
      (sum, each) => sum + (Number(each) > 1 ? Math.floor(Number(each)) : 1),
      0,
    );
    const lists = used.filter((each) => each.isList && !isCount(each));
    const factors = [...lists.map(({ values }) => values.length), ...(count === 1 ? [] : [count])];
    const images = factors.reduce((product, factor) => product * factor, 1);
    this.#lines++;
    this.#hasLists ||= used.some(({ isList }) => isList);
    this.#factors.add(factors.map((factor) => ` × ${factor}`).join(""));
    const before = this.#images;
    this.#images += images;
    if (this.#images <= MOST_IMAGES) return true;
    if (this.#isFull) return false;
    this.#isFull = true;
    const product =
      factors.length > 1 ? `${factors.join(" × ")} = ${images} images` : counted(images, "image");
    const earlier = before === 0 ? "" : `, after ${counted(before, "image")} of the lines before`;
    report(
      null,
      `makes ${product}${earlier}; a run has at most ${MOST_IMAGES}: shorten a list, or use several runs`,
    );
    return false;
  }
}

const MOST_NAMES = 12;

function namesOf(names: readonly string[]): string {
  if (names.length === 0) return "none";
  return `${names.slice(0, MOST_NAMES).join(", ")}${names.length > MOST_NAMES ? ", …" : ""}`;
}

/** Returns the known name that a name is a slip of; null for none. Short names differ from others by a letter or two. */
function nearName(name: string, known: readonly string[]): string | null {
  const mostEdits = name.length < 3 ? 0 : name.length < 5 ? 1 : 2;
  const folded = known.find((each) => each.toLowerCase() === name.toLowerCase());
  return folded ?? didYouMean(name, known, mostEdits);
}

function isEmpty({ text, image }: VariableValue): boolean {
  return image === undefined && isBlank(text);
}

function isValue(value: unknown): value is string | number {
  return typeof value === "string" || (typeof value === "number" && Number.isFinite(value));
}

/** Returns the names in `{{…}}` of all texts in a value. */
export function placeholdersOf(value: unknown): Set<string> {
  const names = new Set<string>();
  replaceTexts(value, (text) => {
    for (const [, name = ""] of text.matchAll(PLACEHOLDER)) names.add(name);
    return text;
  });
  return names;
}

function replaceTexts(value: unknown, replace: (text: string) => string): unknown {
  if (typeof value === "string") return value.includes("{{") ? replace(value) : value;
  if (Array.isArray(value)) return value.map((each) => replaceTexts(each, replace));
  if (typeof value !== "object" || value === null) return value;
  return Object.fromEntries(
    Object.entries(value).map(([name, each]) => [
      name,
      BYTES.includes(name) ? each : replaceTexts(each, replace),
    ]),
  );
}

/** Returns the length of the longest text in a value that some values of its variables make; 0 without variables. */
function longestText(value: unknown, variables: readonly Variable[]): number {
  let longest = 0;
  const lengths = new Map(
    variables.map(({ name, values }) => [
      name,
      values.reduce((most, { text }) => Math.max(most, text.length), 0),
    ]),
  );
  replaceTexts(value, (text) => {
    let chars = text.length;
    let isMade = false;
    for (const [whole, name = ""] of text.matchAll(PLACEHOLDER)) {
      const length = lengths.get(name);
      isMade ||= length !== undefined;
      chars += (length ?? whole.length) - whole.length;
    }
    if (isMade) longest = Math.max(longest, chars);
    return text;
  });
  return longest;
}

/** Yields a value for each variable: the values of the last one change fastest. */
function* combinations(variables: readonly Variable[]): Generator<readonly VariableValue[]> {
  const at = variables.map(() => 0);
  for (;;) {
    yield variables.map(({ values }, i) => values[at[i] ?? 0] ?? { text: "" });
    let last = variables.length - 1;
    while (last >= 0 && ++(at[last] as number) === (variables[last] as Variable).values.length)
      at[last--] = 0;
    if (last < 0) return;
  }
}

function withValues(
  fields: Record<string, unknown>,
  variables: readonly Variable[],
  values: readonly VariableValue[],
): Record<string, unknown> {
  const texts = new Map(variables.map(({ name }, i) => [name, values[i]?.text ?? ""]));
  const replace = (text: string) => text.replace(PLACEHOLDER, (whole, name) => texts.get(name) ?? whole);
  const made = replaceTexts(fields, replace) as Record<string, unknown>;
  for (const [i, { name }] of variables.entries()) {
    const { text = "", image } = values[i] ?? {};
    if (image !== undefined) made.reference_images = [image, ...listOf(made.reference_images)];
    else if (name === "reference_images") made[name] = [text];
    else if (SETTABLE.includes(name) && !(name === "prompt" && fields.prompt != null))
      made[name] = WHOLE_NUMBERS.includes(name) ? (wholeNumberOf(text) ?? text) : text;
  }
  return made;
}

/** A value that is no list is kept as an element, so that it is reported. */
function listOf(value: unknown): unknown[] {
  if (value === undefined || value === null) return [];
  return Array.isArray(value) ? value : [value];
}

function namePart(text: string): string {
  return safeFileName(truncateCodePoints(text.trim().replace(/\s+/g, "-"), MOST_PART_CHARS));
}
