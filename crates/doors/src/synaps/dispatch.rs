//! What each command of the parent does.

use std::path::PathBuf;
use std::time::Instant;

use parlor_vocab::{
    AgentChoice, RegistryReply, RegistryRequest, Sender, Seq, SessionCommand, SessionOverview,
    SessionRefusal, SessionReply, SessionTotals, UserInput, WhenBusy,
};
use serde_json::{Value, json};

use super::history::{self, Contents};
use super::machine::SynapsMachine;
use super::turn::Turn;
use super::wire::{RpcAttachment, RpcCommand};
use super::{DOOR, DRAIN_WAIT, MAX_ATTACHMENT_BYTES, MAX_HISTORY_MEDIA_BYTES, attachment, code, encode};
use crate::history::media_ids;
use crate::{Output, Ticket};

/// What the pending command waits for. `id` is that of the command.
#[derive(Debug)]
pub(super) enum Pending {
    /// The files of a prompt are read.
    ReadFiles { prompt: Prompt, paths: Vec<PathBuf> },
    /// The files of a prompt are stored.
    StoreFiles { prompt: Prompt },
    /// The session accepts a prompt.
    Send,
    /// The session adds a text to the turn that runs.
    Steer { id: String },
    /// The session stops the turn.
    Stop,
    /// The session stops the turn of another client, for an `abort`.
    StopOther { id: String },
    /// A session is created for `new_session`.
    Create { id: String },
    /// The session's history is read for `get_messages`.
    Messages { id: String },
    /// The files in the history are read for `get_messages`.
    MessageFiles { id: String, overview: Box<SessionOverview> },
    /// The session accepts the choice of `set_model`.
    SetModel { id: String, choice: AgentChoice },
    /// The session's totals are read for `get_session_stats`.
    Stats { id: String },
    /// The session's totals are read for `get_state`.
    State { id: String },
}

impl Pending {
    /// The `command` of the response.
    fn command(&self) -> &'static str {
        match self {
            Self::ReadFiles { .. } | Self::StoreFiles { .. } | Self::Send | Self::Steer { .. } => "prompt",
            Self::Stop | Self::StopOther { .. } => "abort",
            Self::Create { .. } => "new_session",
            Self::Messages { .. } | Self::MessageFiles { .. } => "get_messages",
            Self::SetModel { .. } => "set_model",
            Self::Stats { .. } => "get_session_stats",
            Self::State { .. } => "get_state",
        }
    }
}

/// Whether the parent has asked for the tools and nothing else; then its empty session is deleted at the end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ToolsOnly {
    /// The session is new, and no command has come.
    Unknown,
    /// All commands so far ask for the tools.
    SoFar,
    /// It has sent another command, or continues a session.
    No,
}

/// A `compact` command that is being carried out.
#[derive(Debug)]
pub(super) struct Compaction {
    pub(super) ticket: Ticket,
    pub(super) id: String,
    /// When the command arrived.
    pub(super) received: Instant,
    /// The ids of the `abort` commands that want to stop it.
    pub(super) aborts: Vec<String>,
}

/// A prompt whose files are being read or stored.
#[derive(Debug)]
pub(super) struct Prompt {
    pub(super) id: String,
    pub(super) message: String,
    /// When the prompt arrived.
    pub(super) received: Instant,
}

impl SynapsMachine {
    pub(super) fn on_command(&mut self, now: Instant, command: RpcCommand) {
        self.received = Some(now);
        self.note_tools_only(&command);
        match command {
            RpcCommand::Prompt { id, message, attachments, steer: true } => {
                self.steer(id, message, &attachments);
            }
            RpcCommand::Prompt { id, message, attachments, steer: false } => {
                self.prompt(now, id, message, &attachments);
            }
            RpcCommand::FollowUp { id, message } => self.prompt(now, id, message, &[]),
            RpcCommand::Compact { id } => self.compact(now, id),
            RpcCommand::NewSession { id } => self.create_session(id),
            RpcCommand::GetMessages { id } => {
                let request = RegistryRequest::GetOverview(self.params.session.clone());
                self.submit(request, Pending::Messages { id });
            }
            RpcCommand::SetModel { id, model } => {
                let choice = self.params.choice(&model);
                let command = SessionCommand::ChooseAgent(choice.clone());
                self.submit_to_session(command, Pending::SetModel { id, choice });
            }
            RpcCommand::GetAvailableModels { id } => self.send_models(id),
            RpcCommand::Abort { id } => self.abort(id),
            RpcCommand::GetSessionStats { id } => self.request_totals(Pending::Stats { id }),
            RpcCommand::GetState { id } => self.request_totals(Pending::State { id }),
            RpcCommand::ToolsList { id } => self.send_tools(id.unwrap_or_default()),
            RpcCommand::Shutdown => self.shutdown(now),
        }
    }

    /// Recognizes a parent that wants to know the tools and nothing else: nobody will continue its session.
    fn note_tools_only(&mut self, command: &RpcCommand) {
        let lists_tools = matches!(command, RpcCommand::ToolsList { .. });
        let (next, unused) = match self.tools_only {
            _ if matches!(command, RpcCommand::Shutdown) => return,
            ToolsOnly::Unknown if lists_tools => (ToolsOnly::SoFar, Some(self.params.session.clone())),
            ToolsOnly::SoFar if !lists_tools => (ToolsOnly::No, None),
            ToolsOnly::SoFar | ToolsOnly::No => return,
            ToolsOnly::Unknown => return self.tools_only = ToolsOnly::No,
        };
        self.tools_only = next;
        let ticket = self.take_ticket();
        self.outbox.push_back(Output::Request(ticket, RegistryRequest::DeleteIfUnused(unused)));
    }

    fn is_busy(&self) -> bool {
        self.turn.is_some() || self.compaction.is_some()
    }

    fn prompt(&mut self, now: Instant, id: String, message: String, attachments: &[RpcAttachment]) {
        if self.is_busy() {
            return self.send_error(Some(id), code::BUSY);
        }
        match attachment::paths(attachments) {
            Err(reason) => self.send_error(Some(id), &reason),
            Ok(paths) if paths.is_empty() => {
                self.begin_turn(now, id, UserInput { text: message, ..UserInput::default() });
            }
            Ok(paths) => {
                let request =
                    RegistryRequest::ReadFiles { paths: paths.clone(), max_bytes: MAX_ATTACHMENT_BYTES };
                self.submit(
                    request,
                    Pending::ReadFiles { prompt: Prompt { id, message, received: now }, paths },
                );
            }
        }
    }

    /// Adds a text to the turn that runs: the parent's own, or that of another client.
    fn steer(&mut self, id: String, message: String, attachments: &[RpcAttachment]) {
        if !attachments.is_empty() {
            return self.send_error(Some(id), code::STEER_WITH_ATTACHMENTS);
        }
        let (text, key, by) = (message, Some(self.take_key()), Some(Sender::at(DOOR)));
        let input = UserInput { text, key, by, ..UserInput::default() };
        let command = SessionCommand::Send { input, when_busy: WhenBusy::Steer };
        self.submit_to_session(command, Pending::Steer { id });
    }

    fn begin_turn(&mut self, received: Instant, id: String, input: UserInput) {
        // The parent takes whatever comes from now on for its own turn, so another client's turn ends without a frame.
        self.other_turn = None;
        let key = self.take_key();
        let input = UserInput { key: Some(key.clone()), by: Some(Sender::at(DOOR)), ..input };
        // Set before the request, because events of the turn may arrive before the answer.
        self.turn = Some(Turn::new(id, key, received));
        // The parent's own turns do not overlap; the session may be busy with the run of another client.
        self.submit_to_session(SessionCommand::Send { input, when_busy: WhenBusy::Enqueue }, Pending::Send);
    }

    fn compact(&mut self, now: Instant, id: String) {
        if self.is_busy() {
            return self.send_error(Some(id), code::BUSY);
        }
        let ticket = self.take_ticket();
        self.compaction = Some(Compaction { ticket, id, received: now, aborts: Vec::new() });
        let command = SessionCommand::Compact { keep: 0 };
        self.outbox.push_back(Output::Request(
            ticket,
            RegistryRequest::Session(self.params.session.clone(), command),
        ));
    }

    fn create_session(&mut self, id: String) {
        if self.is_busy() {
            return self.send_error(Some(id), code::BUSY);
        }
        let new_session = Box::new(self.params.new_session.clone());
        self.submit(RegistryRequest::Create { id: None, new_session }, Pending::Create { id });
    }

    fn abort(&mut self, id: String) {
        if let Some(turn) = &mut self.turn {
            turn.aborts.push(id);
            let stop = turn.stop_command();
            return self.submit_to_session(stop, Pending::Stop);
        }
        if let Some(compaction) = &mut self.compaction {
            compaction.aborts.push(id);
            let ticket = self.take_ticket();
            let stop = SessionCommand::Stop { run: None, reason: None };
            let request = RegistryRequest::Session(self.params.session.clone(), stop);
            return self.outbox.push_back(Output::Request(ticket, request));
        }
        if let Some(other) = &self.other_turn {
            let stop = SessionCommand::Stop { run: Some(other.run.clone()), reason: None };
            return self.submit_to_session(stop, Pending::StopOther { id });
        }
        self.send_response(id, "abort", vec![("ok", Value::Bool(true))]);
    }

    fn send_models(&mut self, id: String) {
        let models =
            self.params.models.iter().map(
                |model| json!({"provider": model.provider, "model_id": model.id, "model_name": model.name}),
            );
        let models = models.collect();
        self.send_response(id, "get_available_models", vec![("models", models)]);
    }

    fn send_tools(&mut self, id: String) {
        let tools = self.params.tools.iter().map(encode::tool_to_json);
        let tools = tools.collect();
        self.send_response(id, "tools_list", vec![("ok", Value::Bool(true)), ("tools", tools)]);
    }

    fn shutdown(&mut self, now: Instant) {
        self.is_shutting_down = true;
        self.close_when_idle();
        self.outbox.push_back(Output::WakeAt(now + DRAIN_WAIT));
    }

    pub(super) fn close_when_idle(&mut self) {
        if self.is_shutting_down && !self.is_busy() {
            self.outbox.push_back(Output::Close);
        }
    }

    /// Continues with the pending command after the backend has answered.
    pub(super) fn on_pending_answer(
        &mut self,
        now: Instant,
        pending: Pending,
        answer: Result<RegistryReply, SessionRefusal>,
    ) {
        let command = pending.command();
        let reply = match answer {
            Ok(reply) => reply,
            Err(refusal) => return self.on_refusal(now, pending, &refusal),
        };
        match (pending, reply) {
            (
                Pending::ReadFiles { prompt: Prompt { id, message, received }, paths },
                RegistryReply::Files(read),
            ) => match attachment::check(&paths, read) {
                Err(reason) => self.fail(now, received, id, command, reason),
                Ok(checked) => {
                    let message = attachment::prepend_names(&checked.named, message);
                    if checked.files.is_empty() {
                        return self.begin_turn(
                            received,
                            id,
                            UserInput { text: message, ..UserInput::default() },
                        );
                    }
                    let prompt = Prompt { id, message, received };
                    self.submit(RegistryRequest::StoreMedia(checked.files), Pending::StoreFiles { prompt });
                }
            },
            (
                Pending::StoreFiles { prompt: Prompt { id, message, received } },
                RegistryReply::Stored(media),
            ) => {
                self.begin_turn(received, id, UserInput { text: message, media, ..UserInput::default() });
            }
            (Pending::Create { id }, RegistryReply::Created(session)) => {
                self.end_other_turn();
                let old = std::mem::replace(&mut self.params.session, session);
                let ticket = self.take_ticket();
                self.outbox.push_back(Output::Request(ticket, RegistryRequest::Release(old)));
                self.watch(Seq::START);
                let session_id = Value::String(self.params.session.to_string());
                self.send_response(id, "new_session", vec![("session_id", session_id)]);
            }
            (Pending::Messages { id }, RegistryReply::Overview(overview)) => {
                let ids = media_ids(&overview.history);
                if ids.is_empty() {
                    return self.send_messages(id, &overview, &Contents::new());
                }
                let request = RegistryRequest::ReadMedia { ids, max_bytes: MAX_HISTORY_MEDIA_BYTES };
                self.submit(request, Pending::MessageFiles { id, overview });
            }
            (Pending::MessageFiles { id, overview }, RegistryReply::Contents(read)) => {
                let ids = media_ids(&overview.history).into_iter();
                let contents = ids.zip(read).filter_map(|(id, bytes)| Some((id, bytes?))).collect();
                self.send_messages(id, &overview, &contents);
            }
            (Pending::SetModel { id, choice }, _) => {
                let model = choice.model.clone().unwrap_or_default();
                let old = std::mem::take(&mut self.params.new_session.choice);
                self.params.new_session.choice = AgentChoice { agent: choice.agent.or(old.agent), ..choice };
                self.send_response(id, "set_model", vec![("model", Value::String(model))]);
            }
            (Pending::Stats { id }, RegistryReply::Totals(totals)) => self.send_stats(id, totals),
            (Pending::State { id }, RegistryReply::Totals(totals)) => self.send_state(id, totals),
            // The events of the turn bring the rest.
            (Pending::Send, RegistryReply::Session(reply)) => {
                if let Some(turn) = &mut self.turn {
                    turn.on_accepted(reply);
                }
            }
            // The queued input started just before it should be removed from the queue.
            (Pending::Stop, RegistryReply::Session(SessionReply::Unqueued(runs))) if runs.is_empty() => {
                if let Some(turn) = &self.turn {
                    let stop = turn.stop_command_after_queue();
                    self.submit_to_session(stop, Pending::Stop);
                }
            }
            (Pending::Send | Pending::Stop, _) => {}
            (Pending::Steer { id } | Pending::StopOther { id }, _) => {
                self.send_response(id, command, vec![("ok", Value::Bool(true))])
            }
            (
                Pending::ReadFiles { prompt: Prompt { id, .. }, .. }
                | Pending::StoreFiles { prompt: Prompt { id, .. } }
                | Pending::Create { id }
                | Pending::Messages { id }
                | Pending::MessageFiles { id, .. }
                | Pending::Stats { id }
                | Pending::State { id },
                _,
            ) => self.fail_pending(now, id, command, "unexpected reply of the session registry"),
        }
    }

    fn on_refusal(&mut self, now: Instant, pending: Pending, refusal: &SessionRefusal) {
        let command = pending.command();
        let id = match pending {
            Pending::ReadFiles { prompt: Prompt { id, .. }, .. }
            | Pending::StoreFiles { prompt: Prompt { id, .. } }
            | Pending::Create { id }
            | Pending::Messages { id }
            | Pending::MessageFiles { id, .. }
            | Pending::SetModel { id, .. }
            | Pending::Steer { id }
            | Pending::Stats { id }
            | Pending::State { id } => id,
            // The turn has just ended, and its end is sent anyway.
            Pending::Stop => return,
            Pending::StopOther { id } => {
                return self.send_response(id, command, vec![("ok", Value::Bool(true))]);
            }
            // The turn never began.
            Pending::Send => match self.turn.take() {
                Some(turn) => turn.id,
                None => return,
            },
        };
        self.fail_pending(now, id, command, &code::refusal_text(refusal));
        self.close_when_idle();
    }

    /// Settles the pending command, which failed.
    fn fail_pending(&mut self, now: Instant, id: String, command: &str, message: &str) {
        let received = self.received.unwrap_or(now);
        self.fail(now, received, id, command, message);
    }

    fn send_messages(&mut self, id: String, overview: &SessionOverview, contents: &Contents) {
        let messages = history::messages(&overview.history, contents);
        self.send_response(id, "get_messages", vec![("messages", Value::Array(messages))]);
    }

    fn send_stats(&mut self, id: String, SessionTotals { messages, usage }: SessionTotals) {
        let cost = usage.cost_micros as f64 / 1_000_000.0;
        let body = vec![
            ("input_tokens", usage.input_tokens.into()),
            ("output_tokens", usage.output_tokens.into()),
            ("cost", cost.into()),
            ("message_count", messages.into()),
            ("model", self.params.model().into()),
            ("session_id", self.params.session.as_str().into()),
        ];
        self.send_response(id, "get_session_stats", body);
    }

    fn send_state(&mut self, id: String, totals: SessionTotals) {
        let body = vec![
            ("streaming", (self.turn.is_some() || self.other_turn.is_some()).into()),
            ("model", self.params.model().into()),
            ("session_id", self.params.session.as_str().into()),
            ("message_count", totals.messages.into()),
        ];
        self.send_response(id, "get_state", body);
    }

    fn request_totals(&mut self, pending: Pending) {
        self.submit(RegistryRequest::GetTotals(self.params.session.clone()), pending);
    }

    fn submit_to_session(&mut self, command: SessionCommand, pending: Pending) {
        self.submit(RegistryRequest::Session(self.params.session.clone(), command), pending);
    }
}
