import { expect, it } from "vitest";
import { isDumbTerminal } from "../src/environment.ts";

it.each([
  [{}, false],
  [{ TERM: "xterm-256color", CI: "" }, false],
  [{ CI: "false" }, false],
  [{ CI: "0" }, false],
  [{ CI: "1" }, true],
  [{ CI: "true" }, true],
  [{ TERM: "dumb" }, true],
])("[VIEW-1] a terminal with %j gets lines of log instead of the live view: %s", (env, isDumb) => {
  expect(isDumbTerminal(env)).toBe(isDumb);
});
