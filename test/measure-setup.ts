import { afterAll, afterEach, expect } from "vitest";
import { appendFileSync, readFileSync, readdirSync } from "node:fs";
const g = globalThis as any;
function now() { const u = process.cpuUsage(); const f = readFileSync("/proc/self/stat","utf8").replace(/^.*\) /,"").split(" "); return { self: (u.user+u.system)/1e6, kids: (Number(f[13])+Number(f[14]))/100, t: Date.now()/1000 }; }
g.__last ??= { self: 0, kids: 0, t: Date.now()/1000, first: true };
if (process.env.PROF && !g.__s) { const { Session } = await import("node:inspector"); const s = g.__s = new Session(); s.connect(); s.post("Profiler.enable"); s.post("Profiler.setSamplingInterval", { interval: 2000 }); s.post("Profiler.start"); }
if (process.env.PROF) afterAll(async () => { const { writeFileSync } = await import("node:fs"); await new Promise<void>((r) => g.__s.post("Profiler.stop", (_e: any, p: any) => { writeFileSync(`${process.env.PROF}/${process.pid}-${Date.now()}.cpuprofile`, JSON.stringify(p.profile)); r(); })); g.__s.post("Profiler.start"); });
let tree: any = {};
if (process.env.TREE) afterEach(() => {
  const parent = new Map<number, [number, number, string]>();
  for (const d of readdirSync("/proc")) if (/^\d+$/.test(d)) try {
    const s = readFileSync(`/proc/${d}/stat`, "utf8"); const f = s.replace(/^.*\) /s, "").split(" ");
    const cmd = readFileSync(`/proc/${d}/cmdline`, "utf8"); const type = /--type=([\w-]+)/.exec(cmd)?.[1] ?? (cmd.includes("chromium") ? "browser" : "other");
    parent.set(Number(d), [Number(f[1]), (Number(f[11])+Number(f[12])+Number(f[13])+Number(f[14]))/100, type]);
  } catch {}
  const mine = new Set([process.pid]); for (let i = 0; i < 6; i++) for (const [p, [pp]] of parent) if (mine.has(pp)) mine.add(p);
  const sum: any = {}; for (const p of mine) { if (p === process.pid) continue; const [, t, ty] = parent.get(p) ?? [0,0,""]; sum[ty] = +((sum[ty] ?? 0) + t).toFixed(2); }
  tree = sum; if (process.env.TREE === "2") appendFileSync(process.env.MEASURE!, "  " + expect.getState().currentTestName?.slice(0, 90) + " " + now().self.toFixed(2) + " " + JSON.stringify(sum) + "\n");
});
afterAll(() => { const n = now(), l = g.__last; appendFileSync(process.env.MEASURE!, JSON.stringify({ f: expect.getState().testPath!.replace(/.*\/test\//,""), pid: process.pid, self: +(n.self-l.self).toFixed(2), kids: +(n.kids-l.kids).toFixed(2), wall: +(n.t-l.t).toFixed(2), first: l.first, tree }) + "\n"); g.__last = n; });
