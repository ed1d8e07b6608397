//! Explains why `old_text` of an edit is not in the file, by the most similar text that is.

use crate::file::prefix;

/// How many bytes of a line a hint quotes.
const QUOTED_BYTES: usize = 200;

/// One sentence about the part of `text` that is most similar to `wanted`, which is not in `text`.
pub(super) fn hint(text: &str, wanted: &str) -> String {
    if text.is_empty() {
        return "the file is empty".to_owned();
    }
    if wanted.contains('\n') && text.contains(&wanted.replace('\n', "\r\n")) {
        return "the lines of the file end in CRLF; write \\r\\n for each line end".to_owned();
    }
    let lines: Vec<&str> = text.lines().collect();
    let wanted_lines: Vec<&str> = wanted.lines().collect();
    if let Some((start, differs)) = find_similar(&lines, &wanted_lines, words_agree) {
        let at = start + differs;
        return format!("the text differs in whitespace at line {}, which is {}", at + 1, quote(lines[at]));
    }
    if let Some((start, differs)) = find_similar(&lines, &wanted_lines, case_agrees) {
        let at = start + differs;
        return format!(
            "the text differs in upper and lower case at line {}, which is {}",
            at + 1,
            quote(lines[at])
        );
    }
    longest_common_start(&lines, &wanted_lines)
        .unwrap_or_else(|| "nothing in the file is like it; read the file again".to_owned())
}

/// The number, counted from 1, of the line that contains the byte at `at`.
pub(super) fn line_at(text: &str, at: usize) -> usize {
    memchr::memchr_iter(b'\n', text.as_bytes()).take_while(|end| *end < at).count() + 1
}

/// Finds consecutive lines that all `agree` with the lines of `wanted`. Returns the index of the first of them, and
/// the offset of the first line that is not exactly equal.
fn find_similar(lines: &[&str], wanted: &[&str], agree: fn(&str, &str) -> bool) -> Option<(usize, usize)> {
    // Blank lines agree with each other everywhere, so they say nothing.
    if wanted.iter().all(|line| line.trim().is_empty()) {
        return None;
    }
    let windows = lines.windows(wanted.len());
    let start = windows
        .enumerate()
        .find(|(_, window)| window.iter().zip(wanted).all(|(line, wanted)| agree(line, wanted)))?
        .0;
    let differs = wanted.iter().zip(&lines[start..]).position(|(wanted, line)| !line.contains(wanted));
    Some((start, differs.unwrap_or(0)))
}

fn words_agree(line: &str, wanted: &str) -> bool {
    line.split_whitespace().eq(wanted.split_whitespace())
}

fn case_agrees(line: &str, wanted: &str) -> bool {
    line.trim().to_lowercase() == wanted.trim().to_lowercase()
}

/// If the first lines of `wanted` are in the file: the line at which the file differs.
fn longest_common_start(lines: &[&str], wanted: &[&str]) -> Option<String> {
    let first = wanted.first().filter(|line| !line.trim().is_empty())?;
    let same = |start: usize| {
        lines[start..].iter().zip(wanted).take_while(|(line, wanted)| words_agree(line, wanted)).count()
    };
    let starts = lines.iter().enumerate().filter(|(_, line)| words_agree(line, first));
    let (count, start) = starts.map(|(start, _)| (same(start), start)).max_by_key(|(count, _)| *count)?;
    let differs = start + count;
    let there = lines.get(differs).map_or_else(|| "the end of the file".to_owned(), |line| quote(line));
    let asked = wanted.get(count).map_or_else(String::new, |line| format!(", not {}", quote(line)));
    Some(format!(
        "its first {count} lines are at line {}, but line {} is {there}{asked}",
        start + 1,
        differs + 1
    ))
}

fn quote(line: &str) -> String {
    let shown = prefix(line, QUOTED_BYTES);
    format!("{shown:?}{}", if shown.len() < line.len() { " and so on" } else { "" })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_difference_in_whitespace_is_found() {
        let text = "fn main() {\n\tlet x = 1;\n}\n";
        assert_eq!(
            hint(text, "fn main() {\n    let x = 1;\n}"),
            "the text differs in whitespace at line 2, which is \"\\tlet x = 1;\""
        );
        assert_eq!(
            hint(text, "let  x = 1;"),
            "the text differs in whitespace at line 2, which is \"\\tlet x = 1;\""
        );
    }

    #[test]
    fn differences_in_line_ends_and_case_are_found() {
        assert!(hint("a\r\nb\r\n", "a\nb").contains("CRLF"));
        assert!(hint("Alpha\n", "alpha").contains("upper and lower case at line 1"));
    }

    #[test]
    fn a_partial_match_names_the_line_that_differs() {
        let text = hint("zero\none\ntwo\nthree\n", "one\ntwo\nfour");
        assert_eq!(text, "its first 2 lines are at line 2, but line 4 is \"three\", not \"four\"");
        let text = hint("one\n", "one\ntwo");
        assert_eq!(text, "its first 1 lines are at line 1, but line 2 is the end of the file, not \"two\"");
    }

    #[test]
    fn a_file_without_similar_text_has_its_own_hint() {
        assert_eq!(hint("", "x"), "the file is empty");
        assert!(hint("abc\n", "xyz").starts_with("nothing"));
        assert!(hint("a\n\nb\n", "\n\n\n").starts_with("nothing"));
    }

    #[test]
    fn lines_are_counted_from_one() {
        let text = "a\nb\nc";
        assert_eq!([0, 1, 2, 4].map(|at| line_at(text, at)), [1, 1, 2, 3]);
    }
}
