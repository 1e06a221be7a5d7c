import type { Request, Response } from "express";
import { ImgbatchError, type ServiceErrorCode } from "../../contract/errors.ts";
import { FIXED_LIMITS, type Limits } from "../../contract/limits.ts";
import { type OpenaiBody, openaiSchemas } from "../../contract/openai-api.ts";
import { PATHS } from "../../contract/routes.ts";
import type { Caller } from "../../domain/batches/create-batch.ts";
import { contentFingerprint } from "../../domain/checked-content.ts";
import type { FindFileImage } from "../../domain/files/uploads.ts";
import { imageInMemory, receiveImage, type SentTexts } from "../../domain/images/sent-image.ts";
import { inputImageLimit } from "../../domain/models.ts";
import {
  conversationOf,
  deleteInteraction,
  findInteraction,
  NewInteraction,
  pictureOf,
  withPictures,
} from "../../domain/realtime/interactions.ts";
import type { GeneratedContent } from "../../domain/realtime/realtime.ts";
import type { InteractionRecord } from "../../domain/records.ts";
import { isObject } from "../../kernel/json.ts";
import { isLongerThan, joinTurns } from "../../kernel/text.ts";
import type { ApiDeps } from "../deps.ts";
import { answerOnce, answerStream, EARLY_SIGN_MS, type Framing, realtimeHandler } from "../http/answer.ts";
import { callerOf, headerKey } from "../http/authenticate.ts";
import { invalidArgument, parseArgument, requireStorable, withParam } from "../http/errors.ts";
import { readQuery } from "../http/parameters.ts";
import { newest, type ReceivedImage } from "../native-api/check-content.ts";
import { textTokens, wordsOf } from "../native-api/generate.ts";
import { modelNamed } from "../native-api/models.ts";
import type { Operation, Surface } from "../operation.ts";
import { withRealtimeBody } from "../request-body/json-body.ts";
import { type BodyFormat, OneOf, shapeOf } from "../request-body/json-reader.ts";
import {
  event,
  type FinishedImage,
  fieldOf,
  finishedImage,
  finishImage,
  imageErrors,
  imageFacts,
  openaiErrorStyle,
  usedOptions,
  withFinalStatus,
  withoutImage,
} from "./images.ts";
import { type AskedImages, checkRequest, imageOfJson, receivedImage } from "./read-request.ts";

type Body = OpenaiBody<"CreateResponse">;
type View = OpenaiBody<"Response">;
type Item = Exclude<Body["input"], string>[number];

const TOOL = "image_generation";
const API = "openai";

const contentShape = new OneOf({
  text: "prompt",
  list: [{ type: "any", text: "prompt", image_url: "image", file_id: "any" }],
  fields: {},
});
const itemShape = { type: "any", role: "any", id: "any", content: contentShape, result: "image" } as const;
const SHAPE = shapeOf(openaiSchemas.CreateResponse, {
  input: new OneOf({ text: "prompt", list: [itemShape], fields: {} }),
  instructions: "prompt",
  "tools[].input_image_mask.image_url": "image",
});
/** Texts of a request: those of a whole conversation. */
const MOST_TEXTS = 8;

function responseFormat({ promptChars }: Pick<Limits, "promptChars">): BodyFormat {
  const code = () => "REALTIME_INVALID_ARGUMENT" as const;
  return { shape: SHAPE, prompts: MOST_TEXTS, images: FIXED_LIMITS.editImages + 1, promptChars, code };
}

/** A request that has passed every check. */
interface AskedResponse {
  asked: AskedImages;
  body: Body;
  /** The index of the image tool in `tools`. */
  tool: number;
  previous: InteractionRecord | null;
  /** What the user has said, one text for each turn. Responses that continue this one read it. */
  texts: readonly string[];
}

/** Checks a request. Throws `REALTIME_INVALID_ARGUMENT`, `REALTIME_PREVIOUS_NOT_FOUND` and `REALTIME_MODEL_NOT_FOUND`. */
async function checkResponse(
  deps: ApiDeps,
  caller: Caller,
  value: unknown,
  sent: SentTexts,
  findFile: FindFileImage,
): Promise<AskedResponse> {
  const body = parseArgument(openaiSchemas.CreateResponse, value);
  const tool = toolOf(body);
  if (body.background === true)
    throw invalidArgument("background", "must not be true: wait for the response, or read its stream");
  for (const name of UNSUPPORTED) {
    if ((value as Record<string, unknown>)[name] != null)
      throw invalidArgument(name, "is not known here: send the texts and images in `input`");
  }
  const {
    model: name,
    input_image_mask: sentMask,
    action,
    ...options
  } = body.tools?.[tool] ?? { type: TOOL };
  const previous = await previousOf(deps, caller, body);
  const input = await readInput(deps, caller, body, sent, findFile);
  const ofPrevious = action === "generate" ? [] : await picturesOf(deps, previous);
  const mask =
    sentMask == null ? null : await inTool(tool, () => imageOfJson(sentMask, "mask", sent, findFile));
  const made = [...ofPrevious, ...input.made];
  const model = await inTool(tool, async () => modelNamed(deps, caller.group, name ?? null, "realtime"));
  // A long conversation goes on without its oldest pictures.
  const most = Math.max(1, inputImageLimit(deps.realtimeOffers.serving(model.id)) - input.images.length);
  const images = [...made.slice(-most), ...input.images];
  if (action === "edit" && images.length === 0)
    throw invalidArgument(
      `tools[${tool}].action`,
      "edit needs an image: in `input`, or of a response before",
    );
  const { size, quality, background, output_format, output_compression } = options;
  const look = { size, quality, background, output_format, output_compression };
  const { moderation, input_fidelity } = options;
  const stream = { stream: body.stream, partial_images: options.partial_images };
  const fields = { prompt: input.prompt, model: name, ...look, ...stream, moderation, input_fidelity };
  const ignored = ignoredOf(value as object, body, tool);
  const asked = await inTool(tool, () => checkRequest(deps, caller.group, { fields, ignored, images, mask }));
  const { promptChars } = deps.limits;
  const before = await conversationOf(deps, previous);
  const texts = [...before.flatMap(textsOf), ...input.texts.slice(0, -1)];
  const earlier = joinTurns(
    ...input.instructions,
    newest(
      texts.map((text) => ({ text })),
      promptChars,
    ),
  );
  const unread = asked.content.ignored?.map((each) => each.replace(/^partial_images$/, `tools[${tool}].$&`));
  const content = { ...asked.content, earlier, ...(unread && { ignored: unread }) };
  return { asked: { ...asked, content }, body, tool, previous, texts: input.texts };
}

/** Fields of the vendor's API that would change the picture, and that this service does not have. */
const UNSUPPORTED = ["conversation", "prompt"] as const;

/** Returns the index of the image tool. Throws `REALTIME_INVALID_ARGUMENT` when the answer could be a text without an image. */
function toolOf({ tools, tool_choice: choice }: Body): number {
  const tool = (tools ?? []).findIndex(({ type }) => type === TOOL);
  const advice = `this service makes images alone: send \`"tools": [{"type": "${TOOL}"}]\``;
  if (tool < 0) throw invalidArgument("tools", advice);
  const chosen = choice as { type?: unknown; mode?: unknown; tools?: unknown } | string | null | undefined;
  const isText = typeof chosen === "string" && !["auto", "required", TOOL].includes(chosen);
  const isOther =
    typeof chosen === "object" && chosen !== null && ![TOOL, "allowed_tools"].includes(String(chosen.type));
  if (isText || isOther)
    throw invalidArgument("tool_choice", `must be auto, required or {"type": "${TOOL}"}`);
  return tool;
}

/** Returns the names of the fields that have no effect. `tool`: the index of the image tool. */
function ignoredOf(sent: object, { tools }: Body, tool: number): string[] {
  const known = openaiSchemas.CreateResponse.shape;
  const ofTool = openaiSchemas.CreateResponse.shape.tools.unwrap().unwrap().element.shape;
  const given = Object.entries(sent).filter(([name, value]) => value != null && !Object.hasOwn(known, name));
  const others = (tools ?? []).flatMap((_, i) => (i === tool ? [] : [`tools[${i}]`]));
  const more = Object.entries(tools?.[tool] ?? {})
    .filter(([name, value]) => value != null && !Object.hasOwn(ofTool, name))
    .map(([name]) => `tools[${tool}].${name}`);
  return [...given.map(([name]) => name), ...others, ...more];
}

/** Returns the name that a field of a request for images has in a request for a response. */
function placeOf(param: string, tool: number): string {
  if (param === "prompt" || param === "image") return "input";
  if (/^(?:input\[|previous_response_id)/.test(param)) return param;
  return `tools[${tool}].${param.replace(/^mask/, "input_image_mask")}`;
}

/** Does the work. An error about a field gets the name that the field has in this API. */
async function inTool<T>(tool: number, work: () => Promise<T>): Promise<T> {
  try {
    return await work();
  } catch (error) {
    throw withParam(error, (param) => placeOf(param, tool));
  }
}

async function previousOf(
  deps: ApiDeps,
  { key }: Caller,
  { previous_response_id: id }: Body,
): Promise<InteractionRecord | null> {
  if (id == null || id === "") return null;
  const previous = await findInteraction(deps, { apiKeyId: key.id, api: API }, id);
  if (previous !== null) return previous;
  const message = `Previous response with id '${id.slice(0, 100).toWellFormed()}' not found.`;
  throw new ImgbatchError("REALTIME_PREVIOUS_NOT_FOUND", message, { param: "previous_response_id" });
}

/** Returns the pictures of a response; none for null. */
async function picturesOf({ blobs }: ApiDeps, response: InteractionRecord | null): Promise<ReceivedImage[]> {
  const made = (response?.pictures ?? []).filter(({ from }) => from === "answer");
  return made.map((picture) => receivedImage(pictureOf(blobs, picture), "previous_response_id"));
}

const textsOf = ({ input }: InteractionRecord) => input.texts as string[];

/** What the input of a request says. */
interface Input {
  /** What the user asks for now. */
  prompt: string;
  /** All that the user says, one text for each turn; the last is the prompt. */
  texts: string[];
  /** `instructions`, and the messages of the roles `system` and `developer`. */
  instructions: string[];
  /** Pictures that earlier responses have made. */
  made: ReceivedImage[];
  /** Pictures that the user has sent. */
  images: ReceivedImage[];
}

/** Reads the input of a request. Throws `REALTIME_INVALID_ARGUMENT`. */
async function readInput(
  deps: ApiDeps,
  caller: Caller,
  { input, instructions }: Body,
  sent: SentTexts,
  findFile: FindFileImage,
): Promise<Input> {
  const items: Item[] = typeof input === "string" ? [{ role: "user", content: input }] : input;
  const read: Input = { prompt: "", texts: [], instructions: [], made: [], images: [] };
  const { promptChars } = deps.limits;
  const textAt = (at: string, text: string): string => {
    requireStorable(at, text);
    if (isLongerThan(text, promptChars))
      throw invalidArgument(at, `has more than the ${promptChars} characters that are allowed`);
    return text.trim();
  };
  if (instructions != null) read.instructions.push(textAt("instructions", instructions));
  /** Returns the text of a message of the user, and adds its images to the others. */
  const readUserMessage = async ({ content }: Item, at: string): Promise<string> => {
    const texts: string[] = [];
    const parts = typeof content === "string" ? [{ text: content }] : (content ?? []);
    for (const [j, part] of parts.entries()) {
      const place = typeof content === "string" ? at : `${at}.content[${j}]`;
      if (part.text != null && part.text.trim() !== "") texts.push(textAt(place, part.text));
      else if (part.image_url != null || part.file_id != null) {
        if (read.images.length === FIXED_LIMITS.editImages)
          throw invalidArgument("input", `has more than ${FIXED_LIMITS.editImages} images`);
        read.images.push(await imageOfJson(part, place, sent, findFile));
      } else if (part.text == null)
        throw invalidArgument(place, "must be an input_text, or an input_image with image_url or file_id");
    }
    return texts.join("\n");
  };
  /** Whether the next text of the user belongs to the same turn as the last text. */
  let isTurnOpen = false;
  for (const [i, item] of items.entries()) {
    const at = `input[${i}]`;
    const type = item.type ?? (item.role == null && item.id != null ? "item_reference" : "message");
    if (type === "message" && item.role === "user") {
      const said = await readUserMessage(item, at);
      if (said === "") continue;
      read.texts.push(isTurnOpen ? joinTurns(read.texts.pop() ?? "", said) : said);
      isTurnOpen = true;
      continue;
    }
    isTurnOpen = false;
    if (type === "message") {
      if (item.role === "assistant") continue;
      if (item.role !== "system" && item.role !== "developer")
        throw invalidArgument(`${at}.role`, "must be user, assistant, system or developer");
      const { content } = item;
      const parts = typeof content === "string" ? [content] : (content ?? []).map(({ text }) => text ?? "");
      read.instructions.push(textAt(at, parts.join("\n")));
    } else if (type === "image_generation_call" || type === "item_reference") {
      const made = await madePicture(deps, caller, item, at, sent);
      if (made !== null) read.made.push(made);
    } else if (type !== "reasoning")
      throw invalidArgument(`${at}.type`, "must be message, image_generation_call or item_reference");
  }
  const prompt = read.texts.at(-1);
  if (prompt === undefined)
    throw invalidArgument("input", "needs a text of the user: what to draw, or how to edit");
  textAt("input", prompt);
  return { ...read, prompt };
}

/**
 * Returns the picture that an item of an earlier response stands for: the picture that is kept here, else the `result` of the item.
 * Returns null for a reference to a text. Throws `REALTIME_INVALID_ARGUMENT`.
 */
async function madePicture(
  deps: ApiDeps,
  { key }: Caller,
  { type, id, result }: Item,
  at: string,
  sent: SentTexts,
): Promise<ReceivedImage | null> {
  const [, kind = "", name = ""] = /^(ig|msg)_(\w+)$/.exec(id ?? "") ?? [];
  if (kind === "msg" && type === "item_reference") return null;
  const response =
    kind === "ig" ? await findInteraction(deps, { apiKeyId: key.id, api: API }, `resp_${name}`) : null;
  const [picture] = await picturesOf(deps, response);
  if (picture) return { ...picture, fields: { type: at, bytes: at, amount: "input" } };
  if (result == null || result === "") {
    const advice = type === "item_reference" ? "" : ": send its `result` with it";
    throw invalidArgument(`${at}.id`, `is not the id of a picture that is kept for this key${advice}`);
  }
  const rules = { maxBytes: FIXED_LIMITS.editImageBytes, base64: "lenient", sent } as const;
  const image = receiveImage(result, rules);
  if (typeof image === "string") throw invalidArgument(`${at}.result`, image);
  return receivedImage(image, `${at}.result`);
}

const SHORT_CHARS = 256;

/** Returns the body of a response. `more`: what depends on whether there is an image yet. */
function responseView(
  { id, createdAt }: { id: string; createdAt: number },
  { body, asked, previous }: AskedResponse,
  more: Pick<View, "status" | "error" | "output"> & Partial<View>,
): View {
  const { model, tool_choice: choice, instructions, metadata, store } = body;
  // Short values alone come back: a mask is no part of the answer.
  const isShort = (given: unknown) => typeof given !== "object" && String(given).length <= SHORT_CHARS;
  const tools = body.tools?.map((tool) =>
    Object.fromEntries(Object.entries(tool).filter(([, given]) => isShort(given))),
  );
  return {
    id,
    object: "response",
    created_at: createdAt,
    incomplete_details: null,
    instructions: instructions ?? null,
    max_output_tokens: null,
    metadata: metadata ?? {},
    model: model || asked.model.id,
    parallel_tool_calls: true,
    previous_response_id: previous?.id ?? null,
    store: store ?? true,
    temperature: 1,
    text: { format: { type: "text" } },
    tool_choice: isObject(choice) ? { type: choice.type } : (choice ?? "auto"),
    tools: tools ?? [],
    top_p: 1,
    truncation: "disabled",
    usage: null,
    ...more,
  };
}

const idsOf = (responseId: string) => {
  const name = responseId.replace(/^resp_/, "");
  return { call: `ig_${name}`, message: `msg_${name}` };
};

/** Returns what a response has once its image is made. `result`: the text that stands for the Base64 of the image. */
function outcomeView(
  id: string,
  { asked }: AskedResponse,
  made: GeneratedContent,
  image: FinishedImage,
  result: string,
): Pick<View, "output" | "usage" | "tool_usage"> {
  const used = usedOptions(asked.content.options, asked.model.defaultQuality, made.isDrawn);
  const ids = idsOf(id);
  const call = {
    id: ids.call,
    type: "image_generation_call" as const,
    status: "completed",
    action: asked.content.images.length > 0 ? "edit" : "generate",
    result,
    ...imageFacts(image.size, image.mimeType, used),
    ...(image.revisedPrompt !== undefined && { revised_prompt: image.revisedPrompt }),
  };
  const text = wordsOf(made);
  const message = {
    id: ids.message,
    type: "message" as const,
    status: "completed",
    role: "assistant" as const,
    content: [{ type: "output_text" as const, text: text ?? "", annotations: [], logprobs: [] }],
  };
  const usage = made.isDrawn ? textUsage(asked.content.prompt, text ?? "") : textUsage("", "");
  return {
    output: text === null ? [call] : [call, message],
    usage,
    ...(image.usage && { tool_usage: { image_gen: image.usage } }),
  };
}

/** Returns the usage that a text model would have had: clients expect one, though no text model was asked. */
function textUsage(prompt: string, text: string): NonNullable<View["usage"]> {
  const input_tokens = textTokens(prompt);
  const output_tokens = textTokens(text);
  return {
    input_tokens,
    input_tokens_details: { cached_tokens: 0 },
    output_tokens,
    output_tokens_details: { reasoning_tokens: 0 },
    total_tokens: input_tokens + output_tokens,
  };
}

/** The body of the answer to a request for a stream, from which its events are made. */
interface StreamedBody {
  response: View;
  /** The Base64 of the picture before it was finished. */
  partials: readonly string[];
}

type StreamEvent = { type: string } & Record<string, unknown>;

/** The events before there is an image. */
function openingEvents(response: View): StreamEvent[] {
  const { call: item_id } = idsOf(response.id);
  const at = { item_id, output_index: 0 };
  const item = { id: item_id, type: "image_generation_call", status: "in_progress", result: null };
  return [
    { type: "response.created", response },
    { type: "response.in_progress", response },
    { type: "response.output_item.added", output_index: 0, item },
    { type: "response.image_generation_call.in_progress", ...at },
    { type: "response.image_generation_call.generating", ...at },
  ];
}

/** The events of a whole response. */
function eventsOfResponse({ response, partials }: StreamedBody): StreamEvent[] {
  const { status, output } = response;
  const beginning = { ...response, status: "in_progress" as const, output: [], error: null, usage: null };
  const events = openingEvents(beginning);
  if (status === "failed") return [...events, { type: "response.failed", response }];
  for (const [output_index, item] of output.entries()) {
    const at = { item_id: item.id, output_index };
    const done = { type: "response.output_item.done", output_index, item };
    if (item.type === "image_generation_call") {
      const { size, quality, background, output_format } = item;
      for (const [i, partial_image_b64] of partials.entries()) {
        const partial = { partial_image_index: i, partial_image_b64 };
        const type = "response.image_generation_call.partial_image";
        events.push({ type, ...at, ...partial, size, quality, background, output_format });
      }
      events.push({ type: "response.image_generation_call.completed", ...at }, done);
      continue;
    }
    const added = { ...item, status: "in_progress", content: [] };
    events.push({ type: "response.output_item.added", output_index, item: added });
    for (const [content_index, part] of (item.content ?? []).entries()) {
      const place = { ...at, content_index };
      const { text } = part;
      events.push(
        { type: "response.content_part.added", ...place, part: { ...part, text: "" } },
        { type: "response.output_text.delta", ...place, delta: text, logprobs: [] },
        { type: "response.output_text.done", ...place, text, logprobs: [] },
        { type: "response.content_part.done", ...place, part },
      );
    }
    events.push(done);
  }
  return [...events, { type: "response.completed", response }];
}

/** Writes the events of a stream. The first `sent` events are left out: the caller has them already. */
function written(events: readonly StreamEvent[], sent = 0): string {
  const numbered = events.map(({ type, ...data }, i) => event(type, { type, sequence_number: i, ...data }));
  return numbered.slice(sent).join("");
}

/**
 * How a response is streamed. The opening events come with the first sign of life, or with the image. `isOpeningKnown`:
 * whether the id of the response is known before the answer. With an idempotency key it is not: the answer may be a replay.
 */
function framingOf(response: View, isOpeningKnown: boolean): Framing {
  const opening = openingEvents(response);
  let isOpened = false;
  return {
    type: "text/event-stream",
    firstSignMs: EARLY_SIGN_MS,
    sign: () => {
      if (isOpened || !isOpeningKnown) return ": the image is being made\n\n";
      isOpened = true;
      return written(opening);
    },
    result: (body) => {
      const events = eventsOfResponse(JSON.parse(String(body)));
      return written(events, isOpened ? opening.length : 0);
    },
    failure: (error) => {
      const events = eventsOfResponse({ response: failedView(response, error), partials: [] });
      return written(events, isOpened ? opening.length : 0);
    },
    end: "",
  };
}

/** The `code` of the error in a failed response, as OpenAI calls it. Any other error is a `server_error`. */
const RESPONSE_CODES: { [code in ServiceErrorCode]?: string } = {
  REALTIME_REFUSED: "image_content_policy_violation",
  RATE_LIMITED: "rate_limit_exceeded",
  REALTIME_PROVIDER_LIMITED: "rate_limit_exceeded",
};

function failedView(response: View, { code, message }: ImgbatchError): View {
  const known = RESPONSE_CODES[code as ServiceErrorCode] ?? "server_error";
  return { ...response, status: "failed", error: { code: known, message } };
}

/** `POST /v1/responses`. The order, behind the key: its limits, the body, its fields, provider, money. */
function createResponse(deps: ApiDeps) {
  return realtimeHandler(async (request, response, { caller, key, gone }) => {
    const { limits, clock, ids } = deps;
    const maxBytes = FIXED_LIMITS.editImageBytes;
    const images = { base64: "lenient", areDataUrls: "maybe", maxBytes } as const;
    const format = responseFormat(limits);
    await withRealtimeBody(deps, request, response, { format, images }, async ({ value, sent, findFile }) => {
      const checked = await checkResponse(deps, caller, value, sent, findFile);
      const { asked, body, tool, previous } = checked;
      const facts = { apiKeyId: caller.key.id, api: API, previousId: previous?.id ?? null } as const;
      const kept = new NewInteraction(deps, ids.recordId("resp"), facts);
      const { id } = kept;
      const createdAt = Math.floor(clock.nowMs() / 1000);
      const beginning = responseView({ id, createdAt }, checked, {
        status: "in_progress",
        error: null,
        output: [],
      });
      const isStored = body.store ?? true;
      const work = answerOnce(deps, response, {
        caller,
        model: asked.model,
        content: asked.content,
        count: 1,
        gone,
        key,
        fingerprint: fingerprintOf(checked),
        fieldOf: (about) => placeOf(fieldOf(about), tool),
        nameOf: (field) => placeOf(field, tool),
        finish: (made) => finishImage(deps.converter, asked, made),
        render: async ([made]) => {
          const finished = made ? await finishedImage(deps.converter, made, asked.content) : null;
          if (made === undefined || finished === null) throw withoutImage(made);
          const image = imageInMemory(finished.bytes);
          const { mimeType } = finished;
          const result = await kept.add({ from: "answer", mimeType, image }, isStored);
          const view = {
            ...beginning,
            status: "completed" as const,
            completed_at: Math.floor(clock.nowMs() / 1000),
            ...outcomeView(id, checked, made, finished, result),
          };
          kept.complete({ input: { texts: checked.texts }, answer: view });
          const text = await withPictures(view, [{ blobKey: result }], image.read);
          if (body.stream !== true) return Buffer.from(text);
          const partials = finished.partials.map((each) => each.toString("base64"));
          return Buffer.from(`{"response":${text},"partials":${JSON.stringify(partials)}}`);
        },
        ...(isStored && { alongside: (tx) => kept.write(tx) }),
      }).catch(async (error) => {
        if (isStored) await kept.fail(error, {}).catch(() => {});
        return withFinalStatus(error);
      });
      if (body.stream === true) await answerStream(deps, framingOf(beginning, key === null), response, work);
      else response.type("json").send(await work);
    });
  });
}

/** What a request asks for, however it is written. */
function fingerprintOf({ asked, body, previous }: AskedResponse): string {
  const { model, content, ...rest } = asked;
  const { metadata, store, stream, tools, model: name } = body;
  const more = { ...rest, metadata, store, stream, tools: tools?.map(({ type }) => type), name };
  const operation = `responses ${JSON.stringify({ ...more, previous: previous?.id })}`;
  return contentFingerprint(operation, model.id, content);
}

/** The response of the path. Throws `REALTIME_INTERACTION_NOT_FOUND`. */
async function responseOf(deps: ApiDeps, request: Request, response: Response): Promise<InteractionRecord> {
  const { id } = request.params;
  const name = typeof id === "string" ? id : "";
  const found = await findInteraction(deps, { apiKeyId: callerOf(response).key.id, api: API }, name);
  if (found !== null) return found;
  const message = `Response with id '${name.slice(0, 100).toWellFormed()}' not found.`;
  throw new ImgbatchError("REALTIME_INTERACTION_NOT_FOUND", message, { param: "response_id" });
}

const notFound: readonly ServiceErrorCode[] = ["REALTIME_INTERACTION_NOT_FOUND"];

const operations: readonly Operation[] = [
  {
    id: "createResponse",
    method: "post",
    path: PATHS.responses,
    summary: "Make an image in a conversation, for OpenAI clients",
    parameters: ["RequestKey", "MaxCost"],
    body: "CreateResponse",
    answers: {
      200: {
        description: "The response with its image; with `stream`, the events of it.",
        schema: "Response",
        eventsOf: "ResponseEvent",
        headers: ["RequestReplayed", "MayBePaidTwice", "UpstreamCost", "Ignored"],
      },
    },
    errors: [...imageErrors, "REALTIME_PREVIOUS_NOT_FOUND"],
    handler: createResponse,
  },
  {
    id: "getResponse",
    method: "get",
    path: PATHS.response,
    summary: "A response of the last 48 hours",
    parameters: ["ResponseId", "StreamAgain", "StartingAfter"],
    answers: {
      200: {
        description: "The response; with `stream`, the events of it, without those of partial images.",
        schema: "Response",
        eventsOf: "ResponseEvent",
      },
    },
    errors: [...notFound, "REALTIME_INVALID_ARGUMENT", "BATCH_IMAGE_RESULT_MISSING"],
    handler: (deps) => async (request, response) => {
      const { answer, pictures } = await responseOf(deps, request, response);
      const isStream = readQuery(request, "StreamAgain") === "true";
      const after = readQuery(request, "StartingAfter") ?? -1;
      const text = await withPictures(answer, pictures, (each) => pictureOf(deps.blobs, each).read());
      if (!isStream) response.type("json").send(text);
      else {
        const events = eventsOfResponse({ response: JSON.parse(text), partials: [] });
        response.type("text/event-stream").send(written(events, after + 1));
      }
    },
  },
  {
    id: "deleteResponse",
    method: "delete",
    path: PATHS.response,
    summary: "Delete a response and its image",
    parameters: ["ResponseId"],
    answers: { 200: { description: "It is deleted.", schema: "DeletedResponse" } },
    errors: [...notFound, "BATCH_IMAGE_QUEUE_FAILED"],
    handler: (deps) => async (request, response) => {
      const found = await responseOf(deps, request, response);
      await deleteInteraction(deps, found);
      const deleted: OpenaiBody<"DeletedResponse"> = { id: found.id, object: "response", deleted: true };
      response.json(deleted);
    },
  },
];

/** Responses for OpenAI clients. */
export const openaiResponses: Surface = {
  tag: "realtime",
  vendor: "openai",
  prefix: PATHS.responses,
  operations,
  credential: headerKey,
  errorStyles: [[/^(?:\/v1)?\/responses(?:\/|$)/, openaiErrorStyle]],
};
