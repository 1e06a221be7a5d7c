import base from "./vitest.config.ts";
const c: any = base;
const extra = (process.env.XEXEC ?? "").split(" ").filter(Boolean);
export default { ...c, test: { ...c.test, setupFiles: [...c.test.setupFiles, ...(process.env.MEASURE ? ["test/measure-setup.ts"] : [])], execArgv: [...c.test.execArgv, ...extra], maxWorkers: Number(process.env.MW ?? 3) } };
