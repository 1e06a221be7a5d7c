import { randomBytes } from "node:crypto";
import { rm } from "node:fs/promises";
import { join } from "node:path";
import type { Batch } from "../client/answers.ts";
import { cancelBatch, listItems } from "../client/batches.ts";
import { untilCancelled } from "../client/poll.ts";
import { ImgbatchError } from "../contract/errors.ts";
import { expandedCustomIds, FIXED_LIMITS, type Limits } from "../contract/limits.ts";
import { isTerminal } from "../contract/statuses.ts";
import { holdsApiKey } from "../kernel/hide-keys.ts";
import { canonicalJson } from "../kernel/json.ts";
import { counted } from "../kernel/text.ts";
import { formatProblem } from "../prompts/problems.ts";
import { collectSoFar } from "./collect-run.ts";
import { type claimDirectory, removeLeftovers } from "./directory/claim.ts";
import { readRunInput, writeInput } from "./directory/input.ts";
import { INPUT_FILE, type Naming, REFERENCES_FOLDER } from "./directory/names.ts";
import { readResults } from "./directory/results.ts";
import { otherMaker } from "./directory/run-service.ts";
import {
  isLacking,
  isUnsent,
  lastRound,
  newBatch,
  newRunState,
  RUN_STATE_FILE,
  readRunState,
  retriedId,
  submittedBatches,
  writeRunState,
} from "./directory/run-state.ts";
import type { RunBatch, RunState } from "./directory/run-state-schema.ts";
import type { Asked } from "./plan/choose-model.ts";
import { type Chunk, inputHash, type Plan, type PlannedItem, type RunRequest } from "./plan/plan.ts";
import { isMadeAgain, planAgain } from "./plan/retry.ts";
import { planUpdate } from "./plan/update.ts";
import { findBatch } from "./run-batches.ts";
import {
  askedIn,
  type ImageConsent,
  imageIdsOf,
  isDefiniteRefusal,
  pendingIn,
  type Run,
  readAskedItems,
  type StartedRun,
  send,
  unsentBatches,
} from "./send.ts";

/*
 * How `submit` and `submit --update` begin or go on: they plan the entries that the run state gets and leave the rest to
 * `send`, as `retry` does (`plan/retry.ts`). A command that is run again finds its entries there.
 */

interface KeyChoice {
  /** The caller's own key. With several batches, each gets a suffix. */
  explicit: string | null;
  /** Pay again for the same content. */
  isNew: boolean;
}

export interface StartOptions extends Omit<Run, "state" | "consentOf"> {
  plan: Plan;
  keys: KeyChoice;
  /** How the files of a new run are named. An earlier run keeps its names. Default: `id`. */
  names?: Naming;
  /** The directory for messages. */
  shownDir: string;
  limits: Limits;
  /** An update also makes images again that had failed: see `isMadeAgain`. Default: no. */
  retries?: boolean;
}

/** How a submission begins. Nothing is written or sent yet. */
export interface Start {
  /** It makes a run or goes on with it, as its batches were planned; or it changes the prompts of a run. */
  kind: "run" | "update";
  /** The run with the batches of the submission; before an update, as it was. */
  state: RunState;
  /** Whether the directory had no run. */
  isNew: boolean;
  /** Batches that no earlier command has planned. */
  added: RunBatch[];
  /** The prompts, with the ids that the run gives them. */
  items: readonly PlannedItem[];
  /** The images whose requests leave, with those that an earlier command left open. */
  images: readonly Asked[];
  /** Of these, the images that an update makes because of its prompts. */
  changedImages: readonly Asked[];
  /** The flags with which the run was made and that have other values now; undefined for a flag that it was made without. */
  otherFlags: Readonly<Record<string, string | undefined>>;
  /** Asks for the images that the known batches of a run still have to make: none for an update, which counts them above. */
  pending(): Promise<readonly Asked[]>;
  /**
   * Whether the service may hold money for the images already: an earlier command may have sent their batches without an
   * answer, or they replace images of batches that have not ended.
   */
  mayHold: boolean;
  /**
   * Batches that an earlier command has sent without an answer: the service may have made them. They are found by their keys,
   * and an update cancels those with other prompts.
   */
  open: RunBatch[];
  /** Of these, the images of prompts that are the same, and were not made yet. */
  unmadeImages: number;
  /** The changes of the prompts; null if the run was never updated, or is new. */
  update: Awaited<ReturnType<typeof planUpdate>> | null;
}

/**
 * Makes the batches of a run, or finds those that an earlier attempt made. A run that had other prompts is updated: only
 * the images of changed and added prompts are made, and all others stay. The input and the keys of the new batches are on
 * disk before the first request leaves; until then the run is as it was. After a kill the same command goes on, and nothing
 * is paid twice. `consentOf` returns the consent to pay for an image; null if none is needed.
 */
export async function startRun(
  options: StartOptions,
  start: Start,
  consentOf: ImageConsent | null,
): Promise<StartedRun> {
  return start.kind === "run" ? submit(options, start, consentOf) : startUpdate(options, start, consentOf);
}

/**
 * Decides how a submission begins. `claim` checks the directory. Throws `DIRECTORY_CONFLICT` for a directory of another run that
 * these prompts cannot change.
 */
export async function chooseStart(options: StartOptions, claim: typeof claimDirectory): Promise<Start> {
  const { dir, plan, keys, shownDir, service } = options;
  const earlier = await readRunState(dir);
  const isSame = earlier?.input_sha256 === plan.inputSha256;
  const isOther = earlier?.kind === "realtime" || earlier?.input_sha256 === null;
  const isElsewhere = earlier !== null && keys.isNew && isOfOtherOrigin(earlier, plan);
  if (earlier !== null && !isOther && !isElsewhere)
    requireSameOrigins(shownDir, earlier, {
      origins: plan.request.origins ?? {},
      models: plan.chunks.map(({ model }) => model),
    });
  const isAgain = (isSame && (keys.isNew || earlier.updates === undefined)) || isElsewhere;
  if (earlier === null || isOther || isAgain) {
    const own = await claim(dir, isElsewhere ? earlier.input_sha256 : plan.inputSha256);
    const state = planSubmission(options, own);
    const known = new Set(own?.batches.map((batch) => batch.idempotency_key));
    const added = state.batches.filter(({ idempotency_key: key }) => !known.has(key));
    const unsent = unsentBatches(state, service);
    const images = askedIn(unsent, plan.items);
    const pending = () => pendingIn(state, plan.items, service, options.signal);
    const open = unsent.filter((entry) => !added.includes(entry) && entry.refused !== true);
    const begun = { ...UNCHANGED, state, added, items: plan.items, images, pending, open };
    return { ...begun, kind: "run", mayHold: open.length > 0, isNew: own === null, update: null };
  }
  await claim(dir, earlier.input_sha256);
  const isOwn = earlier.batches.every((entry) => otherMaker(entry, service) === null);
  const retries = options.retries === true && earlier.finished_at !== null && isOwn && !isSame;
  const failed = retries ? (await readResults(dir)).filter(isMadeAgain).map((line) => line.custom_id) : [];
  const update = await planUpdate(dir, earlier, plan, failed);
  const unsent = unsentBatches(earlier, service);
  const open = unsent.filter(({ refused }) => refused !== true);
  const mayHold = open.length > 0 || (!isSame && earlier.finished_at === null);
  const begun = { state: earlier, isNew: false, added: [], items: update.items, update, mayHold };
  if (isSame) {
    const images = askedIn(unsent, update.items);
    const pending = () => pendingIn(earlier, update.items, service, options.signal);
    return { ...begun, ...UNCHANGED, kind: "run", images, pending, open };
  }
  // What is the same and not made yet is still to be paid, wherever it is made.
  const unmade = (await findUnmade(options, earlier)).flatMap(({ pending }) => pending);
  const asked = open.length === 0 ? [] : await readAskedItems(dir);
  // Another service makes what it is asked to find.
  const isFindOnly = options.sharesReferences === true;
  if (isFindOnly) unmade.push(...open.flatMap((entry) => imageIdsOf(entry, asked)));
  const left = unmade.filter((id) => update.keptImages.has(id) && !update.images.includes(id));
  const changedImages = askedIn([{ images: [...update.images, ...left] }], update.items);
  const images = [...changedImages, ...(isFindOnly ? [] : askedIn(open, asked))];
  const facts = {
    images,
    changedImages,
    open,
    unmadeImages: left.length,
    otherFlags: otherFlags(earlier, plan),
  };
  return { ...begun, ...facts, kind: "update", pending: async () => [] };
}

/** What a run that is not updated has of an update. */
const UNCHANGED = { changedImages: [], otherFlags: {}, unmadeImages: 0 };

function otherFlags(
  { request }: RunState,
  { request: { flags: now = {} } }: Plan,
): Record<string, string | undefined> {
  const before = request?.flags ?? {};
  const names = Object.keys({ ...before, ...now }).filter((name) => before[name] !== now[name]);
  return Object.fromEntries(names.map((name) => [name, before[name]]));
}

/** Whether the run in a directory asks for the same as a plan, of an upstream at another address. */
function isOfOtherOrigin({ request, input_sha256: before }: RunState, plan: Plan): boolean {
  if (request === null || before === null || before === plan.inputSha256) return false;
  const { origins = {} } = request;
  if (canonicalJson(origins) === canonicalJson(plan.request.origins ?? {})) return false;
  return before === inputHash({ ...plan.request, origins }, plan.items);
}

/**
 * Throws `DIRECTORY_CONFLICT` when upstreams at other addresses than those of a run would make new images in its directory.
 * See `origins` of a `RunRequest`.
 */
export function requireSameOrigins(
  shownDir: string,
  { request, batches }: Pick<RunState, "request" | "batches">,
  { origins: now = {}, models }: Pick<RunRequest, "origins"> & { models: readonly string[] },
): void {
  const { origins: before = {}, model: usual } = request ?? {};
  const made = new Set([usual, ...batches.map((batch) => batch.model)]);
  const model = models.find((id) => made.has(id) && before[id] !== now[id]);
  if (model === undefined || request?.images !== "real") return;
  const advice =
    "submit with --new to make and pay all images again there, or with another directory in --output";
  throw otherOriginError(shownDir, [before[model], now[model]], advice);
}

const VENDORS = "the vendor's own address";

/** Returns the error for a run whose images come from another address. An undefined address: the vendor's own. */
export function otherOriginError(
  shownDir: string,
  [before = VENDORS, now = VENDORS]: readonly [before: string | undefined, now: string | undefined],
  advice?: string,
): ImgbatchError {
  const message = `${shownDir} belongs to a run whose images come from ${before}, not ${now}. Nothing was sent.`;
  return new ImgbatchError("DIRECTORY_CONFLICT", message, { advice });
}

async function submit(
  options: StartOptions,
  start: Start,
  consentOf: ImageConsent | null,
): Promise<StartedRun> {
  const { plan, dir } = options;
  const { state, isNew, added, update } = start;
  await writeRunState(dir, state);
  await removeLeftovers(dir);
  // The lines of the prompt file may have moved, and metadata may have changed.
  await writeInput(dir, start.items);
  const explain = (error: unknown, { round, index }: RunBatch) => {
    const chunk = round === 0 && update === null ? plan.chunks[index] : undefined;
    return chunk === undefined ? error : locateInInput(error, chunk);
  };
  const run = { ...options, state, consentOf };
  const sending = send(run, { added, saysReused: update === null, explain });
  const started = await sending.catch(async (error: unknown) => {
    if (isNew) await undoRefusedRun(dir, state, error);
    throw error;
  });
  return { ...started, replayed: started.found.size > 0 };
}

/** Returns the run state with which a run begins or goes on. Throws if the batches of the `earlier` one are others. */
function planSubmission(
  { plan, service, keys, names = "id", clock }: StartOptions,
  earlier: RunState | null,
): RunState {
  const { keys: chosen, isFresh } = chooseKeys(plan, keys, earlier);
  const known = earlier === null ? [] : submittedBatches(earlier).map((batch) => batch.idempotency_key);
  const isSame =
    earlier !== null && chosen.length === known.length && chosen.every((key, i) => key === known[i]);
  if (isSame) return earlier;
  refuseOtherKeys(known, chosen, keys);
  let first = 0;
  const batches = plan.chunks.map(({ items, imageCount, model }, index) => {
    const { parentId } = plan.request;
    const idempotency_key = chosen[index] ?? "";
    const prompts: [number, number] = [first, items.length];
    first += items.length;
    const parent = { parent_batch_id: parentId };
    const facts = { idempotency_key, ...parent, model, asked_count: imageCount, prompts };
    return newBatch(index, service, facts);
  });
  const state = newRunState(service, clock, {
    input_sha256: plan.inputSha256,
    is_fresh: isFresh,
    request: submittedRequest(plan.request),
    batches,
  });
  return { ...state, names: earlier === null ? names : (earlier.names ?? "id") };
}

function submittedRequest({
  model,
  name,
  mimeType,
  metadata,
  isReal = false,
  origins = {},
  flags = {},
  defaultQualities = {},
}: RunRequest): RunState["request"] {
  return {
    model,
    task_name: name,
    response_mime_type: mimeType,
    metadata,
    ...(isReal && { images: "real" }),
    ...(Object.keys(origins).length > 0 && { origins }),
    ...(Object.keys(flags).length > 0 && { flags }),
    ...(Object.keys(defaultQualities).length > 0 && { default_qualities: defaultQualities }),
  };
}

/**
 * Chooses the idempotency key of each batch: derived from the content unless the caller chooses otherwise. An unfinished
 * run in the same directory keeps its keys, fresh ones too: after a crash the same command must find its batches.
 */
function chooseKeys(
  plan: Plan,
  choice: KeyChoice,
  earlier: RunState | null,
): { keys: string[]; isFresh: boolean } {
  if (choice.explicit !== null)
    return { keys: explicitKeys(choice.explicit, plan.chunks.length), isFresh: false };
  const known = earlier === null ? [] : submittedBatches(earlier).map((batch) => batch.idempotency_key);
  const isWhole =
    earlier !== null && known.length === plan.chunks.length && known.every((key) => key !== null);
  const isOpen =
    earlier?.is_fresh === true &&
    (earlier.finished_at === null || isLacking(earlier)) &&
    !earlier.batches.some((batch) => batch.status === "output_deleted");
  const goesOn = isWhole && (!choice.isNew || isOpen);
  if (goesOn) return { keys: known.filter((key) => key !== null), isFresh: earlier.is_fresh };
  if (!choice.isNew) return { keys: plan.chunks.map((chunk) => chunk.contentKey), isFresh: false };
  const run = randomBytes(16).toString("hex");
  return { keys: plan.chunks.map((chunk) => `ib1-new-${run}-${chunk.index + 1}`), isFresh: true };
}

function explicitKeys(key: string, count: number): string[] {
  // An API key would be written into the run directory, and sent in another header than its own.
  if (holdsApiKey(key)) throw new ImgbatchError("USAGE", "--idempotency-key: this is an API key.");
  const keys = count === 1 ? [key] : Array.from({ length: count }, (_, i) => `${key}-${i + 1}`);
  const max = FIXED_LIMITS.idempotencyKeyChars;
  if (keys.every((each) => /^[\x20-\x7e]+$/.test(each) && each.length <= max && each.trim() === each))
    return keys;
  throw new ImgbatchError("USAGE", `--idempotency-key: use 1 to ${max} printable ASCII characters.`);
}

/** Throws for other keys, or another split into batches, since the same prompts would be paid for again. */
function refuseOtherKeys(known: readonly unknown[], chosen: readonly string[], keys: KeyChoice): void {
  if (keys.isNew || known.length === 0) return;
  if (keys.explicit !== null) {
    const message =
      "This directory holds a run that was submitted with another idempotency key, or in other batches: add --new instead of --idempotency-key to generate and pay again, or choose another directory with --output.";
    throw new ImgbatchError("DIRECTORY_CONFLICT", message, { param: "--idempotency-key" });
  }
  if (known.length === chosen.length) return;
  const message = `This run was split into ${counted(known.length, "batch", "batches")}, not ${chosen.length}: give --max-batch as before, or --new to generate and pay again.`;
  throw new ImgbatchError("DIRECTORY_CONFLICT", message);
}

/**
 * Removes the files of a run that this call began, when the service refused its first batch. The corrected input can then
 * use the directory. Nothing is removed when a batch was made, or may have been. A file that cannot be removed stays, since
 * the refusal is the error to report.
 */
async function undoRefusedRun(dir: string, state: RunState, error: unknown): Promise<void> {
  const isUnsent = state.batches.every((entry) => entry.state === "intent" && entry.id === null);
  if (!isUnsent || !isDefiniteRefusal(error)) return;
  try {
    // The run state goes last: after a crash the other files must still be known as the run's.
    await rm(join(dir, REFERENCES_FOLDER), { recursive: true, force: true });
    await rm(join(dir, INPUT_FILE), { force: true });
    await rm(join(dir, RUN_STATE_FILE), { force: true });
  } catch {
    // A later run in this directory then reports the conflict.
  }
}

const ITEM_FIELD = /\bitems\[(\d+)\](?:\.((?:\w|\[\d+\]|\.(?=\w))+))?/;

/**
 * The same error, with the file and line of the input that it is about where the service names an item of its request.
 */
function locateInInput(error: unknown, { items }: Chunk): unknown {
  if (!(error instanceof ImgbatchError)) return error;
  const { code, message, param, httpStatus, requestId, retryAfterMs, details, advice } = error;
  const [named = "", index, field = null] = ITEM_FIELD.exec(param ?? "") ?? ITEM_FIELD.exec(message) ?? [];
  const item = index === undefined ? undefined : items[Number(index)];
  if (item === undefined) return error;
  const what = message.startsWith(`${named}: `) ? message.slice(named.length + 2) : message;
  const line = formatProblem({ ...item.fileLine, field, message: `${pathOf(item, field)}${what}` });
  return new ImgbatchError(code, message, {
    cause: error,
    param,
    httpStatus,
    requestId,
    retryAfterMs,
    details: [...(details ?? []), line],
    advice,
  });
}

/** Returns the file of the reference image that a field names. */
function pathOf({ references }: PlannedItem, field: string | null): string {
  const [, index] = /^reference_images\[(\d+)\]/.exec(field ?? "") ?? [];
  const source = index === undefined ? undefined : references[Number(index)]?.source;
  return source !== undefined && "path" in source ? `${source.path}: ` : "";
}

/** Marks a started run as finished here: the next `--new` generates again instead of continuing this run. */
export async function leaveRun(dir: string, state: RunState): Promise<void> {
  if (!state.is_fresh) return;
  state.is_fresh = false;
  await writeRunState(dir, state);
}

async function startUpdate(
  options: StartOptions,
  start: Start,
  consentOf: ImageConsent | null,
): Promise<StartedRun> {
  const { dir, plan } = options;
  const { state: before, items, update, open } = start;
  if (update === null) throw new ImgbatchError("INTERNAL", "An update has no changes.");
  const remade: string[] = [];
  if (open.length > 0) {
    options.reporter.note("looking for batches whose requests had no answer");
    const isWanted = (entry: RunBatch) => open.includes(entry);
    await send({ ...options, state: before, consentOf }, { isWanted, isFindOnly: true });
    const asked = await readAskedItems(dir);
    for (const entry of open.filter(isUnsent)) remade.push(...imageIdsOf(entry, asked));
  }
  remade.push(...(await cancelReplaced(options, before, update.keptImages)));
  await removeLeftovers(dir);
  const input = pendingInputName(plan.inputSha256);
  await writeInput(dir, items, input);
  const round = lastRound(before) + 1;
  const state: RunState = {
    ...before,
    input_sha256: plan.inputSha256,
    is_fresh: false,
    finished_at: null,
    request: submittedRequest(plan.request),
    batches: before.batches
      .filter((entry) => entry.refused !== true && !(open.includes(entry) && isUnsent(entry)))
      .map(({ replaced: _, ...batch }, index) => ({ ...batch, index })),
    updates: [...(before.updates ?? []), { round, superseded: update.superseded }],
  };
  const parentId = state.batches.findLast(({ id }) => id !== null)?.id ?? null;
  const pending = await readRunInput(dir, input);
  const made = new Set([...update.images, ...remade.filter((id) => update.keptImages.has(id))]);
  const ids = items
    .flatMap(({ customId, outputCount }) => expandedCustomIds(customId, outputCount))
    .filter((id) => made.has(id));
  const again = { parentId, ids, round };
  const added = await planAgain({ ...options, state }, pending, again);
  return send({ ...options, state, consentOf }, { added });
}

/** The images of a batch that have no outcome yet, by their ids in the run. */
interface Unmade {
  entry: RunBatch;
  batch: Batch;
  pending: string[];
  /** The images that are made. */
  made: string[];
}

/** Finds the batches of a run that have not ended at this service. */
async function findUnmade(
  { service, signal }: Pick<StartOptions, "service" | "signal">,
  { batches }: RunState,
): Promise<Unmade[]> {
  const unmade: Unmade[] = [];
  for (const entry of batches) {
    const { id, state, status } = entry;
    if (id === null || state !== "created" || isTerminal(status ?? "") || otherMaker(entry, service) !== null)
      continue;
    const batch = await findBatch(service.http, entry, id, signal);
    if (batch.isDone) continue;
    const items = await listItems(service.http, id, signal, entry.asked_count);
    const pending = items.filter((item) => item.status !== "success" && item.status !== "failed");
    const made = items.filter((item) => item.status === "success");
    unmade.push({ entry, batch, pending: idsIn(entry, pending), made: idsIn(entry, made) });
  }
  return unmade;
}

/** Returns the ids in the run of items of a batch. A retry may have sent them under others. */
function idsIn({ images }: RunBatch, items: readonly { customId: string }[]): string[] {
  const ids = new Map(images?.map((id) => [retriedId(id), id]));
  return items.map(({ customId }) => ids.get(customId) ?? customId);
}

/**
 * Cancels the unfinished batches with images that an update replaces, and brings what they and the ended ones have made into the
 * directory. Returns the images that are left without a picture. Can be repeated after a kill.
 */
async function cancelReplaced(
  options: StartOptions,
  state: RunState,
  kept: ReadonlySet<string>,
): Promise<string[]> {
  const { dir, service, clock, signal, reporter } = options;
  const { http, isLocal } = service;
  const here = await readResults(dir);
  const isHere = (id: string, batchId: string) =>
    here.some((line) => line.batch_id === batchId && line.custom_id === id && line.files.length > 0);
  for (const { entry, batch, pending, made } of await findUnmade(options, state)) {
    const toFetch = made.filter((id) => !isHere(id, batch.id));
    if ([...pending, ...toFetch].some((id) => !kept.has(id))) entry.replaced = true;
  }
  const replaced = state.batches.filter((entry) => entry.replaced === true);
  if (replaced.length === 0) {
    // A batch may have ended without anybody to fetch its pictures.
    if (state.finished_at === null) await collectSoFar({ ...options, state });
    return [];
  }
  await writeRunState(dir, state);
  reporter.note(
    `cancelling ${counted(replaced.length, "batch", "batches")} whose prompts have changed; what has left is awaited`,
  );
  const cancel = async ({ id }: RunBatch) =>
    untilCancelled(await cancelBatch(http, id ?? "", signal), { http, isLocal }, { clock, signal });
  // All of them stop before the first is awaited.
  const ended = await Promise.all(replaced.map(cancel));
  const remade: string[] = [];
  for (const [at, entry] of replaced.entries()) {
    const { id } = ended[at] as Batch;
    const items = await listItems(http, id, signal, entry.asked_count);
    const lost = items.filter(({ error }) => error?.code === "CANCELLED");
    remade.push(...idsIn(entry, lost));
  }
  // Pictures of changed prompts are set aside once they are here.
  await collectSoFar({ ...options, state });
  return remade;
}

/** Returns the name of an input until the run state has its hash. */
function pendingInputName(inputSha256: string): string {
  return `.input-${inputSha256}.jsonl`;
}
