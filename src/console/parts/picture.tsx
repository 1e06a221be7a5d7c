import type { Sheet } from "../api/thumbnails.ts";
import { usePicture } from "../hooks/use-picture.ts";
import { Icon } from "./icons.tsx";

/** A picture of the service, or the place of one that is still on its way. */
export function RemotePicture(props: { path: string | null; sheet?: Sheet | null; alt: string }) {
  const { path, sheet = null, alt } = props;
  const { url, error } = usePicture(path, sheet);
  if (url !== null) return <img src={url} alt={alt} draggable={false} />;
  const named = alt === "" ? {} : { role: "img", "aria-label": alt };
  return (
    <span className={error ? "picture-lost" : "picture-waits"} title={error?.message} {...named}>
      {error && <Icon name="warning" />}
    </span>
  );
}
