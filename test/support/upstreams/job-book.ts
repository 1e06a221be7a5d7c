import type { Answer } from "./fake-upstream.ts";

/** One line of a job: one request for an image. */
export interface JobLine {
  /** As the caller sent it; null when it sent none. */
  key: string | null;
  request: unknown;
  prompt: string;
  /** Why the service cannot run it; null for a good line. */
  problem: string | null;
}

/**
 * How the result of one line goes wrong. The first five are paid: the line never comes, comes twice with another
 * image, is half a document, is huge, or is joined by one with a key that nobody sent. The last four have no
 * image.
 */
export type LineFault =
  | "lost"
  | "twice"
  | "unreadable"
  | "huge"
  | "stranger"
  | "error"
  | "statusError"
  | "refused"
  | "noImage";

const UNPAID: readonly LineFault[] = ["error", "statusError", "refused", "noImage"];

export type JobEnd = "succeeded" | "failed" | "expired" | "cancelled";
export type JobPhase = "pending" | "running" | "cancelling" | JobEnd;

/** The future of a job. All of it may be changed while the job runs. */
export interface JobPlan {
  /** How long it waits. `Infinity`: it is stuck. Default 0. */
  pendingMs?: number;
  /** How long it then runs. Default 0. */
  runningMs?: number;
  /** Default `succeeded`. */
  end?: JobEnd;
  /** Why it failed. */
  reason?: string;
  /** Which lines were made when it ended or was stopped. Default: all of a job that succeeds, none of any other. */
  made?: (line: JobLine, at: number) => boolean;
  fault?: (line: JobLine, at: number) => LineFault | null;
  /** The results come in another order than the lines. */
  isShuffled?: boolean;
  /** How long a cancel takes. `Infinity`: it is taken and nothing happens. Default 0. */
  cancelMs?: number;
  /** It appears in lists after this much time. Default at once. */
  listedAfterMs?: number;
}

export interface Job {
  name: string;
  /** The caller's name for it, or the label sent with it. */
  label: string;
  metadata: Record<string, string>;
  model: string;
  /** The name of the input file; null for a job whose lines came in the request. */
  file: string | null;
  lines: JobLine[];
  createdAt: number;
  cancelledAt: number | null;
  /** It can no longer be asked for; it runs on and is paid. */
  isDeleted: boolean;
  /** Another machine of the same account made it. */
  isForeign: boolean;
  plan: JobPlan;
}

export interface StoredFile {
  name: string;
  label: string;
  type: string;
  bytes: Buffer;
  createdAt: number;
}

interface BookOptions {
  /** In ms since 1970. */
  now: () => number;
  /** How long a job may wait and run. */
  patienceMs: number;
  /** How long files, and jobs that ended, are kept. */
  keptMs: number;
}

/** The knowledge of a service of batch jobs: its files, its jobs and the bill. All states follow from the clock and the plans. */
export class JobBook {
  readonly files = new Map<string, StoredFile>();
  /** In the order of their creation. */
  readonly jobs: Job[] = [];
  /** The future of each job that is created from now on; `at` counts from 0. */
  plan: (job: Job, at: number) => JobPlan = () => ({});
  readonly #options: BookOptions;

  constructor(options: BookOptions) {
    this.#options = options;
  }

  get now(): number {
    return this.#options.now();
  }

  get keptMs(): number {
    return this.#options.keptMs;
  }

  add(job: Pick<Job, "name" | "label" | "model" | "file" | "lines"> & Partial<Job>): Job {
    const started: Job = {
      ...{ metadata: {}, createdAt: this.now, cancelledAt: null },
      ...{ isDeleted: false, isForeign: false, plan: {}, ...job },
    };
    if (!started.isForeign) started.plan = this.plan(started, this.own().length);
    this.jobs.push(started);
    return started;
  }

  /** A file that still lies there. */
  file(name: string): StoredFile | undefined {
    const file = this.files.get(name);
    return file && this.now < file.createdAt + this.keptMs ? file : undefined;
  }

  /** Deletes a file. A job that still needs it fails. */
  deleteFile(name: string): void {
    this.files.delete(name);
    for (const job of this.jobs)
      if (job.file === name && this.isOpen(job))
        job.plan = { end: "failed", reason: `The input file ${name} was deleted.` };
  }

  /** A job that the service still knows. */
  job(name: string): Job | undefined {
    return this.jobs.find((job) => job.name === name && this.#isKept(job));
  }

  /** Newest first, without those that the list does not show yet. */
  listed(): Job[] {
    const isShown = ({ isForeign, plan, createdAt }: Job) =>
      isForeign || this.now >= createdAt + (plan.listedAfterMs ?? 0);
    const shown = this.jobs.filter((job) => this.#isKept(job) && isShown(job));
    return shown.reverse().sort((one, other) => other.createdAt - one.createdAt);
  }

  /** When it ended or will end, and how. */
  end({ plan, createdAt, cancelledAt }: Job): { at: number; how: JobEnd } {
    const ends = createdAt + (plan.pendingMs ?? 0) + (plan.runningMs ?? 0);
    const stops = cancelledAt === null ? Number.POSITIVE_INFINITY : cancelledAt + (plan.cancelMs ?? 0);
    const expires = createdAt + this.#options.patienceMs;
    const at = Math.min(ends, stops, expires);
    return { at, how: at === ends ? (plan.end ?? "succeeded") : at === stops ? "cancelled" : "expired" };
  }

  phase(job: Job): JobPhase {
    const { at, how } = this.end(job);
    if (this.now >= at) return how;
    if (job.cancelledAt !== null) return "cancelling";
    return this.now < job.createdAt + (job.plan.pendingMs ?? 0) ? "pending" : "running";
  }

  isOpen(job: Job): boolean {
    return this.now < this.end(job).at;
  }

  /** The lines that were made, with their faults; none before the end. */
  made(job: Job): { line: JobLine; fault: LineFault | null }[] {
    if (this.isOpen(job)) return [];
    const isAll = this.end(job).how === "succeeded";
    return job.lines.flatMap((line, at) =>
      (job.plan.made?.(line, at) ?? isAll) ? [{ line, fault: job.plan.fault?.(line, at) ?? null }] : [],
    );
  }

  /** Each image that the jobs of this account's caller have made: what it owes, and whether it can still be fetched. */
  payments(): { prompt: string; canBeFetched: boolean }[] {
    return this.own().flatMap((job) =>
      this.made(job)
        .filter(({ line, fault }) => line.problem === null && !(fault && UNPAID.includes(fault)))
        .map(({ line: { prompt }, fault }) => {
          const canBeFetched = fault !== "lost" && fault !== "unreadable" && this.#isKept(job);
          return { prompt, canBeFetched };
        }),
    );
  }

  /** The caller's jobs that have not ended. */
  running(): Job[] {
    return this.own().filter((job) => this.isOpen(job));
  }

  own(): Job[] {
    return this.jobs.filter(({ isForeign }) => !isForeign);
  }

  #isKept(job: Job): boolean {
    return !job.isDeleted && this.now < this.end(job).at + this.keptMs;
  }
}

/** The values of a JSONL text, or the number of the first line that is not one JSON object. */
export function readJsonLines(bytes: Buffer): { values: Record<string, unknown>[] } | { badLine: number } {
  const texts = bytes.toString("utf8").split("\n");
  if (texts.at(-1) === "") texts.pop();
  const values: Record<string, unknown>[] = [];
  for (const [at, text] of texts.entries())
    try {
      const value = JSON.parse(text);
      if (typeof value !== "object" || value === null || Array.isArray(value)) return { badLine: at + 1 };
      values.push(value);
    } catch {
      return { badLine: at + 1 };
    }
  return { values };
}

/** The text of a result file: `draw` writes the line of an image, `copy` 1 with another image of the same prompt. */
export async function resultFile(
  made: readonly { line: JobLine; fault: LineFault | null }[],
  isShuffled: boolean | undefined,
  draw: (line: JobLine, fault: LineFault | null, copy: number) => Promise<object>,
): Promise<Buffer> {
  const texts: string[] = [];
  for (const { line, fault } of isShuffled ? made.toReversed() : made) {
    if (fault === "lost") continue;
    const text = JSON.stringify(await draw(line, fault, 0));
    texts.push(fault === "unreadable" ? text.slice(0, text.length >> 1) : text);
    if (fault === "twice") texts.push(JSON.stringify(await draw(line, fault, 1)));
    if (fault === "stranger") {
      const key = "a key that nobody sent";
      texts.push(JSON.stringify(await draw({ ...line, key }, fault, 1)));
    }
  }
  return Buffer.from(texts.map((text) => `${text}\n`).join(""));
}

/** An error as it is, or with the caller's key in its message. */
export function repeatingKey(answer: Answer, key: string | null): Answer {
  if (answer.status < 400 || answer.body === "" || key === null) return answer;
  const { error } = JSON.parse(String(answer.body));
  return {
    ...answer,
    body: JSON.stringify({ error: { ...error, message: `${error.message} (key ${key})` } }),
  };
}

/** The part of a file that a `Range` header asks for: status, headers and bytes. */
export function rangeOf(bytes: Buffer, header: string | undefined): Answer {
  const type = { "content-type": "application/octet-stream", "accept-ranges": "bytes" };
  const [, from, to] = /^bytes=(\d+)-(\d*)$/.exec(header ?? "") ?? [];
  if (from === undefined) return { status: 200, headers: type, body: bytes };
  if (Number(from) >= bytes.length)
    return { status: 416, headers: { ...type, "content-range": `bytes */${bytes.length}` }, body: "" };
  const end = Math.min(to ? Number(to) + 1 : bytes.length, bytes.length);
  const range = { "content-range": `bytes ${from}-${end - 1}/${bytes.length}` };
  return { status: 206, headers: { ...type, ...range }, body: bytes.subarray(Number(from), end) };
}
