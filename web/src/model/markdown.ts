// Markdown to safe HTML, block by block: while a text is written only its last block changes, so nothing above it moves.
// HTML within the markdown is shown as text, and pictures from elsewhere become links: the page loads nothing from others.
import DOMPurify from "dompurify";
import { Marked, type Tokens } from "marked";

/** How many blocks are kept as HTML. */
const KEPT_BLOCKS = 2_000;

/** A text as far as it was cut into blocks. */
export interface Cut {
  text: string;
  blocks: string[];
  /** Where reference links lead, by label: any block may use what another one says. The same object as long as nothing changes. */
  definitions: Definitions;
}

/** The source of a definition, and the block that it is, by its label. */
export type Definitions = ReadonlyMap<string, { source: string; block: number }>;

/** A text of which nothing was cut yet. */
export const UNCUT: Cut = { text: "", blocks: [], definitions: new Map() };

const kept = new Map<string, string>();

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
    // Each answer stands below a heading of the page. Its own are all one level lower, however they skip levels; they look as they are meant.
    heading({ tokens, depth }) {
      const words = this.parser.parseInline(tokens);
      return words.trim() && `<h3 class="depth-${depth}">${words}</h3>`;
    },
    checkbox: ({ checked }) => `<span class="box">${checked ? "☑" : "☐"}</span> `,
  },
});

/** Cuts a text into blocks. What was cut before is not looked at again, but for its last block, which may have grown. */
export function cut(text: string, before: Cut): Cut {
  const grows = before.blocks.length > 1 && text.startsWith(before.text);
  const stable = grows ? before.blocks.slice(0, -1) : [];
  const rest = text.slice(stable.reduce((sum, block) => sum + block.length, 0));
  const tokens = marked.lexer(rest);
  const blocks = tokens.map(({ raw }) => raw);
  // A text that the lexer has normalised cannot be continued by length.
  const isExact = blocks.reduce((sum, block) => sum + block.length, 0) === rest.length;
  if (!isExact) return { ...UNCUT, blocks: [text] };
  const definitions = new Map([...before.definitions].filter(([, { block }]) => block < stable.length));
  tokens.forEach((token, index) => {
    // Of two definitions the first one holds.
    if (token.type === "def" && !definitions.has(token["tag"])) definitions.set(token["tag"], { source: token.raw, block: stable.length + index });
  });
  return { text, blocks: [...stable, ...blocks], definitions: isSame(definitions, before.definitions) ? before.definitions : definitions };
}

/** A block with the definitions that it uses and no others, so that it stays as it is while others are written. */
export function complete(block: string, definitions: Definitions): string {
  if (!definitions.size) return block;
  const labels = new Set([...block.matchAll(/\[([^[\]]+)\]/g)].map(([, label = ""]) => label.toLowerCase().replace(/\s+/g, " ")));
  const used = [...labels].flatMap((label) => definitions.get(label)?.source.trimEnd() ?? []);
  return used.length ? `${used.join("\n")}\n\n${block}` : block;
}

/** A block as HTML that can do no harm. */
export function render(part: string, definitions: Definitions): string {
  const block = complete(part, definitions);
  const known = kept.get(block);
  if (known !== undefined) return known;
  const html = DOMPurify.sanitize(marked.parse(block, { async: false }), {
    FORBID_TAGS: ["style", "img", "form", "input", "svg", "math"],
    FORBID_ATTR: ["style", "id", "name"],
    ADD_ATTR: ["target"],
    // The values of these are no addresses, and would be taken for bad ones.
    ADD_URI_SAFE_ATTR: ["rel", "start", "tabindex", "target"],
    ALLOWED_URI_REGEXP: /^(?:https?:|mailto:|#)/i,
  });
  if (kept.size >= KEPT_BLOCKS) kept.delete(kept.keys().next().value ?? "");
  kept.set(block, html);
  return html;
}

function isSame(some: Definitions, others: Definitions): boolean {
  return some.size === others.size && [...some].every(([label, { source, block }]) => others.get(label)?.source === source && others.get(label)?.block === block);
}

/** A link; one without words is called by its address, and one within another is only its words. */
function link(href: string, inner: string): string {
  const words = inner.replace(/<\/?a\b[^>]*>/g, "");
  const name = words.replace(/<[^>]*>/g, "").trim() ? words : escape(href);
  return name && `<a href="${escape(href)}" target="_blank" rel="noopener noreferrer">${name}</a>`;
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
