import type { Client } from "./client.mjs";

export function drain(client: Client): Promise<void>;
