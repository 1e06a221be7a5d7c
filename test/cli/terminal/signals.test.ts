import { EventEmitter } from "node:events";
import { expect, it } from "vitest";
import { type Terminal, watchSignals } from "../../../src/cli/terminal.ts";
import { EXIT_CODES, errorEntry, type ImgbatchError } from "../../../src/contract/errors.ts";

it("[CLI-11] the first signal aborts and lets the work end, the second one ends the process at once", () => {
  const emitter = new EventEmitter();
  const exits: number[] = [];
  const signals = emitter as unknown as Terminal["signals"];
  const fail = (error: ImgbatchError) => EXIT_CODES[errorEntry(error.code).exit].code;
  const watch = watchSignals({ signals, exit: (code) => void exits.push(code) }, fail);
  emitter.emit("SIGINT", "SIGINT");
  expect(watch.signal.reason).toMatchObject({ code: "INTERRUPTED" });
  expect(exits).toEqual([]);
  emitter.emit("SIGINT", "SIGINT");
  emitter.emit("SIGTERM", "SIGTERM");
  expect(exits).toEqual([130, 143]);
  watch.stop();
  expect(emitter.listenerCount("SIGINT") + emitter.listenerCount("SIGTERM")).toBe(0);
});
