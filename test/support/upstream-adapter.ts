import { onTestFinished } from "vitest";
import { type EntryOf, type ProviderType, providerEntrySchema } from "../../src/contract/provider-entries.ts";

/** A PNG of one pixel. */
export const PNG = Buffer.from(
  "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==",
  "base64",
);

/** A checked entry of the configuration, with the defaults of its type. */
export function entryOf<Type extends ProviderType>(type: Type, fields: object): EntryOf<Type> {
  return providerEntrySchema.parse({ name: "local", type, ...fields }) as EntryOf<Type>;
}

/** Closes an adapter or a provider at the end of the test. */
export function closing<T extends { close(): Promise<void> }>(closable: T): T {
  onTestFinished(() => closable.close());
  return closable;
}
