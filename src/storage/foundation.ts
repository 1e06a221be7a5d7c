import { randomBytes } from "node:crypto";
import { sql } from "kysely";
import { ImgbatchError } from "../contract/errors.ts";
import { type SqlDatabase, type SqlSession, written } from "./dialects/sql-session.ts";

/**
 * All tables. Columns are integers and texts only, so that any SQL database can hold them: times are milliseconds since 1970,
 * money is micro-dollars, JSON is text, and a yes is 1.
 *
 * `serial` is a number that the database gives to each new row. `unlogged` is PostgreSQL's.
 */
const TABLES = `
create table schema_migrations (
  name text primary key,
  -- A program that does not know the step works with it.
  is_additive integer not null default 0
);

create table accounts (
  id text primary key,
  name text not null unique,
  balance_micro_usd integer not null default 0 check (balance_micro_usd >= 0),
  held_micro_usd integer not null default 0 check (held_micro_usd >= 0),
  created_at_ms integer not null,
  is_play integer not null default 0,
  real_account_id text
);

create table api_keys (
  id text primary key,
  sha256 text not null unique,
  name text not null,
  prefix text not null,
  account_id text not null references accounts (id),
  "group" text not null,
  created_at_ms integer not null,
  expires_at_ms integer,
  disabled_at_ms integer,
  enabled_at_ms integer
);

create table ledger_entries (
  seq serial,
  request_id text not null unique,
  account_id text not null references accounts (id),
  batch_id text,
  kind text not null,
  amount_micro_usd integer not null check (amount_micro_usd >= 0),
  balance_change_micro_usd integer not null,
  held_change_micro_usd integer not null,
  created_at_ms integer not null
);
create index ledger_by_account on ledger_entries (account_id, seq);
create index ledger_by_batch on ledger_entries (batch_id, seq);

-- scope: data (all of the database), account (each account), or upstream: and a name.
create table budgets (
  scope text primary key,
  limit_micro_usd integer not null,
  per text not null
);

create table batches (
  seq serial,
  id text not null unique,
  api_key_id text not null references api_keys (id),
  account_id text not null references accounts (id),
  task_name text not null,
  task_name_folded text not null,
  status text not null,
  owner text,
  goes_on text not null default 'always',
  cancel_asked_at_ms integer,
  served integer not null default 0,
  model text not null,
  mime_type text not null,
  parent_batch_id text,
  metadata text,
  provider text not null,
  upstream text not null default 'procedural',
  needs text not null,
  source text not null default 'batch',
  input text,
  item_count integer not null,
  success_count integer not null default 0,
  fail_count integer not null default 0,
  price text not null,
  estimated_micro_usd integer not null,
  hold_micro_usd integer not null,
  actual_micro_usd integer,
  created_at_ms integer not null,
  submitted_at_ms integer not null,
  input_read_at_ms integer,
  waiting_since_ms integer,
  waiting text,
  ended_at_ms integer,
  settled_at_ms integer,
  downloaded_at_ms integer,
  output_deleted_at_ms integer,
  outputs_expire_at_ms integer,
  record_deleted_at_ms integer,
  outputs_purged_at_ms integer,
  inputs_purged_at_ms integer,
  error text
);
create index batches_by_end on batches (inputs_purged_at_ms, ended_at_ms);
create index batches_by_key on batches (api_key_id, created_at_ms, seq);
create index batches_by_key_and_download on batches (api_key_id, (downloaded_at_ms is null), created_at_ms, seq);
create index batches_by_key_and_status on batches (api_key_id, status, created_at_ms, seq);
create index batches_by_parent on batches (parent_batch_id, seq) where parent_batch_id is not null;
create index batches_by_status on batches (status, seq);
create index batches_by_turn on batches (status, goes_on, provider, api_key_id, seq);
create index batches_served on batches (served);
create index batches_served_by_key on batches (api_key_id, served);

create table batch_events (
  seq serial,
  batch_id text not null references batches (id),
  "from" text,
  "to" text not null,
  at_ms integer not null
);
create index events_by_batch on batch_events (batch_id, seq);

create table items (
  id serial,
  batch_id text not null references batches (id),
  position integer not null,
  source_index integer not null,
  output_index integer not null,
  custom_id text not null,
  prompt text not null,
  options text not null,
  earlier text not null,
  verbatim text,
  price_micro_usd integer not null,
  hold_micro_usd integer not null,
  client_key text,
  status text not null default 'pending',
  attempts integer not null default 0,
  not_before_ms integer not null default 0,
  delayed_at_ms integer not null default 0,
  lease_token text,
  lease_worker text,
  job_id text,
  mime_type text,
  image_count integer not null default 0,
  images_deleted_at_ms integer,
  error text,
  finished_at_ms integer,
  model_version text,
  provider text,
  failed_at text,
  switches integer not null default 0,
  maybe_paid text not null default 'no',
  seed integer,
  notes text not null default '[]',
  usage text,
  answer text,
  task text,
  task_upstream text,
  constraint items_custom_id unique (batch_id, custom_id),
  constraint items_position unique (batch_id, position)
);
create index items_by_job on items (job_id);
create index items_by_price on items (batch_id, status, price_micro_usd, hold_micro_usd);
create index items_by_status on items (batch_id, status, position);
create index items_delayed on items (not_before_ms) where not_before_ms > 0;
create index items_leased on items (lease_token) where lease_token is not null;

create table outputs (
  item_id integer not null references items (id),
  batch_id text not null,
  image_index integer not null,
  blob_key text not null unique,
  size_bytes integer not null,
  sha256 text not null,
  crc32 integer not null,
  mime_type text not null,
  width_px integer not null,
  height_px integer not null,
  entry_name text,
  constraint outputs_key primary key (item_id, image_index)
);
create index outputs_by_batch on outputs (batch_id);

create table reference_images (
  batch_id text not null references batches (id),
  source_index integer not null,
  ordinal integer not null,
  reference_id text,
  type text,
  mime_type text not null,
  blob_key text not null,
  sha256 text not null,
  constraint references_key primary key (batch_id, source_index, ordinal)
);

create table idempotency_keys (
  api_key_id text not null,
  key text not null,
  request_hash text not null,
  batch_id text not null references batches (id),
  created_at_ms integer not null,
  constraint idempotency_key primary key (api_key_id, key)
);

create table upstream_jobs (
  id text primary key,
  batch_id text not null,
  step text not null,
  has_references integer not null,
  input_name text,
  uploaded_at_ms integer,
  upstream_name text,
  ended_names text not null,
  creates integer not null,
  refusals integer not null default 0,
  refused_since_ms integer,
  sent_at_ms integer,
  state text,
  said text,
  failure text,
  results integer not null,
  created_at_ms integer not null,
  failures integer not null,
  polled_at_ms integer,
  missing_since_ms integer,
  gone text,
  stop_asked_at_ms integer,
  is_stop_told integer not null,
  ended_at_ms integer,
  closed_at_ms integer
);
create index upstream_jobs_by_batch on upstream_jobs (batch_id);
create index upstream_jobs_by_step on upstream_jobs (step);

create table files (
  seq serial,
  api_key_id text not null references api_keys (id),
  id text not null,
  display_name text,
  mime_type text not null,
  purpose text,
  size_bytes integer not null,
  sha256 text not null,
  blob_key text not null unique,
  created_at_ms integer not null,
  expires_at_ms integer not null,
  constraint files_of_key unique (api_key_id, id)
);
create index files_by_expiry on files (expires_at_ms);

create table uploads (
  id text primary key,
  api_key_id text not null,
  facts text not null,
  announced_bytes integer,
  received_bytes integer not null,
  parts text not null,
  file_id text,
  touched_at_ms integer not null
);
create index uploads_by_key on uploads (api_key_id);

create table realtime_holds (
  id text primary key,
  api_key_id text not null references api_keys (id),
  account_id text not null references accounts (id),
  amount_micro_usd integer not null check (amount_micro_usd >= 0),
  created_at_ms integer not null,
  worker text not null,
  lost_calls text
);

create table keyed_requests (
  api_key_id text not null references api_keys (id),
  key text not null,
  fingerprint text not null,
  realtime_id text not null,
  paid_runs integer not null,
  tasks text not null default '{}',
  answer text,
  expires_at_ms integer not null,
  constraint keyed_request primary key (api_key_id, key)
);
create index keyed_requests_by_expiry on keyed_requests (expires_at_ms);

create table usage_records (
  seq serial,
  realtime_id text not null,
  image_index integer not null,
  api_key_id text not null references api_keys (id),
  account_id text not null references accounts (id),
  model text not null,
  executed_model text not null,
  provider text not null,
  size text not null,
  ratio text not null,
  mime_type text not null,
  width_px integer not null,
  height_px integer not null,
  size_bytes integer not null,
  amount_micro_usd integer not null check (amount_micro_usd >= 0),
  created_at_ms integer not null,
  constraint usage_image unique (realtime_id, image_index)
);
create index usage_by_account on usage_records (account_id, seq);

create table linked_images (
  seq serial,
  id text not null unique,
  mime_type text not null,
  size_bytes integer not null,
  expires_at_ms integer not null
);
create index linked_images_by_expiry on linked_images (expires_at_ms);

create table interactions (
  seq serial,
  id text not null unique,
  api_key_id text not null references api_keys (id),
  api text not null,
  status text not null,
  previous_id text,
  input text not null,
  answer text not null,
  pictures text not null,
  worker text,
  created_at_ms integer not null,
  expires_at_ms integer not null
);
create index interactions_by_expiry on interactions (expires_at_ms);

-- Not worth a write to the log: after a crash the counts begin anew.
create unlogged table request_counts (
  api_key_id text not null,
  second integer not null,
  count integer not null,
  constraint request_counts_key primary key (api_key_id, second)
);

create table timed_secrets (
  id text primary key,
  kind text not null,
  api_key_id text not null,
  batch_id text,
  expires_at_ms integer not null
);
create index timed_secrets_by_key on timed_secrets (kind, api_key_id);

create table workers (
  id text primary key,
  role text not null,
  version text not null,
  providers text not null,
  is_paused integer not null,
  seen_at_ms integer not null
);

create table provider_calls (
  from_ms integer not null,
  provider text not null,
  model text not null,
  requests integer not null default 0,
  images integer not null default 0,
  errors integer not null default 0,
  maybe_paid_twice integer not null default 0,
  billed_micro_usd integer not null default 0,
  cost_micro_usd integer not null default 0,
  unreported_micro_usd integer not null default 0,
  input_tokens integer not null default 0,
  output_tokens integer not null default 0,
  last_success_ms integer,
  constraint provider_calls_key primary key (from_ms, provider, model)
);

create table retention_time (
  id integer primary key,
  seen_ms integer not null,
  paused_until_ms integer not null,
  served_ms integer not null
);

create table database_identity (
  id text primary key
);

`;

/** The statements that make all tables in an empty database. */
export function foundation(dialect: "sqlite" | "postgres"): string[] {
  return TABLES.replace(/^ *--.*\n/gm, "")
    .replace(/\b(serial|unlogged|integer|text)\b/g, (word) => TYPES[dialect][word] ?? word)
    .split(/;\n+/)
    .filter((statement) => statement.trim() !== "");
}

/** Returns the names of the columns of each table, in their order, without the numbers that the database gives. */
export function columnsOfTables(): Map<string, string[]> {
  const tables = TABLES.matchAll(/^create (?:unlogged )?table (\w+) \(\n([^;]+)\n\);/gm);
  const namesIn = (columns: string) =>
    Array.from(columns.matchAll(/^ {2}"?(\w+)"? (?:integer|text)\b/gm), ([, name]) => name as string);
  return new Map(Array.from(tables, ([, name, columns]) => [name as string, namesIn(columns as string)]));
}

/** In PostgreSQL every integer has 64 bits, and texts are compared byte by byte, as SQLite does it. */
const TYPES: Record<"sqlite" | "postgres", Readonly<Record<string, string>>> = {
  sqlite: { serial: "integer primary key autoincrement", unlogged: "" },
  postgres: {
    serial: "bigint primary key generated by default as identity",
    integer: "bigint",
    text: 'text collate "C"',
  },
};

/** The row of `schema_migrations` for the tables of `foundation`. */
const FOUNDATION = "0.1.0-2";
/** The first steps of programs before the release of 0.1.0. */
const BEFORE = ["001-foundation", "foundation", "0.1.0"];

/** Fixed id of the advisory lock, unlike that of any other program in the same database. */
const LOCK = 5_104_391_287;

/**
 * Makes all tables in an empty database, in one transaction. Throws `INVALID_CONFIG` for a database of a newer version,
 * unless all that is newer in it is additive, and `EARLIER_VERSION` for one from before 0.1.0: its batches must not be
 * taken for unknown, and paid again.
 */
export function migrate(database: SqlDatabase): Promise<void> {
  return database.transaction(async (session) => {
    // Processes that start at the same time make the tables one after the other.
    if (session.dialect === "postgres")
      await session.run(written(session, sql`select pg_advisory_xact_lock(${LOCK})`));
    const steps = await stepsOf(session);
    if (steps === null) return makeTables(session);
    if (steps.some(({ name }) => BEFORE.includes(name))) throw fromBefore();
    const unknown = steps.filter(({ name, isAdditive }) => name !== FOUNDATION && isAdditive !== true);
    if (unknown.length === 0) return;
    const names = unknown.map(({ name }) => name).join(", ");
    throw new ImgbatchError("INVALID_CONFIG", `The database was written by a newer version (${names}).`);
  });
}

/** The steps that a database has. Null for a database without tables of ours. */
async function stepsOf(session: SqlSession): Promise<{ name: string; isAdditive?: boolean }[] | null> {
  const tables =
    session.dialect === "postgres"
      ? sql<object>`select 1 from pg_tables where schemaname = current_schema() and tablename = 'schema_migrations'`
      : sql<object>`select 1 from sqlite_master where type = 'table' and name = 'schema_migrations'`;
  if ((await session.first(written(session, tables))) === null) return null;
  return session.all(session.build.selectFrom("schema_migrations").selectAll());
}

async function makeTables(session: SqlSession): Promise<void> {
  for (const statement of foundation(session.dialect))
    await session.run(written(session, sql.raw(statement)));
  const { build } = session;
  await session.run(build.insertInto("schema_migrations").values({ name: FOUNDATION }));
  const id = randomBytes(6).toString("hex");
  await session.run(build.insertInto("database_identity").values({ id }));
}

function fromBefore(): ImgbatchError {
  const message = "The database was made by a version before 0.1.0, which this one cannot read.";
  const advice =
    "finish its batches with the version that made it; then name another data directory (--data) or database, or move this one away";
  return new ImgbatchError("EARLIER_VERSION", message, { advice });
}
