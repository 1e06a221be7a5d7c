import { IMAGE_EXTENSIONS, tierOf } from "../../contract/image-formats.ts";
import { type EntryOf, placeholdersIn } from "../../contract/provider-entries.ts";
import {
  type GeneratedImages,
  type ImageRequest,
  type LargeImage,
  ProviderError,
} from "../../domain/ports/image-provider.ts";
import { callAfter } from "../../kernel/clock.ts";
import { backoffMs } from "../../kernel/pacing.ts";
import { joinTurns } from "../../kernel/text.ts";
import { modelFacts, pixelsOf, presetOf } from "../catalogue/catalogue.ts";
import { type AdapterDeps, credentialHeaders, type UpstreamAdapter } from "../upstream/adapter.ts";
import { type ImagesJson, refuseMany } from "../upstream/answer-images.ts";
import { costOf, ownersWords, ownMatches, textAt, upstreamWords, valueAt } from "../upstream/answer-json.ts";
import { ambiguous } from "../upstream/classify.ts";
import { fetchImage } from "../upstream/fetch-image.ts";
import { UpstreamHttp } from "../upstream/http.ts";
import { dataUrlOf, jsonBody, ReferenceText } from "../upstream/request-body.ts";

type Entry = EntryOf<"task">;

/** What is kept of a task while it is under way: enough to ask for it after a restart. */
interface Task {
  /** Where it is polled, and where a POST ends it: a path or an address. */
  poll: string;
  cancel: string | null;
  /** In ms since 1970. */
  createdMs: number;
  costMicroUsd: number | null;
}

/** How often in a row a poll or a download may fail, and the pauses between. An address mostly ends after ten minutes. */
const TRIES = 7;
const PAUSES = { baseMs: 1000, capMs: 30_000 };
/** A task that cannot be asked for after this time is given up: no upstream keeps a picture for as long. */
const MOST_AGE_MS = 24 * 3_600_000;
const STORE_AGAIN_MS = 1000;
const CANCEL_MS = 2000;
/** Trying a poll again at once does not help. */
const LASTING = ["credential", "billing", "forbidden"];
/** An address is stored with its item, and asked for again and again. Servers take no longer ones. */
const MAX_ADDRESS_CHARS = 4_000;
/** As many as `{references}` stands for. */
const MAX_REFERENCES = 16;

/** Makes images with an upstream that answers with a task, as its entry describes it. */
export function createTaskAdapter(configured: Entry, deps: AdapterDeps): UpstreamAdapter {
  const entry = { ...configured, preset: presetOf(configured)?.name ?? null };
  const { name, states, baseUrl } = entry;
  const { clock } = deps;
  const http = new UpstreamHttp(entry, deps);
  const headers = credentialHeaders(configured, deps);
  const shows = stepsOf(states.field);
  const takes = abilitiesOf(entry);
  const limitMs = entry.timeoutSeconds * 1000;

  const lost = (why: string) => final("PROVIDER_ITEM_FAILED", `${name} ${why}. The image may be billed.`);
  const gone = (why: string) =>
    final("RESULT_MISSING", `${name} has made the image, which is billed, but it cannot be had (${why}).`);

  /** Sends the request that is paid, and returns once its task is stored. */
  const begin = async (request: ImageRequest, asked: string, signal: AbortSignal, onSent: () => void) => {
    const path = entry.path.replace("{model}", request.model.split("/").map(encodeURIComponent).join("/"));
    const body = jsonBody(filled(entry.body, valuesOf(entry, request)));
    const call = {
      method: "POST",
      path,
      headers: { ...entry.headers, ...headers },
      body,
      asked,
      shows,
    } as const;
    const answer = await http.json(call, signal, onSent);
    const poll = addressOf(entry, entry.poll, answer);
    if (poll === null) throw ambiguous(name, "an answer without a task", 200);
    if (poll.length > MAX_ADDRESS_CHARS)
      throw lost("names its task with a text that is longer than any address");
    if (!http.mayAsk(poll)) throw lost("lets its task be polled at another host, which gets no key");
    const given = entry.cancel === null ? null : addressOf(entry, entry.cancel, answer);
    const cancel = given !== null && given.length <= MAX_ADDRESS_CHARS ? given : null;
    const task: Task = { poll, cancel, createdMs: clock.nowMs(), costMicroUsd: costIn(entry, answer) };
    // While it cannot be stored, nothing is lost: the signal ends the request.
    for (;;) {
      try {
        await request.task?.keep(JSON.stringify(task));
        return task;
      } catch {
        await clock.sleep(STORE_AGAIN_MS, signal);
      }
    }
  };

  /** Asks once for a task. Returns its images; null while it is under way. Rejects when it has ended without any. */
  const look = async (task: Task, asked: string, signal: AbortSignal): Promise<GeneratedImages | null> => {
    let before: string | null = null;
    for (let tries = 1; ; tries++) {
      const seen: { answer?: unknown; addresses?: string } = {};
      const call = { method: "GET", path: task.poll, headers, asked, shows } as const;
      const outcome = await http
        .images(call, signal, {}, async (json) => {
          const results = stateOf(json.value) === "done" ? textsAt(json.value, stepsOf(entry.result)) : [];
          Object.assign(seen, { answer: json.value, addresses: results.join("\n") });
          refuseMany(name, results.length);
          return { images: await imagesOf(results, json, signal), modelVersion: null };
        })
        .catch((error: unknown) => {
          signal.throwIfAborted();
          if (error instanceof ProviderError) return error;
          throw error;
        });
      if (!(outcome instanceof ProviderError)) {
        if (outcome.images.length > 0) return { ...outcome, usage: usageOf(seen.answer, task) };
        await outcome.discard?.();
        const state = stateOf(seen.answer);
        if (state === "done") throw gone("its task shows no image");
        if (state !== "running") throw failed(seen.answer, state, asked);
        return null;
      }
      const { message, trouble, upstreamStatus, retryAfterMs } = outcome;
      const isOver = tries >= TRIES;
      if (seen.addresses !== undefined) {
        // The next poll may show a fresh address.
        const isEnded = seen.addresses === before && upstreamStatus !== null && upstreamStatus < 500;
        if (isOver || isEnded) throw gone(message);
        before = seen.addresses;
      } else if (trouble !== null && LASTING.includes(trouble)) throw outcome;
      else if (isOver) {
        const isKnown = trouble !== null && trouble !== "no-model";
        if (isKnown && clock.nowMs() - task.createdMs < MOST_AGE_MS) throw outcome;
        throw lost(`does not show its task (${message})`);
      }
      const pauseMs = backoffMs(tries, PAUSES, () => 0.5);
      await clock.sleep(Math.min(Math.max(pauseMs, retryAfterMs ?? 0), PAUSES.capMs), signal);
    }
  };

  const stateOf = (answer: unknown): "running" | "done" | "failed" | "refused" => {
    const word = textAt(answer, ...shows);
    if (word === null) throw ambiguous(name, "a task without a state", 200);
    const isIn = (list: "done" | "failed" | "refused") => states[list].includes(word);
    return isIn("done") ? "done" : isIn("refused") ? "refused" : isIn("failed") ? "failed" : "running";
  };

  const failed = (answer: unknown, state: "failed" | "refused", asked: string) => {
    const words = entry.error === null ? "" : textsAt(answer, stepsOf(entry.error)).join(" ");
    const isRefusal =
      entry.refusal !== null && ownMatches(words, new RegExp(entry.refusal, "gi"), asked).length > 0;
    const word = textAt(answer, ...shows);
    if (state === "refused" || isRefusal)
      return new ProviderError(
        "SAFETY_BLOCKED",
        upstreamWords(words) || `${name} refused the content (${word}).`,
      );
    const message = `${name} did not make the image (its task: ${word}).`;
    return new ProviderError("PROVIDER_ITEM_FAILED", message, { said: ownersWords(words) });
  };

  const imagesOf = async (results: readonly string[], json: ImagesJson, signal: AbortSignal) => {
    const images: (Buffer | LargeImage)[] = [];
    for (const text of results) {
      const isAddress = /^https?:/i.test(text);
      images.push(isAddress ? await fetchImage(http, text, headers, signal, json) : json.decode(text));
    }
    return images;
  };

  const usageOf = (answer: unknown, task: Task) => {
    const costMicroUsd = costIn(entry, answer) ?? task.costMicroUsd;
    return costMicroUsd === null ? null : { inputTokens: null, outputTokens: null, costMicroUsd };
  };

  /** The task is given up in any case. */
  const cancel = async ({ cancel: path }: Task) => {
    if (path === null || !http.mayAsk(path)) return;
    const late = new AbortController();
    const limit = callAfter(clock, CANCEL_MS, () => late.abort());
    await http.json({ method: "POST", path, headers, mayBeEmpty: true }, late.signal).catch(() => {});
    limit.stop();
  };

  return {
    address: baseUrl,
    takes,
    async generate(request, signal, onSent) {
      if (request.references.length > takes.maxReferences) {
        const most = takes.maxReferences === 0 ? "no" : `at most ${takes.maxReferences}`;
        throw new ProviderError("INVALID_ARGUMENT", `${name} takes ${most} reference images.`);
      }
      const asked = joinTurns(request.earlier ?? "", request.prompt);
      const known = request.task?.known ?? null;
      if (known !== null) onSent();
      const task = known === null ? await begin(request, asked, signal, onSent) : (JSON.parse(known) as Task);
      const pollMs = entry.pollSeconds * 1000;
      // A clock that jumps must not end a task that was begun just now.
      const startMs = clock.monotonicMs() - (known === null ? 0 : clock.nowMs() - task.createdMs);
      try {
        for (let polls = known === null ? 1 : 0; ; polls++) {
          if (polls > 0) await clock.sleep(pollMs * Math.min(5, 1.3 ** (polls - 1)), signal);
          const made = await look(task, asked, signal);
          if (made !== null) return { ...made, seed: request.options.seed };
          if (clock.monotonicMs() - startMs < limitMs) continue;
          await cancel(task);
          throw lost(`has not ended its task within ${entry.timeoutSeconds} s`);
        }
      } catch (error) {
        if (signal.reason instanceof ProviderError && signal.reason.code === "CANCELLED") await cancel(task);
        throw error;
      }
    },
    async probe(signal) {
      if (entry.probe !== null) await http.json({ method: "GET", path: entry.probe, headers }, signal);
    },
    close: () => http.close(),
  };
}

/** A request that was paid, or may be, and is not sent again. */
function final(code: "PROVIDER_ITEM_FAILED" | "RESULT_MISSING", message: string): ProviderError {
  return new ProviderError(code, message, { trouble: "ambiguous", retryable: false });
}

const stepsOf = (field: string) => field.split(".");

/** Returns the texts at a path of fields. Of lists on the way and at its end, each entry counts. */
function textsAt(value: unknown, [step, ...rest]: readonly string[]): string[] {
  if (Array.isArray(value))
    return value.flatMap((each) => textsAt(each, step === undefined ? [] : [step, ...rest]));
  if (step !== undefined) return textsAt(valueAt(value, step), rest);
  return typeof value === "string" && value !== "" ? [value] : [];
}

/** Returns where an answer lets its task be asked for. An address may be relative to that of the upstream. */
function addressOf({ id, baseUrl }: Entry, where: string, answer: unknown): string | null {
  if (where.startsWith("/")) {
    const value = valueAt(answer, ...stepsOf(id));
    const isId = (typeof value === "string" && value !== "") || typeof value === "number";
    return isId ? where.replace("{id}", encodeURIComponent(value)) : null;
  }
  const address = textAt(answer, ...stepsOf(where));
  return address !== null && URL.canParse(address, baseUrl) ? new URL(address, baseUrl).href : null;
}

function costIn({ cost }: Entry, answer: unknown): number | null {
  return cost === null ? null : costOf(valueAt(answer, ...stepsOf(cost.field)), cost.usd);
}

/** What an upstream takes is what its body has placeholders for. */
function abilitiesOf(entry: Entry): UpstreamAdapter["takes"] {
  const found = placeholdersIn(entry.body);
  const has = (name: string) => found.includes(name);
  const numbers = found.map((name) => Number(/^reference(\d+)$/.exec(name)?.[1] ?? 0));
  const hasPixels = has("width") && has("height");
  const options = [
    ...(["quality", "background", "seed"] as const).filter(has),
    ...(has("negative_prompt") ? (["negativePrompt"] as const) : []),
  ];
  return {
    maxReferences: has("references") ? MAX_REFERENCES : Math.max(...numbers),
    ratios: has("ratio") || hasPixels ? "any" : ["1:1"],
    tiers: has("size") || hasPixels ? "any" : ["1K"],
    ...(hasPixels && { pixelsOf: pixelsOf(entry) }),
    options,
  };
}

/** The values of a request by placeholder, in the upstream's words. Undefined: the request has none. */
function valuesOf(entry: Entry, request: ImageRequest): Record<string, unknown> {
  const { model, options, pixels, references, defaultQuality } = request;
  const facts = modelFacts(entry.preset, model);
  const type = IMAGE_EXTENSIONS[options.mimeType].replace("jpg", "jpeg") as "png" | "jpeg" | "webp";
  const plain = {
    model,
    ratio: options.ratio,
    size: tierOf(options.size),
    width: pixels.widthPx,
    height: pixels.heightPx,
    format: facts?.formats === undefined || facts.formats.includes(type) ? type : undefined,
    quality: options.quality ?? defaultQuality ?? facts?.defaultQuality,
    background: options.background ?? undefined,
    seed: options.seed ?? undefined,
  };
  const said = Object.entries(plain).map(([name, value]) => [
    name,
    value === undefined ? undefined : (entry.words[name]?.[String(value)] ?? value),
  ]);
  const images = references.map((image) =>
    entry.referencesAs === "base64" ? new ReferenceText(image) : dataUrlOf(image),
  );
  return {
    ...Object.fromEntries(said),
    prompt: joinTurns(request.earlier ?? "", request.prompt),
    negative_prompt: options.negativePrompt ?? undefined,
    references: images.length === 0 ? undefined : images,
    ...Object.fromEntries(images.map((image, at) => [`reference${at + 1}`, image])),
  };
}

/** Puts values in the place of placeholders. What has no value, and what is empty without it, is left out. */
function filled(template: unknown, values: Record<string, unknown>): unknown {
  if (typeof template === "string") {
    const [name] = placeholdersIn(template);
    return name === undefined ? template : values[name];
  }
  if (typeof template !== "object" || template === null) return template;
  const entries = Object.entries(template).map(([key, each]) => [key, filled(each, values)] as const);
  const kept = entries.filter(([, value]) => value !== undefined);
  if (kept.length === 0 && entries.length > 0) return undefined;
  return Array.isArray(template) ? kept.map(([, value]) => value) : Object.fromEntries(kept);
}
