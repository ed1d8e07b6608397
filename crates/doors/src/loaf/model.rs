//! `model.*` and `limits.*`: which models there are, and which one is used.

use parlor_vocab::{FrontendReply, FrontendRequest, ModelOption, SessionRefusal};
use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::chat::SummaryFor;
use super::code::{self, FrameError};
use super::estimate::HIGH_PERCENT;
use super::machine::{LoafMachine, flaw_of};
use super::params::Params;
use super::pending::{AfterSave, Pending, To};
use super::state::{ANY_ROUTE, DEFAULT_LEVEL, LEVELS, PROVIDERS};

/// A choice that is being made.
#[derive(Debug)]
pub(super) struct Selecting {
    model: String,
    provider: &'static str,
    thinking: String,
    route: Option<String>,
    /// The session whose history is to be summarized along with it.
    compress: Option<String>,
    /// Whether the provider is another than before.
    is_switch: bool,
}

impl LoafMachine {
    pub(super) fn list_models(&mut self, to: &To, params: Option<&RawValue>) -> Result<(), FrameError> {
        let filter = Params::optional("model.list", params)?.maybe_text("provider")?;
        if let Some(filter) = &filter {
            provider_of(filter).ok_or_else(code::no_provider_to_list)?;
        }
        self.ask_models(to, filter);
        Ok(())
    }

    pub(super) fn ask_models(&mut self, to: &To, filter: Option<String>) {
        self.out.ask(FrontendRequest::ListModels, Pending::Models(to.clone(), filter));
    }

    pub(super) fn on_models(
        &mut self,
        to: &To,
        filter: Option<&str>,
        answer: Result<FrontendReply, SessionRefusal>,
    ) {
        match answer {
            Ok(FrontendReply::Models(offers)) => {
                self.state.offers = offers;
                let list = self.models(filter);
                let result = if to.is_output {
                    let mut selected = self.state.selected();
                    selected.insert("available".to_owned(), list);
                    Value::Object(selected)
                } else {
                    list
                };
                self.out.answer(to, result);
            }
            other => self.out.refuse(&to.id, &flaw_of(other)),
        }
    }

    /// The models, as they are listed.
    fn models(&self, filter: Option<&str>) -> Value {
        let listed: Vec<&str> = match filter {
            Some(filter) => vec![filter],
            None => self.state.enabled(),
        };
        let of = |provider: &str| {
            let offers = self.state.offers.iter().filter(move |offer| offer.provider == provider);
            offers.map(option).collect::<Vec<_>>()
        };
        let groups = PROVIDERS.into_iter().filter(|provider| listed.contains(provider));
        let models: Vec<Value> = groups.flat_map(of).collect();
        let mut list = self.state.selected();
        list.insert("providers".to_owned(), listed.into());
        list.insert("models".to_owned(), models.into());
        Value::Object(list)
    }

    /// Looks again at which models there are, since something changed that may change them.
    pub(super) fn refresh_models(&mut self) {
        self.out.ask(FrontendRequest::ListModels, Pending::Refresh);
    }

    pub(super) fn on_refreshed(&mut self, answer: Result<FrontendReply, SessionRefusal>) {
        if let Ok(FrontendReply::Models(offers)) = answer {
            self.state.offers = offers;
        }
    }

    pub(super) fn select_model(&mut self, to: &To, params: Option<&RawValue>) -> Result<(), FrameError> {
        let params = Params::needed("model.select", params)?;
        let model = params.text("model_id")?;
        let provider = params.text("provider")?;
        let provider = provider_of(&provider).ok_or_else(code::no_provider_to_choose)?;
        let thinking = params.text("thinking_level")?;
        let route = params.maybe_text("openrouter_provider")?;
        let session = params.maybe_text("session_id")?;
        let compress = if params.maybe_flag("compress_immediately")? {
            let session = session.ok_or_else(code::compression_without_session)?;
            self.chat(&session)?;
            Some(session)
        } else {
            None
        };
        let selecting = Selecting { model, provider, thinking, route, compress, is_switch: false };
        self.out.ask(FrontendRequest::ListModels, Pending::Select(to.clone(), Box::new(selecting)));
        Ok(())
    }

    pub(super) fn on_offers(
        &mut self,
        to: &To,
        mut selecting: Box<Selecting>,
        answer: Result<FrontendReply, SessionRefusal>,
    ) {
        match answer {
            Ok(FrontendReply::Models(offers)) => self.state.offers = offers,
            other => return self.out.refuse(&to.id, &flaw_of(other)),
        }
        let Selecting { model, provider, thinking, route, .. } = &*selecting;
        if self.state.find(provider, model).is_none() {
            return self.out.refuse(&to.id, &code::unknown_model(provider, model));
        }
        let is_switch = self.state.kept.provider != *provider;
        let is_known = LEVELS.contains(&thinking.as_str());
        let kept = &mut self.state.kept;
        kept.model.clone_from(model);
        kept.provider = (*provider).to_owned();
        kept.reasoning = if is_known { thinking.clone() } else { DEFAULT_LEVEL.to_owned() };
        if *provider == "openrouter" {
            kept.route = route.as_deref().map_or_else(|| ANY_ROUTE.to_owned(), str::to_lowercase);
        }
        let command = FrontendRequest::SavePreferences(kept.clone());
        selecting.is_switch = is_switch;
        self.out.ask(command, Pending::Kept(to.clone(), AfterSave::Selected(selecting)));
    }

    /// Goes on with what was to be remembered first.
    pub(super) fn on_kept(
        &mut self,
        to: &To,
        then: AfterSave,
        answer: Result<FrontendReply, SessionRefusal>,
    ) {
        if !matches!(answer, Ok(FrontendReply::Done)) {
            return self.out.refuse(&to.id, &flaw_of(answer));
        }
        match then {
            AfterSave::Onboarded => {
                self.changed("onboarding_complete", None);
                self.out.answer(to, json!({"completed": true}));
            }
            AfterSave::Resumed(saved) => {
                self.changed("session_resumed", None);
                self.out.answer(to, json!({"resumed": saved.as_str()}));
            }
            AfterSave::Selected(selecting) => {
                self.changed("model_selected", None);
                let answer = self.state.selected();
                let Selecting { compress, is_switch, .. } = *selecting;
                match compress {
                    None => self.out.answer(to, Value::Object(answer)),
                    Some(chat) => self.compress(to.clone(), &chat, SummaryFor::Choice { answer, is_switch }),
                }
            }
        }
    }

    pub(super) fn list_routes(&mut self, to: &To, params: Option<&RawValue>) -> Result<(), FrameError> {
        let model = Params::needed("model.openrouter.providers", params)?.text("model_id")?;
        if !self.state.has_key("openrouter") {
            return Err(code::no_router_key());
        }
        if model.contains('/') {
            self.out.ask(FrontendRequest::ListRoutes(model.clone()), Pending::Routes(to.clone(), model));
        } else {
            self.out.answer(to, json!({"model_id": model, "providers": []}));
        }
        Ok(())
    }

    pub(super) fn on_routes(&mut self, to: &To, model: &str, answer: Result<FrontendReply, SessionRefusal>) {
        match answer {
            Ok(FrontendReply::Routes(Ok(routes))) => {
                let mut routes: Vec<String> =
                    routes.iter().map(|route| route.to_lowercase().replace([' ', '_'], "-")).collect();
                routes.sort_unstable();
                routes.dedup();
                self.out.answer(to, json!({"model_id": model, "providers": routes}));
            }
            Ok(FrontendReply::Routes(Err(why))) => self.out.refuse(&to.id, &code::routes_unknown(&why)),
            other => self.out.refuse(&to.id, &flaw_of(other)),
        }
    }

    pub(super) fn tell_limits(&mut self, to: &To) -> Result<(), FrameError> {
        let of = |provider: &str| {
            let unknown = json!({"ok": false, "message": code::LIMITS_UNKNOWN});
            if self.state.has_login(provider) { unknown } else { Value::Null }
        };
        let (openai, antigravity) = (of("openai"), of("antigravity"));
        if openai.is_null() && antigravity.is_null() {
            return Err(code::no_limits());
        }
        self.out.answer(to, json!({"openai": openai, "antigravity": antigravity}));
        Ok(())
    }
}

/// The share of the window in use at which a conversation counts as large.
pub(super) fn high_watermark(window: u64) -> u64 {
    window * HIGH_PERCENT / 100
}

fn provider_of(name: &str) -> Option<&'static str> {
    PROVIDERS.into_iter().find(|provider| *provider == name)
}

/// A model, as lists tell it.
fn option(offer: &ModelOption) -> Value {
    let mut option = json!({
        "id": offer.id,
        "provider": offer.provider,
        "label": offer.label,
        "description": offer.description,
        "supportedThinkingLevels": LEVELS,
        "defaultThinkingLevel": DEFAULT_LEVEL,
    });
    if let Some(shown) = &offer.shown_provider {
        option["displayProvider"] = Value::from(shown.as_str());
    }
    if let Some(window) = offer.window {
        option["contextWindowTokens"] = Value::from(window);
    }
    option
}
