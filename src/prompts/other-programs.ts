import { readPixels } from "../contract/image-formats.ts";
import { fieldsOf } from "../kernel/json.ts";
import { truncateCodePoints } from "../kernel/text.ts";
import type { Report } from "./problems.ts";

/** What other programs call a field of ours; null where we have none. */
const NAMES: Readonly<Record<string, string | null>> = {
  ...namesOf("output_count", [
    "n",
    "num_images",
    "num_outputs",
    "num_images_per_prompt",
    "batch_size",
    "n_iter",
  ]),
  ...namesOf("output_count", ["count", "samples", "num_samples", "n_samples", "sample_count", "sampleCount"]),
  ...namesOf("output_count", ["numberOfImages", "number_of_images", "numImages", "num", "batch_count"]),
  ...namesOf("output_count", ["images_per_prompt", "candidate_count", "candidateCount", "repeat"]),
  ...namesOf("output_count", ["variations", "num_variations", "num_generations", "quantity"]),
  ...namesOf("aspect_ratio", ["ar", "ratio", "aspect", "orientation"]),
  ...namesOf("negative_prompt", ["negative", "neg_prompt"]),
  ...namesOf("reference_images", [
    "image_url",
    "image_urls",
    "input_image",
    "input_images",
    "image",
    "images",
  ]),
  ...namesOf("reference_images", ["init_image", "init_images", "source_image", "reference_image"]),
  ...namesOf("reference_images", ["image_path", "image_paths", "reference", "references", "ref"]),
  ...namesOf("reference_images", ["ref_image", "ref_images", "reference_url", "reference_image_url"]),
  ...namesOf("size", ["width", "height", "resolution", "dimensions"]),
  ...namesOf(null, ["mask", "mask_image", "mask_url"]),
  ...namesOf("--mime-type", ["output_format", "mime_type", "output_mime_type", "file_format"]),
  ...namesOf(null, ["guidance_scale", "guidance", "cfg_scale", "steps", "num_inference_steps", "sampler"]),
  ...namesOf(null, ["sampler_name", "scheduler", "strength", "denoising_strength", "clip_skip"]),
};

function namesOf<T>(ours: T, theirs: readonly string[]): Record<string, T> {
  return Object.fromEntries(theirs.map((name) => [name, ours]));
}

/** Names that a person's own field may have as well: what their values look like where they ask for something. */
const LIKELY: readonly { names: readonly string[]; value: RegExp }[] = [
  { names: ["count", "num", "samples", "repeat", "variations", "quantity"], value: /^[1-9]\d?$/ },
  { names: ["orientation"], value: /^(?:portrait|landscape|square|vertical|horizontal)$/i },
  { names: ["resolution", "dimensions"], value: /^(?:\d+\s*[x×*]\s*\d+|[124]k|512)$/i },
  {
    names: ["image_path", "image_paths", "reference", "references", "ref"],
    value: /^(?:data:image\/|.*\.(?:png|jpe?g|webp|gif)(?:\?|$))/i,
  },
];

function isLikely(name: string, value: unknown): boolean {
  const [first] = Array.isArray(value) ? value : [value];
  return LIKELY.find(({ names }) => names.includes(name))?.value.test(String(first).trim()) ?? true;
}

/** Returns the fields that other programs would act on, with what they are called here, in words. */
export function foreignFields(fields: Record<string, unknown>): { name: string; advice: string }[] {
  return Object.entries(fields).flatMap(([name, value]) => {
    const ours = Object.hasOwn(NAMES, name) ? NAMES[name] : undefined;
    // A width alone may be that of anything.
    const isAlone =
      (name === "width" || name === "height") && (fields.width == null || fields.height == null);
    if (ours === undefined || value == null || value === "" || isAlone) return [];
    if (!isLikely(name, value)) return [];
    const isSide = name === "width" || name === "height";
    const form = isSide ? ', with both sides: "size": "WIDTHxHEIGHT"' : "";
    if (ours?.startsWith("--")) return [{ name, advice: `is chosen for the whole run here: ${ours}` }];
    return [
      { name, advice: ours === null ? "there is no such option here" : `is called ${ours} here${form}` },
    ];
  });
}

/** An option of another program in the text of a prompt. */
interface TextOption {
  /** As it is written there. */
  kind: string;
  /** What says the same here. */
  way: string;
}

const NONE = "there is none here";
const WAYS: Readonly<Record<string, string>> = {
  ...namesOf("aspect_ratio", ["ar", "aspect", "aspect_ratio", "aspect-ratio"]),
  ...namesOf("size, such as 1536x1024", ["width", "height", "w", "h", "W", "H"]),
  ...namesOf("negative_prompt", ["no", "negative_prompt", "negative-prompt", "neg"]),
  ...namesOf("seed", ["seed"]),
  ...namesOf("output_count", ["repeat", "r", "batch_size", "n_iter"]),
  ...namesOf("quality", ["quality", "q"]),
  ...namesOf("reference_images", ["sref", "cref", "oref", "init"]),
  ...namesOf("model", ["v", "version", "niji", "model", "sd_model"]),
  ...namesOf("the line itself is the prompt", ["prompt"]),
  ...namesOf(NONE, [
    "stylize",
    "s",
    "style",
    "chaos",
    "c",
    "iw",
    "sw",
    "sv",
    "cw",
    "ow",
    "weird",
    "tile",
    "raw",
    "fast",
  ]),
  ...namesOf(NONE, [
    "relax",
    "turbo",
    "draft",
    "stop",
    "profile",
    "p",
    "exp",
    "hd",
    "steps",
    "cfg_scale",
    "sampler",
  ]),
  ...namesOf(NONE, [
    "sampler_name",
    "sampler_index",
    "scale",
    "strength",
    "restore_faces",
    "tiling",
    "video",
  ]),
};
/** An option, also with the dash that editors make of two. */
const FLAG = /(?:^|\s)(?:--|\u2014)([A-Za-z][A-Za-z_-]*)(?=[\s=]|$)/g;
const MARKS: readonly (TextOption & { pattern: RegExp })[] = [
  { kind: "/imagine", way: "leave it out", pattern: /^\s*\/imagine\b/i },
  { kind: "{a|b}", way: '"vars" in the line, or --var', pattern: /(?<!\{)\{[^{}|]*\|[^{}]*\}(?!\})/ },
  {
    kind: "__list__",
    way: "{{list}} with --var list=@FILE",
    pattern: /(?<![\w_])__[\w/*-]*[A-Za-z*][\w/*-]*?__(?![\w_])/,
  },
  { kind: "(word:1.2)", way: "say in words what matters", pattern: /\([^()\n]+:\d*\.\d+\)/ },
  { kind: "<lora:name>", way: NONE, pattern: /<(?:lora|lyco|hypernet):[^<>]+>/i },
  { kind: "embedding:name", way: NONE, pattern: /(?<!\w)embedding:\w/i },
  { kind: "[from:to:0.5]", way: NONE, pattern: /\[[^[\]:\n]*:[^[\]:\n]*:\d*\.?\d+\]/ },
  { kind: "((word))", way: "say in words what matters", pattern: /\({2,}[^()\n]+\){2,}/ },
  { kind: "::", way: "say in words what matters", pattern: /\w ?::(?:\s|-?\d|$)/ },
  { kind: "BREAK", way: NONE, pattern: /(?:^|[\s,])BREAK(?=[\s,]|$)/ },
  {
    kind: "the address of an image",
    way: "reference_images",
    pattern: /^\s*https?:\/\/\S+\.(?:png|jpe?g|webp|gif)\S*\s/i,
  },
  { kind: "Negative prompt:", way: "negative_prompt", pattern: /^\s*negative prompt:/im },
  {
    kind: "Prompt:",
    way: "the line itself is the prompt",
    pattern: /^\s*(?:\*\*)?prompt(?: ?#?\d+)?\s*:/i,
  },
  {
    kind: "the number or dash of a list",
    way: "leave it out",
    pattern: /^\s*(?:\d{1,4}[.)]|[-*•–])\s[^\n]*$/,
  },
  {
    kind: "# of a heading or comment",
    way: "leave the line out",
    pattern: /^\s*#{1,6}\s[^\n]*$/,
  },
  { kind: '"…",', way: "the line itself is the prompt", pattern: /^\s*(["'`])[^\n]*\1\s*,\s*$/ },
];

/** What is left in a text that was exported or decoded in a wrong way, and what it comes from. */
const DAMAGES: readonly { kind: string; from: string; pattern: RegExp }[] = [
  { kind: "\ufffd", from: "a character was lost", pattern: /\ufffd/ },
  {
    kind: "such as Ã¼ or â€™",
    from: "UTF-8 that was read as another encoding",
    pattern: /Ã[\x80-\xbf\u0152-\u0192\u02c6\u02dc\u2013-\u2122]|Â[\x80-\xbf]|â€|â\x80|ðŸ|ð\x9f/,
  },
  { kind: "such as &amp;", from: "of HTML", pattern: /&(?:#\d+|#x[\da-f]+|[a-z]{2,8}\d?);/i },
  {
    kind: "such as <br>",
    from: "of HTML",
    pattern: /<\/?(?:p|b|i|br|em|strong|span|div|ul|li|a|h[1-6])(?:\s[^<>]*)?\/?>/i,
  },
  { kind: "such as \\n", from: "escaped for a program", pattern: /\\(?:n|r\\n|t|u[\da-f]{4})/i },
];

/** Returns the traces of a wrong export that the text of a prompt holds, in words. They stay text. */
export function textDamages(prompt: string): { kind: string; from: string }[] {
  return DAMAGES.filter(({ pattern }) => pattern.test(prompt)).map(({ kind, from }) => ({ kind, from }));
}

/** Returns the kinds of options of other programs that the text of a prompt holds. They stay text. */
export function textOptions(prompt: string): TextOption[] {
  const found = MARKS.filter(({ pattern }) => pattern.test(prompt)).map(({ kind, way }) => ({ kind, way }));
  const flags = new Set([...prompt.matchAll(FLAG)].map(([, name = ""]) => name));
  for (const name of flags) {
    const way = Object.hasOwn(WAYS, name) ? WAYS[name] : undefined;
    if (way !== undefined) found.push({ kind: `--${name}`, way });
  }
  return found;
}

/** Stands for a prompt whose line has a problem of its own already. */
const UNREAD = "not read";
const BEYOND = "cannot be asked for in a line of prompts; remove it";
type Fields = Record<string, unknown>;

/**
 * Returns the fields of a prompt that a line of a vendor's batch file asks for: OpenAI's (`custom_id`, `method`, `url`, `body`)
 * and Gemini's (`key`, `request`). What the line holds beyond a prompt is reported under its own name. Null for any other line.
 */
export function fromBatchLine(line: Fields, report: Report): Fields | null {
  const [body, request] = [fieldsOf(line.body), fieldsOf(line.request)];
  if (body !== null && line.prompt === undefined && (line.url ?? line.method) !== undefined)
    return given(openaiFields(line, body, report));
  if (request !== null && line.prompt === undefined && request.contents !== undefined)
    return given(geminiFields(line, request, report));
  return null;
}

/** Leaves out what is absent, and null, which means the same. */
function given(fields: Fields): Fields {
  return Object.fromEntries(Object.entries(fields).filter(([, value]) => value != null));
}

function refuse(
  fields: Fields,
  prefix: string,
  report: Report,
  advice: Readonly<Record<string, string>> = {},
): void {
  for (const [name, value] of Object.entries(given(fields)))
    if (value !== "") report(`${prefix}${name}`, advice[name] ?? BEYOND);
}

function openaiFields(
  { custom_id, method, url, body: _, ...others }: Fields,
  body: Fields,
  report: Report,
): Fields {
  refuse(others, "", report);
  if (method !== undefined && method !== "POST") report("method", `${shown(method)}: lines of POST are read`);
  const path = typeof url === "string" ? url.replace(/^https?:\/\/[^/]+/, "") : url;
  if (path !== undefined && path !== "/v1/images/generations") {
    report("url", `${shown(url)}: lines for /v1/images/generations are read as prompts`);
    return { custom_id, prompt: body.prompt ?? UNREAD };
  }
  const { model, prompt, n, size, aspect_ratio, quality, background, seed, response_format, ...rest } = body;
  const { image, images, ...beyond } = rest;
  refuse(beyond, "body.", report, { output_format: "is chosen for the whole run: --mime-type image/webp" });
  if (response_format != null && response_format !== "b64_json")
    report("body.response_format", `${shown(response_format)}: images come as files; leave it out`);
  const references = [image, images].flat().filter((each) => each != null);
  return {
    custom_id,
    model,
    prompt,
    output_count: n,
    quality,
    background,
    seed,
    ...sizeFields(size, report),
    ...(aspect_ratio == null ? {} : { aspect_ratio }),
    reference_images:
      references.length === 0 ? null : references.map((each) => fieldsOf(each)?.image_url ?? each),
  };
}

function geminiFields({ key, request: _, ...others }: Fields, request: Fields, report: Report): Fields {
  refuse(others, "", report);
  const { contents, model, ...settings } = request;
  const [config, configName] = either(settings, "generation_config", "generationConfig");
  const { generation_config: _snake, generationConfig: _camel, ...beyond } = settings;
  refuse(beyond, "request.", report);
  const wanted = fieldsOf(config) ?? {};
  const [image, imageName] = either(wanted, "image_config", "imageConfig");
  const { seed, ...rest } = wanted;
  const [count] = either(wanted, "candidate_count", "candidateCount");
  const read = ["image_config", "imageConfig", "candidate_count", "candidateCount"];
  const passing = ["response_modalities", "responseModalities"];
  const isRead = ([name]: [string, unknown]) => read.includes(name) || passing.includes(name);
  const unread = Object.entries(rest).filter((entry) => !isRead(entry));
  refuse(Object.fromEntries(unread), `request.${configName}.`, report);
  const { aspect_ratio, aspectRatio, image_size, imageSize, ...more } = fieldsOf(image) ?? {};
  refuse(more, `request.${configName}.${imageName}.`, report);
  return {
    custom_id: typeof key === "number" ? String(key) : key,
    model: typeof model === "string" ? model.replace(/^models\//, "") : model,
    ...partsOf(contents, report),
    output_count: count,
    seed,
    aspect_ratio: aspect_ratio ?? aspectRatio,
    size: image_size ?? imageSize,
  };
}

/** A field in the spelling that the object has. */
function either(fields: Fields, snake: string, camel: string): [value: unknown, name: string] {
  return fields[snake] === undefined && fields[camel] !== undefined
    ? [fields[camel], camel]
    : [fields[snake], snake];
}

/** The texts of the one turn of a request, joined by blank lines, and its images. */
function partsOf(contents: unknown, report: Report): Fields {
  const turns = (Array.isArray(contents) ? contents : [contents]).map((turn) => fieldsOf(turn) ?? {});
  const [turn = {}] = turns;
  if (turns.length !== 1 || (turn.role ?? "user") !== "user") {
    report(
      "request.contents",
      "a conversation cannot be asked for in a line of prompts; keep one turn of the user",
    );
    return { prompt: UNREAD };
  }
  const texts: string[] = [];
  const images: Fields[] = [];
  for (const [index, value] of (Array.isArray(turn.parts) ? turn.parts : [turn.parts]).entries()) {
    const part = fieldsOf(value) ?? {};
    const [data] = either(part, "inline_data", "inlineData");
    const inline = fieldsOf(data);
    if (typeof part.text === "string") texts.push(part.text);
    else if (inline !== null)
      images.push({ data: inline.data, mime_type: inline.mime_type ?? inline.mimeType });
    else report(`request.contents[0].parts[${index}]`, "holds neither a text nor the bytes of an image");
  }
  return { prompt: texts.join("\n\n"), reference_images: images.length === 0 ? null : images };
}

/** Returns the size in pixels that OpenAI's API asks for, such as `1536x1024`. */
function sizeFields(size: unknown, report: Report): Fields {
  if (size == null || size === "auto" || size === "") return {};
  if (readPixels(String(size)) !== null) return { size };
  report("body.size", `${shown(size)}: write pixels such as 1024x1024 or 1536x1024`);
  return {};
}

const MOST_SHOWN = 40;

function shown(value: unknown): string {
  return truncateCodePoints(JSON.stringify(value), MOST_SHOWN, "…");
}
