import {
  type Answer,
  type FakeUpstream,
  type ImageService,
  startUpstream,
  type Twist,
} from "./fake-upstream.ts";
import { imageOf, lookAt } from "./images.ts";

export interface SdapiOptions {
  /** `user:password` of basic authentication; none by default. */
  login?: string;
  /** How long one image takes, in ms. */
  ms?: number;
}

export interface FakeSdapi extends FakeUpstream {
  /** How often it was told to stop the image under way. */
  interrupts(): number;
}

const DEFAULT_SIDE = 512;

/** An image server on the user's own graphics card, in the shape of A1111: one image at a time, the others wait. */
export async function startSdapi({ login, ms = 0 }: SdapiOptions = {}): Promise<FakeSdapi> {
  let queue: Promise<unknown> = Promise.resolve();
  let [running, seeds] = [0, 1000];
  let interrupt: () => void = () => {};
  const oneAtATime = async <T>(work: () => Promise<T>): Promise<T> => {
    running++;
    const turn = queue.then(work).finally(() => running--);
    queue = turn.catch(() => {});
    return turn;
  };
  const options: Record<string, unknown> = { sd_model_checkpoint: "v1-5-pruned.safetensors [e1441589a6]" };
  const service: ImageService = {
    kindOf: (method, path) => {
      if (method === "POST" && /^\/sdapi\/v1\/(txt2img|img2img)$/.test(path)) return "images";
      return method === "GET" ? "models" : "other";
    },
    promptOf: (body) => String((body as { prompt?: unknown } | null)?.prompt ?? "") || null,
    answer: ({ path, headers, body }, twist) => {
      const sent = headers.authorization ?? "";
      if (login && sent !== `Basic ${Buffer.from(login).toString("base64")}`)
        return { ...json(401, { detail: "Incorrect username or password" }), headers: BASIC };
      if (path === "/sdapi/v1/options") return json(200, options);
      if (path === "/sdapi/v1/sd-models")
        return json(200, [{ title: options.sd_model_checkpoint, model_name: "v1-5-pruned" }]);
      if (path === "/sdapi/v1/samplers")
        return json(200, [{ name: "Euler a", aliases: ["k_euler_a"], options: {} }]);
      if (path.startsWith("/sdapi/v1/progress"))
        return json(200, { progress: running ? 0.5 : 0, eta_relative: 0, state: {}, current_image: null });
      if (path === "/sdapi/v1/interrupt") {
        interrupt();
        return json(200, {});
      }
      const name = /^\/sdapi\/v1\/(txt2img|img2img)$/.exec(path)?.[1];
      if (name === undefined) return json(404, { detail: "Not Found" });
      return oneAtATime(async () => {
        const wait = new Promise<void>((resolve) => {
          const timer = setTimeout(resolve, ms);
          interrupt = () => resolve(clearTimeout(timer));
        });
        await wait;
        return made(name, body, twist);
      });
    },
  };
  const made = async (name: string, body: unknown, twist: Twist): Promise<Answer> => {
    if (typeof body !== "object" || body === null) return invalid("body", "value is not a valid dict");
    const wish = body as Record<string, unknown>;
    const {
      prompt = "",
      width = DEFAULT_SIDE,
      height = DEFAULT_SIDE,
      seed = -1,
      batch_size = 1,
      n_iter = 1,
    } = wish;
    for (const number of ["width", "height", "seed", "steps", "batch_size", "n_iter"])
      if (wish[number] !== undefined && !Number.isInteger(wish[number]))
        return invalid(number, "value is not a valid integer");
    if (name === "img2img") {
      const images = wish.init_images;
      if (!Array.isArray(images) || images.length === 0) return json(404, { detail: "Init image not found" });
      const bytes = Buffer.from(String(images[0]).replace(/^data:image\/[a-z]+;base64,/, ""), "base64");
      if ((await lookAt(bytes)) === null)
        return json(500, { error: "HTTPException", detail: "Invalid encoded image", body: "", errors: "" });
    }
    const count = Number(batch_size) * Number(n_iter);
    const [first, side] = [
      seed === -1 ? seeds++ : Number(seed),
      (value: unknown) => Number(value) - (Number(value) % 8),
    ];
    const size = twist.size ?? { width: side(width), height: side(height) };
    const images: Buffer[] = [];
    for (let index = 0; index < count; index++)
      images.push(await imageOf(String(prompt), { ...size, index }));
    const all_seeds = images.map((_, at) => first + at);
    const text = `${prompt}\nSteps: ${wish.steps ?? 20}, Sampler: Euler a, Seed: ${first}, Size: ${size.width}x${size.height}`;
    const info = { prompt, seed: first, all_seeds, ...size, infotexts: images.map(() => text) };
    const data = images.map((image) => image.toString("base64"));
    return { ...json(200, { images: data, parameters: wish, info: JSON.stringify(info) }), images };
  };
  const upstream = await startUpstream(service);
  const told = (path: string) => upstream.requests.filter((request) => request.path === path).length;
  return Object.assign(upstream, { interrupts: () => told("/sdapi/v1/interrupt") });
}

const BASIC = { "www-authenticate": "Basic" };

const invalid = (field: string, msg: string) =>
  json(422, { detail: [{ loc: ["body", field], msg, type: "type_error.integer" }] });

/** The server's words when its graphics card has no memory left. */
export const sdapiErrors = {
  noMemory: () =>
    json(500, {
      ...{ error: "OutOfMemoryError", detail: "", body: "" },
      errors: "CUDA out of memory. Tried to allocate 2.00 GiB",
    }),
  invalid,
};

function json(status: number, body: unknown): Answer {
  return { status, body: JSON.stringify(body) };
}
