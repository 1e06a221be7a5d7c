import type { Answer } from "./fake-upstream.ts";
import type { TaskVendor, TaskView } from "./tasks.ts";

/**
 * Replicate's predictions.
 *
 * - `POST /v1/models/{owner}/{name}/predictions` with `Authorization: Bearer`, body `{input}`; `POST /v1/predictions` also
 *   takes `version`. 201; with `Prefer: wait` (up to 60 s) the answer has the output, or comes with 202 without it
 *   (replicate.com/docs/reference/http, /docs/topics/predictions/create-a-prediction).
 * - Poll `urls.get`, cancel with a POST to `urls.cancel`. Status: starting, processing, succeeded, failed, canceled, and
 *   aborted, when a deadline passed before the start (/docs/topics/predictions/lifecycle).
 * - `output` has the model's own form: the address of a file or a list of them. Files are on `replicate.delivery` and its
 *   subdomains. Input, output and files go after an hour; then `data_removed` is true (/docs/topics/predictions/data-retention).
 * - `metrics.predict_time` in seconds, no price.
 * - Errors are `{title, detail, status}`; the text of 402 is what callers have published. That a removed file answers 404
 *   is an assumption.
 */
export const replicate: TaskVendor = {
  credential: ["authorization", "Bearer "],
  routes: [
    ["POST", /^\/v1\/models\/([^/]+\/[^/]+)\/predictions$/, "images"],
    ["POST", /^\/v1\/(predictions)$/, "images"],
    ["GET", /^\/v1\/predictions\/([^/]+)$/, "poll"],
    ["POST", /^\/v1\/predictions\/([^/]+)\/cancel$/, "cancel"],
  ],
  words: { pending: "starting", good: "succeeded", canceled: "canceled" },
  pollAt: "api",
  result: { lifeMs: 3_600_000, goneStatus: 404 },
  wishOf: ({ input }) => {
    if (typeof input !== "object" || input === null) return null;
    const { prompt, width, height, num_outputs, output_format } = input as Record<string, unknown>;
    if (typeof prompt !== "string") return null;
    const type = output_format === "jpg" ? "jpeg" : output_format === "webp" ? "webp" : "png";
    const count = num_outputs === undefined ? 1 : Number(num_outputs);
    return {
      prompt,
      ...(width && height ? { width: Number(width), height: Number(height) } : {}),
      count,
      type,
    };
  },
  waits: ({ prefer }) => /^wait(=\d+)?$/.test(String(prefer ?? "")),
  created: (view) => prediction(view, 201),
  polled: (view) => prediction(view, 200),
  canceled: (view) => prediction(view, 200),
  refusal: (status) => {
    const [title, detail] = ERRORS[status] ?? ["Internal Server Error", "Something went wrong"];
    return { status, body: JSON.stringify({ title, detail, status }) };
  },
};

const ERRORS: Record<number, [title: string, detail: string]> = {
  401: ["Unauthenticated", "You did not pass a valid authentication token"],
  402: ["Insufficient credit", "You have insufficient credit to run this model."],
  404: ["Not found", "The requested resource could not be found."],
  422: ["Input validation failed", "- input: prompt is required\n"],
  429: ["Too many requests", "Request was throttled. Expected available in 1 second."],
};

function prediction({ task, state, results, origin, isGone }: TaskView, status: number): Answer {
  const { plan } = task;
  const isOver = !["starting", "processing"].includes(state);
  const isList = plan.output === "array" || (plan.output === undefined && results.length > 1);
  const get = `${origin}/v1/predictions/${encodeURIComponent(task.id)}`;
  const created = new Date(task.createdMs).toISOString();
  const body = {
    ...{ id: task.id, model: task.model, version: "hidden", input: isGone ? {} : task.input.input, logs: "" },
    output: isGone || results.length === 0 ? null : isList ? results : results[0],
    ...{ data_removed: isGone, error: state === "failed" ? (plan.error ?? "CUDA out of memory") : null },
    ...{ status: state, source: "api", created_at: created },
    ...(isOver && { started_at: created, completed_at: created }),
    ...(isOver && { metrics: { predict_time: 1.5, total_time: 2.25 } }),
    urls: { get, cancel: `${get}/cancel`, web: `https://replicate.com/p/${task.id}` },
  };
  return { status, body: JSON.stringify(body) };
}
