// A process that attacks a service until its parent ends it: `attacker.mjs URL KEY KIND [NAME]`. Reports counts of
// what came back as one JSON line when it is told to stop (any line on stdin).
import { connect } from "node:net";
import { BODIES, prepareBodies } from "./bodies.mjs";

const [url, key, kind, name = "", path = "/v1/images/batches"] = process.argv.slice(2);
const { port } = new URL(url);
const answers = {};
const count = (what) => {
  answers[what] = (answers[what] ?? 0) + 1;
};
const head = (method, target, ...more) =>
  [`${method} ${target} HTTP/1.1`, "Host: localhost", `Authorization: Bearer ${key}`, ...more, "", ""].join(
    "\r\n",
  );

/** One exchange on a connection of its own; `send` writes the request. Counts the status, or how it broke. */
function exchange(send, { read = true } = {}) {
  return new Promise((resolve) => {
    const socket = connect(Number(port), "127.0.0.1");
    let status = null;
    socket.once("connect", () => send(socket));
    socket.on("error", () => {});
    socket.on("data", (data) => {
      status ??= /^HTTP\/1\.1 (\d+)/.exec(String(data.subarray(0, 20)))?.[1] ?? "junk";
      if (read) socket.end();
      else socket.pause();
    });
    socket.once("close", () => {
      count(status ?? "no answer");
      resolve();
    });
  });
}

const pause = (ms) => new Promise((done) => setTimeout(done, ms));
const drip = async (socket, text, everyMs) => {
  while (!socket.destroyed) {
    socket.write(text);
    await pause(everyMs);
  }
};
const forever = async (lanes, work) => {
  await Promise.all(
    Array.from({ length: lanes }, async () => {
      for (;;) await work();
    }),
  );
};

const KINDS = {
  async body() {
    if (/reference|Base64|cut/.test(name)) await prepareBodies();
    const text = Buffer.from(BODIES[name]());
    const type = "Content-Type: application/json";
    process.stdout.write("ready\n");
    await forever(2, async () => {
      await exchange((s) => {
        s.write(head("POST", path, type, `Content-Length: ${text.length}`));
        s.write(text);
      });
      await pause(100);
    });
  },
  async "wrong place"() {
    const text = Buffer.alloc(100e6, 32);
    process.stdout.write("ready\n");
    const [method, target] = name.split(" ");
    await forever(2, async () => {
      await exchange((s) => {
        s.write(head(method, target, `Content-Length: ${text.length}`));
        s.write(text);
      });
      await pause(100);
    });
  },
  async endless() {
    const piece = Buffer.alloc(1024 * 1024, 32);
    process.stdout.write("ready\n");
    await forever(2, () =>
      exchange(async (s) => {
        s.write(head("POST", path, "Transfer-Encoding: chunked"));
        while (!s.destroyed) {
          s.write("100000\r\n");
          s.write(piece);
          s.write("\r\n");
          while (s.writableLength > piece.length && !s.destroyed) await pause(1);
        }
      }),
    );
  },
  async "slow headers"() {
    process.stdout.write("ready\n");
    await forever(50, () =>
      exchange((s) => {
        s.write(`GET ${path} HTTP/1.1\r\nHost: localhost\r\n`);
        void drip(s, "X-a: b\r\n", 500);
      }),
    );
  },
  async "slow body"() {
    process.stdout.write("ready\n");
    await forever(50, () =>
      exchange((s) => {
        s.write(head("POST", path, "Content-Length: 100000000"));
        void drip(s, " ", 500);
      }),
    );
  },
  async "slow reader"() {
    process.stdout.write("ready\n");
    await forever(50, async () => {
      await exchange((s) => s.write(head("GET", path)), { read: false });
      await pause(200);
    });
  },
};

process.stdin.once("data", () => {
  process.stdout.write(`${JSON.stringify(answers)}\n`, () => process.exit(0));
});
await KINDS[kind]();
