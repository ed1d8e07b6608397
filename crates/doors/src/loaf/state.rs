//! What all sessions share: the model in use, who is logged in, and the snapshot that tells of it.

use parlor_vocab::{AgentChoice, Credentials, ModelOption, Preferences, Reasoning};
use serde_json::{Map, Value, json};

use super::Server;
use super::estimate;

/// The three groups in which models are offered, in the order in which they are.
pub(super) const PROVIDERS: [&str; 3] = ["openai", "antigravity", "openrouter"];

/// How hard a model can be told to think.
pub(super) const LEVELS: [&str; 6] = ["OFF", "MINIMAL", "LOW", "MEDIUM", "HIGH", "XHIGH"];

/// How hard it thinks if nobody says anything else.
pub(super) const DEFAULT_LEVEL: &str = "HIGH";

/// The route where nobody chose one.
pub(super) const ANY_ROUTE: &str = "any";

/// What all sessions share.
pub(super) struct State {
    pub(super) server: Server,
    pub(super) kept: Preferences,
    pub(super) logins: Credentials,
    pub(super) offers: Vec<ModelOption>,
    pub(super) super_debug: bool,
    /// What the tools take of a model's window: usually, and at Google.
    pub(super) tool_tokens: (usize, usize),
}

impl State {
    pub(super) fn new(server: Server) -> Self {
        let mut state = Self {
            kept: server.kept.clone(),
            logins: server.logins.clone(),
            offers: server.offers.clone(),
            super_debug: false,
            tool_tokens: estimate::of_tools(&server.tools),
            server,
        };
        state.fall_back();
        state
    }

    /// Uses the first model that is offered, if the one that was chosen is not there.
    pub(super) fn fall_back(&mut self) {
        if self.offer().is_none()
            && let Some(first) = self.offers.first()
        {
            (self.kept.model, self.kept.provider) = (first.id.clone(), first.provider.clone());
        }
        if !LEVELS.contains(&self.kept.reasoning.as_str()) {
            self.kept.reasoning = DEFAULT_LEVEL.to_owned();
        }
        if self.kept.route.is_empty() {
            self.kept.route = ANY_ROUTE.to_owned();
        }
    }

    /// What was never chosen.
    pub(super) fn nothing_kept() -> Preferences {
        Preferences {
            model: String::new(),
            provider: String::new(),
            reasoning: DEFAULT_LEVEL.to_owned(),
            route: ANY_ROUTE.to_owned(),
            setup_done: false,
        }
    }

    /// The model in use, if it is there.
    pub(super) fn offer(&self) -> Option<&ModelOption> {
        self.find(&self.kept.provider, &self.kept.model)
    }

    pub(super) fn find(&self, provider: &str, id: &str) -> Option<&ModelOption> {
        self.offers.iter().find(|offer| offer.provider == provider && offer.id == id)
    }

    /// The provider of the model in use.
    pub(super) fn provider(&self) -> &str {
        &self.kept.provider
    }

    /// What a session chooses to be answered as is chosen here.
    pub(super) fn choice(&self) -> Option<AgentChoice> {
        let reasoning = Some(match self.kept.reasoning.as_str() {
            "OFF" => Reasoning::Off,
            "MINIMAL" | "LOW" => Reasoning::Low,
            "MEDIUM" => Reasoning::Medium,
            "XHIGH" => Reasoning::Xhigh,
            _ => Reasoning::High,
        });
        self.offer().map(|offer| AgentChoice { reasoning, ..offer.choice.clone() })
    }

    /// The model, its provider and the level that a session's choice means here.
    pub(super) fn meaning(&self, choice: &AgentChoice) -> (String, String, &'static str) {
        let level = match choice.reasoning {
            Some(Reasoning::Off) => "OFF",
            Some(Reasoning::Low) => "LOW",
            Some(Reasoning::Medium) => "MEDIUM",
            Some(Reasoning::Xhigh) => "XHIGH",
            Some(Reasoning::High | Reasoning::Adaptive) | None => DEFAULT_LEVEL,
        };
        let fits =
            |offer: &&ModelOption| offer.choice.agent == choice.agent && offer.choice.model == choice.model;
        let of_agent = |offer: &&ModelOption| choice.agent.is_some() && offer.choice.agent == choice.agent;
        let all = || self.offers.iter();
        let found = all().find(fits).or_else(|| all().find(of_agent));
        // Nobody chose: the first answers.
        let found =
            found.or_else(|| all().next().filter(|_| choice.agent.is_none() && choice.model.is_none()));
        match found {
            Some(offer) => (offer.id.clone(), offer.provider.clone(), level),
            None => {
                let agent = choice.agent.as_ref().map(ToString::to_string);
                let name = choice.model.clone().or(agent).unwrap_or_default();
                (name, PROVIDERS[0].to_owned(), level)
            }
        }
    }

    /// How much the model in use can read.
    pub(super) fn window(&self) -> u64 {
        match self.offer() {
            Some(offer) => estimate::window(offer.window, [&offer.id, &offer.label, &offer.description]),
            None => estimate::window(None, [&self.kept.model, "", ""]),
        }
    }

    pub(super) fn has_login(&self, provider: &str) -> bool {
        self.logins.providers.iter().any(|(known, _)| known == provider)
    }

    pub(super) fn has_key(&self, service: &str) -> bool {
        self.logins.keys.iter().any(|known| known == service)
    }

    /// The providers that can be used.
    pub(super) fn enabled(&self) -> Vec<&'static str> {
        let is_offered = |provider: &str| self.offers.iter().any(|offer| offer.provider == provider);
        let is_enabled = |provider: &&str| match *provider {
            "antigravity" => self.has_login("antigravity"),
            "openrouter" => self.has_key("openrouter") || is_offered("openrouter"),
            other => self.has_login(other) || is_offered(other),
        };
        ["openai", "openrouter", "antigravity"].into_iter().filter(is_enabled).collect()
    }

    fn profile(&self) -> Value {
        let account = self.logins.providers.iter().find(|(provider, _)| provider == "antigravity");
        account.and_then(|(_, account)| account.as_ref()).map_or(Value::Null, super::auth::profile)
    }

    /// Who is logged in, as `auth.status` tells it.
    pub(super) fn auth_status(&self) -> Value {
        json!({
            "enabled_providers": self.enabled(),
            "has_openai_token": self.has_login("openai"),
            "has_openrouter_key": self.has_key("openrouter"),
            "has_antigravity_token": self.has_login("antigravity"),
            "antigravity_profile": self.profile(),
        })
    }

    /// The model in use, as results tell it.
    pub(super) fn selected(&self) -> Map<String, Value> {
        let provider = Some(self.provider()).filter(|provider| !provider.is_empty());
        let members = [
            ("selected_model", Value::from(self.kept.model.as_str())),
            ("selected_provider", Value::from(provider)),
            ("selected_thinking", Value::from(self.kept.reasoning.as_str())),
            ("selected_openrouter_provider", Value::from(self.kept.route.as_str())),
        ];
        members.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
    }

    /// The whole, as `state.get` and `state.changed` tell it.
    pub(super) fn snapshot(&self, sessions: &[String]) -> Value {
        let provider = Some(self.provider()).filter(|provider| !provider.is_empty());
        json!({
            "auth": {
                "enabledProviders": self.enabled(),
                "hasOpenAiToken": self.has_login("openai"),
                "hasOpenRouterKey": self.has_key("openrouter"),
                "hasAntigravityToken": self.has_login("antigravity"),
                "antigravityProfile": self.profile(),
            },
            "onboarding": {"completed": self.kept.setup_done},
            "model": {
                "selectedModel": self.kept.model,
                "selectedThinking": self.kept.reasoning,
                "selectedOpenRouterProvider": self.kept.route,
                "selectedProvider": provider,
            },
            "sessions": {"count": sessions.len(), "ids": sessions},
            "skills": {
                "count": self.server.skills,
                "directories": self.server.skill_folders.iter().map(|folder| folder.to_string_lossy()).collect::<Vec<_>>(),
            },
        })
    }
}
