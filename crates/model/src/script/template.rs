//! Texts with places for what a pattern captured.

use crate::MAX_STEP_BYTES;
use crate::quote::cut;

/// How much of a wrong capture number is repeated.
const MAX_NUMBER_CHARS: usize = 20;

/// A text in which `$1` stands for the first capture, `$0` for the whole match and `$$` for a dollar.
/// A dollar before anything else is a dollar, so that most shell commands need no second one.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Template(Vec<Piece>);

#[derive(Debug, PartialEq, Eq)]
enum Piece {
    Text(String),
    Capture(usize),
}

/// A template asks for a capture that the pattern does not make.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`${number}` does not exist: the highest here is `${highest}`")]
pub(super) struct UnknownCapture {
    number: String,
    highest: usize,
}

/// One step would perform more than [`MAX_STEP_BYTES`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("with its captures filled in, a step of the script is larger than {MAX_STEP_BYTES} bytes")]
pub(super) struct Overfull;

impl Template {
    /// Reads a template for a pattern whose captures are `0..=highest`.
    pub(super) fn parse(template: &str, highest: usize) -> Result<Self, UnknownCapture> {
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
                let number = digits.parse().ok().filter(|number| *number <= highest);
                let number = number.ok_or_else(|| UnknownCapture {
                    number: cut(digits, MAX_NUMBER_CHARS).into_owned(),
                    highest,
                })?;
                pieces.extend(take(&mut text));
                pieces.push(Piece::Capture(number));
                tail
            };
        }
        text.push_str(rest);
        pieces.extend(take(&mut text));
        Ok(Self(pieces))
    }

    /// The text with `captures` in their places, the whole match first. It is taken from `room`,
    /// the bytes that are left for this step.
    pub(super) fn fill(&self, captures: &[&str], room: &mut usize) -> Result<String, Overfull> {
        let mut filled = String::new();
        for piece in &self.0 {
            let text = match piece {
                Piece::Text(text) => text,
                Piece::Capture(number) => captures.get(*number).copied().unwrap_or_default(),
            };
            *room = room.checked_sub(text.len()).ok_or(Overfull)?;
            filled.push_str(text);
        }
        Ok(filled)
    }
}

fn take(text: &mut String) -> Option<Piece> {
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
    fn captures_take_their_places() {
        let captures = ["the whole", "one", "", "$1"];
        assert_eq!(filled("$0: $1$2, $3.", &captures), "the whole: one, $1.");
        assert_eq!(filled("no place", &captures), "no place");
        assert_eq!(filled("", &captures), "");
        assert_eq!(filled("$01", &captures), "one", "a number is all the digits there are");
    }

    #[test]
    fn two_dollars_are_one_and_a_lone_dollar_is_itself() {
        assert_eq!(filled("$$1 $$$1 $$$$", &["all", "x"]), "$1 $x $$");
        assert_eq!(filled("$HOME ${1} $(ls) $ä $", &["all", "x"]), "$HOME ${1} $(ls) $ä $");
    }

    #[test]
    fn a_capture_that_is_not_made_is_an_error() {
        let wrong = |template: &str| Template::parse(template, 1).unwrap_err().to_string();
        assert_eq!(wrong("a $2"), "`$2` does not exist: the highest here is `$1`");
        assert_eq!(wrong("$10"), "`$10` does not exist: the highest here is `$1`");
        let beyond_all_numbers = format!("${}", "9".repeat(1000));
        assert!(wrong(&beyond_all_numbers).starts_with("`$99999999999999999999…` does not exist"));
    }

    #[test]
    fn a_step_has_room_for_so_much_text() {
        let template = Template::parse("$1-$1", 1).unwrap();
        let mut room = 10;
        assert_eq!(template.fill(&["", "ab"], &mut room).unwrap(), "ab-ab");
        assert_eq!(room, 5, "what one text took is gone for the next");
        assert_eq!(template.fill(&["", "abc"], &mut room), Err(Overfull));
    }

    /// Texts in which dollars and digits are frequent.
    fn template() -> impl Strategy<Value = String> {
        prop_oneof![any::<String>(), "[$0-3a\u{e4}]{0,20}"]
    }

    proptest! {
        #[test]
        fn any_template_can_be_filled_or_is_refused(
            template in template(), captures in prop::collection::vec(template(), 1..4), room in 0_usize..100,
        ) {
            let captures: Vec<&str> = captures.iter().map(String::as_str).collect();
            if let Ok(template) = Template::parse(&template, captures.len() - 1) {
                let mut left = room;
                if let Ok(text) = template.fill(&captures, &mut left) {
                    prop_assert_eq!(text.len() + left, room);
                }
                // Fewer captures than were promised are no reason to panic.
                let _ = template.fill(&[], &mut { room });
            }
        }

        #[test]
        fn with_its_dollars_doubled_any_text_is_itself(text in template()) {
            prop_assert_eq!(filled(&text.replace('$', "$$"), &["all"]), text);
        }

        #[test]
        fn what_was_captured_is_not_looked_at_again(capture in template()) {
            prop_assert_eq!(filled("<$1>", &["all", &capture]), format!("<{capture}>"));
        }
    }
}
