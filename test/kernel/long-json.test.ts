import { describe, expect, it } from "vitest";
import { LongJsonReader } from "../../src/kernel/long-json.ts";

class Kept {
  bytes = Buffer.alloc(0);

  async write(bytes: Buffer): Promise<void> {
    this.bytes = Buffer.concat([this.bytes, bytes]);
  }
}

/** Reads a text in pieces of this size. Throws `SyntaxError` for anything else than JSON. */
async function read(text: string, pieceBytes = 70_001) {
  const reader = new LongJsonReader(() => new Kept());
  const bytes = Buffer.from(text);
  for (let at = 0; at < bytes.length; at += pieceBytes) await reader.add(bytes.subarray(at, at + pieceBytes));
  const decode = (long: string) => {
    const decoded = reader.decode(long);
    return decoded instanceof Kept ? decoded.bytes : decoded;
  };
  return { value: JSON.parse(reader.json.toString()), keptBytes: reader.keptBytes, decode };
}

describe("JSON with long texts", () => {
  const image = Buffer.from(Array.from({ length: 100_001 }, (_, i) => i % 251));
  const data = image.toString("base64");

  it("gives long texts as bytes, and everything else as JSON", async () => {
    const sent = { key: "a", images: [data, data], note: 'say "no" \\ ü', last: data };
    for (const pieceBytes of [1, 7, 65_536, 70_001, 1_000_000]) {
      const { value, keptBytes, decode } = await read(JSON.stringify(sent), pieceBytes);
      expect(value).toMatchObject({ key: "a", note: sent.note });
      expect(keptBytes).toBeLessThan(300);
      for (const text of [...value.images, value.last]) expect(decode(text)?.equals(image)).toBe(true);
    }
  });

  it("reads long texts with escapes, short texts, and both alphabets", async () => {
    const escaped = data.replaceAll("/", "\\/").replaceAll("=", "\\u003d").replaceAll("Q", "\\nQ");
    for (const text of [escaped, image.toString("base64url")]) {
      for (const pieceBytes of [3, 70_001]) {
        const { value, decode } = await read(`{"data":"${text}"}`, pieceBytes);
        expect(decode(value.data)?.equals(image)).toBe(true);
      }
    }
    expect((await read('{"data":"AAEC"}')).decode("AAEC")).toEqual(Buffer.from([0, 1, 2]));
  });

  it("reads data URLs, long and short", async () => {
    const { value, decode } = await read(JSON.stringify({ data: `data:image/png;base64,${data}` }));
    // Its head tells that it is no address.
    expect(value.data.startsWith("data:image/png;base64,")).toBe(true);
    expect(decode(value.data)?.equals(image)).toBe(true);
    expect(decode("data:image/png;base64,AAEC")).toEqual(Buffer.from([0, 1, 2]));
  });

  it("leaves long texts that are no Base64 in the JSON, and has nothing for one that only begins like it", async () => {
    const text = "It is not allowed. It costs $3. ".repeat(5000);
    expect((await read(JSON.stringify({ text }))).value).toEqual({ text });
    for (const bad of [`${data.slice(0, 90_000)}$`, `${data.slice(0, 90_000)}=A`, data.slice(0, 90_001)]) {
      const { value, decode } = await read(JSON.stringify({ bad }));
      expect(decode(value.bad)).toBeNull();
    }
  });

  it("refuses what is no JSON, also a long text without an end", async () => {
    for (const text of ["{", `{"data":"${data}`, `"${data}" 1`, ""])
      await expect(read(text)).rejects.toThrow(SyntaxError);
  });
});
