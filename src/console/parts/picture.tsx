import { type RefObject, useEffect, useRef, useState } from "react";
import { type Picture, pictures, type Sheet } from "../api/pictures.ts";
import { Icon } from "./icons.tsx";

/** Whether an element has been near the window yet: what is far below need not be fetched. */
export function useVisible(element: RefObject<HTMLElement | null>): boolean {
  const [isVisible, setVisible] = useState(false);
  useEffect(() => {
    if (isVisible || element.current === null) return;
    const observer = new IntersectionObserver(
      (entries) => {
        if (entries.some((entry) => entry.isIntersecting)) setVisible(true);
      },
      { rootMargin: "200px" },
    );
    observer.observe(element.current);
    return () => observer.disconnect();
  }, [element, isVisible]);
  return isVisible;
}

/** A picture of the service, fetched while the caller shows it, alone or with its sheet. Null path: none. */
function usePicture(path: string | null, sheet: Sheet | null): Picture {
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
