import { buffer } from "node:stream/consumers";
import { describe, expect, it } from "vitest";
import {
  formBody,
  jsonBody,
  ReferenceText,
  type RequestBody,
} from "../../../src/providers/upstream/request-body.ts";
import { JPEG, PNG, reference } from "./scripted-server.ts";

async function whole(body: RequestBody): Promise<Buffer> {
  const bytes = await buffer(body.open());
  expect(await body.length()).toBe(bytes.length);
  return bytes;
}

describe("a body with references", () => {
  it("has the right length for references of any length", async () => {
    for (let length = 0; length < 8; length++) {
      const content = Buffer.alloc(length, 0xab);
      const text = (await whole(jsonBody([new ReferenceText(reference(content))]))).toString();
      expect(JSON.parse(text)).toEqual([content.toString("base64")]);
    }
  });

  it("is a form that an independent reader takes", async () => {
    const body = formBody({ prompt: "ein Füchslein\r\n--x", 'a"b': "1" }, [
      { field: "image[]", fileName: "one.png", content: reference(PNG) },
      { field: "image[]", fileName: "two.jpg", content: reference(JPEG, "image/jpeg") },
    ]);
    const headers = { "content-type": body.contentType };
    const form = await new Response(new Uint8Array(await whole(body)), { headers }).formData();
    expect(form.get("prompt")).toBe("ein Füchslein\r\n--x");
    expect(form.get('a"b')).toBe("1");
    const files = form.getAll("image[]") as File[];
    expect(files.map(({ name, type }) => `${name} ${type}`)).toEqual([
      "one.png image/png",
      "two.jpg image/jpeg",
    ]);
    expect(Buffer.from(await (files[1] as File).arrayBuffer())).toEqual(JPEG);
  });

  it("reads its references when they are sent, one at a time", async () => {
    let held = 0;
    const reads: number[] = [];
    const large = Buffer.alloc(300_000, 1);
    const images = [1, 2, 3].map((number) => ({
      ...reference(large),
      lend: async <T>(work: (bytes: Buffer) => Promise<T>) => {
        expect(++held).toBe(1);
        reads.push(number);
        const result = await work(large);
        held--;
        return result;
      },
    }));
    const body = jsonBody(images.map((image) => new ReferenceText(image)));
    const reading = body.open()[Symbol.asyncIterator]();
    expect(reads).toEqual([]);
    await reading.next();
    expect(reads.length).toBeLessThan(3);
    for (let next = await reading.next(); !next.done; next = await reading.next());
    expect(reads).toEqual([1, 2, 3]);
  });
});
