/** Opens a client of an installed library. */
export function openClient(
  library: string,
  options: object,
): Promise<(method: string, args: readonly unknown[]) => Promise<unknown>>;
