import { readZip } from "./zip.ts";

/** A secret that stands somewhere. Its value is not shown: reports are kept longer than tests. */
export interface FoundSecret {
  form: string;
  offset: number;
}

const KEY = /^imgb_[\w-]{43}/;
/** In base64 a text looks different at each of three alignments: the part of `imgb_` that does not depend on neighbours. */
const BASE64_ANCHORS = [0, 1, 2].map((shift) => base64Core("imgb_", shift));

/** Where API keys, and the given other secrets, stand in some bytes: plain, or in a form that is read back easily. */
export function findSecrets(bytes: Buffer, known: Iterable<string> = []): FoundSecret[] {
  const found = findKeys(bytes);
  for (const secret of known) {
    for (const [form, needle] of formsOf(secret)) {
      const offset = bytes.indexOf(needle);
      if (offset >= 0) found.push({ form, offset });
    }
  }
  return [...found, ...findEscaped(bytes, known)];
}

/** Secrets that stand there only once escapes of JSON, addresses and HTML are read, also one inside the other. */
function findEscaped(bytes: Buffer, known: Iterable<string>): FoundSecret[] {
  const secrets = [...known];
  if (secrets.length === 0) return [];
  const written = bytes.toString("latin1");
  const once = unescaped(written);
  if (once === written) return [];
  const read = unescaped(once);
  return secrets
    .filter((secret) => read.includes(secret) && !written.includes(secret))
    .map((secret) => ({ form: "escaped", offset: read.indexOf(secret) }));
}

const NAMED: Record<string, string> = { amp: "&", lt: "<", gt: ">", quot: '"', apos: "'" };
const ESCAPE =
  /\\u00([0-9a-f]{2})|\\x([0-9a-f]{2})|%([0-9a-f]{2})|&#x0*([0-9a-f]{2});|&#0*(\d{2,3});|&(amp|lt|gt|quot|apos);|\\([!-/:-@[-`{-~])/gi;

function unescaped(text: string): string {
  return text.replace(ESCAPE, (_, unicode, byte, percent, hex, decimal, name, itself) => {
    const code = unicode ?? byte ?? percent ?? hex;
    if (code !== undefined) return String.fromCharCode(Number.parseInt(code, 16));
    if (decimal !== undefined) return String.fromCharCode(Number(decimal));
    return itself ?? NAMED[name.toLowerCase()];
  });
}

/** Like `findSecrets`, and in the entries of a ZIP too. */
export async function findSecretsInFile(bytes: Buffer, known: Iterable<string> = []): Promise<FoundSecret[]> {
  const found = findSecrets(bytes, known);
  if (bytes.toString("latin1", 0, 4) !== "PK\x03\x04") return found;
  const entries = await readZip(bytes).catch(() => new Map<string, Buffer>());
  for (const [name, data] of entries) {
    const inside = findSecrets(data, known);
    found.push(...inside.map(({ form, offset }) => ({ form: `${form}, in ${name}`, offset })));
  }
  return found;
}

type ReadAt = (from: number, length: number) => string;

/** How a key begins in each form, and how what follows is read. */
const ANCHORS = [
  anchored("plain", "imgb_", (at) => at(0, 48)),
  anchored("utf-16", "i\0m\0g\0b\0_\0", (at) => at(0, 96).replaceAll("\0", "")),
  anchored("percent-encoded", "imgb%5", (at) => decodePercent(at(0, 150))),
  ...["%69", "%69%6d", "%69%6D"].map((first) =>
    anchored("percent-encoded", first, (at) => decodePercent(at(0, 150))),
  ),
  anchored("json escapes", "\\u0069", (at) => decodeEscapes(at(0, 300))),
  ...["696d67625f", "696D67625F"].map((hex) =>
    anchored("hex", hex, (at) => Buffer.from(at(0, 96), "hex").toString("latin1")),
  ),
  ...BASE64_ANCHORS.map((anchor, shift) => {
    const skip = shift === 0 ? 0 : shift === 1 ? 2 : 3;
    return anchored("base64", anchor, (at) => {
      const text = at(-skip, 80).replaceAll("+", "-").replaceAll("/", "_");
      return Buffer.from(text, "base64").subarray(shift).toString("latin1");
    });
  }),
];

function anchored(form: string, anchor: string, decode: (at: ReadAt) => string) {
  return { form, needle: Buffer.from(anchor, "latin1"), decode };
}

function findKeys(bytes: Buffer): FoundSecret[] {
  const found: FoundSecret[] = [];
  for (const { form, needle, decode } of ANCHORS) {
    for (let offset = bytes.indexOf(needle); offset >= 0; offset = bytes.indexOf(needle, offset + 1)) {
      const start = offset;
      const at: ReadAt = (from, length) =>
        bytes.toString("latin1", Math.max(0, start + from), start + length);
      if (KEY.test(decode(at))) found.push({ form, offset });
    }
  }
  return found;
}

const forms = new Map<string, [form: string, needle: Buffer][]>();

/** The ways in which a secret that is known to the letter can stand in a file. */
function formsOf(secret: string): [form: string, needle: Buffer][] {
  const known = forms.get(secret) ?? makeForms(secret);
  forms.set(secret, known);
  return known;
}

function makeForms(secret: string): [form: string, needle: Buffer][] {
  const bytes = Buffer.from(secret);
  const percent = [...bytes].map((byte) => `%${byte.toString(16).padStart(2, "0")}`).join("");
  const texts: [string, string][] = [
    ["plain", secret],
    ["percent-encoded", percent],
    ["percent-encoded", percent.toUpperCase()],
    ["percent-encoded", encodeURIComponent(secret)],
    ["hex", bytes.toString("hex")],
    ["hex", bytes.toString("hex").toUpperCase()],
    ...[0, 1, 2].map((shift): [string, string] => ["base64", base64Core(secret, shift)]),
    ...[0, 1, 2].map((shift): [string, string] => ["base64", toUrlAlphabet(base64Core(secret, shift))]),
  ];
  // Many are the same: the first of them names the form.
  const different = new Map(texts.reverse().map(([form, text]) => [text, form]));
  const needles = [...different].map(([text, form]): [string, Buffer] => [form, Buffer.from(text)]);
  return [...needles, ["utf-16", Buffer.from(secret, "utf16le")]];
}

/** The characters of the Base64 of any text that holds `text` behind `shift` (modulo 3) other bytes. */
function base64Core(text: string, shift: number): string {
  const whole = Buffer.concat([Buffer.alloc(shift), Buffer.from(text)]).toString("base64");
  const firstWhole = Math.ceil((shift * 8) / 6);
  const bits = (shift + Buffer.byteLength(text)) * 8;
  return whole.slice(firstWhole, Math.floor(bits / 6));
}

const toUrlAlphabet = (base64: string) => base64.replaceAll("+", "-").replaceAll("/", "_");
const decodePercent = (text: string) =>
  text.replace(/%([0-9a-f]{2})/gi, (_, hex) => String.fromCharCode(Number.parseInt(hex, 16)));
const decodeEscapes = (text: string) =>
  text.replace(/\\u([0-9a-f]{4})/gi, (_, hex) => String.fromCharCode(Number.parseInt(hex, 16)));
