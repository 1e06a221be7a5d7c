import { readdirSync, readFileSync, statSync, writeFileSync } from "node:fs";
import { createServer } from "node:http";
import { join } from "node:path";
import { gzipSync } from "node:zlib";
import { describe, expect, it } from "vitest";
import { type Cli, createCli } from "../support/cli.ts";
import {
  type Answer,
  FAKE_KEY,
  type FakeOptions,
  type FakeService,
  packZip,
  png,
} from "../support/fake-service.ts";
import { listening } from "../support/listening.ts";

const LOOK = /^GET [^?]*imgbatch_\w+$/;
const ITEMS = /^GET .*\/items\?/;
const ZIP = /^GET .*\/download/;

/** Puts the fields into an answer of JSON. */
const claim =
  (fields: object) =>
  (answer: Answer): Answer => ({
    ...answer,
    body: Buffer.from(JSON.stringify({ ...read(answer), ...fields })),
  });
const read = (answer: Answer) => JSON.parse(answer.body.toString());
const instead = (body: string) => (answer: Answer) => ({ ...answer, body: Buffer.from(body) });
const busy = (status: number) => ({ status, headers: { "retry-after": "0" }, body: "" });

interface Case {
  prepare: (fake: FakeService) => void;
  options?: FakeOptions;
  args?: string[];
  /** The exit code and, when it is not 0, the error of the document. */
  ends: [code: number, error?: string];
  /** How the same command ends afterwards; default: it is not run again. */
  again?: number;
}

const cases: Record<string, Case> = {
  "web pages instead of JSON": {
    prepare: (fake) => fake.fault(/models/, { status: 200, body: "<html>Welcome to the hotel</html>" }),
    ends: [7, "BAD_RESPONSE"],
  },
  "JSON without an end": {
    prepare: (fake) =>
      fake.fault(LOOK, {
        handle: (_, response) => {
          response.on("drain", () => response.write("[".repeat(1_000_000)));
          response.write("[".repeat(1_000_000));
        },
      }),
    ends: [7, "BAD_RESPONSE"],
  },
  "refusals for load without a pause, and nothing else": {
    prepare: (fake) => fake.fault(/^POST/, busy(429), busy(429), busy(429), busy(429)),
    ends: [7, "RATE_LIMITED"],
  },
  "broken headers, broken bodies and refusals for load, now and then": {
    prepare: (fake) => {
      const broken = {
        handle: (request: { socket: NodeJS.WritableStream & { destroy(): void } }) => {
          request.socket.write("HTTP/1.1 200 OK\r\nContent-Le", () => request.socket.destroy());
        },
      };
      fake.fault(/^POST/, busy(503), { reset: "after" }, busy(429));
      fake.fault(LOOK, broken as never, { cutAt: 20 }, busy(502), { status: 504, body: "<html>" });
      fake.fault(ITEMS, { cutAt: 10 });
      fake.fault(ZIP, { cutAt: 60 }, { status: 429, headers: { "retry-after": "0" } });
    },
    ends: [0],
  },
  "garbage as the answer of a create": {
    prepare: (fake) => fake.fault(/^POST/, { lie: instead("\u0000\u0001 not JSON") }),
    ends: [7, "SUBMISSION_UNKNOWN"],
  },
  "a created batch without an id": {
    prepare: (fake) => fake.fault(/^POST/, { lie: claim({ id: null }) }),
    ends: [7, "SUBMISSION_UNKNOWN"],
    again: 0,
  },
  "another batch than the one asked for": {
    prepare: (fake) => fake.fault(LOOK, { lie: claim({ id: "imgbatch_of_somebody_else" }) }),
    ends: [7, "BAD_RESPONSE"],
  },
  "the images of somebody else": {
    prepare: (fake) =>
      fake.fault(ITEMS, {
        lie: claim({ data: ["x", "y"].map((custom_id) => ({ custom_id, status: "failed" })) }),
      }),
    ends: [7, "BAD_RESPONSE"],
  },
  "a list that repeats its page for ever": {
    prepare: (fake) => fake.always(ITEMS, { lie: claim({ has_more: true, next_cursor: "again" }) }),
    ends: [7, "BAD_RESPONSE"],
  },
  "an end with items that have none": {
    prepare: (fake) => {
      const pending = (answer: Answer) => claim({ data: read(answer).data.map(waiting) })(answer);
      fake.fault(ITEMS, { lie: pending });
    },
    ends: [7, "BATCH_IMAGE_NOT_READY"],
    again: 0,
  },
  "counts that do not add up": {
    prepare: (fake) =>
      fake.always(LOOK, { lie: claim({ success_count: 99, fail_count: -3, item_count: 1 }) }),
    ends: [0],
  },
  "an end that it takes back": {
    prepare: (fake) => {
      fake.fault(ZIP, busy(409));
      fake.options.statuses = ["completed", "running", "settling", "completed"];
    },
    ends: [7, "BATCH_IMAGE_NOT_READY"],
    again: 0,
  },
  "half a ZIP as if it were whole": {
    prepare: (fake) =>
      fake.fault(ZIP, { lie: (answer) => ({ ...answer, body: answer.body.subarray(0, 150) }) }),
    ends: [0],
    again: 0,
  },
  "half a ZIP and half an image as if they were whole": {
    prepare: (fake) => {
      const half = (answer: Answer) => ({ ...answer, body: answer.body.subarray(0, answer.body.length / 2) });
      fake.fault(ZIP, { lie: half });
      fake.fault(/content/, { lie: half });
    },
    ends: [9, "VERIFY_FAILED"],
    again: 0,
  },
  "a ZIP that wants to write elsewhere": {
    prepare: () => {},
    options: { tamper: (files) => [...files, { name: "../../escaped.png", data: png("evil") }] },
    ends: [0],
  },
  "everything packed, as if it were web pages": {
    prepare: (fake) =>
      fake.always(/./, {
        lie: ({ status, body, headers }) => ({
          status,
          body: gzipSync(body),
          headers: { ...headers, "content-type": "text/html", "content-encoding": "gzip" },
        }),
      }),
    ends: [0],
  },
  "a drop at a time, until the time is up": {
    prepare: (fake) =>
      fake.always(LOOK, {
        handle: (_, response) => {
          const timer = setInterval(() => response.write(" "), 20);
          response.on("close", () => clearInterval(timer));
        },
      }),
    args: ["--timeout", "1s"],
    ends: [124, "TIMEOUT"],
  },
  "the key itself, in an error and in data": {
    prepare: (fake) => {
      fake.always(LOOK, { lie: claim({ note: FAKE_KEY }) });
      const message = `No images for ${FAKE_KEY}`;
      fake.fault(ITEMS, { status: 403, headers: { "x-request-id": FAKE_KEY }, body: { error: { message } } });
    },
    ends: [3, "BATCH_IMAGE_GROUP_DISABLED"],
  },
};

const waiting = ({ custom_id }: { custom_id: string }) => ({ custom_id, status: "pending" });

async function place(options: FakeOptions = {}): Promise<Cli> {
  const cli = await createCli(options);
  const lines = [
    { custom_id: "cat", prompt: "a cat" },
    { custom_id: "dog", prompt: "a dog" },
  ];
  writeFileSync(join(cli.cwd, "p.jsonl"), lines.map((line) => JSON.stringify(line)).join("\n"));
  return cli;
}

/** Nothing of the run lies outside its directory, nothing half-written in it, and the key is in no file. */
function requireClean(cli: Cli): void {
  expect(readdirSync(cli.cwd).sort()).toEqual(
    ["p-images", "p.jsonl"].filter((name) => readdirSync(cli.cwd).includes(name)),
  );
  for (const name of readdirSync(cli.cwd, { recursive: true, encoding: "utf8" })) {
    expect(name).not.toMatch(/\.part|\.partial|\.zip/);
    const path = join(cli.cwd, name);
    if (statSync(path).isFile()) expect(readFileSync(path).includes(FAKE_KEY)).toBe(false);
  }
}

describe("a service that answers", () => {
  for (const [what, { prepare, options, args = [], ends, again }] of Object.entries(cases)) {
    it(`${what}: the right exit code, one document, nothing half-written, and no second batch`, async () => {
      const cli = await place(options);
      prepare(cli.fake);
      const command = ["submit", "p.jsonl", "--json", "--interval", "30ms", ...args];
      const { code, stdout, stderr, json } = await cli.here(command);
      expect({ ends: [code, json().error?.code], stderr }).toMatchObject({ ends: [ends[0], ends[1]] });
      expect(json().exit_code).toBe(code);
      expect(stdout + stderr).not.toContain(FAKE_KEY);
      requireClean(cli);
      if (again === undefined) return;
      expect((await cli.here(command)).code).toBe(again);
      expect(cli.fake.batches.length).toBeLessThanOrEqual(1);
      requireClean(cli);
    });
  }

  it("with the way to another host: files may come from there, without the key; its word is not taken", async () => {
    const seen: (string | undefined)[] = [];
    const zip = await packZip([
      { name: "cat.png", data: png("cat") },
      { name: "dog.png", data: png("dog") },
    ]);
    const other = createServer((request, response) => {
      seen.push(request.headers.authorization);
      response.end(zip);
    });
    const location = `${(await listening(other)).replace("127.0.0.1", "localhost")}/elsewhere`;
    const cli = await place();
    const away = { status: 307, headers: { location } };
    cli.fake.fault(ITEMS, away);
    cli.fake.fault(ZIP, away);
    const first = await cli.here(["submit", "p.jsonl", "--json"]);
    expect([first.code, first.json().error?.code]).toEqual([7, "BAD_RESPONSE"]);
    expect((await cli.here(["submit", "p.jsonl", "--json"])).code).toBe(0);
    expect(seen).toEqual([undefined]);
    requireClean(cli);
  });
});
