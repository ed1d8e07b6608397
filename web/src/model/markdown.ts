// Renders markdown as safe HTML, block by block: while a text grows only its last block changes, so nothing above it moves.
// HTML inside the markdown is shown as text. Images become links, because the page loads nothing from other servers.
import DOMPurify from "dompurify";
import { Marked, type Tokens } from "marked";

/** How many rendered blocks are cached. */
const MAX_CACHED_BLOCKS = 2_000;

/** A text split into blocks; the blocks joined give the text again. */
export interface SplitText {
  text: string;
  blocks: string[];
  /** The link definitions of all blocks, since any block may use a definition of another. The same object until one changes. */
  definitions: Definitions;
}

/** Link definitions by label: the markdown source, and the index of the block. */
export type Definitions = ReadonlyMap<string, { source: string; block: number }>;

/** The empty text: start `splitBlocks` with it. */
export const EMPTY_SPLIT: SplitText = { text: "", blocks: [], definitions: new Map() };

const htmlCache = new Map<string, string>();

const marked = new Marked({
  gfm: true,
  breaks: true,
  renderer: {
    html: ({ text }) => escape(text),
    image: ({ href, text }) => link(href, escape(text)),
    link({ href, tokens }) {
      return link(href, this.parser.parseInline(tokens));
    },
    code: ({ text, lang }) => codeBlock(text, (lang ?? "").split(/\s/)[0] ?? ""),
    table(token: Tokens.Table) {
      const cells = (row: Tokens.TableCell[], tag: string): string =>
        row.map((cell) => element(cell.text.trim() ? tag : "td", this.parser.parseInline(cell.tokens))).join("");
      const rows = token.rows.map((row) => `<tr>${cells(row, "td")}</tr>`).join("");
      return `<div class="table" tabindex="0" role="group" aria-label="Table"><table><thead><tr>${cells(token.header, "th")}</tr></thead><tbody>${rows}</tbody></table></div>`;
    },
    // The agent's name above each answer is an h2. All headings of the answer become h3, so that no level is skipped; CSS gives them their size.
    heading({ tokens, depth }) {
      const inner = this.parser.parseInline(tokens);
      return inner.trim() && `<h3 class="depth-${depth}">${inner}</h3>`;
    },
    checkbox: ({ checked }) => `<span class="box">${checked ? "☑" : "☐"}</span> `,
  },
});

/** Splits a text into blocks. If the text continues `before`, only the last block of `before` is parsed again. */
export function splitBlocks(text: string, before: SplitText): SplitText {
  const grows = before.blocks.length > 1 && text.startsWith(before.text);
  const stable = grows ? before.blocks.slice(0, -1) : [];
  const rest = text.slice(stable.reduce((sum, block) => sum + block.length, 0));
  const tokens = marked.lexer(rest);
  const blocks = tokens.map(({ raw }) => raw);
  // If the lexer normalised the text, block lengths do not add up: show it as one block.
  const isExact = blocks.reduce((sum, block) => sum + block.length, 0) === rest.length;
  if (!isExact) return { ...EMPTY_SPLIT, blocks: [text] };
  const definitions = new Map([...before.definitions].filter(([, { block }]) => block < stable.length));
  tokens.forEach((token, index) => {
    // As in CommonMark, the first of two definitions counts.
    if (token.type === "def" && !definitions.has(token["tag"])) definitions.set(token["tag"], { source: token.raw, block: stable.length + index });
  });
  return { text, blocks: [...stable, ...blocks], definitions: hasSameEntries(definitions, before.definitions) ? before.definitions : definitions };
}

/** Prepends the link definitions that a block uses, and no others: the block stays the same while other definitions arrive. */
export function withDefinitions(block: string, definitions: Definitions): string {
  if (!definitions.size) return block;
  const labels = new Set([...block.matchAll(/\[([^[\]]+)\]/g)].map(([, label = ""]) => label.toLowerCase().replace(/\s+/g, " ")));
  const used = [...labels].flatMap((label) => definitions.get(label)?.source.trimEnd() ?? []);
  return used.length ? `${used.join("\n")}\n\n${block}` : block;
}

/** Renders a block as sanitized HTML. */
export function renderBlock(part: string, definitions: Definitions): string {
  const block = withDefinitions(part, definitions);
  const cached = htmlCache.get(block);
  if (cached !== undefined) return cached;
  const html = DOMPurify.sanitize(marked.parse(block, { async: false }), {
    FORBID_TAGS: ["style", "img", "form", "input", "svg", "math"],
    FORBID_ATTR: ["style", "id", "name"],
    ADD_ATTR: ["target"],
    // Otherwise DOMPurify checks their values as addresses and removes them.
    ADD_URI_SAFE_ATTR: ["rel", "start", "tabindex", "target"],
    ALLOWED_URI_REGEXP: /^(?:https?:|mailto:|#)/i,
  });
  if (htmlCache.size >= MAX_CACHED_BLOCKS) htmlCache.delete(htmlCache.keys().next().value ?? "");
  htmlCache.set(block, html);
  return html;
}

function hasSameEntries(a: Definitions, b: Definitions): boolean {
  return a.size === b.size && [...a].every(([label, { source, block }]) => b.get(label)?.source === source && b.get(label)?.block === block);
}

/** A link. Without text it shows its address; a link inside another becomes plain text. */
function link(href: string, inner: string): string {
  const content = inner.replace(/<\/?a\b[^>]*>/g, "");
  const label = content.replace(/<[^>]*>/g, "").trim() ? content : escape(href);
  return label && `<a href="${escape(href)}" target="_blank" rel="noopener noreferrer">${label}</a>`;
}

function element(tag: string, inner: string): string {
  return `<${tag}>${inner}</${tag}>`;
}

function codeBlock(text: string, language: string): string {
  const name = escape(language);
  const label = name ? `Code, ${name}` : "Code";
  return `<div class="code"><div class="code-head"><span>${name || "text"}</span><button type="button" data-copy>Copy</button></div><pre tabindex="0" role="group" aria-label="${label}"><code data-language="${name}">${escape(text)}</code></pre></div>`;
}

function escape(text: string): string {
  return text.replaceAll("&", "&amp;").replaceAll("<", "&lt;").replaceAll(">", "&gt;").replaceAll('"', "&quot;");
}
