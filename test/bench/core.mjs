import { spawnSync } from "node:child_process";
import { readFileSync } from "node:fs";
import { availableParallelism } from "node:os";

/**
 * Binds all threads of a process, and those that they start, to one core, so that two processes do not push each other from
 * core to core. Returns a function that undoes it. Does nothing on a machine without `taskset` or a second core.
 */
export function bindToCore(pid, core) {
  const bind = (cores) => spawnSync("taskset", ["-acp", String(cores), String(pid)], { stdio: "ignore" });
  if (availableParallelism() < 2) return () => {};
  const { error } = spawnSync("taskset", ["--version"], { stdio: "ignore" });
  if (error !== undefined) return () => {};
  const [, before] = /^Cpus_allowed_list:\s*(\S+)/m.exec(readFileSync(`/proc/${pid}/status`, "utf8"));
  bind(core);
  return () => bind(before);
}
