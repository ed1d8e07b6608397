//! Plays one transcript against one peer.

use std::collections::{BTreeMap, VecDeque};
use std::path::Path;

use serde_json::Value;
use tokio::time::timeout;

use crate::pattern::NamedStrings;
use crate::transcript::{Expected, Step};
use crate::{Door, Peer, STEP_TIMEOUT};

/// How many characters of a frame an error shows. Frames in transcripts are shorter.
const SHOW_CHARS: usize = 600;

/// What to do about a `<` line that does not match.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Golden {
    Check,
    /// Replace the line with the frame that arrived.
    Write,
}

/// The new texts of lines, by line number. Empty unless [`Golden::Write`].
pub(crate) type Rewrites = BTreeMap<usize, String>;

/// Plays `steps`. An error names the line and shows all frames that had arrived.
pub(crate) async fn play<P: Peer>(
    steps: &[Step],
    peer: &mut P,
    door: &dyn Door,
    golden: Golden,
) -> Result<Rewrites, String> {
    let (unread, received) = (VecDeque::new(), Vec::new());
    let (names, rewrites) = (NamedStrings::new(), Rewrites::new());
    let mut play = Play { peer, door, golden, unread, received, names, rewrites };
    match play.steps(steps).await {
        Ok(()) => Ok(play.rewrites),
        Err(error) => Err(format!("{error}\n{}", play.received())),
    }
}

struct Play<'a, P> {
    peer: &'a mut P,
    door: &'a dyn Door,
    golden: Golden,
    /// Frames that were read to check whether they continue the one before, and do not.
    unread: VecDeque<Frame>,
    /// All frames that arrived, for error texts.
    received: Vec<String>,
    names: NamedStrings,
    rewrites: Rewrites,
}

/// A frame, or several that were joined.
struct Frame {
    /// The frame as it arrived, so that a rewritten line keeps the order of members.
    text: String,
    value: Value,
}

impl<P: Peer> Play<'_, P> {
    async fn steps(&mut self, steps: &[Step]) -> Result<(), String> {
        let mut closed = false;
        for step in steps {
            match step {
                Step::Send(bytes) => {
                    let bytes = self.with_names_replaced(bytes);
                    with_timeout("read the sent bytes", self.peer.send(&bytes)).await??;
                }
                Step::Advance(time) => self.peer.advance(*time).await?,
                Step::Reconnect(args) => {
                    if !closed {
                        with_timeout("close", self.peer.close()).await??;
                    }
                    closed = false;
                    self.end().await?;
                    let args: Vec<String> = args.iter().map(|arg| replace_names(arg, &self.names)).collect();
                    with_timeout("start again", self.peer.reconnect(&args)).await??;
                }
                Step::Close => {
                    closed = true;
                    with_timeout("close", self.peer.close()).await??;
                }
                Step::Expect(set) => self.expect(set).await?,
                Step::End => return self.end().await,
                Step::Fail(text) => {
                    return match self.end().await {
                        Ok(()) => Err(format!(
                            "at the end: expected to fail with {text:?}, but it exited successfully"
                        )),
                        Err(error) if error.contains(text) => Ok(()),
                        Err(error) => Err(format!("at the end: expected to fail with {text:?}, but {error}")),
                    };
                }
            }
        }
        if !closed {
            with_timeout("close", self.peer.close()).await??;
        }
        self.end().await
    }

    /// `bytes` with each `{name}` replaced by its string, if they are text.
    fn with_names_replaced(&self, bytes: &[u8]) -> Vec<u8> {
        match std::str::from_utf8(bytes) {
            Ok(text) => replace_names(text, &self.names).into_bytes(),
            Err(_) => bytes.to_vec(),
        }
    }

    async fn end(&mut self) -> Result<(), String> {
        match self.next().await? {
            Some(frame) => {
                Err(format!("at the end: expected no more frames, but received\n  {}", frame.text))
            }
            None => with_timeout("end", self.peer.finish()).await?,
        }
    }

    /// Receives frames until each line of `set` has matched one.
    async fn expect(&mut self, set: &[Expected]) -> Result<(), String> {
        let mut open: Vec<&Expected> = set.iter().collect();
        // Pieces that have not matched yet, each of another stream.
        let mut held: Vec<Frame> = Vec::new();
        while !open.is_empty() {
            let frame = match self.next().await {
                Ok(Some(frame)) => frame,
                Ok(None) => {
                    let end = with_timeout("end", self.peer.finish()).await.and_then(|end| end);
                    let how = end.map_or_else(|error| format!(": {error}"), |()| String::new());
                    return self.mismatch(&open, held, &format!("parlor closed its side{how}"));
                }
                Err(error) => return self.mismatch(&open, held, &error),
            };
            let frame = match self.join(&mut held, frame) {
                Ok(joined) => joined,
                Err(other) if set.len() == 1 && !held.is_empty() => {
                    // A single line must match the next frame, so the frame that came first had to match.
                    self.unread.push_front(other);
                    return self.mismatch(&open, held, "this came");
                }
                Err(other) => other,
            };
            let names = &mut self.names;
            if let Some(at) = open.iter().position(|expected| expected.pattern.matches(&frame.value, names)) {
                open.remove(at);
            } else {
                let may_grow = self.door.join(&frame.value, &frame.value).is_some();
                held.push(frame);
                // For rewriting, collect one frame for each open line.
                if !may_grow && (self.golden == Golden::Check || held.len() == open.len()) {
                    return self.mismatch(&open, held, "this came");
                }
            }
            if held.len() > open.len() {
                return self.mismatch(&open, held, "this came");
            }
        }
        Ok(())
    }

    /// Removes the frame of `held` that `frame` continues and returns both joined; or returns `frame` as an error.
    fn join(&self, held: &mut Vec<Frame>, frame: Frame) -> Result<Frame, Frame> {
        let joined = held
            .iter()
            .enumerate()
            .find_map(|(at, held)| Some((at, self.door.join(&held.value, &frame.value)?)));
        let Some((at, value)) = joined else { return Err(frame) };
        held.remove(at);
        Ok(Frame { text: value.to_string(), value })
    }

    /// Handles lines of `open` that no frame matches: rewrites them with the frames of `unmatched`, or fails.
    fn mismatch(&mut self, open: &[&Expected], unmatched: Vec<Frame>, what: &str) -> Result<(), String> {
        if self.golden == Golden::Write && unmatched.len() >= open.len() {
            let mut unmatched = unmatched.into_iter();
            for (expected, frame) in open.iter().zip(unmatched.by_ref()) {
                self.rewrites.insert(expected.line, frame.text);
            }
            unmatched.rev().for_each(|frame| self.unread.push_front(frame));
            return Ok(());
        }
        let mut error = String::new();
        for expected in open {
            error += &format!("line {}: expected\n  {}\n", expected.line, expected.text);
        }
        error += &format!("but {what}");
        for frame in unmatched {
            error += &format!("\n  {}", truncated(&frame.text));
        }
        Err(error)
    }

    async fn next(&mut self) -> Result<Option<Frame>, String> {
        if let Some(frame) = self.unread.pop_front() {
            return Ok(Some(frame));
        }
        let Some(bytes) = with_timeout("send a frame", self.peer.frame()).await? else { return Ok(None) };
        let text = String::from_utf8_lossy(&bytes).into_owned();
        self.received.push(truncated(&text));
        let value =
            serde_json::from_slice(&bytes).map_err(|error| format!("a frame is not JSON: {error}"))?;
        self.door.check(&value)?;
        Ok(Some(Frame { text, value }))
    }

    fn received(&self) -> String {
        let frames: String = self.received.iter().map(|frame| format!("\n  {frame}")).collect();
        format!("all that arrived:{}", if frames.is_empty() { "\n  nothing" } else { &frames })
    }
}

async fn with_timeout<T>(what: &str, future: impl Future<Output = T>) -> Result<T, String> {
    timeout(STEP_TIMEOUT, future).await.map_err(|_| format!("parlor did not {what} within {STEP_TIMEOUT:?}"))
}

/// `text` with each `{name}` replaced by the string with that name.
fn replace_names(text: &str, names: &NamedStrings) -> String {
    names.iter().fold(text.to_owned(), |text, (name, value)| text.replace(&format!("{{{name}}}"), value))
}

fn truncated(text: &str) -> String {
    match text.char_indices().nth(SHOW_CHARS) {
        Some((end, _)) => format!("{} … ({} bytes)", text.split_at(end).0, text.len()),
        None => text.to_owned(),
    }
}

/// `text` with `rewrites` applied, and with `{tmp}` for the play's own folder.
pub(crate) fn rewritten(text: &str, rewrites: &Rewrites, tmp: &Path) -> String {
    let mut out = String::with_capacity(text.len());
    for (number, line) in (1..).zip(text.split_inclusive('\n')) {
        match rewrites.get(&number) {
            Some(frame) => {
                let sign = line.split(' ').next().unwrap_or_default();
                let frame = frame.replace(&*tmp.to_string_lossy(), crate::transcript::TMP);
                out += &format!("{sign} {frame}\n");
            }
            None => out += line,
        }
    }
    out
}

#[cfg(test)]
mod tests;
