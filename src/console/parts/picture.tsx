import { usePicture } from "../hooks/use-picture.ts";
import { Icon } from "./icons.tsx";

/** A picture of the service, or the place of one that is still on its way. */
export function RemotePicture({ path, alt }: { path: string | null; alt: string }) {
  const { url, error } = usePicture(path);
  if (url !== null) return <img src={url} alt={alt} draggable={false} />;
  const named = alt === "" ? {} : { role: "img", "aria-label": alt };
  return (
    <span className={error ? "picture-lost" : "picture-waits"} title={error?.message} {...named}>
      {error && <Icon name="warning" />}
    </span>
  );
}
