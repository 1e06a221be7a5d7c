import { EventEmitter } from "node:events";
import { rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import fc from "fast-check";
import { describe, expect, it } from "vitest";
import { type Cli, createCli } from "../support/cli.ts";
import { type Damage, inside } from "../support/damage.ts";
import type { Answer, FakeService, Fault } from "../support/fake-service.ts";
import { fuzzRuns } from "../support/fuzz-runs.ts";

/** Requests of the batch API, as the fake service matches them. */
const LOOK = /^GET [^?]*imgbatch_\w+$/;
const ITEMS = /^GET .*\/items\?/;
const LIST = /^GET .*\/batches\?/;
const MODELS = /^GET .*\/models$/;
const CONTENT = /^GET .*\/content/;
const ZIP = /^GET .*\/download/;

const read = (answer: Answer) => JSON.parse(answer.body.toString());
/** Another body in the place of the true one. */
const text = (body: string): Fault => ({ lie: (answer) => ({ ...answer, body: Buffer.from(body) }) });
/** Other fields in the place of the true ones. */
const claim = (fields: object | ((truth: Record<string, unknown>) => object)): Fault => ({
  lie: (answer) => {
    const truth = read(answer);
    const more = typeof fields === "function" ? fields(truth) : fields;
    return { ...answer, body: Buffer.from(JSON.stringify({ ...truth, ...more })) };
  },
});

/** Pages that always have something new, one entry each. */
function endless(of: (n: number) => object): Fault {
  let n = 0;
  return claim(() => ({ data: [of(n++)], has_more: true, next_cursor: `c${n}` }));
}

const NONE: Fault = {
  status: 404,
  body: { error: { code: "BATCH_IMAGE_ITEM_NOT_FOUND", message: "None." } },
};
const item = (n: number) => ({ custom_id: `x${n}`, status: "success", image_count: 1 });

/** The one item, with this many images. */
const cat = (image_count: number) => claim({ data: [{ custom_id: "cat", status: "success", image_count }] });

async function place(): Promise<Cli> {
  const cli = await createCli();
  writeFileSync(join(cli.cwd, "p.jsonl"), `${JSON.stringify({ custom_id: "cat", prompt: "a cat" })}\n`);
  return cli;
}

interface Case {
  prepare: (fake: FakeService) => void;
  /** `ID` stands for the batch. */
  args: string[];
  ends: [code: number, error?: string];
}

const SUBMIT = ["submit", "p.jsonl", "--interval", "30ms"];
const cases: Record<string, Case> = {
  "more items than were asked for": {
    prepare: (fake) => fake.always(ITEMS, endless(item)),
    args: SUBMIT,
    ends: [7, "BAD_RESPONSE"],
  },
  "more items than the batch has": {
    prepare: (fake) => fake.always(ITEMS, endless(item)),
    args: ["items", "ID", "--all"],
    ends: [7, "BAD_RESPONSE"],
  },
  "more items than the batch has, for a download": {
    prepare: (fake) => fake.always(ITEMS, endless(item)),
    args: ["download", "ID"],
    ends: [7, "BAD_RESPONSE"],
  },
  "batches one by one, without an end": {
    prepare: (fake) =>
      fake.always(
        LIST,
        endless((n) => ({ id: `b${n}`, status: "completed" })),
      ),
    args: ["list", "--all"],
    ends: [7, "BAD_RESPONSE"],
  },
  "a thousand million images of an item, and nothing but its one": {
    prepare: (fake) => fake.always(ITEMS, cat(1e9)),
    args: SUBMIT,
    ends: [0],
  },
  "a thousand million images of an item, and none of them": {
    prepare: (fake) => {
      fake.always(ITEMS, cat(1e9));
      fake.always(ZIP, { status: 404 });
      fake.always(CONTENT, NONE);
    },
    args: SUBMIT,
    ends: [7, "BATCH_IMAGE_ITEM_NOT_FOUND"],
  },
  "less than no images of an item": {
    prepare: (fake) => fake.always(ITEMS, cat(-3)),
    args: SUBMIT,
    ends: [0],
  },
  "an id with half a character": {
    prepare: (fake) => {
      const data = [{ custom_id: "cat\ud800", status: "success" }];
      fake.always(ITEMS, claim({ data, next_cursor: "\ud800" }));
      fake.always(ZIP, { status: 404 });
    },
    args: ["download", "ID"],
    ends: [7, "BATCH_IMAGE_ITEM_NOT_FOUND"],
  },
  "a cursor with half a character": {
    prepare: (fake) => fake.always(ITEMS, claim({ has_more: true, next_cursor: "\udfff" })),
    args: ["items", "ID"],
    ends: [7, "BAD_RESPONSE"],
  },
  "a page of 300 000 items": {
    prepare: (fake) =>
      fake.always(
        ITEMS,
        text(`{"data":[${Array.from({ length: 300_000 }, (_, n) => JSON.stringify(item(n))).join(",")}]}`),
      ),
    args: ["items", "ID", "--all"],
    ends: [7, "BAD_RESPONSE"],
  },
  "an answer of nothing but brackets, as deep as it is long": {
    prepare: (fake) =>
      fake.always(LOOK, text(`{"id":"x","status":"running","deep":${"[".repeat(1e5)}${"]".repeat(1e5)}}`)),
    args: ["status", "ID"],
    ends: [7, "BAD_RESPONSE"],
  },
  "an answer of millions of empty objects": {
    prepare: (fake) => fake.always(MODELS, text(`{"data":[${"{},".repeat(8_000_000)}{}]}`)),
    args: ["models"],
    ends: [7, "BAD_RESPONSE"],
  },
  "dates and amounts beyond all counting": {
    prepare: (fake) =>
      fake.always(
        LIST,
        claim(({ data }) => ({
          data: (data as object[]).map((batch) => ({
            ...batch,
            created_at: Number.MAX_SAFE_INTEGER,
            estimated_cost: 1e308,
            actual_cost: "9".repeat(300),
            success_count: 2 ** 53 - 1,
            fail_count: "-1",
            item_count: 1e308,
          })),
        })),
      ),
    args: ["list"],
    ends: [0],
  },
  "a price below nothing, which a limit would never reach": {
    prepare: (fake) =>
      fake.always(
        MODELS,
        claim(({ data }) => ({
          data: (data as object[]).map((model) => ({ ...model, pricing: { batch_image: -1 } })),
        })),
      ),
    args: [...SUBMIT, "--new", "--max-cost", "1"],
    ends: [2, "USAGE"],
  },
  "headers without an end": {
    prepare: (fake) =>
      fake.always(LOOK, {
        handle: (request) => {
          const { socket } = request;
          socket.write("HTTP/1.1 200 OK\r\n");
          const flood = () => {
            while (socket.writable && socket.write(`x-flood: ${"y".repeat(60_000)}\r\n`));
          };
          socket.on("drain", flood).on("error", () => {});
          flood();
        },
      }),
    args: ["status", "ID"],
    ends: [7, "NETWORK"],
  },
  "a Retry-After of a thousand million seconds": {
    prepare: (fake) => fake.always(LOOK, { status: 503, headers: { "retry-after": "1000000000" } }),
    args: ["status", "ID"],
    ends: [7, "HTTP_503"],
  },
};

/** Makes the batch before the service turns hostile. */
async function submitted(cli: Cli): Promise<string> {
  const { json } = await cli.here(["submit", "p.jsonl", "--detach", "--json"]);
  const [batch] = json().batches as { id: string }[];
  return batch?.id ?? "";
}

describe("a service that answers with", () => {
  it.each(Object.entries(cases))(
    "%s: the command comes to its end, and never with an error of its own",
    async (_, { prepare, args, ends }) => {
      const cli = await place();
      const id = await submitted(cli);
      prepare(cli.fake);
      const result = await cli.here([...args.map((arg) => (arg === "ID" ? id : arg)), "--json"]);
      const { error } = result.json();
      expect({ ends: [result.code, error?.code], stderr: result.stderr }).toMatchObject({
        ends: [ends[0], ends[1]],
      });
    },
  );
});

const READERS = [
  ["status", "ID"],
  ["items", "ID", "--all"],
  ["list"],
  ["models"],
  ["download", "ID"],
  ["download", "ID", "--zip"],
  ["wait", "ID", "--timeout", "300ms"],
  [...SUBMIT, "--timeout", "300ms"],
];

it("whatever stands in an answer of JSON, the command ends without an error of its own", async () => {
  const cli = await place();
  const id = await submitted(cli);
  let damaged: { request: RegExp; damage: Damage } | null = null;
  for (const request of [LOOK, ITEMS, LIST, MODELS])
    cli.fake.always(request, {
      lie: (answer) =>
        damaged?.request === request
          ? { ...answer, body: Buffer.from(damaged.damage(answer.body.toString())) }
          : answer,
    });
  const requests = fc.constantFrom(LOOK, ITEMS, LIST, MODELS);
  await fc.assert(
    fc.asyncProperty(requests, inside(false), fc.constantFrom(...READERS), async (request, damage, args) => {
      damaged = { request, damage };
      const { code, stderr } = await cli.here(args.map((arg) => (arg === "ID" ? id : arg)));
      expect(code, stderr).not.toBe(1);
      for (const name of [id, "p-images"]) rmSync(join(cli.cwd, name), { recursive: true, force: true });
      rmSync(join(cli.cwd, `${id}.zip`), { force: true });
    }),
    { numRuns: fuzzRuns(150) },
  );
}, 120_000);

/** A command in the middle of what a service makes endless, the request that it is at, and how it is stopped there. */
const stops: Record<string, { prepare: (fake: FakeService) => void; args: string[]; at: [RegExp, number] }> =
  {
    "a list of items": {
      prepare: (fake) => {
        fake.always(LOOK, claim({ item_count: 50_000 }));
        fake.always(ITEMS, endless(item));
      },
      args: ["items", "ID"],
      at: [ITEMS, 3],
    },
    "a list of batches": {
      prepare: (fake) =>
        fake.always(
          LIST,
          endless((n) => ({ id: `b${n}`, status: "completed" })),
        ),
      args: ["list", "--all"],
      at: [LIST, 3],
    },
    "the images of an item, of which the first was not there": {
      prepare: (fake) => {
        fake.always(ITEMS, cat(9));
        fake.always(ZIP, { status: 404 });
        fake.always(/image_index=0/, NONE);
        fake.always(CONTENT, { silent: true });
      },
      args: ["download", "ID"],
      at: [CONTENT, 2],
    },
    "items of which none has its image": {
      prepare: (fake) => {
        fake.always(ITEMS, claim({ data: Array.from({ length: 50_000 }, (_, n) => item(n)) }));
        fake.always(ZIP, { status: 404 });
        fake.always(CONTENT, NONE);
      },
      args: ["download", "ID"],
      at: [CONTENT, 3],
    },
    "a ZIP that comes a byte at a time": {
      prepare: (fake) =>
        fake.always(ZIP, {
          handle: (_, response) => {
            response.write("P");
            const timer = setInterval(() => response.write("K"), 20);
            response.on("close", () => clearInterval(timer));
          },
        }),
      args: ["download", "ID"],
      at: [ZIP, 1],
    },
    "a pause as long as the service likes": {
      prepare: (fake) => fake.always(LOOK, { status: 503, headers: { "retry-after": "100" } }),
      args: ["wait", "ID"],
      at: [LOOK, 1],
    },
  };

describe("in the middle of", () => {
  it.each(Object.entries(stops))(
    "%s a signal ends the command",
    async (_, { prepare, args, at: [request, count] }) => {
      const cli = await place();
      const id = await submitted(cli);
      prepare(cli.fake);
      const before = cli.fake.count(request);
      const signals = new EventEmitter();
      const ended = cli.here([...args.map((arg) => (arg === "ID" ? id : arg)), "--json"], { signals });
      await expect.poll(() => cli.fake.count(request) - before).toBeGreaterThanOrEqual(count);
      signals.emit("SIGTERM", "SIGTERM");
      const { code, json } = await ended;
      expect([code, json().error?.code]).toEqual([143, "TERMINATED"]);
    },
  );

  it("images that are not there the time of --timeout ends the command", async () => {
    const cli = await place();
    await submitted(cli);
    cli.fake.always(ITEMS, cat(9));
    cli.fake.always(ZIP, { status: 404 });
    cli.fake.fault(/image_index=0/, NONE);
    cli.fake.always(CONTENT, { silent: true });
    const { code, json } = await cli.here([...SUBMIT, "--timeout", "900ms", "--json"]);
    expect([code, json().error?.code]).toEqual([124, "TIMEOUT"]);
  });
});
