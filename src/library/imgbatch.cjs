const { generate, ImgbatchError, startService, submit } = require("../../dist/library.cjs");

exports.generate = generate;
exports.ImgbatchError = ImgbatchError;
exports.startService = startService;
exports.submit = submit;
