import { crc32, deflateRawSync, constants as zlib } from "node:zlib";

/** Builds images by hand that no ordinary program writes: much larger, slower or longer than their files. */

const MIB = 1024 * 1024;
const PNG_SIGNATURE = Buffer.from([0x89, 0x50, 0x4e, 0x47, 0x0d, 0x0a, 0x1a, 0x0a]);
const CHANNELS = { 0: 1, 2: 3, 3: 1, 4: 2, 6: 4 };

export function pngChunk(type, data = Buffer.alloc(0)) {
  const out = Buffer.alloc(data.length + 12);
  out.writeUInt32BE(data.length, 0);
  out.write(type, 4, "latin1");
  data.copy(out, 8);
  out.writeUInt32BE(crc32(out.subarray(4, -4)), data.length + 8);
  return out;
}

let piece;
/** This many zero bytes as a zlib stream of a thousandth of the size; made without holding them. */
export function zeros(bytes) {
  piece ??= deflateRawSync(Buffer.alloc(MIB), { level: 9, finishFlush: zlib.Z_FULL_FLUSH });
  const rest = deflateRawSync(Buffer.alloc(bytes % MIB), { level: 9 });
  const sum = Buffer.alloc(4);
  // Adler-32 of zeros: the first sum stays 1, the second counts them.
  sum.writeUInt16BE(bytes % 65_521, 0);
  sum.writeUInt16BE(1, 2);
  const pieces = Array(Math.floor(bytes / MIB)).fill(piece);
  return Buffer.concat([Buffer.from([0x78, 0x9c]), ...pieces, rest, sum]);
}

/** A whole black PNG. `extra` are chunks between its header and its data. */
export function blackPng(
  width,
  height,
  { bits = 1, color = 0, interlaced = false, extra = /** @type {Buffer[]} */ ([]) } = {},
) {
  const header = Buffer.alloc(13);
  header.writeUInt32BE(width, 0);
  header.writeUInt32BE(height, 4);
  header.set([bits, color, 0, 0, interlaced ? 1 : 0], 8);
  const row = (pixels) => Math.ceil((pixels * CHANNELS[color] * bits) / 8) + 1;
  const passes = interlaced ? ADAM7 : [[0, 0, 1, 1]];
  const bytes = passes.reduce((sum, [x, y, dx, dy]) => {
    const [across, down] = [Math.ceil((width - x) / dx), Math.ceil((height - y) / dy)];
    return across > 0 && down > 0 ? sum + row(across) * down : sum;
  }, 0);
  return Buffer.concat([
    PNG_SIGNATURE,
    pngChunk("IHDR", header),
    ...extra,
    pngChunk("IDAT", zeros(bytes)),
    pngChunk("IEND"),
  ]);
}

const ADAM7 = [
  [0, 0, 8, 8],
  [4, 0, 8, 8],
  [0, 4, 4, 8],
  [2, 0, 4, 4],
  [0, 2, 2, 4],
  [1, 0, 2, 2],
  [0, 1, 1, 2],
];

/** Chunks that hold this many zero bytes each, packed. */
export function packedChunks(type, count, bytes) {
  const head = { zTXt: "a\0\0", iTXt: "a\0\x01\0\0\0", iCCP: "a\0\0" }[type];
  const chunk = pngChunk(type, Buffer.concat([Buffer.from(head, "latin1"), zeros(bytes)]));
  return Array(count).fill(chunk);
}

/** The chunks that make an APNG of a PNG, with this many frames of one pixel. */
export function apngChunks(frames) {
  const control = Buffer.alloc(8);
  control.writeUInt32BE(frames, 0);
  const chunks = [pngChunk("acTL", control)];
  for (let i = 0; i < frames; i++) {
    const frame = Buffer.alloc(26);
    frame.writeUInt32BE(i * 2, 0);
    frame.writeUInt32BE(1, 4);
    frame.writeUInt32BE(1, 8);
    const data = Buffer.concat([Buffer.alloc(4), zeros(2)]);
    data.writeUInt32BE(i * 2 + 1, 0);
    chunks.push(pngChunk("fcTL", frame), pngChunk("fdAT", data));
  }
  return chunks;
}

function segment(marker, data) {
  const head = Buffer.from([0xff, marker, 0, 0]);
  head.writeUInt16BE(data.length + 2, 2);
  return Buffer.concat([head, data]);
}

function jpegFrame(marker, width, height, components, precision = 8) {
  const frame = Buffer.alloc(6 + components * 3);
  frame[0] = precision;
  frame.writeUInt16BE(height, 1);
  frame.writeUInt16BE(width, 3);
  frame[5] = components;
  for (let i = 0; i < components; i++) frame.set([i + 1, 0x11, 0], 6 + i * 3);
  return segment(marker, frame);
}

/** A Huffman table with one symbol, whose code is a single 0. */
function oneSymbol(kind, symbol) {
  const table = Buffer.alloc(18);
  table[0] = kind;
  table[1] = 1;
  table[17] = symbol;
  return segment(0xc4, table);
}

const QUANTIZERS = segment(0xdb, Buffer.concat([Buffer.from([0]), Buffer.alloc(64, 1)]));
const [SOI, EOI] = [Buffer.from([0xff, 0xd8]), Buffer.from([0xff, 0xd9])];

/** Bits of 0 and 1 as entropy-coded data: filled up with ones, a zero behind every 0xff. */
function coded(bits) {
  const padded = bits.padEnd(Math.ceil(bits.length / 8) * 8, "1");
  const bytes = padded.match(/.{8}/g).flatMap((byte) => {
    const value = Number.parseInt(byte, 2);
    return value === 0xff ? [0xff, 0] : [value];
  });
  return Buffer.from(bytes);
}

/** A whole progressive JPEG of grey whose scans all say the same: nothing. A scan takes a bit per 2000 blocks. */
export function manyScans(
  width,
  height,
  scans,
  { components = 1, extra = /** @type {Buffer[]} */ ([]) } = {},
) {
  const blocks = Math.ceil(width / 8) * Math.ceil(height / 8);
  const run = `0${"1".repeat(14)}`;
  const data = coded(run.repeat(Math.ceil(blocks / 32_767)));
  const scan = (i) =>
    Buffer.concat([segment(0xda, Buffer.from([1, (i % components) + 1, 0, 1, 63, 0])), data]);
  const first = (i) =>
    Buffer.concat([segment(0xda, Buffer.from([1, i + 1, 0, 0, 0, 0])), Buffer.alloc(Math.ceil(blocks / 8))]);
  const kinds = Array.from({ length: components }, (_, i) => scan(i));
  return Buffer.concat([
    SOI,
    ...extra,
    QUANTIZERS,
    jpegFrame(0xc2, width, height, components),
    oneSymbol(0x00, 0),
    oneSymbol(0x10, 0xe0),
    ...kinds.map((_, i) => first(i)),
    ...Array.from({ length: scans - components }, (_, i) => kinds[i % components]),
    EOI,
  ]);
}

/** A whole baseline JPEG whose components have scans of their own, again and again. Two bits a block. */
export function baselineScans(
  width,
  height,
  scans,
  { components = 3, restartEvery = 0, heightSaid = height } = {},
) {
  const blocks = Math.ceil(width / 8) * Math.ceil(height / 8);
  const plain = Buffer.alloc(Math.ceil(blocks / 4));
  const restarted = () => {
    const data = Buffer.alloc((restartEvery > 0 ? blocks : 0) * 3, 0xff);
    for (let i = 0; i < blocks; i++) data.set([0x3f, 0xff, 0xd0 + (i % 8)], i * 3);
    return data.subarray(0, -2);
  };
  const data = restartEvery > 0 ? restarted() : plain;
  const scan = (i) =>
    Buffer.concat([segment(0xda, Buffer.from([1, (i % components) + 1, 0, 0, 63, 0])), data]);
  const lines = Buffer.alloc(2);
  lines.writeUInt16BE(height, 0);
  return Buffer.concat([
    SOI,
    QUANTIZERS,
    jpegFrame(0xc0, width, heightSaid, components),
    oneSymbol(0x00, 0),
    oneSymbol(0x10, 0),
    ...(restartEvery > 0 ? [segment(0xdd, Buffer.from([0, restartEvery]))] : []),
    ...Array.from({ length: scans }, (_, i) => scan(i)),
    ...(heightSaid === height ? [] : [segment(0xdc, lines)]),
    EOI,
  ]);
}

/** A JPEG that begins with this many empty comments. */
export function manyComments(count) {
  return manyScans(8, 8, 1, { extra: [Buffer.alloc(count * 4, segment(0xfe, Buffer.alloc(0)))] });
}

const MANY_PICTURES = segment(
  0xe2,
  Buffer.concat([Buffer.from("MPF\0MM\0*\0\0\0\x08", "latin1"), Buffer.alloc(80)]),
);
const GAIN_MAP = segment(
  0xe1,
  Buffer.from(
    'http://ns.adobe.com/xap/1.0/\0<x:xmpmeta xmlns:x="adobe:ns:meta/"><rdf:RDF xmlns:rdf="http://www.w3.org/1999/02/22-rdf-syntax-ns#"><rdf:Description xmlns:hdrgm="http://ns.adobe.com/hdr-gain-map/1.0/" hdrgm:Version="1.0" hdrgm:GainMapMax="2" hdrgm:HDRCapacityMax="2"/></rdf:RDF></x:xmpmeta>',
  ),
);

/** A JPEG with a second one behind it, which says how to make the first one brighter (Ultra HDR). */
export function withGainMap(jpeg, map) {
  const behindStart = (picture, part) => [picture.subarray(0, 2), part, picture.subarray(2)];
  return Buffer.concat([...behindStart(jpeg, MANY_PICTURES), ...behindStart(map, GAIN_MAP)]);
}

export function riff(type, ...data) {
  const length = data.reduce((sum, part) => sum + part.length, 0);
  const head = Buffer.alloc(8);
  head.write(type, 0, "latin1");
  head.writeUInt32LE(length, 4);
  return Buffer.concat([head, ...data, Buffer.alloc(length % 2)]);
}

/** A WebP of chunks, with a canvas of this size and these flags. `image` is the chunk of a picture. */
export function extendedWebp(width, height, flags, chunks) {
  const sizes = Buffer.alloc(10);
  sizes[0] = flags;
  sizes.writeUIntLE(width - 1, 4, 3);
  sizes.writeUIntLE(height - 1, 7, 3);
  return riff("RIFF", Buffer.from("WEBP"), riff("VP8X", sizes), ...chunks);
}

/** An animation of this many frames of the same picture, a WebP, in the corner of a canvas. */
export function animation(picture, frames, canvas, frameSize = { width: 1, height: 1 }) {
  const place = Buffer.alloc(16);
  place.writeUIntLE(frameSize.width - 1, 6, 3);
  place.writeUIntLE(frameSize.height - 1, 9, 3);
  place[12] = 100;
  const frame = riff("ANMF", place, picture.subarray(12));
  return extendedWebp(canvas.width, canvas.height, 2, [
    riff("ANIM", Buffer.alloc(6)),
    ...Array(frames).fill(frame),
  ]);
}

/** Bits as bytes, the lowest first. */
class BitWriter {
  #bytes = [];
  #rest = 0;
  #count = 0;

  write(value, count) {
    for (let i = 0; i < count; i++) {
      this.#rest |= ((value >> i) & 1) << this.#count;
      if (++this.#count < 8) continue;
      this.#bytes.push(this.#rest);
      this.#rest = this.#count = 0;
    }
  }

  /** The highest bit of a code comes first. */
  code(value, count) {
    for (let i = count - 1; i >= 0; i--) this.write(value >> i, 1);
  }

  done() {
    return Buffer.from([...this.#bytes, this.#rest]);
  }
}

const LENGTH_ORDER = [17, 18, 0, 1, 2, 3, 4, 5, 16, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15];

/** Begins a code whose lengths are written with a code of these lengths: `{ symbol: bits }`. */
function lengthsCode(bits, lengths) {
  const count = Math.max(...Object.keys(lengths).map((symbol) => LENGTH_ORDER.indexOf(Number(symbol)))) + 1;
  bits.write(0, 1);
  bits.write(count - 4, 4);
  for (const symbol of LENGTH_ORDER.slice(0, count)) bits.write(lengths[symbol] ?? 0, 3);
  bits.write(0, 1);
}

/** A length, again and again, where 16 repeats it up to six times and is written as a zero. */
function repeated(bits, code, times) {
  bits.code(code, 2);
  let left = times - 1;
  for (; left >= 3; left -= Math.min(6, left)) {
    bits.write(0, 1);
    bits.write(Math.min(6, left) - 3, 2);
  }
  for (; left > 0; left--) bits.code(code, 2);
}

/**
 * A lossless WebP of one colour, whose tiles (2 ** `tile` pixels a side) have so many groups of codes. With `large`,
 * a decoder needs the most memory for each.
 */
export function codeGroups(width, height, groups, { tile = 2, large = false } = {}) {
  const bits = new BitWriter();
  const one = () => bits.write(1, 4);
  bits.write(width - 1, 14);
  bits.write(height - 1, 14);
  // No alpha, version 0, no transforms.
  bits.write(0, 5);
  bits.write(large ? 0b10111 : 0, large ? 5 : 1);
  bits.write(1, 1);
  bits.write(tile - 2, 3);
  // The image of the tiles: no cache, and green and red of eight bits each.
  bits.write(0, 1);
  for (const unused of [24, 0]) {
    lengthsCode(bits, { 0: 1, 8: 1 });
    for (let i = 0; i < 256; i++) bits.write(1, 1);
    bits.write(0, unused);
  }
  for (let i = 0; i < 3; i++) one();
  const tiles = Math.ceil(width / 2 ** tile) * Math.ceil(height / 2 ** tile);
  for (let i = 0; i < tiles; i++) {
    bits.code((i % groups) & 255, 8);
    bits.code((i % groups) >> 8, 8);
  }
  for (let i = 0; i < groups; i++) {
    if (large) {
      lengthsCode(bits, { 11: 2, 12: 2, 16: 1 });
      repeated(bits, 2, 1768);
      repeated(bits, 3, 560);
    } else one();
    for (let k = 0; k < 4; k++) one();
  }
  const pixels = Buffer.alloc(Math.ceil((width * height * (large ? 11 : 0)) / 8));
  const picture = riff("VP8L", Buffer.from([0x2f]), bits.done(), pixels);
  return riff("RIFF", Buffer.from("WEBP"), picture);
}
