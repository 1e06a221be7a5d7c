import { fieldsOf } from "../kernel/json/fields.ts";
import type { ProviderEntry } from "./provider-entries.ts";

/** The facts by which another process recognises a provider. They hold no secrets. */
export interface ProviderIdentity {
  name: string;
  type: string;
  /** The base URL without user and query, or the program; null for drawings. */
  address: string | null;
  /** Whether its images cost nothing, or only play money. */
  free: boolean;
  /** Why a running service cannot use it until it starts again, such as a missing key; left out when it can. */
  disabled?: string | undefined;
  /** The hash of entry and key by which a running service keeps its health. Drawings have none. */
  fingerprint?: string | undefined;
}

export function identityOf(entry: ProviderEntry): ProviderIdentity {
  const { name, type } = entry;
  if (entry.type === "procedural") return { name, type, address: null, free: true };
  const address = entry.type === "command" ? (entry.argv[0] ?? "") : addressOf(entry.baseUrl);
  return { name, type, address, free: entry.free };
}

/** The environment variables that must be set for an entry. */
export function secretVariables(entry: ProviderEntry): string[] {
  if (entry.type === "procedural") return [];
  const names =
    entry.type === "command"
      ? entry.env
      : entry.type === "sdapi"
        ? [entry.userEnv, entry.passwordEnv]
        : [entry.apiKeyEnv];
  return names.filter((name) => name !== null);
}

/** Whether every provider only draws, so that the money is play money. False without any provider. */
export function isProceduralOnly({ providers }: { providers: readonly { type: string }[] }): boolean {
  return providers.length > 0 && providers.every(({ type }) => type === "procedural");
}

/** Whether a JSON value is an identity. It may have other fields. */
export function isProviderIdentity(value: unknown): value is ProviderIdentity {
  const fields = fieldsOf(value);
  if (fields === null) return false;
  const { name, type, address, free, disabled = "", fingerprint = "" } = fields;
  const texts = [name, type, address ?? "", disabled, fingerprint];
  return (
    texts.every((text) => typeof text === "string") && address !== undefined && typeof free === "boolean"
  );
}

function addressOf(baseUrl: string): string {
  const { origin, pathname } = new URL(baseUrl);
  return `${origin}${pathname}`.replace(/\/+$/, "");
}
