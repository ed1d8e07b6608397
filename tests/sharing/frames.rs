//! The frames that a client has received, and what they show of a session.

use std::time::Instant;

use serde_json::Value;
use tokio::sync::watch;
use tokio::time::timeout;

use crate::terminal::TIMEOUT;

/// What a frame shows of a session, in words that all dialects have.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Shown {
    /// A message of a user, which starts a run or steers it.
    Message(String),
    /// A piece of an answer, while it is written.
    Text(String),
    /// A run has ended.
    End,
}

/// The frames that a client has received so far.
#[derive(Default)]
pub(crate) struct Received {
    pub(crate) frames: Vec<(Instant, Value)>,
    /// The connection has ended.
    pub(crate) is_closed: bool,
}

/// The frames of one connection, read by a task in the background.
pub(crate) struct Frames {
    received: watch::Receiver<Received>,
    /// How to read a frame of this dialect.
    read: fn(&Value) -> Option<Shown>,
    /// How many frames the test has looked at.
    seen: usize,
}

/// Where the task in the background puts the frames.
pub(crate) struct FramesSender(watch::Sender<Received>);

impl FramesSender {
    pub(crate) fn push(&self, frame: Value) {
        self.0.send_modify(|received| received.frames.push((Instant::now(), frame)));
    }
}

impl Drop for FramesSender {
    fn drop(&mut self) {
        self.0.send_modify(|received| received.is_closed = true);
    }
}

impl Frames {
    pub(crate) fn new(read: fn(&Value) -> Option<Shown>) -> (FramesSender, Self) {
        let (sender, received) = watch::channel(Received::default());
        (FramesSender(sender), Self { received, read, seen: 0 })
    }

    /// Waits for the first frame after those that were looked at for which `is_wanted` is true, and goes on behind it.
    pub(crate) async fn until(&mut self, what: &str, mut is_wanted: impl FnMut(&Value) -> bool) -> Value {
        self.until_at(what, |frame| is_wanted(frame)).await.1
    }

    /// The same, with the moment when the frame was received.
    pub(crate) async fn until_at(
        &mut self,
        what: &str,
        mut is_wanted: impl FnMut(&Value) -> bool,
    ) -> (Instant, Value) {
        let mut looked_at = self.seen;
        let mut find = |received: &Received| {
            let new = received.frames.iter().enumerate().skip(looked_at);
            let found = new.into_iter().find(|(_, (_, frame))| is_wanted(frame)).map(|(index, _)| index);
            looked_at = received.frames.len();
            found
        };
        let mut index = None;
        let arrives = self.received.wait_for(|received| {
            index = find(received);
            index.is_some() || received.is_closed
        });
        let found = match timeout(TIMEOUT, arrives).await {
            Ok(Ok(received)) => index.and_then(|index| received.frames.get(index).cloned()),
            Ok(Err(_)) | Err(_) => None,
        };
        match (found, index) {
            (Some(frame), Some(index)) => {
                self.seen = index + 1;
                frame
            }
            _ => {
                let received = self.received.borrow();
                let frames: Vec<_> = received.frames.iter().skip(self.seen).map(|(_, frame)| frame).collect();
                panic!("no {what} (closed: {}) in: {frames:#?}", received.is_closed)
            }
        }
    }

    /// Waits for a frame, such as the answer to a request. The other frames can still be looked at.
    pub(crate) async fn find(&self, what: &str, is_wanted: impl FnMut(&Value) -> bool) -> Value {
        self.find_at(what, is_wanted).await.1
    }

    /// The same, with the moment when the frame was received.
    pub(crate) async fn find_at(
        &self,
        what: &str,
        is_wanted: impl FnMut(&Value) -> bool,
    ) -> (Instant, Value) {
        let mut other = Self { received: self.received.clone(), read: self.read, seen: self.seen };
        other.until_at(what, is_wanted).await
    }

    /// Passes over the frames that were received so far.
    pub(crate) fn skip_received(&mut self) {
        self.seen = self.received.borrow().frames.len();
    }

    /// Waits until the connection is closed and all frames are received.
    pub(crate) async fn closed(&self) {
        let mut received = self.received.clone();
        let closed = timeout(TIMEOUT, received.wait_for(|received| received.is_closed)).await;
        closed.expect("the connection is closed").expect("the reader has not failed");
    }

    /// All frames so far.
    pub(crate) fn all(&self) -> Vec<Value> {
        self.received.borrow().frames.iter().map(|(_, frame)| frame.clone()).collect()
    }

    /// Waits for pieces of an answer that together contain `text`. Panics if a run ends before.
    pub(crate) async fn sees_text(&mut self, text: &str) {
        let (mut answer, read) = (String::new(), self.read);
        let is_wanted = |frame: &Value| match read(frame) {
            Some(Shown::Text(piece)) => {
                answer.push_str(&piece);
                answer.contains(text)
            }
            Some(Shown::End) => panic!("the run ended with {answer:?} before {text:?} was shown: {frame}"),
            Some(Shown::Message(_)) | None => false,
        };
        self.until(&format!("text {text:?}"), is_wanted).await;
    }

    /// Waits for a message of a user.
    pub(crate) async fn sees_message(&mut self, text: &str) {
        let (wanted, read) = (Some(Shown::Message(text.to_owned())), self.read);
        self.until(&format!("message {text:?}"), |frame| read(frame) == wanted).await;
    }

    /// Waits for the end of a run.
    pub(crate) async fn sees_end(&mut self) {
        let read = self.read;
        self.until("end of a run", |frame| read(frame) == Some(Shown::End)).await;
    }
}

/// A string member of a frame.
pub(crate) fn text(value: &Value) -> String {
    value.as_str().unwrap_or_else(|| panic!("not a string: {value}")).to_owned()
}
