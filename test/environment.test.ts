import { expect, it } from "vitest";
import { ignoreRelativeDirectories, isDumbTerminal } from "../src/environment.ts";

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

it.skipIf(process.platform === "win32")("a relative or empty directory of the user counts as not set", () => {
  const env = {
    HOME: "",
    XDG_DATA_HOME: "data",
    XDG_CACHE_HOME: "./cache",
    XDG_STATE_HOME: "/state",
    OTHER: "a",
  };
  ignoreRelativeDirectories(env);
  expect(env).toEqual({ XDG_STATE_HOME: "/state", OTHER: "a" });
});
