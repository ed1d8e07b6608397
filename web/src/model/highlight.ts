// Marks the syntax of code blocks with classes, whose colours are in `markdown.css`, for the languages that agents write most. Loaded when the first code block is shown.
import hljs from "highlight.js/lib/core";
import bash from "highlight.js/lib/languages/bash";
import c from "highlight.js/lib/languages/c";
import css from "highlight.js/lib/languages/css";
import diff from "highlight.js/lib/languages/diff";
import go from "highlight.js/lib/languages/go";
import ini from "highlight.js/lib/languages/ini";
import javascript from "highlight.js/lib/languages/javascript";
import json from "highlight.js/lib/languages/json";
import python from "highlight.js/lib/languages/python";
import ruby from "highlight.js/lib/languages/ruby";
import rust from "highlight.js/lib/languages/rust";
import sql from "highlight.js/lib/languages/sql";
import typescript from "highlight.js/lib/languages/typescript";
import xml from "highlight.js/lib/languages/xml";
import yaml from "highlight.js/lib/languages/yaml";

/** Longer code stays uncoloured: highlighting it would block the page. */
const MAX_CHARS = 50_000;

const languages = { bash, c, css, diff, go, ini, javascript, json, python, ruby, rust, sql, typescript, xml, yaml };
for (const [name, language] of Object.entries(languages)) hljs.registerLanguage(name, language);

/** Colours the code in an element if its `data-language` is known. */
export function highlight(element: HTMLElement): void {
  const language = element.dataset["language"] ?? "";
  const text = element.textContent ?? "";
  if (!hljs.getLanguage(language) || text.length > MAX_CHARS) return;
  element.innerHTML = hljs.highlight(text, { language, ignoreIllegals: true }).value;
}
