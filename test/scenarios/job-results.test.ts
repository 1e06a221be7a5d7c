import { resolve } from "node:path";
import { expect, it } from "vitest";
import { startNode } from "../support/processes.ts";

const SOAK = resolve(import.meta.dirname, "../soak/job-results.mjs");
/** The files of both types are read line by line by the same code. */
const TYPES = process.env.IMGBATCH_SOAK ? ["native-batch", "openai-batch"] : ["native-batch"];

it.each(TYPES)(
  "a file of results (%s) is fetched over many broken downloads, in the memory of a few of its lines",
  async (type) => {
    const soak = startNode([SOAK, "--images", "10", "--cuts", "5", "--only", type]);
    const { code, stdout, stderr } = await soak.exited;
    expect(code, stdout + stderr).toBe(0);
    const { results } = JSON.parse(stdout);
    expect(results[type]).toMatchObject({ status: "completed", made: 10, wrong: 0 });
    expect(results[type].downloads).toBeGreaterThan(4);
    expect(results[type].sent_mb).toBeLessThan(results[type].file_mb + 5);
  },
  120_000,
);
