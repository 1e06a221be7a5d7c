import service from "../../dist/test-service.cjs";
import test from "./test.cjs";

// Vitest's own functions can only be imported, and its globals are off by default.
const vitest = process.env.VITEST ? await import("vitest") : null;

export const { startImgbatch } = test;
export const useImgbatch =
  vitest === null ? test.useImgbatch : (options) => service.useImgbatch(options, vitest);
