/**
 * The services of the tests, as the environment chooses them. `local`: one, on SQLite and files. `postgres`: one, on
 * PostgreSQL and files. `cluster`: two APIs that are asked in turns and three workers, on PostgreSQL and S3.
 */
export const TEST_STORES = (process.env.IMGBATCH_TEST_STORES ?? "local") as "local" | "postgres" | "cluster";
