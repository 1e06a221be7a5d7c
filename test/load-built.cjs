// Loads the modules in `build` with the code that the engine made of
// them before, which stands beside each file. The one run that is told to (`test/modules.mjs`) keeps that code.
const { readFileSync, writeFileSync } = require("node:fs");
const { wrap } = require("node:module");
const { dirname, join } = require("node:path");
const { Script } = require("node:vm");

const BUILD = join(__dirname, "../build");
const modules = new Map();
const scripts = new Map();

function load(path) {
  let module = modules.get(path);
  if (module === undefined) {
    module = { exports: {} };
    modules.set(path, module);
    const directory = dirname(path);
    const requireFrom = (id) => (id.startsWith(".") ? load(join(directory, id)) : require(id));
    compile(path).runInThisContext()(module.exports, requireFrom, module, path, directory);
  }
  return module.exports;
}

function compile(path) {
  let cachedData;
  try {
    cachedData = readFileSync(`${path}.code`);
  } catch {
    // Then it is compiled, which takes longer.
  }
  const script = new Script(wrap(readFileSync(path, "utf8")), { filename: path, cachedData });
  scripts.set(path, script);
  return script;
}

if (process.env.IMGBATCH_TEST_KEEP_CODE)
  process.on("exit", () => {
    for (const [path, script] of scripts) writeFileSync(`${path}.code`, script.createCachedData());
  });

exports.load = (name) => load(join(BUILD, `${name}.cjs`));
