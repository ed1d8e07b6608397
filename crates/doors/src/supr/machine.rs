//! The state machine of one connection: its own session, and the sessions that it watches.
//!
//! Here is what the machine sends unasked; `dispatch.rs` has what each request of the client does.

use std::collections::{HashMap, VecDeque};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;

use parlor_vocab::{
    Clock, Entry, IdSource, Media, MessageEvent, RegistryEvent, RegistryReply, RegistryRequest, RunEvent,
    RunId, Seq, SessionEvent, SessionId, SessionRefusal, SessionUpdate, StreamKind, Timestamp, WatchFrom,
};
use serde_json::{Map, Value, json};

use super::activity::{ActivityEvent, PlainText};
use super::code::{self, FrameError};
use super::decode;
use super::dispatch::{Pending, Waiting};
use super::encode::{self, object};
use super::media;
use super::replay::{delta_frame, session_frame};
use super::run::Run;
use super::{MAX_FRAME_BYTES, MAX_SENT_MEDIA_BYTES, MAX_WAITING_BYTES, MAX_WAITING_FRAMES};
use crate::{Input, InputOf, Machine, Output, SharedFrames, Ticket};

/// The parameters of a connection.
#[derive(Clone)]
pub struct ConnectionParams {
    /// The connection's own session. It is created when the client sends its first message.
    pub session: SessionId,
    /// The id of the last event that the client has seen, if it wants the later ones; `Some(None)` if the client wants
    /// all events.
    pub after: Option<Option<String>>,
    /// Other sessions that the client watches.
    pub watch: Vec<SessionId>,
    /// Whether the client wants text deltas, the events of subagents, and session frames such as `run.queued`.
    pub streams: bool,
    /// Whether the client may send. The door drops the messages of a read-only client without an error.
    pub may_send: bool,
    /// The W3C trace context of the connection; every run that the client starts gets it.
    pub traceparent: Option<String>,
    /// The ids and names of the configured agents. The first one is the default.
    pub agents: Arc<[(String, String)]>,
    /// The working folder of new sessions.
    pub folder: PathBuf,
    /// The frames that the connections of this door share.
    pub frames: Arc<SharedFrames>,
    /// The clock for the timestamps of frames.
    pub clock: Arc<dyn Clock>,
    /// The source of ids for the runs of refused inputs.
    pub ids: Arc<dyn IdSource>,
}

/// The server's side of a connection.
pub struct SuprMachine {
    pub(super) params: ConnectionParams,
    /// The state of each session that the connection watches.
    sessions: HashMap<SessionId, Watched>,
    /// The request that is being carried out, and the ticket of the backend request that it waits for.
    pub(super) pending: Option<(Ticket, Pending)>,
    /// The frames that wait for the pending request, with their sizes.
    pub(super) waiting: VecDeque<(Waiting, usize)>,
    pub(super) waiting_bytes: usize,
    /// Watches that the backend has not confirmed yet.
    pending_watches: HashMap<Ticket, SessionId>,
    /// Files of answers that the backend is reading for the client.
    pending_reads: HashMap<Ticket, (SessionId, Vec<Media>)>,
    next_ticket: u64,
    outbox: VecDeque<Output<RegistryRequest>>,
}

/// A session that the connection watches.
#[derive(Debug, Default)]
struct Watched {
    /// The last event that the client saw before it connected. The machine does not send events up to this one.
    seen: Seq,
    /// The last event in the log when the connection began. Events up to this one are sent as replay.
    head: Seq,
    /// The last event that the backend reported.
    last: Seq,
    /// The runs that have not ended.
    runs: HashMap<RunId, Run>,
}

impl SuprMachine {
    /// A new connection: it sends the list of agents and begins to watch.
    pub fn new(params: ConnectionParams) -> Self {
        let mut machine = Self {
            sessions: HashMap::new(),
            pending: None,
            waiting: VecDeque::new(),
            waiting_bytes: 0,
            pending_watches: HashMap::new(),
            pending_reads: HashMap::new(),
            next_ticket: 0,
            outbox: VecDeque::new(),
            params,
        };
        machine.send_agent_list();
        let after = match &machine.params.after {
            None => WatchFrom::Now,
            // With an id that no event can have, the client gets all events; it drops those that it knows.
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

    fn send_agent_list(&mut self) {
        let agents: Vec<Value> =
            self.params.agents.iter().map(|(id, name)| json!({"id": id, "name": name})).collect();
        let default = self.params.agents.first().map_or("", |(id, _)| id);
        let payload = object(json!({"agents": agents, "default": default}));
        self.send_typed("agent.list", None, None, payload);
    }

    fn watch(&mut self, session: SessionId, after: WatchFrom) {
        self.sessions.insert(session.clone(), Watched::default());
        let deltas = self.params.streams;
        let ticket = self.submit(RegistryRequest::Watch { session: session.clone(), after, deltas });
        self.pending_watches.insert(ticket, session);
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
            Input::Oversize { .. } => self.send_error(code::unparsable()),
            Input::Answer(ticket, answer) => self.on_answer(now, ticket, answer),
            Input::Event(event) => self.on_event(event),
            Input::Deadline => {}
        }
    }

    fn poll(&mut self) -> Option<Output<RegistryRequest>> {
        let output = self.outbox.pop_front();
        if output.is_none() {
            // Frees the buffer: most connections are idle, and there may be thousands.
            self.outbox = VecDeque::new();
        }
        output
    }

    fn wants_frame(&self) -> bool {
        self.waiting.len() < MAX_WAITING_FRAMES && self.waiting_bytes < MAX_WAITING_BYTES
    }

    fn has_work_in_progress(&self) -> bool {
        self.pending.is_some()
    }

    fn max_line_bytes(&self) -> usize {
        MAX_FRAME_BYTES
    }
}

impl SuprMachine {
    fn on_answer(&mut self, now: Instant, ticket: Ticket, answer: Result<RegistryReply, SessionRefusal>) {
        if let Some(session) = self.pending_watches.remove(&ticket) {
            return self.on_watching(&session, answer);
        }
        if let Some((session, media)) = self.pending_reads.remove(&ticket) {
            return self.on_media_contents(&session, media, answer);
        }
        if let Some((_, pending)) = self.pending.take_if(|(waiting, _)| *waiting == ticket) {
            self.on_pending_answer(now, pending, answer);
            return self.dispatch_waiting(now);
        }
        self.on_early_stop_answer(ticket, answer);
    }

    fn on_watching(&mut self, session: &SessionId, answer: Result<RegistryReply, SessionRefusal>) {
        match (answer, self.sessions.get_mut(session)) {
            (Ok(RegistryReply::Watching { seen, head }), Some(watched)) => {
                watched.seen = seen;
                watched.head = head;
            }
            // Without the watch the client would never get an event. It may reconnect.
            (Ok(_) | Err(_), _) => self.outbox.push_back(Output::Close),
        }
    }

    fn on_media_contents(
        &mut self,
        session: &SessionId,
        media: Vec<Media>,
        answer: Result<RegistryReply, SessionRefusal>,
    ) {
        let Ok(RegistryReply::Contents(contents)) = answer else { return };
        for (media, content) in media.iter().zip(contents) {
            if let Some(content) = content {
                let payload = media::create_payload(media, &content);
                self.send_typed("media.create", None, Some(session.to_string()), payload);
            }
        }
    }

    fn on_event(&mut self, RegistryEvent { session, update }: &RegistryEvent) {
        match update {
            SessionUpdate::Entry(entry) => self.on_entry(session, entry),
            SessionUpdate::Delta { run, stream, text } if self.params.streams => {
                self.on_delta(session, run, stream, text)
            }
            SessionUpdate::Delta { .. } => {}
        }
    }

    fn on_entry(&mut self, session: &SessionId, entry: &Arc<Entry>) {
        let Some(watched) = self.sessions.get_mut(session) else { return };
        if entry.seq <= watched.last || (entry.seq == Seq(1) && watched.seen > Seq::START) {
            // The session was deleted and created again, so the numbers of the old one mean nothing any more.
            *watched = Watched::default();
        }
        watched.last = entry.seq;
        let SessionEvent::Run { run: run_id, event, .. } = &entry.event else {
            if let Some((kind, payload)) = session_frame(&entry.event) {
                self.send_session_frame(session, entry.seq, kind, payload);
            }
            return;
        };
        if let Some(run) = Run::from_start_event(event) {
            watched.runs.insert(run_id.clone(), run);
        }
        let (is_new, replay) = (entry.seq > watched.seen, entry.seq <= watched.head);
        let Some(run) = watched.runs.get_mut(run_id) else { return };
        run.record(event);
        let streams = self.params.streams;
        let is_sent = is_new && (run.parent.is_none() || streams);
        if is_sent {
            let variant = u8::from(streams) | u8::from(replay) << 1;
            // Every connection has the same state of a run, because it gets the run's events from the first one on.
            let make = || activity_frame(streams, session, run_id, run, entry, replay);
            let frame = self.params.frames.get_or_make(entry, variant, make);
            self.outbox.push_back(Output::SendShared(frame));
        }
        if matches!(event, RunEvent::Ended { .. }) {
            watched.runs.remove(run_id);
        }
        if is_sent {
            self.request_media(session, event);
        }
    }

    /// Requests the files of a completed message.
    fn request_media(&mut self, session: &SessionId, event: &RunEvent) {
        if let RunEvent::Message(MessageEvent::Completed { media, .. }) = event
            && !media.is_empty()
        {
            let ids = media.iter().map(|media| media.id.clone()).collect();
            let ticket = self.submit(RegistryRequest::ReadMedia { ids, max_bytes: MAX_SENT_MEDIA_BYTES });
            self.pending_reads.insert(ticket, (session.clone(), media.clone()));
        }
    }

    /// Sends a frame about the session to a client with `streams`.
    fn send_session_frame(&mut self, session: &SessionId, seq: Seq, kind: &str, payload: Map<String, Value>) {
        let is_new = self.sessions.get(session).is_some_and(|watched| seq > watched.seen);
        if is_new && self.params.streams {
            self.send_typed(kind, None, Some(session.to_string()), payload);
        }
    }

    fn on_delta(&mut self, session: &SessionId, run: &RunId, stream: &StreamKind, text: &str) {
        // The client has already seen the whole text that this delta is a part of.
        if self.sessions.get(session).is_none_or(|watched| watched.last < watched.seen) {
            return;
        }
        let (kind, payload) = delta_frame(run, stream, text);
        self.send_typed(kind, None, Some(session.to_string()), payload);
    }

    pub(super) fn send_error(&mut self, error: FrameError) {
        let frame = encode::error(error, self.now());
        self.send(frame);
    }

    pub(super) fn send(&mut self, frame: Vec<u8>) {
        self.outbox.push_back(Output::Send(frame));
    }

    pub(super) fn send_typed(
        &mut self,
        kind: &str,
        id: Option<String>,
        session: Option<String>,
        payload: Map<String, Value>,
    ) {
        let frame = encode::typed(kind, id, session, payload, self.now());
        self.send(frame);
    }

    pub(super) fn submit(&mut self, request: RegistryRequest) -> Ticket {
        self.next_ticket += 1;
        let ticket = Ticket(self.next_ticket);
        self.outbox.push_back(Output::Request(ticket, request));
        ticket
    }

    pub(super) fn now(&self) -> Timestamp {
        self.params.clock.now()
    }
}

/// The activity of an event of a run, as a frame.
pub(super) fn activity_frame(
    streams: bool,
    session: &SessionId,
    id: &RunId,
    run: &Run,
    entry: &Entry,
    replay: bool,
) -> Vec<u8> {
    let SessionEvent::Run { sequence, event, .. } = &entry.event else { return Vec::new() };
    let (session, sequence) = (session.as_str(), *sequence);
    let plain_text = if streams { PlainText::AsPlain } else { PlainText::AsFencedMarkdown };
    let event = ActivityEvent { session, id, run, sequence, event, entry, replay, plain_text };
    encode::bytes(&event.activity())
}

#[cfg(test)]
mod tests;
