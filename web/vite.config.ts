import { svelte } from "@sveltejs/vite-plugin-svelte";
import { loadEnv } from "vite";
import { defineConfig } from "vitest/config";

/** The server to which `npm run dev` forwards requests: `PARLOR=127.0.0.1:PORT npm run dev`. */
const server = loadEnv("", ".", "PARLOR")["PARLOR"] ?? "127.0.0.1:18790";
const forward = { target: `http://${server}`, ws: true, changeOrigin: true };

export default defineConfig({
  plugins: [svelte()],
  build: {
    target: "es2022",
    // The Content-Security-Policy of the page forbids `data:` scripts and styles, and browsers cache hashed files forever.
    assetsInlineLimit: 0,
    modulePreload: { polyfill: false },
  },
  server: { proxy: { "/api": forward, "/supr": forward } },
  test: { include: ["src/**/*.test.ts"] },
});
