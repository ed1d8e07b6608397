//! The state that all sessions share: the selected model and the credentials.

use parlor_vocab::{AgentChoice, Credentials, ModelOption, Preferences, Reasoning};
use serde_json::{Map, Value, json};

use super::ServerParams;
use super::estimate;

/// The providers, in the order in which their models are listed.
pub(super) const PROVIDERS: [&str; 3] = ["openai", "antigravity", "openrouter"];

/// The reasoning levels.
pub(super) const LEVELS: [&str; 6] = ["OFF", "MINIMAL", "LOW", "MEDIUM", "HIGH", "XHIGH"];

/// The reasoning level if the client chooses none.
pub(super) const DEFAULT_LEVEL: &str = "HIGH";

/// The OpenRouter provider if the client chooses none.
pub(super) const ANY_ROUTE: &str = "any";

/// The state that all sessions share.
pub(super) struct State {
    pub(super) params: ServerParams,
    pub(super) preferences: Preferences,
    pub(super) credentials: Credentials,
    pub(super) models: Vec<ModelOption>,
    pub(super) super_debug: bool,
    /// The estimated tokens of the tool schemas: for most providers, and for Google.
    pub(super) tool_tokens: (usize, usize),
}

impl State {
    pub(super) fn new(params: ServerParams) -> Self {
        let mut state = Self {
            preferences: params.preferences.clone(),
            credentials: params.credentials.clone(),
            models: params.models.clone(),
            super_debug: false,
            tool_tokens: estimate::tool_tokens(&params.tools),
            params,
        };
        state.select_available_model();
        state
    }

    /// Selects the first model if the selected one does not exist, and replaces invalid preferences with defaults.
    pub(super) fn select_available_model(&mut self) {
        if self.selected_model().is_none()
            && let Some(first) = self.models.first()
        {
            (self.preferences.model, self.preferences.provider) = (first.id.clone(), first.provider.clone());
        }
        if !LEVELS.contains(&self.preferences.reasoning.as_str()) {
            self.preferences.reasoning = DEFAULT_LEVEL.to_owned();
        }
        if self.preferences.route.is_empty() {
            self.preferences.route = ANY_ROUTE.to_owned();
        }
    }

    /// The preferences of a new user.
    pub(super) fn default_preferences() -> Preferences {
        Preferences {
            model: String::new(),
            provider: String::new(),
            reasoning: DEFAULT_LEVEL.to_owned(),
            route: ANY_ROUTE.to_owned(),
            setup_done: false,
        }
    }

    /// The selected model; `None` if it does not exist any more.
    pub(super) fn selected_model(&self) -> Option<&ModelOption> {
        self.find_model(&self.preferences.provider, &self.preferences.model)
    }

    /// Whether the agent of the selected model has a command of this name.
    pub(super) fn agent_has_command(&self, name: &str) -> bool {
        let agent = self.selected_model().and_then(|model| model.choice.agent.as_ref());
        let commands = agent.and_then(|agent| self.params.agent_commands.get(agent));
        commands.is_some_and(|commands| commands.iter().any(|command| command == name))
    }

    pub(super) fn find_model(&self, provider: &str, id: &str) -> Option<&ModelOption> {
        self.models.iter().find(|model| model.provider == provider && model.id == id)
    }

    /// The provider of the selected model.
    pub(super) fn provider(&self) -> &str {
        &self.preferences.provider
    }

    /// The selected model and reasoning level, as the engine's choice for a session.
    pub(super) fn agent_choice(&self) -> Option<AgentChoice> {
        let reasoning = Some(match self.preferences.reasoning.as_str() {
            "OFF" => Reasoning::Off,
            "MINIMAL" | "LOW" => Reasoning::Low,
            "MEDIUM" => Reasoning::Medium,
            "XHIGH" => Reasoning::Xhigh,
            _ => Reasoning::High,
        });
        self.selected_model().map(|model| AgentChoice { reasoning, ..model.choice.clone() })
    }

    /// The model id, the provider and the reasoning level of a session's choice.
    pub(super) fn describe_choice(&self, choice: &AgentChoice) -> (String, String, &'static str) {
        let level = match choice.reasoning {
            Some(Reasoning::Off) => "OFF",
            Some(Reasoning::Low) => "LOW",
            Some(Reasoning::Medium) => "MEDIUM",
            Some(Reasoning::Xhigh) => "XHIGH",
            Some(Reasoning::High | Reasoning::Adaptive) | None => DEFAULT_LEVEL,
        };
        match self.model_of(choice).or_else(|| self.model_of_agent(choice)) {
            Some(model) => (model.id.clone(), model.provider.clone(), level),
            None => {
                let agent = choice.agent.as_ref().map(ToString::to_string);
                let name = choice.model.clone().or(agent).unwrap_or_default();
                (name, PROVIDERS[0].to_owned(), level)
            }
        }
    }

    /// The model that answers in a session whose own model does not exist any more: that of its agent, else the first.
    pub(super) fn replacement(&self, choice: &AgentChoice) -> Option<&ModelOption> {
        self.model_of_agent(choice).or(self.models.first())
    }

    fn model_of_agent(&self, choice: &AgentChoice) -> Option<&ModelOption> {
        let agent = choice.agent.as_ref()?;
        self.models.iter().find(|option| option.choice.agent.as_ref() == Some(agent))
    }

    /// The model of a session's choice; `None` if it does not exist any more.
    pub(super) fn model_of(&self, choice: &AgentChoice) -> Option<&ModelOption> {
        let AgentChoice { agent, model, .. } = choice;
        let all = || self.models.iter();
        let fits = |option: &&ModelOption| option.choice.agent == *agent && option.choice.model == *model;
        let name = model.as_deref().or(agent.as_ref().map(|agent| agent.as_str()));
        // A session may name an agent or a model alone; one without a choice uses the first model.
        let is_named = |option: &&ModelOption| {
            Some(option.id.as_str()) == name && (agent.is_none() || option.choice.agent == *agent)
        };
        let found = all().find(fits).or_else(|| all().find(is_named));
        found.or_else(|| all().next().filter(|_| agent.is_none() && model.is_none()))
    }

    /// The context window of the selected model, in tokens.
    pub(super) fn context_window(&self) -> u64 {
        match self.selected_model() {
            Some(model) => {
                estimate::window(model.context_window, [&model.id, &model.label, &model.description])
            }
            None => estimate::window(None, [&self.preferences.model, "", ""]),
        }
    }

    pub(super) fn has_login(&self, provider: &str) -> bool {
        self.credentials.providers.iter().any(|(known, _)| known == provider)
    }

    pub(super) fn has_key(&self, service: &str) -> bool {
        self.credentials.keys.iter().any(|known| known == service)
    }

    /// The providers that the user can use.
    pub(super) fn enabled_providers(&self) -> Vec<&'static str> {
        let has_models = |provider: &str| self.models.iter().any(|model| model.provider == provider);
        let is_enabled = |provider: &&str| match *provider {
            "antigravity" => self.has_login("antigravity"),
            "openrouter" => self.has_key("openrouter") || has_models("openrouter"),
            other => self.has_login(other) || has_models(other),
        };
        ["openai", "openrouter", "antigravity"].into_iter().filter(is_enabled).collect()
    }

    fn profile_json(&self) -> Value {
        let account = self.credentials.providers.iter().find(|(provider, _)| provider == "antigravity");
        account.and_then(|(_, account)| account.as_ref()).map_or(Value::Null, super::auth::profile)
    }

    /// The result of `auth.status`.
    pub(super) fn auth_status(&self) -> Value {
        json!({
            "enabled_providers": self.enabled_providers(),
            "has_openai_token": self.has_login("openai"),
            "has_openrouter_key": self.has_key("openrouter"),
            "has_antigravity_token": self.has_login("antigravity"),
            "antigravity_profile": self.profile_json(),
        })
    }

    /// The selected model, as members of several results.
    pub(super) fn selection_json(&self) -> Map<String, Value> {
        let provider = Some(self.provider()).filter(|provider| !provider.is_empty());
        let members = [
            ("selected_model", Value::from(self.preferences.model.as_str())),
            ("selected_provider", Value::from(provider)),
            ("selected_thinking", Value::from(self.preferences.reasoning.as_str())),
            ("selected_openrouter_provider", Value::from(self.preferences.route.as_str())),
        ];
        members.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
    }

    /// The snapshot in `state.get` and `state.changed`.
    pub(super) fn snapshot(&self, sessions: &[String]) -> Value {
        let provider = Some(self.provider()).filter(|provider| !provider.is_empty());
        json!({
            "auth": {
                "enabledProviders": self.enabled_providers(),
                "hasOpenAiToken": self.has_login("openai"),
                "hasOpenRouterKey": self.has_key("openrouter"),
                "hasAntigravityToken": self.has_login("antigravity"),
                "antigravityProfile": self.profile_json(),
            },
            "onboarding": {"completed": self.preferences.setup_done},
            "model": {
                "selectedModel": self.preferences.model,
                "selectedThinking": self.preferences.reasoning,
                "selectedOpenRouterProvider": self.preferences.route,
                "selectedProvider": provider,
            },
            "sessions": {"count": sessions.len(), "ids": sessions},
            "skills": {
                "count": self.params.skill_count,
                "directories": self.params.skill_folders.iter().map(|folder| folder.to_string_lossy()).collect::<Vec<_>>(),
            },
        })
    }
}
