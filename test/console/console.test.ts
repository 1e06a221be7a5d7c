import { createHash } from "node:crypto";
import { readFile } from "node:fs/promises";
import type { Page } from "playwright-core";
import { describe, expect, it } from "vitest";
import { ProviderError } from "../../src/domain/ports/image-provider.ts";
import {
  closeBrowserAtEnd,
  dropFiles,
  findBarriers,
  openConsole,
  openPage,
  overflowOf,
} from "../support/browser.ts";
import { CHROMIUM } from "../support/chromium.ts";
import { FakeProvider, FakeUpstream, made, tinyPng } from "../support/fake-provider.ts";
import { gate } from "../support/gate.ts";
import { items, MODEL, otherKey, startTestService, type TestService } from "../support/service.ts";
import { readZip } from "../support/zip.ts";

const sha256 = (bytes: Buffer) => createHash("sha256").update(bytes).digest("hex");

/** A provider that fails prompts with `bad` in them as long as `isBad` says so, and refuses those with `refused`. */
function moody(isBad = () => true): FakeProvider {
  const provider = new FakeProvider();
  provider.answer = async ({ prompt }) => {
    if (prompt.includes("refused")) throw new ProviderError("SAFETY_BLOCKED", "refused");
    if (prompt.includes("bad") && isBad())
      throw new ProviderError("PROVIDER_ITEM_FAILED", `no <i>${prompt}</i>`, { retryable: false });
    return made(await tinyPng(prompt.length));
  };
  return provider;
}

let lastPort = 0;

/** A service on the port of the one before it, for which the browser has compiled the scripts, unless that was taken. */
async function startService(options: Parameters<typeof startTestService>[0]): Promise<TestService> {
  const service = await startTestService({ ...options, port: lastPort }).catch((error) => {
    if (error.code === "ADDRESS_IN_USE") return startTestService(options);
    throw error;
  });
  lastPort = Number(new URL(service.url).port);
  return service;
}

/** Opens a place of the console by its address. */
async function goTo(page: Page, service: TestService, place: string): Promise<void> {
  await page.goto(`${service.url}/#/${place}`);
}

const shownText = (page: Page, selector: string) => page.locator(selector).allInnerTexts();

describe.skipIf(CHROMIUM === null)("the web console in Chromium", { timeout: 120_000 }, () => {
  closeBrowserAtEnd();

  it("a code leaves the address at once; signing out ends the session in the page and at the service", async () => {
    const service = await startService({ providers: [moody()] });
    const page = await openConsole(service);
    expect(page.url()).toBe(`${service.url}/`);
    const { token } = JSON.parse(await page.evaluate("sessionStorage['imgbatch.session']"));
    await page.getByRole("heading", { name: "No batches yet" }).waitFor();
    await page.reload();
    await page.getByRole("heading", { name: "No batches yet" }).waitFor();
    await page.getByRole("button", { name: "Sign out" }).click();
    await page.getByLabel("API key").waitFor();
    expect(await page.evaluate("sessionStorage.length + localStorage.length")).toBe(0);
    const headers = { authorization: `Bearer ${token}` };
    expect((await fetch(`${service.url}/v1/account`, { headers })).status).toBe(401);

    await page.getByLabel("API key").fill("imgb_wrong");
    await page.getByRole("button", { name: "Sign in" }).click();
    expect(await page.getByRole("alert").innerText()).toMatch(/\. INVALID_API_KEY$/);
    await page.getByLabel("API key").fill(service.credentials.api_key);
    await page.getByRole("button", { name: "Sign in" }).click();
    await page.getByRole("heading", { name: "No batches yet" }).waitFor();
    expect(await page.evaluate("JSON.stringify({ ...sessionStorage, ...localStorage })")).not.toContain(
      service.credentials.api_key,
    );
  });

  it("when the service ends the session, the page asks to sign in again, and keeps the draft", async () => {
    const service = await startService({ providers: [moody()] });
    const page = await openConsole(service);
    await goTo(page, service, "new");
    await page.getByRole("textbox", { name: "Prompts" }).fill("a fox");
    const { token } = JSON.parse(await page.evaluate("sessionStorage['imgbatch.session']"));
    const headers = { authorization: `Bearer ${token}` };
    expect((await fetch(`${service.url}/v1/console/session`, { method: "DELETE", headers })).status).toBe(
      204,
    );
    await goTo(page, service, "money");
    await page.getByText("The session has ended.").waitFor();
    await goTo(page, service, "new");
    await page.getByLabel("API key").fill(service.credentials.api_key);
    await page.getByRole("button", { name: "Sign in" }).click();
    await page.getByText("1 image", { exact: true }).waitFor();
    expect(await page.getByRole("textbox", { name: "Prompts" }).inputValue()).toBe("a fox");
  });

  it("[CONSOLE-12] a dropped file is told its problems by line, mended in the page, priced, sent, watched and seen", async () => {
    const service = await startService({ providers: [moody()] });
    const page = await openConsole(service);
    await goTo(page, service, "new");
    const lines = [
      '{"custom_id":"a","prompt":"a fox"}',
      '{"promt":"an owl"}',
      '{"prompt":"bad","output_count":9}',
    ];
    await dropFiles(page, ".drop", { "animals.jsonl": lines.join("\n") });
    await page.getByRole("heading", { name: "3 problems in the prompts" }).waitFor();
    expect(await shownText(page, ".problems li")).toEqual([
      "line 2\npromt: is not a known field; did you mean prompt?",
      "line 2\nprompt: is missing; say what the image shows",
      "line 3\noutput_count: must be a whole number from 1 to 4, not 9",
    ]);
    const send = page.getByRole("button", { name: "Make the images" });
    expect(await send.isDisabled()).toBe(true);
    await page.getByRole("button", { name: "line 3" }).click();
    expect(await page.evaluate("getSelection().toString()")).toBe(lines[2]);

    const mended = [lines[0], '{"prompt":"an owl","reference_images":["start.png"]}', '{"prompt":"bad one"}'];
    await page.getByRole("textbox", { name: "Prompts" }).fill(mended.join("\n"));
    await page.getByText("start.png is not among the reference images below; add it there").waitFor();
    await dropFiles(page, ".drop", { "start.png": await tinyPng(9) });
    await page.getByText("3 images", { exact: true }).waitFor();
    expect(await page.locator(".price b").innerText()).toBe("drawn, free of charge");
    expect(await findBarriers(page)).toEqual([]);
    await send.click();

    await page.getByRole("heading", { name: "animals", level: 1 }).waitFor();
    await page.locator(".batch-line").getByText("completed").waitFor();
    await page.locator(".tile img").nth(1).waitFor();
    expect(await shownText(page, ".tile-text")).toEqual([
      "a\na fox",
      "item_000002\nan owl",
      "item_000003\nPROVIDER_ITEM_FAILED",
    ]);
    expect(await page.locator(".tile-error").innerText()).toBe("no <i>bad one</i>");
    const [batch] = (await (await service.ask("")).json()).data;
    expect(batch).toMatchObject({ task_name: "animals", item_count: 3, success_count: 2, fail_count: 1 });

    await page.locator(".tile-open").first().click();
    const large = page.getByRole("dialog");
    await large.locator(".stage img").waitFor();
    await page.keyboard.press("ArrowRight");
    await large.getByRole("heading", { name: "item_000002" }).waitFor();
    await large.getByRole("img", { name: "reference 1" }).waitFor();
    await large.getByRole("button", { name: "Copy prompt" }).click();
    await large.getByRole("status").getByText("The prompt is copied.").waitFor();
    const naturalWidth = "document.querySelector('.panel-references img').naturalWidth";
    await expect.poll(() => page.evaluate(naturalWidth)).toBe(8);
    expect(await findBarriers(page)).toEqual([]);
  });

  it("[CONSOLE-13] lists make the product of their values, and options of the form hold for lines without their own", async () => {
    const provider = new FakeProvider();
    const service = await startService({ providers: [provider] });
    const page = await openConsole(service);
    await goTo(page, service, "new");
    const line = {
      prompt: "a {{animal}} in {{season}}",
      vars: { animal: ["fox", "owl"], season: "@seasons.txt" },
    };
    const lines = [line, { custom_id: "own", prompt: "a cat", seed: 3, quality: "low" }];
    await dropFiles(page, ".drop", { "animals.jsonl": lines.map((each) => JSON.stringify(each)).join("\n") });
    await page.getByText("vars.season: seasons.txt is not here; drop it on this page").waitFor();
    await dropFiles(page, ".drop", { "seasons.txt": "winter\nsummer\n" });
    await page.getByText("2 lines with their variables make 5 images").waitFor();
    await page.getByLabel("Quality").selectOption("high");
    await page.getByLabel("Ratio").selectOption("16:9");
    await page.getByLabel("Seed").fill("x");
    await page.getByRole("heading", { name: "1 problem in the prompts" }).waitFor();
    await page.getByLabel("Seed").fill("7");
    expect(await findBarriers(page)).toEqual([]);
    await page.getByRole("button", { name: "Make the images" }).click();
    await page.locator(".tile img").nth(4).waitFor();
    const asked = provider.requests.map(({ prompt, options }) => [
      prompt,
      options.ratio,
      options.quality,
      options.seed,
    ]);
    expect(asked.sort()).toEqual([
      ["a cat", "16:9", "low", 3],
      ["a fox in summer", "16:9", "high", 7],
      ["a fox in winter", "16:9", "high", 7],
      ["a owl in summer", "16:9", "high", 7],
      ["a owl in winter", "16:9", "high", 7],
    ]);
    const [batch] = (await (await service.ask("")).json()).data;
    expect((await service.items(batch.id)).map(({ custom_id }) => custom_id)).toEqual([
      "1-fox-winter",
      "1-fox-summer",
      "1-owl-winter",
      "1-owl-summer",
      "own",
    ]);
  });

  it("[CONSOLE-14] a prompt in several qualities is a row, and an image begins another batch with its prompt and options", async () => {
    const provider = new FakeProvider();
    const service = await startService({ providers: [provider] });
    const both = (prompt: string) => ["low", "high"].map((quality) => ({ prompt, options: { quality } }));
    const { id } = await service.submit({ model: MODEL, items: [...both("a fox"), ...both("an owl")] });
    await service.until(id);
    const page = await openConsole(service);
    await goTo(page, service, `batches/${id}`);
    await page.locator(".tile img").nth(3).waitFor();
    expect(await shownText(page, ".row-head")).toEqual(["a fox", "an owl"]);
    expect(await shownText(page, ".tile-id")).toEqual(["low", "high", "low", "high"]);
    for (const facts of await shownText(page, ".tile-facts")) expect(facts).toMatch(/^8 × 8 · \d+ m?s$/);
    expect(await findBarriers(page)).toEqual([]);
    await page.locator(".tile-open").nth(1).click();
    const large = page.getByRole("dialog");
    await large.getByText("high", { exact: true }).waitFor();
    await page.keyboard.press("e");
    const edit = page.getByRole("dialog", { name: "Edit and make" });
    await edit.getByRole("img", { name: /reference/ }).waitFor();
    expect(await edit.getByRole("textbox", { name: "Prompt", exact: true }).inputValue()).toBe("a fox");
    await edit.getByRole("textbox", { name: "Prompt", exact: true }).fill("a fox in spring");
    expect(await findBarriers(page)).toEqual([]);
    await edit.getByRole("button", { name: "Make the image" }).click();
    await edit.waitFor({ state: "detached" });
    await page.getByText("a fox in spring").waitFor();
    await page.locator(".tile img").waitFor();
    expect(provider.requests.at(-1)).toMatchObject({
      prompt: "a fox in spring",
      options: { quality: "high" },
    });
    expect(provider.requests.at(-1)?.references).toHaveLength(1);

    await page.locator(".tile-open").click();
    await page.keyboard.press("a");
    await page.getByText("The same references.").waitFor();
    await page.getByRole("button", { name: "Make the image" }).click();
    await page.getByText("The batch is sent.").waitFor();
    await expect.poll(() => provider.requests.length).toBe(6);
    expect(provider.requests.at(-1)?.options.seed).toBeGreaterThanOrEqual(0);
    expect(provider.requests.at(-1)?.references).toHaveLength(1);
  });

  it("[CONSOLE-16] two models are compared prompt by prompt, and their images go into a folder each", async () => {
    const other = "vendorx-3-pro-image";
    const service = await startService({ providers: [moody()] });
    for (const model of [MODEL, other]) {
      const prompts = ["a fox", "an owl", "bad one"].map((prompt) => ({ prompt }));
      await service.until((await service.submit({ model, task_name: "animals", items: prompts })).id);
    }
    const page = await openConsole(service);
    await page.locator("a.batch-row").nth(1).waitFor();
    await page.keyboard.press("j");
    await page.keyboard.press("x");
    await page.keyboard.press("j");
    await page.keyboard.press("x");
    await page.getByText("2 selected").waitFor();
    expect(await findBarriers(page)).toEqual([]);
    await page.keyboard.press("c");
    await page.locator(".tile img").nth(3).waitFor();
    expect(await shownText(page, ".row-head")).toEqual(["a fox", "an owl", "bad one"]);
    expect(await shownText(page, ".tile-id")).toEqual([other, MODEL, other, MODEL, other, MODEL]);
    expect(await page.locator(".batch-line .counts").innerText()).toBe("4 of 6 · 2 failed");
    expect(await findBarriers(page)).toEqual([]);
    const [download] = await Promise.all([
      page.waitForEvent("download"),
      page.getByRole("button", { name: "Download ZIP" }).click(),
    ]);
    expect(download.suggestedFilename()).toBe("animals.zip");
    const zip = await readZip(await readFile(await download.path()));
    const images = [other, MODEL].flatMap((model) => [1, 2].map((n) => `${model}/item_00000${n}.png`));
    expect([...zip.keys()]).toEqual([...images, "manifest.json"]);
    const { batches, files } = JSON.parse(String(zip.get("manifest.json")));
    const sent = (await (await service.ask("")).json()).data;
    for (const { batch_id, model } of batches)
      expect(sent).toContainEqual(expect.objectContaining({ id: batch_id, model }));
    expect(files.map((file: { filename: string }) => file.filename)).toEqual(images);
    expect(files[3]).toMatchObject({
      ...{ custom_id: "item_000002", prompt: "an owl", model: MODEL, batch_id: batches[1].batch_id },
      sha256: sha256(zip.get(images[3] ?? "") ?? Buffer.of()),
    });
    await page.locator(".tile-open").first().click();
    const large = page.getByRole("dialog", { name: "Image item_000001" });
    await large.getByText(other, { exact: true }).waitFor();
    await page.keyboard.press("j");
    await large.getByText(MODEL, { exact: true }).waitFor();

    await goTo(page, service, "batches");
    await page.locator("a.batch-row").first().click();
    await page.getByRole("link", { name: "2 batches with 2 models: show as one" }).click();
    await page.locator(".row-head").nth(2).waitFor();
  });

  it("[CONSOLE-15] the failed images are made again, and the ZIP that the browser saves has the images of the service", async () => {
    let isBad = true;
    const service = await startService({ providers: [moody(() => isBad)] });
    const { id } = await service.submit({
      model: MODEL,
      items: [
        { custom_id: "fox", prompt: "a fox" },
        { prompt: "bad one" },
        { prompt: "good one" },
        { prompt: "refused" },
      ],
    });
    await service.until(id);
    const page = await openConsole(service);
    await page.locator("a.batch-row").click();
    const [download] = await Promise.all([
      page.waitForEvent("download"),
      page.getByRole("button", { name: "Download ZIP" }).click(),
    ]);
    const zip = await readZip(await readFile(await download.path()));
    const listed = await (await service.ask(`/${id}/items?status=success&include=images`)).json();
    const hashes = listed.data.map(({ images }: { images: { sha256: string }[] }) => images[0]?.sha256);
    const saved = [...zip].filter(([name]) => name.endsWith(".png")).map(([, bytes]) => sha256(bytes));
    expect(saved.sort()).toEqual(hashes.sort());

    await page.getByLabel("Select fox").check();
    const [image] = await Promise.all([
      page.waitForEvent("download"),
      page.getByRole("button", { name: "Download 1" }).click(),
    ]);
    expect(image.suggestedFilename()).toBe("fox.png");
    expect(hashes).toContain(sha256(await readFile(await image.path())));

    isBad = false;
    await page.getByRole("button", { name: "Retry 1 of 2 failed" }).waitFor();
    const large = page.getByRole("dialog", { name: "Image item_00000" });
    await page.locator(".tile-open").nth(3).click();
    await large.getByRole("button", { name: "Copy prompt" }).waitFor();
    expect(await large.getByRole("button", { name: "Retry" }).count()).toBe(0);
    await page.keyboard.press("ArrowLeft");
    await page.keyboard.press("ArrowLeft");
    await large.getByRole("button", { name: "Retry" }).click();
    await page.getByRole("dialog", { name: "Make 1 failed image again?" }).waitFor();
    await page.keyboard.press("ArrowRight");
    await page.getByRole("button", { name: "Make again" }).click();
    await large.getByText("success").waitFor();
    await page.keyboard.press("Escape");
    await expect.poll(() => page.locator(".batch-line .counts").innerText()).toBe("3 of 4 · 1 failed");
    await page.locator(".tile img").nth(2).waitFor();
    expect(await shownText(page, ".tile-id")).toEqual(["fox", "item_000002", "item_000003", "item_000004"]);
    expect(await page.getByRole("button", { name: "Retry" }).count()).toBe(0);
    const [whole] = await Promise.all([
      page.waitForEvent("download"),
      page.getByRole("button", { name: "Download ZIP" }).click(),
    ]);
    expect([...(await readZip(await readFile(await whole.path()))).keys()]).toEqual([
      "fox.png",
      "item_000002.png",
      "item_000003.png",
      "manifest.json",
    ]);
    await page.getByText("1 retry").click();
    expect(await page.locator(".history li").count()).toBe(2);
    await page.getByRole("link", { name: "Batches" }).first().click();
    await page.getByRole("link", { name: /completed.*3 of 4/s }).waitFor();
    expect(await page.locator("a.batch-row").count()).toBe(1);
    const { data } = await (await service.ask("")).json();
    expect(data.map((batch: { parent_batch_id: string }) => batch.parent_batch_id)).toEqual([id, null]);
  });

  it("of the selected images the finished ones are saved and deleted, and the failed ones made again", async () => {
    let isBad = true;
    const service = await startService({ providers: [moody(() => isBad)] });
    const batch = ["a fox", "bad one", "good one", "bad two", "refused"];
    const { id } = await service.submit({ model: MODEL, items: batch.map((prompt) => ({ prompt })) });
    await service.until(id);
    const page = await openConsole(service);
    await goTo(page, service, `batches/${id}`);
    await page.locator(".tile img").nth(1).waitFor();
    const bar = page.getByRole("region", { name: "Selected images" });
    for (const tile of [0, 1, 4]) await page.getByRole("checkbox").nth(tile).check();
    await bar.getByText("3 selected").waitFor();
    expect(await findBarriers(page)).toEqual([]);
    await bar.getByRole("button", { name: "Delete 1" }).click();
    await page
      .getByRole("dialog", { name: "Delete 1 image?" })
      .getByRole("button", { name: "Delete" })
      .click();
    await page.locator(".tile").first().getByText("deleted").waitFor();
    await page.getByRole("dialog").waitFor({ state: "detached" });
    expect((await service.ask(`/${id}/items/item_000001/content`)).status).toBe(410);
    expect((await service.ask(`/${id}/items/item_000003/content`)).status).toBe(200);

    isBad = false;
    for (const tile of [0, 1, 4]) await page.getByRole("checkbox").nth(tile).check();
    expect(await bar.getByRole("button").allInnerTexts()).toEqual(["All", "Clear", "Retry 1"]);
    await bar.getByRole("button", { name: "Retry 1" }).click();
    await page
      .getByText("1 more was refused for what the prompt asks, and would be refused again: it is left out.")
      .waitFor();
    await page.getByRole("button", { name: "Make again" }).click();
    await page.getByText("The failed images are made again.").waitFor();
    await expect.poll(() => page.locator(".batch-line .counts").innerText()).toBe("3 of 5 · 2 failed");
  });

  it("more than one batch, or one ZIP, may hold is split by the limits of the service", async () => {
    const config = { limits: { itemsPerBatch: 3, zipItems: 2 } };
    const service = await startService({ providers: [moody()], config });
    const page = await openConsole(service);
    await goTo(page, service, "new");
    await page.getByRole("textbox", { name: "Name" }).fill("birds");
    await page.getByRole("textbox", { name: "Prompts" }).fill("an owl\na crow\na jay\na tit\na wren");
    await page.getByText("5 images in 2 batches").waitFor();
    await page.getByRole("button", { name: "Make the images" }).click();
    await page.getByRole("heading", { name: "birds", exact: true }).waitFor();
    await page.getByText("5 of 5").waitFor();
    const downloads: string[] = [];
    page.on("download", (each) => downloads.push(each.suggestedFilename()));
    await page.getByRole("button", { name: "Download 3 ZIPs" }).click();
    await expect.poll(() => downloads).toEqual([1, 2, 3].map((number) => `birds-${number}-of-3.zip`));
    downloads.length = 0;
    await page.getByRole("link", { name: "Batches" }).first().click();
    await page.getByRole("link", { name: /birds \(1 of 2\).*completed.*3 of 3/s }).click();
    const [first] = await Promise.all([
      page.waitForEvent("download"),
      page.getByRole("button", { name: "Download 2 ZIPs" }).click(),
    ]);
    const names = [...(await readZip(await readFile(await first.path()))).keys()];
    expect(names).toEqual(["item_000001.png", "item_000002.png", "manifest.json"]);
    await expect.poll(() => downloads).toEqual(["birds (1 of 2)-1-of-2.zip", "birds (1 of 2)-2-of-2.zip"]);
  });

  it("[CONSOLE-17] a column that is the same in every line becomes metadata of the batch, and the page names the others", async () => {
    const service = await startService({ providers: [moody()] });
    const page = await openConsole(service);
    await goTo(page, service, "new");
    const shop = "prompt,season,stock\na fox,winter,3\nan owl,winter,4\n";
    await dropFiles(page, ".drop", { "shop.csv": shop });
    await page.getByText("loaded shop.csv: 2 prompts").waitFor();
    await page.getByText("Metadata of the batch: season.").waitFor();
    await page.getByText(/^Not sent: stock\. .*use imgbatch submit shop\.csv/).waitFor();
    await page.getByRole("button", { name: "Make the images" }).click();
    await page.getByText("season: winter").waitFor();
    const [batch] = (await (await service.ask("")).json()).data;
    expect(batch.metadata).toEqual({ season: "winter" });
  });

  it("a file dropped anywhere is taken, by the form for a new batch if need be; any other drop is answered", async () => {
    const service = await startService({ providers: [moody()] });
    const page = await openConsole(service);
    await page.getByRole("heading", { name: "Batches", level: 1 }).waitFor();
    await dropFiles(page, "nav", { "animals.jsonl": '{"prompt":"a fox"}', "more.csv": "prompt\nan owl" });
    await page.getByText("loaded animals.jsonl: 1 prompt").waitFor();
    await page.getByText("more.csv is left out: one file of prompts at a time.").waitFor();
    expect(await page.getByRole("textbox", { name: "Prompts" }).inputValue()).toBe('{"prompt":"a fox"}');
    await dropFiles(page, "h1", { "start.png": await tinyPng(9), "notes.pdf": "%PDF-1.7" });
    await page.getByRole("button", { name: "Remove start.png" }).waitFor();
    await page.getByText(/notes\.pdf is neither prompts .* nor an image \(PNG/).waitFor();
    await dropFiles(page, "h1", {});
    await page.getByText("That is no file.").waitFor();
    const dragText = `(() => {
      const dataTransfer = new DataTransfer();
      dataTransfer.setData("text/plain", "an owl");
      const drop = new DragEvent("drop", { dataTransfer, bubbles: true, cancelable: true });
      return document.querySelector("textarea").dispatchEvent(drop);
    })()`;
    expect(await page.evaluate(dragText), "left to the browser").toBe(true);

    await page.getByRole("button", { name: "Sign out" }).click();
    await page.getByLabel("API key").waitFor();
    await dropFiles(page, "body", { "late.txt": "a late fox" });
    await page.getByText("then the form for a new batch takes what you dropped").waitFor();
    await page.getByLabel("API key").fill(service.credentials.api_key);
    await page.getByRole("button", { name: "Sign in" }).click();
    await page.getByText("late.txt").first().waitFor();
  });

  it("reference images stay while the pages change; a reload loses them, and the page says so", async () => {
    const provider = new FakeProvider();
    const service = await startService({ providers: [provider] });
    const page = await openConsole(service);
    await goTo(page, service, "new");
    await page.getByRole("textbox", { name: "Prompts" }).fill("in autumn\nin winter");
    await dropFiles(page, ".drop", { "start.png": await tinyPng(9) });
    await page.getByRole("button", { name: "Remove start.png" }).waitFor();
    await page.getByRole("link", { name: "Money", exact: true }).click();
    await page.getByRole("link", { name: "New batch" }).click();
    await page.getByRole("button", { name: "Remove start.png" }).waitFor();
    await page.reload();
    await page.getByText("The page was loaded again, and has lost 1 reference image: start.png.").waitFor();
    await page.getByText("2 images", { exact: true }).waitFor();
    const send = page.getByRole("button", { name: "Make the images" });
    expect(await send.isDisabled()).toBe(true);
    await dropFiles(page, ".drop", { "start.png": await tinyPng(9) });
    await page.getByText("has lost 1 reference image").waitFor({ state: "detached" });
    const [request] = await Promise.all([
      page.waitForRequest((each) => each.method() === "POST"),
      send.click(),
    ]);
    await page.locator(".tile img").nth(1).waitFor();
    expect(provider.requests.map(({ references }) => references.length)).toEqual([1, 1]);
    // The bytes of the picture are sent once.
    const [first, second] = request.postDataJSON().items;
    const bytes = Buffer.from(first.reference_images[0].data, "base64");
    expect(second.reference_images).toEqual([{ sha256: sha256(bytes) }]);
  });

  it("a running batch grows in the page, is cancelled and deleted there, and no other key sees it", async () => {
    const opened = gate();
    const provider = new FakeProvider();
    provider.answer = async ({ prompt }) => {
      if (prompt !== "picture 1") await opened.promise;
      return made(await tinyPng());
    };
    const service = await startService({ providers: [provider] });
    const page = await openConsole(service);
    await page.getByRole("heading", { name: "No batches yet" }).waitFor();
    const { id } = await service.submit({ model: MODEL, task_name: "slow", items: items(3) });
    await page.locator("a.batch-row").click();
    await page.locator(".tile img").waitFor();
    // The page reads the batch and its items each by itself.
    await expect.poll(() => page.locator(".batch-line .counts").innerText()).toBe("1 of 3");
    await page.getByRole("button", { name: "Cancel" }).click();
    await page.getByRole("button", { name: "Cancel the batch" }).click();
    await page.locator(".batch-line").getByText("cancelled").waitFor();
    opened.open();

    const signIn = async (key: string) => {
      await page.getByRole("button", { name: "Sign out" }).click();
      await goTo(page, service, `batches/${id}`);
      await page.getByLabel("API key").fill(key);
      await page.getByRole("button", { name: "Sign in" }).click();
    };
    const { key } = await otherKey(service);
    await signIn(key);
    await page.getByRole("heading", { name: "No such batch" }).waitFor();
    await page.getByRole("link", { name: "All batches" }).click();
    await page.getByRole("heading", { name: "No batches yet" }).waitFor();
    expect(await page.getByRole("link", { name: "Service" }).count()).toBe(0);

    await signIn(service.credentials.api_key);
    await page.getByRole("button", { name: "Delete" }).click();
    await page.getByLabel("the entry in your list").check();
    await page.getByRole("dialog").getByRole("button", { name: "Delete" }).click();
    await page.getByRole("heading", { name: "No batches yet" }).waitFor();
    expect((await service.ask(`/${id}`)).status).toBe(404);
  });

  it("names, prompts, ids and errors are shown as text, and nothing in them runs", async () => {
    const hostile = `<img src=x onerror="document.title='owned'"><script>document.title='owned'</script>`;
    const service = await startService({ providers: [moody()] });
    const id = `${hostile.replaceAll("/", "")}\u202e`;
    const { id: batchId } = await service.submit({
      model: MODEL,
      task_name: hostile,
      items: [{ custom_id: id, prompt: hostile }, { prompt: `bad ${hostile}` }],
    });
    await service.until(batchId);
    const page = await openConsole(service);
    await page.locator("a.batch-row").click();
    await page.locator(".tile img").waitFor();
    expect(await page.locator("h1").innerText()).toBe(hostile);
    expect(await shownText(page, ".tile-facts")).toEqual([hostile, "PROVIDER_ITEM_FAILED"]);
    expect(await page.locator(".tile-error").innerText()).toBe(`no <i>bad ${hostile}</i>`);
    await page.locator(".tile-open").first().click();
    await page.getByRole("dialog").locator(".stage img").waitFor();
    expect(await page.locator(".panel h2").innerText()).toBe(id);
    expect(await page.locator("main script, main img[src=x], main i").count()).toBe(0);
    expect(await page.title()).not.toContain("owned");
  });

  it("by keys alone a person walks, opens, searches, selects and goes back", async () => {
    const service = await startService({ providers: [moody()] });
    for (const name of ["first", "second"]) {
      const { id } = await service.submit({ model: MODEL, task_name: name, items: items(5) });
      await service.until(id);
    }
    const page = await openConsole(service);
    const press = (...keys: string[]) =>
      keys.reduce((all, key) => all.then(() => page.keyboard.press(key)), Promise.resolve());
    const focused = () =>
      page.evaluate("(document.activeElement.ariaLabel ?? document.activeElement.id).split(',')[0]");
    await page.locator("a.batch-row").nth(1).waitFor();
    await press("j", "j", "Enter");
    await page.getByRole("heading", { name: "first" }).waitFor();
    await page.locator(".tile img").nth(4).waitFor();
    await press("j");
    await page.locator(".tile-open:focus").waitFor();
    await press("x");
    await page.getByText("1 selected").waitFor();
    await press("Escape");
    expect(await page.getByText("1 selected").count()).toBe(0);
    await press("End", "Space", "ArrowUp", "Shift+Space");
    await page.getByText("5 selected").waitFor();
    await press("Tab", "Tab", "Tab", "Enter");
    await expect.poll(focused).toBe("main");
    await press("j");
    expect(await focused()).toBe("i1");
    await press("Enter");
    await page.getByRole("dialog").getByRole("heading", { name: "i1" }).waitFor();
    await press("j", "z");
    await page.getByRole("dialog").getByRole("heading", { name: "i2" }).waitFor();
    await page.locator(".stage.full img").waitFor();
    await press("Escape");
    await page.getByRole("dialog").waitFor({ state: "detached" });
    await expect.poll(focused).toBe("i2");
    await press("/");
    await page.keyboard.type("picture 4");
    await expect.poll(() => shownText(page, ".tile-facts")).toEqual(["picture 4"]);
    await press("Escape", "?");
    await page.getByRole("dialog", { name: "Shortcuts" }).waitFor();
    await press("Escape", "g", "m");
    await page.getByRole("heading", { name: "Money", level: 1 }).waitFor();
    await page.getByText("drawn, free of charge").first().waitFor();
    expect(await page.locator("body").innerText()).not.toContain("$");
  });

  it("one image is made, made again, and edited; a file of prompts that is dropped there opens the form with it", async () => {
    const provider = new FakeProvider();
    const service = await startService({ providers: [provider] });
    const page = await openConsole(service);
    await goTo(page, service, "image");
    await page.getByLabel("Prompt").fill("a fox");
    await page.getByLabel("Ratio").selectOption("16:9");
    await page.getByRole("button", { name: "Make the image" }).click();
    await page.locator(".shot-image").waitFor();
    await page.getByRole("button", { name: "Again" }).click();
    await page.locator(".shot-image").nth(1).waitFor();
    await page.getByRole("button", { name: "Edit this" }).first().click();
    await page.getByLabel("Prompt").fill("in autumn");
    await page.getByRole("button", { name: "Make the image" }).click();
    await page.locator(".shot-image").nth(2).waitFor();
    expect(provider.requests.map(({ prompt, references }) => [prompt, references.length])).toEqual([
      ["a fox", 0],
      ["a fox", 0],
      ["in autumn", 1],
    ]);
    expect(await findBarriers(page)).toEqual([]);

    await dropFiles(page, ".drop", { "animals.txt": "a fox\nan owl", "start.png": await tinyPng(9) });
    await page.getByRole("heading", { name: "New batch" }).waitFor();
    await page.getByText("2 images", { exact: true }).waitFor();
    expect(await page.getByRole("textbox", { name: "Prompts" }).inputValue()).toBe("a fox\nan owl");
    await page.getByRole("button", { name: "Remove start.png" }).waitFor();
  });

  it("a draft whose answer was lost is sent again, and makes one batch", async () => {
    const service = await startService({ providers: [moody()] });
    const page = await openConsole(service);
    await goTo(page, service, "new");
    await page.getByRole("textbox", { name: "Prompts" }).fill("a fox\nan owl");
    await page.route("**/v1/images/batches", async (route) => {
      await route.fetch();
      await route.abort();
    });
    await page.getByRole("button", { name: "Make the images" }).click();
    await page.getByText("It is not known whether the batch was taken.").waitFor();
    await page.unroute("**/v1/images/batches");
    await page.reload();
    await page.getByText("2 images").waitFor();
    await page.getByRole("button", { name: "Make the images" }).click();
    await page.locator(".tile img").nth(1).waitFor();
    expect((await (await service.ask("")).json()).data).toHaveLength(1);
  });

  it("images that cost real money are made after a consent to their sum, in a batch and at once", async () => {
    const service = await startService({ providers: [new FakeUpstream("paid")] });
    const page = await openConsole(service);
    await goTo(page, service, "new");
    await page.getByRole("textbox", { name: "Name" }).fill("trio");
    await page.getByRole("textbox", { name: "Prompts" }).fill("a fox\nan owl\na cat");
    await page.getByRole("button", { name: "Pay up to $0.13" }).click();
    await page.locator(".tile img").nth(2).waitFor();
    await goTo(page, service, "image");
    await page.getByLabel("Prompt").fill("a fox");
    await page.getByRole("button", { name: "Pay up to $0.07" }).click();
    await page.locator(".shot-image").waitFor();
    await goTo(page, service, "money");
    await expect.poll(() => page.locator(".large-sum").innerText()).toBe("$0.17");
    // The person pays by consent: no balance is left to show.
    expect(await page.getByText("balance").count()).toBe(0);
    await page.getByRole("button", { name: "Movements of trio" }).click();
    expect(await shownText(page, ".movement td:nth-child(2)")).toEqual([
      "take back",
      "release",
      "capture",
      "hold",
      "grant",
    ]);
  });

  it("without events, the page asks again and again", async () => {
    const service = await startService({ providers: [moody()] });
    const page = await openPage("about:blank");
    await page.route("**/v1/events", (route) => route.abort());
    await page.goto((await service.signInLink?.()) ?? "");
    await page.getByRole("heading", { name: "No batches yet" }).waitFor();
    await service.submit({ model: MODEL, task_name: "late", items: items(2) });
    await page.getByRole("link", { name: /late.*completed/s }).waitFor();
  });

  it("tabs of one session read one stream of events, and all of them see what changes", async () => {
    const service = await startService({ providers: [moody()] });
    const first = await openConsole(service);
    await first.getByRole("heading", { name: "No batches yet" }).waitFor();
    const streams: string[] = [];
    first.context().on("request", (request) => {
      if (request.url().endsWith("/v1/events")) streams.push(request.url());
    });
    const [second] = await Promise.all([first.waitForEvent("popup"), first.evaluate("void open('./')")]);
    await second.getByRole("heading", { name: "No batches yet" }).waitFor();
    const { id } = await service.submit({ model: MODEL, task_name: "both", items: items(2) });
    for (const page of [first, second]) await page.getByRole("link", { name: /both.*completed/s }).waitFor();
    expect([streams, (await service.batch(id)).status]).toEqual([[], "completed"]);
  });

  it.each([
    { width: 390, colorScheme: "dark" },
    { width: 1280, colorScheme: "light" },
  ] as const)(
    "[CONSOLE-18] at $width pixels in $colorScheme colours no page hangs over, and nothing keeps anybody out",
    async ({ width, colorScheme }) => {
      const service = await startService({ providers: [moody()] });
      const { id } = await service.submit({
        model: MODEL,
        items: [...items(8), { prompt: `bad ${"very-long-word".repeat(30)}` }],
      });
      await service.until(id);
      const page = await openConsole(service, { viewport: { width, height: 800 }, colorScheme });
      const places: [string, string][] = [
        ["batches", ".batch-row img"],
        [`batches/${id}`, ".tile img"],
        [`batches/${id}/i1`, ".stage img"],
        ["new", ".editor"],
        ["image", "form .fields"],
        ["money", ".table tbody tr"],
        ["service", ".table tbody tr"],
      ];
      for (const [place, sign] of places) {
        await goTo(page, service, place);
        await page.locator(sign).first().waitFor();
        expect([place, await overflowOf(page), await findBarriers(page)]).toEqual([place, 0, []]);
      }
      await goTo(page, service, "new");
      await dropFiles(page, ".drop", { "owl.jsonl": '{"promt":"an owl"}' });
      await page.getByRole("button", { name: "2 problems in the prompts" }).click();
      expect([await overflowOf(page), await findBarriers(page)]).toEqual([0, []]);
    },
  );

  it("a long list of batches is shown in parts, and searched at the service", async () => {
    const service = await startService({ providers: [moody()] });
    for (let n = 1; n <= 52; n++)
      await service.submit({ model: MODEL, task_name: `batch ${n}`, items: items(1) });
    const page = await openConsole(service);
    await page.locator("a.batch-row").nth(49).waitFor();
    expect(await page.locator("a.batch-row").count()).toBe(50);
    await page.getByRole("button", { name: "Show more" }).click();
    await page.locator("a.batch-row").nth(51).waitFor();
    expect(await page.getByRole("button", { name: "Show more" }).count()).toBe(0);
    await page.getByRole("searchbox").fill("batch 1");
    await expect.poll(() => page.locator("a.batch-row").count()).toBe(11);
    await page.getByLabel("Status").selectOption("failed");
    await page.getByRole("heading", { name: "No batch like this" }).waitFor();
  });

  it("of very many images those near the window are in the page, and each can be reached", async () => {
    const service = await startService({ providers: [moody()] });
    const { id } = await service.submit({ model: MODEL, items: items(120) });
    await service.until(id);
    const page = await openConsole(service);
    await goTo(page, service, `batches/${id}`);
    await page.locator(".tile img").first().waitFor();
    expect(await page.locator(".tile").count()).toBeLessThan(60);
    const waiting = page.locator(".tile:not(:has(img))");
    await expect.poll(() => waiting.count()).toBe(0);
    const asked: string[] = [];
    page.on("request", (request) => {
      if (request.url().includes("/thumbnail")) asked.push(new URL(request.url()).pathname);
    });
    await page.reload();
    await page.locator(".tile img").first().waitFor();
    await expect.poll(() => waiting.count()).toBe(0);
    expect(asked).toEqual([`/v1/images/batches/${id}/thumbnails`]);
    await page.evaluate("scrollTo(0, document.documentElement.scrollHeight)");
    await page.getByText("picture 120", { exact: true }).waitFor();
    expect(await page.getByText("picture 1", { exact: true }).count()).toBe(0);
    expect(await page.locator(".tile").count()).toBeLessThan(60);
  });
});

if (CHROMIUM === null)
  process.stderr.write("skipped: the web console in a browser, since there is no chromium on this machine\n");
