//! Cuts the bytes of an answer into events, within limits. Pure: it knows no provider and no socket.
//!
//! Lines end with LF, CR LF or CR, as in server-sent events (HTML, section 9.2). Each byte is looked at once, however
//! the bytes are cut.

use memchr::memchr2;

use super::ProviderError;

/// The longest line that is read. The last event of the responses form repeats the whole answer in one.
pub const MAX_LINE_BYTES: usize = 8 << 20;

/// The longest event that is read, in all of its lines.
pub const MAX_EVENT_BYTES: usize = 8 << 20;

/// The most bytes that are read for one answer. An event is a hundred times as long as the token in it.
pub const MAX_STREAM_BYTES: usize = 256 << 20;

/// The most events of one answer. The longest answers of models have some hundred thousand tokens, an event each.
pub const MAX_STREAM_EVENTS: usize = 1_000_000;

/// How an answer is cut into events.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Framing {
    /// `event:` and `data:` lines, up to an empty line.
    ServerSentEvents,
    /// A line of JSON each.
    JsonLines,
}

/// An event of a stream.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Event {
    /// Empty if it has none.
    pub(super) name: String,
    pub(super) data: String,
}

/// Bytes in, events out.
pub(super) struct Splitter {
    framing: Framing,
    lines: Lines,
    /// What came of an event that has not ended.
    event: Event,
    events: usize,
}

impl Splitter {
    pub(super) fn new(framing: Framing) -> Self {
        Self { framing, lines: Lines::default(), event: Event::default(), events: 0 }
    }

    /// Takes what came.
    pub(super) fn push(&mut self, bytes: &[u8]) {
        self.lines.push(bytes);
    }

    /// The next event of what was pushed; none if more is needed.
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

    /// What is left when nothing more comes: an event without its end.
    pub(super) fn last_event(&mut self) -> Option<Event> {
        let rest = self.lines.rest();
        let last = take_line(self.framing, &mut self.event, &rest).ok()?;
        last.or_else(|| Some(std::mem::take(&mut self.event)).filter(|event| !event.data.is_empty()))
    }
}

/// Takes a line into `event`, and gives that back if the line ends it.
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

/// Bytes in, lines out.
#[derive(Default)]
struct Lines {
    bytes: Vec<u8>,
    /// Where the line begins that is read next.
    start: usize,
    /// Up to where that line has no end.
    scanned: usize,
    /// Whether the last line ended with CR, so that an LF right behind it belongs to its end.
    after_cr: bool,
    /// How many bytes were given out or passed over.
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
        let end = memchr2(b'\n', b'\r', &self.bytes[self.scanned..]).map(|place| self.scanned + place);
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

    /// What is left of a line that has no end.
    fn rest(&mut self) -> Vec<u8> {
        let rest = self.bytes.split_off(self.start);
        *self = Self::default();
        rest
    }
}

fn refused(said: String) -> ProviderError {
    ProviderError::Refused { said: format!("{said}, which is no answer of a model; check base_url") }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// All events of bytes that come in these pieces, then the error if there is one.
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
    fn events_are_told_apart_by_empty_lines_however_lines_end() {
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
    fn what_is_no_utf8_is_replaced() {
        let (events, error) = events(Framing::ServerSentEvents, &[b"data: a\xffb\n\n"]);
        assert_eq!((events, error), (vec![pair("", "a\u{fffd}b")], None));
    }

    #[test]
    fn a_line_an_event_and_a_stream_have_limits_to_the_byte() {
        let error = |pieces: &[&[u8]]| events(Framing::ServerSentEvents, pieces).1.unwrap_or_default();
        let line = vec![b'a'; MAX_LINE_BYTES];
        assert_eq!(error(&[&line, b"\n"]), "");
        assert!(error(&[&line, b"a"]).contains("a line of the answer is longer than 8388608 bytes"));
        assert!(error(&[&[&line[..], b"a\n"].concat()]).contains("a line"), "also if its end has come");

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
    fn a_stream_has_so_many_events_and_no_more() {
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
        fn any_cut_gives_the_same_events(
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
