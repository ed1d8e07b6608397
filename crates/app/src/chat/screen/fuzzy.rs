//! Finds texts that contain the letters of a pattern in order, the best match first.

/// How many of the best matches are returned.
pub(super) const MAX_MATCHES: usize = 8;
/// Only this many letters of a pattern count.
const MAX_PATTERN: usize = 100;

/// The texts that match the pattern, the best first.
pub(super) fn best<'a>(pattern: &str, texts: impl Iterator<Item = &'a str>) -> Vec<&'a str> {
    let pattern: Vec<char> = pattern.chars().take(MAX_PATTERN).flat_map(char::to_lowercase).collect();
    let mut matches: Vec<(i64, &str)> =
        texts.filter_map(|text| Some((score(&pattern, text)?, text))).collect();
    // Equal ones in the order of the alphabet, so that the list does not jump.
    matches.sort_by(|(left, left_text), (right, right_text)| right.cmp(left).then(left_text.cmp(right_text)));
    matches.into_iter().take(MAX_MATCHES).map(|(_, text)| text).collect()
}

/// How well the pattern matches; `None` if it does not. Letters in a row, at the start of a word and in the name of the
/// file count more, and a short text counts more than a long one.
fn score(pattern: &[char], text: &str) -> Option<i64> {
    let name_start = text.trim_end_matches('/').rfind('/').map_or(0, |slash| slash + 1);
    // First in the name of the file alone: a match there is what people mean.
    let name = text.get(name_start..).unwrap_or_default();
    let in_name = subsequence(pattern, name).map(|score| score + 20);
    let score = in_name.or_else(|| subsequence(pattern, text))?;
    let length = i64::try_from(text.chars().count()).unwrap_or(i64::MAX);
    Some(score * 100 - length)
}

fn subsequence(pattern: &[char], text: &str) -> Option<i64> {
    let mut wanted = pattern.iter();
    let mut next = wanted.next();
    let (mut score, mut in_row, mut before) = (0, 0, '/');
    for letter in text.chars() {
        let Some(sought) = next else { break };
        if letter.to_lowercase().eq([*sought]) {
            in_row += 1;
            let starts_word = matches!(before, '/' | '_' | '-' | '.' | ' ');
            score += in_row + if starts_word { 4 } else { 0 };
            next = wanted.next();
        } else {
            in_row = 0;
        }
        before = letter;
    }
    next.is_none().then_some(score)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_name_of_a_file_counts_more_than_its_folders() {
        let files = ["crates/main/other.rs", "src/main.rs", "src/domain.rs", "m/a/i/n.txt"];
        let found = best("main", files.into_iter());
        assert_eq!(found[0], "src/main.rs");
        assert_eq!(found.len(), 4);
        assert_eq!(best("xyz", files.into_iter()), [""; 0]);
        assert_eq!(best("", files.into_iter())[0], "m/a/i/n.txt", "the shortest");
    }

    #[test]
    fn letters_may_have_others_between_them_in_either_case() {
        assert_eq!(best("CHMD", ["CHANGELOG.md", "b"].into_iter()), ["CHANGELOG.md"]);
    }

    #[test]
    fn the_list_is_bounded() {
        let many: Vec<String> = (0..100).map(|number| format!("file{number}")).collect();
        assert_eq!(best("f", many.iter().map(String::as_str)).len(), MAX_MATCHES);
    }
}
