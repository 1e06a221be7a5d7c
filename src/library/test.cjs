const { startImgbatch, useImgbatch } = require("../../dist/test-service.cjs");

/** Jest hides its hooks where they are to be imported (`injectGlobals: false`). */
function runner() {
  if (typeof afterEach === "function") return globalThis;
  try {
    return require("@jest/globals");
  } catch {
    return {};
  }
}

exports.startImgbatch = startImgbatch;
exports.useImgbatch = (options) => useImgbatch(options, runner());
