import { createServer } from "node:http";
import { describe, expect, it } from "vitest";
import { ImgbatchError } from "../../../src/contract/errors.ts";
import { MemoryBudget } from "../../../src/kernel/memory-budget.ts";
import { BODY_RATE, type BodyRate, readBody } from "../../../src/server/request-body/json-body.ts";
import { gate } from "../../support/gate.ts";
import { listening } from "../../support/listening.ts";
import { converse, exchange, requestText } from "../../support/raw-http.ts";

const patient: BodyRate = { ...BODY_RATE, waitMs: 60_000 };

interface Options {
  pace?: BodyRate;
  budget?: MemoryBudget;
  maxBytes?: number;
  /** Goes on before the next chunk is taken. */
  work?: () => Promise<void>;
  /** Called when a chunk has to wait for memory. */
  onWait?: () => void;
}

/** A server that answers the size of a body, or the code of what was wrong with it. */
async function sizeServer(options: Options = {}) {
  const budget = options.budget ?? new MemoryBudget(1e6);
  const server = createServer((request, response) => {
    const place = budget.enter();
    const { pace = patient, maxBytes = 1e6, work } = options;
    response.setHeader("Connection", "close");
    let size = 0;
    const add = (chunk: Buffer) => {
      size += chunk.length;
      const taken = place.take(chunk.length);
      if (taken !== null) options.onWait?.();
      return taken ?? work?.() ?? null;
    };
    readBody(request, { maxBytes, rate: pace, add })
      .then(() => response.end(String(size)))
      .catch((error) => response.end(error instanceof ImgbatchError ? error.code : "broken"))
      .finally(() => place.leave());
  });
  return { url: await listening(server), budget };
}

const textOf = async (answer: ReturnType<typeof exchange>) => String((await answer)?.body);
const announced = (bytes: number) => requestText("POST", "/", [["Content-Length", String(bytes)]]);

describe("reading a body", () => {
  it.each([
    ["sends nothing", { windowMs: 50 }, () => {}],
    ["sends too slowly", { windowMs: 100 }, (write: () => void) => setInterval(write, 10)],
    [
      "takes too long in all",
      { windowMs: 1000, deadlineMs: 100, bytesPerWindow: 1 },
      (write: () => void) => setInterval(write, 10),
    ],
  ])("[LOAD-2] a sender that %s gets an error", async (_, pace, drip) => {
    const { url, budget } = await sizeServer({ pace: { ...patient, ...pace } });
    let timer: NodeJS.Timeout | undefined;
    const answer = converse(url, (socket) => {
      socket.write(announced(100_000));
      timer = drip(() => socket.write("x")) as NodeJS.Timeout | undefined;
    });
    expect(await textOf(answer)).toBe("REQUEST_TIMEOUT");
    clearInterval(timer);
    expect(budget.bytes).toBe(0);
  });

  it("[LOAD-1] what has no place is not read: the sender waits, and goes on when there is room", async () => {
    const budget = new MemoryBudget(1000);
    const oldest = budget.enter();
    const taken = budget.enter();
    expect(taken.take(1000)).toBeNull();
    const waiting = gate();
    const rate = { ...patient, windowMs: 30, deadlineMs: 30_000 };
    const { url } = await sizeServer({ budget, pace: rate, onWait: waiting.open });
    const sent = exchange(url, Buffer.concat([announced(200), Buffer.alloc(200)]));
    await waiting.promise;
    // Longer than the window, as one that sends nothing is refused by then: waiting is not the sender's fault.
    expect(await textOf(exchange(url, announced(200)))).toBe("REQUEST_TIMEOUT");
    expect(budget.bytes).toBe(1000);
    taken.leave();
    expect(await textOf(sent)).toBe("200");
    oldest.leave();
  });

  it("[LOAD-2] our own work on the chunks neither hides a slow sender nor counts against a fast one", async () => {
    const work = () => new Promise<void>((resolve) => setTimeout(resolve, 1));
    const slow = await sizeServer({ work, pace: { ...patient, windowMs: 60 } });
    let timer: NodeJS.Timeout | undefined;
    const answer = converse(slow.url, (socket) => {
      socket.write(announced(100_000));
      timer = setInterval(() => socket.write("x"), 10);
    });
    expect(await textOf(answer)).toBe("REQUEST_TIMEOUT");
    clearInterval(timer);
    const fast = await sizeServer({ work, pace: { ...patient, windowMs: 200, bytesPerWindow: 1 } });
    const body = Buffer.concat([announced(900_000), Buffer.alloc(900_000)]);
    expect(await textOf(exchange(fast.url, body))).toBe("900000");
  });

  it("[LOAD-2] a sender that goes away leaves nothing behind", async () => {
    const { url, budget } = await sizeServer();
    await converse(url, (socket) => {
      socket.write(announced(100_000));
      socket.write(Buffer.alloc(5000), () => socket.destroy());
    });
    await expect.poll(() => budget.bytes).toBe(0);
  });
});
