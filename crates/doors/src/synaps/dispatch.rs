//! What each command of the parent does.

use std::path::PathBuf;
use std::time::Instant;

use parlor_vocab::{
    AgentChoice, RegistryReply, RegistryRequest, Seq, SessionCommand, SessionOverview, SessionRefusal,
    UserInput, WhenBusy,
};
use serde_json::{Value, json};

use super::history::{self, Contents};
use super::machine::SynapsMachine;
use super::turn::Turn;
use super::wire::{RpcAttachment, RpcCommand};
use super::{DRAIN_WAIT, MAX_ATTACHMENT_BYTES, MAX_HISTORY_MEDIA_BYTES, attachment, code, encode};
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
    /// The session stops the turn.
    Stop,
    /// A session is created for `new_session`.
    Create { id: String },
    /// The session's history is read for `get_messages`.
    Messages { id: String },
    /// The files in the history are read for `get_messages`.
    MessageFiles { id: String, overview: Box<SessionOverview> },
    /// The session accepts the choice of `set_model`.
    SetModel { id: String, choice: AgentChoice },
    /// The session's overview is read for `get_session_stats`.
    Stats { id: String },
    /// The session's overview is read for `get_state`.
    State { id: String },
}

/// A `compact` command that is being carried out.
#[derive(Debug)]
pub(super) struct Compaction {
    pub(super) ticket: Ticket,
    pub(super) id: String,
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
        match command {
            RpcCommand::Prompt { id, message, attachments } => self.prompt(now, id, message, &attachments),
            RpcCommand::FollowUp { id, message } => self.prompt(now, id, message, &[]),
            RpcCommand::Compact { id } => self.compact(id),
            RpcCommand::NewSession { id } => self.create_session(id),
            RpcCommand::GetMessages { id } => self.request_overview(Pending::Messages { id }),
            RpcCommand::SetModel { id, model } => {
                let choice = self.params.choice(&model);
                let command = SessionCommand::ChooseAgent(choice.clone());
                self.submit_to_session(command, Pending::SetModel { id, choice });
            }
            RpcCommand::GetAvailableModels { id } => self.send_models(id),
            RpcCommand::Abort { id } => self.abort(id),
            RpcCommand::GetSessionStats { id } => self.request_overview(Pending::Stats { id }),
            RpcCommand::GetState { id } => self.request_overview(Pending::State { id }),
            RpcCommand::ToolsList { id } => self.send_tools(id.unwrap_or_default()),
            RpcCommand::Shutdown => self.shutdown(now),
        }
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

    fn begin_turn(&mut self, received: Instant, id: String, input: UserInput) {
        // Set before the request, because events of the turn may arrive before the answer.
        self.turn = Some(Turn::new(id, received));
        self.submit_to_session(SessionCommand::Send { input, when_busy: WhenBusy::Refuse }, Pending::Send);
    }

    fn compact(&mut self, id: String) {
        if self.is_busy() {
            return self.send_error(Some(id), code::BUSY);
        }
        let ticket = self.take_ticket();
        self.compaction = Some(Compaction { ticket, id, aborts: Vec::new() });
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
        let stop = SessionCommand::Stop { run: None, reason: None };
        if let Some(turn) = &mut self.turn {
            turn.aborts.push(id);
            return self.submit_to_session(stop, Pending::Stop);
        }
        if let Some(compaction) = &mut self.compaction {
            compaction.aborts.push(id);
            let ticket = self.take_ticket();
            let request = RegistryRequest::Session(self.params.session.clone(), stop);
            return self.outbox.push_back(Output::Request(ticket, request));
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
        pending: Pending,
        answer: Result<RegistryReply, SessionRefusal>,
    ) {
        let reply = match answer {
            Ok(reply) => reply,
            Err(refusal) => return self.on_refusal(pending, &refusal),
        };
        match (pending, reply) {
            (
                Pending::ReadFiles { prompt: Prompt { id, message, received }, paths },
                RegistryReply::Files(read),
            ) => match attachment::check(&paths, read) {
                Err(reason) => self.send_error(Some(id), reason),
                Ok(checked) => {
                    let message = attachment::prepend_names(&checked.omitted, message);
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
            (Pending::Stats { id }, RegistryReply::Overview(overview)) => self.send_stats(id, &overview),
            (Pending::State { id }, RegistryReply::Overview(overview)) => self.send_state(id, &overview),
            // The events of the turn bring the rest.
            (Pending::Send | Pending::Stop, _) => {}
            (
                Pending::ReadFiles { prompt: Prompt { id, .. }, .. }
                | Pending::StoreFiles { prompt: Prompt { id, .. } }
                | Pending::Create { id }
                | Pending::Messages { id }
                | Pending::MessageFiles { id, .. }
                | Pending::Stats { id }
                | Pending::State { id },
                _,
            ) => self.send_error(Some(id), "unexpected reply of the session registry"),
        }
    }

    fn on_refusal(&mut self, pending: Pending, refusal: &SessionRefusal) {
        let id = match pending {
            Pending::ReadFiles { prompt: Prompt { id, .. }, .. }
            | Pending::StoreFiles { prompt: Prompt { id, .. } }
            | Pending::Create { id }
            | Pending::Messages { id }
            | Pending::MessageFiles { id, .. }
            | Pending::SetModel { id, .. }
            | Pending::Stats { id }
            | Pending::State { id } => id,
            // The turn has just ended, and its end is sent anyway.
            Pending::Stop => return,
            // The turn never began.
            Pending::Send => match self.turn.take() {
                Some(turn) => turn.id,
                None => return,
            },
        };
        self.send_error(Some(id), &code::refusal_text(refusal));
        self.close_when_idle();
    }

    fn send_messages(&mut self, id: String, overview: &SessionOverview, contents: &Contents) {
        let messages = history::messages(&overview.history, contents);
        self.send_response(id, "get_messages", vec![("messages", Value::Array(messages))]);
    }

    fn send_stats(&mut self, id: String, overview: &SessionOverview) {
        let cost = overview.usage.cost_micros as f64 / 1_000_000.0;
        let body = vec![
            ("input_tokens", overview.usage.input_tokens.into()),
            ("output_tokens", overview.usage.output_tokens.into()),
            ("cost", cost.into()),
            ("message_count", history::count(&overview.history).into()),
            ("model", self.params.model().into()),
            ("session_id", self.params.session.as_str().into()),
        ];
        self.send_response(id, "get_session_stats", body);
    }

    fn send_state(&mut self, id: String, overview: &SessionOverview) {
        let body = vec![
            ("streaming", self.turn.is_some().into()),
            ("model", self.params.model().into()),
            ("session_id", self.params.session.as_str().into()),
            ("message_count", history::count(&overview.history).into()),
        ];
        self.send_response(id, "get_state", body);
    }

    fn request_overview(&mut self, pending: Pending) {
        self.submit(RegistryRequest::GetOverview(self.params.session.clone()), pending);
    }

    fn submit_to_session(&mut self, command: SessionCommand, pending: Pending) {
        self.submit(RegistryRequest::Session(self.params.session.clone(), command), pending);
    }
}
