import { OPERATIONS } from "../openapi/operations.ts";

/** The label of a path that is none of the API's. */
export const OTHER_ROUTE = "other";

const patterns = [...new Set(OPERATIONS.map(({ path }) => path))]
  // `/models` is itself before it is an id.
  .sort((a, b) => variableParts(a) - variableParts(b))
  .map((route) => ({ route, pattern: new RegExp(`^${route.replace(/\{[^}]+\}/g, "[^/]+")}$`) }));

function variableParts(path: string): number {
  return path.split("{").length;
}

/** The path with its variable parts unfilled: no id or name of a caller gets into a label. */
export function routeOf(path: string): string {
  return patterns.find(({ pattern }) => pattern.test(path))?.route ?? OTHER_ROUTE;
}
