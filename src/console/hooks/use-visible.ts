import { type RefObject, useEffect, useState } from "react";

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
