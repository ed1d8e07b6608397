//! Explains why `old_text` of an edit is not in the file, by the most similar text that is.
//!
//! The time is linear in the size of both texts: a model can send any text, and nothing can stop a call that compares.

use std::hash::{DefaultHasher, Hash, Hasher};

use crate::file::prefix;

/// How many lines the file and `old_text` may have together. Beyond it, the message has no hint.
pub const EDIT_HINT_LINES: usize = 1_000_000;

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
    let count = |text: &str| memchr::memchr_iter(b'\n', text.as_bytes()).count() + 1;
    if count(text).saturating_add(count(wanted)) > EDIT_HINT_LINES {
        return "read the part of the file that you want to change again".to_owned();
    }
    let lines: Vec<&str> = text.lines().collect();
    let wanted_lines: Vec<&str> = wanted.lines().collect();
    let common = common_lines(&lines, &wanted_lines, hash_words);
    if let Some(at) = first_difference(&lines, &wanted_lines, &common) {
        return format!("the text differs in whitespace at line {}, which is {}", at + 1, quote(lines[at]));
    }
    let in_any_case = common_lines(&lines, &wanted_lines, hash_any_case);
    if let Some(at) = first_difference(&lines, &wanted_lines, &in_any_case) {
        return format!(
            "the text differs in upper and lower case at line {}, which is {}",
            at + 1,
            quote(lines[at])
        );
    }
    longest_common_start(&lines, &wanted_lines, &common)
        .unwrap_or_else(|| "nothing in the file is like it; read the file again".to_owned())
}

/// The number, counted from 1, of the line that contains the byte at `at`.
pub(super) fn line_at(text: &str, at: usize) -> usize {
    memchr::memchr_iter(b'\n', text.as_bytes()).take_while(|end| *end < at).count() + 1
}

/// For each line of the file: how many lines from there on have the same hashes as the first lines of `wanted`.
///
/// This is the Z-function of `wanted` followed by `lines`: each step begins with what earlier steps have compared.
fn common_lines(lines: &[&str], wanted: &[&str], hash: fn(&str) -> u64) -> Vec<usize> {
    let hashes: Vec<u64> = wanted.iter().chain(lines).map(|line| hash(line)).collect();
    let mut common = vec![0; hashes.len()];
    // The range that ends last among those that equal the beginning.
    let (mut start, mut end) = (0, 0);
    for at in 1..hashes.len() {
        let mut count = if at < end { common[at - start].min(end - at) } else { 0 };
        while count < wanted.len() && at + count < hashes.len() && hashes[count] == hashes[at + count] {
            count += 1;
        }
        common[at] = count;
        if at + count > end {
            (start, end) = (at, at + count);
        }
    }
    common.split_off(wanted.len())
}

/// A hash of the words of a line. Two lines with the same hash are alike for a hint.
fn hash_words(line: &str) -> u64 {
    let mut hasher = DefaultHasher::new();
    line.split_whitespace().for_each(|word| word.hash(&mut hasher));
    hasher.finish()
}

/// A hash of a line without the whitespace around it, in lower case.
fn hash_any_case(line: &str) -> u64 {
    let mut hasher = DefaultHasher::new();
    line.trim().to_lowercase().hash(&mut hasher);
    hasher.finish()
}

/// If all lines of `wanted` are in the file: the index of the first line there that is not exactly equal.
fn first_difference(lines: &[&str], wanted: &[&str], common: &[usize]) -> Option<usize> {
    // Blank lines agree with each other everywhere, so they say nothing.
    if wanted.iter().all(|line| line.trim().is_empty()) {
        return None;
    }
    let start = common.iter().position(|count| *count == wanted.len())?;
    let differs = wanted.iter().zip(&lines[start..]).position(|(wanted, line)| !line.contains(wanted));
    Some(start + differs.unwrap_or(0))
}

/// If the first lines of `wanted` are in the file: the line at which the file differs.
fn longest_common_start(lines: &[&str], wanted: &[&str], common: &[usize]) -> Option<String> {
    wanted.first().filter(|line| !line.trim().is_empty())?;
    let starts = common.iter().enumerate().filter(|(_, count)| **count > 0);
    let (start, count) = starts.max_by_key(|(_, count)| **count)?;
    let differs = start + count;
    let there = lines.get(differs).map_or_else(|| "the end of the file".to_owned(), |line| quote(line));
    let asked = wanted.get(*count).map_or_else(String::new, |line| format!(", not {}", quote(line)));
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
    fn many_similar_lines_are_compared_once_each() {
        // Compared window by window, these would be 10^10 comparisons.
        let lines = "x\n".repeat(EDIT_HINT_LINES / 2);
        let wanted = format!("{}y", "x\n".repeat(EDIT_HINT_LINES / 4));
        let text = hint(&lines, &wanted);
        assert!(
            text.starts_with("its first 250000 lines are at line 250001, but line 500001 is the end"),
            "{text}"
        );
    }

    #[test]
    fn common_lines_are_those_of_a_direct_comparison() {
        let lines: Vec<&str> = "a b a a b a b a c a b a a b".split(' ').collect();
        for wanted in ["a", "a b", "a b a", "a a b", "c", "d", "a b a b a c", "a b a a b a b a c a b a a b a"]
        {
            let wanted: Vec<&str> = wanted.split(' ').collect();
            let direct =
                |start: usize| lines[start..].iter().zip(&wanted).take_while(|(one, other)| one == other);
            let expected: Vec<usize> = (0..lines.len()).map(|start| direct(start).count()).collect();
            assert_eq!(common_lines(&lines, &wanted, hash_words), expected, "{wanted:?}");
        }
    }

    #[test]
    fn texts_with_too_many_lines_get_no_hint() {
        let mut text = "a\n".repeat(EDIT_HINT_LINES - 2);
        assert!(hint(&text, "b").starts_with("nothing"));
        text.push_str("a\n");
        assert!(hint(&text, "b").starts_with("read the part"));
    }

    #[test]
    fn lines_are_counted_from_one() {
        let text = "a\nb\nc";
        assert_eq!([0, 1, 2, 4].map(|at| line_at(text, at)), [1, 1, 2, 3]);
    }
}
