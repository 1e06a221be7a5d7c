import { resolve } from "node:path";

// Also when the tests build it, whose environment says otherwise.
process.env.NODE_ENV = "production";

/** Builds the web console. The service allows no inline code, no `data:` pictures, and no files of other sites. */
export default {
  root: import.meta.dirname,
  // A proxy may serve the page below a path.
  base: "./",
  build: {
    outDir: resolve(import.meta.dirname, "../../dist/console"),
    emptyOutDir: true,
    target: "es2023",
    assetsInlineLimit: 0,
    modulePreload: { polyfill: false },
    // The licences of the packages that the files hold.
    license: { fileName: "licenses.md" },
  },
};
