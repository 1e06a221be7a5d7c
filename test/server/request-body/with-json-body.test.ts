import { connect } from "node:net";
import express from "express";
import { describe, expect, it, onTestFinished } from "vitest";
import { silentLog } from "../../../src/kernel/log.ts";
import { answerErrors } from "../../../src/server/http/errors.ts";
import { listen } from "../../../src/server/listen.ts";
import { BodyBudgets } from "../../../src/server/request-body/body-budgets.ts";
import { BODY_RATE, peekBody, withJsonBody } from "../../../src/server/request-body/json-body.ts";
import { plainFormat } from "../../../src/server/request-body/json-reader.ts";
import { errorStyleOf } from "../../../src/server/surfaces.ts";
import { converse, exchange, requestText } from "../../support/raw-http.ts";

const MIB = 1024 * 1024;

/** A body that is kept whole. */
const FORMAT = { ...plainFormat("prompt", "INVALID_JSON"), prompts: 1, promptChars: 6 * MIB };

/** A service of one route that answers how many bytes of JSON it got. The header `caller` is the key. */
async function jsonServer(
  pace = BODY_RATE,
  bodyBudgets = new BodyBudgets(),
  peekBytes: number | null = null,
): Promise<string> {
  const app = express();
  app.post("/", async (request, response) => {
    response.locals.key = { id: request.get("caller") };
    const peeked = peekBytes === null ? null : await peekBody(request, response, peekBytes);
    const options = { maxBytes: 192 * MIB, format: FORMAT, images: null, bodyBudgets, rate: pace };
    const characters = await withJsonBody(
      request,
      response,
      options,
      async ({ value }) => JSON.stringify(value).length,
    );
    response.json(peekBytes === null ? { characters } : { characters, peeked: peeked?.length ?? null });
  });
  app.use(answerErrors(silentLog, errorStyleOf));
  const server = await listen(app, { host: "127.0.0.1", port: 0 });
  onTestFinished(() => server.close(0));
  return server.url;
}

const announced = (bytes: number, caller: string) =>
  requestText("POST", "/", [
    ["caller", caller],
    ["Content-Length", String(bytes)],
  ]);

describe("the body of a request", () => {
  it("[LOAD-1] that is sent slowly holds up neither small nor large ones, of the same caller or of another", async () => {
    const url = await jsonServer();
    const slow = Array.from({ length: 20 }, () => {
      const socket = connect(Number(new URL(url).port), "127.0.0.1");
      socket.on("error", () => {});
      socket.write(Buffer.concat([announced(100 * MIB, "slow"), Buffer.alloc(300_000, 32)]));
      return socket;
    });
    const sizes = [10, 2 * MIB, 5 * MIB];
    const answers = sizes.flatMap((size) =>
      ["slow", "other"].map(async (caller) => {
        const body = Buffer.from(JSON.stringify("x".repeat(size)));
        const chunked: [string, string][] = [
          ["caller", caller],
          ["Transfer-Encoding", "chunked"],
        ];
        const [whole, inChunks] = await Promise.all([
          exchange(url, Buffer.concat([announced(body.length, caller), body])),
          exchange(
            url,
            requestText("POST", "/", chunked, `${body.length.toString(16)}\r\n${body}\r\n0\r\n\r\n`),
          ),
        ]);
        expect([whole?.status, String(whole?.body)]).toEqual([200, `{"characters":${size + 2}}`]);
        expect(String(inChunks?.body)).toBe(String(whole?.body));
      }),
    );
    await Promise.all(answers);
    for (const socket of slow) socket.destroy();
  });

  it("can be read before its handler, which gets all of it, also where it was too long", async () => {
    const url = await jsonServer(BODY_RATE, new BodyBudgets(), 300_000);
    const body = JSON.stringify("x".repeat(1_000_000));
    const framing: [string, string][] = [
      ["caller", "caller"],
      ["Transfer-Encoding", "chunked"],
    ];
    const [short, long] = [body.slice(-200_000).replace(/^./, '"'), body].map((text) =>
      exchange(url, requestText("POST", "/", framing, `${text.length.toString(16)}\r\n${text}\r\n0\r\n\r\n`)),
    );
    expect(JSON.parse(String((await short)?.body))).toEqual({ characters: 200_000, peeked: 200_000 });
    expect(JSON.parse(String((await long)?.body))).toEqual({ characters: 1_000_002, peeked: null });
  });

  it("has its memory from its own service: another one in the process may have none left", async () => {
    const full = new BodyBudgets();
    for (const budget of [full.small, full.large]) {
      const place = budget.enter();
      place.take(100 * MIB);
      place.finish();
    }
    const pace = { ...BODY_RATE, waitMs: 0 };
    const [busy, idle] = [await jsonServer(pace, full), await jsonServer(pace)];
    for (const size of [10, 5 * MIB]) {
      const body = Buffer.from(JSON.stringify("x".repeat(size)));
      const statuses = [busy, idle].map(async (url) => {
        const answer = await exchange(url, Buffer.concat([announced(body.length, "caller"), body]));
        return answer?.status;
      });
      expect(await Promise.all(statuses)).toEqual([429, 200]);
    }
  });

  it("[LOAD-2] that comes too slowly is answered with 408 while its sender still sends", async () => {
    const url = await jsonServer({ ...BODY_RATE, windowMs: 100 });
    for (const size of [1000, 100 * MIB]) {
      let timer: NodeJS.Timeout | undefined;
      const answer = await converse(url, (socket) => {
        socket.write(announced(size, "slow"));
        timer = setInterval(() => socket.write(" "), 20);
        socket.once("data", () => socket.end());
      });
      clearInterval(timer);
      expect([answer?.status, JSON.parse(String(answer?.body))]).toEqual([
        408,
        { error: { type: "invalid_request_error", code: "REQUEST_TIMEOUT", message: expect.any(String) } },
      ]);
    }
  });
});
