//! Events as JSON lines: the format that `--json` prints and `docs/events.md` describes.
//!
//! Other programs depend on this format, so it has types of its own, apart from `vocab` (whose types cannot be
//! serialized) and from the rows of the log. Members may be added but not renamed; `golden.txt` pins them.

mod parts;
mod run;
#[cfg(test)]
mod samples;

use std::io::{self, Write};

use parlor_engine::is_visible;
use parlor_log::SessionRecord;
use parlor_vocab::{Entry, Question, SessionEvent, SessionId, SessionUpdate, StreamKind};
use serde::Serialize;
use serde_json::Serializer;
use serde_json::ser::Formatter;

use self::parts::{Choice, Fork, Input, Message};

/// Writes `value` as one line, and flushes the output.
pub(crate) fn write_line(out: &mut dyn Write, value: &impl Serialize) -> io::Result<()> {
    value.serialize(&mut Serializer::with_formatter(&mut *out, EscapeHidden))?;
    out.write_all(b"\n")?;
    out.flush()
}

/// Writes the frame of a door, which is compact JSON, as one line. Outside of strings, compact JSON has no character that
/// needs an escape, so the frame is treated as one string.
pub(crate) fn write_frame(out: &mut dyn Write, frame: &[u8]) -> io::Result<()> {
    let frame = std::str::from_utf8(frame).map_err(io::Error::other)?;
    EscapeHidden.write_string_fragment(&mut *out, frame)?;
    out.write_all(b"\n")
}

/// Compact JSON, in which characters that a terminal obeys or does not show are escaped. JSON itself demands that only for
/// the control characters of ASCII.
struct EscapeHidden;

impl Formatter for EscapeHidden {
    fn write_string_fragment<W: ?Sized + Write>(&mut self, writer: &mut W, fragment: &str) -> io::Result<()> {
        let mut rest = fragment;
        while let Some((start, hidden)) = rest.char_indices().find(|(_, letter)| !is_visible(*letter)) {
            let (shown, tail) = rest.split_at(start);
            writer.write_all(shown.as_bytes())?;
            for unit in hidden.encode_utf16(&mut [0; 2]) {
                write!(writer, "\\u{unit:04x}")?;
            }
            rest = tail.strip_prefix(hidden).unwrap_or_default();
        }
        writer.write_all(rest.as_bytes())
    }
}

/// Writes an update of a session as one line.
pub(crate) fn write_update(
    out: &mut dyn Write,
    session: &SessionId,
    update: &SessionUpdate,
) -> io::Result<()> {
    match update {
        SessionUpdate::Entry(entry) => write_line(out, &event_line(session, entry)),
        SessionUpdate::Delta { run, stream, text } => {
            let source = match stream {
                StreamKind::Message(message) => DeltaSource::Message { message: message.as_str() },
                StreamKind::Reasoning(step) => DeltaSource::Reasoning { step: step.as_str() },
                StreamKind::ToolOutput(call) => DeltaSource::ToolOutput { call: call.as_str() },
                StreamKind::ToolInput { call, tool } => DeltaSource::ToolInput { input: call.as_str(), tool },
            };
            let (session, run) = (session.as_str(), run.as_str());
            write_line(out, &Delta { kind: "delta", session, run, source, text })
        }
    }
}

/// A session as `parlor sessions --json` prints it.
#[derive(Serialize)]
pub(crate) struct SessionLine<'a> {
    session: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    title: Option<&'a str>,
    door: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    agent: Option<&'a str>,
    created: String,
    updated: String,
    events: u64,
    messages: u64,
    /// The id of the active run.
    #[serde(skip_serializing_if = "Option::is_none")]
    running: Option<&'a str>,
    /// The id of a run whose process is gone.
    #[serde(skip_serializing_if = "Option::is_none")]
    cut_off: Option<&'a str>,
    /// The question that the run asks.
    #[serde(skip_serializing_if = "Option::is_none")]
    question: Option<run::Body<'a>>,
}

impl<'a> SessionLine<'a> {
    /// `is_cut_off` means that the process of the run in `record.running` is gone.
    pub(crate) fn new(record: &'a SessionRecord, is_cut_off: bool, question: Option<&'a Question>) -> Self {
        let run = record.running.as_ref().map(|run| run.as_str());
        Self {
            session: record.id.as_str(),
            title: record.title.as_deref(),
            door: &record.door,
            agent: record.agent.as_ref().map(|agent| agent.as_str()),
            created: record.created.rfc3339(),
            updated: record.updated.rfc3339(),
            events: record.head.0,
            messages: record.messages,
            running: run.filter(|_| !is_cut_off),
            cut_off: run.filter(|_| is_cut_off),
            question: question.map(run::asked),
        }
    }
}

/// A piece of a text that an agent, model or tool is writing.
#[derive(Serialize)]
struct Delta<'a> {
    #[serde(rename = "type")]
    kind: &'static str,
    session: &'a str,
    run: &'a str,
    #[serde(flatten)]
    source: DeltaSource<'a>,
    text: &'a str,
}

/// The text of which a delta is a piece.
#[derive(Serialize)]
#[serde(untagged)]
enum DeltaSource<'a> {
    Message {
        message: &'a str,
    },
    Reasoning {
        step: &'a str,
    },
    ToolOutput {
        call: &'a str,
    },
    /// `input` is the id of the call, not a text. It is not named `call`, as the agent has not made the call yet.
    ToolInput {
        input: &'a str,
        tool: &'a str,
    },
}

/// An event of a session.
#[derive(Serialize)]
struct EventLine<'a> {
    #[serde(rename = "type")]
    kind: &'static str,
    session: &'a str,
    seq: u64,
    id: &'a str,
    at: String,
    #[serde(flatten)]
    body: Body<'a>,
}

/// The members of a line that depend on its type.
#[derive(Serialize)]
#[serde(untagged)]
enum Body<'a> {
    Created {
        #[serde(skip_serializing_if = "Option::is_none")]
        title: Option<&'a str>,
        door: &'a str,
        folder: String,
        choice: Choice<'a>,
        #[serde(skip_serializing_if = "Option::is_none")]
        system: Option<&'a str>,
        #[serde(skip_serializing_if = "Option::is_none")]
        forked_from: Option<Fork<'a>>,
    },
    Renamed {
        title: &'a str,
    },
    Chosen {
        choice: Choice<'a>,
    },
    Queued {
        run: &'a str,
        input: Input<'a>,
    },
    Unqueued {
        runs: Vec<&'a str>,
    },
    ModeChosen {
        mode: &'static str,
    },
    Cleared {},
    Compacted {
        summary: Message<'a>,
        #[serde(skip_serializing_if = "Option::is_none")]
        kept_from: Option<&'a str>,
    },
    MessageAdded {
        message: Message<'a>,
    },
    Run(run::RunMembers<'a>),
}

fn event_line<'a>(session: &'a SessionId, entry: &'a Entry) -> EventLine<'a> {
    let (kind, body) = match &entry.event {
        SessionEvent::Created(new_session) => (
            "session.created",
            Body::Created {
                title: new_session.title.as_deref(),
                door: &new_session.door,
                folder: new_session.folder.to_string_lossy().into_owned(),
                choice: Choice::from(&new_session.choice),
                system: new_session.system.as_deref(),
                forked_from: new_session.forked_from.as_ref().map(Fork::from),
            },
        ),
        SessionEvent::Renamed { title } => ("session.renamed", Body::Renamed { title }),
        SessionEvent::AgentChosen(choice) => ("session.chosen", Body::Chosen { choice: choice.into() }),
        SessionEvent::ModeChosen { mode } => ("session.mode", Body::ModeChosen { mode: mode.as_str() }),
        SessionEvent::Queued(queued) => {
            ("input.queued", Body::Queued { run: queued.run.as_str(), input: (&queued.input).into() })
        }
        SessionEvent::Unqueued { runs } => {
            ("input.unqueued", Body::Unqueued { runs: runs.iter().map(|run| run.as_str()).collect() })
        }
        SessionEvent::Cleared => ("session.cleared", Body::Cleared {}),
        SessionEvent::Compacted { summary, kept_from } => (
            "session.compacted",
            Body::Compacted {
                summary: summary.into(),
                kept_from: kept_from.as_ref().map(|message| message.as_str()),
            },
        ),
        SessionEvent::MessageAdded(message) => {
            ("message.added", Body::MessageAdded { message: message.into() })
        }
        SessionEvent::Run { run, sequence, event } => {
            let (kind, body) = run::body(event);
            (kind, Body::Run(run::RunMembers { run: run.as_str(), sequence: *sequence, body }))
        }
    };
    let (seq, at) = (entry.seq.0, entry.at.rfc3339());
    EventLine { kind, session: session.as_str(), seq, id: entry.id.as_str(), at, body }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::disallowed_methods, reason = "the variable GOLDEN asks to rewrite the file")]

    use std::collections::BTreeSet;
    use std::sync::Arc;

    use parlor_vocab::{EventId, MessageId, RunId, Seq, StepId, Timestamp, ToolCallId};

    use super::*;

    const GOLDEN: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/src/json/golden.txt");
    const PAGE: &str = include_str!("../../../../docs/events.md");

    fn session() -> SessionId {
        SessionId::parse("s").unwrap()
    }

    #[test]
    fn characters_that_a_terminal_obeys_are_escaped() {
        let mut out = Vec::new();
        let text = "a\u{9b}b\u{202e}c\x7f\x1b\u{e0001}ä\u{1f600}";
        write_line(&mut out, &text).unwrap();
        let line = String::from_utf8(out).unwrap();
        assert_eq!(line, "\"a\\u009bb\\u202ec\\u007f\\u001b\\udb40\\udc01ä\u{1f600}\"\n");
        assert_eq!(serde_json::from_str::<String>(&line).unwrap(), text);
    }

    fn lines() -> String {
        let mut out = Vec::new();
        for (event, seq) in samples::all().into_iter().zip(1..) {
            let id = EventId::parse(&format!("evt_{seq}")).unwrap();
            let entry = Entry { seq: Seq(seq), id, at: Timestamp(951_826_209_007), event };
            write_update(&mut out, &session(), &SessionUpdate::Entry(Arc::new(entry))).unwrap();
        }
        for stream in [
            StreamKind::Message(MessageId::parse("msg_1").unwrap()),
            StreamKind::Reasoning(StepId::parse("s1").unwrap()),
            StreamKind::ToolOutput(ToolCallId::parse("c1").unwrap()),
            StreamKind::ToolInput { call: ToolCallId::parse("c1").unwrap(), tool: "shell".to_owned() },
        ] {
            let run = RunId::parse("run_1").unwrap();
            let delta = SessionUpdate::Delta { run, stream, text: "two\nlines".to_owned() };
            write_update(&mut out, &session(), &delta).unwrap();
        }
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn the_format_of_every_event_is_unchanged() {
        let lines = lines();
        if std::env::var_os("GOLDEN").is_some_and(|golden| golden == "write") {
            std::fs::write(GOLDEN, &lines).unwrap();
        }
        let golden = std::fs::read_to_string(GOLDEN).unwrap_or_default();
        for (line, golden) in lines.lines().zip(golden.lines()) {
            assert_eq!(line, golden);
        }
        assert_eq!(lines.lines().count(), golden.lines().count());
    }

    #[test]
    fn every_line_is_an_object_with_the_common_members() {
        for line in lines().lines() {
            let object: serde_json::Value = serde_json::from_str(line).unwrap();
            assert_eq!(object["session"], "s", "{line}");
            if object["type"] != "delta" {
                assert!(object["seq"].is_u64() && object["id"].is_string(), "{line}");
                assert_eq!(object["at"], "2000-02-29T12:10:09.007Z");
            }
        }
    }

    /// The compiler enforces that each kind of event has a line; this test, that each line has a sample.
    #[test]
    fn every_type_has_a_sample() {
        let lines = lines();
        let sources =
            [include_str!("mod.rs"), include_str!("run.rs")].map(|source| source.split("mod tests").next());
        let texts = sources.into_iter().flatten().flat_map(|source| source.split('"').skip(1).step_by(2));
        let types: BTreeSet<&str> = texts
            .filter(|text| {
                text.split('.').count() == 2 && text.chars().all(|c| c == '.' || c.is_ascii_lowercase())
            })
            .collect();
        assert_eq!(types.len(), 30, "{types:?}");
        for name in types {
            assert!(lines.contains(&format!("{{\"type\":\"{name}\",")), "{name} has no sample");
        }
    }

    #[test]
    fn the_page_names_every_type_and_member() {
        let mut names = BTreeSet::new();
        for line in lines().lines() {
            let object: serde_json::Value = serde_json::from_str(line).unwrap();
            names.insert(object["type"].as_str().unwrap().to_owned());
            collect_names(&object, &mut names);
        }
        assert!(names.len() > 50, "{names:?}");
        for name in names {
            assert!(PAGE.contains(&format!("`{name}`")), "docs/events.md does not mention `{name}`");
        }
    }

    fn collect_names(value: &serde_json::Value, names: &mut BTreeSet<String>) {
        if let Some(object) = value.as_object() {
            for (name, value) in object {
                names.insert(name.clone());
                // The members of a tool's input belong to the tool, not to this format.
                if object.get("tool").is_none() || name != "input" {
                    collect_names(value, names);
                }
            }
        }
        for item in value.as_array().into_iter().flatten() {
            collect_names(item, names);
        }
    }
}
