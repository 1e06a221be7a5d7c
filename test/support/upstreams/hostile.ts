import { resetConnection } from "../listen.ts";
import type { Answer, Behaviour, Exchange, Twist } from "./fake-upstream.ts";

/** Things that upstreams do to their callers. Each works with every fake; `setBehaviour` takes it. */

/** This answer, and nothing is made. */
export function answers(answer: Answer): Behaviour {
  return async (exchange) => {
    await exchange.read();
    exchange.send(answer);
  };
}

/** A bare status with a body in no known form. */
export function status(code: number, body = "", headers: Record<string, string> = {}): Behaviour {
  return answers({ status: code, body, headers: { "content-type": "text/plain", ...headers } });
}

const PAGE =
  "<!doctype html><html><head><title>One moment</title></head><body><h1>Checking</h1></body></html>";

/** The page of a proxy or a captive portal. */
export function html(code: number): Behaviour {
  return status(code, PAGE, { "content-type": "text/html; charset=utf-8" });
}

/** Does the work, and answers otherwise. */
export function answersAfter(answer: Answer): Behaviour {
  return async (exchange) => {
    await exchange.make();
    exchange.send(answer);
  };
}

/** A good answer with a difference. */
export function answering(twist: Twist): Behaviour {
  return async (exchange) => exchange.send(await exchange.make(twist));
}

/** A good answer after `ms`; with `made` the images are on the bill at once. */
export function late(ms: number, { made = false } = {}): Behaviour {
  return async (exchange) => {
    const early = made ? await exchange.make() : await exchange.read();
    await exchange.pause(ms);
    exchange.send(early ?? (await exchange.make()));
  };
}

/** Reads the request, and never answers. */
export const hang: Behaviour = (exchange) => exchange.read();

/** Breaks the connection before it reads the body. */
export const resetBefore: Behaviour = (exchange) => breakOff(exchange);

/** Reads the request and breaks the connection; with `made` after the work was done. */
export function resetAfter({ made }: { made: boolean }): Behaviour {
  return async (exchange) => {
    await (made ? exchange.make() : exchange.read());
    breakOff(exchange);
  };
}

/**
 * Breaks the connection after this many bytes of a good answer's body; without a number in its middle. `hangs`: it stays
 * open, and nothing more comes.
 */
export function cutAt(bytes?: number, { hangs = false } = {}): Behaviour {
  return async (exchange) => {
    const { status: code, body, headers } = await exchange.make();
    const whole = Buffer.from(body);
    const type = { "content-type": "application/json", "content-length": whole.length };
    exchange.response.writeHead(code, { ...type, ...headers });
    const part = whole.subarray(0, bytes ?? whole.length >> 1);
    exchange.response.write(part, () => hangs || breakOff(exchange));
  };
}

/** Breaks the connection in the middle of a good answer. */
export const resetMidway: Behaviour = cutAt();

/** A whole answer of HTTP that is half a JSON document. */
export const halfJson: Behaviour = async (exchange) => {
  const answer = await exchange.make();
  exchange.send({ ...answer, body: Buffer.from(answer.body).subarray(0, answer.body.length >> 1) });
};

/** A good beginning, and then spaces without an end: some megabytes a second. */
export const endless: Behaviour = async ({ response, make, pause }) => {
  await make();
  response.writeHead(200, { "content-type": "application/json" });
  const chunk = Buffer.alloc(65_536, " ");
  while (!response.destroyed) {
    response.write(chunk);
    await pause(20);
  }
};

/** A good answer, a byte at a time. */
export function slow(msPerByte = 1000): Behaviour {
  return async ({ response, make, pause }) => {
    const { body, status: code } = await make();
    response.writeHead(code, { "content-type": "application/json", "content-length": body.length });
    for (const byte of Buffer.from(body)) {
      response.write(Buffer.of(byte));
      await pause(msPerByte);
    }
    response.end();
  };
}

/** A good answer whose `Content-Length` is wrong by `bytes`: above 0 it promises more than comes. */
export function liesAboutLength(bytes: number): Behaviour {
  return async ({ response, make }) => {
    const { body } = await make();
    const head = `HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: ${body.length + bytes}\r\n\r\n`;
    response.socket?.end(Buffer.concat([Buffer.from(head), Buffer.from(body)]));
  };
}

/** Sends the caller elsewhere. */
export function redirect(to: string, code = 302): Behaviour {
  return status(code, "", { location: to });
}

/** Repeats every credential of the request in the body and in the headers of an error. */
export function echo(code: number, bodyOf: (credentials: string) => string = echoBody): Behaviour {
  return async (exchange) => {
    await exchange.read();
    const credentials = credentialsOf(exchange);
    const headers = {
      "x-request-id": credentials.replace(/[^\x21-\x7e]/g, "_"),
      "www-authenticate": "Basic",
    };
    exchange.send({ status: code, body: bodyOf(credentials), headers });
  };
}

/** The values of the headers that carry a credential: whole, and without the word before it. */
export function credentialsOf({ request }: Exchange): string {
  const named = Object.entries(request.headers).filter(([name]) => /auth|key|token|secret/i.test(name));
  return named.map(([, value]) => `${value} ${String(value).split(" ").at(-1)}`).join(" ");
}

function echoBody(credentials: string): string {
  const message = `Incorrect key provided: ${credentials}. You can find yours in your account.`;
  return JSON.stringify({ error: { code: credentials, status: credentials, type: credentials, message } });
}

const well: Behaviour = async (exchange) => exchange.send(await exchange.make());

/** The first `count` requests go this way, later ones well. */
export function first(count: number, behaviour: Behaviour, then: Behaviour = well): Behaviour {
  let seen = 0;
  return (exchange) => (seen++ < count ? behaviour : then)(exchange);
}

/** This way for `ms` from the first request on, then well. */
export function outage(ms: number, behaviour: Behaviour): Behaviour {
  let end: number | null = null;
  return (exchange) => {
    end ??= Date.now() + ms;
    return (Date.now() < end ? behaviour : well)(exchange);
  };
}

function breakOff({ response }: Exchange): void {
  if (response.socket) resetConnection(response.socket);
}
