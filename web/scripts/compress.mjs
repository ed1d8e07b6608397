// Writes a compressed `.br` and `.gz` copy beside each file of the build, where that is smaller. The server sends the copy that
// the browser accepts.
import { readdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { brotliCompressSync, constants, gzipSync } from "node:zlib";

const dist = new URL("../dist/", import.meta.url).pathname;
/** Smaller files are not worth compressing. */
const MIN_BYTES = 512;

for (const entry of readdirSync(dist, { recursive: true, withFileTypes: true })) {
  if (!entry.isFile() || !/\.(html|js|css|svg)$/.test(entry.name)) continue;
  const path = join(entry.parentPath, entry.name);
  const bytes = readFileSync(path);
  if (bytes.length < MIN_BYTES) continue;
  const brotli = { params: { [constants.BROTLI_PARAM_QUALITY]: 11, [constants.BROTLI_PARAM_SIZE_HINT]: bytes.length } };
  for (const [ending, smaller] of [["br", brotliCompressSync(bytes, brotli)], ["gz", gzipSync(bytes, { level: 9 })]]) {
    if (smaller.length < bytes.length) writeFileSync(`${path}.${ending}`, smaller);
  }
}
