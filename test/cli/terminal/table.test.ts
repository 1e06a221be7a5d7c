import { expect, it } from "vitest";
import { type Column, tableLines, widest } from "../../../src/cli/output/table.ts";

interface Row {
  id: string;
  count: number;
}

const columns = (maxWidth?: number): Column<Row>[] => [
  { title: "ID", ...(maxWidth === undefined ? {} : { maxWidth }), of: ({ id }) => id },
  { title: "N", align: "right", of: ({ count }) => String(count) },
];

it("columns align by terminal cells, in which wide characters take two", () => {
  const rows = [
    { id: "猫と犬", count: 1 },
    { id: "cafe\u0301", count: 20 },
    { id: "fox", count: 300 },
  ];
  expect(tableLines(columns(), rows)).toEqual([
    "ID        N",
    "猫と犬    1",
    "cafe\u0301     20",
    "fox     300",
  ]);
  expect(widest(tableLines(columns(), rows))).toBe(11);
});

it("a value that is too wide ends in an ellipsis and keeps the width, escapes included", () => {
  const rows = [
    { id: "猫と犬", count: 1 },
    { id: "a\x1b[31mb", count: 2 },
    { id: "fox", count: 3 },
  ];
  expect(tableLines(columns(5), rows)).toEqual(["ID     N", "猫と…  1", "a\\x1…  2", "fox    3"]);
});
