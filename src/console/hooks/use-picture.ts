import { useEffect, useRef, useState } from "react";
import { type Picture, pictures } from "../api/pictures.ts";
import type { Sheet } from "../api/thumbnails.ts";

/** A picture of the service, fetched while the caller shows it, alone or with its sheet. Null path: none. */
export function usePicture(path: string | null, sheet: Sheet | null): Picture {
  const [picture, setPicture] = useState<Picture & { path: string | null }>({
    path: null,
    url: null,
    error: null,
  });
  // Another sheet is no other picture.
  const latestSheet = useRef(sheet);
  latestSheet.current = sheet;
  useEffect(() => {
    if (path === null) return;
    const held = pictures.hold(path, latestSheet.current, (now) => setPicture({ path, ...now }));
    return () => held.release();
  }, [path]);
  return picture.path === path ? picture : { url: null, error: null };
}
