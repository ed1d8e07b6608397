//! Shows markdown as lines for a terminal. The text is clean already: it has no control characters but line breaks.

use pulldown_cmark::{CodeBlockKind, Event, HeadingLevel, Options, Parser, Tag, TagEnd};
use ratatui_core::style::Style;
use ratatui_core::text::{Line, Span};

use super::highlight::{CodeState, highlight};
use super::table::Table;
use super::theme::Theme;
use super::wrap::{Prefix, wrap, wrap_exact};

/// Lists and quotes that are nested deeper than this are not indented further.
const MAX_INDENTS: usize = 8;

/// The lines of a markdown text.
pub(super) fn markdown(text: &str, width: usize, theme: Theme) -> Vec<Line<'static>> {
    let mut renderer = Renderer::new(width, theme);
    for event in Parser::new_ext(text, options()) {
        renderer.event(event);
    }
    renderer.finish()
}

/// Where the last block of a text begins. Text that is added at the end may change that block, but none before it.
pub(super) fn last_block(text: &str) -> usize {
    let (mut depth, mut start) = (0_usize, 0);
    for (event, range) in Parser::new_ext(text, options()).into_offset_iter() {
        if depth == 0 {
            start = range.start;
        }
        if matches!(event, Event::Start(_)) {
            depth += 1;
        } else if matches!(event, Event::End(_)) {
            depth -= 1;
        }
    }
    start
}

fn options() -> Options {
    Options::ENABLE_TABLES | Options::ENABLE_STRIKETHROUGH | Options::ENABLE_TASKLISTS
}

struct Renderer {
    width: usize,
    theme: Theme,
    lines: Vec<Line<'static>>,
    /// The text of the block so far.
    inline: Vec<Span<'static>>,
    /// The styles of the open inline elements.
    styles: Vec<Style>,
    /// What stands before each line: of lists and quotes.
    prefixes: Vec<Prefix>,
    /// The number of the next item of each open list; `None` for a list without numbers.
    lists: Vec<Option<u64>>,
    /// The language and text of the open code block.
    code: Option<(String, String)>,
    table: Option<Table>,
    /// The address of the open link.
    link: Option<String>,
    /// Whether an empty line should come before the next block.
    needs_gap: bool,
}

impl Renderer {
    fn new(width: usize, theme: Theme) -> Self {
        Self {
            width,
            theme,
            lines: Vec::new(),
            inline: Vec::new(),
            styles: Vec::new(),
            prefixes: Vec::new(),
            lists: Vec::new(),
            code: None,
            table: None,
            link: None,
            needs_gap: false,
        }
    }

    fn finish(mut self) -> Vec<Line<'static>> {
        self.end_paragraph();
        self.lines
    }

    fn event(&mut self, event: Event<'_>) {
        match event {
            Event::Start(tag) => self.start(tag),
            Event::End(tag) => self.end(tag),
            Event::Text(text) => match &mut self.code {
                Some((_, code)) => code.push_str(&text),
                None => self.push(&text, Style::new()),
            },
            Event::Code(text) => self.push(&text, self.theme.code()),
            Event::Html(text) | Event::InlineHtml(text) => self.push(&text, self.theme.dim()),
            Event::InlineMath(text) | Event::DisplayMath(text) => self.push(&text, self.theme.code()),
            Event::FootnoteReference(name) => self.push(&format!("[{name}]"), self.theme.dim()),
            Event::SoftBreak | Event::HardBreak => self.push("\n", Style::new()),
            Event::TaskListMarker(is_done) => {
                let sign = match is_done {
                    true => self.theme.sign("☑ ", "[x] "),
                    false => self.theme.sign("☐ ", "[ ] "),
                };
                self.push(sign, Style::new());
            }
            Event::Rule => {
                self.begin_block();
                let width = self.width.min(40);
                self.push(&self.theme.rule(width), self.theme.dim());
                self.end_block();
            }
        }
    }

    fn start(&mut self, tag: Tag<'_>) {
        match tag {
            Tag::Paragraph | Tag::HtmlBlock => self.begin_block(),
            Tag::Heading { level, .. } => {
                self.begin_block();
                let style = if level == HeadingLevel::H1 { self.theme.underlined() } else { Style::new() };
                self.styles.push(self.theme.bold().patch(style));
            }
            Tag::BlockQuote(_) => {
                self.begin_block();
                self.needs_gap = false;
                let bar = Span::styled(self.theme.sign("│ ", "| "), self.theme.dim());
                self.push_prefix(Prefix::every(bar));
            }
            Tag::CodeBlock(kind) => {
                self.begin_block();
                let language = match kind {
                    CodeBlockKind::Fenced(info) => {
                        info.split([' ', ',', '{']).next().unwrap_or("").to_owned()
                    }
                    CodeBlockKind::Indented => String::new(),
                };
                self.code = Some((language, String::new()));
            }
            Tag::List(start) => {
                // A list inside of an item ends the text before it; a list of its own has a gap.
                if self.lists.is_empty() {
                    self.begin_block();
                } else {
                    self.end_paragraph();
                    self.needs_gap = false;
                }
                self.lists.push(start);
            }
            Tag::Item => {
                self.end_paragraph();
                let marker = match self.lists.last_mut() {
                    Some(Some(number)) => {
                        let marker = format!("{number}. ");
                        *number += 1;
                        marker
                    }
                    Some(None) | None => self.theme.sign("• ", "- ").to_owned(),
                };
                self.gap();
                self.push_prefix(Prefix::sign(&marker, self.theme.code()));
            }
            Tag::Table(alignments) => {
                self.begin_block();
                self.table = Some(Table::new(alignments));
            }
            Tag::TableHead | Tag::TableRow => {
                if let Some(table) = &mut self.table {
                    table.begin_row();
                }
            }
            Tag::Emphasis => self.styles.push(self.theme.italic()),
            Tag::Strong => self.styles.push(self.theme.bold()),
            Tag::Strikethrough => self.styles.push(self.theme.crossed_out()),
            Tag::Link { dest_url, .. } | Tag::Image { dest_url, .. } => {
                self.link = Some(dest_url.into_string());
                self.styles.push(self.theme.underlined());
            }
            Tag::TableCell
            | Tag::FootnoteDefinition(_)
            | Tag::DefinitionList
            | Tag::DefinitionListTitle
            | Tag::DefinitionListDefinition
            | Tag::Superscript
            | Tag::Subscript
            | Tag::MetadataBlock(_) => {}
        }
    }

    fn end(&mut self, tag: TagEnd) {
        match tag {
            TagEnd::Paragraph | TagEnd::HtmlBlock => self.end_block(),
            TagEnd::Heading(_) => {
                self.end_block();
                self.styles.pop();
            }
            TagEnd::BlockQuote(_) => {
                self.end_paragraph();
                self.prefixes.pop();
                self.needs_gap = true;
            }
            TagEnd::CodeBlock => self.end_code(),
            TagEnd::List(_) => {
                self.lists.pop();
                self.needs_gap = self.lists.is_empty();
            }
            TagEnd::Item => {
                self.end_paragraph();
                self.prefixes.pop();
                // Items of one list stay together, also if there are empty lines between them.
                self.needs_gap = false;
            }
            TagEnd::Table => {
                if let Some(table) = self.table.take() {
                    self.lines.extend(table.lines(self.width, self.theme));
                }
                self.needs_gap = true;
            }
            TagEnd::TableCell => {
                let cell = std::mem::take(&mut self.inline);
                if let Some(table) = &mut self.table {
                    table.push_cell(cell);
                }
            }
            TagEnd::Emphasis | TagEnd::Strong | TagEnd::Strikethrough => {
                self.styles.pop();
            }
            TagEnd::Link | TagEnd::Image => {
                self.styles.pop();
                self.end_link();
            }
            TagEnd::TableHead
            | TagEnd::TableRow
            | TagEnd::FootnoteDefinition
            | TagEnd::DefinitionList
            | TagEnd::DefinitionListTitle
            | TagEnd::DefinitionListDefinition
            | TagEnd::Superscript
            | TagEnd::Subscript
            | TagEnd::MetadataBlock(_) => {}
        }
    }

    /// Shows the address of a link after its text, unless the text is the address.
    fn end_link(&mut self) {
        let Some(address) = self.link.take() else { return };
        let is_shown = self.inline.last().is_some_and(|span| span.content == address);
        if !is_shown && !address.starts_with('#') {
            self.push(&format!(" ({address})"), self.theme.dim());
        }
    }

    fn push(&mut self, text: &str, style: Style) {
        let style = self.styles.iter().fold(style, |style, more| style.patch(*more));
        self.inline.push(Span::styled(text.to_owned(), style));
    }

    fn push_prefix(&mut self, prefix: Prefix) {
        // The number of prefixes must match that of the open elements.
        let is_too_deep = self.prefixes.len() >= MAX_INDENTS;
        self.prefixes.push(if is_too_deep { Prefix::default() } else { prefix });
    }

    fn begin_block(&mut self) {
        self.end_paragraph();
        self.gap();
    }

    fn gap(&mut self) {
        if std::mem::take(&mut self.needs_gap) && !self.lines.is_empty() {
            let prefix = self.take_prefix(true);
            self.lines.push(Line::from(prefix.rest));
        }
    }

    fn end_block(&mut self) {
        self.end_paragraph();
        self.needs_gap = true;
    }

    fn end_paragraph(&mut self) {
        let mut text = std::mem::take(&mut self.inline);
        while text.last().is_some_and(|span| span.content.trim().is_empty()) {
            text.pop();
        }
        if text.is_empty() {
            return;
        }
        let prefix = self.take_prefix(false);
        self.lines.extend(wrap(&text, self.width, &prefix));
    }

    fn end_code(&mut self) {
        let Some((language, code)) = self.code.take() else { return };
        let mut prefix = self.take_prefix(false);
        for part in [&mut prefix.first, &mut prefix.rest] {
            part.push(Span::raw("  "));
        }
        let mut state = CodeState::Code;
        for line in code.trim_end_matches('\n').split('\n') {
            let (spans, next) = highlight(line, &language, state, self.theme);
            state = next;
            self.lines.extend(wrap_exact(&spans, self.width, &prefix));
            prefix.first = prefix.rest.clone();
        }
        self.needs_gap = true;
    }

    /// The prefix for the next lines. The sign of a list item is used once, unless `peek`.
    fn take_prefix(&mut self, peek: bool) -> Prefix {
        let first = self.prefixes.iter().flat_map(|prefix| prefix.first.clone()).collect();
        let rest: Vec<Span<'static>> = self.prefixes.iter().flat_map(|prefix| prefix.rest.clone()).collect();
        if !peek {
            for prefix in &mut self.prefixes {
                prefix.first = prefix.rest.clone();
            }
        }
        Prefix { first, rest }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const THEME: Theme = Theme { has_colours: true, has_unicode: true };

    fn shown(text: &str, width: usize) -> Vec<String> {
        markdown(text, width, THEME).iter().map(|line| line.to_string().trim_end().to_owned()).collect()
    }

    #[test]
    fn blocks_are_separated_by_empty_lines() {
        let text = "# Title\nSome *text* here\n\n- one\n- two\n  1. deep\n  2. er\n- three\n\n> quoted\n> text\n\nend";
        assert_eq!(
            shown(text, 40),
            [
                "Title",
                "",
                "Some text here",
                "",
                "• one",
                "• two",
                "  1. deep",
                "  2. er",
                "• three",
                "",
                "│ quoted",
                "│ text",
                "",
                "end"
            ]
        );
    }

    #[test]
    fn code_keeps_its_spaces_and_is_not_broken_between_words() {
        let text = "```rust\nfn main() {\n    let text = 1;\n}\n```\nafter";
        assert_eq!(shown(text, 40), ["  fn main() {", "      let text = 1;", "  }", "", "after"]);
        assert_eq!(shown("```\nabcdefgh\n```", 6), ["  abcd", "  efgh"]);
        assert_eq!(shown("- item\n  ```\n  x\n  ```", 20), ["• item", "    x"]);
    }

    #[test]
    fn links_show_their_address_once() {
        assert_eq!(shown("[text](http://a.example/)", 60), ["text (http://a.example/)"]);
        assert_eq!(shown("<http://a.example/>", 60), ["http://a.example/"]);
    }

    #[test]
    fn bold_text_has_its_style() {
        let lines = markdown("a **b** c", 20, THEME);
        assert_eq!(lines[0].spans[1], Span::styled("b", THEME.bold()));
    }

    #[test]
    fn only_the_last_block_can_change() {
        for (text, expected) in [
            ("", ""),
            ("one", "one"),
            ("one\n\ntwo", "two"),
            ("- a\n- b", "- a\n- b"),
            ("text\n\n```rust\nlet a\n\nlet b", "```rust\nlet a\n\nlet b"),
            ("```\na\n```\nb", "b"),
        ] {
            assert_eq!(text.get(last_block(text)..), Some(expected), "{text:?}");
        }
    }

    #[test]
    fn deep_nesting_and_broken_markup_are_harmless() {
        let quotes = "> ".repeat(500) + "x";
        assert!(shown(&quotes, 10).iter().any(|line| line.contains('x')));
        for text in ["**a", "```", "|a|\n|-|", "[x](", "<b", "1. ", "- - - -", "\u{fffd}*"] {
            shown(text, 3);
        }
    }
}
