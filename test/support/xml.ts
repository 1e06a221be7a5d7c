/** An element of a document, with its text in one piece. */
export interface XmlElement {
  name: string;
  attributes: Record<string, string>;
  children: XmlElement[];
  text: string;
}

const ENTITIES: Record<string, string> = { amp: "&", lt: "<", gt: ">", quot: '"', apos: "'" };
const FORBIDDEN = /[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\u{10000}-\u{10ffff}]/u;

/** Reads XML without DTD, CDATA and comments, and throws at whatever a strict reader would not take. */
export function readXml(document: string): XmlElement {
  if (FORBIDDEN.test(document)) throw new Error("a character that XML does not have");
  const body = document.replace(/^<\?xml version="1\.0" encoding="UTF-8"\?>\s*/, "");
  const root: XmlElement = { name: "", attributes: {}, children: [], text: "" };
  const open = [root];
  for (const [token] of body.matchAll(/<[^<>]*>|[^<>]+|[<>]/g)) {
    const top = open.at(-1) as XmlElement;
    if (!token.startsWith("<")) {
      top.text += unescaped(token);
      continue;
    }
    const [, slash, name = "", rest = "", empty] =
      /^<(\/?)([A-Za-z-]+)((?:\s+[a-z]+="[^"<]*")*)\s*(\/?)>$/.exec(token) ?? [];
    if (name === "") throw new Error(`not well formed: ${token.slice(0, 80)}`);
    if (slash === "/") {
      if (open.pop()?.name !== name) throw new Error(`${name} is closed, but not open`);
      continue;
    }
    const attributes = [...rest.matchAll(/([a-z]+)="([^"]*)"/g)].map(([, key = "", value = ""]) => [
      key,
      unescaped(value.replace(/[\t\n\r]/g, " ")),
    ]);
    if (new Set(attributes.map(([key]) => key)).size < attributes.length)
      throw new Error(`an attribute twice: ${token}`);
    const element = { name, attributes: Object.fromEntries(attributes), children: [], text: "" };
    top.children.push(element);
    if (empty !== "/") open.push(element);
  }
  const [only, ...more] = root.children;
  if (open.length !== 1 || only === undefined || more.length > 0 || root.text.trim() !== "")
    throw new Error("not one whole element");
  return only;
}

function unescaped(text: string): string {
  return text.replace(/&([^;]{0,10};)?/g, (whole, name = "") => {
    const key = name.slice(0, -1);
    if (/^#\d+$/.test(key)) return String.fromCodePoint(Number(key.slice(1)));
    const found = ENTITIES[key];
    if (found === undefined) throw new Error(`an unknown entity: ${whole}`);
    return found;
  });
}
