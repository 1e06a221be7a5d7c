import { describe, expect, it } from "vitest";
import { LineMemory } from "../../../../src/providers/upstream/jobs/line-memory.ts";

function parsed(memory: LineMemory, text: string, pieces = 3) {
  memory.clear();
  const bytes = Buffer.from(text);
  const size = Math.ceil(bytes.length / pieces);
  for (let at = 0; at < bytes.length; at += size) memory.add(bytes.subarray(at, at + size));
  return memory.parse();
}

describe("the memory of a line", () => {
  const image = Buffer.from(Array.from({ length: 100_001 }, (_, i) => i % 251));
  const data = image.toString("base64");

  it("[UPSTREAM-18] gives long texts as bytes, and everything else as JSON", () => {
    const memory = new LineMemory();
    for (const value of [
      { key: "a", images: [data, data], note: 'say "no" \\ ü' },
      { data, key: "b" },
    ]) {
      const line = parsed(memory, JSON.stringify(value));
      const { images, ...rest } = line.value as { images?: string[]; data?: string };
      expect(rest).toMatchObject(value.key === "a" ? { key: "a", note: 'say "no" \\ ü' } : { key: "b" });
      for (const text of images ?? [rest.data ?? ""]) {
        expect(text.length).toBeLessThan(100);
        expect(line.decode(text).equals(image)).toBe(true);
      }
    }
  });

  it("[UPSTREAM-18] reads long texts with escapes, short texts, and both alphabets", () => {
    const memory = new LineMemory();
    const escaped = parsed(memory, `{"data":"${data.replaceAll("/", "\\/")}"}`);
    expect(escaped.decode((escaped.value as { data: string }).data).equals(image)).toBe(true);
    const urlSafe = parsed(memory, JSON.stringify({ data: image.toString("base64url") }));
    expect(urlSafe.decode((urlSafe.value as { data: string }).data).equals(image)).toBe(true);
    expect(parsed(memory, '{"data":"AAEC"}').decode("AAEC")).toEqual(Buffer.from([0, 1, 2]));
  });

  it("[UPSTREAM-18] reads data URLs, long and short", () => {
    const memory = new LineMemory();
    const long = parsed(memory, JSON.stringify({ data: `data:image/png;base64,${data}` }));
    const { data: text } = long.value as { data: string };
    // Its head tells that it is no address.
    expect(text.startsWith("data:image/png;base64,")).toBe(true);
    expect(long.decode(text).equals(image)).toBe(true);
    const short = parsed(memory, "{}");
    expect(short.decode("data:image/png;base64,AAEC")).toEqual(Buffer.from([0, 1, 2]));
  });

  it("[UPSTREAM-18] leaves long texts that are no Base64 to the parser", () => {
    const memory = new LineMemory();
    const words = "It is not allowed. ".repeat(5000);
    for (const text of [
      words,
      `${data.slice(0, 70_000)} `,
      `${data.slice(0, 70_000)}=A`,
      data.slice(0, 70_001),
    ]) {
      const line = parsed(memory, JSON.stringify({ text }));
      expect(line.value).toEqual({ text });
      expect(line.decode(text).equals(Buffer.from(text, "base64"))).toBe(true);
    }
  });

  it("[UPSTREAM-18] refuses what is no JSON, also a long text without an end or with a line break", () => {
    const memory = new LineMemory();
    for (const text of ["{", `{"data":"${data}`, `"${data}" 1`, `{"data":"${data}\n"}`, ""])
      expect(() => parsed(memory, text)).toThrow(SyntaxError);
  });
});
