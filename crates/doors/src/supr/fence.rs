//! The output of a program as markdown: a fenced block, which every client of this protocol shows word for word.

use std::iter;

/// The fence of a text without backticks.
const SHORTEST_FENCE: usize = 3;

/// `text` in a fenced block. The fence is longer than any run of backticks in the text.
pub fn fenced(text: &str) -> String {
    let longest = text.split(|letter| letter != '`').map(str::len).max().unwrap_or(0);
    let fence: String = iter::repeat_n('`', SHORTEST_FENCE.max(longest + 1)).collect();
    let line_end = if text.ends_with('\n') { "" } else { "\n" };
    format!("{fence}\n{text}{line_end}{fence}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fence_is_longer_than_any_in_the_text() {
        assert_eq!(fenced("# a"), "```\n# a\n```");
        assert_eq!(fenced("a\n"), "```\na\n```");
        assert_eq!(fenced(""), "```\n\n```");
        assert_eq!(fenced("``` x\n`````\n"), "``````\n``` x\n`````\n``````");
    }
}
