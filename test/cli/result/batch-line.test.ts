import { expect, it } from "vitest";
import { batchLine } from "../../../src/cli/output/batches.ts";
import { readBatch } from "../../../src/client/answers.ts";

it("the line of a batch says that it is a job of a vendor's API", () => {
  const wire = { id: "imgbatch_1", status: "running", item_count: 3, success_count: 1, fail_count: 0 };
  const line = (source?: string) => {
    const batch = readBatch({ ...wire, task_name: "foxes", source });
    return batch && batchLine(batch);
  };
  expect(line("native")).toBe("imgbatch_1  running  1/3 images  0 failed  foxes  (native job)");
  expect(line("batch")).toBe("imgbatch_1  running  1/3 images  0 failed  foxes");
  expect(line()).toBe(line("batch"));
});
