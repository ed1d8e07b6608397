//! Text templates with placeholders for the captures of a pattern.

use parlor_vocab::truncate_chars;

use crate::MAX_STEP_BYTES;

/// How many digits of an invalid capture number an error repeats.
const MAX_NUMBER_CHARS: usize = 20;

/// A text in which `$1` stands for the first capture, `$0` for the whole match and `$$` for a dollar sign. A dollar
/// sign before any other character is literal, so that most shell commands need no escape.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Template(Vec<Piece>);

#[derive(Debug, PartialEq, Eq)]
enum Piece {
    Text(String),
    Capture(usize),
}

/// A template refers to a capture that the pattern does not have.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`${number}` does not exist: the highest here is `${max_capture}`")]
pub(super) struct UnknownCapture {
    number: String,
    max_capture: usize,
}

/// The text of one step exceeds [`MAX_STEP_BYTES`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("with its captures filled in, a step of the script is larger than {MAX_STEP_BYTES} bytes")]
pub(super) struct StepTooLarge;

impl Template {
    /// Parses a template for a pattern with the captures `0..=max_capture`.
    pub(super) fn parse(template: &str, max_capture: usize) -> Result<Self, UnknownCapture> {
        let mut pieces = Vec::new();
        let mut text = String::new();
        let mut rest = template;
        while let Some((before, after)) = rest.split_once('$') {
            text.push_str(before);
            let (digits, tail) = after.split_at(after.bytes().take_while(u8::is_ascii_digit).count());
            rest = if digits.is_empty() {
                text.push('$');
                after.strip_prefix('$').unwrap_or(after)
            } else {
                let number = digits.parse().ok().filter(|number| *number <= max_capture);
                let number = number.ok_or_else(|| UnknownCapture {
                    number: truncate_chars(digits, MAX_NUMBER_CHARS).into_owned(),
                    max_capture,
                })?;
                pieces.extend(take_text(&mut text));
                pieces.push(Piece::Capture(number));
                tail
            };
        }
        text.push_str(rest);
        pieces.extend(take_text(&mut text));
        Ok(Self(pieces))
    }

    /// The text with `captures` inserted; `captures[0]` is the whole match. Subtracts the length of the text from
    /// `bytes_left`, the limit of this step.
    pub(super) fn fill(&self, captures: &[&str], bytes_left: &mut usize) -> Result<String, StepTooLarge> {
        let mut filled = String::new();
        for piece in &self.0 {
            let text = match piece {
                Piece::Text(text) => text,
                Piece::Capture(number) => captures.get(*number).copied().unwrap_or_default(),
            };
            *bytes_left = bytes_left.checked_sub(text.len()).ok_or(StepTooLarge)?;
            filled.push_str(text);
        }
        Ok(filled)
    }
}

fn take_text(text: &mut String) -> Option<Piece> {
    (!text.is_empty()).then(|| Piece::Text(std::mem::take(text)))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn filled(template: &str, captures: &[&str]) -> String {
        Template::parse(template, captures.len() - 1)
            .unwrap()
            .fill(captures, &mut { MAX_STEP_BYTES })
            .unwrap()
    }

    #[test]
    fn captures_are_inserted() {
        let captures = ["the whole", "one", "", "$1"];
        assert_eq!(filled("$0: $1$2, $3.", &captures), "the whole: one, $1.");
        assert_eq!(filled("no place", &captures), "no place");
        assert_eq!(filled("", &captures), "");
        assert_eq!(filled("$01", &captures), "one", "all digits belong to the number");
    }

    #[test]
    fn two_dollars_are_one_and_a_single_dollar_is_literal() {
        assert_eq!(filled("$$1 $$$1 $$$$", &["all", "x"]), "$1 $x $$");
        assert_eq!(filled("$HOME ${1} $(ls) $ä $", &["all", "x"]), "$HOME ${1} $(ls) $ä $");
    }

    #[test]
    fn an_unknown_capture_is_an_error() {
        let wrong = |template: &str| Template::parse(template, 1).unwrap_err().to_string();
        assert_eq!(wrong("a $2"), "`$2` does not exist: the highest here is `$1`");
        assert_eq!(wrong("$10"), "`$10` does not exist: the highest here is `$1`");
        let beyond_all_numbers = format!("${}", "9".repeat(1000));
        assert!(wrong(&beyond_all_numbers).starts_with("`$99999999999999999999…` does not exist"));
    }

    #[test]
    fn the_text_of_a_step_is_limited() {
        let template = Template::parse("$1-$1", 1).unwrap();
        let mut bytes_left = 10;
        assert_eq!(template.fill(&["", "ab"], &mut bytes_left).unwrap(), "ab-ab");
        assert_eq!(bytes_left, 5, "the length is subtracted");
        assert_eq!(template.fill(&["", "abc"], &mut bytes_left), Err(StepTooLarge));
    }

    /// Texts with many dollar signs and digits.
    fn template() -> impl Strategy<Value = String> {
        prop_oneof![any::<String>(), "[$0-3a\u{e4}]{0,20}"]
    }

    proptest! {
        #[test]
        fn any_template_can_be_filled_or_is_refused(
            template in template(), captures in prop::collection::vec(template(), 1..4), bytes_left in 0_usize..100,
        ) {
            let captures: Vec<&str> = captures.iter().map(String::as_str).collect();
            if let Ok(template) = Template::parse(&template, captures.len() - 1) {
                let mut left = bytes_left;
                if let Ok(text) = template.fill(&captures, &mut left) {
                    prop_assert_eq!(text.len() + left, bytes_left);
                }
                // Missing captures do not cause a panic.
                let _ = template.fill(&[], &mut { bytes_left });
            }
        }

        #[test]
        fn a_text_with_doubled_dollars_is_literal(text in template()) {
            prop_assert_eq!(filled(&text.replace('$', "$$"), &["all"]), text);
        }

        #[test]
        fn captures_are_not_expanded_again(capture in template()) {
            prop_assert_eq!(filled("<$1>", &["all", &capture]), format!("<{capture}>"));
        }
    }
}
