import { existsSync, readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";

/**
 * A plugin of Rolldown and Vite that writes the licences of all packages whose code is in the bundle beside it. Fails for a
 * package without one.
 */
export function licences(fileName) {
  return {
    name: "licences",
    generateBundle(_options, bundle) {
      const folders = new Set(
        Object.values(bundle).flatMap(({ moduleIds = [] }) => moduleIds.flatMap(packageOf)),
      );
      const texts = [...folders].map(licenceOf).sort();
      this.emitFile({ type: "asset", fileName, source: texts.join(`\n${"-".repeat(80)}\n\n`) });
    },
  };
}

/** The folder of the package that a module is of; empty for our own. */
function packageOf(id) {
  const [, folder] = /^\0?(.*[\\/]node_modules[\\/](?:@[^\\/]+[\\/])?[^\\/]+)[\\/]/.exec(id) ?? [];
  return folder === undefined || !existsSync(join(folder, "package.json")) ? [] : [folder];
}

function licenceOf(folder) {
  const { name, version, license } = JSON.parse(readFileSync(join(folder, "package.json"), "utf8"));
  const file = readdirSync(folder).find((each) => /^licen[cs]e(\.|-|$)/i.test(each));
  const text = file === undefined ? licenceInReadme(folder) : readFileSync(join(folder, file), "utf8");
  if (text === null && license === undefined) throw new Error(`${name} has no licence`);
  return `${name} ${version} (${license})\n\n${(text ?? "").trim()}\n`;
}

/** Some packages have their licence in the README alone. */
function licenceInReadme(folder) {
  const readme = join(folder, readdirSync(folder).find((each) => /^readme(\.|$)/i.test(each)) ?? "README.md");
  const text = existsSync(readme) ? readFileSync(readme, "utf8") : "";
  const at = text.search(/^#+ *licen[cs]e/im);
  return at < 0 ? null : text.slice(at);
}
