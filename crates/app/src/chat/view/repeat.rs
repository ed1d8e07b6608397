//! Whether an answer only repeats what was shown already.
//!
//! The output of a command is shown while it runs. An agent that then says the same, word for
//! word, would make the reader go through it twice; one that says anything else must be heard.

/// Stands in a tool's result where bytes were left out. What is before and after it is whole.
const CUT: (&str, &str) = ("\n[… ", " bytes cut here …]\n");

/// What a tool's result has beyond what was shown of its output while it worked. `None` if the
/// two do not fit together, so that the result must not be taken for shown.
pub(super) fn rest<'a>(shown: &str, result: &'a str) -> Option<&'a str> {
    let shown = shown.replace("\r\n", "\n");
    if let Some(rest) = result.strip_prefix(shown.as_str()) {
        return Some(rest);
    }
    let (head, after) = result.split_once(CUT.0)?;
    let (_, tail) = after.split_once(CUT.1)?;
    let (tail, ending) = tail.rsplit_once('\n').unwrap_or(("", tail));
    let is_shown = shown.starts_with(head) && shown.trim_end().ends_with(tail.trim_end());
    is_shown.then_some(ending)
}

/// Holds back an answer for as long as it may turn out to be a repetition.
pub(super) struct Repeat {
    expected: String,
    held: String,
}

impl Repeat {
    /// Of what was just shown in full.
    pub(super) fn of(shown: String) -> Self {
        Self { expected: shown, held: String::new() }
    }

    /// The next piece of the answer. Gives back what must be shown once it is no repetition.
    pub(super) fn hear(&mut self, piece: &str) -> Option<String> {
        self.held.push_str(piece);
        if self.expected.starts_with(&self.held) { None } else { Some(std::mem::take(&mut self.held)) }
    }

    /// The answer is complete. Gives back what must be shown, if it was not a repetition of all.
    pub(super) fn end(self) -> Option<String> {
        (self.held != self.expected && !self.held.is_empty()).then_some(self.held)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_result_goes_on_where_the_output_ended() {
        assert_eq!(rest("a\nb\n", "a\nb\n[exit code 0]"), Some("[exit code 0]"));
        assert_eq!(rest("a\r\n", "a\n[exit code 0]"), Some("[exit code 0]"));
        assert_eq!(rest("", "[no output]\n[exit code 0]"), Some("[no output]\n[exit code 0]"));
        assert_eq!(rest("a", "b"), None);
    }

    #[test]
    fn a_result_that_was_cut_is_shown_if_both_ends_were() {
        let result = "ab\n[… 4 bytes cut here …]\ngh\n[exit code 0]";
        assert_eq!(rest("abcdefgh\n", result), Some("[exit code 0]"));
        assert_eq!(rest("abcdef", result), None, "its end was not shown");
        assert_eq!(rest("xbcdefgh\n", result), None, "its start is another");
    }

    #[test]
    fn a_repetition_is_held_back_and_anything_else_is_given_back_in_full() {
        let mut same = Repeat::of("one two".to_owned());
        assert_eq!((same.hear("one "), same.hear("two")), (None, None));
        assert_eq!(same.end(), None);

        let mut other = Repeat::of("one two".to_owned());
        assert_eq!((other.hear("one "), other.hear("three")), (None, Some("one three".to_owned())));

        let mut longer = Repeat::of("one".to_owned());
        assert_eq!((longer.hear("one"), longer.hear(" more")), (None, Some("one more".to_owned())));

        let mut shorter = Repeat::of("one two".to_owned());
        assert_eq!(shorter.hear("one"), None);
        assert_eq!(shorter.end(), Some("one".to_owned()));
    }
}
