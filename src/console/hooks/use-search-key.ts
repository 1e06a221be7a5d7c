import { type RefObject, useRef } from "react";
import { useKeys } from "./use-keys.ts";

/** A reference for the search field of a page, which `/` goes to. */
export function useSearchKey(): RefObject<HTMLInputElement | null> {
  const field = useRef<HTMLInputElement>(null);
  useKeys({
    "/": (event) => {
      event.preventDefault();
      field.current?.select();
      field.current?.focus();
    },
  });
  return field;
}
