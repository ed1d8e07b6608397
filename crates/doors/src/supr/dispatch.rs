//! What each request of the client does.
//!
//! Requests are carried out one after another. A request that needs the backend becomes [`Pending`]; later requests wait.

use std::time::Instant;

use parlor_vocab::{
    AgentChoice, Entry, ErrorScope, EventId, Failure, FileError, Media, NamedFile, NewSession, RegistryReply,
    RegistryRequest, RunEnding, RunEvent, RunId, Seq, SessionCommand, SessionEvent, SessionId,
    SessionRefusal, UserInput, WhenBusy,
};
use serde_json::Map;

use super::code::{self, FrameError};
use super::decode::{self, Request, StopRequest};
use super::machine::SuprMachine;
use super::media::{self, Content, Item, Label, MAX_MEDIA_BYTES, Upload};
use super::run::Run;
use super::{FILES_WAIT, MAX_WAITING_FRAMES};
use crate::Ticket;

/// What the pending request waits for.
pub(super) enum Pending {
    /// The session accepts the input.
    Send { session: SessionId, input: Box<UserInput> },
    /// The backend creates the session, because it did not exist.
    Create { session: SessionId, input: Box<UserInput> },
    /// The backend downloads a file.
    Fetch(Box<MediaUpload>, Label),
    /// The backend stores a file.
    Store(Box<MediaUpload>, Label),
    /// The session stops a run.
    Stop,
}

/// A message whose files are being downloaded or stored.
pub(super) struct MediaUpload {
    /// When the frame arrived.
    started: Instant,
    session: SessionId,
    choice: AgentChoice,
    key: Option<String>,
    caption: Option<String>,
    /// The files that are not stored yet, in reverse order.
    remaining: Vec<Item>,
    labels: Vec<Label>,
    stored: Vec<Media>,
}

impl SuprMachine {
    pub(super) fn on_frame(&mut self, now: Instant, bytes: &[u8]) {
        match decode::request(bytes, &self.params.agents) {
            Ok(Request::Ping { id }) => self.send_typed("pong", id, None, Map::new()),
            Ok(Request::Stop(stop)) if self.may_stop_at_once() => {
                let ticket = self.submit_stop(stop.clone());
                self.early_stops.insert(ticket, stop);
            }
            // An error waits for its turn too: clients match errors with frames by their order alone.
            request if self.pending.is_some() => {
                self.waiting_bytes += bytes.len();
                self.waiting.push_back((request, bytes.len()));
            }
            request => self.dispatch(now, request),
        }
    }

    /// Whether a stop may overtake the pending request: it need not wait for files, which may take a minute.
    fn may_stop_at_once(&self) -> bool {
        matches!(self.pending, Some((_, Pending::Fetch(..) | Pending::Store(..))))
            && self.early_stops.len() < MAX_WAITING_FRAMES
    }

    fn submit_stop(&mut self, StopRequest { session, run, reason }: StopRequest) -> Ticket {
        let session = session.unwrap_or_else(|| self.params.session.clone());
        self.submit(RegistryRequest::Session(session, SessionCommand::Stop { run, reason }))
    }

    pub(super) fn on_stopped(
        &mut self,
        now: Instant,
        stop: StopRequest,
        answer: Result<RegistryReply, SessionRefusal>,
    ) {
        let is_idle = matches!(answer, Err(SessionRefusal::NoActiveRun | SessionRefusal::UnknownSession(_)));
        if is_idle && self.pending.is_some() {
            // There is no run yet, so the stop is meant for the run of the pending message.
            self.waiting.push_front((Ok(Request::Stop(stop)), 0));
        } else {
            self.on_pending_answer(now, Pending::Stop, answer);
        }
    }

    pub(super) fn dispatch(&mut self, now: Instant, request: Result<Request, FrameError>) {
        let request = match request {
            Ok(request) => request,
            Err(error) => return self.send_error(error),
        };
        let own = self.params.session.clone();
        match request {
            Request::Ping { id } => self.send_typed("pong", id, None, Map::new()),
            Request::Stop(stop) => {
                let ticket = self.submit_stop(stop);
                self.pending = Some((ticket, Pending::Stop));
            }
            // A read-only client's messages are dropped without an error; the real frontend expects that.
            Request::Send { .. } | Request::Media { .. } if !self.params.may_send => {}
            Request::Send { session, content, choice, key } => {
                let input = UserInput { text: content, choice, key, ..UserInput::default() };
                self.send_input(session.unwrap_or(own), input);
            }
            Request::Media { session, upload: Upload { caption, items }, choice, key } => {
                let session = session.unwrap_or(own);
                let (labels, stored) = (Vec::new(), Vec::new());
                let (started, remaining) = (now, items);
                let upload =
                    MediaUpload { started, session, choice, key, caption, remaining, labels, stored };
                self.receive_next_file(now, Box::new(upload));
            }
        }
    }

    fn send_input(&mut self, session: SessionId, mut input: UserInput) {
        input.traceparent.clone_from(&self.params.traceparent);
        self.submit_input(session, Box::new(input));
    }

    fn submit_input(&mut self, session: SessionId, input: Box<UserInput>) {
        let command = SessionCommand::Send { input: (*input).clone(), when_busy: WhenBusy::Enqueue };
        let ticket = self.submit(RegistryRequest::Session(session.clone(), command));
        self.pending = Some((ticket, Pending::Send { session, input }));
    }

    /// Receives the next file, or sends the message if there is none left. Files are received one after another, so
    /// that a frame has no more than one decoded file in memory.
    fn receive_next_file(&mut self, now: Instant, mut upload: Box<MediaUpload>) {
        let Some(Item { content, label }) = upload.remaining.pop() else {
            let text = media::text(upload.caption.as_deref(), &upload.labels);
            let MediaUpload { session, choice, key, stored, .. } = *upload;
            return self
                .send_input(session, UserInput { text, media: stored, choice, key, ..UserInput::default() });
        };
        match content {
            Content::Url(_) if now.duration_since(upload.started) >= FILES_WAIT => {
                self.send_error(code::not_downloaded().for_key(upload.key.as_ref()));
            }
            Content::Url(url) => {
                let ticket = self.submit(RegistryRequest::Fetch { url, max_bytes: MAX_MEDIA_BYTES });
                self.pending = Some((ticket, Pending::Fetch(upload, label)));
            }
            Content::Base64(text) => match media::decode_base64(&text) {
                Ok(bytes) => self.store_file(upload, label, bytes),
                Err(error) => self.send_error(error.for_key(upload.key.as_ref())),
            },
        }
    }

    fn store_file(&mut self, upload: Box<MediaUpload>, label: Label, bytes: Vec<u8>) {
        let file = NamedFile { name: label.name().to_owned(), bytes };
        let ticket = self.submit(RegistryRequest::StoreMedia(vec![file]));
        self.pending = Some((ticket, Pending::Store(upload, label)));
    }

    /// Continues with the pending request after the backend has answered.
    pub(super) fn on_pending_answer(
        &mut self,
        now: Instant,
        pending: Pending,
        answer: Result<RegistryReply, SessionRefusal>,
    ) {
        match (pending, answer) {
            // The events of the run tell the client the rest.
            (Pending::Send { .. } | Pending::Stop, Ok(_)) => {}
            (Pending::Send { session, input }, Err(SessionRefusal::UnknownSession(_))) => {
                let new_session = Box::new(self.new_session());
                let ticket = self.submit(RegistryRequest::Create { id: Some(session.clone()), new_session });
                self.pending = Some((ticket, Pending::Create { session, input }));
            }
            // Another client may have created the session in the meantime.
            (Pending::Create { session, input }, Ok(_) | Err(SessionRefusal::SessionExists(_))) => {
                self.submit_input(session, input);
            }
            (Pending::Send { session, input } | Pending::Create { session, input }, Err(refusal)) => {
                self.refuse_input(&session, &input, &refusal);
            }
            (Pending::Stop, Err(refusal)) => self.send_error(code::stop_refused(&refusal)),
            (Pending::Fetch(upload, label), Ok(RegistryReply::Files(mut files))) => match files.pop() {
                Some(Ok(file)) => self.store_file(upload, label, file.bytes),
                Some(Err(FileError::TooLarge { .. })) => {
                    self.send_error(code::too_large().for_key(upload.key.as_ref()))
                }
                Some(Err(
                    FileError::Missing
                    | FileError::NotRegular
                    | FileError::Inaccessible
                    | FileError::Unreadable
                    | FileError::Empty,
                ))
                | None => {
                    self.send_error(code::not_downloaded().for_key(upload.key.as_ref()));
                }
            },
            (Pending::Fetch(upload, _), _) => {
                self.send_error(code::not_downloaded().for_key(upload.key.as_ref()));
            }
            (Pending::Store(mut upload, label), Ok(RegistryReply::Stored(stored))) => {
                upload.stored.extend(stored);
                upload.labels.push(label);
                self.receive_next_file(now, upload);
            }
            (Pending::Store(upload, _), Err(refusal)) => {
                self.send_error(code::not_stored(&refusal.to_string()).for_key(upload.key.as_ref()));
            }
            (Pending::Store(upload, _), Ok(_)) => {
                self.send_error(code::not_stored("it was not stored").for_key(upload.key.as_ref()));
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

    /// Answers a refused input with the activities of a run that failed, so that a client which waits for the end of a
    /// run gets one.
    fn refuse_input(&mut self, session: &SessionId, input: &UserInput, refusal: &SessionRefusal) {
        let (code, retryable) = code::input_refused(refusal);
        let failure = Failure { code: code.into(), message: refusal.to_string(), retryable };
        let chosen = input.choice.agent.as_ref().map(ToString::to_string);
        let default = self.params.agents.first().map(|(id, _)| id.clone()).unwrap_or_default();
        let run = Run::refused(chosen.is_some(), chosen.unwrap_or(default), input.key.clone());
        let id = RunId::generate(self.params.ids.next());
        let events = [
            RunEvent::ErrorRaised { scope: ErrorScope::Run, failure: failure.clone() },
            RunEvent::Ended { ending: RunEnding::Failed(failure), duration_ms: 0 },
        ];
        for (event, sequence) in events.into_iter().zip(1..) {
            let (run_id, seq) = (id.clone(), Seq::START);
            let event = SessionEvent::Run { run: run_id, sequence, event };
            let event_id = EventId::generate(self.params.ids.next());
            let entry = Entry { seq, id: event_id, at: self.now(), event };
            self.send_activity(session, &id, &run, &entry, false);
        }
    }
}
