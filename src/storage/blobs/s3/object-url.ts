export interface BucketPlace {
  bucket: string;
  /** Like `https://minio.example:9000`; default: Amazon's own for the region. */
  endpoint?: string | undefined;
  region: string;
}

/**
 * Returns the URL of a bucket, with a slash at its end. The host name contains the bucket only at Amazon. Elsewhere the
 * path does, and always for a name with dots: no certificate matches such a host name.
 */
export function bucketUrl({ bucket, endpoint, region }: BucketPlace): string {
  if (endpoint !== undefined) return `${endpoint.replace(/\/+$/, "")}/${encodePath(bucket)}/`;
  if (bucket.includes(".")) return `https://s3.${region}.amazonaws.com/${encodePath(bucket)}/`;
  return `https://${bucket}.s3.${region}.amazonaws.com/`;
}

/** Encodes each segment as signatures need it: everything but letters, digits and `-._~` (RFC 3986, section 2.3). */
export function encodePath(path: string): string {
  return path.split("/").map(encodeStrictly).join("/");
}

/** A query in the order and the form that is signed. */
export function encodeQuery(query: Readonly<Record<string, string>>): string {
  const pairs = Object.entries(query).sort(([a], [b]) => (a < b ? -1 : 1));
  return pairs.map(([name, value]) => `${encodeStrictly(name)}=${encodeStrictly(value)}`).join("&");
}

function encodeStrictly(text: string): string {
  return encodeURIComponent(text).replace(
    /[!'()*]/g,
    (char) => `%${char.charCodeAt(0).toString(16).toUpperCase()}`,
  );
}
