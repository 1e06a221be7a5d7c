import type { DashboardState } from "../state/state.ts";
import { Activity } from "./activity.tsx";
import { BatchTable } from "./batch-table.tsx";
import { Footer } from "./footer.tsx";
import { Header } from "./header.tsx";
import { Rule } from "./line.tsx";
import { QueueLine } from "./queue-line.tsx";

/** The first screen: the service, batches, queue, requests, log and keys. */
export function MainScreen({ state }: { state: DashboardState }) {
  return (
    <>
      <Header state={state} />
      <Rule title="Batches" note={summary(state)} columns={state.size.columns} />
      <BatchTable state={state} />
      <QueueLine state={state} />
      <Activity state={state} />
      <Footer state={state} />
    </>
  );
}

function summary({ batches, view }: DashboardState): string {
  const rows = [...batches.values()];
  const queued = rows.filter((row) => row.status === "queued").length;
  const ended = rows.filter((row) => row.isDone).length;
  const parts = [
    `${rows.length - queued - ended} running`,
    `${queued} queued`,
    `${ended} ended`,
    `by ${view.sort}`,
  ];
  if (view.filter !== "") parts.push(`only “${view.filter}”`);
  return parts.join(" · ");
}
