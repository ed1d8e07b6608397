//! Checks the guarantees of the supr door.
//!
//! Each frame of the client has one outcome: a pong, an error, a run, the activities of a refused run, or a stop that
//! shows in the events. The activities of a watched session are sent once and in order, and none of a run after its last
//! one.

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::Arc;
use std::time::Instant;

use parlor_vocab::{
    MessageEvent, RegistryEvent, RegistryReply, RunEvent, RunId, Seq, SessionEvent, SessionId, SessionUpdate,
    Timestamp,
};
use serde_json::Value;

use super::fake_registry::Update;
use super::shared_registry::SharedRegistry;
use super::{DeterministicSource, LINE_BYTES};
use crate::lines::{Line, Lines};
use crate::supr::surrogates::replace_lone_surrogates;
use crate::supr::wire::{Activity, ServerFrame, Typed};
use crate::supr::{ConnectionParams, SuprMachine};
use crate::{Input, Machine, Output, Ticket};

pub(super) struct Conversation<'a> {
    machine: SuprMachine,
    registry: SharedRegistry<'a>,
    params: ConnectionParams,
    now: Instant,
    /// The watches that the backend has not confirmed yet.
    pending: HashMap<Ticket, SessionId>,
    watched: HashMap<SessionId, Watched>,
    runs: HashMap<String, Run>,
    event_ids: HashSet<String>,
    /// The deltas of open messages, joined, by message id.
    deltas: HashMap<String, String>,
    /// The number of frames that the client sent, except pings, and of their outcomes.
    frames: usize,
    errors: usize,
    refused: usize,
    /// The ids of the pings that are not answered yet.
    pings: VecDeque<Option<String>>,
    received: Vec<Vec<u8>>,
}

/// The state of a watched session, from the events of the registry.
#[derive(Default)]
struct Watched {
    seen: Seq,
    head: Seq,
    last: Seq,
    /// The runs whose start was reported.
    started: HashSet<RunId>,
}

/// The activities of a run that the client has received.
#[derive(Default)]
struct Run {
    sequence: Option<u64>,
    has_ended: bool,
}

impl<'a> Conversation<'a> {
    pub(super) fn new(choices: &'a [u8]) -> Self {
        let mut registry = SharedRegistry::new(choices);
        let session = |name: &str| SessionId::parse(name).expect("a short text");
        let own = session("own");
        let choice = registry.choices.next();
        if choice & 1 == 1 {
            registry.create_with_events(&own);
        }
        let last = registry.log(&own).len();
        let event = registry.choices.index(last).map(|index| registry.log(&own)[index].id.to_string());
        let source = DeterministicSource::new(Timestamp(1));
        let params = ConnectionParams {
            frames: Arc::default(),
            session: own,
            after: match choice >> 1 & 3 {
                0 | 1 => None,
                2 => Some(event),
                _ => Some(Some("unknown".to_owned())),
            },
            watch: if choice & 8 == 8 { vec![session("other"), session("own")] } else { Vec::new() },
            streams: choice & 16 == 16,
            may_send: choice & 96 != 96,
            traceparent: None,
            agents: Arc::new([("a".to_owned(), "A".to_owned()), ("nobody".to_owned(), String::new())]),
            folder: "/".into(),
            clock: Arc::clone(&source) as _,
            ids: source,
        };
        Self {
            machine: SuprMachine::new(params.clone()),
            registry,
            params,
            // The machine measures durations only.
            now: Instant::now(),
            pending: HashMap::new(),
            watched: HashMap::new(),
            runs: HashMap::new(),
            event_ids: HashSet::new(),
            deltas: HashMap::new(),
            frames: 0,
            errors: 0,
            refused: 0,
            pings: VecDeque::new(),
            received: Vec::new(),
        }
    }

    pub(super) fn play<C: AsRef<[u8]>>(mut self, chunks: &[C]) -> Vec<Vec<u8>> {
        let first = self.drain();
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
        while let Some(update) = self.registry.serve_next() {
            self.on_backend_update(update);
        }
        assert!(
            !self.machine.has_work_in_progress(),
            "the backend has nothing to do, but the machine has work in progress"
        );
        assert!(self.pings.is_empty(), "no pong for {:?}", self.pings);
        let outcomes = self.errors + self.refused + self.registry.inputs + self.registry.stops;
        assert!(outcomes <= self.frames, "{outcomes} outcomes of {} frames", self.frames);
        assert!(
            outcomes == self.frames || !self.params.may_send,
            "{outcomes} outcomes of {} frames",
            self.frames
        );
        self.received
    }

    fn on_line(&mut self, line: Line<'_>) {
        while !self.machine.wants_frame() {
            let update = self.registry.serve_next();
            self.on_backend_update(update.expect("a machine that takes no frame waits for the backend"));
        }
        let (ping, input) = match line {
            Line::Whole(frame) => (ping(frame), Input::Frame(frame)),
            Line::Oversize => (None, Input::Oversize { limit: LINE_BYTES }),
        };
        match ping {
            Some(id) => self.pings.push_back(id),
            None => self.frames += 1,
        }
        self.machine.handle(self.now, input);
        let frames = self.drain();
        assert!(frames.len() <= 1, "{frames:?}");
        frames.iter().for_each(|frame| self.on_direct_answer(frame));
        for _ in 0..self.registry.choices.burst() {
            if let Some(update) = self.registry.act() {
                self.on_backend_update(update);
            }
        }
    }

    /// Checks a pong or an error. Pongs come in the order of the pings.
    fn on_direct_answer(&mut self, frame: &ServerFrame) {
        match frame {
            ServerFrame::Typed(pong) if pong.kind == "pong" => {
                assert_eq!(self.pings.pop_front().as_ref(), Some(&pong.id), "{pong:?}");
                assert!(pong.payload.is_empty(), "{pong:?}");
            }
            ServerFrame::Typed(_) | ServerFrame::Activity(_) => self.on_error(frame),
        }
    }

    fn on_error(&mut self, frame: &ServerFrame) {
        let ServerFrame::Typed(Typed { kind, id: None, session_id: None, payload, .. }) = frame else {
            panic!("{frame:?} answers no frame")
        };
        // An error about a message with a key names the key.
        let known = 2 + usize::from(payload.get("key").is_some_and(|key| key.is_string()));
        assert!(kind == "error" && payload.len() == known, "{frame:?}");
        assert!(payload["code"].is_string() && payload["message"].is_string(), "{frame:?}");
        self.errors += 1;
    }

    fn on_backend_update(&mut self, update: Update) {
        match update {
            Update::Answer(ticket, answer) => {
                if let Some(session) = self.pending.remove(&ticket) {
                    let Ok(RegistryReply::Watching { seen, head }) = &answer else { panic!("{answer:?}") };
                    self.watched.insert(session, Watched { seen: *seen, head: *head, ..Watched::default() });
                }
                self.machine.handle(self.now, Input::Answer(ticket, answer));
                for frame in self.drain() {
                    match &frame {
                        ServerFrame::Activity(activity) => self.on_refusal(activity),
                        ServerFrame::Typed(typed) if typed.kind == "media.create" => self.on_media(typed),
                        ServerFrame::Typed(_) => self.on_direct_answer(&frame),
                    }
                }
            }
            Update::Event(event) => {
                self.machine.handle(self.now, Input::Event(&event));
                let frames = self.drain();
                assert!(frames.len() <= 1, "{frames:?}");
                self.on_event(&event, frames.into_iter().next());
            }
        }
    }

    /// Checks an activity of a refused run: an error and then the end, no others.
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

    /// Checks the frame that an event became; `None` if it became none.
    fn on_event(&mut self, RegistryEvent { session, update }: &RegistryEvent, frame: Option<ServerFrame>) {
        let watched = self.watched.get_mut(session).expect("no event comes before the watch is confirmed");
        let entry = match update {
            SessionUpdate::Entry(entry) => entry,
            SessionUpdate::Delta { text, .. } => {
                let is_expected = self.params.streams && watched.last >= watched.seen;
                return match frame {
                    Some(ServerFrame::Typed(typed)) if is_expected => self.on_delta(&typed, text),
                    None if !is_expected => {}
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
            return assert!(frame.is_none() || (is_typed && self.params.streams), "{frame:?}");
        };
        if let RunEvent::Started { parent, .. } = event
            && (parent.is_none() || self.params.streams)
        {
            watched.started.insert(run.clone());
        }
        let is_child = !watched.started.contains(run);
        let replay = entry.seq <= watched.head;
        let is_expected = entry.seq > watched.seen && !is_child;
        match frame {
            Some(ServerFrame::Activity(activity)) if is_expected => {
                assert_eq!(activity.event_id, entry.id.as_str());
                assert_eq!((activity.run_id.as_str(), activity.sequence), (run.as_str(), *sequence));
                assert_eq!((activity.session_id.as_str(), activity.replay), (session.as_str(), replay));
                let is_last = matches!(activity.event_type.as_str(), "run.completed" | "run.failed");
                assert_eq!(is_last, matches!(event, RunEvent::Ended { .. }), "{activity:?}");
                self.check(&activity);
                if let RunEvent::Message(MessageEvent::Completed { message, text, .. }) = event {
                    let deltas = self.deltas.remove(message.as_str()).unwrap_or_else(|| text.clone());
                    assert_eq!(deltas, *text, "the joined deltas equal the text");
                }
            }
            None if !is_expected => {}
            frame => panic!("{entry:?} became {frame:?}"),
        }
    }

    fn on_delta(&mut self, typed: &Typed, text: &str) {
        assert!(typed.kind == "message.delta" && typed.payload["text"] == text, "{typed:?}");
        let run = typed.payload["run_id"].as_str().expect("a text is of a run");
        assert!(self.runs.get(run).is_none_or(|run| !run.has_ended), "{typed:?} after the end");
        let message = typed.payload["message_id"].as_str().expect("a text is of a message").to_owned();
        self.deltas.entry(message).or_default().push_str(text);
    }

    /// Checks what holds for every activity.
    fn check(&mut self, activity: &Activity) {
        assert!(self.event_ids.insert(activity.event_id.clone()), "{activity:?} was sent before");
        assert_eq!(activity.data.get("agent_id"), activity.agent_id.clone().map(Value::from).as_ref());
        assert!(activity.agent_id.is_some() && activity.v == "1.0", "{activity:?}");
        assert_eq!(activity.idempotency_key, format!("{}_{}", activity.run_id, activity.sequence));
        assert!(activity.parent_run_id.is_none() || self.params.streams, "{activity:?}");
        let run = self.runs.entry(activity.run_id.clone()).or_default();
        assert!(!run.has_ended, "{activity:?} comes after the last event of its run");
        assert!(run.sequence.is_none_or(|last| activity.sequence == last + 1), "{activity:?} leaves a gap");
        run.sequence = Some(activity.sequence);
        run.has_ended = matches!(activity.event_type.as_str(), "run.completed" | "run.failed");
    }

    /// Drains the machine: submits its requests, and returns its frames.
    fn drain(&mut self) -> Vec<ServerFrame> {
        let mut frames = Vec::new();
        while let Some(output) = self.machine.poll() {
            match output {
                Output::Send(frame) => frames.push(self.receive(frame)),
                Output::SendShared(frame) => frames.push(self.receive(frame.into())),
                Output::Request(ticket, request) => {
                    if let parlor_vocab::RegistryRequest::Watch { session, .. } = &request {
                        assert!(
                            self.pending.insert(ticket, session.clone()).is_none(),
                            "{ticket:?} is used twice"
                        );
                    }
                    self.registry.submit(ticket, request);
                }
                Output::WakeAt(_) => panic!("this door sets no timer"),
                Output::Close => panic!("no frame of a client closes the connection"),
            }
        }
        frames
    }

    fn receive(&mut self, frame: Vec<u8>) -> ServerFrame {
        let value: Value = serde_json::from_slice(&frame).expect("a frame is JSON");
        assert!(value.get("type").is_some() != value.get("event_type").is_some(), "{value}");
        self.received.push(frame);
        serde_json::from_value(value).expect("a frame is one of the server's")
    }
}

/// The id of a ping; `None` if the frame is not a ping.
fn ping(frame: &[u8]) -> Option<Option<String>> {
    let frame: Typed = serde_json::from_slice(&without_nulls(frame)?).ok()?;
    (frame.kind == "ping").then(|| frame.id.filter(|id| !id.is_empty()))
}

/// The frame without its null members. The door treats null as missing.
fn without_nulls(frame: &[u8]) -> Option<Vec<u8>> {
    let value =
        serde_json::from_slice(frame).or_else(|_| serde_json::from_slice(&replace_lone_surrogates(frame)));
    let Value::Object(mut members) = value.ok()? else { return None };
    members.retain(|_, value| !value.is_null());
    serde_json::to_vec(&members).ok()
}
