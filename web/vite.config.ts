import { svelte } from "@sveltejs/vite-plugin-svelte";
import { loadEnv } from "vite";
import { defineConfig } from "vitest/config";

/** Where `npm run dev` finds a server: `PARLOR=127.0.0.1:PORT npm run dev`. */
const server = loadEnv("", ".", "PARLOR")["PARLOR"] ?? "127.0.0.1:18790";
const forward = { target: `http://${server}`, ws: true, changeOrigin: true };

export default defineConfig({
  plugins: [svelte()],
  build: {
    target: "es2022",
    // The policy of the page allows no `data:` scripts and styles, and hashed files are cached for good.
    assetsInlineLimit: 0,
    modulePreload: { polyfill: false },
  },
  server: { proxy: { "/api": forward, "/supr": forward } },
  test: { include: ["src/**/*.test.ts"] },
});
