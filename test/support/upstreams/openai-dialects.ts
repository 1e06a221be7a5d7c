import { type Answer, isForm, type UpstreamRequest } from "./fake-upstream.ts";
import { type ImageType, lookAt } from "./images.ts";

/** The usual errors of the API; relays send the same. */
export const openaiErrors = {
  invalid: (message: string, param: string | null, code = "invalid_value") =>
    failure(400, { message, type: "invalid_request_error", param, code }),
  invalidKey: () => {
    const message = "Incorrect API key provided. You can find your API key in your account settings.";
    return failure(401, { message, type: "invalid_request_error", param: null, code: "invalid_api_key" });
  },
  noMoney: () => {
    const message = "You exceeded your current quota, please check your plan and billing details.";
    return failure(429, { message, type: "insufficient_quota", param: null, code: "insufficient_quota" });
  },
  paymentRequired: () =>
    failure(402, {
      message: "Insufficient credits. Add more to continue.",
      type: null,
      param: null,
      code: 402,
    }),
  limited: (headers: Record<string, string> = {}) => {
    const message = "Rate limit reached for images per minute: Limit 5, Used 5, Requested 1.";
    return failure(429, { message, type: "requests", param: null, code: "rate_limit_exceeded" }, headers);
  },
  refused: (categories = "violence") =>
    failure(400, {
      message: `Your request was rejected by the safety system. safety_violations=[${categories}].`,
      ...{ type: "image_generation_user_error", param: null, code: "moderation_blocked" },
    }),
  noModel: (model: string) =>
    failure(404, {
      message: `The model '${model}' does not exist or you do not have access to it.`,
      ...{ type: "invalid_request_error", param: null, code: "model_not_found" },
    }),
  noPath: (path: string) => {
    const message = `Invalid URL (POST ${path})`;
    return failure(404, { message, type: "invalid_request_error", param: null, code: null });
  },
  server: (code = 500) => {
    const message = "The server had an error while processing your request.";
    return failure(code, { message, type: "server_error", param: null, code: null });
  },
  /** HTTP 200, as some relays send it. */
  inside200: (code: number, message: string) => json(200, { error: { code, message, metadata: {} } }),
};

/** Moderation that says nothing: no data, or data without an image. */
export const silentModeration = {
  empty: () => json(200, { created: 1_790_000_000, data: [] }),
  flagged: () => json(200, { data: [{ respect_moderation: false }] }),
};

function failure(status: number, error: object, headers: Record<string, string> = {}): Answer {
  const answer = json(status, { error });
  return { ...answer, headers: { ...answer.headers, ...headers } };
}

export function json(status: number, body: object): Answer {
  return { status, headers: { "x-request-id": "req_of_the_fake" }, body: JSON.stringify(body) };
}

/** The content of a request. */
export interface Wish {
  prompt: string;
  width: number;
  height: number;
  count: number;
  type: ImageType;
  answerAs: "b64_json" | "url";
  /** Fields of the answer beside the images. */
  usage: object;
}

/** How one service speaks. */
export interface Dialect {
  base: string;
  path: string;
  editPath: string;
  model: string;
  read(
    request: Pick<UpstreamRequest, "body">,
    fields: Record<string, unknown>,
    isEdit: boolean,
  ): Promise<Wish | Answer>;
}

const GENERATE_FIELDS = [
  "model",
  "prompt",
  "n",
  "size",
  "quality",
  "background",
  "moderation",
  "output_format",
];
const MORE_FIELDS = ["output_compression", "stream", "partial_images", "user", "safety_identifier"];
const EDIT_FIELDS = ["input_fidelity", "mask"];
const TYPES: readonly string[] = ["png", "jpeg", "webp"];

/** OpenAI itself: strict about names and values. */
const openai: Dialect = {
  ...{ base: "/v1", path: "/images/generations", editPath: "/images/edits", model: "gpt-image-2" },
  read: async ({ body }, fields, isEdit) => {
    const { invalid } = openaiErrors;
    const known = [...GENERATE_FIELDS, ...MORE_FIELDS, ...(isEdit ? EDIT_FIELDS : [])];
    const unknown = Object.keys(fields).find((name) => !known.includes(name));
    if (unknown) return invalid(`Unknown parameter: '${unknown}'.`, unknown, "unknown_parameter");
    const { prompt, size = "auto", output_format: type = "png" } = fields;
    if (typeof prompt !== "string" || prompt === "" || prompt.length > 32_000)
      return invalid("Missing required parameter: 'prompt'.", "prompt", "missing_required_parameter");
    if (typeof fields.model !== "string") return invalid("you must provide a model parameter", "model");
    const n = Number(fields.n ?? 1);
    if (!(n >= 1 && n <= 10)) return invalid("Invalid 'n': integer between 1 and 10.", "n");
    if (!isEdit && fields.n !== undefined && typeof fields.n !== "number")
      return invalid("Invalid type for 'n': expected an integer.", "n", "invalid_type");
    if (!TYPES.includes(String(type))) return invalid(`Invalid value: '${type}'.`, "output_format");
    const pixels = pixelsOf(String(size));
    if (pixels === null) return invalid(`Invalid value: '${size}'.`, "size");
    const problem = isEdit ? await formProblem(body) : isForm(body) ? invalid("Expected JSON.", null) : null;
    return problem ?? wish(prompt, pixels, { n, type: type as ImageType, fields: usage(n, String(size)) });
  },
};

/** `WxH` with sides that divide by 16, a ratio of at most 3:1 and from 655,360 to 8,294,400 pixels. */
function pixelsOf(size: string): [number, number] | null {
  if (size === "auto") return [1024, 1024];
  const [, width, height] = (/^(\d+)x(\d+)$/.exec(size) ?? []).map(Number);
  if (!width || !height || width % 16 || height % 16) return null;
  const isFit = Math.max(width / height, height / width) <= 3 && Math.max(width, height) <= 3840;
  return isFit && width * height >= 655_360 && width * height <= 8_294_400 ? [width, height] : null;
}

async function formProblem(body: unknown): Promise<Answer | null> {
  const { invalid } = openaiErrors;
  if (!isForm(body))
    return invalid("Content-Type must be multipart/form-data.", null, "unsupported_content_type");
  const images = body.files.filter(({ name }) => name === "image" || name === "image[]");
  if (images.length === 0)
    return invalid("Missing required parameter: 'image'.", "image", "missing_required_parameter");
  if (images.filter(({ name }) => name === "image").length > 1)
    return invalid("Duplicate parameter: 'image'. Use the array syntax instead, such as 'image[]'.", "image");
  if (images.length > 16) return invalid("Too many images: at most 16.", "image");
  for (const file of images) {
    if (!TYPES.some((type) => file.type === `image/${type}`))
      return invalid(
        `Invalid file 'image': unsupported mimetype ('${file.type}').`,
        "image",
        "unsupported_file_mimetype",
      );
    if ((await lookAt(file.bytes)) === null)
      return invalid("Invalid image file.", "image", "invalid_image_file");
  }
  return null;
}

function usage(n: number, size: string): object {
  const [input, output] = [50, 4160 * n];
  return {
    ...{ background: "opaque", output_format: "png", quality: "high", size },
    usage: {
      ...{ input_tokens: input, output_tokens: output, total_tokens: input + output },
      input_tokens_details: { text_tokens: input, image_tokens: 0 },
    },
  };
}

/** One path for all, ratio or size, references in JSON, the price in the answer. */
const openrouter: Dialect = {
  ...{ base: "/api/v1", path: "/images", editPath: "/images", model: "bytedance/seedream-4.5" },
  read: async ({ body }, fields) => {
    const bad = (message: string): Answer => ({
      ...{ status: 400, body: JSON.stringify({ error: { code: 400, message, metadata: {} } }) },
    });
    if (isForm(body)) return bad("Expected a JSON body.");
    if (typeof fields.prompt !== "string") return bad("prompt: Required");
    const { input_references: references = [], aspect_ratio: ratio = "1:1", size } = fields;
    for (const reference of references as { type?: string; image_url?: { url?: string } }[]) {
      const url = reference.image_url?.url ?? "";
      if (reference.type !== "image_url" || !(await isDataUrl(url)))
        return bad("input_references: Invalid image");
    }
    const sides = typeof size === "string" ? pixelsOf(size) : sidesOf(String(ratio));
    if (sides === null) return bad("size: Invalid");
    const tokens = { prompt_tokens: 12, completion_tokens: 4175, total_tokens: 4187, cost: 0.04 };
    return wish(fields.prompt, sides, { n: Number(fields.n ?? 1), fields: { usage: tokens } });
  },
};

/** Width and height as numbers, and addresses unless `base64` is asked for. */
const together: Dialect = {
  ...{ base: "/v1", path: "/images/generations", editPath: "/images/generations" },
  model: "black-forest-labs/FLUX.1-schnell",
  read: async (_, fields) => {
    const { prompt, width = 1024, height = 1024, n = 1, response_format: format = "url" } = fields;
    const bad = (message: string): Answer => ({ status: 400, body: JSON.stringify({ error: { message } }) });
    if (typeof prompt !== "string") return bad("prompt is required");
    if (typeof width !== "number" || typeof height !== "number" || width % 8 || height % 8)
      return bad("width and height must be multiples of 8");
    if (!["base64", "url"].includes(String(format))) return bad("response_format must be base64 or url");
    if (fields.image_url !== undefined && typeof fields.image_url !== "string")
      return bad("image_url: not a string");
    const answerAs = format === "url" ? "url" : "b64_json";
    return wish(prompt, [width, height], {
      n: Number(n),
      answerAs,
      fields: { model: fields.model, object: "list" },
    });
  },
};

/** Ratios, and JSON for edits as well. */
const xai: Dialect = {
  ...{ base: "/v1", path: "/images/generations", editPath: "/images/edits", model: "grok-imagine-image" },
  read: async ({ body }, fields, isEdit) => {
    const bad = (error: string): Answer => ({
      status: 400,
      body: JSON.stringify({ code: "Invalid argument", error }),
    });
    if (isForm(body)) return bad("Expected a JSON body.");
    if (typeof fields.prompt !== "string") return bad("prompt: required");
    if ("size" in fields) return bad("Argument not supported: size");
    if (isEdit) {
      const images = (fields.images ?? (fields.image === undefined ? [] : [fields.image])) as {
        url?: string;
      }[];
      if (images.length === 0) return bad("image: required");
      for (const { url = "" } of images) if (!(await isDataUrl(url))) return bad("image.url: Invalid");
    }
    const answerAs = fields.response_format === "b64_json" ? "b64_json" : "url";
    const sides = sidesOf(String(fields.aspect_ratio ?? "1:1"));
    return sides === null ? bad("aspect_ratio: Invalid") : wish(fields.prompt, sides, { answerAs });
  },
};

/** A server on this machine that takes anything and gives addresses unless it is asked for bytes. */
const local: Dialect = {
  ...{ base: "/v1", path: "/images/generations", editPath: "/images/edits", model: "stablediffusion" },
  read: async (_, fields) => {
    const prompt = String(fields.prompt ?? "");
    const answerAs = fields.response_format === "b64_json" ? "b64_json" : "url";
    return wish(prompt, pixelsOf(String(fields.size ?? "auto")) ?? [512, 512], { answerAs });
  },
};

export const DIALECTS = { openai, openrouter, together, xai, local };

function sidesOf(ratio: string): [number, number] | null {
  const [, across, down] = (/^(\d+):(\d+)$/.exec(ratio) ?? []).map(Number);
  if (!across || !down) return null;
  const unit = Math.sqrt((1024 * 1024) / (across * down));
  return [Math.round(across * unit), Math.round(down * unit)];
}

async function isDataUrl(url: string): Promise<boolean> {
  const [, data] = /^data:image\/[a-z]+;base64,([A-Za-z0-9+/]+=*)$/.exec(url) ?? [];
  return data !== undefined && (await lookAt(Buffer.from(data, "base64"))) !== null;
}

function wish(
  prompt: string,
  [width, height]: readonly [number, number],
  more: { n?: number; type?: ImageType; answerAs?: Wish["answerAs"]; fields?: object } = {},
): Wish {
  const { n: count = 1, type = "png", answerAs = "b64_json", fields: besides = {} } = more;
  return { prompt, width, height, count, type, answerAs, usage: besides };
}
