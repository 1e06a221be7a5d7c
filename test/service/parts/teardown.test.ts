import { expect, it } from "vitest";
import { Teardown } from "../../../src/service/parts/teardown.ts";

it("a stop runs all steps in the reverse order, also after one that fails, and then tells the first failure", async () => {
  const done: string[] = [];
  const teardown = new Teardown();
  teardown.add(() => void done.push("first"));
  teardown.add(async () => {
    throw new Error("second");
  });
  teardown.add(() => {
    throw new Error("third");
  });
  teardown.add(() => void done.push("fourth"));
  await expect(teardown.run()).rejects.toThrow("third");
  expect(done).toEqual(["fourth", "first"]);
  await teardown.run();
});
