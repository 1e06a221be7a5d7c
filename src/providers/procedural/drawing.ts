import { readdirSync, readFileSync } from "node:fs";
import { packageFile } from "../../kernel/package-file.ts";
import { type Hex, recolor } from "./color.ts";

const ROOT = "src/providers/procedural";

/** A place in the text of a drawing that is written each time when it is used. */
interface Slot {
  attribute: string;
  /** The first word of the class, such as `main` in `main-dark`. */
  role: string;
  color: Hex;
  /** The other properties of the class, as attributes. */
  rest: string;
  /** An id, or that of the gradient to fill with. */
  id: string;
  /** Whether an ink with outlines outlines the shape. Translucent shapes are light or shadow and have no edge. */
  hasEdge: boolean;
}

/** An SVG file, cut at its colours. */
export interface SvgFile {
  /** The attributes of the file that begin with `data-`. */
  data: Readonly<Record<string, string>>;
  parts: readonly (string | Slot)[];
  /** The colour of each role in the file. Its shades are shifted with it. */
  bases: ReadonlyMap<string, Hex>;
}

/** The way in which shapes reach the paper: it changes their colours and may outline them. */
export interface Ink {
  fill(color: Hex): Hex;
  line(color: Hex): Hex;
  /** Returns attributes for the outline of a shape. `scale` is the pixels of one unit. */
  edge(color: Hex, scale: number): string;
}

/** How a drawing is painted. */
export interface Coat {
  /** The colours of its roles. A null hides the shapes of the role. */
  roles: Readonly<Record<string, Hex | null>>;
  /** Returns any other colour as it looks in the light of the picture. */
  lit: (color: Hex) => Hex;
  ink: Ink;
  /** The pixels of one unit of the drawing. */
  scale: number;
}

const FILE = /^<svg[^>]*>\s*<style>(.*?)<\/style>\s*(<defs>.*?<\/defs>)?(.*)<\/svg>\s*$/s;
const CUTS = /class="([\w-]+)"|fill="url\(#([\w-]+)\)"|\bid="([\w-]+)"/g;
const parsed = new Map<string, readonly SvgFile[]>();

/** The names of the motifs' files, in the order of the alphabet. */
export function motifFiles(): string[] {
  const files = readdirSync(packageFile(`${ROOT}/motifs`)).filter((file) => file.endsWith(".svg"));
  return files.map((file) => file.slice(0, -4)).sort();
}

function textOf(path: string): string {
  return readFileSync(packageFile(`${ROOT}/${path}.svg`), "utf8");
}

/** Returns the attributes of a file that begin with `data-`. The rest is not parsed. */
export function drawingData(path: string): SvgFile["data"] {
  const found =
    textOf(path)
      .split(">", 1)[0]
      ?.matchAll(/data-([a-z]+)="([^"]*)"/g) ?? [];
  return Object.fromEntries([...found].map(([, key = "", value = ""]) => [key, value]));
}

/**
 * Returns the tiles of a file: its groups whose ids begin with `tile-`, or the whole drawing if there are none. A file is
 * parsed once.
 */
export function tilesOf(path: string): readonly SvgFile[] {
  const known = parsed.get(path);
  if (known !== undefined) return known;
  const [, style, defs = "", body = ""] = FILE.exec(textOf(path)) ?? [];
  if (style === undefined)
    throw new Error(`${path}.svg must have <style>, perhaps <defs>, and then its shapes`);
  const rules = new Map<string, Rule>();
  const bases = new Map<string, Hex>();
  for (const [, name = "", text = ""] of style.matchAll(/\.([\w-]+) \{([^}]*)\}/g)) {
    const rule = ruleOf(text);
    rules.set(name, rule);
    // The colour of a role is that of the class with its name, or else of its first shade.
    const [role = "", ...shade] = name.replace(/-(line|stop)$/, "").split("-");
    if (shade.length === 0 || !bases.has(role)) bases.set(role, rule.color);
  }
  const data = drawingData(path);
  if (data.colors?.startsWith("#")) bases.set("main", data.colors.slice(0, 7));
  const tight = (svg: string) => svg.replaceAll(/>\s+</g, "><").trim();
  const shapes = tight(body).match(/<g id="tile-[^"]*">.*?<\/g>/gs) ?? [tight(body)];
  const tiles = shapes.map((shape) => ({ data, bases, parts: cut(tight(defs) + shape, rules, path) }));
  parsed.set(path, tiles);
  return tiles;
}

type Rule = Pick<Slot, "attribute" | "color" | "rest">;

function ruleOf(text: string): Rule {
  const rule = { attribute: "", color: "", rest: "" };
  for (const [, property = "", value = ""] of text.matchAll(/([a-z-]+): ([^;]+);/g)) {
    if (value.startsWith("#")) Object.assign(rule, { attribute: property, color: value });
    else rule.rest += ` ${property}="${value}"`;
  }
  return rule;
}

function cut(svg: string, rules: ReadonlyMap<string, Rule>, path: string): (string | Slot)[] {
  const parts: (string | Slot)[] = [];
  let end = 0;
  for (const { 0: whole, 1: name, 2: gradient, 3: id = gradient ?? "", index } of svg.matchAll(CUTS)) {
    parts.push(svg.slice(end, index));
    end = index + whole.length;
    // The outline of a shape with a gradient has the gradient's first colour.
    const stops = (gradient && new RegExp(`id="${gradient}".*?</\\w+Gradient>`).exec(svg)?.[0]) || "";
    const key = name ?? /class="([\w-]+)"/.exec(stops)?.[1] ?? "";
    const rule = rules.get(key) ?? { ...ruleOf(""), attribute: "id" };
    if (name && !rules.has(name)) throw new Error(`${path}.svg has no colour for the class ${name}`);
    const hasEdge = !`${svg.slice(end, svg.indexOf(">", end))}${stops}`.includes("opacity");
    const attribute = gradient ? "fill" : rule.attribute;
    parts.push({ ...rule, attribute, role: key.split("-", 1)[0] ?? "", id, hasEdge });
  }
  return [...parts, svg.slice(end)];
}

/** Returns the shapes of a drawing as SVG. `key` keeps its ids apart from those of others in the same document. */
export function paint({ parts, bases }: SvgFile, { roles, lit, ink, scale }: Coat, key: string): string {
  const write = ({ attribute, role, color, rest, id, hasEdge }: Slot): string => {
    if (attribute === "id") return `id="${key}${id}"`;
    const wanted = roles[role];
    if (wanted === null && attribute !== "stop-color") return 'display="none"';
    const usual = role === "bright" ? color : lit(color);
    const shown = wanted ? recolor(color, bases.get(role) ?? color, wanted) : usual;
    if (attribute === "stroke") return `stroke="${ink.line(shown)}"${rest}`;
    const fill = id ? `url(#${key}${id})` : ink.fill(shown);
    return `${attribute}="${fill}"${rest}${hasEdge && attribute === "fill" ? ink.edge(shown, scale) : ""}`;
  };
  return parts.map((part) => (typeof part === "string" ? part : write(part))).join("");
}
