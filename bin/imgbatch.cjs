#!/usr/bin/env node
const { enableCompileCache } = require("node:module");
const { join } = require("node:path");

// From 22.1 on, Node can keep compiled code. Its own directory for it is shared by all users of the machine; this one is not.
const { HOME, USERPROFILE, XDG_CACHE_HOME } = process.env;
const home = HOME || USERPROFILE;
const caches = XDG_CACHE_HOME || (home && join(home, ".cache"));
if (caches) enableCompileCache?.(join(caches, "imgbatch"));

// The live view has a top-level `await`, so only an `import` loads it.
void require("../dist/main.cjs").main(() => import("../dist/view.mjs"));
