import { readFileSync } from "node:fs";
import { dirname } from "node:path";
import { secretVariables } from "../contract/data-directory.ts";
import { ImgbatchError } from "../contract/errors.ts";
import type { ProviderEntry } from "../contract/provider-entries.ts";
import { makeDirectory, writeFileDurably } from "../kernel/files.ts";
import { sha256Hex } from "../kernel/ids.ts";
import { fieldsOf } from "../kernel/json.ts";
import { agreementsFile } from "./paths.ts";
import { PRESETS } from "./presets.ts";
import type { Config } from "./schema.ts";

/** A configuration file that is a command's only because it is in the working directory: a stranger may have written it. */
export interface FoundFile {
  path: string;
  /** Exactly what was parsed. */
  text: string;
  /** The paths of what needs the user's consent, such as `providers[0].argv`. */
  fields: readonly string[];
}

/**
 * Returns what in a configuration needs consent: addresses, programs, names of secret variables, databases and buckets,
 * except the address of a preset with the variable of that preset. `free` does where the preset costs money, since it
 * spares the question for the price.
 */
export function fieldsToAgree({ baseUrl, storage, providers }: Config): string[] {
  return [
    ...(baseUrl === null ? [] : ["baseUrl"]),
    ...(storage.database === "sqlite" ? [] : ["storage.database"]),
    ...(storage.blobs === "files" ? [] : ["storage.blobs"]),
    ...(storage.s3.endpoint === null ? [] : ["storage.s3.endpoint"]),
    ...providers.flatMap((entry, i) => fieldsOfEntry(entry).map((field) => `providers[${i}].${field}`)),
  ];
}

function fieldsOfEntry(entry: ProviderEntry): string[] {
  if (entry.type === "procedural") return [];
  const names = secretVariables(entry);
  if (entry.type === "command") return names.length === 0 ? ["argv"] : ["argv", "env"];
  const preset = Object.values(PRESETS).find(
    ({ provider }) => "baseUrl" in provider && provider.baseUrl === entry.baseUrl,
  );
  const isOwnVariable = names.every((name) => name === preset?.keyVariable);
  const secrets = Object.entries(entry).filter(([key, value]) => key.endsWith("Env") && value !== null);
  return [
    ...(preset === undefined ? ["baseUrl"] : []),
    ...(isOwnVariable ? [] : secrets.map(([key]) => key)),
    ...(preset?.keyVariable && entry.free ? ["free"] : []),
  ];
}

/** Throws `CONSENT_REQUIRED` unless the user has agreed to a file with exactly this content. */
export function requireAgreed({ path, text, fields }: FoundFile): void {
  if (readAgreed()[path] === sha256Hex(text)) return;
  const message = `${path} needs your consent, since a stranger may have written it: ${fields.join(", ")}. Nothing was run, sent or connected to.`;
  const advice =
    "read the file; if you trust it, agree to it as it is: imgbatch doctor --agree (for one run, and in CI: --config imgbatch.config.json)";
  throw new ImgbatchError("CONSENT_REQUIRED", message, { details: fields, advice });
}

/** Stores the user's consent to a file with exactly this content. Throws system errors. */
export async function agreeTo({ path, text }: Pick<FoundFile, "path" | "text">): Promise<void> {
  const store = agreementsFile();
  const agreed = { ...readAgreed(), [path]: sha256Hex(text) };
  await makeDirectory(dirname(store), 0o700);
  await writeFileDurably(store, `${JSON.stringify(agreed, null, 2)}\n`, { mode: 0o600 });
}

/** The hash of the agreed content by path; none if the file is missing or damaged. */
function readAgreed(): Record<string, unknown> {
  try {
    return fieldsOf(JSON.parse(readFileSync(agreementsFile(), "utf8"))) ?? {};
  } catch {
    return {};
  }
}
