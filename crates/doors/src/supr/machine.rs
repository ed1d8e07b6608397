//! One connection: a session of its own, and those it watches.

use std::collections::{HashMap, VecDeque};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;

use parlor_vocab::{
    Birth, Choice, Clock, Entry, EventId, Failure, File, FileFlaw, HouseCommand, HouseEvent, HouseReply,
    IdSource, Input as Words, Media, Place, Refusal, RunEnding, RunEvent, RunId, Scope, Seen, Seq,
    SessionCommand, SessionEvent, SessionId, Subject, Timestamp, WhenBusy,
};
use serde_json::{Map, Value, json};

use super::activity::Happening;
use super::code::{self, Flaw};
use super::decode::{self, Halt, Request};
use super::frame::{self, object};
use super::media::{self, Content, Item, Label, MAX_MEDIA_BYTES, Upload};
use super::replay::aside;
use super::run::Run;
use super::{FILES_WAIT, MAX_FRAME_BYTES, MAX_SENT_MEDIA_BYTES, MAX_WAITING_BYTES, MAX_WAITING_FRAMES};
use crate::{Input, Machine, Output, Ticket};

/// What a connection begins with.
#[derive(Clone)]
pub struct Visit {
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
    visit: Visit,
    /// What is known of each session that is heard of.
    sessions: HashMap<SessionId, Watched>,
    /// The frame that is being carried out.
    pending: Option<(Ticket, Pending)>,
    /// The frames that came after it, with their sizes.
    waiting: VecDeque<(Result<Request, Flaw>, usize)>,
    waiting_bytes: usize,
    /// Stops that went past the files they would have waited for.
    stopping: HashMap<Ticket, Halt>,
    /// Watches whose beginning is not known yet.
    beginning: HashMap<Ticket, SessionId>,
    /// Files that are being read for the client.
    reading: HashMap<Ticket, (SessionId, Vec<Media>)>,
    next_ticket: u64,
    outbox: VecDeque<Output<HouseCommand>>,
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
        input: Box<Words>,
    },
    /// Its session is being created.
    Create {
        session: SessionId,
        input: Box<Words>,
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
    choice: Choice,
    key: Option<String>,
    caption: Option<String>,
    /// What is left, the last first.
    left: Vec<Item>,
    labels: Vec<Label>,
    stored: Vec<Media>,
}

impl SuprMachine {
    /// A connection of which the client has heard nothing yet.
    pub fn new(visit: Visit) -> Self {
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
            visit,
        };
        machine.tell_agents();
        let after = match &machine.visit.after {
            None => Place::Now,
            // A name that no event can have was seen by nobody: all is told, and the client knows doubles.
            Some(event) => {
                event.as_deref().and_then(decode::event_id).map_or(Place::At(Seq::START), Place::Event)
            }
        };
        machine.watch(machine.visit.session.clone(), after);
        for session in machine.visit.watch.clone() {
            if !machine.sessions.contains_key(&session) {
                machine.watch(session, Place::Now);
            }
        }
        machine
    }

    fn tell_agents(&mut self) {
        let agents: Vec<Value> =
            self.visit.agents.iter().map(|(id, name)| json!({"id": id, "name": name})).collect();
        let default = self.visit.agents.first().map_or("", |(id, _)| id);
        let payload = object(json!({"agents": agents, "default": default}));
        self.typed("agent.list", None, None, payload);
    }

    fn watch(&mut self, session: SessionId, after: Place) {
        self.sessions.insert(session.clone(), Watched::default());
        let ticket = self.ask(HouseCommand::Watch { session: session.clone(), after });
        self.beginning.insert(ticket, session);
    }
}

impl Machine for SuprMachine {
    type Ask = HouseCommand;
    type Reply = HouseReply;
    type Event = HouseEvent;

    fn handle(&mut self, now: Instant, input: Input<'_, HouseReply, HouseEvent>) {
        match input {
            Input::Frame(bytes) => self.on_frame(now, bytes),
            Input::Oversize { .. } => self.fail(code::unparsable()),
            Input::Answer(ticket, answer) => self.on_answer(now, ticket, answer),
            Input::Event(event) => self.on_event(event),
            Input::Deadline => {}
        }
    }

    fn poll(&mut self) -> Option<Output<HouseCommand>> {
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
        match decode::request(bytes, &self.visit.agents) {
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

    fn ask_to_stop(&mut self, Halt { session, run, reason }: Halt) -> Ticket {
        let session = session.unwrap_or_else(|| self.visit.session.clone());
        self.ask(HouseCommand::Session(session, SessionCommand::Stop { run, reason }))
    }

    fn on_stopped(&mut self, now: Instant, halt: Halt, answer: Result<HouseReply, Refusal>) {
        let is_idle = matches!(answer, Err(Refusal::NoActiveRun | Refusal::UnknownSession(_)));
        if is_idle && self.pending.is_some() {
            // It means the run that is still to begin.
            self.waiting.push_front((Ok(Request::Stop(halt)), 0));
        } else {
            self.go_on(now, Pending::Stop, answer);
        }
    }

    fn begin(&mut self, now: Instant, request: Result<Request, Flaw>) {
        let request = match request {
            Ok(request) => request,
            Err(flaw) => return self.fail(flaw),
        };
        let own = self.visit.session.clone();
        match request {
            Request::Ping { id } => self.typed("pong", id, None, Map::new()),
            Request::Stop(halt) => {
                let ticket = self.ask_to_stop(halt);
                self.pending = Some((ticket, Pending::Stop));
            }
            // Whoever may not send is not told so: that is how clients know it.
            Request::Send { .. } | Request::Media { .. } if !self.visit.may_send => {}
            Request::Send { session, content, choice, key } => {
                let words = Words { text: content, choice, key, ..Words::default() };
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

    fn send(&mut self, session: SessionId, mut input: Words) {
        input.traceparent.clone_from(&self.visit.traceparent);
        self.submit(session, Box::new(input));
    }

    fn submit(&mut self, session: SessionId, input: Box<Words>) {
        let command = SessionCommand::Send { input: (*input).clone(), when_busy: WhenBusy::Enqueue };
        let ticket = self.ask(HouseCommand::Session(session.clone(), command));
        self.pending = Some((ticket, Pending::Send { session, input }));
    }

    /// Goes on to receive files: one after another, so that one frame holds no more than one in memory.
    fn receive(&mut self, now: Instant, mut receiving: Box<Receiving>) {
        let Some(Item { content, label }) = receiving.left.pop() else {
            let text = media::text(receiving.caption.as_deref(), &receiving.labels);
            let Receiving { session, choice, key, stored, .. } = *receiving;
            return self.send(session, Words { text, media: stored, choice, key, ..Words::default() });
        };
        match content {
            Content::Url(_) if now.duration_since(receiving.begun) >= FILES_WAIT => {
                self.fail(code::not_downloaded().about(receiving.key.as_ref()));
            }
            Content::Url(url) => {
                let ticket = self.ask(HouseCommand::Fetch { url, max_bytes: MAX_MEDIA_BYTES });
                self.pending = Some((ticket, Pending::Fetch(receiving, label)));
            }
            Content::Base64(text) => match media::decoded(&text) {
                Ok(bytes) => self.store(receiving, label, bytes),
                Err(flaw) => self.fail(flaw.about(receiving.key.as_ref())),
            },
        }
    }

    fn store(&mut self, receiving: Box<Receiving>, label: Label, bytes: Vec<u8>) {
        let file = File { name: label.name().to_owned(), bytes };
        let ticket = self.ask(HouseCommand::StoreMedia(vec![file]));
        self.pending = Some((ticket, Pending::Store(receiving, label)));
    }

    fn on_answer(&mut self, now: Instant, ticket: Ticket, answer: Result<HouseReply, Refusal>) {
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

    fn on_watching(&mut self, session: &SessionId, answer: Result<HouseReply, Refusal>) {
        match (answer, self.sessions.get_mut(session)) {
            (Ok(HouseReply::Watching { seen, head }), Some(watched)) => {
                watched.seen = seen;
                watched.head = head;
            }
            // Nobody would ever hear anything here; who comes back may.
            (Ok(_) | Err(_), _) => self.outbox.push_back(Output::Close),
        }
    }

    fn on_contents(&mut self, session: &SessionId, media: Vec<Media>, answer: Result<HouseReply, Refusal>) {
        let Ok(HouseReply::Contents(contents)) = answer else { return };
        for (media, content) in media.iter().zip(contents) {
            if let Some(content) = content {
                let payload = media::sent(media, &content);
                self.typed("media.create", None, Some(session.to_string()), payload);
            }
        }
    }

    /// Goes on with a frame, now that the house has answered.
    fn go_on(&mut self, now: Instant, pending: Pending, answer: Result<HouseReply, Refusal>) {
        match (pending, answer) {
            // It has become a run, or will; its events say the rest.
            (Pending::Send { .. } | Pending::Stop, Ok(_)) => {}
            (Pending::Send { session, input }, Err(Refusal::UnknownSession(_))) => {
                let birth = Box::new(self.birth());
                let ticket = self.ask(HouseCommand::Create { id: Some(session.clone()), birth });
                self.pending = Some((ticket, Pending::Create { session, input }));
            }
            // Somebody else may have created it in between.
            (Pending::Create { session, input }, Ok(_) | Err(Refusal::SessionExists(_))) => {
                self.submit(session, input);
            }
            (Pending::Send { session, input } | Pending::Create { session, input }, Err(refusal)) => {
                self.refuse(&session, &input, &refusal);
            }
            (Pending::Stop, Err(refusal)) => self.fail(code::of_refused_stop(&refusal)),
            (Pending::Fetch(receiving, label), Ok(HouseReply::Files(mut files))) => match files.pop() {
                Some(Ok(file)) => self.store(receiving, label, file.bytes),
                Some(Err(FileFlaw::TooLarge)) => self.fail(code::too_large().about(receiving.key.as_ref())),
                Some(Err(FileFlaw::Closed | FileFlaw::NotRegular | FileFlaw::Empty)) | None => {
                    self.fail(code::not_downloaded().about(receiving.key.as_ref()));
                }
            },
            (Pending::Fetch(receiving, _), _) => {
                self.fail(code::not_downloaded().about(receiving.key.as_ref()));
            }
            (Pending::Store(mut receiving, label), Ok(HouseReply::Stored(stored))) => {
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

    fn birth(&self) -> Birth {
        Birth {
            title: None,
            door: "supr".to_owned(),
            folder: self.visit.folder.clone(),
            choice: Choice::default(),
            system: None,
            forked_from: None,
        }
    }

    /// Tells of an input that became no run, in the form of one that failed: who waits for an end gets it.
    fn refuse(&mut self, session: &SessionId, input: &Words, refusal: &Refusal) {
        let (code, retryable) = code::of_refused_input(refusal);
        let failure = Failure { code: code.to_owned(), message: refusal.to_string(), retryable };
        let asked = input.choice.agent.as_ref().map(ToString::to_string);
        let default = self.visit.agents.first().map(|(id, _)| id.clone()).unwrap_or_default();
        let run = Run::refused(asked.is_some(), asked.unwrap_or(default), input.key.clone());
        let id = RunId::generate(self.visit.ids.next());
        let events = [
            RunEvent::ErrorRaised { scope: Scope::Run, failure: failure.clone() },
            RunEvent::Ended { ending: RunEnding::Failed(failure), duration_ms: 0 },
        ];
        for (event, sequence) in events.into_iter().zip(1..) {
            let (run_id, seq) = (id.clone(), Seq::START);
            let event = SessionEvent::Run { run: run_id, sequence, event };
            let id_of_event = EventId::generate(self.visit.ids.next());
            let entry = Entry { seq, id: id_of_event, at: self.now(), event };
            self.tell(session, &id, &run, &entry, false);
        }
    }

    fn on_event(&mut self, HouseEvent { session, seen }: &HouseEvent) {
        match seen {
            Seen::Entry(entry) => self.on_entry(session, entry),
            Seen::Delta { run, subject, text } if self.visit.streams => {
                self.on_delta(session, run, subject, text)
            }
            Seen::Delta { .. } => {}
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
        if is_new && (run.parent.is_none() || self.visit.streams) {
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
        let happening = Happening { session: session.as_str(), id, run, sequence, event, entry, replay };
        self.outbox.push_back(Output::Send(frame::bytes(&happening.activity())));
        if let RunEvent::MessageCompleted { media, .. } = event
            && !media.is_empty()
        {
            let ids = media.iter().map(|media| media.id.clone()).collect();
            let ticket = self.ask(HouseCommand::ReadMedia { ids, max_bytes: MAX_SENT_MEDIA_BYTES });
            self.reading.insert(ticket, (session.clone(), media.clone()));
        }
    }

    /// Tells a client that wants to know more what other clients do without.
    fn tell_more(&mut self, session: &SessionId, seq: Seq, kind: &str, payload: Map<String, Value>) {
        let is_new = self.sessions.get(session).is_some_and(|watched| seq > watched.seen);
        if is_new && self.visit.streams {
            self.typed(kind, None, Some(session.to_string()), payload);
        }
    }

    fn on_delta(&mut self, session: &SessionId, run: &RunId, subject: &Subject, text: &str) {
        // A piece of what was seen as a whole.
        if self.sessions.get(session).is_none_or(|watched| watched.heard < watched.seen) {
            return;
        }
        let (kind, payload) = match subject {
            Subject::Message(id) => ("message.delta", json!({"message_id": id.as_str()})),
            Subject::Thought(id) => ("reasoning.delta", json!({"step_id": id.as_str()})),
            Subject::Tool(id) => ("tool.output", json!({"tool_call_id": id.as_str()})),
            Subject::Input { call, tool } => {
                ("tool.input", json!({"tool_call_id": call.as_str(), "tool_name": tool}))
            }
        };
        let mut payload = object(payload);
        payload.insert("run_id".to_owned(), Value::from(run.as_str()));
        payload.insert("text".to_owned(), Value::from(text));
        self.typed(kind, None, Some(session.to_string()), payload);
    }

    fn fail(&mut self, flaw: Flaw) {
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

    fn ask(&mut self, command: HouseCommand) -> Ticket {
        self.next_ticket += 1;
        let ticket = Ticket(self.next_ticket);
        self.outbox.push_back(Output::Ask(ticket, command));
        ticket
    }

    fn now(&self) -> Timestamp {
        self.visit.clock.now()
    }
}

#[cfg(test)]
mod tests;
