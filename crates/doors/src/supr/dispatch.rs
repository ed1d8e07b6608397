//! What each request of the client does.
//!
//! Requests are carried out, and answered, one after another: clients match answers with frames by their order alone. A
//! request that needs the backend becomes [`Pending`]; later frames wait.

use std::time::Instant;

use parlor_vocab::{
    AgentChoice, Entry, ErrorScope, EventId, Failure, FileError, Media, NamedFile, NewSession, RegistryReply,
    RegistryRequest, RunEnding, RunEvent, RunId, Sender, Seq, SessionCommand, SessionEvent, SessionId,
    SessionRefusal, UserInput, WhenBusy,
};
use serde_json::Map;

use super::code::{self, FrameError};
use super::decode::{self, Request, StopRequest};
use super::machine::{SuprMachine, activity_frame};
use super::media::{self, Content, Item, Label, MAX_MEDIA_BYTES, Upload};
use super::run::Run;
use super::{DOOR, FILES_WAIT};
use crate::Ticket;

/// What the pending request waits for.
pub(super) enum Pending {
    /// The session accepts the input.
    Send { session: SessionId, input: Box<UserInput> },
    /// The session takes the answer to a question.
    Answer,
    /// The active run of the session takes the input in.
    Steer { session: SessionId, input: Box<UserInput> },
    /// The backend creates the session, because it did not exist.
    Create { session: SessionId, input: Box<UserInput> },
    /// The backend downloads a file.
    Fetch(Box<MediaUpload>, Label),
    /// The backend stores a file.
    Store(Box<MediaUpload>, Label),
    /// The session stops a run.
    Stop,
}

/// A frame that waits for the pending request.
pub(super) enum Waiting {
    Request(Result<Request, FrameError>),
    /// A stop that was submitted at once, because it need not wait for files. Only its refusal waits for its turn.
    EarlyStop {
        ticket: Ticket,
        stop: StopRequest,
        /// `None` until the backend has answered.
        refusal: Option<SessionRefusal>,
    },
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
        let request = decode::request(bytes, &self.params.agents);
        match request.and_then(|request| self.refuse_watched(request)) {
            Ok(Request::Stop(stop)) if self.is_receiving_files() => {
                let ticket = self.submit_stop(stop.clone());
                self.push_waiting(Waiting::EarlyStop { ticket, stop, refusal: None }, bytes.len());
            }
            request if self.pending.is_some() => self.push_waiting(Waiting::Request(request), bytes.len()),
            request => self.dispatch(now, request),
        }
    }

    /// Refuses a request that would change a session which the client only watches.
    fn refuse_watched(&self, request: Request) -> Result<Request, FrameError> {
        let (session, key) = match &request {
            Request::Send { session, key, .. } | Request::Media { session, key, .. } => {
                (session, key.as_ref())
            }
            Request::Stop(stop) => (&stop.session, None),
            Request::Answer { session, .. } => (session, None),
            Request::Ping { .. } => (&None, None),
        };
        let is_watched =
            |session: &&SessionId| **session != self.params.session && self.params.watch.contains(session);
        match session.as_ref().filter(is_watched) {
            Some(session) => Err(code::watched(session).for_key(key)),
            None => Ok(request),
        }
    }

    fn push_waiting(&mut self, waiting: Waiting, bytes: usize) {
        self.waiting_bytes += bytes;
        self.waiting.push_back((waiting, bytes));
    }

    /// Whether the pending request waits for files, which may take a minute.
    fn is_receiving_files(&self) -> bool {
        matches!(self.pending, Some((_, Pending::Fetch(..) | Pending::Store(..))))
    }

    fn submit_stop(&mut self, StopRequest { session, run, reason }: StopRequest) -> Ticket {
        let session = session.unwrap_or_else(|| self.params.session.clone());
        self.submit(RegistryRequest::Session(session, SessionCommand::Stop { run, reason }))
    }

    /// Forgets an early stop that was accepted, and keeps the refusal of another until its turn.
    pub(super) fn on_early_stop_answer(
        &mut self,
        answered: Ticket,
        answer: Result<RegistryReply, SessionRefusal>,
    ) {
        let is_answered = |(waiting, _): &(Waiting, usize)| matches!(waiting, Waiting::EarlyStop { ticket, .. } if *ticket == answered);
        let Some(position) = self.waiting.iter().position(is_answered) else { return };
        match (answer, self.waiting.get_mut(position)) {
            (Err(refused), Some((Waiting::EarlyStop { refusal, .. }, _))) => *refusal = Some(refused),
            (Ok(_), _) | (Err(_), _) => {
                let bytes = self.waiting.remove(position).map_or(0, |(_, bytes)| bytes);
                self.waiting_bytes -= bytes;
            }
        }
    }

    /// Carries out the frames that waited, up to the first one that needs the backend.
    pub(super) fn dispatch_waiting(&mut self, now: Instant) {
        if self.pending.is_none() {
            self.repeat_early_stops();
        }
        while self.pending.is_none()
            && let Some((waiting, bytes)) = self.waiting.pop_front()
        {
            self.waiting_bytes -= bytes;
            match waiting {
                Waiting::Request(request) => self.dispatch(now, request),
                Waiting::EarlyStop { ticket, refusal: None, .. } => {
                    self.pending = Some((ticket, Pending::Stop))
                }
                Waiting::EarlyStop { refusal: Some(refusal), .. } => {
                    self.send_error(code::stop_refused(&refusal));
                }
            }
        }
    }

    /// Submits the early stops again that found no active run. The run of the request that was pending may be active
    /// now, and is what they are meant for.
    fn repeat_early_stops(&mut self) {
        let mut waiting = std::mem::take(&mut self.waiting);
        for (waiting, _) in &mut waiting {
            if let Waiting::EarlyStop { ticket, stop, refusal } = waiting
                && refusal.take_if(|refusal| is_idle(refusal)).is_some()
            {
                *ticket = self.submit_stop(stop.clone());
            }
        }
        self.waiting = waiting;
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
            Request::Send { .. } | Request::Media { .. } | Request::Answer { .. }
                if !self.params.may_send => {}
            Request::Answer { session, question, answer } => {
                let by = Some(Sender::at(DOOR));
                let command = SessionCommand::AnswerQuestion { question, answer, by };
                let ticket = self.submit(RegistryRequest::Session(session.unwrap_or(own), command));
                self.pending = Some((ticket, Pending::Answer));
            }
            Request::Send { session, content, choice, key, steers } => {
                let input = UserInput { text: content, choice, key, ..UserInput::default() };
                let (session, input) = (session.unwrap_or(own), self.completed(input));
                if steers { self.submit_steer(session, input) } else { self.submit_input(session, input) }
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

    /// The input with the members that are the same for all inputs of this connection.
    fn completed(&self, input: UserInput) -> Box<UserInput> {
        let (traceparent, by) = (self.params.traceparent.clone(), Some(Sender::at(DOOR)));
        // The frontends that know no questions do not ask for streams either.
        let (can_answer, is_attended) = (self.params.streams, self.params.streams);
        Box::new(UserInput { traceparent, by, can_answer, is_attended, ..input })
    }

    fn submit_steer(&mut self, session: SessionId, input: Box<UserInput>) {
        let command = SessionCommand::Send { input: (*input).clone(), when_busy: WhenBusy::Steer };
        let ticket = self.submit(RegistryRequest::Session(session.clone(), command));
        self.pending = Some((ticket, Pending::Steer { session, input }));
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
            let input = UserInput { text, media: stored, choice, key, ..UserInput::default() };
            return self.submit_input(session, self.completed(input));
        };
        match content {
            Content::Url(_) if now.duration_since(upload.started) >= FILES_WAIT => {
                self.refuse_upload(&upload, code::not_downloaded());
            }
            Content::Url(url) => {
                let ticket = self.submit(RegistryRequest::Fetch { url, max_bytes: MAX_MEDIA_BYTES });
                self.pending = Some((ticket, Pending::Fetch(upload, label)));
            }
            Content::Base64(text) => match media::decode_base64(&text) {
                Ok(bytes) => self.store_file(upload, label, bytes),
                Err(error) => self.refuse_upload(&upload, error),
            },
        }
    }

    /// Answers a message whose files cannot all be received, and discards those that were.
    fn refuse_upload(&mut self, upload: &MediaUpload, error: FrameError) {
        self.send_error(error.for_key(upload.key.as_ref()));
        self.discard(&upload.stored);
    }

    /// Removes the files of a refused message. Nobody waits for the answer.
    fn discard(&mut self, stored: &[Media]) {
        if !stored.is_empty() {
            let ids = stored.iter().map(|media| media.id.clone()).collect();
            self.submit(RegistryRequest::DiscardMedia(ids));
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
            (Pending::Send { .. } | Pending::Steer { .. } | Pending::Stop | Pending::Answer, Ok(_)) => {}
            (Pending::Answer, Err(refusal)) => self.send_error(code::answer_refused(&refusal)),
            // The run has ended meanwhile, or there was none: the message starts one.
            (
                Pending::Steer { session, input },
                Err(SessionRefusal::NoActiveRun | SessionRefusal::UnknownSession(_)),
            ) => self.submit_input(session, input),
            (Pending::Send { session, input }, Err(SessionRefusal::UnknownSession(_))) => {
                let new_session = Box::new(self.new_session());
                let ticket = self.submit(RegistryRequest::Create { id: Some(session.clone()), new_session });
                self.pending = Some((ticket, Pending::Create { session, input }));
            }
            // Another client may have created the session in the meantime.
            (Pending::Create { session, input }, Ok(_) | Err(SessionRefusal::SessionExists(_))) => {
                self.submit_input(session, input);
            }
            (
                Pending::Send { session, input }
                | Pending::Steer { session, input }
                | Pending::Create { session, input },
                Err(refusal),
            ) => {
                self.refuse_input(&session, &input, &refusal);
                // Otherwise a message may refer to the files.
                if !matches!(refusal, SessionRefusal::OutcomeUnknown(_) | SessionRefusal::OwnerSilent { .. })
                {
                    self.discard(&input.media);
                }
            }
            (Pending::Stop, Err(refusal)) => self.send_error(code::stop_refused(&refusal)),
            (Pending::Fetch(upload, label), Ok(RegistryReply::Files(mut files))) => match files.pop() {
                Some(Ok(file)) => self.store_file(upload, label, file.bytes),
                Some(Err(FileError::TooLarge { .. })) => self.refuse_upload(&upload, code::too_large()),
                Some(Err(
                    FileError::Missing
                    | FileError::NotRegular
                    | FileError::Inaccessible
                    | FileError::Unreadable
                    | FileError::Empty,
                ))
                | None => self.refuse_upload(&upload, code::not_downloaded()),
            },
            (Pending::Fetch(upload, _), _) => self.refuse_upload(&upload, code::not_downloaded()),
            (Pending::Store(mut upload, label), Ok(RegistryReply::Stored(stored))) => {
                upload.stored.extend(stored);
                upload.labels.push(label);
                self.receive_next_file(now, upload);
            }
            (Pending::Store(upload, _), Err(refusal)) => {
                self.refuse_upload(&upload, code::not_stored(&refusal.to_string()));
            }
            (Pending::Store(upload, _), Ok(_)) => {
                self.refuse_upload(&upload, code::not_stored("it was not stored"));
            }
        }
    }

    fn new_session(&self) -> NewSession {
        NewSession {
            title: None,
            door: DOOR.to_owned(),
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
            let frame = activity_frame(self.params.streams, session, &id, &run, &entry, false);
            self.send(frame);
        }
    }
}

/// Whether a stop was refused because there was nothing to stop.
fn is_idle(refusal: &SessionRefusal) -> bool {
    matches!(refusal, SessionRefusal::NoActiveRun | SessionRefusal::UnknownSession(_))
}
