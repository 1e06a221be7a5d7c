import { PassThrough } from "node:stream";
import { expect, it } from "vitest";
import { readAll } from "../../../src/cli/terminal.ts";

it("[CLI-11] an interruption ends the reading of a stream that does not end, and lets go of it", async () => {
  const stop = new AbortController();
  const stream = new PassThrough();
  stream.write("half a line");
  const read = readAll(stream, stop.signal);
  stop.abort(new Error("interrupted"));
  await expect(read).rejects.toThrow("interrupted");
  expect(stream.destroyed).toBe(true);
  const whole = new PassThrough();
  whole.end("all of it");
  expect(Buffer.from(await readAll(whole, new AbortController().signal)).toString()).toBe("all of it");
});
