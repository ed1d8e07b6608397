//! What the model is to read in this turn, kept within its window.
//!
//! Sizes are estimates: a token for every [`BYTES_PER_TOKEN`] bytes of text, [`PICTURE_TOKENS`] for an
//! image, [`PART_TOKENS`] for each part. Once a provider has counted what it read, its number stands for
//! all of that, and only what came since is estimated.

use std::sync::Arc;

use parlor_vocab::MessageId;

use super::limits::least_tokens;
use super::{MAX_PICTURE_BYTES, MAX_PICTURES};
use crate::provider::{CallResult, ModelCall, ModelMessage, Picture, ProviderState, Request, ToolSpec};

/// How many bytes of text count as a token in an estimate.
pub const BYTES_PER_TOKEN: usize = 4;

/// How many tokens an image counts in an estimate.
pub const PICTURE_TOKENS: u64 = 1_000;

/// How many tokens every message, call and tool counts beside its text in an estimate.
pub const PART_TOKENS: u64 = 12;

/// How full a window may get before older parts are summarized, in percent.
pub const COMPACT_AT_PERCENT: u64 = 80;

/// How much of a window the newest parts may fill after that, in percent.
pub const KEEP_PERCENT: u64 = 30;

/// How much of a window the result of one call may fill, in percent. More is cut in its middle.
pub const RESULT_PERCENT: u64 = 10;

/// The most that all images may have in base64, which is a third more than they have.
const MAX_BASE64_BYTES: usize = MAX_PICTURE_BYTES as usize / 3 * 4 + 4;

/// A conversation with the sizes of its parts.
pub(super) struct Context {
    request: Request,
    marks: Vec<Mark>,
    /// What the provider counted: how many parts it read, and how many tokens that were.
    counted: Option<(usize, u64)>,
}

/// What is known of a part.
struct Mark {
    message: Option<MessageId>,
    tokens: u64,
}

impl Context {
    pub(super) fn new(system: String, tools: Arc<[ToolSpec]>) -> Self {
        let request = Request { system, tools, ..Request::default() };
        Self { request, marks: Vec::new(), counted: None }
    }

    /// What to ask, but for the model.
    pub(super) fn request(&mut self) -> &mut Request {
        &mut self.request
    }

    /// Something said by the user; joins what the user said just before.
    pub(super) fn user(&mut self, text: &str, pictures: Vec<Picture>, message: Option<MessageId>) {
        if let Some(ModelMessage::User { text: before, pictures: seen }) = self.request.messages.last_mut() {
            before.push_str("\n\n");
            before.push_str(text);
            seen.extend(pictures);
            let last = self.marks.len() - 1;
            self.marks[last].tokens = estimate(&self.request.messages[last]);
            self.counted.take_if(|(parts, _)| *parts > last);
            return;
        }
        self.push(ModelMessage::User { text: text.to_owned(), pictures }, message);
    }

    /// An answer of the model.
    pub(super) fn model(&mut self, text: String, calls: Vec<ModelCall>, thread: ProviderState) {
        self.push(ModelMessage::Model { text, calls, thread }, None);
    }

    /// What the calls of the answer before brought. Images that were shown before make room for new ones.
    pub(super) fn results(&mut self, results: Vec<CallResult>) {
        self.push(ModelMessage::Results(results), None);
        self.leave_out_old_pictures();
    }

    fn leave_out_old_pictures(&mut self) {
        let (mut count, mut bytes, mut changed) = (0, 0, false);
        for (said, mark) in self.request.messages.iter_mut().zip(&mut self.marks).rev() {
            let mut fits = |pictures: &mut Vec<Picture>, text: &mut String| {
                let before = pictures.len();
                pictures.retain(|picture| {
                    count += 1;
                    bytes += picture.base64.len();
                    count <= MAX_PICTURES && bytes <= MAX_BASE64_BYTES
                });
                if pictures.len() < before {
                    text.push_str("\n(An image that was shown here is left out.)");
                }
                pictures.len() < before
            };
            let less = match said {
                ModelMessage::User { text, pictures } => fits(pictures, text),
                ModelMessage::Results(results) => results
                    .iter_mut()
                    .rev()
                    .fold(false, |less, result| fits(&mut result.pictures, &mut result.text) | less),
                ModelMessage::Model { .. } => false,
            };
            if less {
                mark.tokens = estimate(said);
                changed = true;
            }
        }
        if changed {
            self.counted = None;
        }
    }

    /// A part as it is.
    pub(super) fn push(&mut self, said: ModelMessage, message: Option<MessageId>) {
        self.marks.push(Mark { message, tokens: estimate(&said) });
        self.request.messages.push(said);
    }

    /// The provider has read all that is here, and counted so many tokens. One that counts too few to be true would
    /// have the conversation grow without end.
    pub(super) fn count(&mut self, tokens: u64) {
        let tokens = (tokens > 0).then(|| tokens.max(least_tokens(self.bytes())));
        self.counted = tokens.map(|tokens| (self.marks.len(), tokens));
    }

    /// How many bytes of text it has, images aside.
    pub(super) fn bytes(&self) -> usize {
        let tools = self.request.tools.iter();
        let tools = tools.map(|tool| tool.name.len() + tool.description.len() + tool.schema.len());
        let said = self.request.messages.iter().map(|said| match said {
            ModelMessage::User { text, .. } => text.len(),
            ModelMessage::Model { text, calls, thread } => {
                let calls = calls.iter().map(|call| call.tool.len() + call.input.len());
                text.len() + thread.bytes() + calls.sum::<usize>()
            }
            ModelMessage::Results(results) => results.iter().map(|result| result.text.len()).sum(),
        });
        self.request.system.len() + tools.sum::<usize>() + said.sum::<usize>()
    }

    /// Forgets what only another provider could understand.
    pub(super) fn change_provider(&mut self) {
        self.counted = None;
        for said in &mut self.request.messages {
            if let ModelMessage::Model { thread, .. } = said {
                *thread = ProviderState::default();
            }
        }
    }

    /// About how many tokens it all has.
    pub(super) fn tokens(&self) -> u64 {
        let (parts, before) = self.counted.unwrap_or_else(|| (0, self.fixed_tokens()));
        before + self.marks.iter().skip(parts).map(|mark| mark.tokens).sum::<u64>()
    }

    /// What no summary makes smaller.
    fn fixed_tokens(&self) -> u64 {
        let tools = self.request.tools.iter();
        let tools =
            tools.map(|tool| of(tool.name.len() + tool.description.len() + tool.schema.len()) + PART_TOKENS);
        of(self.request.system.len()) + PART_TOKENS + tools.sum::<u64>()
    }

    /// How many of the oldest parts are to go so that the others have at most `keep` tokens. The last
    /// step always stays, and a call is never parted from its result. None if nothing can go.
    pub(super) fn cut(&self, keep: u64) -> Option<usize> {
        let mut kept = 0;
        let mut cut = None;
        for place in (1..self.marks.len()).rev() {
            kept += self.marks[place].tokens;
            if cut.is_some() && kept > keep {
                break;
            }
            if !matches!(self.request.messages[place], ModelMessage::Results(_)) {
                cut = Some(place);
            }
        }
        cut
    }

    /// The oldest parts.
    pub(super) fn oldest(&self, parts: usize) -> &[ModelMessage] {
        self.request.messages.get(..parts).unwrap_or_default()
    }

    /// Whether the user says `text` after the oldest parts.
    pub(super) fn says_after(&self, parts: usize, text: &str) -> bool {
        self.request.messages.iter().skip(parts).any(|said| match said {
            ModelMessage::User { text: said, .. } => said.contains(text),
            ModelMessage::Model { .. } | ModelMessage::Results(_) => false,
        })
    }

    /// Puts `summary` in the place of the oldest parts. Gives back the message before which the session
    /// needs to remember nothing else, if there is one: all that stands before it is in the summary.
    pub(super) fn replace_oldest(&mut self, parts: usize, summary: String) -> Option<MessageId> {
        self.counted = None;
        let up_to_the_cut = self.marks.iter().take(parts + 1).skip(1);
        let kept_from = up_to_the_cut.rev().find_map(|mark| mark.message.clone());
        self.request.messages.drain(..parts);
        self.marks.drain(..parts);
        let said = ModelMessage::User { text: summary, pictures: Vec::new() };
        self.marks.insert(0, Mark { message: None, tokens: estimate(&said) });
        self.request.messages.insert(0, said);
        kept_from
    }

    #[cfg(test)]
    pub(super) fn messages(&self) -> &[ModelMessage] {
        &self.request.messages
    }
}

/// About how many tokens a text of so many bytes has.
fn of(bytes: usize) -> u64 {
    bytes.div_ceil(BYTES_PER_TOKEN) as u64
}

fn estimate(said: &ModelMessage) -> u64 {
    let pictures = |pictures: &[Picture]| pictures.len() as u64 * PICTURE_TOKENS;
    match said {
        ModelMessage::User { text, pictures: seen } => of(text.len()) + pictures(seen) + PART_TOKENS,
        ModelMessage::Model { text, calls, thread } => {
            let calls = calls.iter().map(|call| of(call.tool.len() + call.input.len()) + PART_TOKENS);
            of(text.len() + thread.bytes()) + PART_TOKENS + calls.sum::<u64>()
        }
        ModelMessage::Results(results) => results
            .iter()
            .map(|result| of(result.text.len()) + pictures(&result.pictures) + PART_TOKENS)
            .sum(),
    }
}

/// `text` in at most so many bytes: its beginning and its end, and between them how much is missing.
pub(super) fn cut_middle(text: String, max_bytes: usize) -> String {
    if text.len() <= max_bytes {
        return text;
    }
    let (head, tail) =
        (text.floor_char_boundary(max_bytes / 2), text.ceil_char_boundary(text.len() - max_bytes / 2));
    let (beginning, end) = (text.split_at(head).0, text.split_at(tail).1);
    format!("{beginning}\n[… {} bytes are left out …]\n{end}", tail - head)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn context() -> Context {
        Context::new(String::new(), Arc::new([]))
    }

    fn step(context: &mut Context, bytes: usize) {
        let call = ModelCall { id: "1".to_owned(), tool: "t".to_owned(), input: "{}".to_owned() };
        let text = "x".repeat(bytes);
        let result =
            CallResult { id: "1".to_owned(), tool: "t".to_owned(), text, failed: false, pictures: vec![] };
        context.model(String::new(), vec![call], ProviderState::default());
        context.results(vec![result]);
    }

    #[test]
    fn what_the_provider_counted_stands_for_what_it_read() {
        let mut context = context();
        context.user("hello", Vec::new(), None);
        let estimated = context.tokens();
        context.count(1000);
        assert_eq!(context.tokens(), 1000);
        context.model("12345678".to_owned(), Vec::new(), ProviderState::default());
        assert_eq!(context.tokens(), 1000 + 2 + PART_TOKENS);
        context.change_provider();
        assert!(context.tokens() > estimated && context.tokens() < 1000);
    }

    #[test]
    fn what_joins_a_part_that_was_counted_is_estimated_anew() {
        let mut context = context();
        context.user("hello", Vec::new(), None);
        context.count(5);
        context.user(&"x".repeat(4000), Vec::new(), None);
        assert!(context.tokens() > 1000);
        assert_eq!(context.messages().len(), 1);
    }

    #[test]
    fn a_cut_never_parts_a_call_from_its_result() {
        let mut context = context();
        context.user("do", Vec::new(), None);
        for _ in 0..5 {
            step(&mut context, 400);
        }
        let each = 100 + 3 * PART_TOKENS;
        for keep in [0, 1, each, 2 * each + 5, 100_000] {
            let cut = context.cut(keep).unwrap();
            assert!(matches!(context.messages()[cut], ModelMessage::Model { .. }), "keep {keep}");
        }
        assert_eq!(context.cut(0), Some(9), "the last step stays");
        assert_eq!(context.cut(100_000), Some(1));
        let mut short = self::context();
        short.user("do", Vec::new(), None);
        assert_eq!(short.cut(0), None);
    }

    #[test]
    fn a_summary_takes_the_place_of_what_goes() {
        let mut context = context();
        let kept = MessageId::parse("kept").unwrap();
        context.user("old", Vec::new(), Some(MessageId::parse("old").unwrap()));
        step(&mut context, 100_000);
        let before = context.tokens();
        context.user("new", Vec::new(), Some(kept.clone()));
        assert!(context.says_after(3, "new") && !context.says_after(3, "old"));
        step(&mut context, 4);
        assert_eq!(context.replace_oldest(3, "summary".to_owned()), Some(kept.clone()));
        assert!(context.tokens() < before / 100);
        assert!(matches!(&context.messages()[0], ModelMessage::User { text, .. } if text == "summary"));
        assert_eq!(context.messages().len(), 4);
        assert_eq!(
            context.replace_oldest(3, "again".to_owned()),
            Some(kept),
            "what the summary does not cover stays known to the session"
        );
        assert_eq!(context.replace_oldest(1, "again".to_owned()), None);
    }

    #[test]
    fn old_images_make_room_for_new_ones() {
        let shown = |context: &Context| -> Vec<usize> {
            let count = |said: &ModelMessage| match said {
                ModelMessage::User { pictures, .. } => pictures.len(),
                ModelMessage::Results(results) => results.iter().map(|result| result.pictures.len()).sum(),
                ModelMessage::Model { .. } => 0,
            };
            context.messages().iter().map(count).collect()
        };
        let see = |context: &mut Context, pictures: Vec<Picture>| {
            let (id, tool, text) = ("1".to_owned(), "t".to_owned(), "x".to_owned());
            context.results(vec![CallResult { id, tool, text, failed: false, pictures }]);
        };
        let mut context = context();
        let small = Picture::new("image/png", b"png");
        context.user("look", vec![small.clone(); 2], None);
        see(&mut context, vec![small.clone(); MAX_PICTURES - 1]);
        assert_eq!(shown(&context), [1, MAX_PICTURES - 1]);
        assert!(
            matches!(&context.messages()[0], ModelMessage::User { text, .. } if text.contains("is left out"))
        );
        let large = Picture::new("image/png", &vec![0; MAX_PICTURE_BYTES as usize]);
        see(&mut context, vec![large]);
        assert_eq!(shown(&context), [0, 0, 1]);
    }

    #[test]
    fn a_text_is_cut_in_its_middle_between_letters() {
        assert_eq!(cut_middle("short".to_owned(), 5), "short");
        let cut = cut_middle("ä".repeat(1000), 101);
        assert!(cut.contains("bytes are left out"), "{cut}");
        assert!(cut.len() < 101 + 60, "{}", cut.len());
        assert!(cut.starts_with('ä') && cut.ends_with('ä'));
    }
}
