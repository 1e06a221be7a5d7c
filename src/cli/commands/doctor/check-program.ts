import { readFileSync } from "node:fs";
import { packageFile } from "../../../kernel/files/package-file.ts";
import { loadNativeModule, NATIVE_MODULES, type NativeModule } from "../../../service/native-modules.ts";
import { type Finding, fail, ok, warn } from "./finding.ts";

/** Checks the Node version against the `engines` of the package (`>=20.19`). */
export function checkNode(version: string, wanted = wantedNode()): Finding {
  const isEnough = compare(version, wanted) >= 0;
  return isEnough
    ? ok("node", version)
    : fail("node", "internal", `${version} is older than ${wanted}`, `install Node ${wanted} or newer`);
}

function wantedNode(): string {
  const { engines } = JSON.parse(readFileSync(packageFile("package.json"), "utf8"));
  return String(engines.node).replace(/^\D+/, "");
}

function compare(a: string, b: string): number {
  const [x, y] = [a.split("."), b.split(".")];
  for (let i = 0; i < 3; i++) {
    const difference = Number(x[i] ?? 0) - Number(y[i] ?? 0);
    if (difference !== 0) return difference;
  }
  return 0;
}

/** Checks whether the native modules load. Only the embedded service needs them. */
export async function checkNativeParts(
  isEmbedded: boolean,
  attempt: (part: NativeModule) => Promise<void> = loadNativeModule,
): Promise<Finding[]> {
  return Promise.all(
    NATIVE_MODULES.map(async (part) => {
      try {
        await attempt(part);
        return ok(part, "works");
      } catch (error) {
        const reason = error instanceof Error ? (error.message.split("\n")[0] ?? "") : String(error);
        const advice = `reinstall it for this system and this Node version: npm rebuild ${part}, or npm ci`;
        const message = `does not load: ${reason}`;
        return isEmbedded ? fail(part, "internal", message, advice) : warn(part, message, advice);
      }
    }),
  );
}
