import { spawnSync } from "node:child_process";
import { fileURLToPath } from "node:url";
import { median, timed } from "./measure.mjs";

const BIN = fileURLToPath(new URL("../../bin/imgbatch.mjs", import.meta.url));
const ROUNDS = 21;

/** How much longer `imgbatch --version` takes than Node alone. */
export async function measureStartUp() {
  const programs = { node: ["-e", "0"], imgbatch: [BIN, "--version"] };
  const times = { node: [], imgbatch: [] };
  for (let round = 0; round < ROUNDS; round++) {
    for (const [name, args] of Object.entries(programs)) {
      times[name].push(await timed(() => spawnSync(process.execPath, args)));
    }
  }
  const [node, imgbatch] = [median(times.node), median(times.imgbatch)];
  const facts = { "node -e 0": `${node.toFixed(0)} ms`, "imgbatch --version": `${imgbatch.toFixed(0)} ms` };
  return { name: "start-up against node", ratio: imgbatch / node, goal: "at most 1.25", facts };
}
