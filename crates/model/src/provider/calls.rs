//! The tool calls of an answer, put together from pieces as they come.
//!
//! Providers number their calls in any way they like, so a number is only ever compared. Deliberately absent: whether a
//! call can be carried out, and names for calls that have none.

use serde::de::IgnoredAny;

use super::{Key, ModelCall, Piece, ProviderError};

/// The most calls that one answer may make.
pub const MAX_ANSWER_CALLS: usize = 512;

/// The longest name of a tool that all providers take.
const MAX_TOOL_NAME: usize = 64;

/// A piece of a call. What it does not say is empty.
#[derive(Debug, Default)]
pub(super) struct CallPiece {
    /// The provider's number of the call.
    pub(super) number: Option<u64>,
    pub(super) id: String,
    pub(super) tool: String,
    pub(super) input: String,
}

/// The calls of one answer, in the order in which they began.
#[derive(Debug, Default)]
pub(super) struct Calls {
    /// What no tool may be called.
    key: Option<Key>,
    calls: Vec<Writing>,
    /// How many bytes they have in all.
    bytes: usize,
}

/// A call that is being written.
#[derive(Debug)]
struct Writing {
    number: Option<u64>,
    id: String,
    tool: String,
    input: String,
    /// How much of its input was passed on. None if nothing is: others have its name, or it has none.
    shown: Option<usize>,
}

impl Writing {
    /// Whether a piece with a name in it begins another call, although its number is that of this one: some servers
    /// give every call the same number.
    fn ends_before(&self, piece: &CallPiece) -> bool {
        if piece.tool.is_empty() {
            return false;
        }
        if !piece.id.is_empty() && !self.id.is_empty() {
            return piece.id != self.id;
        }
        !piece.input.is_empty() && is_whole(&self.input)
    }
}

impl Calls {
    /// None yet, of an answer to whoever asked with this key.
    pub(super) fn hiding(key: Option<Key>) -> Self {
        Self { key, ..Self::default() }
    }

    /// Takes a piece of a call.
    pub(super) fn add(&mut self, piece: CallPiece) -> Result<(), ProviderError> {
        let known = match piece.number {
            Some(number) => self.calls.iter().rposition(|call| call.number == Some(number)),
            None if !piece.id.is_empty() => self.calls.iter().rposition(|call| call.id == piece.id),
            None if piece.tool.is_empty() => self.calls.len().checked_sub(1),
            None => None,
        };
        match known.filter(|place| !self.calls[*place].ends_before(&piece)) {
            Some(place) => {
                let call = &mut self.calls[place];
                if call.tool.is_empty() {
                    self.bytes += piece.tool.len();
                    call.tool = piece.tool;
                }
                if call.id.is_empty() {
                    self.bytes += piece.id.len();
                    call.id = piece.id;
                }
                call.input.push_str(&piece.input);
                self.bytes += piece.input.len();
                Ok(())
            }
            None => self.begin(piece),
        }
    }

    /// Takes all of a call, of which there may be pieces. If it says nothing of the input, these stand.
    pub(super) fn add_all_of(&mut self, call: CallPiece) -> Result<(), ProviderError> {
        let is_same = |known: &&mut Writing| known.number == call.number && known.id == call.id;
        let Some(known) = self.calls.iter_mut().rfind(is_same) else { return self.begin(call) };
        if !call.input.is_empty() {
            if !call.input.starts_with(&known.input) {
                known.shown = None;
            }
            self.bytes = self.bytes.saturating_sub(known.input.len()) + call.input.len();
            known.input = call.input;
        }
        Ok(())
    }

    /// Takes a call that comes as a whole.
    pub(super) fn whole(&mut self, id: &str, tool: &str, input: String) -> Result<(), ProviderError> {
        self.begin(CallPiece { number: None, id: id.to_owned(), tool: tool.to_owned(), input })
    }

    fn begin(&mut self, piece: CallPiece) -> Result<(), ProviderError> {
        if self.calls.len() == MAX_ANSWER_CALLS {
            let said = format!("the answer makes more than {MAX_ANSWER_CALLS} calls");
            return Err(ProviderError::Refused { said });
        }
        let CallPiece { number, id, tool, input } = piece;
        let is_alone = !id.is_empty() && self.calls.iter().all(|call| call.id != id);
        self.bytes += id.len() + tool.len() + input.len();
        self.calls.push(Writing { number, id, tool, input, shown: is_alone.then_some(0) });
        Ok(())
    }

    /// Whether there is none yet.
    pub(super) fn is_empty(&self) -> bool {
        self.calls.is_empty()
    }

    /// How many bytes they have in all: inputs and names.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// What has come since the last time of the first call that goes on.
    pub(super) fn next_piece(&mut self) -> Option<Piece> {
        let key = self.key.as_ref();
        self.calls.iter_mut().find_map(|call| {
            let shown = call.shown.as_mut().filter(|_| !call.tool.is_empty())?;
            let text = call.input.get(*shown..).filter(|more| !more.is_empty())?.to_owned();
            *shown = call.input.len();
            Some(Piece::CallInput { id: call.id.clone(), tool: sendable(&call.tool, key), text })
        })
    }

    /// The calls, complete.
    pub(super) fn made(&mut self) -> Vec<ModelCall> {
        let (calls, key) = (std::mem::take(&mut self.calls), self.key.as_ref());
        let made =
            |call: Writing| ModelCall { id: call.id, tool: sendable(&call.tool, key), input: call.input };
        calls.into_iter().map(made).collect()
    }
}

/// Whether it is all of an input.
fn is_whole(input: &str) -> bool {
    input.trim_end().ends_with('}') && serde_json::from_str::<IgnoredAny>(input).is_ok()
}

/// The name of a tool as providers take it back in a history, whatever a model made up. The key is taken out first: once
/// the name is cut, nobody would know it any more.
fn sendable(name: &str, key: Option<&Key>) -> String {
    let name = key.map_or_else(|| name.to_owned(), |key| key.hide_in(name));
    let is_plain = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
    let name: String = name.chars().take(MAX_TOOL_NAME).map(|c| if is_plain(c) { c } else { '_' }).collect();
    if name.is_empty() { "unnamed".to_owned() } else { name }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn piece(number: Option<u64>, id: &str, tool: &str, input: &str) -> CallPiece {
        CallPiece { number, id: id.to_owned(), tool: tool.to_owned(), input: input.to_owned() }
    }

    /// The calls that come of pieces: number, id, tool and input each.
    fn made(pieces: &[(Option<u64>, &str, &str, &str)]) -> Vec<(String, String, String)> {
        let mut calls = Calls::default();
        for (number, id, tool, input) in pieces {
            calls.add(piece(*number, id, tool, input)).unwrap();
        }
        calls.made().into_iter().map(|call| (call.id, call.tool, call.input)).collect()
    }

    fn three(calls: &[(&str, &str, &str)]) -> Vec<(String, String, String)> {
        calls.iter().map(|(a, b, c)| ((*a).to_owned(), (*b).to_owned(), (*c).to_owned())).collect()
    }

    #[test]
    fn calls_are_told_apart_by_their_numbers_wherever_these_begin() {
        for first in [0, 1, 4_000_000_000] {
            let (one, two) = (Some(first), Some(first + 1));
            let calls = made(&[
                (one, "a", "shell", ""),
                (two, "b", "read_file", ""),
                (one, "", "", "{\"c\":"),
                (two, "", "", "{}"),
                (one, "", "", "1}"),
            ]);
            assert_eq!(calls, three(&[("a", "shell", "{\"c\":1}"), ("b", "read_file", "{}")]));
        }
    }

    #[test]
    fn calls_that_share_a_number_are_told_apart_by_their_ids_or_by_being_whole() {
        let same = Some(0);
        assert_eq!(
            made(&[(same, "a", "x", "{}"), (same, "b", "x", "{\"n\":1}")]),
            three(&[("a", "x", "{}"), ("b", "x", "{\"n\":1}")])
        );
        assert_eq!(
            made(&[(same, "", "x", "{}"), (same, "", "x", "{}")]),
            three(&[("", "x", "{}"), ("", "x", "{}")])
        );
        // Some repeat all of it with every piece.
        assert_eq!(made(&[(same, "a", "x", "{"), (same, "a", "x", "}")]), three(&[("a", "x", "{}")]));
        assert_eq!(made(&[(same, "", "x", "{"), (same, "", "x", "}")]), three(&[("", "x", "{}")]));
        assert_eq!(made(&[(same, "a", "x", "{}"), (same, "", "x", "")]), three(&[("a", "x", "{}")]));
    }

    #[test]
    fn calls_without_numbers_are_calls_as_well() {
        assert_eq!(
            made(&[(None, "a", "x", "{"), (None, "", "", "}"), (None, "b", "x", "{}"), (None, "a", "", " ")]),
            three(&[("a", "x", "{} "), ("b", "x", "{}")])
        );
        assert_eq!(
            made(&[(None, "", "x", "{}"), (None, "", "x", "{}")]),
            three(&[("", "x", "{}"), ("", "x", "{}")])
        );
    }

    #[test]
    fn the_same_id_with_another_number_is_another_call() {
        let calls = made(&[(Some(0), "a", "x", "{}"), (Some(1), "a", "y", "{}")]);
        assert_eq!(calls, three(&[("a", "x", "{}"), ("a", "y", "{}")]));
    }

    #[test]
    fn what_has_come_is_passed_on_once_under_a_name_of_its_own() {
        let mut calls = Calls::default();
        let news = |calls: &mut Calls| -> Vec<String> {
            let pieces = std::iter::from_fn(|| calls.next_piece());
            let shown = pieces.map(|piece| {
                let Piece::CallInput { id, tool, text } = piece else { panic!("{piece:?}") };
                format!("{id} {tool} {text}")
            });
            shown.collect()
        };
        calls.add(piece(Some(0), "a", "x", "")).unwrap();
        assert!(news(&mut calls).is_empty());
        calls.add(piece(Some(0), "", "", "{\"\u{e4}")).unwrap();
        calls.add(piece(Some(1), "a", "x", "never")).unwrap();
        calls.add(piece(Some(2), "", "x", "never")).unwrap();
        assert_eq!(news(&mut calls), ["a x {\"\u{e4}"]);
        calls.add(piece(Some(0), "", "", "\":1}")).unwrap();
        calls.add_all_of(piece(Some(3), "b", "y", "{}")).unwrap();
        assert_eq!(news(&mut calls), ["a x \":1}", "b y {}"]);
        assert_eq!(calls.bytes(), 27);
    }

    #[test]
    fn an_answer_makes_so_many_calls_and_no_more() {
        let mut calls = Calls::default();
        for number in 0..MAX_ANSWER_CALLS {
            calls.add(piece(u64::try_from(number).ok(), "", "x", "{}")).unwrap();
        }
        calls.add(piece(Some(0), "", "", " ")).unwrap();
        let error = calls.add(piece(None, "", "x", "{}")).unwrap_err();
        assert!(!error.is_retryable() && error.to_string().contains("more than 512 calls"), "{error}");
    }

    #[test]
    fn what_is_told_of_a_call_at_its_end_counts() {
        let told = |begun: &str, end: &str| {
            let mut calls = Calls::default();
            calls.add(piece(Some(0), "a", "x", begun)).unwrap();
            let mut shown = vec![calls.next_piece()];
            calls.add_all_of(piece(Some(0), "a", "x", end)).unwrap();
            assert_eq!(calls.bytes(), 2 + if end.is_empty() { begun.len() } else { end.len() });
            shown.push(calls.next_piece());
            let shown: Vec<String> = shown
                .into_iter()
                .flatten()
                .map(|piece| if let Piece::CallInput { text, .. } = piece { text } else { String::new() })
                .collect();
            (calls.made().remove(0).input, shown)
        };
        let texts = |texts: &[&str]| texts.iter().map(|text| (*text).to_owned()).collect::<Vec<_>>();
        assert_eq!(told("{\"n\":", "{\"n\":1}"), ("{\"n\":1}".to_owned(), texts(&["{\"n\":", "1}"])));
        assert_eq!(told("{}", ""), ("{}".to_owned(), texts(&["{}"])));
        assert_eq!(told("{\"m", "{\"n\":1}"), ("{\"n\":1}".to_owned(), texts(&["{\"m"])));
    }

    #[test]
    fn what_a_model_calls_a_tool_can_be_sent_back() {
        assert_eq!(sendable("read_file", None), "read_file");
        assert_eq!(
            (sendable("", None).as_str(), sendable("a\u{1b}[31m b", None).as_str()),
            ("unnamed", "a__31m_b")
        );
        assert_eq!(sendable(&"x".repeat(5000), None).len(), MAX_TOOL_NAME);
    }
}
