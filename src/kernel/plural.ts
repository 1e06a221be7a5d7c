/** `1 image`, `2 images`: a number with its word. `many` is for words that do not just get an `s`. */
export function counted(count: number, one: string, many = `${one}s`): string {
  return `${count} ${count === 1 ? one : many}`;
}
