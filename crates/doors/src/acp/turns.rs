//! The methods that make an agent work: prompts, their cancellation, steering, and the options.

use std::time::Instant;

use agent_client_protocol_schema::v1::{
    CancelNotification, CancelRequestNotification, ContentBlock, Error, Meta, PromptRequest, RequestId,
    SetSessionConfigOptionRequest, SetSessionConfigOptionResponse, SetSessionModeRequest, StopReason,
};
use parlor_vocab::{
    FrontendReply, RegistryReply, RegistryRequest, SessionCommand, SessionId, SessionRefusal, SessionReply,
    Traceparent, UserInput, WhenBusy,
};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use serde_json::value::RawValue;

use super::dispatch::decode;
use super::machine::{AcpMachine, Answer, answer_error, registry_reply};
use super::open_session::{Effect, OpenSession};
use super::options::{self, OptionChange};
use super::pending::{ChoiceAnswer, Pending, Steering};
use super::prompt::message;
use super::prompts::{Prompt, PromptStage, stop_request, with_media};
use super::{MAX_STEERING, code};

/// The parameters of the extension `_session/steering`.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct SteeringParams {
    session_id: String,
    prompt: Vec<ContentBlock>,
    #[serde(rename = "_meta")]
    meta: Option<Meta>,
}

/// The result of the extension `_session/steering`.
#[derive(Serialize)]
struct SteeringResult {
    outcome: &'static str,
}

/// The parameters of `session/set_model`, which version 1 had before it was stable.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct SetModelParams {
    session_id: String,
    model_id: String,
}

impl AcpMachine {
    pub(super) fn prompt(
        &mut self,
        now: Instant,
        id: &RequestId,
        params: Option<&RawValue>,
    ) -> Result<(), Error> {
        let request: PromptRequest = decode(params)?;
        let session = self.open_session(&request.session_id.0)?;
        let message = message(request.prompt)?;
        if let Some(open) = self.sessions.get(&session) {
            open.check_prompt()?;
        }
        let input = self.input(message.text, traceparent(request.meta.as_ref()));
        let key = input.key.clone().unwrap_or_default();
        let stage = PromptStage::Waiting { input, files: message.files };
        let prompt = Prompt { id: id.clone(), key, stage, is_cancelled: false, stopped_as_started: None };
        self.with_session(now, &session, |open, _, _| open.prompts.push_back(prompt));
        self.send_next(&session);
        Ok(())
    }

    /// Sends the prompts of a session that nothing has to wait for.
    pub(super) fn send_next(&mut self, session: &SessionId) {
        while let Some(open) = self.sessions.get_mut(session)
            && let Some(prompt) = open.next_to_send()
            && let PromptStage::Waiting { input, files } =
                std::mem::replace(&mut prompt.stage, PromptStage::Sent)
        {
            let key = prompt.key.clone();
            if files.is_empty() {
                self.send_input(session, key, input);
            } else {
                prompt.stage = PromptStage::Storing { input };
                let request = RegistryRequest::StoreMedia(files);
                self.out.registry(request, Pending::StoreMedia(session.clone(), key));
            }
        }
    }

    fn send_input(&mut self, session: &SessionId, key: String, input: UserInput) {
        let command = SessionCommand::Send { input, when_busy: WhenBusy::Enqueue };
        self.out.command(session, command, Pending::Send(session.clone(), key));
    }

    pub(super) fn on_media_stored(&mut self, now: Instant, session: &SessionId, key: &str, answer: Answer) {
        let stored = match registry_reply(answer) {
            Ok(RegistryReply::Stored(media)) => Ok(media),
            Ok(_) => Err(code::refused(&SessionRefusal::Internal)),
            Err(error) => Err(error),
        };
        let prompt = self.sessions.get_mut(session).and_then(|open| open.prompt(key));
        let waiting = prompt.filter(|prompt| !prompt.is_cancelled);
        match (stored, waiting) {
            (Ok(media), Some(prompt)) => {
                let stage = std::mem::replace(&mut prompt.stage, PromptStage::Sent);
                if let PromptStage::Storing { input } = stage {
                    self.send_input(session, key.to_owned(), with_media(input, media));
                }
            }
            (Ok(media), None) => {
                // The prompt was cancelled meanwhile.
                let ids = media.into_iter().map(|media| media.id).collect();
                self.out.registry(RegistryRequest::DiscardMedia(ids), Pending::Ignored);
            }
            (Err(error), _) => self.fail_prompt(now, session, key, error),
        }
        self.send_next(session);
    }

    pub(super) fn on_sent(&mut self, now: Instant, session: &SessionId, key: &str, answer: Answer) {
        let run = match registry_reply(answer) {
            Ok(RegistryReply::Session(SessionReply::Started(run))) => Ok((run, true)),
            Ok(RegistryReply::Session(SessionReply::Queued { run, .. })) => Ok((run, false)),
            Ok(_) => Err(code::refused(&SessionRefusal::Internal)),
            Err(error) => Err(error),
        };
        match run {
            Ok((run, has_started)) => {
                self.with_session(now, session, |open, _, _| open.accept(key, &run, has_started));
            }
            Err(error) => self.fail_prompt(now, session, key, error),
        }
    }

    /// Answers a prompt that will not run.
    fn fail_prompt(&mut self, now: Instant, session: &SessionId, key: &str, error: Error) {
        self.with_session(now, session, |open, _, effects| {
            let Some(index) = open.prompts.iter().position(|prompt| prompt.key == key) else { return };
            if let Some(prompt) = open.prompts.remove(index) {
                let answer = if prompt.is_cancelled { Ok(StopReason::Cancelled) } else { Err(error) };
                effects.push(Effect::Answer(prompt.id, answer));
            }
            open.answer_unsent(effects);
        });
    }

    pub(super) fn cancel_session(&mut self, now: Instant, params: Option<&RawValue>) {
        let Ok(request) = decode::<CancelNotification>(params) else { return };
        let Ok(session) = self.open_session(&request.session_id.0) else { return };
        let Some(open) = self.sessions.get(&session) else { return };
        if let Some(run) = open.active.as_ref().filter(|_| open.prompts.is_empty()) {
            // The editor shows the run of another client, and its user wants it to stop.
            let stop = stop_request(&session, run, true);
            return self.out.submit(stop, Pending::Ignored);
        }
        self.with_session(now, &session, |open, _, effects| open.cancel(None, effects));
    }

    pub(super) fn cancel_request(&mut self, now: Instant, params: Option<&RawValue>) {
        let Ok(request) = decode::<CancelRequestNotification>(params) else { return };
        let id = request.request_id;
        if self.cancel_login(&id) {
            return;
        }
        let has_prompt =
            |(_, open): &(&SessionId, &OpenSession)| open.prompts.iter().any(|prompt| prompt.id == id);
        let Some((session, _)) = self.sessions.iter().find(has_prompt) else { return };
        let session = session.clone();
        self.with_session(now, &session, |open, _, effects| open.cancel(Some(&id), effects));
        self.send_next(&session);
    }

    /// Adds a text to the active run.
    pub(super) fn steer(&mut self, id: &RequestId, params: Option<&RawValue>) -> Result<(), Error> {
        let params: SteeringParams = decode(params)?;
        let session = self.open_session(&params.session_id)?;
        let message = message(params.prompt)?;
        if !message.files.is_empty() {
            return Err(code::invalid_params("a running turn takes only text"));
        }
        let steering = params.meta.as_ref().and_then(|meta| meta.get("steering"));
        let idle = steering.and_then(|steering| steering.get("idleBehavior")).and_then(Value::as_str);
        let input = self.input(message.text, traceparent(params.meta.as_ref()));
        let key = input.key.clone().unwrap_or_default();
        if let Some(open) = self.sessions.get_mut(&session) {
            if open.steering.len() >= MAX_STEERING {
                return Err(code::too_many_prompts());
            }
            open.steering.insert(key.clone());
        }
        let otherwise = (idle != Some("promptRequired")).then(|| Box::new(input.clone()));
        let command = SessionCommand::Send { input, when_busy: WhenBusy::Steer };
        let pending = Steering { id: id.clone(), session: session.clone(), key, otherwise };
        self.out.command(&session, command, Pending::Steer(pending));
        Ok(())
    }

    pub(super) fn on_steered(&mut self, steering: Steering, answer: Answer) {
        let Steering { id, session, key, otherwise } = steering;
        let reply = match answer {
            Err(SessionRefusal::NoActiveRun) if otherwise.is_some() => {
                let Some(input) = otherwise else { return };
                let command = SessionCommand::Send { input: *input, when_busy: WhenBusy::Enqueue };
                let pending = Steering { id, session: session.clone(), key, otherwise: None };
                return self.out.command(&session, command, Pending::Steer(pending));
            }
            Ok(FrontendReply::Registry(RegistryReply::Session(reply))) => Some(reply),
            _ => None,
        };
        let outcome = match reply {
            Some(SessionReply::Steered(_)) => "injected",
            Some(SessionReply::Started(_) | SessionReply::Queued { .. }) => "startedNewTurn",
            _ => {
                if let Some(open) = self.sessions.get_mut(&session) {
                    open.steering.remove(&key);
                }
                "failed"
            }
        };
        self.out.result(&id, &SteeringResult { outcome });
    }

    pub(super) fn set_config_option(
        &mut self,
        id: &RequestId,
        params: Option<&RawValue>,
    ) -> Result<(), Error> {
        let request: SetSessionConfigOptionRequest = decode(params)?;
        let session = self.open_session(&request.session_id.0)?;
        let Some(value) = request.value.as_value_id() else {
            return Err(code::invalid_params("all options take the id of one of their values"));
        };
        self.choose(id, session, &request.config_id.0, &value.0, ChoiceAnswer::Options)
    }

    pub(super) fn set_mode(&mut self, id: &RequestId, params: Option<&RawValue>) -> Result<(), Error> {
        let request: SetSessionModeRequest = decode(params)?;
        let session = self.open_session(&request.session_id.0)?;
        self.choose(id, session, options::MODE, &request.mode_id.0, ChoiceAnswer::Empty)
    }

    pub(super) fn set_model(&mut self, id: &RequestId, params: Option<&RawValue>) -> Result<(), Error> {
        let request: SetModelParams = decode(params)?;
        let session = self.open_session(&request.session_id)?;
        self.choose(id, session, options::MODEL, &request.model_id, ChoiceAnswer::Empty)
    }

    fn choose(
        &mut self,
        id: &RequestId,
        session: SessionId,
        option: &str,
        value: &str,
        shape: ChoiceAnswer,
    ) -> Result<(), Error> {
        let Some(open) = self.sessions.get_mut(&session) else { return Ok(()) };
        let Some(change) = options::choose(&self.params, &open.options.choice, option, value) else {
            return Err(code::unknown_option(option, value));
        };
        open.pending_choices += 1;
        open.unseen_choices.push_back(change.clone());
        let command = change.command();
        let pending = Pending::Choose(id.clone(), session.clone(), change, shape);
        self.out.command(&session, command, pending);
        Ok(())
    }

    pub(super) fn on_chosen(
        &mut self,
        now: Instant,
        id: &RequestId,
        session: &SessionId,
        change: &OptionChange,
        shape: ChoiceAnswer,
        answer: Answer,
    ) {
        let Some(open) = self.sessions.get_mut(session) else {
            return self.out.error(id, &code::unknown_session(session.as_str()));
        };
        open.pending_choices -= 1;
        let is_changed = matches!(answer, Ok(FrontendReply::Registry(RegistryReply::Session(_))));
        if is_changed {
            open.options = open.options.changed(change);
            match shape {
                ChoiceAnswer::Options => {
                    let options = options::options(&self.params, &open.options);
                    self.out.result(id, &SetSessionConfigOptionResponse::new(options));
                }
                ChoiceAnswer::Empty => self.out.result(id, &serde_json::Map::new()),
            }
        } else {
            if let Some(index) = open.unseen_choices.iter().rposition(|unseen| unseen == change) {
                open.unseen_choices.remove(index);
            }
            self.out.error(id, &answer_error(answer));
        }
        self.with_session(now, session, |open, context, effects| {
            if open.pending_choices > 0 {
                return;
            }
            open.show_new_commands(context, effects);
            // The client may know the mode in the other form too.
            match (change, shape) {
                (OptionChange::Mode(_), ChoiceAnswer::Options) if is_changed => {
                    open.show_mode(context, effects);
                }
                (OptionChange::Mode(_), ChoiceAnswer::Empty) if is_changed => {
                    open.show_options(context, effects);
                }
                (OptionChange::Mode(_) | OptionChange::Agent(_), _) => {}
            }
        });
    }
}

/// The W3C trace context that the client gave a prompt.
fn traceparent(meta: Option<&Meta>) -> Option<String> {
    let text = meta?.get("traceparent")?.as_str()?;
    Traceparent::parse(text).map(|parsed| parsed.as_str().to_owned())
}
