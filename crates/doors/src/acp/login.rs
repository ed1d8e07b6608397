//! `authenticate` and `logout`.
//!
//! The backend carries a login out. Where the client can open addresses, it is asked to; else this machine's browser
//! opens.

use std::time::Instant;

use agent_client_protocol_schema::v1::{
    AuthenticateRequest, AuthenticateResponse, CompleteElicitationNotification, CreateElicitationRequest,
    CreateElicitationResponse, ElicitationAction, ElicitationRequestScope, ElicitationUrlMode, Error,
    LogoutResponse, RequestId,
};
use parlor_vocab::{FrontendReply, FrontendRequest, LoginMethod, LoginStep, ModelLists};
use serde_json::value::RawValue;

use super::dispatch::decode;
use super::machine::{AcpMachine, Answer, AskedLogin, answer_error};
use super::pending::Pending;
use super::{MAX_LOGINS, code, encode};

impl AcpMachine {
    pub(super) fn authenticate(&mut self, id: &RequestId, params: Option<&RawValue>) -> Result<(), Error> {
        let request: AuthenticateRequest = decode(params)?;
        let method = &*request.method_id.0;
        let is_offered = self.gates.elicitation_url || self.params.has_screen;
        if !is_offered || !self.params.logins.iter().any(|provider| provider == method) {
            return Err(code::unknown_login(method));
        }
        if self.out.pending.values().filter_map(Pending::login).count() >= MAX_LOGINS {
            return Err(code::too_many_logins());
        }
        let request = FrontendRequest::Login {
            provider: method.to_owned(),
            method: LoginMethod::Auto,
            originator: None,
            opens_browser: !self.gates.elicitation_url,
        };
        self.out.submit(request, Pending::Login(id.clone(), method.to_owned()));
        Ok(())
    }

    /// Asks the client to open the provider's page.
    pub(super) fn on_login_step(&mut self, provider: &str, step: &LoginStep) {
        if !self.gates.elicitation_url {
            return;
        }
        let (url, message) = match step {
            LoginStep::Url(url) => (url, format!("Log in to {provider} in a browser.")),
            LoginStep::Code { url, code, .. } => {
                (url, format!("Log in to {provider}: enter the code {code} on this page."))
            }
        };
        // Logins to one provider share their steps, so each of them needs a request of its own.
        let logins: Vec<RequestId> = self
            .out
            .pending
            .values()
            .filter_map(Pending::login)
            .filter(|(_, of)| *of == provider)
            .map(|(id, _)| id.clone())
            .collect();
        for request in logins {
            if self.asked.values().any(|asked| asked.request == request) {
                continue;
            }
            self.next_asked += 1;
            let (number, elicitation) = (self.next_asked, format!("login-{}", self.next_asked));
            let scope = ElicitationRequestScope::new(request.clone());
            let mode = ElicitationUrlMode::new(scope, elicitation.clone(), url.clone());
            let asking = CreateElicitationRequest::new(mode, message.clone());
            self.out.send(encode::request(&RequestId::Number(number), "elicitation/create", &asking));
            self.asked.insert(number, AskedLogin { request, provider: provider.to_owned(), elicitation });
        }
    }

    /// The client's answer to a request of this door. One that makes no sense changes nothing.
    pub(super) fn on_response(&mut self, id: &RequestId, result: Option<&RawValue>) {
        let RequestId::Number(number) = id else { return };
        if self.on_permission(*number, result) {
            return;
        }
        let Some(asked) = self.asked.get(number) else { return };
        let response =
            result.and_then(|raw| serde_json::from_str::<CreateElicitationResponse>(raw.get()).ok());
        if !response.is_some_and(|response| matches!(response.action, ElicitationAction::Accept(_))) {
            // The user does not want to go on.
            let provider = asked.provider.clone();
            self.out.submit(FrontendRequest::CancelLogin(provider), Pending::Ignored);
        }
    }

    /// Cancels the login that `authenticate` with this id has begun. False if there is none.
    pub(super) fn cancel_login(&mut self, id: &RequestId) -> bool {
        let login = self.out.pending.values().filter_map(Pending::login).find(|(request, _)| *request == id);
        let Some(provider) = login.map(|(_, provider)| provider.to_owned()) else { return false };
        self.out.submit(FrontendRequest::CancelLogin(provider), Pending::Ignored);
        true
    }

    pub(super) fn on_logged_in(&mut self, id: &RequestId, provider: &str, answer: Answer) {
        let asked = self.asked.extract_if(|_, asked| asked.request == *id).map(|(_, asked)| asked);
        for asked in asked.collect::<Vec<_>>() {
            let complete = CompleteElicitationNotification::new(asked.elicitation);
            self.out.send(encode::notification("elicitation/complete", &complete));
        }
        match answer {
            Ok(FrontendReply::LoggedIn(Ok(_))) => {
                self.out.submit(FrontendRequest::ListModels(ModelLists::Cached), Pending::Models);
                self.out.result(id, &AuthenticateResponse::new());
            }
            Ok(FrontendReply::LoggedIn(Err(failure))) => {
                self.out.error(id, &code::login_failed(provider, &failure))
            }
            other => self.out.error(id, &answer_error(other)),
        }
    }

    /// The models that can be used after a login.
    pub(super) fn on_models(&mut self, now: Instant, answer: Answer) {
        let Ok(FrontendReply::Models(models)) = answer else { return };
        if models == self.params.models {
            return;
        }
        self.params.models = models;
        let ids: Vec<_> = self.sessions.keys().cloned().collect();
        for id in ids {
            self.with_session(now, &id, |session, context, effects| session.show_options(context, effects));
        }
    }

    pub(super) fn log_out(&mut self, id: &RequestId) -> Result<(), Error> {
        if self.params.logins.is_empty() {
            return Err(code::method_not_found("logout"));
        }
        self.log_out_next(id, self.params.logins.clone());
        Ok(())
    }

    fn log_out_next(&mut self, id: &RequestId, mut providers: Vec<String>) {
        match providers.pop() {
            Some(provider) => {
                self.out.submit(FrontendRequest::Logout(provider), Pending::Logout(id.clone(), providers))
            }
            None => {
                self.out.submit(FrontendRequest::ListModels(ModelLists::Cached), Pending::Models);
                self.out.result(id, &LogoutResponse::new());
            }
        }
    }

    pub(super) fn on_logged_out(&mut self, id: &RequestId, others: Vec<String>, answer: Answer) {
        match answer {
            Ok(FrontendReply::LoggedOut(..)) => self.log_out_next(id, others),
            other => self.out.error(id, &answer_error(other)),
        }
    }
}
