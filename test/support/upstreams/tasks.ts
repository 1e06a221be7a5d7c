import { createHash, randomUUID } from "node:crypto";
import {
  type Answer,
  type FakeUpstream,
  type ImageService,
  type RequestKind,
  startUpstream,
  type Twist,
  type UpstreamRequest,
} from "./fake-upstream.ts";
import { type ImageType, imageOf } from "./images.ts";
import { bfl } from "./tasks-bfl.ts";
import { replicate } from "./tasks-replicate.ts";

/*
 * Services that answer a request for images with a task. The caller polls the task and fetches the result from another
 * host. Requests for images are of the kind `images` (creates), the others of the kinds `poll`, `download` (results) and
 * `cancel`, so every behaviour of `hostile.ts` works here: `fake.api.setBehaviour(resetAfter({ made: true }))` loses the
 * answer of a create that is billed, `fake.files.setBehaviour(html(200), "download")` sends a page in place of a result,
 * and `answering({ more: { cost: -1 } })` adds fields to an answer. A plan says how the tasks themselves go.
 */

export const TASK_VENDORS = { replicate, bfl };

export type TaskVendorName = keyof typeof TASK_VENDORS;

/**
 * `api` takes the requests; `region` is where a vendor with regions lets the caller poll; `files` has the results;
 * `stranger` is a host that no caller should ask with credentials. Each answers everything, so a leak shows in its requests.
 */
const HOSTS = ["api", "region", "files", "stranger"] as const;

type Host = (typeof HOSTS)[number];

/** How the tasks of a prompt go. Without any: one poll finds it under way, the next has the result. */
export interface TaskPlan {
  /** The status words of the polls, in turn; the last one stays. Results come with the vendor's word for a good end only. */
  states?: readonly string[];
  /** What a failed task says of its failure. */
  error?: string;
  /** An id in place of a new one. When it is taken, it names the older task, and the work is billed all the same. */
  id?: string;
  /** Where the caller is told to poll; default: where the vendor lets it poll. */
  pollAt?: Host;
  /** Where the result is; default `files`. */
  resultAt?: Host;
  /** How often the work is billed; default 1. With 0 a failed task cost nothing. */
  charges?: number;
  /** How often the vendor does the work again by itself and bills it, once a poll; not when the request forbids it. */
  retries?: number;
  /** Whether a request that waits for the end (`Prefer: wait`) gets it; default true. */
  inTime?: boolean;
  /** The form of Replicate's `output`; default: an array only for several images. */
  output?: "string" | "array";
  /** The result is gone once so many polls have shown its address; 1: at once. Default: only time ends it. */
  goneAfterPolls?: number;
  /** Each poll shows an address that is valid anew. Default false: the address of the first stays. */
  renews?: boolean;
}

export interface Task {
  id: string;
  /** Such as `black-forest-labs/flux-schnell`. */
  model: string;
  prompt: string;
  input: Record<string, unknown>;
  plan: TaskPlan;
  images: Buffer[];
  type: ImageType;
  /** In pixels, of each image. */
  size: { width: number; height: number };
  /** How often it was billed. */
  charges: number;
  polls: number;
  /** How many polls have shown a result. */
  shown: number;
  isCanceled: boolean;
  /** In ms since 1970. */
  createdMs: number;
  /** Until when the result can be fetched, in ms since 1970; null before its address was first shown. */
  endsMs: number | null;
  /** The number of times that the vendor may still do the work again by itself. */
  retriesLeft: number;
}

/** What a request asks for. */
export interface TaskWish {
  prompt: string;
  width?: number | undefined;
  height?: number | undefined;
  count?: number | undefined;
  type?: ImageType | undefined;
}

/** A task as its vendor tells of it. */
export interface TaskView {
  task: Task;
  state: string;
  /** The addresses of the results; empty unless the task has ended well. */
  results: string[];
  /** The origin under which the caller is told to poll. */
  origin: string;
  /** Time has ended the result. */
  isGone: boolean;
}

/** The special traits of one vendor. */
export interface TaskVendor {
  /** The header with the key, and what stands before the key. */
  credential: readonly [header: string, prefix: string];
  /** What a request to a path is, with the model or the id of the task in it. */
  routes: readonly [method: string, path: RegExp, kind: RequestKind | "result"][];
  /** The words for a task under way, one that ended well, and one that was canceled. */
  words: { pending: string; good: string; canceled: string };
  pollAt: Host;
  /** How long a result can be fetched, in ms, and the status after that. */
  result: { lifeMs: number; goneStatus: number };
  wishOf(body: Record<string, unknown>): TaskWish | null;
  forbidsRetries?(headers: UpstreamRequest["headers"]): boolean;
  /** Whether the request waits for the end. */
  waits?(headers: UpstreamRequest["headers"]): boolean;
  created(view: TaskView): Answer;
  polled(view: TaskView): Answer;
  /** Where the result is asked for separately. */
  resulted?(view: TaskView): Answer;
  canceled?(view: TaskView): Answer;
  /** The vendor's form of an error: 401, 402, 403, 404, 422, 429 or 5xx. */
  refusal(status: number): Answer;
}

export interface FakeTasks extends Record<Host, FakeUpstream> {
  vendor: TaskVendor;
  /** In the order of their creation. A task whose id was taken is here too. */
  tasks: Task[];
  /** The plan of the next task with this prompt. */
  plan: (prompt: string) => TaskPlan;
  /** The vendor's clock, in ms since 1970; it ends results. */
  now: () => number;
  /** How many requests of a kind came to any host: `images` (creates), `poll`, `download`, `cancel`. */
  count(kind: RequestKind): number;
  /** How often tasks with this prompt were billed, or all tasks. */
  charges(prompt?: string): number;
  /** The values of headers that carry a credential, by the host that received them. A host that received none has none. */
  credentials(): Record<Host, string[]>;
  close(): Promise<void>;
}

const MEGAPIXEL_SIDE = 1024;

/** A vendor of tasks on free loopback ports. */
export async function startTasks(name: TaskVendorName): Promise<FakeTasks> {
  const vendor: TaskVendor = TASK_VENDORS[name];
  const known = new Map<string, Task>();
  const routeOf = (method: string, path: string) => {
    const bare = path.split("#")[0] ?? "";
    for (const [verb, pattern, kind] of [...vendor.routes, ["GET", RESULT, "download"] as const]) {
      const match = verb === method ? pattern.exec(bare) : null;
      if (match) return { kind, match };
    }
    return null;
  };

  const viewOf = (task: Task, state: string): TaskView => {
    const { plan } = task;
    if (state === vendor.words.good) {
      task.shown++;
      if (task.endsMs === null || plan.renews) task.endsMs = fake.now() + vendor.result.lifeMs;
    }
    const isShown = state === vendor.words.good;
    const origin = fake[plan.resultAt ?? "files"].url;
    const results = isShown ? task.images.map((_, at) => origin + signed(task, at)) : [];
    const isGone = task.endsMs !== null && fake.now() >= task.endsMs;
    return { task, state, results, origin: fake[plan.pollAt ?? vendor.pollAt].url, isGone };
  };

  const stateOf = ({ plan, polls, isCanceled }: Task): string => {
    if (isCanceled) return vendor.words.canceled;
    const states = plan.states ?? [vendor.words.pending, vendor.words.good];
    return states[Math.min(Math.max(polls, 1), states.length) - 1] ?? vendor.words.good;
  };

  const create = async (request: UpstreamRequest, model: string, twist: Twist): Promise<Answer> => {
    const input = request.body as Record<string, unknown> | null;
    const wish = input !== null && typeof input === "object" ? vendor.wishOf(input) : null;
    if (input === null || wish === null) return vendor.refusal(422);
    const { prompt, width = MEGAPIXEL_SIDE, height = MEGAPIXEL_SIDE, count = 1, type = "png" } = wish;
    const plan = fake.plan(prompt);
    const size = twist.size ?? { width, height };
    const images: Buffer[] = [];
    for (let index = 0; index < (twist.images ?? count); index++)
      images.push(await imageOf(prompt, { ...size, type: twist.type ?? type, index }));
    const charges = plan.charges ?? 1;
    const task: Task = {
      ...{ id: plan.id ?? randomUUID(), model, prompt, input, plan, images, type: twist.type ?? type, size },
      ...{ charges, polls: 0, shown: 0, isCanceled: false, createdMs: fake.now(), endsMs: null },
      retriesLeft: vendor.forbidsRetries?.(request.headers) ? 0 : (plan.retries ?? 0),
    };
    fake.tasks.push(task);
    if (!known.has(task.id)) known.set(task.id, task);
    const isWaited = vendor.waits?.(request.headers) === true && plan.inTime !== false;
    if (isWaited) task.polls = plan.states?.length ?? 2;
    const answer = vendor.created(viewOf(task, isWaited ? stateOf(task) : vendor.words.pending));
    return { ...answer, images: Array.from({ length: charges }, () => images).flat() };
  };

  const poll = (task: Task): Answer => {
    task.polls++;
    if (task.retriesLeft > 0) {
      task.retriesLeft--;
      task.charges++;
      const hashes = task.images.map((image) => createHash("sha256").update(image).digest("hex"));
      fake.api.bill.set(task.prompt, [...(fake.api.bill.get(task.prompt) ?? []), ...hashes]);
    }
    return vendor.polled(viewOf(task, stateOf(task)));
  };

  const download = async (match: RegExpExecArray, twist: Twist): Promise<Answer> => {
    const [path = "", id = "", index = ""] = match;
    const task = fake.tasks.find((each) => each.id === id && each.endsMs !== null);
    if (!task?.images[Number(index)]) return { status: 404, body: "" };
    const isCounted = task.plan.goneAfterPolls !== undefined && task.shown >= task.plan.goneAfterPolls;
    const expiry = Number(new URL(path, "http://files").searchParams.get("se"));
    if (path !== signature(task, Number(index), expiry)) return { status: 403, body: EXPIRED, headers: XML };
    if (isCounted || fake.now() >= expiry)
      return { status: vendor.result.goneStatus, body: EXPIRED, headers: XML };
    const type = twist.type ?? task.type;
    const made = twist.size || type !== task.type;
    const size = twist.size ?? task.size;
    const image = made
      ? await imageOf(task.prompt, { ...size, type, index: Number(index) })
      : task.images[Number(index)];
    const label = `image/${twist.label ?? type}`;
    return { status: 200, body: twist.bytes ?? image ?? "", headers: { "content-type": label } };
  };

  const service: ImageService = {
    kindOf: (method, path) => {
      const kind = routeOf(method, path)?.kind ?? "other";
      return kind === "result" ? "poll" : kind;
    },
    promptOf: (body) =>
      body !== null && typeof body === "object"
        ? (vendor.wishOf(body as Record<string, unknown>)?.prompt ?? null)
        : null,
    answer: async (request, twist) => {
      const route = routeOf(request.method, request.path);
      if (route === null) return vendor.refusal(404);
      if (route.kind === "download") return download(route.match, twist);
      const [header, prefix] = vendor.credential;
      const sent = String(request.headers[header] ?? "");
      if (!sent.startsWith(prefix) || sent.length === prefix.length) return vendor.refusal(401);
      const subject = decodeURIComponent(route.match[1] ?? "");
      if (route.kind === "images") return more(await create(request, subject, twist), twist);
      const task = known.get(subject);
      if (!task) return vendor.refusal(404);
      if (route.kind === "poll") return more(poll(task), twist);
      if (route.kind === "result")
        return more(vendor.resulted?.(viewOf(task, stateOf(task))) ?? vendor.refusal(404), twist);
      if (stateOf(task) !== vendor.words.good) task.isCanceled = true;
      return vendor.canceled?.(viewOf(task, stateOf(task))) ?? vendor.refusal(404);
    },
  };

  const started = await Promise.all(HOSTS.map(async (host) => [host, await startUpstream(service)] as const));
  const hosts = Object.fromEntries(started) as Record<Host, FakeUpstream>;
  const requests = () => Object.values(hosts).flatMap((host) => host.requests);
  const fake: FakeTasks = {
    ...hosts,
    ...{ vendor, tasks: [], plan: () => ({}), now: Date.now },
    count: (kind) => requests().filter((request) => request.kind === kind).length,
    charges: (prompt) =>
      fake.tasks
        .filter((task) => prompt === undefined || task.prompt === prompt)
        .reduce((sum, task) => sum + task.charges, 0),
    credentials: () =>
      Object.fromEntries(HOSTS.map((host) => [host, credentialsAt(hosts[host])])) as Record<Host, string[]>,
    close: async () => void (await Promise.all(Object.values(hosts).map((host) => host.close()))),
  };
  return fake;
}

const RESULT = /^\/results\/([^/]+)\/(\d+)\.[a-z]+\?.*$/;
const XML = { "content-type": "application/xml" };
const EXPIRED = "<?xml version='1.0'?><Error><Code>AuthenticationFailed</Code></Error>";

/** The path of a result, which nobody can make up and which says when it ends. */
function signature({ id, type }: Task, index: number, expiry: number): string {
  const path = `/results/${encodeURIComponent(id)}/${index}.${type === "jpeg" ? "jpg" : type}`;
  const sig = createHash("sha256").update(`${path} ${expiry}`).digest("hex").slice(0, 32);
  return `${path}?se=${expiry}&sig=${sig}`;
}

const signed = (task: Task, index: number) => signature(task, index, task.endsMs ?? 0);

function more(answer: Answer, twist: Twist): Answer {
  if (twist.more === undefined || answer.status >= 300) return answer;
  return { ...answer, body: JSON.stringify({ ...JSON.parse(String(answer.body)), ...twist.more }) };
}

function credentialsAt({ requests }: FakeUpstream): string[] {
  const values = requests.flatMap(({ headers }) =>
    Object.entries(headers).filter(([name]) => /auth|key|token|secret|cookie/i.test(name)),
  );
  return [...new Set(values.map(([, value]) => String(value)))];
}
