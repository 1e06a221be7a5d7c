import { join } from "node:path";
import { beforeEach, expect, inject, it, vi } from "vitest";
import { MoneyStory } from "../soak/money-story.ts";
import { retryAtOnce } from "../support/cli-in-process.ts";
import { hasPostgres } from "../support/postgres.ts";
import { tempDir } from "../support/temp-dir.ts";
import { OPENAI_KEY } from "../support/upstreams/openai.ts";

declare module "vitest" {
  interface ProvidedContext {
    /** How many stories about money are told. */
    stories?: number;
  }
}

const AT_ONCE = 4;
const SEED = inject("seed") ?? 47;
/** How long a story may take; with little processor time it takes ten times as long as else. */
const LIMIT_MS = 120_000;
const NEVER_MS = 2 ** 31 - 1;

beforeEach(() => {
  for (const name of ["BASE_URL", "API_KEY", "DATA"]) vi.stubEnv(`IMGBATCH_${name}`, "");
  vi.stubEnv("OPENAI_API_KEY", OPENAI_KEY);
  retryAtOnce();
});

it(
  "where a story ends, the bill of the upstream, usage, ledger, summary, dry run and results agree",
  async () => {
    const directory = await tempDir();
    const only = inject("run");
    const numbers =
      only === undefined ? Array.from({ length: inject("stories") ?? 10 }, (_, i) => i) : [only];
    const problems: string[] = [];
    const tell = async () => {
      for (let number = numbers.shift(); number !== undefined; number = numbers.shift()) {
        const story = new MoneyStory(join(directory, `story-${number}`), {
          seed: SEED,
          number,
          kills: number % 4 === 3,
          kind: number % 6 === 2 ? "jobs" : hasPostgres && number % 12 === 4 ? "postgres" : "usual",
          limitMs: LIMIT_MS,
        });
        await story.run().catch((error) => problems.push(error.message));
      }
    };
    await Promise.all(Array.from({ length: AT_ONCE }, tell));
    expect(problems.join("\n\n")).toBe("");
  },
  NEVER_MS,
);
