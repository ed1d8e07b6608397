//! Hides an answer that only repeats the tool output on the screen.
//!
//! The output of a command is shown while it runs. If the agent's answer is exactly the same text, it is not shown a
//! second time; any other answer is shown in full.

/// The text before and after the number in the marker that replaces omitted bytes in a tool's result.
const OMISSION: (&str, &str) = ("\n[… ", " bytes cut here …]\n");

/// The end of a tool's result that its output on the screen does not contain. `None` if the result does not match the
/// output, so that it does not count as shown.
pub(super) fn unseen_rest<'a>(shown: &str, result: &'a str) -> Option<&'a str> {
    let shown = shown.replace("\r\n", "\n");
    if let Some(rest) = result.strip_prefix(shown.as_str()) {
        return Some(rest);
    }
    let (head, after) = result.split_once(OMISSION.0)?;
    let (_, tail) = after.split_once(OMISSION.1)?;
    let (tail, ending) = tail.rsplit_once('\n').unwrap_or(("", tail));
    let is_shown = shown.starts_with(head) && shown.trim_end().ends_with(tail.trim_end());
    is_shown.then_some(ending)
}

/// Holds back an answer while it may still turn out to repeat a text.
pub(super) struct RepeatFilter {
    repeated: String,
    held: String,
}

impl RepeatFilter {
    /// `shown` is the text on the screen that an answer may repeat.
    pub(super) fn new(shown: String) -> Self {
        Self { repeated: shown, held: String::new() }
    }

    /// Takes the next piece of the answer. Once the answer differs, returns all text that was held back.
    pub(super) fn push(&mut self, piece: &str) -> Option<String> {
        self.held.push_str(piece);
        if self.repeated.starts_with(&self.held) { None } else { Some(std::mem::take(&mut self.held)) }
    }

    /// Called when the answer is complete. Returns the held text unless it repeats the whole shown text.
    pub(super) fn finish(self) -> Option<String> {
        (self.held != self.repeated && !self.held.is_empty()).then_some(self.held)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_result_continues_where_the_output_ended() {
        assert_eq!(unseen_rest("a\nb\n", "a\nb\n[exit code 0]"), Some("[exit code 0]"));
        assert_eq!(unseen_rest("a\r\n", "a\n[exit code 0]"), Some("[exit code 0]"));
        assert_eq!(unseen_rest("", "[no output]\n[exit code 0]"), Some("[no output]\n[exit code 0]"));
        assert_eq!(unseen_rest("a", "b"), None);
    }

    #[test]
    fn a_shortened_result_counts_as_shown_if_both_its_ends_were_shown() {
        let result = "ab\n[… 4 bytes cut here …]\ngh\n[exit code 0]";
        assert_eq!(unseen_rest("abcdefgh\n", result), Some("[exit code 0]"));
        assert_eq!(unseen_rest("abcdef", result), None, "its end was not shown");
        assert_eq!(unseen_rest("xbcdefgh\n", result), None, "its start is another");
    }

    #[test]
    fn a_repetition_is_hidden_and_any_other_answer_is_returned_in_full() {
        let mut same = RepeatFilter::new("one two".to_owned());
        assert_eq!((same.push("one "), same.push("two")), (None, None));
        assert_eq!(same.finish(), None);

        let mut other = RepeatFilter::new("one two".to_owned());
        assert_eq!((other.push("one "), other.push("three")), (None, Some("one three".to_owned())));

        let mut longer = RepeatFilter::new("one".to_owned());
        assert_eq!((longer.push("one"), longer.push(" more")), (None, Some("one more".to_owned())));

        let mut shorter = RepeatFilter::new("one two".to_owned());
        assert_eq!(shorter.push("one"), None);
        assert_eq!(shorter.finish(), Some("one".to_owned()));
    }
}
