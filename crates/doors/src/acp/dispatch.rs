//! Routes the client's frames to their methods, and the backend's answers and events to their handlers.

use std::time::Instant;

use agent_client_protocol_schema::v1::{Error, RequestId};
use parlor_vocab::{FrontendEvent, RegistryEvent, RunEvent, RunId, SessionEvent, SessionUpdate};
use serde::de::DeserializeOwned;
use serde_json::value::RawValue;

use super::code;
use super::envelope::Envelope;
use super::machine::{AcpMachine, Answer};
use super::pending::Pending;

/// The methods that a client can call.
pub const METHODS: [&str; 16] = [
    "initialize",
    "authenticate",
    "logout",
    "session/new",
    "session/load",
    "session/resume",
    "session/list",
    "session/close",
    "session/delete",
    "session/prompt",
    "session/set_config_option",
    "session/set_mode",
    "session/set_model",
    "_session/steering",
    "session/cancel",
    "$/cancel_request",
];

impl AcpMachine {
    pub(super) fn on_frame(&mut self, now: Instant, frame: &[u8]) {
        match Envelope::decode(frame) {
            Ok(None) => {}
            Ok(Some(Envelope::Request { id, method, params })) => {
                if let Err(error) = self.on_request(now, &id, &method, params) {
                    self.out.error(&id, &error);
                }
            }
            Ok(Some(Envelope::Notification { method, params })) => self.on_notification(now, &method, params),
            Ok(Some(Envelope::Response { id, result })) => self.on_response(&id, result),
            Err(malformed) => {
                let (id, error) = *malformed;
                self.out.error(&id, &error);
            }
        }
    }

    fn on_request(
        &mut self,
        now: Instant,
        id: &RequestId,
        method: &str,
        params: Option<&RawValue>,
    ) -> Result<(), Error> {
        if method == "initialize" {
            return self.initialize(id, params);
        }
        if !self.is_initialized {
            return Err(code::not_initialized(method));
        }
        match method {
            "authenticate" => self.authenticate(id, params),
            "logout" => self.log_out(id),
            "session/new" => self.new_session(id, params),
            "session/load" => self.load_session(now, id, params),
            "session/resume" => self.resume_session(now, id, params),
            "session/list" => self.list_sessions(id, params),
            "session/close" => self.close_session(now, id, params),
            "session/delete" => self.delete_session(now, id, params),
            "session/prompt" => self.prompt(now, id, params),
            "session/set_config_option" => self.set_config_option(id, params),
            "session/set_mode" => self.set_mode(id, params),
            "session/set_model" => self.set_model(id, params),
            "_session/steering" => self.steer(id, params),
            other => Err(code::method_not_found(other)),
        }
    }

    /// An unknown notification, and one that does not make sense, is ignored: there is nobody to tell.
    fn on_notification(&mut self, now: Instant, method: &str, params: Option<&RawValue>) {
        if !self.is_initialized {
            return;
        }
        match method {
            "session/cancel" => self.cancel_session(now, params),
            "$/cancel_request" => self.cancel_request(now, params),
            _ => {}
        }
    }

    pub(super) fn on_answer(&mut self, now: Instant, pending: Pending, answer: Answer) {
        match pending {
            Pending::Ignored => {}
            Pending::CheckFolder(id, folder) => self.on_folder_checked(&id, folder, answer),
            Pending::Create(id, folder) => self.on_created(now, &id, folder, answer),
            Pending::Describe(existing) => self.on_described(now, existing, answer),
            Pending::UseServers(session, then) => self.on_servers_used(now, &session, then, answer),
            Pending::Watch(session) => self.on_watching(now, &session, answer),
            Pending::List(id) => self.on_listed(&id, answer),
            Pending::StoreMedia(session, key) => self.on_media_stored(now, &session, &key, answer),
            Pending::Send(session, key) => self.on_sent(now, &session, &key, answer),
            Pending::Steer(steering) => self.on_steered(steering, answer),
            Pending::Choose(id, session, change, shape) => {
                self.on_chosen(now, &id, &session, &change, shape, answer)
            }
            Pending::Release(id) => self.on_released(&id),
            Pending::Delete(deletion) => self.on_deleted(now, deletion, answer),
            Pending::Login(id, provider) => self.on_logged_in(&id, &provider, answer),
            Pending::Logout(id, others) => self.on_logged_out(&id, others, answer),
            Pending::Models => self.on_models(now, answer),
        }
    }

    pub(super) fn on_event(&mut self, now: Instant, event: &FrontendEvent) {
        match event {
            FrontendEvent::Registry(event) => self.on_registry_event(now, event),
            FrontendEvent::Login { provider, step } => self.on_login_step(provider, step),
            FrontendEvent::Ending(_) => {}
        }
    }

    fn on_registry_event(&mut self, now: Instant, RegistryEvent { session: id, update }: &RegistryEvent) {
        // Reports of a watch that another one is about to replace: that one begins at the start of the log.
        let is_stale = self.sessions.get(id).and_then(|session| session.opening.as_ref());
        if is_stale.is_some_and(|opening| opening.until.is_none()) {
            return;
        }
        if let SessionUpdate::Entry(entry) = update
            && let Some((run, key, has_started)) = accepted_input(&entry.event)
            && let Some(session) = self.sessions.get_mut(id)
        {
            session.accept(key, run, has_started);
        }
        self.with_session(now, id, |session, context, effects| session.on_update(context, update, effects));
        self.answer_opening(now, id);
        self.send_next(id);
    }
}

/// The run, the key and whether the run has started, if the event accepts an input of a client.
fn accepted_input(event: &SessionEvent) -> Option<(&RunId, &str, bool)> {
    if let SessionEvent::Queued(queued) = event {
        return Some((&queued.run, queued.input.key.as_deref()?, false));
    }
    let SessionEvent::Run { run, event: RunEvent::Started { parent: None, input, .. }, .. } = event else {
        return None;
    };
    Some((run, input.key.as_deref()?, true))
}

/// Decodes the parameters of a method.
pub(super) fn decode<T: DeserializeOwned>(params: Option<&RawValue>) -> Result<T, Error> {
    let text = params.map(RawValue::get).filter(|text| *text != "null").unwrap_or("{}");
    serde_json::from_str(text).map_err(|error| code::invalid_params(&error.to_string()))
}
