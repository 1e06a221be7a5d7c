import { expect, it } from "vitest";
import { instantOption } from "../../../src/cli/options.ts";

it("a time that is so long ago counts from the time that the command is given", () => {
  const nowMs = Date.UTC(2030, 0, 2, 3, 4, 5);
  const read = (from: string) => instantOption({ from }, "from", nowMs);
  expect(read("24h")).toBe("2030-01-01T03:04:05Z");
  expect(read("2030-01-31")).toBe("2030-01-31");
  expect(() => read("yesterday")).toThrow('--from "yesterday": write a day');
});
