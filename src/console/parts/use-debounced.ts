import { useEffect, useState } from "react";

const QUIET_MS = 250;

/** The value, once it has not changed for a moment: a person may still be typing. */
export function useDebounced<T>(value: T): T {
  const [settled, setSettled] = useState(value);
  useEffect(() => {
    const timer = setTimeout(() => setSettled(value), QUIET_MS);
    return () => clearTimeout(timer);
  }, [value]);
  return settled;
}
