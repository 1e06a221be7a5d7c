import fc from "fast-check";
import { expect, it } from "vitest";
import { readForm } from "../../../../src/server/native-api/uploads.ts";

/** Reads a body that comes in these pieces. */
async function read(pieces: readonly Buffer[]) {
  const stored: Buffer[] = [];
  const add = async (bytes: Buffer) => {
    stored.push(Buffer.from(bytes));
  };
  const form = readForm("b", { add });
  for (const piece of pieces) await form.add(piece);
  return { ...(await form.end()), bytes: Buffer.concat(stored).toString("latin1") };
}

function cut(body: Buffer, at: readonly number[]): Buffer[] {
  const places = [...new Set([0, ...at.map((n) => n % body.length), body.length])].sort((a, b) => a - b);
  return places.slice(1).map((end, i) => body.subarray(places[i], end));
}

const METADATA = "--b\r\nContent-Type: application/json\r\n\r\n{}\r\n";
const bodyOf = (file: string) =>
  Buffer.from(`${METADATA}--b\r\nContent-Type: text/plain\r\n\r\n${file}\r\n--b--\r\nrest`, "latin1");
const texts = fc.array(fc.constantFrom("red", "\r\n", "--", "--b", "\r", "fox", "\0"), { maxLength: 30 });
const cuts = fc.array(fc.nat(500), { maxLength: 8 });

it("the same bytes are read however the body comes in pieces", async () => {
  await fc.assert(
    fc.asyncProperty(texts, cuts, async (words, at) => {
      // No line of a part may begin with the boundary (RFC 2046, section 5.1.1).
      const file = words.join("").replaceAll(/(^|\r\n)--b/g, "$1-b");
      expect(await read(cut(bodyOf(file), at))).toMatchObject({
        metadata: "{}",
        fileType: "text/plain",
        bytes: file,
      });
    }),
    { numRuns: 200 },
  );
});

it("a body that breaks off anywhere is refused", async () => {
  const body = bodyOf("red fox");
  const whole = body.indexOf("--b--") + "--b--".length;
  for (let length = 0; length < whole; length++) {
    const reading = read(cut(body.subarray(0, length || 1), [length >> 1]));
    await expect(reading, String(length)).rejects.toMatchObject({ code: "REALTIME_INVALID_ARGUMENT" });
  }
  expect(await read([body.subarray(0, whole)])).toMatchObject({ bytes: "red fox" });
});

it("a body of many parts is refused before their number matters", async () => {
  const part = "--b\r\nContent-Disposition: form-data; name=x\r\n\r\n.\r\n";
  const body = Buffer.from(`${part.repeat(11)}--b--\r\n`);
  await expect(read([body])).rejects.toMatchObject({
    message: expect.stringContaining("more than 10 parts"),
  });
});
