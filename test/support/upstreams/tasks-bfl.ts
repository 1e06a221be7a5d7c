import type { TaskVendor } from "./tasks.ts";

/**
 * Black Forest Labs' API.
 *
 * - `POST /v1/MODEL` with the header `x-key`, body `prompt`, `width`, `height`, `seed`, `output_format` (jpeg by default),
 *   `input_image` to `input_image_8`. 200 with `id`, `polling_url`, `cost`, `input_mp`, `output_mp`. Cost is in credits of one
 *   cent. `width` and `height` are multiples of 16 from 64 on, 4 megapixels at most (docs.bfl.ai, the vendor's skill `bfl-api`).
 * - The caller must poll at `polling_url`, which is on `api.REGION.bfl.ai` (docs.bfl.ai/integration_guidelines). Status:
 *   Pending, Ready, Error, Request Moderated (before the work), Content Moderated (after it), Task not found; the latter also
 *   for a task that has expired (docs.bfl.ml/api_integration/errors). Some clients also know Failed.
 * - `result.sample` is a signed address on another host, valid for ten minutes.
 * - HTTP: 400, 402 no credits, 403 key, 422 with a list of details, 429, 500, 503 (same page; the skill says 401 for the key).
 *   The status of the poll of an unknown task (here 404) and of an old result (here 403) are assumptions.
 */
export const bfl: TaskVendor = {
  credential: ["x-key", ""],
  routes: [
    ["POST", /^\/v1\/(flux-[a-z0-9.-]+)$/, "images"],
    ["GET", /^\/v1\/get_result\?id=([^&]+)$/, "poll"],
  ],
  words: { pending: "Pending", good: "Ready", canceled: "Error" },
  pollAt: "region",
  result: { lifeMs: 600_000, goneStatus: 403 },
  wishOf: ({ prompt, width, height, output_format }) => {
    if (typeof prompt !== "string" || ![width, height].every(isSide)) return null;
    const size = width && height ? { width: Number(width), height: Number(height) } : {};
    return {
      prompt,
      ...size,
      type: output_format === "png" || output_format === "webp" ? output_format : "jpeg",
    };
  },
  created: ({ task, origin }) => {
    const pixels = task.size.width * task.size.height;
    const input = Object.keys(task.input).filter((name) => name.startsWith("input_image")).length;
    const [first, next] = CREDITS[task.model] ?? [4, 0];
    const cost = Number((first + next * (Math.max(Math.ceil(pixels / MEGAPIXEL) - 1, 0) + input)).toFixed(2));
    const polling_url = `${origin}/v1/get_result?id=${encodeURIComponent(task.id)}`;
    const body = {
      id: task.id,
      polling_url,
      cost,
      input_mp: input,
      output_mp: Number((pixels / 1e6).toFixed(2)),
    };
    return { status: 200, body: JSON.stringify(body) };
  },
  polled: ({ task: { id, prompt, plan }, state, results: [sample] }) => {
    const details = state === "Error" ? { error: plan.error ?? "internal error" } : null;
    const result = sample === undefined ? null : { sample, prompt, seed: 42, duration: 1.5 };
    const progress = state === "Pending" ? 0.5 : null;
    const isUnknown = state === "Task not found";
    const body = JSON.stringify({ id, status: state, result, progress, details, preview: null });
    return { status: isUnknown ? 404 : 200, body };
  },
  refusal: (status) => {
    if (status === 404) {
      const body = { id: "", status: "Task not found", result: null, progress: null, details: null };
      return { status, body: JSON.stringify(body) };
    }
    const missing = { loc: ["body", "prompt"], msg: "Field required", type: "missing" };
    const detail = status === 422 ? [missing] : (ERRORS[status] ?? "Internal Server Error");
    return { status: status === 401 ? 403 : status, body: JSON.stringify({ detail }) };
  },
};

const ERRORS: Record<number, string> = {
  401: "Not authenticated",
  402: "Insufficient credits. Please visit https://dashboard.bfl.ai",
  403: "Not authenticated",
  429: "Too many active tasks",
  503: "Service Unavailable",
};

/** In pixels. That 1024x1024 costs as one megapixel is the vendor's table. */
const MEGAPIXEL = 1024 * 1024;

/** The credits of the first megapixel and of each further one. */
const CREDITS: Record<string, [first: number, next: number]> = {
  "flux-2-klein-4b": [1.4, 0.1],
  "flux-2-klein-9b": [1.5, 0.2],
  "flux-2-pro": [3, 1.5],
  "flux-2-flex": [5, 5],
  "flux-2-max": [7, 3],
};

function isSide(value: unknown): boolean {
  return value === undefined || (Number.isInteger(value) && Number(value) >= 64 && Number(value) % 16 === 0);
}
