import { spawn } from "node:child_process";
import { once } from "node:events";
import { createInterface } from "node:readline";
import { fileURLToPath } from "node:url";

const SERVICE = fileURLToPath(new URL("quick-service.mjs", import.meta.url));

/** Starts `quick-service.mjs` on a data directory, as a process of its own. Default latency: none. */
export async function startQuickService(data, latencyMs) {
  const options = latencyMs === undefined ? [] : [String(latencyMs)];
  const child = spawn(process.execPath, ["--expose-gc", SERVICE, data, ...options], {
    stdio: ["ignore", "pipe", "inherit"],
  });
  const [line] = await once(createInterface(child.stdout), "line");
  const stop = async () => {
    child.kill("SIGKILL");
    await once(child, "exit");
  };
  return { ...JSON.parse(line), pid: child.pid, stop };
}
