// Longer than other files, because it is one translation: interactions as `generateContent`, and what came of it back as interactions.
import { STATUS_CODES } from "node:http";
import type { Request, Response } from "express";
import { ImgbatchError, type ServiceErrorCode } from "../../contract/errors.ts";
import { type ImageMimeType, isImageMimeType } from "../../contract/image-formats.ts";
import type { Limits } from "../../contract/limits.ts";
import { type NativeBody, nativeSchemas } from "../../contract/native-api.ts";
import { PATHS } from "../../contract/routes.ts";
import type { Caller } from "../../domain/batches/create-batch.ts";
import { type CheckedContent, type CheckedImage, contentFingerprint } from "../../domain/checked-content.ts";
import type { FindFileImage } from "../../domain/files/uploads.ts";
import { imageInMemory, type SentText, type SentTexts } from "../../domain/images/sent-image.ts";
import { inputImageLimit, MAX_INPUT_IMAGES, type ModelEntry, type UnmetNeed } from "../../domain/models.ts";
import type { Transaction } from "../../domain/ports/stores.ts";
import {
  conversationOf,
  deleteInteraction,
  findInteraction,
  NewInteraction,
  pictureOf,
  withPictures,
} from "../../domain/realtime/interactions.ts";
import type { GeneratedContent } from "../../domain/realtime/realtime.ts";
import type { InteractionPicture, InteractionRecord } from "../../domain/records.ts";
import { fieldsOf } from "../../kernel/json.ts";
import type { ApiDeps } from "../deps.ts";
import { answerOnce, answerStream, EARLY_SIGN_MS, type Framing, realtimeHandler } from "../http/answer.ts";
import { callerOf, headerOrQueryKey } from "../http/authenticate.ts";
import {
  type ErrorStyle,
  invalidArgument,
  parseArgument,
  toServiceError,
  withParam,
} from "../http/errors.ts";
import { goneSignal } from "../http/exchange.ts";
import { readQuery } from "../http/parameters.ts";
import { event, finishImage, imageErrors, withFinalStatus, withoutImage } from "../openai/images.ts";
import type { Operation, Surface } from "../operation.ts";
import { withRealtimeBody } from "../request-body/json-body.ts";
import { type BodyFormat, OneOf, shapeOf } from "../request-body/json-reader.ts";
import { checkContent } from "./check-content.ts";
import { spokenParts, usageOfContent, wordsOf } from "./generate.ts";
import { modelWithId } from "./models.ts";

type Body = NativeBody<"CreateInteraction">;
type View = NativeBody<"Interaction">;
type Input = Exclude<Body["input"], string | readonly unknown[]>;
type Part = View["steps"][number]["content"][number];
/** A turn of a conversation in the words of `generateContent`. */
type Message = { role: "user" | "model"; parts: Record<string, unknown>[] };

const API = "native";

const partShape = { type: "any", text: "prompt", data: "image", uri: "any", mime_type: "any" } as const;
const inputShape = {
  ...partShape,
  role: "any",
  content: new OneOf({ text: "prompt", list: [partShape], fields: partShape }),
} as const;
const SHAPE = shapeOf(nativeSchemas.CreateInteraction, {
  input: new OneOf({ text: "prompt", list: [inputShape], fields: inputShape }),
  response_format: "any",
  system_instruction: "prompt",
  "generation_config.*": "any",
  "generation_config.image_config.*": "any",
});
/** Texts of a request: those of a whole conversation. */
const MOST_TEXTS = 8;

function interactionFormat({ promptChars }: Pick<Limits, "promptChars">): BodyFormat {
  const code = () => "REALTIME_INVALID_ARGUMENT" as const;
  return { shape: SHAPE, prompts: MOST_TEXTS, images: MAX_INPUT_IMAGES, promptChars, code };
}

/** A request that has passed every check. */
interface AskedInteraction {
  model: ModelEntry;
  content: CheckedContent;
  body: Body;
  /** The turns that this request adds. */
  messages: readonly Message[];
  /** The images of these turns. A name is the index of the message and that of the part, such as `0.1`. */
  images: ReadonlyMap<string, CheckedImage>;
  previous: InteractionRecord | null;
  /** Its key may get and continue it for some time. */
  isStored: boolean;
  /** The caller does not wait for the picture. */
  isBackground: boolean;
  /** The caller wants words beside the picture. */
  hasWords: boolean;
  /** The caller has named the type of the picture. */
  hasType: boolean;
  /** The field of the request that holds the ratio and size of the picture, such as `response_format[0]`. */
  format: string;
}

/** The fields that this service reads. Any other field has no effect. */
const READ: readonly string[] = Object.keys(nativeSchemas.CreateInteraction.shape);

/**
 * Checks a request, as one to `generateContent` whose contents are the whole conversation. Throws `REALTIME_INVALID_ARGUMENT`,
 * `REALTIME_MODEL_NOT_FOUND` and `REALTIME_INTERACTION_NOT_FOUND`.
 */
async function checkInteraction(
  deps: ApiDeps,
  caller: Caller,
  value: unknown,
  sent: SentTexts,
  findFileImage: FindFileImage,
): Promise<AskedInteraction> {
  const body = parseArgument(nativeSchemas.CreateInteraction, value);
  if (body.agent != null)
    throw invalidArgument("agent", "is not known here: name a `model` that makes images");
  if (body.model == null || body.model === "")
    throw invalidArgument("model", "is required: a model that makes images");
  const isStored = body.store ?? true;
  const isBackground = body.background === true;
  if (isBackground && !isStored)
    throw invalidArgument("background", "needs an interaction that is stored: leave out `store`");
  const asked = readFormat(body);
  const model = modelWithId(deps, caller.group, body.model);
  const previous = await previousOf(deps, caller, body);
  const { messages, places } = readInput(body.input);
  const earlier = await conversationOf(deps, previous);
  const known = earlier.flatMap(({ input }) => input.messages as Message[]);
  const pictures = earlier.flatMap((each) => each.pictures);
  const kept = pictures.map(
    (each) => [each.blobKey, { chars: 0, content: pictureOf(deps.blobs, each) }] as const,
  );
  const config = generationConfig(body.generation_config ?? {});
  const native = {
    contents: [...known, ...messages],
    ...(body.system_instruction && { systemInstruction: { parts: [{ text: body.system_instruction }] } }),
    ...(body.safety_settings != null && { safetySettings: body.safety_settings }),
    ...(body.tools != null && { tools: toolsOf(body.tools) }),
    generationConfig: { ...config, ...asked.config },
  };
  const rules = {
    ...deps,
    strictImageConfig: false,
    sent: new Map<string, SentText>([...sent, ...kept]),
    findFileImage,
    options: deps.realtimeOffers.options(model),
    imageLimit: inputImageLimit(deps.realtimeOffers.serving(model.id)),
  };
  const placeOf = (param: string) => ownPlace(param, { from: known.length, places, format: asked.at });
  const content = await checkContent(native, rules).catch((error) => {
    throw withParam(error, placeOf);
  });
  const unread = Object.entries(value as object).filter(
    ([name, given]) => given != null && !READ.includes(name),
  );
  const leftOut = content.ignored ?? [];
  const ignored = [...unread.map(([name]) => name), ...leftOut.map(placeOf)];
  const more = ignored.length > 0 ? { ignored } : {};
  const images = ownImages(messages, content.images, (i, j) =>
    leftOut.includes(`contents[${known.length + i}].parts[${j}]`),
  );
  const { hasWords, hasType, at: format } = asked;
  return {
    model,
    content: { ...content, ...more },
    body,
    messages,
    images,
    previous,
    isStored,
    isBackground,
    hasWords,
    hasType,
    format,
  };
}

/** Returns the images of the new messages: they are the last of `all` images of the conversation. */
function ownImages(
  messages: readonly Message[],
  all: readonly CheckedImage[],
  isLeftOut: (message: number, part: number) => boolean,
): Map<string, CheckedImage> {
  const names = messages.flatMap(({ parts }, i) =>
    parts.flatMap((part, j) => ("text" in part || isLeftOut(i, j) ? [] : [`${i}.${j}`])),
  );
  const first = all.length - names.length;
  return new Map(names.map((name, n) => [name, all[first + n] as CheckedImage]));
}

async function previousOf(
  deps: ApiDeps,
  { key }: Caller,
  { previous_interaction_id: id }: Body,
): Promise<InteractionRecord | null> {
  if (id == null || id === "") return null;
  const previous = await findInteraction(deps, { apiKeyId: key.id, api: API }, id);
  const param = "previous_interaction_id";
  if (previous === null) throw unknownInteraction(id, param);
  if (previous.status === "completed") return previous;
  throw invalidArgument(
    param,
    `has the status ${previous.status}: only a completed interaction can be continued`,
  );
}

function unknownInteraction(id: string, param: string): ImgbatchError {
  const message = `${param}: there is no interaction ${id.slice(0, 100).toWellFormed()} of this key.`;
  return new ImgbatchError("REALTIME_INTERACTION_NOT_FOUND", message, { param });
}

/** Reads what a request says about its answer, in `response_format` or in the older fields. Throws `REALTIME_INVALID_ARGUMENT`. */
function readFormat(body: Body) {
  const { response_format: given, response_modalities: modalities, generation_config: config } = body;
  const formats = given == null ? [] : Array.isArray(given) ? given : [given];
  const isImage = ({ type }: { type?: string | null | undefined }) => type?.toLowerCase() === "image";
  const index = formats.findIndex(isImage);
  const image = formats[index];
  if (formats.length > 0 && image === undefined)
    throw invalidArgument("response_format", "must have the type image: this service makes images alone");
  const other = formats.findIndex((format) => !isImage(format) && format.type?.toLowerCase() !== "text");
  if (other >= 0) throw invalidArgument(`response_format[${other}].type`, "must be image or text");
  const named = (modalities ?? []).map((each) => each.toLowerCase());
  if (modalities != null && !named.includes("image"))
    throw invalidArgument("response_modalities", "must hold image: this service makes images alone");
  const unknown = named.find((each) => each !== "image" && each !== "text");
  if (unknown !== undefined) throw invalidArgument("response_modalities", "takes only text and image");
  const isList = Array.isArray(given);
  const at =
    image === undefined ? "generation_config.image_config" : `response_format${isList ? `[${index}]` : ""}`;
  if (image?.delivery != null && image.delivery !== "inline")
    throw invalidArgument(`${at}.delivery`, "must be inline");
  const mimeType = image?.mime_type || null;
  if (mimeType !== null && !isImageMimeType(mimeType))
    throw invalidArgument(`${at}.mime_type`, "must be image/png, image/jpeg or image/webp");
  const older = config?.image_config ?? {};
  const ratio = image?.aspect_ratio || older.aspect_ratio;
  const size = image?.image_size || older.image_size;
  const hasWords =
    formats.length > 1 || (image === undefined && (modalities == null || named.includes("text")));
  return {
    at,
    hasWords,
    hasType: mimeType !== null,
    config: {
      ...(hasWords ? {} : { responseModalities: ["IMAGE"] }),
      imageConfig: {
        ...(ratio && ratio.toLowerCase() !== "auto" && { aspectRatio: ratio }),
        ...(size && { imageSize: size }),
        ...(mimeType && { outputMimeType: mimeType }),
      },
    },
  };
}

const camel = (name: string) => name.replace(/_([a-z])/g, (_, letter: string) => letter.toUpperCase());
const snake = (name: string) => name.replace(/[A-Z]/g, (letter) => `_${letter.toLowerCase()}`);

/** Returns `generation_config` as the `generationConfig` of `generateContent`. */
function generationConfig(config: Record<string, unknown>): Record<string, unknown> {
  const { image_config: _, thinking_level: thinkingLevel, ...others } = config;
  const fields = Object.entries(others).filter(([, value]) => value != null);
  return {
    ...Object.fromEntries(fields.map(([name, value]) => [camel(name), value])),
    ...(thinkingLevel != null && { thinkingConfig: { thinkingLevel } }),
  };
}

/** The tools of a request: `{"type": "google_search"}` is `{"googleSearch": {}}`. */
function toolsOf(tools: unknown): unknown[] {
  const list = Array.isArray(tools) ? tools : [tools];
  return list.map((tool, i) => {
    const { type, ...more } = fieldsOf(tool) ?? {};
    if (typeof type !== "string") throw invalidArgument(`tools[${i}].type`, "is required: a text");
    return { [camel(type)]: more };
  });
}

/** Reads the input as messages. `places`: the field of the request that each part of a message came from. Throws `REALTIME_INVALID_ARGUMENT`. */
function readInput(input: Body["input"]): { messages: Message[]; places: string[][] } {
  const messages: Message[] = [];
  const places: string[][] = [];
  const add = (role: Message["role"], part: Record<string, unknown>, at: string) => {
    if (messages.at(-1)?.role !== role) {
      messages.push({ role, parts: [] });
      places.push([]);
    }
    messages.at(-1)?.parts.push(part);
    places.at(-1)?.push(at);
  };
  const list =
    typeof input === "string" ? [{ type: "text", text: input }] : Array.isArray(input) ? input : [input];
  for (const [i, item] of list.entries()) {
    const at = Array.isArray(input) ? `input[${i}]` : "input";
    if (item.type === "thought") continue;
    const role = item.type === "model_output" ? "model" : "user";
    if (item.type !== "user_input" && item.type !== "model_output") {
      add(role, partOf(item, at), at);
      continue;
    }
    const { content } = item as Input;
    const parts =
      typeof content === "string"
        ? [{ type: "text", text: content }]
        : Array.isArray(content)
          ? content
          : [content ?? {}];
    for (const [j, part] of parts.entries()) {
      const place = Array.isArray(content) ? `${at}.content[${j}]` : `${at}.content`;
      add(role, partOf(part, place), place);
    }
  }
  return { messages, places };
}

function partOf({ type, text, data, uri, mime_type: mimeType }: Input, at: string): Record<string, unknown> {
  if ((type === "text" || type == null) && text != null) return { text };
  if (type === "image" || type == null) {
    if ((data == null) === (uri == null)) throw invalidArgument(at, "must have one of data and uri");
    if (data != null) return { inlineData: { mimeType: mimeType ?? "", data } };
    return { fileData: { fileUri: uri } };
  }
  const problem = type === "text" ? "needs a text" : "must be text, image, user_input or model_output";
  throw invalidArgument(type === "text" ? `${at}.text` : `${at}.type`, problem);
}

/**
 * Returns the name that a field of `generateContent` has in the request. `from`: how many messages come from earlier interactions.
 * `places`: as `readInput` returns them. `format`: as in `AskedInteraction`.
 */
function ownPlace(
  param: string,
  { from, places, format }: { from: number; places: readonly string[][]; format: string },
): string {
  const [, i, j, rest = ""] = /^contents\[(\d+)\](?:\.parts(?:\[(\d+)\])?(.*))?/.exec(param) ?? [];
  if (i !== undefined) {
    const message = Number(i) - from;
    if (message < 0) return "previous_interaction_id";
    const place = j === undefined ? undefined : places[message]?.[Number(j)];
    return place === undefined
      ? "input"
      : place + snake(rest.replace(/\.(?:inlineData|fileData)/, "")).replace("file_uri", "uri");
  }
  if (param === "contents") return "input";
  const ofImage = param
    .replace(/^generationConfig\.imageConfig/, format)
    .replace("outputMimeType", "mimeType");
  return snake(ofImage.replace(/^generationConfig\.thinkingConfig\./, "generationConfig."));
}

/** Returns the name that a field of `generateContent` has in this API. */
const nameOf = (field: string) => snake(field).replace(/\bthinking_config$/, "thinking_level");

/** Returns an interaction before it has an image. `id`: null when it is not stored. */
function beginningOf(id: string | null, atMs: number, { body, previous }: AskedInteraction): View {
  const created = new Date(atMs).toISOString();
  return {
    ...(id !== null && { id }),
    object: "interaction",
    status: "in_progress",
    model: body.model ?? "",
    created,
    updated: created,
    ...(previous && { previous_interaction_id: previous.id }),
    steps: [],
  };
}

/**
 * Returns the parts of a model's answer in their order, without its thoughts. `imageOf` returns an image by its index, with the
 * text that stands for its Base64.
 */
function answerParts(
  made: GeneratedContent,
  imageOf: (index: number) => { data: string; mime_type: string } | undefined,
  hasWords: boolean,
): Part[] {
  const image = (index: number): Part[] => {
    const found = imageOf(index);
    return found ? [{ type: "image", ...found }] : [];
  };
  const text = (words: unknown): Part[] =>
    hasWords && typeof words === "string" && words !== "" ? [{ type: "text", text: words }] : [];
  const said = spokenParts(made).flatMap((part) => [
    ...text(part.text),
    ...(typeof part.image === "number" ? image(part.image) : []),
  ]);
  if (said.some(({ type }) => type === "image")) return said;
  return [...text(wordsOf(made)), ...made.images.flatMap((_, index) => image(index))];
}

/**
 * Returns the turn of the model as a message of `generateContent`, for the interactions that continue this one. It keeps the
 * signatures of the upstream.
 */
function modelMessage(made: GeneratedContent, parts: readonly Part[]): Message {
  const said = spokenParts(made);
  const images = parts.filter(({ type }) => type === "image");
  const imageAt = (index: number) => {
    const { data, mime_type: mimeType } = images[index] ?? {};
    return { inlineData: { mimeType, data } };
  };
  if (!said.some(({ image }) => typeof image === "number"))
    return { role: "model", parts: images.map((_, index) => imageAt(index)) };
  const shown = said.map(({ image, ...rest }) =>
    typeof image === "number" ? { ...imageAt(image), ...rest } : rest,
  );
  return { role: "model", parts: shown };
}

function usageView(made: GeneratedContent): View["usage"] | undefined {
  const counted = usageOfContent(made);
  if (counted === undefined) return undefined;
  const {
    promptTokenCount: input = 0,
    candidatesTokenCount: output = 0,
    thoughtsTokenCount: thought = 0,
  } = counted;
  const byModality = (tokens: typeof counted.promptTokensDetails) =>
    (tokens ?? []).map(({ modality, tokenCount }) => ({
      modality: modality.toLowerCase(),
      tokens: tokenCount,
    }));
  return {
    total_input_tokens: input,
    input_tokens_by_modality: byModality(counted.promptTokensDetails),
    total_cached_tokens: 0,
    total_output_tokens: output,
    output_tokens_by_modality: byModality(counted.candidatesTokensDetails),
    total_tool_use_tokens: 0,
    total_thought_tokens: thought,
    total_tokens: counted.totalTokenCount ?? input + output + thought,
  };
}

/** Returns the `code` that an error of this API has for an HTTP status, such as `not_found`. */
export function interactionErrorCode(httpStatus: number): string {
  if (httpStatus === 400) return "invalid_request";
  return (STATUS_CODES[httpStatus] ?? "unknown").toLowerCase().replace(/\W+/g, "_");
}

function errorView(error: ImgbatchError): NativeBody<"InteractionError">["error"] {
  const { message, param, code: reason, httpStatus } = error;
  return { code: interactionErrorCode(httpStatus), message, reason, ...(param !== undefined && { param }) };
}

/** Errors of this API. Its clients repeat 408, 409, 429 and every 5xx. */
const errorStyle: ErrorStyle = {
  body: (error) => ({ error: errorView(error) }),
  schema: () => ({ $ref: "#/components/schemas/InteractionError" }),
  head: ({ mayBePaid }) => ({ headers: mayBePaid ? { "x-should-retry": "false" } : {} }),
};

type StreamEvent = { event_type: string } & Record<string, unknown>;

const shortView = ({ steps: _, ...interaction }: View) => interaction;

/** The events before there is an image. */
function openingEvents(interaction: View): StreamEvent[] {
  const { id, object, model } = interaction;
  const status = "in_progress";
  const begun = { ...(id !== undefined && { id }), status, object, model };
  return [
    { event_type: "interaction.created", interaction: begun },
    { event_type: "interaction.status_update", interaction_id: id ?? "", status },
  ];
}

/** The events of an interaction that has ended. */
function eventsOfInteraction(interaction: View): StreamEvent[] {
  const { id, status, steps, errors = [] } = interaction;
  const events = openingEvents(interaction);
  const outputs = steps.filter(({ type }) => type === "model_output");
  for (const [index, { type, content }] of outputs.entries()) {
    events.push({ event_type: "step.start", index, step: { type } });
    for (const part of content) events.push({ event_type: "step.delta", index, delta: part });
    events.push({ event_type: "step.stop", index });
  }
  for (const error of errors) events.push({ event_type: "error", error });
  if (status !== "completed")
    events.push({ event_type: "interaction.status_update", interaction_id: id ?? "", status });
  return [...events, { event_type: "interaction.completed", interaction: shortView(interaction) }];
}

const END = "event: done\ndata: [DONE]\n\n";

/** Writes the events of a stream. The first `sent` events are left out: the caller has them already. */
function written(events: readonly StreamEvent[], sent = 0): string {
  const numbered = events.map(({ event_type, ...data }, i) =>
    event(event_type, { event_type, event_id: String(i), ...data }),
  );
  return numbered.slice(sent).join("");
}

/**
 * How an interaction is streamed. `beginning`: the interaction before its end; null when its id is not known yet, because the
 * answer may be a replay. `sent`: how many events the caller has already.
 */
function framingOf(beginning: View | null, sent = 0): Framing {
  const opening = beginning === null ? [] : openingEvents(beginning);
  let next = sent;
  return {
    type: "text/event-stream",
    firstSignMs: EARLY_SIGN_MS,
    sign: () => {
      if (next >= opening.length) return ": the image is being made\n\n";
      const events = written(opening, next);
      next = opening.length;
      return events;
    },
    result: (body) => written(eventsOfInteraction(JSON.parse(String(body))), next),
    failure: (error) =>
      beginning === null
        ? written([{ event_type: "error", error: errorView(error) }])
        : written(eventsOfInteraction(failedView(beginning, error)), next),
    end: END,
  };
}

function failedView(interaction: View, error: ImgbatchError): View {
  return { ...interaction, status: "failed", errors: [errorView(error)] };
}

/** The background interactions that this process works on, by their ids. Aborting the controller stops the work. */
const running = new Map<string, AbortController>();

/** `POST /v1beta/interactions`. The order, behind the key: its limits, the body, its fields, provider, money. */
function createInteraction(deps: ApiDeps) {
  return realtimeHandler(async (request, response, { caller, key, gone }) => {
    const { limits, clock, ids, realtime } = deps;
    const images = { base64: "lenient", maxBytes: limits.referenceImageBytes } as const;
    const format = interactionFormat(limits);
    await withRealtimeBody(deps, request, response, { format, images }, async ({ value, sent, findFile }) => {
      const checked = await checkInteraction(deps, caller, value, sent, findFile);
      const { body, model, content, previous, isStored, isBackground } = checked;
      const facts = { apiKeyId: caller.key.id, api: API, previousId: previous?.id ?? null } as const;
      const kept = new NewInteraction(deps, ids.recordId("v1"), facts);
      const { id } = kept;
      const beginning = beginningOf(isStored ? id : null, clock.nowMs(), checked);
      const stop = new AbortController();
      let begun = () => {};
      const hasBegun = new Promise<null>((resolve) => {
        begun = () => resolve(null);
      });
      const begin = {
        write: (tx: Transaction) =>
          kept.begin(tx, { input: { messages: [] }, answer: beginning }, realtime.worker),
        begun: () => {
          running.set(id, stop);
          begun();
        },
      };
      const work = answerOnce(deps, response, {
        caller,
        model,
        content,
        count: 1,
        gone: isBackground ? stop.signal : gone,
        key,
        fingerprint: fingerprintOf(checked),
        fieldOf: (about) => fieldOf(about, checked),
        ...(checked.hasType && {
          finish: (made) => finishImage(deps.converter, { content, quality: null }, made),
        }),
        render: ([made]) => renderInteraction(deps, kept, checked, beginning, made),
        ...(isBackground && { begin }),
        ...(isStored && { alongside: (tx) => kept.write(tx) }),
        nameOf,
      })
        .catch(async (error) => {
          const shown = error instanceof ImgbatchError ? error : new ImgbatchError("INTERNAL_ERROR");
          if (isStored) await kept.fail(error, failedView(beginning, shown)).catch(() => {});
          return withFinalStatus(error);
        })
        .finally(() => running.delete(id));
      if (!isBackground) {
        if (body.stream === true)
          await answerStream(deps, framingOf(key === null ? beginning : null), response, work);
        else response.type("json").send(await work);
        return;
      }
      // Until the money is held, a failure is the answer.
      const early = await Promise.race([hasBegun, work]);
      const framing = framingOf(early === null ? beginning : null);
      if (body.stream === true)
        await answerStream(deps, framing, response, work).catch((error) => {
          // It has begun: what follows is told by its events.
          if (response.headersSent) return;
          response.type(framing.type).send(framing.failure(toServiceError(error)) + framing.end);
        });
      else response.type("json").send(early ?? JSON.stringify(beginning));
      await work.catch(() => {});
    });
  });
}

/** Writes the body of the answer, and what is kept of it. Throws `REALTIME_REFUSED` and `REALTIME_NO_IMAGE`. */
async function renderInteraction(
  { clock }: Pick<ApiDeps, "clock">,
  kept: NewInteraction,
  checked: AskedInteraction,
  beginning: View,
  made: GeneratedContent | undefined,
): Promise<Buffer> {
  if (made === undefined || made.images.length === 0) throw withoutImage(made);
  const { isStored } = checked;
  const messages = isStored ? await keptMessages(kept, checked) : [];
  const shown: { blobKey: string; mime_type: ImageMimeType; image: Buffer }[] = [];
  for (const { image, facts } of made.images) {
    const { mimeType } = facts;
    const blobKey = await kept.add({ from: "answer", mimeType, image: imageInMemory(image) }, isStored);
    shown.push({ blobKey, mime_type: mimeType, image });
  }
  const imageOf = (index: number) => {
    const found = shown[index];
    return found && { data: found.blobKey, mime_type: found.mime_type };
  };
  const content = answerParts(made, imageOf, checked.hasWords);
  const usage = usageView(made);
  const view: View = {
    ...beginning,
    status: "completed",
    updated: new Date(clock.nowMs()).toISOString(),
    steps: [{ type: "model_output", content }],
    ...(usage && { usage }),
  };
  kept.complete({ input: { messages: [...messages, modelMessage(made, content)] }, answer: view });
  return Buffer.from(await withPictures(view, shown, async ({ image }) => image));
}

/** Stores the images of the user. Returns the messages of the request with the keys of the blobs in the place of the Base64. */
async function keptMessages(
  kept: NewInteraction,
  { messages, images }: AskedInteraction,
): Promise<Message[]> {
  const result: Message[] = [];
  for (const [i, { role, parts }] of messages.entries()) {
    const keptParts: Message["parts"] = [];
    for (const [j, part] of parts.entries()) {
      const image = images.get(`${i}.${j}`);
      if (image === undefined) {
        // An image that was left out is no part of the conversation.
        if (part.text !== undefined) keptParts.push(part);
        continue;
      }
      const { mimeType } = image;
      const data = await kept.add({ from: "input", mimeType, image });
      keptParts.push({ inlineData: { mimeType, data } });
    }
    if (keptParts.length > 0) result.push({ role, parts: keptParts });
  }
  return result;
}

const PLACES: { [about in UnmetNeed["about"]]?: string } = {
  references: "input",
  seed: "generation_config.seed",
  systemInstruction: "system_instruction",
};

function fieldOf(about: UnmetNeed["about"], { format }: AskedInteraction): string {
  if (about === "size") return `${format}.image_size`;
  if (about === "aspectRatio") return `${format}.aspect_ratio`;
  return PLACES[about] ?? snake(about);
}

/** What a request asks for, however it is written. */
function fingerprintOf({ model, content, body, previous, hasWords, hasType }: AskedInteraction): string {
  const { store, background, stream } = body;
  const more = { store, background, stream, hasWords, hasType, previous: previous?.id };
  return contentFingerprint(`interactions ${JSON.stringify(more)}`, model.id, content);
}

/** The interaction of the path. Throws `REALTIME_INTERACTION_NOT_FOUND`. */
async function interactionOf(
  deps: ApiDeps,
  request: Request,
  response: Response,
): Promise<InteractionRecord> {
  const { id } = request.params;
  const name = typeof id === "string" ? id : "";
  const found = await findInteraction(deps, { apiKeyId: callerOf(response).key.id, api: API }, name);
  if (found === null) throw unknownInteraction(name, "id");
  return found;
}

/** An interaction as it is now, without the bytes of its images. */
function viewOf({ status, answer }: InteractionRecord): View {
  const view = answer as View;
  if (status === view.status) return view;
  if (status !== "failed") return { ...view, status };
  return failedView(view, new ImgbatchError("REALTIME_STOPPING", "The service was stopped meanwhile."));
}

/** Returns the turns of an interaction as steps, without its answer. */
function inputSteps({ input }: InteractionRecord): View["steps"] {
  const messages = input.messages as Message[];
  return messages.slice(0, -1).map(({ role, parts }) => ({
    type: role === "model" ? "model_output" : "user_input",
    content: parts.map(({ text, inlineData }): Part => {
      const { mimeType, data } = fieldsOf(inlineData) ?? {};
      if (typeof text === "string") return { type: "text", text };
      return { type: "image", data: String(data), mime_type: String(mimeType) };
    }),
  }));
}

const readPicture =
  ({ blobs }: Pick<ApiDeps, "blobs">) =>
  (picture: InteractionPicture) =>
    pictureOf(blobs, picture).read();

/** How often a stream reads an interaction to see whether it has ended: another process may work on it. */
const POLL_MS = 250;

/** Resolves with the text of an interaction once it has ended. */
async function ended(deps: ApiDeps, interaction: InteractionRecord, signal: AbortSignal): Promise<Buffer> {
  let now: InteractionRecord | null = interaction;
  while (now?.status === "in_progress") {
    await deps.clock.sleep(POLL_MS, signal);
    now = await findInteraction(deps, now, now.id);
  }
  if (now === null) throw unknownInteraction(interaction.id, "id");
  return Buffer.from(await withPictures(viewOf(now), now.pictures, readPicture(deps)));
}

const getInteraction = (deps: ApiDeps) => async (request: Request, response: Response) => {
  const found = await interactionOf(deps, request, response);
  if (readQuery(request, "StreamAgain") === "true") {
    const next = (readQuery(request, "LastEventId") ?? -1) + 1;
    const gone = goneSignal(response);
    const work = ended(deps, found, gone);
    await answerStream(
      deps,
      framingOf({ ...viewOf(found), status: "in_progress" }, next),
      response,
      work,
    ).catch((error) => {
      if (!gone.aborted) throw error;
    });
    return;
  }
  const view = viewOf(found);
  const before = readQuery(request, "IncludeInput") === "true" ? inputSteps(found) : [];
  const shown = { ...view, steps: [...before, ...view.steps] };
  response.type("json").send(await withPictures(shown, found.pictures, readPicture(deps)));
};

const cancelInteraction = (deps: ApiDeps) => async (request: Request, response: Response) => {
  const found = await interactionOf(deps, request, response);
  const { id } = found;
  const { isChanged } = await deps.stores.write((tx) => tx.interactions.end(id, { status: "cancelled" }));
  if (!isChanged) throw invalidArgument("id", "the interaction has ended: there is nothing to cancel");
  running.get(id)?.abort(new ImgbatchError("REALTIME_CANCELLED", "The interaction was cancelled."));
  response.json(viewOf({ ...found, status: "cancelled" }));
};

const deleteOne = (deps: ApiDeps) => async (request: Request, response: Response) => {
  const found = await interactionOf(deps, request, response);
  await deleteInteraction(deps, found);
  running.get(found.id)?.abort(new ImgbatchError("REALTIME_CANCELLED", "The interaction was deleted."));
  response.json({});
};

const notFound: readonly ServiceErrorCode[] = ["REALTIME_INTERACTION_NOT_FOUND"];

const operations: readonly Operation[] = [
  {
    id: "createInteraction",
    method: "post",
    path: PATHS.interactions,
    summary: "Make an image in a conversation, at once or in the background",
    parameters: ["RequestKey", "MaxCost"],
    body: "CreateInteraction",
    answers: {
      200: {
        description:
          "The interaction with its image, with `background` before there is one; with `stream`, the events of it.",
        schema: "Interaction",
        eventsOf: "InteractionEvent",
        headers: ["RequestReplayed", "MayBePaidTwice", "UpstreamCost", "Ignored"],
      },
    },
    errors: [...imageErrors, ...notFound],
    handler: createInteraction,
  },
  {
    id: "getInteraction",
    method: "get",
    path: PATHS.interaction,
    summary: "An interaction of the last 48 hours",
    parameters: ["InteractionId", "StreamAgain", "LastEventId", "IncludeInput"],
    answers: {
      200: {
        description: "The interaction as it is now; with `stream`, the events of it, to its end.",
        schema: "Interaction",
        eventsOf: "InteractionEvent",
      },
    },
    errors: [...notFound, "REALTIME_INVALID_ARGUMENT", "BATCH_IMAGE_RESULT_MISSING"],
    handler: getInteraction,
  },
  {
    id: "cancelInteraction",
    method: "post",
    path: PATHS.interactionCancel,
    summary: "Stop an interaction that is made in the background; it costs nothing",
    parameters: ["InteractionId"],
    answers: { 200: { description: "It is cancelled.", schema: "Interaction" } },
    errors: [...notFound, "REALTIME_INVALID_ARGUMENT", "BATCH_IMAGE_QUEUE_FAILED"],
    handler: cancelInteraction,
  },
  {
    id: "deleteInteraction",
    method: "delete",
    path: PATHS.interaction,
    summary: "Delete an interaction and its images",
    parameters: ["InteractionId"],
    answers: { 200: { description: "It is deleted.", schema: "Empty" } },
    errors: [...notFound, "BATCH_IMAGE_QUEUE_FAILED"],
    handler: deleteOne,
  },
];

/** Interactions of the vendor's API. */
export const interactions: Surface = {
  tag: "realtime",
  vendor: "google",
  prefix: PATHS.interactions,
  operations,
  credential: headerOrQueryKey,
  errorStyles: [[/^\/v1(?:beta)?\/interactions(?:\/|$)/, errorStyle]],
};
