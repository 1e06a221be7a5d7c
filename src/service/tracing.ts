import { beginTraces } from "../environment.ts";
import { systemClock } from "../kernel/clock.ts";
import type { Log } from "../kernel/log.ts";
import { readVersion } from "../kernel/package-file.ts";
import { setTracer, type Tracer } from "../kernel/tracing.ts";

/** An optional package: only those install it who have a collector. Its later versions need Node 22. */
const PACKAGE = "@opentelemetry/sdk-node@0.223";
/** How long an export may take, and how long a stop waits for the last one. */
const FLUSH_MS = 2000;
/** A collector that is away is reported this often at most. */
const REPORT_EVERY_MS = 10 * 60_000;

type Sdk = typeof import("@opentelemetry/sdk-node");

/**
 * Sends spans to the collector that the standard variables (`OTEL_…`) name, until it is closed. Returns null where they name
 * none. Without the package it warns once, and there are no spans. Nothing waits for a collector, except `close` for 2 s.
 */
export async function openTracing(log: Log): Promise<{ close(graceMs: number): Promise<void> } | null> {
  if (!beginTraces(FLUSH_MS)) return null;
  let sdk: Sdk;
  try {
    sdk = await import("@opentelemetry/sdk-node");
  } catch {
    const message =
      "OTEL_EXPORTER_OTLP_ENDPOINT asks for traces, but a package is missing; starting without them";
    log.warn(message, { package: PACKAGE, advice: `npm install --global ${PACKAGE}` });
    return null;
  }
  const { api, core, resources } = sdk;
  const node = new sdk.NodeSDK({
    // What the environment says comes first.
    resource: resources.resourceFromAttributes({
      "service.name": "imgbatch",
      "service.version": readVersion(),
    }),
    // The others tell command lines and users.
    resourceDetectors: [resources.envDetector],
    // Baggage of callers is not for upstreams.
    textMapPropagator: new core.W3CTraceContextPropagator(),
    metricReaders: [],
    logRecordProcessors: [],
  });
  api.diag.setLogger(reportTo(log), { logLevel: api.DiagLogLevel.ERROR, suppressOverrideMessage: true });
  node.start();
  setTracer(tracerOf(sdk));
  return {
    close: async (graceMs) => {
      setTracer(null);
      const waited = new AbortController();
      const flushed = node.shutdown().catch(() => {});
      await Promise.race([flushed, systemClock.sleep(Math.min(graceMs, FLUSH_MS), waited.signal)]).finally(
        () => waited.abort(),
      );
      for (const part of [api.trace, api.context, api.propagation, api.diag]) part.disable();
    },
  };
}

/** The SDK's own log. Its messages may quote what a collector has answered, so only their code is told. */
function reportTo(log: Log) {
  let reportedAt = Number.NEGATIVE_INFINITY;
  const error = (...said: unknown[]) => {
    if (performance.now() - reportedAt < REPORT_EVERY_MS) return;
    reportedAt = performance.now();
    const [, code = "unknown"] = /"code":"?(\w+)/.exec(said.map(String).join(" ")) ?? [];
    log.warn("traces do not reach their collector; some are lost", { code });
  };
  const ignore = () => {};
  return { error, warn: ignore, info: ignore, debug: ignore, verbose: ignore };
}

function tracerOf({ api }: Sdk): Tracer {
  const { context, propagation, trace, ROOT_CONTEXT, SpanKind, SpanStatusCode } = api;
  const source = trace.getTracer("imgbatch", readVersion());
  const kinds = { server: SpanKind.SERVER, client: SpanKind.CLIENT };
  /** Work that a request has begun may outlive it. Its span is then no parent any more. */
  const stateKey = api.createContextKey("imgbatch span");
  const running = () => {
    const active = context.active();
    const state = active.getValue(stateKey) as { isOver: boolean } | undefined;
    return state?.isOver === false ? active : ROOT_CONTEXT;
  };
  return {
    span: async (name, facts, work, { parent, startedAt, kind } = {}) => {
      const around = parent === undefined ? running() : propagation.extract(ROOT_CONTEXT, parent ?? {});
      const options = {
        attributes: facts,
        ...(kind && { kind: kinds[kind] }),
        ...(startedAt !== undefined && { startTime: startedAt }),
      };
      const span = source.startSpan(name, options, around);
      const state = { isOver: false };
      try {
        return await context.with(trace.setSpan(around, span).setValue(stateKey, state), work);
      } catch (error) {
        const { code, name: type } = error as { code?: string; name?: string };
        span.setAttribute("error.type", String(code ?? type ?? "unknown"));
        span.setStatus({ code: SpanStatusCode.ERROR });
        throw error;
      } finally {
        state.isOver = true;
        span.end();
      }
    },
    note: (facts) => void trace.getSpan(running())?.setAttributes(facts),
    headers: () => {
      const headers: Record<string, string> = {};
      propagation.inject(running(), headers);
      return headers;
    },
  };
}
