interface Size {
  width: number;
  height: number;
}
export function pngChunk(type: string, data?: Buffer): Buffer;
export function zeros(bytes: number): Buffer;
export function blackPng(
  width: number,
  height: number,
  form?: { bits?: number; color?: number; interlaced?: boolean; extra?: readonly Buffer[] },
): Buffer;
export function packedChunks(type: "zTXt" | "iTXt" | "iCCP", count: number, bytes: number): Buffer[];
export function apngChunks(frames: number): Buffer[];
export function manyScans(
  width: number,
  height: number,
  scans: number,
  form?: { components?: number; extra?: readonly Buffer[] },
): Buffer;
export function baselineScans(
  width: number,
  height: number,
  scans: number,
  form?: { components?: number; restartEvery?: number; heightSaid?: number },
): Buffer;
export function manyComments(count: number): Buffer;
export function withGainMap(jpeg: Buffer, map: Buffer): Buffer;
export function riff(type: string, ...data: Buffer[]): Buffer;
export function extendedWebp(width: number, height: number, flags: number, chunks: readonly Buffer[]): Buffer;
export function animation(picture: Buffer, frames: number, canvas: Size, frameSize?: Size): Buffer;
export function codeGroups(
  width: number,
  height: number,
  groups: number,
  form?: { tile?: number; large?: boolean },
): Buffer;
