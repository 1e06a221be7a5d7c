import { useEffect, useState } from "react";
import { type Picture, pictures } from "../api/pictures.ts";

/** A picture of the service, fetched while the caller shows it. Null path: none. */
export function usePicture(path: string | null): Picture {
  const [picture, setPicture] = useState<Picture & { path: string | null }>({
    path: null,
    url: null,
    error: null,
  });
  useEffect(() => {
    if (path === null) return;
    const held = pictures.hold(path, (now) => setPicture({ path, ...now }));
    return () => held.release();
  }, [path]);
  return picture.path === path ? picture : { url: null, error: null };
}
