import type { Request, RequestHandler, Response } from "express";
import { describe, expect, it } from "vitest";
import { sniffImageType } from "../../src/contract/image-formats.ts";
import { customIdProblem, referenceLimitByName } from "../../src/contract/limits.ts";
import { nameImages } from "../../src/domain/downloads/zip.ts";
import { fileIdOf } from "../../src/domain/files/uploads.ts";
import type { OutputRecord } from "../../src/domain/records.ts";
import { parseDuration } from "../../src/kernel/durations.ts";
import { hideApiKeys, hideUsedKeys, holdsApiKey, watchKey } from "../../src/kernel/hide-keys.ts";
import {
  escapeControls,
  foldFileName,
  hasUnstorableText,
  isLongerThan,
  safeFileName,
  truncateCodePoints,
} from "../../src/kernel/text.ts";
import { checkRequest } from "../../src/server/batch-api/create.ts";
import { refuseKeyInUrl } from "../../src/server/http/authenticate.ts";
import { readTarget, requireKnownHost } from "../../src/server/http/host.ts";
import { readQuery } from "../../src/server/http/parameters.ts";
import { MODEL } from "../support/service.ts";

const LENGTH = 30_000;
/** Of computing, for one text. */
const MOST_MS = 100;
/** Texts that make patterns go back again and again: long repeated runs, and an end that does not fit. */
const RUNS = [
  "a",
  " ",
  ".",
  "..",
  ". ",
  "/",
  "\\",
  "-",
  "_",
  "0",
  "9:",
  "00:",
  "=",
  "A=",
  "%2e",
  "../",
  "imgb_",
  "aA0-_",
  "1h",
  "\0",
  "\n",
  "\ud800",
  "é",
  "e\u0301",
  "狐",
  "İ",
  "ß",
];
const ENDS = ["", "!", "\0", " ", "\n", "x", ".", "/"];
const TEXTS = RUNS.flatMap((run) =>
  ENDS.map((end) => run.repeat(Math.ceil(LENGTH / run.length)).slice(0, LENGTH) + end),
);

const asQuery = (value: string) => ({ query: { from: value, limit: value } }) as unknown as Request;
const pass = (handler: RequestHandler, request: object) =>
  refused(() => handler(request as Request, {} as Response, () => {}));
const refuseKey = (originalUrl: string) => pass(refuseKeyInUrl, { originalUrl });
const readAs = (url: string, key: string | undefined) =>
  pass(readTarget({ keyHeaders: ["x-key"] }), { url, method: "POST", get: () => key });
const request = (fields: object) => ({ model: MODEL, items: [{ prompt: "a", ...fields }] });
const rules = {
  limits: {
    itemsPerBatch: 9,
    promptChars: 10,
    outputCountPerItem: 1,
    outputImagesPerBatch: 9,
    referenceImageBytes: 1e6,
    referenceImagesPerBatch: 9,
    referenceBytesPerBatch: 1e6,
  },
  models: [],
  group: {},
  inspector: {},
} as unknown as Parameters<typeof checkRequest>[1];
const reference = (fields: object) => request({ reference_images: [{ mime_type: "image/png", ...fields }] });

/** Every check that text from outside meets, with what it is about. */
const CHECKS: Record<string, (text: string) => unknown> = {
  "custom id": customIdProblem,
  "model name": referenceLimitByName,
  "storable text": hasUnstorableText,
  "text for a log": escapeControls,
  "name of a file": safeFileName,
  "names of a ZIP": (text) => {
    const items = [1, 2, 3].map((id) => ({ id, customId: text.slice(0, 9000) }));
    const image = { imageIndex: 0, mimeType: "image/png", entryName: null };
    return nameImages(items, items.map(({ id }) => ({ ...image, itemId: id })) as unknown as OutputRecord[]);
  },
  "folded name": foldFileName,
  "length of a text": (text) => isLongerThan(text, LENGTH - 1),
  "cut text": (text) => truncateCodePoints(text, LENGTH - 1, "…"),
  "key in a text": holdsApiKey,
  "text without keys": hideApiKeys,
  "text without the keys that are sent": (text) => {
    for (const run of ["a", "A=", "imgb_"]) watchKey(`${run.repeat(20)}+`);
    return hideUsedKeys(text);
  },
  duration: parseDuration,
  "first bytes of an image": (text) => sniffImageType(Buffer.from(text)),
  "host of a request": (text) =>
    pass(requireKnownHost({ host: "localhost", publicUrl: null }), {
      headersDistinct: { host: [text] },
      get: () => text,
      socket: {},
    }),
  "names in a query": (text) => [refuseKey(`/?${text}`), refuseKey(`/?a=${text}`)],
  "URL of a native request": (text) => [readAs(`/v1/models/${text}`, undefined), readAs(text, "key")],
  "URI of a file": (text) => [fileIdOf(text), fileIdOf(`/files/${text}`)],
  "time in a query": (text) => refused(() => readQuery(asQuery(text), "From")),
  "number in a query": (text) => refused(() => readQuery(asQuery(text), "BatchLimit")),
  "prompt of a request": (text) => checkRequest(request({ prompt: text }), rules).catch(() => null),
  "metadata of a request": (text) =>
    checkRequest({ ...request({}), metadata: { [text]: text } }, rules).catch(() => null),
  "task name of a request": (text) =>
    checkRequest({ ...request({}), task_name: text }, rules).catch(() => null),
  "Base64 of a request": (text) => checkRequest(reference({ data: text }), rules).catch(() => null),
};

describe("patterns", () => {
  // Work that doubles with each character would never end; the bound only has to tell that from work that grows evenly.
  it.each(Object.keys(CHECKS))("%s: none of the texts that are hardest to match takes long", async (name) => {
    let slowest = { ms: 0, text: "" };
    for (const text of TEXTS) {
      const check = () => computingMs(() => CHECKS[name]?.(text));
      let ms = await check();
      // Garbage may have been collected meanwhile.
      if (ms >= MOST_MS) ms = Math.min(ms, await check());
      if (ms > slowest.ms) slowest = { ms, text: `${text.slice(0, 5)}…${text.slice(-2)}` };
    }
    expect(slowest.ms, JSON.stringify(slowest.text)).toBeLessThan(MOST_MS);
  });
});

async function computingMs(work: () => unknown): Promise<number> {
  const begin = process.cpuUsage();
  await work();
  return process.cpuUsage(begin).user / 1000;
}

function refused(check: () => unknown): unknown {
  try {
    return check();
  } catch {
    return null;
  }
}
