import { type ImageRequest, ProviderError } from "../../domain/ports/image-provider.ts";

/** Throws `INVALID_ARGUMENT` for a reference that only its storage holds: most upstreams cannot read it there. */
export function refuseStoredReferences({ storedReferences }: ImageRequest): void {
  const [first] = storedReferences;
  if (first === undefined) return;
  const message = `This provider cannot read ${first.uri}: send the reference image itself.`;
  throw new ProviderError("INVALID_ARGUMENT", message);
}
