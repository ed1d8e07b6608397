//! One play of one transcript.

use std::collections::{BTreeMap, VecDeque};
use std::path::Path;

use serde_json::Value;
use tokio::time::timeout;

use crate::pattern::Names;
use crate::transcript::{Expected, Step};
use crate::{Door, PATIENCE, Peer};

/// How much of a frame a report shows. Enough for every frame that a person wrote down.
const SHOW_CHARS: usize = 600;

/// What to do about a `<` line that does not match.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Golden {
    Check,
    /// Take what arrived as what should arrive.
    Write,
}

/// What should stand on these lines instead, by line number. Empty unless [`Golden::Write`].
pub(crate) type Rewrites = BTreeMap<usize, String>;

/// Plays `steps`. An error says what went wrong, where, and what had arrived until then.
pub(crate) async fn play<P: Peer>(
    steps: &[Step],
    peer: &mut P,
    door: &dyn Door,
    golden: Golden,
) -> Result<Rewrites, String> {
    let (put_back, seen) = (VecDeque::new(), Vec::new());
    let (names, rewrites) = (Names::new(), Rewrites::new());
    let mut play = Play { peer, door, golden, put_back, seen, names, rewrites };
    match play.steps(steps).await {
        Ok(()) => Ok(play.rewrites),
        Err(flaw) => Err(format!("{flaw}\n{}", play.seen())),
    }
}

struct Play<'a, P> {
    peer: &'a mut P,
    door: &'a dyn Door,
    golden: Golden,
    /// Frames that were read to see whether they belong to the one before, and did not.
    put_back: VecDeque<Frame>,
    /// All that arrived, for the report.
    seen: Vec<String>,
    names: Names,
    rewrites: Rewrites,
}

/// A frame, or several that were joined.
struct Frame {
    /// As it arrived, so that a rewritten line keeps the order of its members.
    text: String,
    value: Value,
}

impl<P: Peer> Play<'_, P> {
    async fn steps(&mut self, steps: &[Step]) -> Result<(), String> {
        let mut closed = false;
        for step in steps {
            match step {
                Step::Send(bytes) => {
                    let bytes = self.spelled(bytes);
                    patiently("take what was sent", self.peer.send(&bytes)).await??;
                }
                Step::Pass(time) => self.peer.pass(*time).await?,
                Step::Again(args) => {
                    if !closed {
                        patiently("close", self.peer.close()).await??;
                    }
                    closed = false;
                    self.end().await?;
                    let args: Vec<String> = args.iter().map(|arg| named(arg, &self.names)).collect();
                    patiently("begin", self.peer.again(&args)).await??;
                }
                Step::Close => {
                    closed = true;
                    patiently("close", self.peer.close()).await??;
                }
                Step::Expect(set) => self.expect(set).await?,
                Step::End => return self.end().await,
                Step::Fail(why) => {
                    return match self.end().await {
                        Ok(()) => {
                            Err(format!("at the end: expected to fail with {why:?}, but it ended well"))
                        }
                        Err(told) if told.contains(why) => Ok(()),
                        Err(told) => Err(format!("at the end: expected to fail with {why:?}, but {told}")),
                    };
                }
            }
        }
        if !closed {
            patiently("close", self.peer.close()).await??;
        }
        self.end().await
    }

    /// `bytes` with the names in it spelled out, if it is text.
    fn spelled(&self, bytes: &[u8]) -> Vec<u8> {
        match std::str::from_utf8(bytes) {
            Ok(text) => named(text, &self.names).into_bytes(),
            Err(_) => bytes.to_vec(),
        }
    }

    async fn end(&mut self) -> Result<(), String> {
        match self.next().await? {
            Some(frame) => {
                Err(format!("at the end: nothing more was expected, but there came\n  {}", frame.text))
            }
            None => patiently("end", self.peer.finish()).await?,
        }
    }

    /// Takes frames until each of `set` has one.
    async fn expect(&mut self, set: &[Expected]) -> Result<(), String> {
        let mut open: Vec<&Expected> = set.iter().collect();
        // Pieces that match nothing yet, each of another stream.
        let mut held: Vec<Frame> = Vec::new();
        while !open.is_empty() {
            let frame = match self.next().await {
                Ok(Some(frame)) => frame,
                Ok(None) => {
                    let end = patiently("end", self.peer.finish()).await.and_then(|end| end);
                    let how = end.map_or_else(|flaw| format!(": {flaw}"), |()| String::new());
                    return self.mismatch(&open, held, &format!("parlor closed its side{how}"));
                }
                Err(flaw) => return self.mismatch(&open, held, &flaw),
            };
            let frame = match self.join(&mut held, frame) {
                Ok(joined) => joined,
                Err(stranger) if set.len() == 1 && !held.is_empty() => {
                    // A single line names the very next frame, so what came first had to match.
                    self.put_back.push_front(stranger);
                    return self.mismatch(&open, held, "this came");
                }
                Err(stranger) => stranger,
            };
            let names = &mut self.names;
            if let Some(at) = open.iter().position(|expected| expected.pattern.matches(&frame.value, names)) {
                open.remove(at);
            } else {
                let may_grow = self.door.join(&frame.value, &frame.value).is_some();
                held.push(frame);
                // For rewriting, each open line wants a frame: collect as many.
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

    /// Joins `frame` with the one of `held` that it continues, and takes that out; or gives it back.
    fn join(&self, held: &mut Vec<Frame>, frame: Frame) -> Result<Frame, Frame> {
        let joined = held
            .iter()
            .enumerate()
            .find_map(|(at, held)| Some((at, self.door.join(&held.value, &frame.value)?)));
        let Some((at, value)) = joined else { return Err(frame) };
        held.remove(at);
        Ok(Frame { text: value.to_string(), value })
    }

    /// The lines of `open` did not get a frame each; `came` is what is left.
    fn mismatch(&mut self, open: &[&Expected], came: Vec<Frame>, what: &str) -> Result<(), String> {
        if self.golden == Golden::Write && came.len() >= open.len() {
            let mut came = came.into_iter();
            for (expected, frame) in open.iter().zip(came.by_ref()) {
                self.rewrites.insert(expected.line, frame.text);
            }
            came.rev().for_each(|frame| self.put_back.push_front(frame));
            return Ok(());
        }
        let mut flaw = String::new();
        for expected in open {
            flaw += &format!("line {}: expected\n  {}\n", expected.line, expected.text);
        }
        flaw += &format!("but {what}");
        for frame in came {
            flaw += &format!("\n  {}", shortened(&frame.text));
        }
        Err(flaw)
    }

    async fn next(&mut self) -> Result<Option<Frame>, String> {
        if let Some(frame) = self.put_back.pop_front() {
            return Ok(Some(frame));
        }
        let Some(bytes) = patiently("send a frame", self.peer.frame()).await? else { return Ok(None) };
        let text = String::from_utf8_lossy(&bytes).into_owned();
        self.seen.push(shortened(&text));
        let value = serde_json::from_slice(&bytes).map_err(|error| format!("a frame is no JSON: {error}"))?;
        self.door.check(&value)?;
        Ok(Some(Frame { text, value }))
    }

    fn seen(&self) -> String {
        let frames: String = self.seen.iter().map(|frame| format!("\n  {frame}")).collect();
        format!("all that arrived:{}", if frames.is_empty() { "\n  nothing" } else { &frames })
    }
}

async fn patiently<T>(what: &str, future: impl Future<Output = T>) -> Result<T, String> {
    timeout(PATIENCE, future).await.map_err(|_| format!("parlor did not {what} within {PATIENCE:?}"))
}

/// `text` with each `{name}` replaced by what is called so.
fn named(text: &str, names: &Names) -> String {
    names.iter().fold(text.to_owned(), |text, (name, value)| text.replace(&format!("{{{name}}}"), value))
}

fn shortened(text: &str) -> String {
    match text.char_indices().nth(SHOW_CHARS) {
        Some((end, _)) => format!("{} … ({} bytes)", text.split_at(end).0, text.len()),
        None => text.to_owned(),
    }
}

/// `text` with `rewrites` made, and the play's own folder called `{tmp}` again.
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
