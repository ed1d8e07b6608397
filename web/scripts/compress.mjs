// Puts a `.br` and a `.gz` beside each file of the build that gets smaller by it; the server chooses by what a browser takes.
import { readdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { brotliCompressSync, constants, gzipSync } from "node:zlib";

const dist = new URL("../dist/", import.meta.url).pathname;
/** Below this many bytes a header costs more than compression saves. */
const WORTH_IT = 512;

for (const entry of readdirSync(dist, { recursive: true, withFileTypes: true })) {
  if (!entry.isFile() || !/\.(html|js|css|svg)$/.test(entry.name)) continue;
  const path = join(entry.parentPath, entry.name);
  const bytes = readFileSync(path);
  if (bytes.length < WORTH_IT) continue;
  const brotli = { params: { [constants.BROTLI_PARAM_QUALITY]: 11, [constants.BROTLI_PARAM_SIZE_HINT]: bytes.length } };
  for (const [ending, smaller] of [["br", brotliCompressSync(bytes, brotli)], ["gz", gzipSync(bytes, { level: 9 })]]) {
    if (smaller.length < bytes.length) writeFileSync(`${path}.${ending}`, smaller);
  }
}
