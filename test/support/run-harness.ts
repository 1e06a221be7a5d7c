import { readFile, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { createServiceHttp } from "../../src/client/service-http.ts";
import { DEFAULT_LIMITS, type Limits } from "../../src/contract/limits.ts";
import type { Http } from "../../src/http/http.ts";
import { collectRun, type RunOutcome } from "../../src/runs/collect-run.ts";
import { claimDirectory } from "../../src/runs/directory/claim.ts";
import type { ResultLine } from "../../src/runs/directory/results.ts";
import { keyFingerprint, type RunService } from "../../src/runs/directory/run-service.ts";
import type { RunState } from "../../src/runs/directory/run-state-schema.ts";
import { type Plan, planRun, type RunRequest } from "../../src/runs/plan/plan.ts";
import { readPromptFiles } from "../../src/runs/plan/prompt-files.ts";
import { changedError } from "../../src/runs/plan/update.ts";
import { chooseStart, startRun } from "../../src/runs/start.ts";
import { awaitBatches } from "../../src/runs/wait.ts";
import { FAKE_KEY, type FakeOptions, type FakeService, startFakeService } from "./fake-service.ts";
import { InstantClock } from "./instant-clock.ts";
import { watchSecret } from "./secrets.ts";
import { tempDir } from "./temp-dir.ts";

/** A run against a fake service, in a directory of its own. */
export interface RunHarness {
  fake: FakeService;
  root: string;
  dir: string;
  clock: InstantClock;
  service: RunService;
  http: Http;
  notes: string[];
  /** From prompt lines to files; the lines are objects or raw text. */
  submit(
    lines: readonly (object | string)[],
    options?: SubmitOptions,
  ): Promise<RunOutcome & { replayed: boolean }>;
  path(name: string): string;
  read(name: string): Promise<string>;
  runState(): Promise<RunState>;
  results(): Promise<ResultLine[]>;
}

export interface SubmitOptions {
  isNew?: boolean;
  isUpdate?: boolean;
  explicit?: string;
  keepZip?: boolean;
  request?: Partial<RunRequest>;
  limits?: Partial<Limits>;
  signal?: AbortSignal;
  /** Stop after the batches were made. */
  onlyStart?: boolean;
}

export async function createRunHarness(options: FakeOptions = {}): Promise<RunHarness> {
  const fake = await startFakeService(options);
  const root = await tempDir(() => fake.close());
  watchSecret(FAKE_KEY);
  const clock = new InstantClock(Date.now());
  const http = createServiceHttp({
    baseUrl: fake.url,
    apiKey: FAKE_KEY,
    clock,
    random: () => 0.5,
  });
  const service = {
    http,
    identity: fake.url,
    keyFingerprint: keyFingerprint(FAKE_KEY),
    upstream: null,
    isLocal: true,
  };
  const notes: string[] = [];
  const reporter = { note: (line: string) => void notes.push(line), detail() {}, progress() {} };
  const dir = join(root, "out");
  const harness: RunHarness = {
    fake,
    root,
    dir,
    clock,
    service,
    http,
    notes,
    path: (name) => join(dir, name),
    read: (name) => readFile(join(dir, name), "utf8"),
    runState: async () => JSON.parse(await harness.read("imgbatch.json")),
    results: async () =>
      (await harness.read("results.jsonl"))
        .trim()
        .split("\n")
        .map((line) => JSON.parse(line)),
    submit: async (
      lines,
      { isNew = false, isUpdate = false, explicit = null, keepZip = false, signal, onlyStart, ...rest } = {},
    ) => {
      const plan = await planOf(root, lines, rest.request, rest.limits);
      const keys = { isNew, explicit };
      const work = {
        plan,
        dir,
        service,
        keys,
        clock,
        reporter,
        signal,
        shownDir: "out",
        limits: { ...DEFAULT_LIMITS, ...rest.limits },
      };
      const start = await chooseStart(work, claimDirectory);
      if (start.kind === "update" && start.update !== null && !isUpdate)
        throw changedError("out", start.update, {}, { update: "--update", before: "" });
      const { state: runState, batches, replayed } = await startRun(work, start, null);
      if (onlyStart)
        return {
          dir,
          batches,
          deciding: batches,
          lines: [],
          fetchedCount: 0,
          hasRetry: false,
          failedAt: [],
          paidNowMicroUsd: 0,
          unknown: new Map(),
          replayed,
        };
      const ended = await awaitBatches(batches, { service, clock, random: () => 0.5, signal, reporter });
      const outcome = await collectRun({
        dir,
        state: runState,
        batches: ended,
        service,
        keepZip,
        clock,
        reporter,
        signal,
      });
      return { ...outcome, replayed };
    },
  };
  return harness;
}

/** The plan for prompt lines, read through a real file in `root`. */
export async function planOf(
  root: string,
  lines: readonly (object | string)[],
  request: Partial<RunRequest> = {},
  limits: Partial<Limits> = {},
): Promise<Plan> {
  const text = lines.map((line) => (typeof line === "string" ? line : JSON.stringify(line))).join("\n");
  await writeFile(join(root, "prompts.jsonl"), text);
  const rules = { limits: DEFAULT_LIMITS, defaultCount: 1 };
  const source = { name: "prompts.jsonl", cwd: root, stdin: async function* () {} };
  const items = await readPromptFiles([source], rules);
  const defaults: RunRequest = {
    model: "vendorx-3.1-flash-image",
    name: null,
    parentId: null,
    mimeType: "image/png",
    metadata: null,
    items,
  };
  return planRun({ ...defaults, ...request, items }, { ...DEFAULT_LIMITS, ...limits });
}
