/** The most references of one edit, as OpenAI documents it. */
export const MAX_REFERENCES = 16;

/** The header that carries a key. `auth`: "bearer", or the name of the header. */
export function credentialHeaders(auth: string, key: string | null): Readonly<Record<string, string>> {
  if (key === null) return {};
  return auth === "bearer" ? { authorization: `Bearer ${key}` } : { [auth]: key };
}
