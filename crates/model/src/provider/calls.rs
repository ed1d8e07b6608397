//! Assembles the tool calls of an answer from streamed pieces.
//!
//! Providers number their calls arbitrarily, so numbers are only compared. Deliberately absent: whether a call can be
//! executed.

use serde::de::IgnoredAny;

use super::formats::LOCAL_CALL_ID_PREFIX;
use super::{Key, ModelCall, Piece, ProviderError};

/// The most calls that one answer may make.
pub const MAX_ANSWER_CALLS: usize = 512;

/// Up to how many bytes an input is checked for completeness with each piece. Checking longer inputs again and again
/// would take quadratic time; servers that give every call the same number and no id may join two such calls to one.
pub const CHECKED_INPUT_BYTES: usize = 64 << 10;

/// The longest tool name that all providers accept.
const MAX_TOOL_NAME: usize = 64;

/// A piece of a call. Members that the provider did not send are empty.
#[derive(Debug, Default)]
pub(super) struct CallPiece {
    /// The provider's number of the call, or of the block that contains it.
    pub(super) number: Option<u64>,
    /// The id of the output item that contains the call (responses format).
    pub(super) item: String,
    /// The id of the call.
    pub(super) id: String,
    pub(super) tool: String,
    pub(super) input: String,
    /// The input to use if the provider streams no other.
    pub(super) first_input: String,
}

/// The calls of one answer, in the order in which they began.
#[derive(Debug, Default)]
pub(super) struct Calls {
    /// The key of the request, which is removed from tool names.
    key: Option<Key>,
    calls: Vec<PartialCall>,
    /// The total size of the calls.
    bytes: usize,
}

/// A call that may be incomplete.
#[derive(Debug)]
struct PartialCall {
    number: Option<u64>,
    item: String,
    id: String,
    tool: String,
    input: String,
    first_input: String,
    /// Whether the provider has sent the complete call.
    is_complete: bool,
    /// How many bytes of the input were returned as pieces. `None` if the input is not streamed, because the id is
    /// empty or not unique.
    streamed: Option<usize>,
}

impl PartialCall {
    /// Whether a piece with a tool name begins another call although it has the number of this one: some servers give
    /// every call the same number.
    fn is_other_than(&self, piece: &CallPiece) -> bool {
        if piece.tool.is_empty() {
            return false;
        }
        if !piece.id.is_empty() && !self.id.is_empty() {
            let are_complete = is_complete_json(&piece.input) && self.has_complete_input();
            return piece.id != self.id || (are_complete && piece.input != self.input);
        }
        differ(&piece.tool, &self.tool) || (!piece.input.is_empty() && self.has_complete_input())
    }

    /// Whether the input so far is complete JSON. Always false beyond [`CHECKED_INPUT_BYTES`].
    fn has_complete_input(&self) -> bool {
        self.input.len() <= CHECKED_INPUT_BYTES && is_complete_json(&self.input)
    }

    /// Whether a piece repeats the complete call.
    fn is_repeated_by(&self, piece: &CallPiece) -> bool {
        let has_ids = !piece.tool.is_empty() && !piece.id.is_empty();
        has_ids && piece.id == self.id && piece.input == self.input && is_complete_json(&piece.input)
    }

    /// Whether the complete call `complete` is this one, by its ids or its number.
    fn is_part_of(&self, complete: &CallPiece) -> bool {
        let is_same = |one: &str, other: &str| !one.is_empty() && one == other;
        match (self.number, complete.number) {
            _ if differ(&self.id, &complete.id) => false,
            (Some(number), Some(other)) => number == other,
            _ => is_same(&self.id, &complete.id) || is_same(&self.item, &complete.item),
        }
    }

    /// Whether the complete call `complete` may be this one, if no other is. Missing members do not distinguish
    /// calls, and some servers give a call a new id each time.
    fn may_be_part_of(&self, complete: &CallPiece) -> bool {
        let is_open = !self.is_complete && !differ(&self.tool, &complete.tool);
        match (self.number, complete.number) {
            (Some(number), Some(other)) => is_open && number == other,
            _ => is_open && !differ(&self.id, &complete.id) && !differ(&self.item, &complete.item),
        }
    }

    /// Takes from a piece the number, ids and tool name that are not known yet. Returns the size of the new texts.
    fn fill_in(&mut self, piece: &mut CallPiece) -> usize {
        let fill = |known: &mut String, text: &mut String| {
            let is_new = known.is_empty();
            if is_new {
                *known = std::mem::take(text);
            }
            if is_new { known.len() } else { 0 }
        };
        self.number = self.number.or(piece.number);
        fill(&mut self.item, &mut piece.item)
            + fill(&mut self.id, &mut piece.id)
            + fill(&mut self.tool, &mut piece.tool)
    }
}

/// Whether both texts are present and different.
fn differ(one: &str, other: &str) -> bool {
    !one.is_empty() && !other.is_empty() && one != other
}

impl Calls {
    /// No calls yet. `key` is removed from tool names.
    pub(super) fn new(key: Option<Key>) -> Self {
        Self { key, ..Self::default() }
    }

    /// Adds a piece to its call, or begins a new call.
    pub(super) fn add(&mut self, mut piece: CallPiece) -> Result<(), ProviderError> {
        match self.index_of(&piece).filter(|index| !self.calls[*index].is_other_than(&piece)) {
            Some(index) => {
                let call = &mut self.calls[index];
                if !call.is_repeated_by(&piece) {
                    self.bytes += call.fill_in(&mut piece) + piece.input.len();
                    call.input.push_str(&piece.input);
                }
                Ok(())
            }
            None => self.begin(piece),
        }
    }

    /// Adds a piece if its call has begun; otherwise ignores it.
    pub(super) fn add_to_known(&mut self, piece: CallPiece) -> Result<(), ProviderError> {
        if self.index_of(&piece).is_some() { self.add(piece) } else { Ok(()) }
    }

    /// The index of the call to which a piece belongs.
    fn index_of(&self, piece: &CallPiece) -> Option<usize> {
        let last = |matches: &dyn Fn(&PartialCall) -> bool| self.calls.iter().rposition(matches);
        let numbered = piece.number.and_then(|_| last(&|call| call.number == piece.number));
        // A server that numbers only some of its pieces identifies the others by ids.
        let may_have_number = |call: &PartialCall| call.number.is_none() || piece.number.is_none();
        let with_id = |id: &str, id_of: fn(&PartialCall) -> &str| {
            let matches = |call: &PartialCall| may_have_number(call) && id_of(call) == id;
            (!id.is_empty()).then(|| last(&matches)).flatten()
        };
        let is_continuation = piece.id.is_empty() && piece.tool.is_empty();
        let may_continue = |call: &PartialCall| may_have_number(call) && !differ(&call.item, &piece.item);
        numbered
            .or_else(|| with_id(&piece.item, |call| &call.item))
            .or_else(|| with_id(&piece.id, |call| &call.id))
            .or_else(|| {
                let last = self.calls.len().checked_sub(1);
                last.filter(|index| is_continuation && may_continue(&self.calls[*index]))
            })
    }

    /// Adds a complete call or the complete input of a call, of which pieces may have arrived. Without an input, the
    /// input from the pieces stays.
    pub(super) fn complete(&mut self, mut complete: CallPiece) -> Result<(), ProviderError> {
        let known = self.calls.iter();
        let index = known.clone().rposition(|call| call.is_part_of(&complete));
        let index = index.or_else(|| known.clone().rposition(|call| call.may_be_part_of(&complete)));
        let is_call = !complete.tool.is_empty();
        match index {
            Some(index) => {
                self.bytes += self.calls[index].fill_in(&mut complete);
                self.calls[index].is_complete |= is_call;
                self.replace_input(index, complete.input);
            }
            // An input without a known call is ignored: the provider repeats it with the call.
            None if !is_call => {}
            None => {
                self.begin(complete)?;
                self.calls.last_mut().into_iter().for_each(|call| call.is_complete = true);
            }
        }
        Ok(())
    }

    /// Adds all calls at the end of the answer, of which some may be known. A complete known input stays.
    pub(super) fn complete_all(&mut self, mut all: Vec<CallPiece>) -> Result<(), ProviderError> {
        let mut open: Vec<usize> = (0..self.calls.len()).collect();
        let criteria: [fn(&PartialCall, &CallPiece) -> bool; 3] = [
            |call, piece| !call.id.is_empty() && call.id == piece.id,
            |call, piece| !call.item.is_empty() && call.item == piece.item,
            // Some servers give a call a new id each time. No call may be made twice.
            |call, piece| !differ(&call.tool, &piece.tool),
        ];
        for is_same in criteria {
            let mut unknown = Vec::new();
            for mut piece in all {
                let Some(at) = open.iter().position(|index| is_same(&self.calls[*index], &piece)) else {
                    unknown.push(piece);
                    continue;
                };
                let index = open.remove(at);
                self.bytes += self.calls[index].fill_in(&mut piece);
                if !is_complete_json(&self.calls[index].input) {
                    self.replace_input(index, piece.input);
                }
            }
            all = unknown;
        }
        all.into_iter().try_for_each(|piece| self.begin(piece))
    }

    fn replace_input(&mut self, index: usize, input: String) {
        let call = &mut self.calls[index];
        if input.is_empty() {
            return;
        }
        if !input.starts_with(&call.input) {
            call.streamed = None;
        }
        self.bytes = self.bytes.saturating_sub(call.input.len()) + input.len();
        call.input = input;
    }

    /// Adds a call of a provider that sends calls in one piece. A call without an id gets one.
    pub(super) fn push_complete(
        &mut self,
        id: String,
        tool: String,
        input: String,
    ) -> Result<(), ProviderError> {
        let id = if id.is_empty() { format!("{LOCAL_CALL_ID_PREFIX}{}", self.calls.len()) } else { id };
        self.begin(CallPiece { id, tool, input, ..CallPiece::default() })
    }

    /// Begins a new call.
    pub(super) fn begin(&mut self, piece: CallPiece) -> Result<(), ProviderError> {
        if self.calls.len() == MAX_ANSWER_CALLS {
            let message = format!("the answer makes more than {MAX_ANSWER_CALLS} calls");
            return Err(ProviderError::Refused { message });
        }
        let CallPiece { number, item, id, tool, input, first_input } = piece;
        let streamed = (!id.is_empty() && self.calls.iter().all(|call| call.id != id)).then_some(0);
        self.bytes += item.len() + id.len() + tool.len() + input.len() + first_input.len();
        self.calls.push(PartialCall {
            number,
            item,
            id,
            tool,
            input,
            first_input,
            is_complete: false,
            streamed,
        });
        Ok(())
    }

    /// The total size of inputs, ids and names.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// The part of an input that was not returned yet, of the first call that has one.
    pub(super) fn next_piece(&mut self) -> Option<Piece> {
        let key = self.key.as_ref();
        self.calls.iter_mut().find_map(|call| {
            let streamed = call.streamed.as_mut().filter(|_| !call.tool.is_empty())?;
            let text = call.input.get(*streamed..).filter(|more| !more.is_empty())?.to_owned();
            *streamed = call.input.len();
            Some(Piece::CallInput { id: call.id.clone(), tool: valid_tool_name(&call.tool, key), text })
        })
    }

    /// Removes and returns all calls.
    pub(super) fn take(&mut self) -> Vec<ModelCall> {
        let (calls, key) = (std::mem::take(&mut self.calls), self.key.as_ref());
        let model_call = |call: PartialCall| {
            let input = if call.input.trim().is_empty() { call.first_input } else { call.input };
            ModelCall { id: call.id, tool: valid_tool_name(&call.tool, key), input }
        };
        calls.into_iter().map(model_call).collect()
    }
}

/// Whether the input is complete JSON.
fn is_complete_json(input: &str) -> bool {
    input.trim_end().ends_with('}') && serde_json::from_str::<IgnoredAny>(input).is_ok()
}

/// Converts a tool name, which the model may have invented, to one that providers accept in a history. The key is
/// removed first, because it could not be recognized in a truncated name.
fn valid_tool_name(name: &str, key: Option<&Key>) -> String {
    let name = key.map_or_else(|| name.to_owned(), |key| key.redact_in(name));
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

    /// The calls that result from these pieces: number, id, tool and input.
    fn assemble(pieces: &[(Option<u64>, &str, &str, &str)]) -> Vec<(String, String, String)> {
        let mut calls = Calls::default();
        for (number, id, tool, input) in pieces {
            calls.add(piece(*number, id, tool, input)).unwrap();
        }
        calls.take().into_iter().map(|call| (call.id, call.tool, call.input)).collect()
    }

    fn owned(calls: &[(&str, &str, &str)]) -> Vec<(String, String, String)> {
        calls.iter().map(|(a, b, c)| ((*a).to_owned(), (*b).to_owned(), (*c).to_owned())).collect()
    }

    #[test]
    fn calls_are_distinguished_by_arbitrary_numbers() {
        for first in [0, 1, 4_000_000_000] {
            let (one, two) = (Some(first), Some(first + 1));
            let calls = assemble(&[
                (one, "a", "shell", ""),
                (two, "b", "read_file", ""),
                (one, "", "", "{\"c\":"),
                (two, "", "", "{}"),
                (one, "", "", "1}"),
            ]);
            assert_eq!(calls, owned(&[("a", "shell", "{\"c\":1}"), ("b", "read_file", "{}")]));
        }
    }

    #[test]
    fn calls_with_the_same_number_are_distinguished_by_ids_or_complete_inputs() {
        let same = Some(0);
        assert_eq!(
            assemble(&[(same, "a", "x", "{}"), (same, "b", "x", "{\"n\":1}")]),
            owned(&[("a", "x", "{}"), ("b", "x", "{\"n\":1}")])
        );
        assert_eq!(
            assemble(&[(same, "", "x", "{}"), (same, "", "x", "{}")]),
            owned(&[("", "x", "{}"), ("", "x", "{}")])
        );
        assert_eq!(
            assemble(&[(same, "", "x", ""), (same, "", "y", "{}")]),
            owned(&[("", "x", ""), ("", "y", "{}")]),
            "a call without an input"
        );
        // Some servers repeat the id and the name with every piece.
        assert_eq!(assemble(&[(same, "a", "x", "{"), (same, "a", "x", "}")]), owned(&[("a", "x", "{}")]));
        assert_eq!(assemble(&[(same, "", "x", "{"), (same, "", "x", "}")]), owned(&[("", "x", "{}")]));
        assert_eq!(assemble(&[(same, "a", "x", "{}"), (same, "", "x", "")]), owned(&[("a", "x", "{}")]));
    }

    #[test]
    fn only_short_inputs_are_checked_for_completeness() {
        let input = |bytes: usize| format!("{{\"n\":\"{}\"}}", "x".repeat(bytes - 8));
        let (short, long) = (input(CHECKED_INPUT_BYTES), input(CHECKED_INPUT_BYTES + 1));
        for id in ["", "a"] {
            assert_eq!(assemble(&[(Some(0), id, "x", &short), (Some(0), id, "x", "{}")]).len(), 2);
            assert_eq!(assemble(&[(Some(0), id, "x", &long), (Some(0), id, "x", "{}")]).len(), 1);
        }
    }

    #[test]
    fn calls_without_numbers_are_assembled() {
        assert_eq!(
            assemble(&[
                (None, "a", "x", "{"),
                (None, "", "", "}"),
                (None, "b", "x", "{}"),
                (None, "a", "", " ")
            ]),
            owned(&[("a", "x", "{} "), ("b", "x", "{}")])
        );
        assert_eq!(
            assemble(&[(None, "", "x", "{}"), (None, "", "x", "{}")]),
            owned(&[("", "x", "{}"), ("", "x", "{}")])
        );
    }

    #[test]
    fn calls_with_the_same_id_are_distinguished_by_complete_inputs() {
        for number in [None, Some(0)] {
            assert_eq!(
                assemble(&[(number, "a", "x", "{\"n\":1}"), (number, "a", "x", "{\"n\":2}")]),
                owned(&[("a", "x", "{\"n\":1}"), ("a", "x", "{\"n\":2}")])
            );
            // Some servers repeat a call when it is complete.
            assert_eq!(
                assemble(&[(number, "a", "x", "{"), (number, "", "", "}"), (number, "a", "x", "{}")]),
                owned(&[("a", "x", "{}")])
            );
        }
    }

    #[test]
    fn the_same_id_with_another_number_is_another_call() {
        let calls = assemble(&[(Some(0), "a", "x", "{}"), (Some(1), "a", "y", "{}")]);
        assert_eq!(calls, owned(&[("a", "x", "{}"), ("a", "y", "{}")]));
    }

    #[test]
    fn inputs_are_streamed_once_if_their_id_is_unique() {
        let mut calls = Calls::default();
        let new_pieces = |calls: &mut Calls| -> Vec<String> {
            let pieces = std::iter::from_fn(|| calls.next_piece());
            let texts = pieces.map(|piece| {
                let Piece::CallInput { id, tool, text } = piece else { panic!("{piece:?}") };
                format!("{id} {tool} {text}")
            });
            texts.collect()
        };
        calls.add(piece(Some(0), "a", "x", "")).unwrap();
        assert!(new_pieces(&mut calls).is_empty());
        calls.add(piece(Some(0), "", "", "{\"\u{e4}")).unwrap();
        calls.add(piece(Some(1), "a", "x", "never")).unwrap();
        calls.add(piece(Some(2), "", "x", "never")).unwrap();
        assert_eq!(new_pieces(&mut calls), ["a x {\"\u{e4}"]);
        calls.add(piece(Some(0), "", "", "\":1}")).unwrap();
        calls.complete(piece(Some(3), "b", "y", "{}")).unwrap();
        assert_eq!(new_pieces(&mut calls), ["a x \":1}", "b y {}"]);
        assert_eq!(calls.bytes(), 27);
    }

    #[test]
    fn the_number_of_calls_is_limited() {
        let mut calls = Calls::default();
        for number in 0..MAX_ANSWER_CALLS {
            calls.add(piece(u64::try_from(number).ok(), "", "x", "{}")).unwrap();
        }
        calls.add(piece(Some(0), "", "", " ")).unwrap();
        let error = calls.add(piece(None, "", "x", "{}")).unwrap_err();
        assert!(!error.is_retryable() && error.to_string().contains("more than 512 calls"), "{error}");
    }

    #[test]
    fn a_complete_call_matches_the_call_with_its_id_first() {
        let mut calls = Calls::default();
        calls.add(piece(None, "a", "x", "")).unwrap();
        calls.add(piece(None, "", "x", "")).unwrap();
        calls.complete(piece(Some(0), "a", "x", "{}")).unwrap();
        calls.complete(piece(Some(1), "b", "x", "[]")).unwrap();
        let made: Vec<(String, String)> =
            calls.take().into_iter().map(|call| (call.id, call.input)).collect();
        assert_eq!(made, [("a".to_owned(), "{}".to_owned()), ("b".to_owned(), "[]".to_owned())]);
    }

    #[test]
    fn a_complete_input_replaces_the_streamed_one() {
        let complete = |begun: &str, end: &str| {
            let mut calls = Calls::default();
            calls.add(piece(Some(0), "a", "x", begun)).unwrap();
            let mut shown = vec![calls.next_piece()];
            calls.complete(piece(Some(0), "a", "x", end)).unwrap();
            assert_eq!(calls.bytes(), 2 + if end.is_empty() { begun.len() } else { end.len() });
            shown.push(calls.next_piece());
            let shown: Vec<String> = shown
                .into_iter()
                .flatten()
                .map(|piece| if let Piece::CallInput { text, .. } = piece { text } else { String::new() })
                .collect();
            (calls.take().remove(0).input, shown)
        };
        let texts = |texts: &[&str]| texts.iter().map(|text| (*text).to_owned()).collect::<Vec<_>>();
        assert_eq!(complete("{\"n\":", "{\"n\":1}"), ("{\"n\":1}".to_owned(), texts(&["{\"n\":", "1}"])));
        assert_eq!(complete("{}", ""), ("{}".to_owned(), texts(&["{}"])));
        assert_eq!(complete("{\"m", "{\"n\":1}"), ("{\"n\":1}".to_owned(), texts(&["{\"m"])));
    }

    #[test]
    fn tool_names_are_made_valid() {
        assert_eq!(valid_tool_name("read_file", None), "read_file");
        assert_eq!(
            (valid_tool_name("", None).as_str(), valid_tool_name("a\u{1b}[31m b", None).as_str()),
            ("unnamed", "a__31m_b")
        );
        assert_eq!(valid_tool_name(&"x".repeat(5000), None).len(), MAX_TOOL_NAME);
    }
}
