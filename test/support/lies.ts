import type { Answer, Fault } from "./fake-service.ts";

/** Requests of the batch API, as the fake service matches them. */
export const LOOK = /^GET [^?]*imgbatch_\w+$/;
export const ITEMS = /^GET .*\/items\?/;
export const LIST = /^GET .*\/batches\?/;
export const MODELS = /^GET .*\/models$/;
export const CONTENT = /^GET .*\/content/;
export const ZIP = /^GET .*\/download/;

const read = (answer: Answer) => JSON.parse(answer.body.toString());
/** Another body in the place of the true one. */
export const text = (body: string): Fault => ({ lie: (answer) => ({ ...answer, body: Buffer.from(body) }) });
/** Other fields in the place of the true ones. */
export const claim = (fields: object | ((truth: Record<string, unknown>) => object)): Fault => ({
  lie: (answer) => {
    const truth = read(answer);
    const more = typeof fields === "function" ? fields(truth) : fields;
    return { ...answer, body: Buffer.from(JSON.stringify({ ...truth, ...more })) };
  },
});

/** Pages that always have something new, one entry each. */
export function endless(of: (n: number) => object): Fault {
  let n = 0;
  return claim(() => ({ data: [of(n++)], has_more: true, next_cursor: `c${n}` }));
}

export const NONE: Fault = {
  status: 404,
  body: { error: { code: "BATCH_IMAGE_ITEM_NOT_FOUND", message: "None." } },
};
export const item = (n: number) => ({ custom_id: `x${n}`, status: "success", image_count: 1 });
