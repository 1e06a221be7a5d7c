/**
 * The part that a process takes in a service: `api` takes requests, `worker` makes images, and `all` does both.
 * Processes of the first two share a database and a bucket with others.
 */
export const ROLES = ["all", "api", "worker"] as const;
export type Role = (typeof ROLES)[number];
