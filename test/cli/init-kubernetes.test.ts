import { readFile } from "node:fs/promises";
import { createRequire } from "node:module";
import { dirname, join } from "node:path";
import { describe, expect, it } from "vitest";
import { parseConfig } from "../../src/config/load.ts";
import { storagePlaces } from "../../src/config/storage-places.ts";
import { readStorageEnvironment } from "../../src/environment.ts";
import { parseDuration } from "../../src/kernel/durations.ts";
import { runInProcess } from "../support/cli-in-process.ts";
import { BIN } from "../support/processes.ts";
import { startTestService } from "../support/service.ts";
import { tempDir } from "../support/temp-dir.ts";

const require = createRequire(import.meta.url);
/** The YAML library of the OpenAPI validator. */
const yaml = createRequire(import.meta.resolve("@seriousme/openapi-schema-validator"))("yaml");

interface Labelled {
  metadata: { name: string; labels: Record<string, string> };
}

interface Container {
  args: string[];
  envFrom: { secretRef: { name: string } }[];
  securityContext: object;
  volumeMounts: { mountPath: string; readOnly?: boolean }[];
  [probe: `${string}Probe`]: { httpGet: { path: string }; timeoutSeconds?: number };
}

interface Manifest extends Labelled {
  kind: string;
  apiVersion: string;
  data: Record<string, string>;
  spec: {
    selector: { matchLabels?: Record<string, string> } & Record<string, unknown>;
    template: Pick<Labelled, "metadata"> & {
      spec: { terminationGracePeriodSeconds: number; securityContext: object; containers: Container[] };
    };
    scaleTargetRef: { name: string };
    triggers: { metadata: { query: string } }[];
  };
}

/** The files that `imgbatch init --template kubernetes` writes, and what it says. */
async function written() {
  const dir = await tempDir();
  const { stderr } = await runInProcess(["init", dir, "--template", "kubernetes"], { cwd: dir });
  const read = async (name: string): Promise<Manifest[]> => {
    const documents = yaml.parseAllDocuments(await readFile(join(dir, "kubernetes", name), "utf8"));
    return documents.map((document: { toJS(): Manifest }) => document.toJS());
  };
  return { stderr, core: await read("imgbatch.yaml"), scaling: await read("scaling.yaml") };
}

/** The validators of each kind, compiled from the schemas of Kubernetes and of KEDA. */
const SCHEMAS: Record<string, string> = {
  ConfigMap: "kubernetes-models/IoK8sApiCoreV1ConfigMap",
  ServiceAccount: "kubernetes-models/IoK8sApiCoreV1ServiceAccount",
  Service: "kubernetes-models/IoK8sApiCoreV1Service",
  Deployment: "kubernetes-models/IoK8sApiAppsV1Deployment",
  PodDisruptionBudget: "kubernetes-models/IoK8sApiPolicyV1PodDisruptionBudget",
  ScaledObject: "@kubernetes-models/keda/KedaShV1alpha1ScaledObject",
};

/** What is wrong with an object of Kubernetes: values of the wrong type, and fields that its schema does not know. */
function faultsOf(manifest: Manifest): string[] {
  const [, name = "", schema = ""] = /^(.*)\/(.*)$/.exec(SCHEMAS[manifest.kind] ?? "") ?? [];
  const { validate } = require(join(dirname(require.resolve(`${name}/package.json`)), "_schemas", schema));
  const unread = new Set<string>();
  if (!validate(watched(manifest, manifest.kind, unread)))
    return validate.errors.map((error: { instancePath: string; message?: string; keyword: string }) =>
      [error.instancePath, error.message ?? error.keyword].join(" "),
    );
  return [...unread].map((path) => `${path} is not known`);
}

/** The validators read every field that they know, and let the others pass: those stay in `unread`. */
function watched<T>(value: T, path: string, unread: Set<string>): T {
  if (typeof value !== "object" || value === null) return value;
  const pathOf = (name: string) => `${path}.${name}`;
  for (const name of Object.keys(value)) unread.add(pathOf(name));
  const fields = new Map<string, unknown>();
  return new Proxy(value, {
    get: (object, name) => {
      if (typeof name !== "string" || !Object.hasOwn(object, name)) return Reflect.get(object, name);
      unread.delete(pathOf(name));
      if (!fields.has(name)) fields.set(name, watched(Reflect.get(object, name), pathOf(name), unread));
      return fields.get(name);
    },
  });
}

const isPartOf = (part: object, whole: object) =>
  Object.entries(part).every(([name, value]) => (whole as Record<string, unknown>)[name] === value);

describe("the manifests for Kubernetes", () => {
  it("[K8S-1] fit the schemas of Kubernetes and of KEDA, and have no field that these do not know", async () => {
    const { core, scaling } = await written();
    for (const manifest of [...core, ...scaling]) expect(faultsOf(manifest)).toEqual([]);
    const [deployment] = core.filter(({ kind }) => kind === "Deployment");
    const wrong = structuredClone(deployment) as Manifest & { spec: Record<string, unknown> };
    Object.assign(wrong.spec, { minReadySecond: 1 });
    expect(faultsOf(wrong)).toEqual(["Deployment.spec.minReadySecond is not known"]);
    Object.assign(wrong.spec, { replicas: "2" });
    expect(faultsOf(wrong)).toEqual([expect.stringContaining("/spec/replicas")]);
  });

  it("[K8S-1] are about each other: selectors find their pods, and workers are what is scaled", async () => {
    const { core, scaling } = await written();
    const pods = core.flatMap(({ kind, spec }) =>
      kind === "Deployment" ? [spec.template.metadata.labels] : [],
    );
    const selectors = core.flatMap(({ spec }) =>
      spec === undefined ? [] : [spec.selector.matchLabels ?? spec.selector],
    );
    expect(selectors).toHaveLength(5);
    for (const selector of selectors)
      expect(pods.filter((labels) => isPartOf(selector, labels))).toHaveLength(1);
    expect(scaling.map(({ spec }) => spec.scaleTargetRef.name)).toEqual(["imgbatch-worker"]);
  });

  it("[K8S-1] start the program as it is: roles, configuration, secrets, places, probes and time to stop", async () => {
    const { core } = await written();
    const find = (kind: string) => core.filter((manifest) => manifest.kind === kind);
    const [config] = find("ConfigMap");
    const { storage, features, server } = parseConfig(
      parsedConfig(config?.data["imgbatch.config.json"] ?? ""),
      "imgbatch.yaml",
    );
    expect([features.acceptWithoutWorkers, server.host]).toEqual([true, "0.0.0.0"]);
    const secrets = { PGPASSWORD: "secret of nobody" };
    const places = storagePlaces(storage, {}, readStorageEnvironment(secrets));
    expect([places.database.kind, places.blobs.kind]).toEqual(["postgres", "s3"]);
    const service = await startTestService();
    for (const [role, readyPath] of [
      ["api", "/readyz"],
      ["worker", "/readyz?for=work"],
    ] as const) {
      const deployment = find("Deployment").find(({ metadata }) => metadata.name === `imgbatch-${role}`);
      const { containers, terminationGracePeriodSeconds, securityContext } =
        deployment?.spec.template.spec ?? {};
      const [container] = containers ?? [];
      const args = container?.args ?? [];
      expect(args.slice(0, 3)).toEqual(["serve", "--role", role]);
      expect(container?.envFrom).toEqual([{ secretRef: { name: "imgbatch-secrets" } }]);
      expect(container?.readinessProbe?.httpGet.path).toBe(readyPath);
      // An answer comes after three seconds at the latest.
      expect(container?.readinessProbe?.timeoutSeconds).toBeGreaterThan(3);
      expect(container?.livenessProbe?.httpGet.path).toBe("/healthz");
      for (const probe of ["startupProbe", "livenessProbe", "readinessProbe"] as const)
        expect((await fetch(service.url + container?.[probe]?.httpGet.path)).status).toBe(200);
      const graceMs = parseDuration(args[args.indexOf("--grace") + 1] ?? "") ?? 0;
      // The longest request to an upstream takes 300 s, unless the configuration says otherwise.
      expect((terminationGracePeriodSeconds ?? 0) * 1000).toBeGreaterThan(graceMs + 300_000);
      expect(securityContext).toMatchObject({ runAsNonRoot: true });
      expect(container?.securityContext).toMatchObject({ readOnlyRootFilesystem: true });
      expect(container?.volumeMounts.filter(({ readOnly }) => readOnly !== true)).toMatchObject([
        { mountPath: "/data" },
        { mountPath: "/tmp" },
      ]);
    }
  });

  it("[K8S-1] scale by numbers that the service has", async () => {
    const { scaling } = await written();
    const { url } = await startTestService();
    const metrics = await (await fetch(`${url}/metrics`)).text();
    const names = scaling.flatMap(({ spec }) =>
      spec.triggers.flatMap(({ metadata }) => metadata.query.match(/imgbatch_\w+/g) ?? []),
    );
    expect(names).toEqual(["imgbatch_items_pending", "imgbatch_batches"]);
    for (const name of names) expect(metrics).toContain(`# TYPE ${name} gauge`);
  });

  it("come with the commands of the recipe", async () => {
    const { stderr } = await written();
    const recipe = await readFile(join(dirname(BIN), "../templates/README.md"), "utf8");
    const next = [...stderr.matchAll(/^ {2}(?!cd)(.*)$/gm)].map(([, command = ""]) => command);
    expect(next).toHaveLength(7);
    const above = dirname(dirname(BIN));
    const lines = next.map((line) => line.replace(above, "..").replace(/(imgbatch):\d.*$/, "$1:1"));
    expect(recipe.split("\n")).toEqual(expect.arrayContaining(lines));
  });
});

/** Comments are allowed in the file of the configuration. */
function parsedConfig(text: string): unknown {
  return JSON.parse(text.replaceAll(/^\s*\/\/.*$/gm, ""));
}
