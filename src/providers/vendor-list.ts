import { readFile } from "node:fs/promises";
import { join } from "node:path";
import type { UpstreamEntry } from "../contract/provider-entries.ts";
import { ProviderError } from "../domain/ports/image-provider.ts";
import { makeDirectory, writeFileDurably } from "../kernel/files.ts";
import { watchKey } from "../kernel/hide-keys.ts";
import { sha256Hex } from "../kernel/ids.ts";
import { fieldsOf } from "../kernel/json.ts";
import { type Preset, presetOf } from "./catalogue/catalogue.ts";
import { type AdapterDeps, credentialHeaders } from "./upstream/adapter.ts";
import { listAt, textAt, valueAt } from "./upstream/answer-json.ts";
import { ambiguous } from "./upstream/classify.ts";
import { UpstreamHttp } from "./upstream/http.ts";
import { withoutSecrets, withTimeLimit } from "./upstream/provider.ts";

/** A model of a vendor's list. */
export interface ListedModel {
  id: string;
  /** Its other ids. */
  aliases: readonly string[];
  /** The day on which the vendor ends it, `YYYY-MM-DD`; null when the list does not say. */
  retires: string | null;
  /** Whether it makes images, as far as the list shows. */
  isOfImages: boolean;
}

/** No vendor has as many. A list that never ends is broken. */
const MOST_PAGES = 50;
const MOST_MODELS = 10_000;
const LIST_SECONDS = 15;
const CACHE_MS = 3_600_000;
const ID = /^[\w./:@-]{1,200}$/;
const DAY = /^\d{4}-\d{2}-\d{2}$/;

interface ListSource {
  entry: UpstreamEntry;
  deps: AdapterDeps;
  /** The directory of this user in which lists are kept for an hour. */
  cacheDirectory: string;
  signal: AbortSignal;
}

/** Whether the list of models of an entry can be read: the vendor is known, and the key, if it needs one, is set. */
export function hasVendorList({ entry, deps: { secret } }: Pick<ListSource, "entry" | "deps">): boolean {
  return presetOf(entry)?.list !== undefined && (keyOf(entry, secret) !== null || variableOf(entry) === null);
}

/**
 * Reads a vendor's list of models, to its last page: calls that cost nothing. Every model is in it once. `isFresh` asks the
 * vendor in any case; else a list that was read within the hour with the same key will do. Rejects with `ProviderError`
 * when there is no list to be had, or with the signal's reason.
 */
export async function readVendorList(
  source: ListSource,
  { isFresh }: { isFresh: boolean },
): Promise<readonly ListedModel[]> {
  const { entry, deps, cacheDirectory, signal } = source;
  const preset = presetOf(entry);
  const list = preset?.list;
  if (list === undefined || !("baseUrl" in entry))
    throw new ProviderError("INVALID_ARGUMENT", `How ${entry.name} lists its models is not known.`);
  const key = keyOf(entry, deps.secret);
  if (key !== null) watchKey(key);
  const nowMs = deps.clock.nowMs();
  const of = sha256Hex(JSON.stringify([entry.baseUrl, list, sha256Hex(key ?? "")]));
  const file = join(cacheDirectory, `models-${of.slice(0, 32)}.json`);
  const kept = isFresh ? null : await readKept(file, nowMs);
  if (kept !== null) return kept;
  const late = () =>
    new ProviderError("PROVIDER_TIMEOUT", `${entry.name} did not list its models within ${LIST_SECONDS} s.`, {
      trouble: "unreachable",
    });
  const limit = { clock: deps.clock, ms: LIST_SECONDS * 1000, late };
  const models = await withTimeLimit(limit, signal, (inTime) => readPages(source, list, inTime)).catch(
    (error) => {
      signal.throwIfAborted();
      throw withoutSecrets(error);
    },
  );
  // Without the file the vendor is asked again next time.
  await makeDirectory(cacheDirectory, 0o700)
    .then(() => writeFileDurably(file, JSON.stringify({ at_ms: nowMs, models }), { mode: 0o600 }))
    .catch(() => {});
  return models;
}

/** The list of a file that is not older than an hour; null without one, and for a damaged one. */
async function readKept(file: string, nowMs: number): Promise<readonly ListedModel[] | null> {
  try {
    const { at_ms: at, models } = fieldsOf(JSON.parse(await readFile(file, "utf8"))) ?? {};
    const isRecent = typeof at === "number" && at <= nowMs && nowMs - at < CACHE_MS;
    return isRecent && Array.isArray(models) && models.length > 0 && models.every(isListed) ? models : null;
  } catch {
    return null;
  }
}

function isListed(value: unknown): value is ListedModel {
  const { id, aliases, retires, isOfImages } = fieldsOf(value) ?? {};
  return (
    [id, ...(Array.isArray(aliases) ? aliases : [null])].every((each) => typeof each === "string") &&
    (retires === null || (typeof retires === "string" && DAY.test(retires))) &&
    typeof isOfImages === "boolean"
  );
}

const variableOf = (entry: UpstreamEntry) => ("apiKeyEnv" in entry ? entry.apiKeyEnv : null);

function keyOf(entry: UpstreamEntry, secret: AdapterDeps["secret"]): string | null {
  const variable = variableOf(entry);
  return variable === null ? null : secret(variable);
}

type ListRules = NonNullable<Preset["list"]>;

async function readPages(
  { entry, deps }: ListSource,
  list: ListRules,
  signal: AbortSignal,
): Promise<ListedModel[]> {
  const baseUrl = "baseUrl" in entry ? entry.baseUrl : "";
  const { name } = entry;
  const http = new UpstreamHttp({ name, baseUrl, concurrency: 1 }, deps);
  const headers = credentialHeaders(entry, deps);
  const models = new Map<string, ListedModel>();
  const marks = new Set<string>();
  try {
    for (let path = list.path; ; ) {
      const page = await http.json({ method: "GET", path, headers }, signal);
      if (!Array.isArray(valueAt(page, list.entries))) throw ambiguous(name, "a list without models", 200);
      for (const each of listAt(page, list.entries)) addModel(models, each, list);
      if (models.size > MOST_MODELS) throw ambiguous(name, `more than ${MOST_MODELS} models`, 200);
      const mark = list.next ? textAt(page, list.next.field) : null;
      if (mark === null) break;
      if (marks.has(mark)) throw ambiguous(name, "the same page of models again", 200);
      if (marks.add(mark).size >= MOST_PAGES)
        throw ambiguous(name, `more than ${MOST_PAGES} pages of models`, 200);
      const parameter = `${list.next?.parameter}=${encodeURIComponent(mark)}`;
      path = `${list.path}${list.path.includes("?") ? "&" : "?"}${parameter}`;
    }
  } finally {
    await http.close();
  }
  // A key that may use no model at all is more likely to lack a permission than its vendor its models.
  if (models.size === 0) throw ambiguous(name, "a list of no models", 200);
  return [...models.values()];
}

/** Adds an entry of the list. A dated id is another id of the plain one. */
function addModel(models: Map<string, ListedModel>, entry: unknown, list: ListRules): void {
  const given = textAt(entry, list.id);
  if (given === null) return;
  const methods = list.methods === undefined ? undefined : valueAt(entry, list.methods);
  if (list.needs !== undefined && Array.isArray(methods) && !methods.includes(list.needs)) return;
  const plain = given.startsWith(list.prefix ?? "") ? given.slice(list.prefix?.length ?? 0) : given;
  const id = list.snapshot === undefined ? plain : plain.replace(new RegExp(list.snapshot), "");
  if (!ID.test(plain) || !ID.test(id)) return;
  const isSnapshot = id !== plain;
  const day = list.retires === undefined || isSnapshot ? null : textAt(entry, list.retires);
  const { fields, pattern } = list.filter ?? { fields: [], pattern: "" };
  const texts = fields.map((field) => (textAt(entry, field) ?? "").slice(0, 2000));
  const aliases = list.aliases === undefined ? [] : listAt(entry, list.aliases);
  const known = models.get(id);
  models.set(id, {
    id,
    aliases: [
      ...(known?.aliases ?? []),
      ...(isSnapshot ? [plain] : []),
      ...aliases.filter((each): each is string => typeof each === "string" && ID.test(each)).slice(0, 20),
    ],
    retires: day !== null && DAY.test(day) ? day : (known?.retires ?? null),
    isOfImages: list.filter === undefined || new RegExp(pattern, "i").test(texts.join("\n")),
  });
}

/** Finds the model of an id; undefined if the list has none. */
export function findListed(list: readonly ListedModel[], upstreamId: string): ListedModel | undefined {
  return list.find(({ id, aliases }) => id === upstreamId || aliases.includes(upstreamId));
}
