//! Splits the bytes of an answer into events, within limits. Pure: no providers, no sockets.
//!
//! Lines end with LF, CR LF or CR, as in server-sent events (HTML, section 9.2). Each byte is examined once, however small the
//! chunks are.

use memchr::memchr2;

use super::ProviderError;

/// The longest line, in bytes. The last event of the responses format repeats the whole answer in one line.
pub const MAX_LINE_BYTES: usize = 8 << 20;

/// The longest event, in bytes over all of its lines.
pub const MAX_EVENT_BYTES: usize = 8 << 20;

/// The most bytes of one answer. An event is about a hundred times as long as the token in it.
pub const MAX_STREAM_BYTES: usize = 256 << 20;

/// The most events of one answer. The longest answers have some hundred thousand tokens, with one event for each.
pub const MAX_STREAM_EVENTS: usize = 1_000_000;

/// How the events of an answer are framed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Framing {
    /// `event:` and `data:` lines, ended by an empty line.
    ServerSentEvents,
    /// One line of JSON for each event.
    JsonLines,
}

/// An event of a stream.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Event {
    /// The event name; empty if there is none.
    pub(super) name: String,
    pub(super) data: String,
}

/// Splits bytes into events.
pub(super) struct Splitter {
    framing: Framing,
    lines: Lines,
    /// The incomplete event.
    event: Event,
    events: usize,
}

impl Splitter {
    pub(super) fn new(framing: Framing) -> Self {
        Self { framing, lines: Lines::default(), event: Event::default(), events: 0 }
    }

    /// Adds received bytes.
    pub(super) fn push(&mut self, bytes: &[u8]) {
        self.lines.push(bytes);
    }

    /// The next complete event; `None` if more bytes are needed.
    pub(super) fn next_event(&mut self) -> Result<Option<Event>, ProviderError> {
        while let Some(line) = self.lines.next_line()? {
            if let Some(event) = take_line(self.framing, &mut self.event, line)? {
                self.events += 1;
                if self.events > MAX_STREAM_EVENTS {
                    return Err(refused(format!("the answer has more than {MAX_STREAM_EVENTS} events")));
                }
                return Ok(Some(event));
            }
        }
        Ok(None)
    }

    /// The incomplete event at the end of the stream.
    pub(super) fn last_event(&mut self) -> Option<Event> {
        let rest = self.lines.rest();
        let last = take_line(self.framing, &mut self.event, &rest).ok()?;
        last.or_else(|| Some(std::mem::take(&mut self.event)).filter(|event| !event.data.is_empty()))
    }
}

/// Adds a line to `event`. Returns the event if the line ends it.
fn take_line(framing: Framing, event: &mut Event, line: &[u8]) -> Result<Option<Event>, ProviderError> {
    let line = String::from_utf8_lossy(line);
    let line = line.trim_start_matches('\u{feff}').trim();
    if framing == Framing::JsonLines {
        let is_event = !line.is_empty();
        return Ok(is_event.then(|| Event { name: String::new(), data: line.to_owned() }));
    }
    if line.is_empty() {
        let whole = std::mem::take(event);
        return Ok(Some(whole).filter(|event| !event.data.is_empty()));
    }
    if let Some(data) = line.strip_prefix("data:") {
        if event.data.len() + data.len() >= MAX_EVENT_BYTES {
            return Err(refused(format!("an event of the answer is longer than {MAX_EVENT_BYTES} bytes")));
        }
        if !event.data.is_empty() {
            event.data.push('\n');
        }
        event.data.push_str(data.trim_start());
    } else if let Some(name) = line.strip_prefix("event:") {
        name.trim_start().clone_into(&mut event.name);
    }
    Ok(None)
}

/// Splits bytes into lines.
#[derive(Default)]
struct Lines {
    bytes: Vec<u8>,
    /// The start of the next line.
    start: usize,
    /// The position up to which the next line was searched for its end.
    scanned: usize,
    /// Whether the last line ended with CR, so that an LF directly after it belongs to the same line end.
    after_cr: bool,
    /// How many bytes were returned or skipped.
    taken: usize,
}

impl Lines {
    fn push(&mut self, bytes: &[u8]) {
        if self.start > 0 {
            self.bytes.drain(..self.start);
            (self.scanned, self.start) = (self.scanned - self.start, 0);
        }
        self.bytes.extend_from_slice(bytes);
    }

    fn next_line(&mut self) -> Result<Option<&[u8]>, ProviderError> {
        if self.after_cr && self.start < self.bytes.len() {
            self.after_cr = false;
            if self.bytes[self.start] == b'\n' {
                self.start += 1;
                self.scanned = self.start;
                self.taken += 1;
            }
        }
        let end = memchr2(b'\n', b'\r', &self.bytes[self.scanned..]).map(|offset| self.scanned + offset);
        let length = end.unwrap_or(self.bytes.len()) - self.start;
        if length > MAX_LINE_BYTES {
            return Err(refused(format!("a line of the answer is longer than {MAX_LINE_BYTES} bytes")));
        }
        if self.taken + length > MAX_STREAM_BYTES {
            return Err(refused(format!("the answer has more than {MAX_STREAM_BYTES} bytes")));
        }
        let Some(end) = end else {
            self.scanned = self.bytes.len();
            return Ok(None);
        };
        let line = self.start..end;
        self.after_cr = self.bytes[end] == b'\r';
        (self.start, self.scanned) = (end + 1, end + 1);
        self.taken += length + 1;
        Ok(Some(&self.bytes[line]))
    }

    /// The incomplete last line.
    fn rest(&mut self) -> Vec<u8> {
        let rest = self.bytes.split_off(self.start);
        *self = Self::default();
        rest
    }
}

fn refused(message: String) -> ProviderError {
    ProviderError::Refused { message: format!("{message}, which is no answer of a model; check base_url") }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// The events of bytes that arrive in these chunks, and the error if there is one.
    fn events(framing: Framing, pieces: &[&[u8]]) -> (Vec<(String, String)>, Option<String>) {
        let mut splitter = Splitter::new(framing);
        let mut events = Vec::new();
        let mut add = |event: Event| events.push((event.name, event.data));
        for piece in pieces {
            splitter.push(piece);
            loop {
                match splitter.next_event() {
                    Ok(Some(event)) => add(event),
                    Ok(None) => break,
                    Err(error) => return (events, Some(error.to_string())),
                }
            }
        }
        splitter.last_event().map(add);
        (events, None)
    }

    fn sse(text: &str) -> Vec<(String, String)> {
        events(Framing::ServerSentEvents, &[text.as_bytes()]).0
    }

    fn pair(name: &str, data: &str) -> (String, String) {
        (name.to_owned(), data.to_owned())
    }

    #[test]
    fn empty_lines_separate_events_with_any_line_end() {
        for end in ["\n", "\r\n", "\r"] {
            let text = "\u{feff}event: a|data: 1|||: a comment|data:2|data: 3|id: 7||event: b||data: 4";
            let wanted = [pair("a", "1"), pair("", "2\n3"), pair("", "4")];
            assert_eq!(sse(&text.replace('|', end)), wanted, "{end:?}");
        }
        assert_eq!(sse("data\n\ndata:\n\nnothing\n\n"), []);
        assert_eq!(
            events(Framing::JsonLines, &[b"{}\r\n\n [1]\n2"]).0,
            [pair("", "{}"), pair("", "[1]"), pair("", "2")]
        );
    }

    #[test]
    fn invalid_utf8_is_replaced() {
        let (events, error) = events(Framing::ServerSentEvents, &[b"data: a\xffb\n\n"]);
        assert_eq!((events, error), (vec![pair("", "a\u{fffd}b")], None));
    }

    #[test]
    fn lines_events_and_streams_have_exact_limits() {
        let error = |pieces: &[&[u8]]| events(Framing::ServerSentEvents, pieces).1.unwrap_or_default();
        let line = vec![b'a'; MAX_LINE_BYTES];
        assert_eq!(error(&[&line, b"\n"]), "");
        assert!(error(&[&line, b"a"]).contains("a line of the answer is longer than 8388608 bytes"));
        assert!(error(&[&[&line[..], b"a\n"].concat()]).contains("a line"), "even if the line is complete");

        let half = [b"data:", &line[..MAX_EVENT_BYTES / 2 - 1], b"\n"].concat();
        assert_eq!(error(&[&half, &half, b"\n"]), "");
        assert!(
            error(&[&half, &half, &half]).contains("an event of the answer is longer than 8388608 bytes")
        );

        let line = &[b":", &line[2..], b"\n"].concat()[..];
        let stream = vec![line; MAX_STREAM_BYTES / MAX_LINE_BYTES];
        assert_eq!(error(&stream), "");
        assert!(error(&[&stream[..], &[b"a"]].concat()).contains("more than 268435456 bytes"));
    }

    #[test]
    fn the_number_of_events_is_limited() {
        let mut splitter = Splitter::new(Framing::JsonLines);
        for _ in 0..MAX_STREAM_EVENTS / 1000 {
            splitter.push("1\n".repeat(1000).as_bytes());
            while splitter.next_event().unwrap().is_some() {}
        }
        splitter.push(b"1\n");
        assert!(splitter.next_event().unwrap_err().to_string().contains("more than 1000000 events"));
    }

    proptest! {
        #[test]
        fn the_events_do_not_depend_on_the_chunks(
            lines in prop::collection::vec("(data: ?|event: ?|:|)[a-z\u{e4} ]{0,8}(\n|\r|\r\n)", 0..20),
            cuts in prop::collection::vec(0..200_usize, 0..8),
        ) {
            let text = lines.concat();
            let mut pieces = Vec::new();
            let mut rest = text.as_bytes();
            for cut in cuts {
                let (piece, more) = rest.split_at(cut.min(rest.len()));
                pieces.push(piece);
                rest = more;
            }
            pieces.push(rest);
            for framing in [Framing::ServerSentEvents, Framing::JsonLines] {
                prop_assert_eq!(events(framing, &pieces), events(framing, &[text.as_bytes()]));
            }
        }
    }
}
