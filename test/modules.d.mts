/** The names of the modules that tests, benchmarks and the soak import from `build`, such as `kernel/clock`. */
export function builtModules(): Set<string>;
