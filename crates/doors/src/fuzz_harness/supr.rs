//! The promises of the supr door.
//!
//! Each frame of the client has one outcome: a pong, a typed error, a run, the end of a run that never began,
//! or a stop that shows in the events. The events of what is watched are told once and in their order, and
//! nothing of a run after its last one.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use parlor_vocab::{
    Clock, IdSource, MessageEvent, RegistryEvent, RegistryReply, RunEvent, RunId, Seq, SessionEvent,
    SessionId, SessionUpdate, Timestamp, UniqueNumber,
};
use serde_json::Value;

use super::LINE_BYTES;
use super::fake_registry::Update;
use super::shared_registry::SharedRegistry;
use crate::lines::{Line, Lines};
use crate::supr::pairs::mended;
use crate::supr::protocol::{Activity, ServerFrame, Typed};
use crate::supr::{ConnectionParams, SuprMachine};
use crate::{Input, Machine, Output, Ticket};

pub(super) struct Conversation<'a> {
    machine: SuprMachine,
    registry: SharedRegistry<'a>,
    visit: ConnectionParams,
    now: Instant,
    /// What is watched: where the new begins, by the question that asked for it.
    asked: HashMap<Ticket, SessionId>,
    watched: HashMap<SessionId, Watched>,
    runs: HashMap<String, Run>,
    event_ids: HashSet<String>,
    /// What was shown of texts that are being written, by their messages.
    shown: HashMap<String, String>,
    /// What the client sent, pings aside, and what it got for it.
    frames: usize,
    errors: usize,
    refused: usize,
    heard: Vec<Vec<u8>>,
}

/// What is known of a session from the registry's side.
#[derive(Default)]
struct Watched {
    seen: Seq,
    head: Seq,
    last: Seq,
    /// Runs whose start was heard.
    begun: HashSet<RunId>,
}

/// What was told of a run.
#[derive(Default)]
struct Run {
    sequence: Option<u64>,
    has_ended: bool,
}

/// Counts, so that ids differ and stay the same in each play.
struct Counting(AtomicU64);

impl Clock for Counting {
    fn now(&self) -> Timestamp {
        Timestamp(1)
    }
}

impl IdSource for Counting {
    fn next(&self) -> UniqueNumber {
        UniqueNumber(self.0.fetch_add(1, Ordering::Relaxed).into())
    }
}

impl<'a> Conversation<'a> {
    pub(super) fn new(choices: &'a [u8]) -> Self {
        let mut registry = SharedRegistry::new(choices);
        let session = |name: &str| SessionId::parse(name).expect("a short text");
        let own = session("own");
        let choice = registry.choices.next();
        if choice & 1 == 1 {
            registry.live(&own);
        }
        let last = registry.log(&own).len();
        let event = registry.choices.index(last).map(|index| registry.log(&own)[index].id.to_string());
        let counting = Arc::new(Counting(AtomicU64::new(0)));
        let visit = ConnectionParams {
            session: own,
            after: match choice >> 1 & 3 {
                0 | 1 => None,
                2 => Some(event),
                _ => Some(Some("never heard of".to_owned())),
            },
            watch: if choice & 8 == 8 { vec![session("other"), session("own")] } else { Vec::new() },
            streams: choice & 16 == 16,
            may_send: choice & 96 != 96,
            traceparent: None,
            agents: Arc::new([("a".to_owned(), "A".to_owned()), ("nobody".to_owned(), String::new())]),
            folder: "/".into(),
            clock: Arc::clone(&counting) as _,
            ids: counting,
        };
        Self {
            machine: SuprMachine::new(visit.clone()),
            registry,
            visit,
            // Only a place to count from.
            now: Instant::now(),
            asked: HashMap::new(),
            watched: HashMap::new(),
            runs: HashMap::new(),
            event_ids: HashSet::new(),
            shown: HashMap::new(),
            frames: 0,
            errors: 0,
            refused: 0,
            heard: Vec::new(),
        }
    }

    pub(super) fn play<C: AsRef<[u8]>>(mut self, chunks: &[C]) -> Vec<Vec<u8>> {
        let first = self.take();
        assert!(
            matches!(first.as_slice(), [ServerFrame::Typed(Typed { kind, .. })] if kind == "agent.list"),
            "{first:?}"
        );
        let mut lines = Lines::new(LINE_BYTES);
        for chunk in chunks {
            lines.push(chunk.as_ref());
            while let Some(line) = lines.next_line() {
                self.on_line(line);
            }
        }
        if let Some(line) = lines.finish() {
            self.on_line(line);
        }
        while let Some(happening) = self.registry.oblige() {
            self.on_happening(happening);
        }
        assert!(!self.machine.is_at_work(), "nothing is outstanding, but it is at work");
        let outcomes = self.errors + self.refused + self.registry.inputs + self.registry.stops;
        assert!(outcomes <= self.frames, "{outcomes} outcomes of {} frames", self.frames);
        assert!(
            outcomes == self.frames || !self.visit.may_send,
            "{outcomes} outcomes of {} frames",
            self.frames
        );
        self.heard
    }

    fn on_line(&mut self, line: Line<'_>) {
        while !self.machine.wants_frame() {
            let happening = self.registry.oblige();
            self.on_happening(happening.expect("what is not wanted waits for something"));
        }
        let (ping, input) = match line {
            Line::Whole(frame) => (ping(frame), Input::Frame(frame)),
            Line::Oversize => (None, Input::Oversize { limit: LINE_BYTES }),
        };
        self.machine.handle(self.now, input);
        let frames = self.take();
        match (ping, frames.as_slice()) {
            (Some(id), [ServerFrame::Typed(pong)]) => {
                assert!(pong.kind == "pong" && pong.id == id && pong.payload.is_empty(), "{pong:?}");
            }
            (Some(_), frames) => panic!("a ping has one answer, not {frames:?}"),
            (None, frames) => {
                self.frames += 1;
                assert!(frames.len() <= 1, "{frames:?}");
                frames.iter().for_each(|frame| self.on_error(frame));
            }
        }
        for _ in 0..self.registry.choices.burst() {
            if let Some(happening) = self.registry.act() {
                self.on_happening(happening);
            }
        }
    }

    fn on_error(&mut self, frame: &ServerFrame) {
        let ServerFrame::Typed(Typed { kind, id: None, session_id: None, payload, .. }) = frame else {
            panic!("{frame:?} answers no frame")
        };
        // What is about a message with a key names it.
        let known = 2 + usize::from(payload.get("key").is_some_and(|key| key.is_string()));
        assert!(kind == "error" && payload.len() == known, "{frame:?}");
        assert!(payload["code"].is_string() && payload["message"].is_string(), "{frame:?}");
        self.errors += 1;
    }

    fn on_happening(&mut self, happening: Update) {
        match happening {
            Update::Answer(ticket, answer) => {
                if let Some(session) = self.asked.remove(&ticket) {
                    let Ok(RegistryReply::Watching { seen, head }) = &answer else { panic!("{answer:?}") };
                    self.watched.insert(session, Watched { seen: *seen, head: *head, ..Watched::default() });
                }
                self.machine.handle(self.now, Input::Answer(ticket, answer));
                for frame in self.take() {
                    match &frame {
                        ServerFrame::Activity(activity) => self.on_refusal(activity),
                        ServerFrame::Typed(typed) if typed.kind == "media.create" => self.on_media(typed),
                        ServerFrame::Typed(_) => self.on_error(&frame),
                    }
                }
            }
            Update::Event(event) => {
                self.machine.handle(self.now, Input::Event(&event));
                let frames = self.take();
                assert!(frames.len() <= 1, "{frames:?}");
                self.on_event(&event, frames.into_iter().next());
            }
        }
    }

    /// An event of a run that never began: it fails, and that is all of it.
    fn on_refusal(&mut self, activity: &Activity) {
        let kind = activity.event_type.as_str();
        let is_known = self.runs.contains_key(&activity.run_id);
        assert!(matches!((kind, is_known), ("error.raised", false) | ("run.failed", true)), "{activity:?}");
        assert!(!activity.replay, "{activity:?}");
        self.refused += usize::from(is_known);
        self.check(activity);
    }

    fn on_media(&self, typed: &Typed) {
        let session = typed.session_id.as_deref().unwrap_or_default();
        assert!(self.watched.keys().any(|watched| watched.as_str() == session), "{typed:?}");
        let members = ["type", "data", "filename", "content_type", "caption"];
        assert!(typed.payload.len() == members.len() && typed.id.is_none(), "{typed:?}");
        assert!(members.iter().all(|member| typed.payload[*member].is_string()), "{typed:?}");
    }

    /// What happened became this frame, or none.
    fn on_event(&mut self, RegistryEvent { session, seen }: &RegistryEvent, frame: Option<ServerFrame>) {
        let watched = self.watched.get_mut(session).expect("nobody hears before the watch has begun");
        let entry = match seen {
            SessionUpdate::Entry(entry) => entry,
            SessionUpdate::Delta { text, .. } => {
                let is_due = self.visit.streams && watched.last >= watched.seen;
                return match frame {
                    Some(ServerFrame::Typed(typed)) if is_due => self.on_delta(&typed, text),
                    None if !is_due => {}
                    frame => panic!("{text:?} became {frame:?}"),
                };
            }
        };
        if entry.seq == Seq(1) && (watched.last > Seq::START || watched.seen > Seq::START) {
            *watched = Watched::default();
        }
        watched.last = entry.seq;
        let SessionEvent::Run { run, event, sequence } = &entry.event else {
            let is_typed = matches!(frame, Some(ServerFrame::Typed(_)));
            return assert!(frame.is_none() || (is_typed && self.visit.streams), "{frame:?}");
        };
        if let RunEvent::Started { parent, .. } = event
            && (parent.is_none() || self.visit.streams)
        {
            watched.begun.insert(run.clone());
        }
        let is_child = !watched.begun.contains(run);
        let replay = entry.seq <= watched.head;
        let is_due = entry.seq > watched.seen && !is_child;
        match frame {
            Some(ServerFrame::Activity(activity)) if is_due => {
                assert_eq!(activity.event_id, entry.id.as_str());
                assert_eq!((activity.run_id.as_str(), activity.sequence), (run.as_str(), *sequence));
                assert_eq!((activity.session_id.as_str(), activity.replay), (session.as_str(), replay));
                let is_last = matches!(activity.event_type.as_str(), "run.completed" | "run.failed");
                assert_eq!(is_last, matches!(event, RunEvent::Ended { .. }), "{activity:?}");
                self.check(&activity);
                if let RunEvent::Message(MessageEvent::Completed { message, text, .. }) = event {
                    let shown = self.shown.remove(message.as_str()).unwrap_or_else(|| text.clone());
                    assert_eq!(shown, *text, "what was shown, put together, is the text");
                }
            }
            None if !is_due => {}
            frame => panic!("{entry:?} became {frame:?}"),
        }
    }

    fn on_delta(&mut self, typed: &Typed, text: &str) {
        assert!(typed.kind == "message.delta" && typed.payload["text"] == text, "{typed:?}");
        let run = typed.payload["run_id"].as_str().expect("a text is of a run");
        assert!(self.runs.get(run).is_none_or(|run| !run.has_ended), "{typed:?} after the end");
        let message = typed.payload["message_id"].as_str().expect("a text is of a message").to_owned();
        self.shown.entry(message).or_default().push_str(text);
    }

    /// What holds for every event.
    fn check(&mut self, activity: &Activity) {
        assert!(self.event_ids.insert(activity.event_id.clone()), "{activity:?} was told before");
        assert_eq!(activity.data.get("agent_id"), activity.agent_id.clone().map(Value::from).as_ref());
        assert!(activity.agent_id.is_some() && activity.v == "1.0", "{activity:?}");
        assert_eq!(activity.idempotency_key, format!("{}_{}", activity.run_id, activity.sequence));
        assert!(activity.parent_run_id.is_none() || self.visit.streams, "{activity:?}");
        let run = self.runs.entry(activity.run_id.clone()).or_default();
        assert!(!run.has_ended, "{activity:?} comes after the last event of its run");
        assert!(run.sequence.is_none_or(|last| activity.sequence == last + 1), "{activity:?} leaves a gap");
        run.sequence = Some(activity.sequence);
        run.has_ended = matches!(activity.event_type.as_str(), "run.completed" | "run.failed");
    }

    /// Takes out what the machine wants: passes requests on, and gives back the frames.
    fn take(&mut self) -> Vec<ServerFrame> {
        let mut frames = Vec::new();
        while let Some(output) = self.machine.poll() {
            match output {
                Output::Send(frame) => {
                    let value: Value = serde_json::from_slice(&frame).expect("a frame is JSON");
                    assert!(value.get("type").is_some() != value.get("event_type").is_some(), "{value}");
                    frames.push(serde_json::from_value(value).expect("a frame is one of the server's"));
                    self.heard.push(frame);
                }
                Output::Request(ticket, command) => {
                    if let parlor_vocab::RegistryRequest::Watch { session, .. } = &command {
                        assert!(
                            self.asked.insert(ticket, session.clone()).is_none(),
                            "{ticket:?} is used twice"
                        );
                    }
                    self.registry.ask(ticket, command);
                }
                Output::WakeAt(_) => panic!("it waits for nothing"),
                Output::Close => panic!("nothing that a client says closes the connection"),
            }
        }
        frames
    }
}

/// The id of the ping that a frame is, if it is one.
fn ping(frame: &[u8]) -> Option<Option<String>> {
    let frame: Typed = serde_json::from_slice(&without_nulls(frame)?).ok()?;
    (frame.kind == "ping").then(|| frame.id.filter(|id| !id.is_empty()))
}

/// An object in which what is null is not there, which is the same thing.
fn without_nulls(frame: &[u8]) -> Option<Vec<u8>> {
    let read = serde_json::from_slice(frame).or_else(|_| serde_json::from_slice(&mended(frame)));
    let Value::Object(mut members) = read.ok()? else { return None };
    members.retain(|_, value| !value.is_null());
    serde_json::to_vec(&members).ok()
}
