//! The `model.*` and `limits.*` methods: lists and selects models.

use parlor_vocab::{FrontendReply, FrontendRequest, ModelLists, ModelOption, SessionRefusal};
use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::chat::SummaryTrigger;
use super::code::{self, FrameError};
use super::estimate::HIGH_PERCENT;
use super::machine::{LoafMachine, answer_error};
use super::params::Params;
use super::pending::{AfterSave, Pending, ReplyTo};
use super::state::{ANY_ROUTE, DEFAULT_LEVEL, LEVELS, PROVIDERS};

/// A `model.select` that is being carried out.
#[derive(Debug)]
pub(super) struct ModelSelection {
    model: String,
    provider: &'static str,
    thinking: String,
    route: Option<String>,
    /// The session to summarize after the selection.
    compress: Option<String>,
    /// Whether the provider changes.
    is_switch: bool,
    /// Which lists were searched for the model.
    lists: ModelLists,
}

impl LoafMachine {
    pub(super) fn list_models(
        &mut self,
        reply_to: &ReplyTo,
        params: Option<&RawValue>,
    ) -> Result<(), FrameError> {
        let filter = Params::optional("model.list", params)?.optional_text("provider")?;
        if let Some(filter) = &filter {
            provider_of(filter).ok_or_else(code::unknown_listed_provider)?;
        }
        self.request_models(reply_to, filter);
        Ok(())
    }

    pub(super) fn request_models(&mut self, reply_to: &ReplyTo, filter: Option<String>) {
        let request = FrontendRequest::ListModels(ModelLists::Current);
        self.out.submit(request, Pending::Models(reply_to.clone(), filter));
    }

    pub(super) fn on_models(
        &mut self,
        reply_to: &ReplyTo,
        filter: Option<&str>,
        answer: Result<FrontendReply, SessionRefusal>,
    ) {
        match answer {
            Ok(FrontendReply::Models(models)) => {
                self.state.models = models;
                let list = self.models(filter);
                let result = if reply_to.is_command_output {
                    let mut selected = self.state.selection_json();
                    selected.insert("available".to_owned(), list);
                    Value::Object(selected)
                } else {
                    list
                };
                self.out.send_result(reply_to, result);
            }
            other => self.out.send_error(&reply_to.id, &answer_error(other)),
        }
    }

    /// The result of `model.list`.
    fn models(&self, filter: Option<&str>) -> Value {
        let listed: Vec<&str> = match filter {
            Some(filter) => vec![filter],
            None => self.state.enabled_providers(),
        };
        let models_of = |provider: &str| {
            let models = self.state.models.iter().filter(move |model| model.provider == provider);
            models.map(model_json).collect::<Vec<_>>()
        };
        let groups = PROVIDERS.into_iter().filter(|provider| listed.contains(provider));
        let models: Vec<Value> = groups.flat_map(models_of).collect();
        let mut list = self.state.selection_json();
        list.insert("providers".to_owned(), listed.into());
        list.insert("models".to_owned(), models.into());
        Value::Object(list)
    }

    /// Requests the models again, after a change that may add or remove some.
    pub(super) fn refresh_models(&mut self) {
        self.out.submit(FrontendRequest::ListModels(ModelLists::Cached), Pending::RefreshModels);
    }

    pub(super) fn on_refreshed(&mut self, answer: Result<FrontendReply, SessionRefusal>) {
        if let Ok(FrontendReply::Models(models)) = answer {
            self.state.models = models;
        }
    }

    pub(super) fn select_model(
        &mut self,
        reply_to: &ReplyTo,
        params: Option<&RawValue>,
    ) -> Result<(), FrameError> {
        let params = Params::required("model.select", params)?;
        let model = params.text("model_id")?;
        let provider = params.text("provider")?;
        let provider = provider_of(&provider).ok_or_else(code::unknown_selected_provider)?;
        let thinking = params.text("thinking_level")?;
        let route = params.optional_text("openrouter_provider")?;
        let session = params.optional_text("session_id")?;
        let compress = if params.optional_flag("compress_immediately")? {
            let session = session.ok_or_else(code::compression_without_session)?;
            self.chat(&session)?;
            Some(session)
        } else {
            None
        };
        // The providers are asked only for a model that is not known yet.
        let (is_switch, lists) = (false, ModelLists::Cached);
        let selection = ModelSelection { model, provider, thinking, route, compress, is_switch, lists };
        self.request_models_for_selection(reply_to, Box::new(selection));
        Ok(())
    }

    fn request_models_for_selection(&mut self, reply_to: &ReplyTo, selection: Box<ModelSelection>) {
        let request = FrontendRequest::ListModels(selection.lists);
        self.out.submit(request, Pending::ModelsForSelection(reply_to.clone(), selection));
    }

    pub(super) fn on_models_for_selection(
        &mut self,
        reply_to: &ReplyTo,
        mut selection: Box<ModelSelection>,
        answer: Result<FrontendReply, SessionRefusal>,
    ) {
        match answer {
            Ok(FrontendReply::Models(models)) => self.state.models = models,
            other => return self.out.send_error(&reply_to.id, &answer_error(other)),
        }
        let ModelSelection { model, provider, thinking, route, .. } = &*selection;
        if self.state.find_model(provider, model).is_none() {
            if selection.lists == ModelLists::Cached {
                selection.lists = ModelLists::Current;
                return self.request_models_for_selection(reply_to, selection);
            }
            return self.out.send_error(&reply_to.id, &code::unknown_model(provider, model));
        }
        let is_switch = self.state.preferences.provider != *provider;
        let is_known = LEVELS.contains(&thinking.as_str());
        let preferences = &mut self.state.preferences;
        preferences.model.clone_from(model);
        preferences.provider = (*provider).to_owned();
        preferences.reasoning = if is_known { thinking.clone() } else { DEFAULT_LEVEL.to_owned() };
        if *provider == "openrouter" {
            preferences.route = route.as_deref().map_or_else(|| ANY_ROUTE.to_owned(), str::to_lowercase);
        }
        let request = FrontendRequest::SavePreferences(preferences.clone());
        selection.is_switch = is_switch;
        self.out.submit(request, Pending::SavePreferences(reply_to.clone(), AfterSave::Selected(selection)));
    }

    /// Continues a request whose preferences are saved now.
    pub(super) fn on_preferences_saved(
        &mut self,
        reply_to: &ReplyTo,
        then: AfterSave,
        answer: Result<FrontendReply, SessionRefusal>,
    ) {
        if !matches!(answer, Ok(FrontendReply::Done)) {
            return self.out.send_error(&reply_to.id, &answer_error(answer));
        }
        match then {
            AfterSave::Onboarded => {
                self.send_state_changed("onboarding_complete", None);
                self.out.send_result(reply_to, json!({"completed": true}));
            }
            AfterSave::Resumed(saved) => {
                self.send_state_changed("session_resumed", None);
                self.out.send_result(reply_to, json!({"resumed": saved.as_str()}));
            }
            AfterSave::Selected(selection) => {
                self.send_state_changed("model_selected", None);
                let answer = self.state.selection_json();
                let ModelSelection { compress, is_switch, .. } = *selection;
                match compress {
                    None => self.out.send_result(reply_to, Value::Object(answer)),
                    Some(chat) => self.start_compression(
                        reply_to.clone(),
                        &chat,
                        SummaryTrigger::ModelSelection { answer, is_switch },
                    ),
                }
            }
        }
    }

    pub(super) fn list_routes(
        &mut self,
        reply_to: &ReplyTo,
        params: Option<&RawValue>,
    ) -> Result<(), FrameError> {
        let model = Params::required("model.openrouter.providers", params)?.text("model_id")?;
        if !self.state.has_key("openrouter") {
            return Err(code::no_router_key());
        }
        if model.contains('/') {
            self.out
                .submit(FrontendRequest::ListRoutes(model.clone()), Pending::Routes(reply_to.clone(), model));
        } else {
            self.out.send_result(reply_to, json!({"model_id": model, "providers": []}));
        }
        Ok(())
    }

    pub(super) fn on_routes(
        &mut self,
        reply_to: &ReplyTo,
        model: &str,
        answer: Result<FrontendReply, SessionRefusal>,
    ) {
        match answer {
            Ok(FrontendReply::Routes(Ok(routes))) => {
                let mut routes: Vec<String> =
                    routes.iter().map(|route| route.to_lowercase().replace([' ', '_'], "-")).collect();
                routes.sort_unstable();
                routes.dedup();
                self.out.send_result(reply_to, json!({"model_id": model, "providers": routes}));
            }
            Ok(FrontendReply::Routes(Err(reason))) => {
                self.out.send_error(&reply_to.id, &code::routes_unknown(&reason))
            }
            other => self.out.send_error(&reply_to.id, &answer_error(other)),
        }
    }

    pub(super) fn send_limits(&mut self, reply_to: &ReplyTo) -> Result<(), FrameError> {
        let limits_of = |provider: &str| {
            let unknown = json!({"ok": false, "message": code::LIMITS_UNKNOWN});
            if self.state.has_login(provider) { unknown } else { Value::Null }
        };
        let (openai, antigravity) = (limits_of("openai"), limits_of("antigravity"));
        if openai.is_null() && antigravity.is_null() {
            return Err(code::no_limits());
        }
        self.out.send_result(reply_to, json!({"openai": openai, "antigravity": antigravity}));
        Ok(())
    }
}

/// The tokens at which a conversation counts as large.
pub(super) fn high_watermark(window: u64) -> u64 {
    window * HIGH_PERCENT / 100
}

fn provider_of(name: &str) -> Option<&'static str> {
    PROVIDERS.into_iter().find(|provider| *provider == name)
}

/// A model in the result of `model.list`.
fn model_json(model: &ModelOption) -> Value {
    let mut json = json!({
        "id": model.id,
        "provider": model.provider,
        "label": model.label,
        "description": model.description,
        "supportedThinkingLevels": LEVELS,
        "defaultThinkingLevel": DEFAULT_LEVEL,
    });
    if let Some(display_provider) = &model.provider_label {
        json["displayProvider"] = Value::from(display_provider.as_str());
    }
    if let Some(window) = model.context_window {
        json["contextWindowTokens"] = Value::from(window);
    }
    json
}
