//! One connection: a session of its own, and those it watches.

use std::collections::{HashMap, VecDeque};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;

use parlor_vocab::{
    AgentChoice, Clock, Entry, ErrorScope, EventId, Failure, FileError, IdSource, Media, MessageEvent,
    NamedFile, NewSession, RegistryEvent, RegistryReply, RegistryRequest, RunEnding, RunEvent, RunId, Seq,
    SessionCommand, SessionEvent, SessionId, SessionRefusal, SessionUpdate, StreamKind, Timestamp, UserInput,
    WatchFrom, WhenBusy,
};
use serde_json::{Map, Value, json};

use super::activity::ActivityEvent;
use super::code::{self, FrameError};
use super::decode::{self, Request, StopRequest};
use super::frame::{self, object};
use super::media::{self, Content, Item, Label, MAX_MEDIA_BYTES, Upload};
use super::replay::aside;
use super::run::Run;
use super::{FILES_WAIT, MAX_FRAME_BYTES, MAX_SENT_MEDIA_BYTES, MAX_WAITING_BYTES, MAX_WAITING_FRAMES};
use crate::{Input, InputOf, Machine, Output, Ticket};

/// What a connection begins with.
#[derive(Clone)]
pub struct ConnectionParams {
    /// Its session, which need not exist.
    pub session: SessionId,
    /// The last event that the client has seen, if it wants to hear what came after; `Some(None)` if it has
    /// seen none.
    pub after: Option<Option<String>>,
    /// Other sessions that it wants to hear of.
    pub watch: Vec<SessionId>,
    /// Whether it wants texts as they are written, and what subagents do.
    pub streams: bool,
    /// Whether it may send; if not, what it says is dropped in silence.
    pub may_send: bool,
    /// The trace that it belongs to.
    pub traceparent: Option<String>,
    /// The agents there are, the default first: their ids and names.
    pub agents: Arc<[(String, String)]>,
    /// The working folder of new sessions.
    pub folder: PathBuf,
    /// The time of day.
    pub clock: Arc<dyn Clock>,
    /// New ids.
    pub ids: Arc<dyn IdSource>,
}

/// The server's side of a connection.
pub struct SuprMachine {
    params: ConnectionParams,
    /// What is known of each session that is heard of.
    sessions: HashMap<SessionId, Watched>,
    /// The frame that is being carried out.
    pending: Option<(Ticket, Pending)>,
    /// The frames that came after it, with their sizes.
    waiting: VecDeque<(Result<Request, FrameError>, usize)>,
    waiting_bytes: usize,
    /// Stops that went past the files they would have waited for.
    stopping: HashMap<Ticket, StopRequest>,
    /// Watches whose beginning is not known yet.
    beginning: HashMap<Ticket, SessionId>,
    /// Files that are being read for the client.
    reading: HashMap<Ticket, (SessionId, Vec<Media>)>,
    next_ticket: u64,
    outbox: VecDeque<Output<RegistryRequest>>,
}

/// A session that is heard of.
#[derive(Debug, Default)]
struct Watched {
    /// What the client has seen before.
    seen: Seq,
    /// What happened before the connection began.
    head: Seq,
    /// What was heard of last.
    heard: Seq,
    /// The runs under way.
    runs: HashMap<RunId, Run>,
}

/// What a frame waits for.
enum Pending {
    /// An input is being accepted.
    Send {
        session: SessionId,
        input: Box<UserInput>,
    },
    /// Its session is being created.
    Create {
        session: SessionId,
        input: Box<UserInput>,
    },
    /// A file is being downloaded, then kept.
    Fetch(Box<Receiving>, Label),
    Store(Box<Receiving>, Label),
    /// A run is being stopped.
    Stop,
}

/// Files on their way.
struct Receiving {
    begun: Instant,
    session: SessionId,
    choice: AgentChoice,
    key: Option<String>,
    caption: Option<String>,
    /// What is left, the last first.
    left: Vec<Item>,
    labels: Vec<Label>,
    stored: Vec<Media>,
}

impl SuprMachine {
    /// A connection of which the client has heard nothing yet.
    pub fn new(params: ConnectionParams) -> Self {
        let mut machine = Self {
            sessions: HashMap::new(),
            pending: None,
            waiting: VecDeque::new(),
            waiting_bytes: 0,
            stopping: HashMap::new(),
            beginning: HashMap::new(),
            reading: HashMap::new(),
            next_ticket: 0,
            outbox: VecDeque::new(),
            params,
        };
        machine.tell_agents();
        let after = match &machine.params.after {
            None => WatchFrom::Now,
            // A name that no event can have was seen by nobody: all is told, and the client knows doubles.
            Some(event) => event
                .as_deref()
                .and_then(decode::event_id)
                .map_or(WatchFrom::At(Seq::START), WatchFrom::Event),
        };
        machine.watch(machine.params.session.clone(), after);
        for session in machine.params.watch.clone() {
            if !machine.sessions.contains_key(&session) {
                machine.watch(session, WatchFrom::Now);
            }
        }
        machine
    }

    fn tell_agents(&mut self) {
        let agents: Vec<Value> =
            self.params.agents.iter().map(|(id, name)| json!({"id": id, "name": name})).collect();
        let default = self.params.agents.first().map_or("", |(id, _)| id);
        let payload = object(json!({"agents": agents, "default": default}));
        self.typed("agent.list", None, None, payload);
    }

    fn watch(&mut self, session: SessionId, after: WatchFrom) {
        self.sessions.insert(session.clone(), Watched::default());
        let ticket = self.ask(RegistryRequest::Watch { session: session.clone(), after });
        self.beginning.insert(ticket, session);
    }
}

impl Machine for SuprMachine {
    type Request = RegistryRequest;
    type Reply = RegistryReply;
    type Event = RegistryEvent;
    type Error = SessionRefusal;

    fn handle(&mut self, now: Instant, input: InputOf<'_, Self>) {
        match input {
            Input::Frame(bytes) => self.on_frame(now, bytes),
            Input::Oversize { .. } => self.fail(code::unparsable()),
            Input::Answer(ticket, answer) => self.on_answer(now, ticket, answer),
            Input::Event(event) => self.on_event(event),
            Input::Deadline => {}
        }
    }

    fn poll(&mut self) -> Option<Output<RegistryRequest>> {
        self.outbox.pop_front()
    }

    fn wants_frame(&self) -> bool {
        self.waiting.len() < MAX_WAITING_FRAMES && self.waiting_bytes < MAX_WAITING_BYTES
    }

    fn is_at_work(&self) -> bool {
        self.pending.is_some() || !self.stopping.is_empty()
    }

    fn max_line_bytes(&self) -> usize {
        MAX_FRAME_BYTES
    }
}

impl SuprMachine {
    fn on_frame(&mut self, now: Instant, bytes: &[u8]) {
        match decode::request(bytes, &self.params.agents) {
            Ok(Request::Ping { id }) => self.typed("pong", id, None, Map::new()),
            Ok(Request::Stop(halt)) if self.may_stop_at_once() => {
                let ticket = self.ask_to_stop(halt.clone());
                self.stopping.insert(ticket, halt);
            }
            // What is wrong with a frame is told in its turn: an error names no frame but by its place.
            request if self.pending.is_some() => {
                self.waiting_bytes += bytes.len();
                self.waiting.push_back((request, bytes.len()));
            }
            request => self.begin(now, request),
        }
    }

    /// Whoever wants something to end does not want to wait until files have come that may take a minute.
    fn may_stop_at_once(&self) -> bool {
        matches!(self.pending, Some((_, Pending::Fetch(..) | Pending::Store(..))))
            && self.stopping.len() < MAX_WAITING_FRAMES
    }

    fn ask_to_stop(&mut self, StopRequest { session, run, reason }: StopRequest) -> Ticket {
        let session = session.unwrap_or_else(|| self.params.session.clone());
        self.ask(RegistryRequest::Session(session, SessionCommand::Stop { run, reason }))
    }

    fn on_stopped(&mut self, now: Instant, halt: StopRequest, answer: Result<RegistryReply, SessionRefusal>) {
        let is_idle = matches!(answer, Err(SessionRefusal::NoActiveRun | SessionRefusal::UnknownSession(_)));
        if is_idle && self.pending.is_some() {
            // It means the run that is still to begin.
            self.waiting.push_front((Ok(Request::Stop(halt)), 0));
        } else {
            self.go_on(now, Pending::Stop, answer);
        }
    }

    fn begin(&mut self, now: Instant, request: Result<Request, FrameError>) {
        let request = match request {
            Ok(request) => request,
            Err(flaw) => return self.fail(flaw),
        };
        let own = self.params.session.clone();
        match request {
            Request::Ping { id } => self.typed("pong", id, None, Map::new()),
            Request::Stop(halt) => {
                let ticket = self.ask_to_stop(halt);
                self.pending = Some((ticket, Pending::Stop));
            }
            // Whoever may not send is not told so: that is how clients know it.
            Request::Send { .. } | Request::Media { .. } if !self.params.may_send => {}
            Request::Send { session, content, choice, key } => {
                let words = UserInput { text: content, choice, key, ..UserInput::default() };
                self.send(session.unwrap_or(own), words);
            }
            Request::Media { session, upload: Upload { caption, items }, choice, key } => {
                let session = session.unwrap_or(own);
                let (labels, stored) = (Vec::new(), Vec::new());
                let (begun, left) = (now, items);
                let receiving = Receiving { begun, session, choice, key, caption, left, labels, stored };
                self.receive(now, Box::new(receiving));
            }
        }
    }

    fn send(&mut self, session: SessionId, mut input: UserInput) {
        input.traceparent.clone_from(&self.params.traceparent);
        self.submit(session, Box::new(input));
    }

    fn submit(&mut self, session: SessionId, input: Box<UserInput>) {
        let command = SessionCommand::Send { input: (*input).clone(), when_busy: WhenBusy::Enqueue };
        let ticket = self.ask(RegistryRequest::Session(session.clone(), command));
        self.pending = Some((ticket, Pending::Send { session, input }));
    }

    /// Goes on to receive files: one after another, so that one frame holds no more than one in memory.
    fn receive(&mut self, now: Instant, mut receiving: Box<Receiving>) {
        let Some(Item { content, label }) = receiving.left.pop() else {
            let text = media::text(receiving.caption.as_deref(), &receiving.labels);
            let Receiving { session, choice, key, stored, .. } = *receiving;
            return self
                .send(session, UserInput { text, media: stored, choice, key, ..UserInput::default() });
        };
        match content {
            Content::Url(_) if now.duration_since(receiving.begun) >= FILES_WAIT => {
                self.fail(code::not_downloaded().about(receiving.key.as_ref()));
            }
            Content::Url(url) => {
                let ticket = self.ask(RegistryRequest::Fetch { url, max_bytes: MAX_MEDIA_BYTES });
                self.pending = Some((ticket, Pending::Fetch(receiving, label)));
            }
            Content::Base64(text) => match media::decoded(&text) {
                Ok(bytes) => self.store(receiving, label, bytes),
                Err(flaw) => self.fail(flaw.about(receiving.key.as_ref())),
            },
        }
    }

    fn store(&mut self, receiving: Box<Receiving>, label: Label, bytes: Vec<u8>) {
        let file = NamedFile { name: label.name().to_owned(), bytes };
        let ticket = self.ask(RegistryRequest::StoreMedia(vec![file]));
        self.pending = Some((ticket, Pending::Store(receiving, label)));
    }

    fn on_answer(&mut self, now: Instant, ticket: Ticket, answer: Result<RegistryReply, SessionRefusal>) {
        if let Some(halt) = self.stopping.remove(&ticket) {
            return self.on_stopped(now, halt, answer);
        }
        if let Some(session) = self.beginning.remove(&ticket) {
            return self.on_watching(&session, answer);
        }
        if let Some((session, media)) = self.reading.remove(&ticket) {
            return self.on_contents(&session, media, answer);
        }
        if let Some((_, pending)) = self.pending.take_if(|(waiting, _)| *waiting == ticket) {
            self.go_on(now, pending, answer);
            while self.pending.is_none()
                && let Some((request, bytes)) = self.waiting.pop_front()
            {
                self.waiting_bytes -= bytes;
                self.begin(now, request);
            }
        }
    }

    fn on_watching(&mut self, session: &SessionId, answer: Result<RegistryReply, SessionRefusal>) {
        match (answer, self.sessions.get_mut(session)) {
            (Ok(RegistryReply::Watching { seen, head }), Some(watched)) => {
                watched.seen = seen;
                watched.head = head;
            }
            // Nobody would ever hear anything here; who comes back may.
            (Ok(_) | Err(_), _) => self.outbox.push_back(Output::Close),
        }
    }

    fn on_contents(
        &mut self,
        session: &SessionId,
        media: Vec<Media>,
        answer: Result<RegistryReply, SessionRefusal>,
    ) {
        let Ok(RegistryReply::Contents(contents)) = answer else { return };
        for (media, content) in media.iter().zip(contents) {
            if let Some(content) = content {
                let payload = media::sent(media, &content);
                self.typed("media.create", None, Some(session.to_string()), payload);
            }
        }
    }

    /// Goes on with a frame, now that the house has answered.
    fn go_on(&mut self, now: Instant, pending: Pending, answer: Result<RegistryReply, SessionRefusal>) {
        match (pending, answer) {
            // It has become a run, or will; its events say the rest.
            (Pending::Send { .. } | Pending::Stop, Ok(_)) => {}
            (Pending::Send { session, input }, Err(SessionRefusal::UnknownSession(_))) => {
                let new_session = Box::new(self.new_session());
                let ticket = self.ask(RegistryRequest::Create { id: Some(session.clone()), new_session });
                self.pending = Some((ticket, Pending::Create { session, input }));
            }
            // Somebody else may have created it in between.
            (Pending::Create { session, input }, Ok(_) | Err(SessionRefusal::SessionExists(_))) => {
                self.submit(session, input);
            }
            (Pending::Send { session, input } | Pending::Create { session, input }, Err(refusal)) => {
                self.refuse(&session, &input, &refusal);
            }
            (Pending::Stop, Err(refusal)) => self.fail(code::of_refused_stop(&refusal)),
            (Pending::Fetch(receiving, label), Ok(RegistryReply::Files(mut files))) => match files.pop() {
                Some(Ok(file)) => self.store(receiving, label, file.bytes),
                Some(Err(FileError::TooLarge { .. })) => {
                    self.fail(code::too_large().about(receiving.key.as_ref()))
                }
                Some(Err(
                    FileError::Missing
                    | FileError::NotRegular
                    | FileError::Inaccessible
                    | FileError::Unreadable
                    | FileError::Empty,
                ))
                | None => {
                    self.fail(code::not_downloaded().about(receiving.key.as_ref()));
                }
            },
            (Pending::Fetch(receiving, _), _) => {
                self.fail(code::not_downloaded().about(receiving.key.as_ref()));
            }
            (Pending::Store(mut receiving, label), Ok(RegistryReply::Stored(stored))) => {
                receiving.stored.extend(stored);
                receiving.labels.push(label);
                self.receive(now, receiving);
            }
            (Pending::Store(receiving, _), Err(refusal)) => {
                self.fail(code::not_stored(&refusal.to_string()).about(receiving.key.as_ref()));
            }
            (Pending::Store(receiving, _), Ok(_)) => {
                self.fail(code::not_stored("it was not kept").about(receiving.key.as_ref()));
            }
        }
    }

    fn new_session(&self) -> NewSession {
        NewSession {
            title: None,
            door: "supr".to_owned(),
            folder: self.params.folder.clone(),
            choice: AgentChoice::default(),
            system: None,
            forked_from: None,
        }
    }

    /// Tells of an input that became no run, in the form of one that failed: who waits for an end gets it.
    fn refuse(&mut self, session: &SessionId, input: &UserInput, refusal: &SessionRefusal) {
        let (code, retryable) = code::of_refused_input(refusal);
        let failure = Failure { code: code.into(), message: refusal.to_string(), retryable };
        let asked = input.choice.agent.as_ref().map(ToString::to_string);
        let default = self.params.agents.first().map(|(id, _)| id.clone()).unwrap_or_default();
        let run = Run::refused(asked.is_some(), asked.unwrap_or(default), input.key.clone());
        let id = RunId::generate(self.params.ids.next());
        let events = [
            RunEvent::ErrorRaised { scope: ErrorScope::Run, failure: failure.clone() },
            RunEvent::Ended { ending: RunEnding::Failed(failure), duration_ms: 0 },
        ];
        for (event, sequence) in events.into_iter().zip(1..) {
            let (run_id, seq) = (id.clone(), Seq::START);
            let event = SessionEvent::Run { run: run_id, sequence, event };
            let id_of_event = EventId::generate(self.params.ids.next());
            let entry = Entry { seq, id: id_of_event, at: self.now(), event };
            self.tell(session, &id, &run, &entry, false);
        }
    }

    fn on_event(&mut self, RegistryEvent { session, seen }: &RegistryEvent) {
        match seen {
            SessionUpdate::Entry(entry) => self.on_entry(session, entry),
            SessionUpdate::Delta { run, subject, text } if self.params.streams => {
                self.on_delta(session, run, subject, text)
            }
            SessionUpdate::Delta { .. } => {}
        }
    }

    fn on_entry(&mut self, session: &SessionId, entry: &Entry) {
        let Some(watched) = self.sessions.get_mut(session) else { return };
        if entry.seq <= watched.heard || (entry.seq == Seq(1) && watched.seen > Seq::START) {
            // What was there before under this name is gone, and so are its places.
            *watched = Watched::default();
        }
        watched.heard = entry.seq;
        let SessionEvent::Run { run: run_id, event, .. } = &entry.event else {
            if let Some((kind, payload)) = aside(&entry.event) {
                self.tell_more(session, entry.seq, kind, payload);
            }
            return;
        };
        if let Some(run) = Run::begun_by(event) {
            watched.runs.insert(run_id.clone(), run);
        }
        let (is_new, replay) = (entry.seq > watched.seen, entry.seq <= watched.head);
        // Taken out, so that it can be looked at while frames are made of it.
        let Some(mut run) = watched.runs.remove(run_id) else { return };
        run.note(event);
        if is_new && (run.parent.is_none() || self.params.streams) {
            self.tell(session, run_id, &run, entry, replay);
        }
        if matches!(event, RunEvent::Ended { .. }) {
            return;
        }
        if let Some(watched) = self.sessions.get_mut(session) {
            watched.runs.insert(run_id.clone(), run);
        }
    }

    /// Tells of an event, and sends the files that belong to it.
    fn tell(&mut self, session: &SessionId, id: &RunId, run: &Run, entry: &Entry, replay: bool) {
        let SessionEvent::Run { sequence, event, .. } = &entry.event else { return };
        let sequence = *sequence;
        let happening = ActivityEvent { session: session.as_str(), id, run, sequence, event, entry, replay };
        self.outbox.push_back(Output::Send(frame::bytes(&happening.activity())));
        if let RunEvent::Message(MessageEvent::Completed { media, .. }) = event
            && !media.is_empty()
        {
            let ids = media.iter().map(|media| media.id.clone()).collect();
            let ticket = self.ask(RegistryRequest::ReadMedia { ids, max_bytes: MAX_SENT_MEDIA_BYTES });
            self.reading.insert(ticket, (session.clone(), media.clone()));
        }
    }

    /// Tells a client that wants to know more what other clients do without.
    fn tell_more(&mut self, session: &SessionId, seq: Seq, kind: &str, payload: Map<String, Value>) {
        let is_new = self.sessions.get(session).is_some_and(|watched| seq > watched.seen);
        if is_new && self.params.streams {
            self.typed(kind, None, Some(session.to_string()), payload);
        }
    }

    fn on_delta(&mut self, session: &SessionId, run: &RunId, subject: &StreamKind, text: &str) {
        // A piece of what was seen as a whole.
        if self.sessions.get(session).is_none_or(|watched| watched.heard < watched.seen) {
            return;
        }
        let (kind, payload) = match subject {
            StreamKind::Message(id) => ("message.delta", json!({"message_id": id.as_str()})),
            StreamKind::Thought(id) => ("reasoning.delta", json!({"step_id": id.as_str()})),
            StreamKind::Tool(id) => ("tool.output", json!({"tool_call_id": id.as_str()})),
            StreamKind::Input { call, tool } => {
                ("tool.input", json!({"tool_call_id": call.as_str(), "tool_name": tool}))
            }
        };
        let mut payload = object(payload);
        payload.insert("run_id".to_owned(), Value::from(run.as_str()));
        payload.insert("text".to_owned(), Value::from(text));
        self.typed(kind, None, Some(session.to_string()), payload);
    }

    fn fail(&mut self, flaw: FrameError) {
        let frame = frame::error(flaw, self.now());
        self.outbox.push_back(Output::Send(frame));
    }

    fn typed(
        &mut self,
        kind: &str,
        id: Option<String>,
        session: Option<String>,
        payload: Map<String, Value>,
    ) {
        let frame = frame::typed(kind, id, session, payload, self.now());
        self.outbox.push_back(Output::Send(frame));
    }

    fn ask(&mut self, command: RegistryRequest) -> Ticket {
        self.next_ticket += 1;
        let ticket = Ticket(self.next_ticket);
        self.outbox.push_back(Output::Request(ticket, command));
        ticket
    }

    fn now(&self) -> Timestamp {
        self.params.clock.now()
    }
}

#[cfg(test)]
mod tests;
