//! What the frames of a stream say beyond what genai makes of them.
//!
//! - genai fills a list up to a call's number, whatever that is, leaves out calls that have none, and takes calls that
//!   are written in turns for one. Here the calls are read from the frames: of the chat form (`chat.rs`), of the
//!   responses form (`responses.rs`) and of Anthropic's (`anthropic.rs`).
//! - It errs on a piece of a part of Anthropic's after which another has begun, and on pieces that it does not know. Here
//!   such a frame is kept for whoever reads on.
//! - Many servers leave out the frame that ends a stream. Here the reason is noted for which an answer has ended, and
//!   what it took.
//! - What a model says by way of refusing has members of its own, which genai does not read. Here it is noted as the
//!   text that it is.
//!
//! Deliberately absent: other text and thoughts, which genai passes on. So most frames are only looked through.

mod anthropic;
mod chat;
mod responses;

use std::sync::{Mutex, MutexGuard, PoisonError};

use genai::chat::{ChatFrameSink, FrameCtx, RawFrameRef, StopReason};

use super::calls::{CallPiece, Calls};
use super::trouble::error_in;
use super::{Key, MAX_ANSWER_BYTES, ProviderError, ProviderKind};

/// What was noted of an answer.
#[derive(Debug, Default)]
pub(super) struct Noted {
    pub(super) calls: Calls,
    /// How it refuses, as far as nobody has taken it.
    pub(super) refusal: String,
    /// Whether it has thoughts that Anthropic wants back with calls.
    pub(super) has_thoughts: bool,
    /// Whether its thoughts come in the member that their servers want back with calls.
    pub(super) names_thoughts: bool,
    /// The last frame, if it goes on with text or a thought: genai errs if another part has begun meanwhile.
    pub(super) unread: String,
    /// Why it has ended, if it has.
    pub(super) stop: Option<StopReason>,
    pub(super) usage: Option<genai::chat::Usage>,
    /// Why it cannot be taken.
    pub(super) error: Option<ProviderError>,
}

/// Where it is noted. genai shows each frame here before it passes on what it makes of it.
#[derive(Debug)]
pub(super) struct Frames {
    kind: ProviderKind,
    noted: Mutex<Noted>,
}

impl Frames {
    /// Of an answer of this kind of provider to whoever asked with this key.
    pub(super) fn new(kind: ProviderKind, key: Option<Key>) -> Self {
        Self { kind, noted: Mutex::new(Noted { calls: Calls::hiding(key), ..Noted::default() }) }
    }

    /// A plain mutex: whoever reads an answer also shows its frames, so nobody waits.
    pub(super) fn noted(&self) -> MutexGuard<'_, Noted> {
        self.noted.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ChatFrameSink for Frames {
    fn on_frame(&self, _: &FrameCtx, frame: RawFrameRef<'_>) {
        let mut noted = self.noted();
        // genai reads on where it makes nothing of a frame, so what cannot be taken must not grow.
        if noted.error.is_some() {
            return;
        }
        match self.kind {
            ProviderKind::OpenAi | ProviderKind::OpenRouter => chat::note(&mut noted, frame),
            ProviderKind::OpenAiResponses => responses::note(&mut noted, frame),
            ProviderKind::Anthropic => anthropic::note(&mut noted, frame),
            // genai looks for answers alone in these lines.
            ProviderKind::Ollama if frame.data.contains("\"error\"") => {
                noted.error = frame.json().as_ref().and_then(error_in);
            }
            ProviderKind::Ollama | ProviderKind::Gemini => {}
        }
        if noted.bytes() > MAX_ANSWER_BYTES {
            noted.error = Some(too_long());
        }
    }
}

impl Noted {
    /// How many bytes it has in all.
    pub(super) fn bytes(&self) -> usize {
        self.calls.bytes() + self.refusal.len()
    }

    fn begin(&mut self, piece: CallPiece) {
        if self.error.is_none() {
            self.error = self.calls.begin(piece).err();
        }
    }

    fn add(&mut self, piece: CallPiece) {
        if self.error.is_none() {
            self.error = self.calls.add(piece).err();
        }
    }

    fn add_to_known(&mut self, piece: CallPiece) {
        if self.error.is_none() {
            self.error = self.calls.add_to_known(piece).err();
        }
    }

    fn add_all_of(&mut self, call: CallPiece) {
        if self.error.is_none() {
            self.error = self.calls.add_all_of(call).err();
        }
    }

    fn add_end(&mut self, calls: Vec<CallPiece>) {
        if self.error.is_none() {
            self.error = self.calls.add_end(calls).err();
        }
    }
}

/// Why an answer of more than [`MAX_ANSWER_BYTES`] is not taken.
pub(super) fn too_long() -> ProviderError {
    ProviderError::Refused { said: format!("the answer is longer than {MAX_ANSWER_BYTES} bytes") }
}
