import { expect, it } from "vitest";
import { hideUsedKeys, safeLine, watchKey } from "../../src/kernel/hide-keys.ts";

/** Their Base64 has characters that differ between its alphabets, in each of the three positions of a text. */
const KEYS = ["key-for~~~tests???>>>", "canary-of-forms-0123456789", "~~~~~~~~????????>>>>>>>>"];

const FORMS: Record<string, (key: string) => string> = {
  "as it is": (key) => key,
  "in Base64": (key) => Buffer.from(key).toString("base64"),
  "in Base64 behind one byte": (key) => Buffer.from(`:${key}`).toString("base64"),
  "in Base64 behind two bytes": (key) => Buffer.from(`u:${key}`).toString("base64"),
  "in the Base64 of addresses": (key) => Buffer.from(key).toString("base64url"),
  "in hexadecimal digits": (key) => Buffer.from(key).toString("hex"),
  "in large hexadecimal digits": (key) => Buffer.from(key).toString("hex").toUpperCase(),
  "percent-encoded": (key) => `%${[...Buffer.from(key)].map((byte) => byte.toString(16)).join("%")}`,
  "percent-encoded twice": (key) => key.replace("-", "%252d").replace("~", "%257E"),
  "escaped as in JSON": (key) => key.replace("-", "\\u002d").replace("~", "\\u007e"),
  "escaped as in HTML": (key) => key.replace("-", "&#45;").replace("~", "&#x7e;"),
};

it.each(Object.entries(FORMS))("a key is hidden %s, in a long text, too", (_, formOf) => {
  for (const key of KEYS) {
    watchKey(key);
    const hidden = hideUsedKeys(`${"x".repeat(100_000)} ${formOf(key)} and more`);
    // Of Base64, only characters are left that other bytes decide, too.
    expect(hidden).toMatch(/^x{100000} \S{0,4}\[API key\]\S{0,4} and more$/);
  }
});

it("a key with a row of backslashes is hidden, and a text of backslashes is searched at once", () => {
  const key = `a${"\\".repeat(20)}bcdefgh`;
  watchKey(key);
  const asJson = JSON.stringify(key);
  for (const form of [key, asJson, JSON.stringify(asJson), key.replaceAll("\\", "\\u005c")])
    expect(hideUsedKeys(`${form} and more`)).toMatch(/^\W*\[API key\]\W* and more$/);
  const backslashes = `a${"\\".repeat(10_000)}`;
  expect(hideUsedKeys(backslashes)).toBe(backslashes);
});

it("only the key of a text is replaced: the rest keeps its escapes, so that JSON stays JSON and no control comes out", () => {
  const key = "canary-of-lines-0123456789";
  watchKey(key);
  for (const form of ["canary\\u002dof\\x2dlines-0123456789", "canary%2Dof%252Dlines-0123456789"]) {
    const message = `\u001b[2J said "${form}" and "${form}": \\u001b[2J \\u000a%0a&#10; \\"C:\\temp\\"`;
    const expected = message.replaceAll(form, "[API key]");
    expect(hideUsedKeys(message)).toBe(expected);
    const json = JSON.stringify({ message });
    expect(JSON.parse(hideUsedKeys(json))).toEqual({ message: expected });
    expect(JSON.parse(JSON.parse(hideUsedKeys(JSON.stringify(json))))).toEqual({ message: expected });
    // biome-ignore lint/suspicious/noControlCharactersInRegex: there must be none.
    expect(safeLine(message)).not.toMatch(/[\u0000-\u001f]/);
  }
});
