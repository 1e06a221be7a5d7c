import { defineConfig } from "rolldown";
import { licences } from "./licences.mjs";

const common = {
  platform: "node",
  logLevel: "warn",
  // The first two have parts that are compiled for each system. PostgreSQL's library, Ink and that of proxies load the next
  // four only if they are installed.
  external: [
    "better-sqlite3",
    "sharp",
    "pg-native",
    "pg-cloudflare",
    "react-devtools-core",
    "kerberos",
    // An optional peer.
    "@opentelemetry/sdk-node",
  ],
  // Some libraries have a form with `require` beside their modules, which cannot be bundled.
  resolve: { mainFields: ["module", "main"] },
  transform: { target: "node20.19", define: { "process.env.NODE_ENV": '"production"' } },
};

const output = {
  dir: "dist",
  sourcemap: true,
  sourcemapExcludeSources: true,
  // Stack traces stay readable with the original names.
  minify: { compress: false, mangle: false, codegen: { removeWhitespace: true } },
};

// Makes `dist`, the program as it is installed. A command loads only the files that it needs. They are scripts, which Node
// loads in two thirds of the time of modules. Ink has a top-level `await`, so the live view is a module of its own.
export default defineConfig([
  {
    ...common,
    plugins: [licences("licences.txt")],
    input: {
      main: "src/cli/main.ts",
      "guard-main": "src/processes/guard-main.ts",
      library: "src/library/imgbatch.ts",
    },
    output: {
      ...output,
      cleanDir: true,
      format: "cjs",
      dynamicImportInCjs: false,
      entryFileNames: "[name].cjs",
      chunkFileNames: "[name]-[hash].cjs",
    },
  },
  {
    ...common,
    plugins: [licences("licences-view.txt")],
    input: { view: "src/dashboard/show.tsx" },
    output: { ...output, entryFileNames: "[name].mjs", chunkFileNames: "[name]-[hash].mjs" },
  },
  // Apart from the program, so that a file of tests loads nothing else.
  {
    ...common,
    input: { "test-service": "src/library/test-service.ts" },
    output: { ...output, format: "cjs", entryFileNames: "[name].cjs" },
  },
]);
