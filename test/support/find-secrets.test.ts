import { randomBytes } from "node:crypto";
import { mkdir, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { buffer } from "node:stream/consumers";
import fc from "fast-check";
import { describe, expect, it } from "vitest";
import { ZipFile } from "yazl";
import { randomIds, sha256Hex } from "../../src/kernel/ids.ts";
import { findSecrets, findSecretsInFile } from "./find-secrets.ts";
import { takeFindings, watchDirectory, watchText } from "./secrets.ts";
import { tempDir } from "./temp-dir.ts";

const FORMS: [form: string, write: (text: string) => Buffer][] = [
  ["plain", (text) => Buffer.from(text)],
  ["utf-16", (text) => Buffer.from(text, "utf16le")],
  ["utf-16", (text) => Buffer.from(text, "utf16le").swap16()],
  ["hex", (text) => Buffer.from(Buffer.from(text).toString("hex"))],
  ["hex", (text) => Buffer.from(Buffer.from(text).toString("hex").toUpperCase())],
  ["base64", (text) => Buffer.from(Buffer.from(text).toString("base64"))],
  ["base64", (text) => Buffer.from(Buffer.from(text).toString("base64url"))],
  ["percent-encoded", (text) => Buffer.from(percent(text))],
  ["percent-encoded", (text) => Buffer.from(percent(text).toLowerCase())],
];

describe("the search for secrets", () => {
  it.each(FORMS)("finds any API key that stands somewhere as %s", (form, write) => {
    fc.assert(
      fc.property(fc.string(), fc.string(), (before, after) => {
        const key = randomIds.apiKey();
        const bytes = Buffer.concat([randomBytes(9), write(`${before} ${key} ${after}`), randomBytes(9)]);
        expect(findSecrets(bytes).map((found) => found.form)).toContain(form);
      }),
      { numRuns: 60 },
    );
  });

  it("finds a key of which only the underscore is encoded, and one in JSON escapes", () => {
    const key = randomIds.apiKey();
    expect(findSecrets(Buffer.from(`GET /v1/${key.replace("_", "%5F")} `))).toMatchObject([{ offset: 8 }]);
    const escaped = [...key].map((c) => `\\u${c.charCodeAt(0).toString(16).padStart(4, "0")}`).join("");
    expect(findSecrets(Buffer.from(`"${escaped}"`))).toEqual([{ form: "json escapes", offset: 1 }]);
  });

  it.each(FORMS.filter(([form]) => form !== "utf-16"))(
    "finds a secret of any other shape that stands somewhere as %s",
    (form, write) => {
      const secret = "sk-upstream/canary+42";
      for (const before of ["", "a", "ab", "abc"]) {
        const found = findSecrets(write(`${before}${secret}zz`), [secret]);
        expect(found.map((each) => each.form)).toContain(form);
      }
    },
  );

  it("finds a secret of any other shape of which some characters are escaped", () => {
    const secret = "sk-upstream/canary+42";
    const json = secret.replace("/", "\\/").replace("+", "\\u002b");
    const forms = [json, JSON.stringify(`"${json}"`), secret.replace("/", "&#47;").replace("-", "&#x2d;")];
    for (const text of [...forms, encodeURIComponent(secret).replace("-", "%2d")])
      expect(findSecrets(Buffer.from(`a ${text} b`), [secret])).toMatchObject([{ form: "escaped" }]);
    expect(findSecrets(Buffer.from(`a ${json.slice(1)} b`), [secret])).toEqual([]);
  });

  it("does not take for a key what only begins like one", () => {
    const key = randomIds.apiKey();
    const harmless = [
      key.slice(0, 12),
      `${key.slice(0, 12)}…`,
      sha256Hex(key),
      randomIds.batchId(),
      "imgb_x",
    ];
    const text = harmless.flatMap((each) => FORMS.map(([, write]) => write(`(${each})`)));
    expect(findSecrets(Buffer.concat([...text, randomBytes(100_000)]))).toEqual([]);
  });

  it("looks into files, ZIPs and what is said, and tells where, never what", async () => {
    const directory = await tempDir();
    const key = randomIds.apiKey();
    const zip = new ZipFile();
    zip.addBuffer(Buffer.from(`the key is ${key}`), "notes.txt", { compress: true });
    zip.end();
    await mkdir(join(directory, "deep"));
    const bytes = await buffer(zip.outputStream);
    expect(await findSecretsInFile(bytes)).toEqual([{ form: "plain, in notes.txt", offset: 11 }]);
    await writeFile(join(directory, "deep", "a.zip"), bytes);
    await writeFile(join(directory, "imgbatch.db-wal"), Buffer.concat([randomBytes(500), Buffer.from(key)]));
    await writeFile(join(directory, "credentials.json"), JSON.stringify({ api_key: key }));
    await watchDirectory(directory);
    watchText(`{"request_id":"${key}"}`, "a log line");
    const findings = takeFindings();
    expect(findings.map((finding) => finding.split(";")[0]).sort()).toEqual([
      "a log line, byte 15: a secret (plain)",
      "the file deep/a.zip, byte 11: a secret (plain, in notes.txt)",
      "the file imgbatch.db-wal, byte 500: a secret (plain)",
    ]);
    expect(findings.join()).not.toContain(key);
    await writeFile(join(directory, "deep", "a.zip"), "");
    await writeFile(join(directory, "imgbatch.db-wal"), "");
  });
});

function percent(text: string): string {
  return [...Buffer.from(text)]
    .map((byte) => `%${byte.toString(16).toUpperCase().padStart(2, "0")}`)
    .join("");
}
