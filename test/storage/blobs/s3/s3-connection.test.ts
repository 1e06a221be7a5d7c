import { expect, it } from "vitest";
import { bucketUrl, readPage } from "../../../../src/storage/blobs/s3/s3-connection.ts";

it("[S3-1] a bucket of Amazon's is a host, and one with dots or of another server is a path", () => {
  const region = "eu-central-1";
  expect(bucketUrl({ bucket: "pictures", region })).toBe("https://pictures.s3.eu-central-1.amazonaws.com/");
  expect(bucketUrl({ bucket: "my.pictures", region })).toBe(
    "https://s3.eu-central-1.amazonaws.com/my.pictures/",
  );
  const endpoint = "http://127.0.0.1:9000/";
  expect(bucketUrl({ bucket: "pictures", region, endpoint })).toBe("http://127.0.0.1:9000/pictures/");
});

const entry = (key: string, size = "3") =>
  `<Contents><Key>${key}</Key><LastModified>2030-01-02T03:04:05.000Z</LastModified><Size>${size}</Size><Owner><ID>Key</ID></Owner></Contents>`;
const page = (inner: string) =>
  `<?xml version="1.0"?>\n<ListBucketResult xmlns="x">${inner}</ListBucketResult>\n`;

it.each([
  ["a page of something else", "<html>sign in</html>"],
  ["half a list", page(entry("a")).slice(0, -20)],
  ["an entry without a size", page(entry("a", "many"))],
  ["more without a token", page("<IsTruncated>true</IsTruncated>")],
])("[S3-2] %s is no list", (_name, text) => {
  expect(() => readPage(text)).toThrow("cannot be read");
});
