//! The tool calls of an answer, put together from pieces as they come.
//!
//! Providers number their calls in any way they like, so a number is only ever compared. Deliberately absent: whether a
//! call can be carried out.

use serde::de::IgnoredAny;

use super::forms::MADE_UP_ID;
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
    /// The name of the part of the answer that the call is, where parts have names of their own.
    pub(super) item: String,
    pub(super) id: String,
    pub(super) tool: String,
    pub(super) input: String,
    /// An input that stands if no other comes.
    pub(super) first_input: String,
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
    item: String,
    id: String,
    tool: String,
    input: String,
    first_input: String,
    /// Whether it was told as a whole.
    is_told: bool,
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
            let are_whole = is_whole(&piece.input) && is_whole(&self.input);
            return piece.id != self.id || (are_whole && piece.input != self.input);
        }
        differ(&piece.tool, &self.tool) || (!piece.input.is_empty() && is_whole(&self.input))
    }

    /// Whether a piece with all its names in it says once more what is known, all of it.
    fn has_all_of(&self, piece: &CallPiece) -> bool {
        let is_named = !piece.tool.is_empty() && !piece.id.is_empty();
        is_named && piece.id == self.id && piece.input == self.input && is_whole(&piece.input)
    }

    /// Whether `all` of a call is all of this one.
    fn is_part_of(&self, all: &CallPiece) -> bool {
        let is_same = |one: &str, other: &str| !one.is_empty() && one == other;
        match (self.number, all.number) {
            _ if differ(&self.id, &all.id) => false,
            (Some(number), Some(other)) => number == other,
            _ => is_same(&self.id, &all.id) || is_same(&self.item, &all.item),
        }
    }

    /// Whether it may be, if no other is: what one of them does not say does not tell them apart, and some servers name a
    /// call anew whenever they tell of it.
    fn may_be_part_of(&self, all: &CallPiece) -> bool {
        let is_open = !self.is_told && !differ(&self.tool, &all.tool);
        match (self.number, all.number) {
            (Some(number), Some(other)) => is_open && number == other,
            _ => is_open && !differ(&self.id, &all.id) && !differ(&self.item, &all.item),
        }
    }

    /// Takes from a piece the names that are not known yet, and gives back how many bytes they have.
    fn learn(&mut self, piece: &mut CallPiece) -> usize {
        let fill = |known: &mut String, name: &mut String| {
            let is_new = known.is_empty();
            if is_new {
                *known = std::mem::take(name);
            }
            if is_new { known.len() } else { 0 }
        };
        self.number = self.number.or(piece.number);
        fill(&mut self.item, &mut piece.item)
            + fill(&mut self.id, &mut piece.id)
            + fill(&mut self.tool, &mut piece.tool)
    }
}

/// Whether both are said, and are not the same.
fn differ(one: &str, other: &str) -> bool {
    !one.is_empty() && !other.is_empty() && one != other
}

impl Calls {
    /// None yet, of an answer to whoever asked with this key.
    pub(super) fn hiding(key: Option<Key>) -> Self {
        Self { key, ..Self::default() }
    }

    /// Takes a piece of a call.
    pub(super) fn add(&mut self, mut piece: CallPiece) -> Result<(), ProviderError> {
        match self.place_of(&piece).filter(|place| !self.calls[*place].ends_before(&piece)) {
            Some(place) => {
                let call = &mut self.calls[place];
                if !call.has_all_of(&piece) {
                    self.bytes += call.learn(&mut piece) + piece.input.len();
                    call.input.push_str(&piece.input);
                }
                Ok(())
            }
            None => self.begin(piece),
        }
    }

    /// Takes a piece of a call if that has begun.
    pub(super) fn add_to_known(&mut self, piece: CallPiece) -> Result<(), ProviderError> {
        if self.place_of(&piece).is_some() { self.add(piece) } else { Ok(()) }
    }

    /// Where the call is that a piece belongs to.
    fn place_of(&self, piece: &CallPiece) -> Option<usize> {
        let last = |is_it: &dyn Fn(&Writing) -> bool| self.calls.iter().rposition(is_it);
        let numbered = piece.number.and_then(|_| last(&|call| call.number == piece.number));
        // Whoever numbers only some pieces still names them.
        let has_open_number = |call: &Writing| call.number.is_none() || piece.number.is_none();
        let named = |name: &str, of: fn(&Writing) -> &str| {
            let is_it = |call: &Writing| has_open_number(call) && of(call) == name;
            (!name.is_empty()).then(|| last(&is_it)).flatten()
        };
        let says_nothing = piece.id.is_empty() && piece.tool.is_empty();
        let is_it = |call: &Writing| has_open_number(call) && !differ(&call.item, &piece.item);
        numbered
            .or_else(|| named(&piece.item, |call| &call.item))
            .or_else(|| named(&piece.id, |call| &call.id))
            .or_else(|| {
                self.calls.len().checked_sub(1).filter(|place| says_nothing && is_it(&self.calls[*place]))
            })
    }

    /// Takes all of a call, of which there may be pieces, or all of its input. If it says nothing of the input, these
    /// stand.
    pub(super) fn add_all_of(&mut self, mut all: CallPiece) -> Result<(), ProviderError> {
        let known = self.calls.iter();
        let place = known.clone().rposition(|call| call.is_part_of(&all));
        let place = place.or_else(|| known.clone().rposition(|call| call.may_be_part_of(&all)));
        let is_told = !all.tool.is_empty();
        match place {
            Some(place) => {
                self.bytes += self.calls[place].learn(&mut all);
                self.calls[place].is_told |= is_told;
                self.replace_input(place, all.input);
            }
            // An input of nobody: whose it is comes with its call, and so does the input.
            None if !is_told => {}
            None => {
                self.begin(all)?;
                self.calls.last_mut().into_iter().for_each(|call| call.is_told = true);
            }
        }
        Ok(())
    }

    /// Takes all calls of the answer, of which some may be known. An input that is known stands.
    pub(super) fn add_end(&mut self, mut all: Vec<CallPiece>) -> Result<(), ProviderError> {
        let mut open: Vec<usize> = (0..self.calls.len()).collect();
        let ways: [fn(&Writing, &CallPiece) -> bool; 3] = [
            |call, piece| !call.id.is_empty() && call.id == piece.id,
            |call, piece| !call.item.is_empty() && call.item == piece.item,
            // Some servers name a call anew whenever they tell of it, and none is to be made twice.
            |call, piece| !differ(&call.tool, &piece.tool),
        ];
        for is_same in ways {
            let mut unknown = Vec::new();
            for mut piece in all {
                let Some(at) = open.iter().position(|place| is_same(&self.calls[*place], &piece)) else {
                    unknown.push(piece);
                    continue;
                };
                let place = open.remove(at);
                self.bytes += self.calls[place].learn(&mut piece);
                if !is_whole(&self.calls[place].input) {
                    self.replace_input(place, piece.input);
                }
            }
            all = unknown;
        }
        all.into_iter().try_for_each(|piece| self.begin(piece))
    }

    fn replace_input(&mut self, place: usize, input: String) {
        let call = &mut self.calls[place];
        if input.is_empty() {
            return;
        }
        if !input.starts_with(&call.input) {
            call.shown = None;
        }
        self.bytes = self.bytes.saturating_sub(call.input.len()) + input.len();
        call.input = input;
    }

    /// Takes a call that comes as a whole, which gets an id if it has none.
    pub(super) fn whole(&mut self, id: String, tool: String, input: String) -> Result<(), ProviderError> {
        let id = if id.is_empty() { format!("{MADE_UP_ID}{}", self.calls.len()) } else { id };
        self.begin(CallPiece { id, tool, input, ..CallPiece::default() })
    }

    /// Takes the beginning of a call, whichever others there are.
    pub(super) fn begin(&mut self, piece: CallPiece) -> Result<(), ProviderError> {
        if self.calls.len() == MAX_ANSWER_CALLS {
            let said = format!("the answer makes more than {MAX_ANSWER_CALLS} calls");
            return Err(ProviderError::Refused { said });
        }
        let CallPiece { number, item, id, tool, input, first_input } = piece;
        let shown = (!id.is_empty() && self.calls.iter().all(|call| call.id != id)).then_some(0);
        self.bytes += item.len() + id.len() + tool.len() + input.len() + first_input.len();
        self.calls.push(Writing { number, item, id, tool, input, first_input, is_told: false, shown });
        Ok(())
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
        let made = |call: Writing| {
            let input = if call.input.trim().is_empty() { call.first_input } else { call.input };
            ModelCall { id: call.id, tool: sendable(&call.tool, key), input }
        };
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
        let text = str::to_owned;
        CallPiece { number, id: text(id), tool: text(tool), input: text(input), ..CallPiece::default() }
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
        assert_eq!(
            made(&[(same, "", "x", ""), (same, "", "y", "{}")]),
            three(&[("", "x", ""), ("", "y", "{}")]),
            "a call without an input"
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
    fn calls_that_share_an_id_are_told_apart_by_their_inputs_if_these_are_whole() {
        for number in [None, Some(0)] {
            assert_eq!(
                made(&[(number, "a", "x", "{\"n\":1}"), (number, "a", "x", "{\"n\":2}")]),
                three(&[("a", "x", "{\"n\":1}"), ("a", "x", "{\"n\":2}")])
            );
            // Some tell of a call once more when it is complete.
            assert_eq!(
                made(&[(number, "a", "x", "{"), (number, "", "", "}"), (number, "a", "x", "{}")]),
                three(&[("a", "x", "{}")])
            );
        }
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
    fn all_of_a_call_goes_to_the_one_that_has_its_name_before_one_that_has_none() {
        let mut calls = Calls::default();
        calls.add(piece(None, "a", "x", "")).unwrap();
        calls.add(piece(None, "", "x", "")).unwrap();
        calls.add_all_of(piece(Some(0), "a", "x", "{}")).unwrap();
        calls.add_all_of(piece(Some(1), "b", "x", "[]")).unwrap();
        let made: Vec<(String, String)> =
            calls.made().into_iter().map(|call| (call.id, call.input)).collect();
        assert_eq!(made, [("a".to_owned(), "{}".to_owned()), ("b".to_owned(), "[]".to_owned())]);
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
