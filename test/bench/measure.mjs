/** The middle one of the numbers. */
export function median(numbers) {
  const sorted = [...numbers].sort((a, b) => a - b);
  return sorted[Math.floor(sorted.length / 2)];
}

/** The number that 99 of 100 do not exceed. */
export function p99(numbers) {
  const sorted = [...numbers].sort((a, b) => a - b);
  return sorted[Math.ceil(sorted.length * 0.99) - 1];
}

/** How long the work takes, in milliseconds. */
export async function timed(work) {
  const start = performance.now();
  await work();
  return performance.now() - start;
}
