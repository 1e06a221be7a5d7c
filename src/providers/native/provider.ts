import type { EntryOf } from "../../contract/provider-entries.ts";
import type { AdapterDeps, UpstreamAdapter } from "../upstream/adapter.ts";

export function createNativeAdapter(_entry: EntryOf<"native">, _deps: AdapterDeps): UpstreamAdapter {
  throw new Error("not built yet");
}
