//! Colours code: comments, strings, numbers and keywords, by rules that most languages share.
//!
//! A grammar for each language would take megabytes of the program; these rules take none, and what they get wrong is only
//! a colour.

use ratatui_core::style::Style;
use ratatui_core::text::Span;

use super::theme::Theme;

/// Words that are keywords in many languages.
const KEYWORDS: &[&str] = &[
    "abstract",
    "and",
    "as",
    "async",
    "await",
    "begin",
    "break",
    "case",
    "catch",
    "class",
    "const",
    "continue",
    "crate",
    "def",
    "default",
    "defer",
    "delete",
    "do",
    "done",
    "elif",
    "else",
    "elsif",
    "end",
    "enum",
    "esac",
    "except",
    "export",
    "extends",
    "extern",
    "false",
    "fi",
    "final",
    "finally",
    "fn",
    "for",
    "foreach",
    "from",
    "func",
    "function",
    "go",
    "if",
    "impl",
    "implements",
    "import",
    "in",
    "interface",
    "is",
    "lambda",
    "let",
    "loop",
    "match",
    "mod",
    "module",
    "move",
    "mut",
    "namespace",
    "new",
    "nil",
    "none",
    "not",
    "null",
    "or",
    "package",
    "pass",
    "private",
    "protected",
    "pub",
    "public",
    "raise",
    "ref",
    "require",
    "rescue",
    "return",
    "self",
    "static",
    "struct",
    "super",
    "switch",
    "then",
    "this",
    "throw",
    "trait",
    "true",
    "try",
    "type",
    "typeof",
    "undefined",
    "unless",
    "unsafe",
    "until",
    "use",
    "using",
    "var",
    "void",
    "when",
    "where",
    "while",
    "with",
    "yield",
    "None",
    "True",
    "False",
    "select",
    "insert",
    "update",
    "where",
    "SELECT",
    "INSERT",
    "UPDATE",
    "DELETE",
    "FROM",
    "WHERE",
    "JOIN",
    "ORDER",
    "GROUP",
    "BY",
    "CREATE",
    "TABLE",
    "VALUES",
];

/// What a line of code begins in.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum CodeState {
    #[default]
    Code,
    /// Inside of `/* … */`.
    Comment,
}

/// Colours one line of code in `language`, and says what the next line begins in.
pub(super) fn highlight(
    line: &str,
    language: &str,
    state: CodeState,
    theme: Theme,
) -> (Vec<Span<'static>>, CodeState) {
    if matches!(language, "diff" | "patch") {
        return (vec![diff_line(line, theme)], CodeState::Code);
    }
    // Without a language it may be anything: output, a tree of files, prose.
    if matches!(language, "" | "text" | "txt" | "plain" | "console" | "output") {
        return (vec![Span::raw(line.to_owned())], CodeState::Code);
    }
    let mut scanner = Scanner { rest: line, spans: Vec::new(), theme, line_comment: comment_sign(language) };
    let state = scanner.scan(state);
    (scanner.spans, state)
}

/// Colours a line of a diff by its first character.
pub(super) fn diff_line(line: &str, theme: Theme) -> Span<'static> {
    let style = match line.as_bytes() {
        [b'+', b'+', b'+', ..] | [b'-', b'-', b'-', ..] => theme.bold(),
        [b'+', ..] => theme.success(),
        [b'-', ..] => theme.error(),
        [b'@', b'@', ..] => theme.code(),
        _ => Style::new(),
    };
    Span::styled(line.to_owned(), style)
}

/// What begins a comment that ends with the line.
fn comment_sign(language: &str) -> &'static str {
    match language.to_ascii_lowercase().as_str() {
        "python" | "py" | "ruby" | "rb" | "sh" | "bash" | "zsh" | "shell" | "toml" | "yaml" | "yml"
        | "perl" | "r" | "make" | "makefile" | "dockerfile" | "ini" | "conf" | "elixir" | "nix" => "#",
        "sql" | "lua" | "haskell" | "hs" | "ada" => "--",
        "lisp" | "clojure" | "scheme" => ";",
        "json" | "html" | "xml" | "css" | "markdown" | "md" => "\0",
        _ => "//",
    }
}

struct Scanner<'a> {
    rest: &'a str,
    spans: Vec<Span<'static>>,
    theme: Theme,
    line_comment: &'static str,
}

impl Scanner<'_> {
    fn scan(&mut self, mut state: CodeState) -> CodeState {
        while let Some(letter) = self.rest.chars().next() {
            if state == CodeState::Comment {
                let end = self.rest.find("*/").map(|end| end + 2);
                self.take(end.unwrap_or(self.rest.len()), self.theme.dim());
                if end.is_none() {
                    return CodeState::Comment;
                }
                state = CodeState::Code;
            } else if self.rest.starts_with(self.line_comment) {
                self.take(self.rest.len(), self.theme.dim());
            } else if self.line_comment == "//" && self.rest.starts_with("/*") {
                state = CodeState::Comment;
            } else if matches!(letter, '"' | '\'' | '`') && self.string_end(letter).is_some() {
                let end = self.string_end(letter).unwrap_or(1);
                self.take(end, self.theme.literal());
            } else if letter.is_ascii_digit() {
                let end = self.end_of(|letter| letter.is_ascii_alphanumeric() || matches!(letter, '.' | '_'));
                self.take(end, self.theme.literal());
            } else if letter.is_alphabetic() || letter == '_' {
                let end = self.end_of(|letter| letter.is_alphanumeric() || letter == '_');
                let word = self.rest.get(..end).unwrap_or_default();
                let style = if KEYWORDS.contains(&word) { self.theme.keyword() } else { Style::new() };
                self.take(end, style);
            } else {
                self.take(letter.len_utf8(), Style::new());
            }
        }
        state
    }

    /// The end of the string that begins here. `None` if it does not end in this line: then the sign may be an apostrophe
    /// or a lifetime.
    fn string_end(&self, quote: char) -> Option<usize> {
        let mut is_escaped = false;
        for (index, letter) in self.rest.char_indices().skip(1) {
            if is_escaped {
                is_escaped = false;
            } else if letter == '\\' {
                is_escaped = true;
            } else if letter == quote {
                return Some(index + letter.len_utf8());
            }
        }
        None
    }

    fn end_of(&self, belongs: impl Fn(char) -> bool) -> usize {
        self.rest.find(|letter| !belongs(letter)).unwrap_or(self.rest.len())
    }

    fn take(&mut self, bytes: usize, style: Style) {
        let (taken, rest) = self.rest.split_at_checked(bytes).unwrap_or((self.rest, ""));
        self.spans.push(Span::styled(taken.to_owned(), style));
        self.rest = rest;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const THEME: Theme = Theme { has_colours: true, has_unicode: true };

    fn styles(line: &str, language: &str) -> Vec<(String, Style)> {
        let (spans, _) = highlight(line, language, CodeState::Code, THEME);
        let visible = spans.into_iter().filter(|span| span.style != Style::new());
        visible.map(|span| (span.content.into_owned(), span.style)).collect()
    }

    #[test]
    fn keywords_strings_numbers_and_comments_are_coloured() {
        let expected = [
            ("let".to_owned(), THEME.keyword()),
            ("\"a\\\"b\"".to_owned(), THEME.literal()),
            ("42".to_owned(), THEME.literal()),
            ("// done".to_owned(), THEME.dim()),
        ];
        assert_eq!(styles("let x: &'a str = \"a\\\"b\" + 42; // done", "rust"), expected);
        assert_eq!(styles("# note", "python"), [("# note".to_owned(), THEME.dim())]);
        assert_eq!(styles("it's 3 // x", "text"), []);
        assert_eq!(styles("-old", "diff"), [("-old".to_owned(), THEME.error())]);
    }

    #[test]
    fn a_comment_may_span_lines() {
        let (_, state) = highlight("a /* b", "c", CodeState::Code, THEME);
        assert_eq!(state, CodeState::Comment);
        let (spans, state) = highlight("c */ d", "c", state, THEME);
        assert_eq!((spans[0].content.as_ref(), state), ("c */", CodeState::Code));
    }
}
