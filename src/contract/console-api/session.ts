import { z } from "zod";

const expiresAt = z.int().describe("Unix time in seconds");

/** A code that a person signs in with. */
export const signInCodeSchema = z.object({
  object: z.literal("console.code"),
  code: z.string().describe("works once, also in the address of the page: behind `/#code=`"),
  expires_at: expiresAt,
});
export type SignInCode = z.infer<typeof signInCodeSchema>;

/** A session of the console. */
export const sessionSchema = z.object({
  object: z.literal("console.session"),
  token: z.string().describe("goes into `Authorization: Bearer`, wherever a key does"),
  expires_at: expiresAt,
});
export type Session = z.infer<typeof sessionSchema>;

/** A link that downloads the ZIP of a batch without a key. */
export const ticketSchema = z.object({
  object: z.literal("download.ticket"),
  url: z.string().describe("takes the query of a download, too; works once"),
  expires_at: expiresAt,
});
export type Ticket = z.infer<typeof ticketSchema>;

/** The page of a console with a code to sign in with. A wildcard address is no address to go to: loopback is. */
export function signInUrl(baseUrl: string, code: string): string {
  const reachable = baseUrl.replace("//0.0.0.0", "//127.0.0.1").replace("//[::]", "//[::1]");
  return `${reachable.replace(/\/+$/, "")}/#code=${code}`;
}
