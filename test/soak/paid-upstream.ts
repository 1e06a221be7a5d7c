import { createServer, type IncomingMessage, type ServerResponse } from "node:http";
import sharp from "sharp";
import { listen, resetConnection } from "../support/listen.ts";
import type { Job, JobLine, JobPlan } from "../support/upstreams/job-book.ts";
import { startOpenaiBatch } from "../support/upstreams/openai-batch.ts";
import { seeded } from "./random.ts";

/** In micro-dollars, by model and quality. */
export const PRICES: Record<string, Record<string, number>> = {
  "small-image": { low: 11_003, high: 41_117 },
  "large-image": { low: 67_001, high: 133_759 },
};

/**
 * What becomes of a request. Made and billed: `ok`, `slow`, `lost` (the connection breaks instead of an answer), `garbled` (the
 * answer cannot be read) and `silent` (no answer ever). Neither: `cut` and `504`, which nobody can tell from `lost`; `429`, `500`
 * and `refused`, which say that nothing was made.
 */
export type Fate = "ok" | "slow" | "lost" | "garbled" | "silent" | "cut" | "504" | "429" | "500" | "refused";
const BILLED: readonly Fate[] = ["ok", "slow", "lost", "garbled", "silent"];
const IN_DOUBT: readonly Fate[] = ["cut", "504"];
const SLOW_MS = 40;

interface Arrival {
  prompt: string;
  fate: Fate;
  billedMicroUsd: number;
  /** The price of what was not made, which a caller cannot know. */
  doubtfulMicroUsd: number;
}

/** A vendor with the public shape of OpenAI's `POST /v1/images/generations`. It counts every request, and keeps its own bill. */
export class PaidUpstream {
  readonly arrivals: Arrival[] = [];
  /** What becomes of the requests for a prompt, one after the other; later ones are `ok`. */
  readonly fates = new Map<string, Fate[]>();
  url = "";
  #close: () => Promise<void> = async () => {};
  #hold: { after: number; reached: () => void; released: Promise<void> } | null = null;

  static async start(): Promise<PaidUpstream> {
    const upstream = new PaidUpstream();
    const server = createServer((request, response) => {
      upstream.#answer(request, response).catch(() => response.destroy());
    });
    const { url, close } = await listen(server);
    upstream.url = `${url}/v1`;
    upstream.#close = close;
    return upstream;
  }

  close(): Promise<void> {
    return this.#close();
  }

  get billedMicroUsd(): number {
    return this.arrivals.reduce((sum, { billedMicroUsd }) => sum + billedMicroUsd, 0);
  }

  get doubtfulMicroUsd(): number {
    return this.arrivals.reduce((sum, { doubtfulMicroUsd }) => sum + doubtfulMicroUsd, 0);
  }

  /** Lets `count` more requests be answered; those after them, the first of which resolves `reached`, wait for `release`. */
  holdAfter(count: number): { reached: Promise<void>; release: () => void } {
    let [release, reach] = [() => {}, () => {}];
    const released = new Promise<void>((resolve) => {
      release = resolve;
    });
    const reached = new Promise<void>((resolve) => {
      reach = resolve;
    });
    const hold = { after: this.arrivals.length + count, reached: reach, released };
    this.#hold = hold;
    return {
      reached,
      release: () => {
        if (this.#hold === hold) this.#hold = null;
        release();
      },
    };
  }

  async #answer(request: IncomingMessage, response: ServerResponse): Promise<void> {
    const chunks: Buffer[] = [];
    for await (const chunk of request) chunks.push(chunk);
    const json = (status: number, body: object) => {
      response.writeHead(status, { "content-type": "application/json" }).end(JSON.stringify(body));
    };
    if (request.method === "GET" && request.url === "/v1/models") {
      const data = Object.keys(PRICES).map((id) => ({ id, object: "model", created: 1, owned_by: "system" }));
      return json(200, { object: "list", data });
    }
    if (request.method !== "POST" || request.url !== "/v1/images/generations")
      return json(404, { error: { message: "no such path", type: "invalid_request_error" } });
    const { model, prompt, n = 1, quality } = JSON.parse(Buffer.concat(chunks).toString());
    const price = n * (PRICES[model]?.[quality] ?? Number.NaN);
    const fate = this.fates.get(prompt)?.shift() ?? "ok";
    this.arrivals.push({
      prompt,
      fate,
      billedMicroUsd: BILLED.includes(fate) ? price : 0,
      doubtfulMicroUsd: IN_DOUBT.includes(fate) ? price : 0,
    });
    if (this.#hold !== null && this.arrivals.length > this.#hold.after) {
      this.#hold.reached();
      await this.#hold.released;
    }
    const error = (status: number, type: string, code: string | null, message: string) =>
      json(status, { error: { message, type, param: null, code } });
    switch (fate) {
      case "lost":
      case "cut":
        return resetConnection(request.socket);
      case "silent":
        return;
      case "garbled":
        return void response
          .writeHead(200, { "content-type": "application/json" })
          .end('{"created": 1, "data": [{"b64_json": "iVBOR');
      case "429":
        return error(429, "rate_limit_error", "rate_limit_exceeded", "Rate limit reached.");
      case "500":
        return error(500, "server_error", null, "The server had an error.");
      case "504":
        return error(504, "server_error", null, "The upstream timed out.");
      case "refused":
        return error(
          400,
          "image_generation_user_error",
          "moderation_blocked",
          "Rejected by the safety system.",
        );
      case "slow":
        await new Promise((resolve) => setTimeout(resolve, SLOW_MS));
        break;
      case "ok":
    }
    const picture = async (i: number) => ({ b64_json: (await this.#picture(i)).toString("base64") });
    json(200, { created: 1, data: await Promise.all(Array.from({ length: n }, (_, i) => picture(i))) });
  }

  #picture(index: number): Promise<Buffer> {
    const [r, g, b] = [this.arrivals.length % 256, Math.floor(this.arrivals.length / 256), index];
    return sharp({ create: { width: 16, height: 16, channels: 3, background: { r, g, b } } })
      .png()
      .toBuffer();
  }
}

/** The share of its price that an image of a job costs. */
export const JOB_PRICE = 0.5;
/** The models of the jobs, by ours. */
export const JOB_MODELS: Record<keyof typeof PRICES, string> = {
  "small-image": "gpt-image-1-mini",
  "large-image": "gpt-image-2",
};

type JobFake = Awaited<ReturnType<typeof startOpenaiBatch>>;

/** A vendor with OpenAI's batch jobs, at half the price: they end at once or late, in whole, in part or not at all. */
export class PaidJobs {
  readonly #fake: JobFake;

  private constructor(fake: JobFake) {
    this.#fake = fake;
  }

  /** The seed decides what becomes of the jobs. */
  static async start(seed: string): Promise<PaidJobs> {
    const fake = await startOpenaiBatch({ size: { width: 16, height: 16 } });
    fake.book.plan = (job, at): JobPlan => {
      const { lines } = job;
      const random = seeded(seed, at);
      const end = random.pick([
        "succeeded",
        "succeeded",
        "succeeded",
        "succeeded",
        "failed",
        "expired",
      ] as const);
      const isMade = new Set(lines.filter(() => random.chance(0.5)));
      const faults = new Map(
        lines.map((line) => [
          line,
          random.chance(0.85) ? null : random.pick(["error", "refused", "noImage"] as const),
        ]),
      );
      return {
        end,
        reason: "The job has failed.",
        runningMs: random.pick([0, 0, 100, 400, 4000]),
        pendingMs: random.pick([0, 100]),
        cancelMs: random.pick([0, 0, 300]),
        made: (line: JobLine) =>
          fake.book.end(job).how === "succeeded" || (end !== "failed" && isMade.has(line)),
        fault: (line: JobLine) => faults.get(line) ?? null,
      };
    };
    return new PaidJobs(fake);
  }

  get url(): string {
    return `${this.#fake.url}/v1`;
  }

  get count(): number {
    return this.#fake.book.own().length;
  }

  get billedMicroUsd(): number {
    return priceOf(this.#fake.book.own().flatMap((job) => this.#made(job)));
  }

  /** What is billed, if the jobs that go on make all of their images. */
  get mostMicroUsd(): number {
    const { book } = this.#fake;
    return priceOf(book.own().flatMap((job) => (book.isOpen(job) ? job.lines : this.#made(job))));
  }

  /** The lines that were made, and have an image. */
  #made(job: Job): JobLine[] {
    const made = this.#fake.book.made(job);
    return made.flatMap(({ line, fault }) => (line.problem === null && fault === null ? [line] : []));
  }

  close(): Promise<void> {
    return this.#fake.close();
  }
}

function priceOf(lines: readonly JobLine[]): number {
  return lines.reduce((sum, { request }) => {
    const {
      model,
      quality,
      n = 1,
    } = (request as { body: { model: string; quality: string; n?: number } }).body;
    const [ours = ""] = Object.entries(JOB_MODELS).find(([, theirs]) => theirs === model) ?? [];
    return sum + n * Math.round((PRICES[ours]?.[quality] ?? Number.NaN) * JOB_PRICE);
  }, 0);
}
