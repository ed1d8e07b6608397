//! `auth.*`: keys and logins. What a key or a token is, is never told here.

use parlor_vocab::{
    FrontendReply, FrontendRequest, LoginAccount, LoginMethod, LoginStep, SecretText, SessionRefusal,
};
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};

use super::MAX_LOGINS;
use super::code::{self, FrameError};
use super::machine::{LoafMachine, flaw_of};
use super::params::Params;
use super::pending::{AfterSave, Pending, Service, To};

/// The word that clears the key of the search.
const SKIP: &str = "skip";

impl LoafMachine {
    pub(super) fn ask_logins(&mut self, to: &To) {
        self.out.ask(FrontendRequest::ListCredentials, Pending::Logins(to.clone()));
    }

    pub(super) fn on_logins(&mut self, to: &To, answer: Result<FrontendReply, SessionRefusal>) {
        match answer {
            Ok(FrontendReply::Credentials(logins)) => {
                self.state.logins = logins;
                let status = self.state.auth_status();
                let result = if to.is_output {
                    json!({"auth_status": status, "hint": code::AUTH_HINT})
                } else {
                    status
                };
                self.out.answer(to, result);
            }
            other => self.out.refuse(&to.id, &flaw_of(other)),
        }
    }

    pub(super) fn connect_openai(&mut self, to: &To, params: Option<&RawValue>) -> Result<(), FrameError> {
        let params = Params::optional("auth.connect.openai", params)?;
        let way = match params.maybe_text("mode")?.as_deref() {
            None | Some("auto") => LoginMethod::Auto,
            Some("device_code") => LoginMethod::Device,
            Some(_) => LoginMethod::Browser,
        };
        let originator = params.maybe_text("originator")?;
        self.connect(to, "openai", way, originator)
    }

    pub(super) fn connect(
        &mut self,
        to: &To,
        provider: &'static str,
        way: LoginMethod,
        originator: Option<String>,
    ) -> Result<(), FrameError> {
        if self.logins >= MAX_LOGINS {
            return Err(code::too_many_logins());
        }
        self.logins += 1;
        let mut payload = json!({"provider": provider});
        if self.out.extensions {
            payload["flow_type"] =
                Value::from(if way == LoginMethod::Device { "device_code" } else { "browser" });
        }
        self.out.event("auth.flow.started", &payload);
        let command = FrontendRequest::Login { provider: provider.to_owned(), method: way, originator };
        self.out.ask(command, Pending::Login(to.clone(), provider));
        Ok(())
    }

    pub(super) fn on_login_step(&mut self, provider: &str, step: &LoginStep) {
        match step {
            LoginStep::Url(url) => {
                self.out.event("auth.flow.url", &json!({"provider": provider, "url": url}))
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
                self.out.event("auth.flow.device_code", &payload);
            }
        }
    }

    pub(super) fn on_logged_in(
        &mut self,
        to: &To,
        provider: &'static str,
        answer: Result<FrontendReply, SessionRefusal>,
    ) {
        self.logins -= 1;
        let (login, logins) = match answer {
            Ok(FrontendReply::LoggedIn(Ok(done))) => done,
            Ok(FrontendReply::LoggedIn(Err(flaw))) => {
                return self.login_failed(to, provider, &code::of_login(provider, &flaw));
            }
            other => return self.login_failed(to, provider, &flaw_of(other)),
        };
        self.state.logins = logins;
        self.refresh_models();
        let result = if provider == "openai" {
            let method = if login.by_device { "device_code" } else { "browser" };
            let account = login.account.and_then(|account| account.id);
            json!({"provider": provider, "login_method": method, "account_id": account})
        } else {
            json!({"provider": provider, "profile": login.account.as_ref().map(profile)})
        };
        self.out.event("auth.flow.completed", &result);
        self.changed(&format!("auth_{provider}_connected"), None);
        self.out.answer(to, result);
    }

    fn login_failed(&mut self, to: &To, provider: &str, flaw: &FrameError) {
        self.out.event("auth.flow.failed", &json!({"provider": provider, "message": flaw.message()}));
        self.out.refuse(&to.id, flaw);
    }

    pub(super) fn cancel_login(&mut self, to: &To, params: Option<&RawValue>) -> Result<(), FrameError> {
        let provider = login_provider("auth.cancel", params)?;
        self.out.ask(FrontendRequest::CancelLogin(provider.to_owned()), Pending::Cancel(to.clone()));
        Ok(())
    }

    pub(super) fn on_cancelled(&mut self, to: &To, answer: Result<FrontendReply, SessionRefusal>) {
        match answer {
            Ok(FrontendReply::Cancelled(count)) => self.out.answer(to, json!({"cancelled": count})),
            other => self.out.refuse(&to.id, &flaw_of(other)),
        }
    }

    pub(super) fn log_out(&mut self, to: &To, params: Option<&RawValue>) -> Result<(), FrameError> {
        let provider = login_provider("auth.logout", params)?;
        self.out.ask(FrontendRequest::Logout(provider.to_owned()), Pending::Logout(to.clone(), provider));
        Ok(())
    }

    pub(super) fn on_logged_out(
        &mut self,
        to: &To,
        provider: &'static str,
        answer: Result<FrontendReply, SessionRefusal>,
    ) {
        match answer {
            Ok(FrontendReply::LoggedOut(existed, logins)) => {
                self.state.logins = logins;
                self.refresh_models();
                if existed {
                    self.changed(&format!("auth_{provider}_disconnected"), None);
                }
                self.out.answer(to, json!({"provider": provider, "logged_out": existed}));
            }
            other => self.out.refuse(&to.id, &flaw_of(other)),
        }
    }

    pub(super) fn set_router_key(&mut self, to: &To, params: Option<&RawValue>) -> Result<(), FrameError> {
        let key = Params::needed("auth.set.openrouter_key", params)?.text("api_key")?;
        self.set_key(to, "openrouter", Some(key), Service::OpenRouter);
        Ok(())
    }

    pub(super) fn set_exa_key(&mut self, to: &To, params: Option<&RawValue>) -> Result<(), FrameError> {
        let key = Params::needed("auth.set.exa_key", params)?.text("api_key")?;
        let is_skipped = key.eq_ignore_ascii_case(SKIP);
        self.set_key(to, "exa", Some(key).filter(|_| !is_skipped), Service::Exa { is_skipped });
        Ok(())
    }

    fn set_key(&mut self, to: &To, service: &str, key: Option<String>, pending: Service) {
        let command = FrontendRequest::SetKey { service: service.to_owned(), key: key.map(SecretText) };
        self.out.ask(command, Pending::SetKey(to.clone(), pending));
    }

    pub(super) fn on_key_set(
        &mut self,
        to: &To,
        service: Service,
        answer: Result<FrontendReply, SessionRefusal>,
    ) {
        let models = match answer {
            Ok(FrontendReply::KeySet { models }) => models,
            other => return self.out.refuse(&to.id, &flaw_of(other)),
        };
        let (name, reason) = match service {
            Service::OpenRouter => ("openrouter", "openrouter_key_updated"),
            Service::Exa { is_skipped: false } => ("exa", "exa_key_updated"),
            Service::Exa { is_skipped: true } => ("exa", "exa_key_skipped"),
        };
        self.state.logins.keys.retain(|known| known != name);
        let is_set = service != Service::Exa { is_skipped: true };
        if is_set {
            self.state.logins.keys.push(name.to_owned());
        }
        self.changed(reason, None);
        let result = match service {
            Service::OpenRouter => {
                self.refresh_models();
                // Those that are configured: the router's catalogue is not asked for.
                json!({"configured": true, "model_count": models, "source": "fallback"})
            }
            Service::Exa { is_skipped } => json!({"configured": is_set, "skipped": is_skipped}),
        };
        self.out.answer(to, result);
    }

    pub(super) fn complete_onboarding(&mut self, to: &To) {
        self.state.kept.setup_done = true;
        let command = FrontendRequest::SavePreferences(self.state.kept.clone());
        self.out.ask(command, Pending::Kept(to.clone(), AfterSave::Onboarded));
    }
}

/// A provider that one can log in to.
fn login_provider(method: &str, params: Option<&RawValue>) -> Result<&'static str, FrameError> {
    match Params::needed(method, params)?.text("provider")?.as_str() {
        "openai" => Ok("openai"),
        "antigravity" => Ok("antigravity"),
        _ => Err(code::no_provider_to_log_in()),
    }
}

/// Whose login it is, as it is told.
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
