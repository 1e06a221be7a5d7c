import type { Request } from "express";
import { hideApiKeys } from "../../kernel/hide-keys.ts";
import { fieldsOf, isObject, parseJson } from "../../kernel/json.ts";
import { boundaryOf, type Part, readParts } from "../request-body/multipart.ts";

/** A text of this length that looks like Base64 is an image, and not shown. */
const LONG_BASE64 = 256;
const BASE64 = /^(?:data:[^,]{0,100};base64,)?[A-Za-z0-9+/_-]+=*$/;
/** The journal shows no more of one text. */
const MOST_TEXT = 100_000;
const MOST_PARTS = 200;

/** The body of a request as the journal shows it, and what faults look for in it. */
export interface SeenBody {
  /** JSON, the fields of a form, a text, or the size of bytes in words; null when there is none. */
  body: unknown;
  models: readonly string[];
  texts: readonly string[];
}

/** Reads a body for the journal. It never throws: a body that is not what its type says is a text. */
export async function seenBody(request: Request, bytes: Buffer): Promise<SeenBody> {
  if (bytes.length === 0) return { body: null, models: modelsOf(request, null), texts: [] };
  const value = await contentOf(request.get("content-type") ?? "", bytes);
  const texts: string[] = [];
  collectTexts(value, texts);
  return { body: shown(value), models: modelsOf(request, value), texts };
}

async function contentOf(contentType: string, bytes: Buffer): Promise<unknown> {
  const type = contentType.split(";")[0]?.trim().toLowerCase() ?? "";
  if (type === "multipart/form-data") {
    const form = await formFields(contentType, bytes).catch(() => null);
    if (form !== null) return form;
  }
  const isText =
    type === "" || /^(?:text\/|application\/(?:[\w.+-]*json|x-www-form-urlencoded|jsonl))/.test(type);
  if (!isText) return sizeOf(bytes.length, type);
  const text = bytes.toString();
  try {
    return parseJson(text);
  } catch {
    return text.length > MOST_TEXT ? `${text.slice(0, MOST_TEXT)}…` : text;
  }
}

const sizeOf = (count: number, type: string) => `(${count} bytes of ${type || "unknown type"})`;

/** The fields of a form. A field that comes several times is a list. */
async function formFields(contentType: string, bytes: Buffer): Promise<object> {
  const fields = new Map<string, string[]>();
  const readPart = async (part: Part) => {
    const chunks: Buffer[] = [];
    for await (const chunk of part.bytes()) chunks.push(chunk);
    const content = Buffer.concat(chunks);
    const value =
      part.fileName === undefined
        ? content.toString()
        : `(${part.fileName}, ${content.length} bytes of ${part.type ?? "unknown type"})`;
    const name = part.name ?? "";
    fields.set(name, [...(fields.get(name) ?? []), value]);
  };
  const reader = readParts(boundaryOf(contentType), MOST_PARTS, readPart);
  await reader.add(bytes);
  await reader.end();
  return Object.fromEntries(
    [...fields].map(([name, values]) => [name, values[1] === undefined ? values[0] : values]),
  );
}

/** A value without long images and without keys. */
function shown(value: unknown): unknown {
  if (typeof value === "string") return shownText(value);
  if (Array.isArray(value)) return value.map(shown);
  if (!isObject(value)) return value;
  return Object.fromEntries(Object.entries(value).map(([name, each]) => [hideApiKeys(name), shown(each)]));
}

function shownText(text: string): string {
  if (text.length >= LONG_BASE64 && BASE64.test(text)) return `(${text.length} characters of Base64)`;
  return hideApiKeys(text);
}

function collectTexts(value: unknown, texts: string[]): void {
  if (typeof value === "string") texts.push(value);
  else if (typeof value === "object" && value !== null)
    for (const each of Object.values(value)) collectTexts(each, texts);
}

/** The models that the path and the body name; in a request for several tools, those of the tools, too. */
function modelsOf(request: Request, body: unknown): string[] {
  const inPath = /\/models\/([^/]+?)(?::[^/:]+)?$/.exec(request.path)?.[1];
  const { model, tools } = fieldsOf(body) ?? {};
  const ofTools = Array.isArray(tools) ? tools.map((tool) => fieldsOf(tool)?.model) : [];
  const named = [decoded(inPath), model, ...ofTools].filter((each) => typeof each === "string");
  return named.map((name) => name.replace(/^models\//, ""));
}

function decoded(part = ""): string | undefined {
  try {
    return part === "" ? undefined : decodeURIComponent(part);
  } catch {
    return part;
  }
}
