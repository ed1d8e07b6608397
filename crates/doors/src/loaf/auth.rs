//! The `auth.*` and `onboarding.*` methods: keys and logins. Keys and tokens themselves are never sent to the client.

use parlor_vocab::{
    FrontendReply, FrontendRequest, LoginAccount, LoginMethod, LoginStep, SecretText, SessionRefusal,
};
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};

use super::MAX_LOGINS;
use super::code::{self, FrameError};
use super::machine::{LoafMachine, answer_error};
use super::params::Params;
use super::pending::{AfterSave, Pending, ReplyTo, Service};

/// The value of `api_key` that removes the key of the search service.
const SKIP: &str = "skip";

impl LoafMachine {
    pub(super) fn request_credentials(&mut self, reply_to: &ReplyTo) {
        self.out.submit(FrontendRequest::ListCredentials, Pending::Credentials(reply_to.clone()));
    }

    pub(super) fn on_credentials(
        &mut self,
        reply_to: &ReplyTo,
        answer: Result<FrontendReply, SessionRefusal>,
    ) {
        match answer {
            Ok(FrontendReply::Credentials(credentials)) => {
                self.state.credentials = credentials;
                let status = self.state.auth_status();
                let result = if reply_to.is_command_output {
                    json!({"auth_status": status, "hint": code::AUTH_HINT})
                } else {
                    status
                };
                self.out.send_result(reply_to, result);
            }
            other => self.out.send_error(&reply_to.id, &answer_error(other)),
        }
    }

    pub(super) fn connect_openai(
        &mut self,
        reply_to: &ReplyTo,
        params: Option<&RawValue>,
    ) -> Result<(), FrameError> {
        let params = Params::optional("auth.connect.openai", params)?;
        let method = match params.optional_text("mode")?.as_deref() {
            None | Some("auto") => LoginMethod::Auto,
            Some("device_code") => LoginMethod::Device,
            Some(_) => LoginMethod::Browser,
        };
        let originator = params.optional_text("originator")?;
        self.start_login(reply_to, "openai", method, originator)
    }

    pub(super) fn start_login(
        &mut self,
        reply_to: &ReplyTo,
        provider: &'static str,
        method: LoginMethod,
        originator: Option<String>,
    ) -> Result<(), FrameError> {
        if self.active_logins >= MAX_LOGINS {
            return Err(code::too_many_logins());
        }
        self.active_logins += 1;
        let mut payload = json!({"provider": provider});
        if self.out.extensions {
            payload["flow_type"] =
                Value::from(if method == LoginMethod::Device { "device_code" } else { "browser" });
        }
        self.out.send_event("auth.flow.started", &payload);
        let request = FrontendRequest::Login {
            provider: provider.to_owned(),
            method,
            originator,
            opens_browser: false,
        };
        self.out.submit(request, Pending::Login(reply_to.clone(), provider));
        Ok(())
    }

    pub(super) fn on_login_step(&mut self, provider: &str, step: &LoginStep) {
        match step {
            LoginStep::Url(url) => {
                self.out.send_event("auth.flow.url", &json!({"provider": provider, "url": url}))
            }
            LoginStep::Code { url, code, interval_seconds, expires_in_seconds } => {
                let mut payload = json!({
                    "provider": provider,
                    "verification_url": url,
                    "user_code": code,
                    "interval_seconds": interval_seconds,
                    "expires_in_seconds": expires_in_seconds,
                });
                if self.out.extensions {
                    payload["expires_in"] = Value::from(*expires_in_seconds);
                }
                self.out.send_event("auth.flow.device_code", &payload);
            }
        }
    }

    pub(super) fn on_logged_in(
        &mut self,
        reply_to: &ReplyTo,
        provider: &'static str,
        answer: Result<FrontendReply, SessionRefusal>,
    ) {
        self.active_logins -= 1;
        let (login, credentials) = match answer {
            Ok(FrontendReply::LoggedIn(Ok(done))) => done,
            Ok(FrontendReply::LoggedIn(Err(error))) => {
                return self.fail_login(reply_to, provider, &code::login_failed(provider, &error));
            }
            other => return self.fail_login(reply_to, provider, &answer_error(other)),
        };
        self.state.credentials = credentials;
        self.refresh_models();
        let result = if provider == "openai" {
            let method = if login.by_device { "device_code" } else { "browser" };
            let account = login.account.and_then(|account| account.id);
            json!({"provider": provider, "login_method": method, "account_id": account})
        } else {
            json!({"provider": provider, "profile": login.account.as_ref().map(profile)})
        };
        self.out.send_event("auth.flow.completed", &result);
        self.send_state_changed(&format!("auth_{provider}_connected"), None);
        self.out.send_result(reply_to, result);
    }

    fn fail_login(&mut self, reply_to: &ReplyTo, provider: &str, error: &FrameError) {
        self.out.send_event("auth.flow.failed", &json!({"provider": provider, "message": error.message()}));
        self.out.send_error(&reply_to.id, error);
    }

    pub(super) fn cancel_login(
        &mut self,
        reply_to: &ReplyTo,
        params: Option<&RawValue>,
    ) -> Result<(), FrameError> {
        let provider = login_provider("auth.cancel", params)?;
        self.out.submit(FrontendRequest::CancelLogin(provider.to_owned()), Pending::Cancel(reply_to.clone()));
        Ok(())
    }

    pub(super) fn on_cancelled(&mut self, reply_to: &ReplyTo, answer: Result<FrontendReply, SessionRefusal>) {
        match answer {
            Ok(FrontendReply::Cancelled(count)) => {
                self.out.send_result(reply_to, json!({"cancelled": count}))
            }
            other => self.out.send_error(&reply_to.id, &answer_error(other)),
        }
    }

    pub(super) fn log_out(
        &mut self,
        reply_to: &ReplyTo,
        params: Option<&RawValue>,
    ) -> Result<(), FrameError> {
        let provider = login_provider("auth.logout", params)?;
        self.out.submit(
            FrontendRequest::Logout(provider.to_owned()),
            Pending::Logout(reply_to.clone(), provider),
        );
        Ok(())
    }

    pub(super) fn on_logged_out(
        &mut self,
        reply_to: &ReplyTo,
        provider: &'static str,
        answer: Result<FrontendReply, SessionRefusal>,
    ) {
        match answer {
            Ok(FrontendReply::LoggedOut(existed, credentials)) => {
                self.state.credentials = credentials;
                self.refresh_models();
                if existed {
                    self.send_state_changed(&format!("auth_{provider}_disconnected"), None);
                }
                self.out.send_result(reply_to, json!({"provider": provider, "logged_out": existed}));
            }
            other => self.out.send_error(&reply_to.id, &answer_error(other)),
        }
    }

    pub(super) fn set_router_key(
        &mut self,
        reply_to: &ReplyTo,
        params: Option<&RawValue>,
    ) -> Result<(), FrameError> {
        let key = Params::required("auth.set.openrouter_key", params)?.text("api_key")?;
        self.set_key(reply_to, "openrouter", Some(key), Service::OpenRouter);
        Ok(())
    }

    pub(super) fn set_exa_key(
        &mut self,
        reply_to: &ReplyTo,
        params: Option<&RawValue>,
    ) -> Result<(), FrameError> {
        let key = Params::required("auth.set.exa_key", params)?.text("api_key")?;
        // A client tells its user that the search is available if this succeeds, whatever the result says.
        if !key.eq_ignore_ascii_case(SKIP) {
            return Err(code::no_search_tool());
        }
        self.set_key(reply_to, "exa", None, Service::Exa);
        Ok(())
    }

    fn set_key(&mut self, reply_to: &ReplyTo, service: &str, key: Option<String>, pending: Service) {
        let request = FrontendRequest::SetKey { service: service.to_owned(), key: key.map(SecretText) };
        self.out.submit(request, Pending::SetKey(reply_to.clone(), pending));
    }

    pub(super) fn on_key_set(
        &mut self,
        reply_to: &ReplyTo,
        service: Service,
        answer: Result<FrontendReply, SessionRefusal>,
    ) {
        let models = match answer {
            Ok(FrontendReply::KeySet { models }) => models,
            other => return self.out.send_error(&reply_to.id, &answer_error(other)),
        };
        let (name, reason) = match service {
            Service::OpenRouter => ("openrouter", "openrouter_key_updated"),
            Service::Exa => ("exa", "exa_key_skipped"),
        };
        self.state.credentials.keys.retain(|known| known != name);
        if service != Service::Exa {
            self.state.credentials.keys.push(name.to_owned());
        }
        self.send_state_changed(reason, None);
        let result = match service {
            Service::OpenRouter => {
                self.refresh_models();
                // The configured models; the server does not query OpenRouter's catalogue.
                json!({"configured": true, "model_count": models, "source": "fallback"})
            }
            Service::Exa => json!({"configured": false, "skipped": true}),
        };
        self.out.send_result(reply_to, result);
    }

    pub(super) fn complete_onboarding(&mut self, reply_to: &ReplyTo) {
        self.state.preferences.setup_done = true;
        let request = FrontendRequest::SavePreferences(self.state.preferences.clone());
        self.out.submit(request, Pending::SavePreferences(reply_to.clone(), AfterSave::Onboarded));
    }
}

/// The `provider` of a request about logins.
fn login_provider(method: &str, params: Option<&RawValue>) -> Result<&'static str, FrameError> {
    match Params::required(method, params)?.text("provider")?.as_str() {
        "openai" => Ok("openai"),
        "antigravity" => Ok("antigravity"),
        _ => Err(code::provider_without_login()),
    }
}

/// The profile of a logged-in account, as results show it.
pub(super) fn profile(account: &LoginAccount) -> Value {
    let text = |text: &Option<String>| Value::from(text.as_deref().unwrap_or_default());
    let mut profile = Map::from_iter([
        ("email".to_owned(), text(&account.email)),
        ("name".to_owned(), text(&account.name)),
    ]);
    if account.picture.is_some() {
        profile.insert("picture".to_owned(), text(&account.picture));
    }
    Value::Object(profile)
}
