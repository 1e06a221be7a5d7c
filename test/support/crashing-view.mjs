// Shows the live view, and dies of an error that nobody expected. Needs a build.
import { showDashboard } from "../../build/dashboard/show.js";

const source = {
  abilities: { ownsService: true, openConsole: true },
  start: () => () => {},
  perform: async () => {
    setImmediate(() => {
      throw new Error("the crash of the test");
    });
  },
};
const { stdin, stdout } = process;
await showDashboard(source, { stdin, stdout, signal: new AbortController().signal, hasColor: true });
