//! `[models.NAME]`, `[default_models]`, `[spending]`, and the settings of agents with `kind = "model"`.

use std::collections::BTreeMap;
use std::time::Duration;

use parlor_model::provider::{ProviderKind, redacted_url};
use parlor_model::{Limits, MIN_CONTEXT_WINDOW, Price};
use parlor_vocab::Reasoning;
use url::Url;

use super::SettingsError;
use super::read::Value;
use super::table::UNLIMITED;
use crate::environment::looks_like_a_secret;

/// The levels of reasoning with their names in settings and flags.
pub(crate) const REASONING: [(&str, Reasoning); 6] = [
    ("off", Reasoning::Off),
    ("low", Reasoning::Low),
    ("medium", Reasoning::Medium),
    ("high", Reasoning::High),
    ("xhigh", Reasoning::Xhigh),
    ("adaptive", Reasoning::Adaptive),
];

/// The providers for which a key is enough to have a model, in the order of preference, each with its default model.
pub(crate) const BUILT_IN: [(ProviderKind, &str); 4] = [
    (ProviderKind::Anthropic, "claude-sonnet-5"),
    (ProviderKind::OpenAi, "gpt-5.6"),
    (ProviderKind::Gemini, "gemini-3.5-flash"),
    (ProviderKind::OpenRouter, "anthropic/claude-sonnet-5"),
];

/// The settings of one model.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ModelConfig {
    pub(crate) provider: ProviderKind,
    /// The provider's name for the model.
    pub(crate) model: String,
    /// The address of the server, if it is not the provider's own.
    pub(crate) base_url: Option<String>,
    /// The environment variable that holds the key, if it is not the provider's usual one.
    pub(crate) api_key_env: Option<String>,
    /// The name under which its key or login is stored, if it is not the provider's.
    pub(crate) auth: Option<String>,
    /// The context window, in tokens.
    pub(crate) context_window: Option<u64>,
    /// The largest number of tokens in one answer.
    pub(crate) max_output: Option<u64>,
    /// The level of reasoning unless another one is chosen.
    pub(crate) reasoning: Option<Reasoning>,
    /// Without a price, the cost of a run is unknown.
    pub(crate) price: Option<Price>,
    /// The providers to which OpenRouter routes requests, the preferred one first.
    pub(crate) routing: Vec<String>,
}

impl ModelConfig {
    /// A model with default settings.
    pub(crate) fn new(provider: ProviderKind, model: &str) -> Self {
        Self {
            provider,
            model: model.to_owned(),
            base_url: None,
            api_key_env: None,
            auth: None,
            context_window: None,
            max_output: None,
            reasoning: None,
            price: None,
            routing: Vec::new(),
        }
    }

    /// The environment variable that holds its key. `None` if the provider needs no key.
    pub(crate) fn key_variable(&self) -> Option<&str> {
        self.api_key_env.as_deref().or_else(|| self.provider.key_variable())
    }

    /// The value of a setting of `[models.NAME]`, as TOML. `None` if it is not set.
    pub(super) fn value(&self, member: &str) -> Option<String> {
        let quoted = |text: &str| format!("{text:?}");
        let dollars =
            |amount: fn(&Price) -> u64| self.price.as_ref().map(|price| money_as_toml(Some(amount(price))));
        match member {
            "provider" => Some(quoted(self.provider.name())),
            "model" => Some(quoted(&self.model)),
            "base_url" => self.base_url.as_deref().map(|url| quoted(&redacted_url(url))),
            "api_key_env" => self.api_key_env.as_deref().map(quoted),
            "auth" => self.auth.as_deref().map(quoted),
            "context_window" => self.context_window.map(|tokens| tokens.to_string()),
            "max_output" => self.max_output.map(|tokens| tokens.to_string()),
            "reasoning" => self.reasoning.map(|level| quoted(reasoning_name(level))),
            "price.input" => dollars(|price| price.input_micros),
            "price.output" => dollars(|price| price.output_micros),
            "price.cached_input" => dollars(|price| price.cached_input_micros),
            "routing" => (!self.routing.is_empty()).then(|| format!("{:?}", self.routing)),
            _ => None,
        }
    }
}

/// The settings of an agent with a model.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ModelAgentConfig {
    /// The name of its model in `[models]`.
    pub(crate) model: String,
    /// The models that are tried one after another if the first cannot answer.
    pub(crate) fallback: Vec<String>,
    /// The tools that it may use; `None` means all.
    pub(crate) tools: Option<Vec<String>>,
    /// The system prompt; `None` means parlor's own.
    pub(crate) system: Option<String>,
    /// The limits of one run. The limits of a session and a day are in [`SpendingConfig`].
    pub(crate) limits: Limits,
}

impl ModelAgentConfig {
    /// An agent with default settings.
    pub(crate) fn new(model: &str) -> Self {
        Self {
            model: model.to_owned(),
            fallback: Vec::new(),
            tools: None,
            system: None,
            limits: Limits::default(),
        }
    }

    /// Sets a setting of `[agents.NAME]`. False if it is not a setting of agents with models.
    pub(super) fn set(&mut self, member: &str, value: Value) -> bool {
        match (member, value) {
            ("model", Value::Text(model)) => self.model = model,
            ("fallback", Value::List(models)) => self.fallback = models,
            ("tools", Value::List(tools)) => self.tools = Some(tools),
            ("system", Value::Text(system)) => self.system = Some(system),
            ("max_steps", Value::Limit(steps)) => self.limits.steps = steps,
            ("max_tokens", Value::Limit(tokens)) => self.limits.tokens = tokens,
            ("max_cost", Value::Money(micros)) => self.limits.cost_micros = micros,
            ("max_seconds", Value::Limit(seconds)) => self.limits.time = seconds.map(Duration::from_secs),
            _ => return false,
        }
        true
    }

    /// The value of a setting of `[agents.NAME]`, as TOML. `None` if it is not set.
    pub(super) fn value(&self, member: &str) -> Option<String> {
        match member {
            "model" => Some(format!("{:?}", self.model)),
            "fallback" => (!self.fallback.is_empty()).then(|| format!("{:?}", self.fallback)),
            "tools" => self.tools.as_ref().map(|tools| format!("{tools:?}")),
            "system" => self.system.as_ref().map(|system| format!("{system:?}")),
            "max_steps" => Some(limit_as_toml(self.limits.steps)),
            "max_tokens" => Some(limit_as_toml(self.limits.tokens)),
            "max_cost" => Some(money_as_toml(self.limits.cost_micros)),
            "max_seconds" => Some(limit_as_toml(self.limits.time.map(|time| time.as_secs()))),
            _ => None,
        }
    }
}

/// The limits of cost, in millionths of a dollar. `None` means no limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct SpendingConfig {
    /// For one session.
    pub(crate) session: Option<u64>,
    /// For all sessions in one UTC day.
    pub(crate) day: Option<u64>,
}

/// The settings of models while the file is being read.
#[derive(Default)]
pub(super) struct ModelDrafts(BTreeMap<String, ModelDraft>);

struct ModelDraft {
    /// The line of its first setting.
    line: usize,
    provider: Option<ProviderKind>,
    /// For a million tokens of input, output and cached input, in millionths of a dollar.
    prices: [Option<u64>; 3],
    config: ModelConfig,
}

impl ModelDrafts {
    /// Sets a setting of `[models.NAME]`, or of its `price`.
    pub(super) fn set(&mut self, name: &str, member: &[&str], value: Value, line: usize) {
        let draft = self.0.entry(name.to_owned()).or_insert_with(|| ModelDraft {
            line,
            provider: None,
            prices: [None; 3],
            // `finish` replaces the provider and requires a model.
            config: ModelConfig::new(ProviderKind::OpenAi, ""),
        });
        let config = &mut draft.config;
        match (member, value) {
            (["provider"], Value::Text(name)) => draft.provider = ProviderKind::named(&name),
            (["model"], Value::Text(model)) => config.model = model,
            (["base_url"], Value::Text(url)) => config.base_url = Some(url),
            (["api_key_env"], Value::Text(name)) => config.api_key_env = Some(name),
            (["auth"], Value::Text(name)) => config.auth = Some(name),
            (["context_window"], Value::NumberOrDefault(tokens)) => config.context_window = tokens,
            (["max_output"], Value::NumberOrDefault(tokens)) => config.max_output = tokens,
            (["reasoning"], Value::Text(level)) => config.reasoning = reasoning(&level),
            (["routing"], Value::List(providers)) => config.routing = providers,
            (["price", "input"], Value::Money(micros)) => draft.prices[0] = micros,
            (["price", "output"], Value::Money(micros)) => draft.prices[1] = micros,
            (["price", "cached_input"], Value::Money(micros)) => draft.prices[2] = micros,
            (member, _) => unreachable!("no code handles the setting {member:?}"),
        }
    }

    /// Checks each model as a whole.
    pub(super) fn finish(self) -> Result<BTreeMap<String, ModelConfig>, SettingsError> {
        self.0.into_iter().map(|(name, draft)| Ok((name.clone(), draft.finish(&name)?))).collect()
    }
}

impl ModelDraft {
    fn finish(self, name: &str) -> Result<ModelConfig, SettingsError> {
        let error = |message: String| SettingsError::at(self.line, format!("models.{name} {message}"));
        let mut config = self.config;
        let Some(provider) = self.provider else {
            return Err(error("needs a provider: add provider = \"openai\" or another one".to_owned()));
        };
        config.provider = provider;
        if config.model.is_empty() {
            return Err(error("needs a model: add model = \"…\" with the provider's name for it".to_owned()));
        }
        if let Some(variable) = config.api_key_env.as_deref().filter(|name| !looks_like_a_secret(name)) {
            return Err(error(format!(
                "has api_key_env = {variable:?}, which commands of agents would see; give the variable a name with KEY \
                 in it"
            )));
        }
        if config.context_window.is_some_and(|tokens| tokens < MIN_CONTEXT_WINDOW) {
            return Err(error(format!("needs a context_window of {MIN_CONTEXT_WINDOW} tokens or more")));
        }
        if config.base_url.as_deref().is_some_and(|url| !is_http_address(url)) {
            // The message does not repeat the value: it may be a key, or contain a password.
            return Err(error(
                "has a base_url that is not an address such as http://127.0.0.1:8080/v1".to_owned(),
            ));
        }
        config.price = match self.prices {
            [None, None, None] => None,
            [Some(input_micros), Some(output_micros), cached] => Some(Price {
                input_micros,
                output_micros,
                cached_input_micros: cached.unwrap_or(input_micros),
            }),
            _ => return Err(error("has an incomplete price: set both input and output".to_owned())),
        };
        Ok(config)
    }
}

/// Whether the text is the HTTP address of a server.
pub(crate) fn is_http_address(url: &str) -> bool {
    let is_web = ["http://", "https://"].iter().any(|scheme| url.starts_with(scheme));
    // `Url::parse` would strip or encode white space, but parlor appends paths to the text itself.
    is_web && !url.contains(char::is_whitespace) && Url::parse(url).is_ok()
}

/// The level of reasoning with that name.
pub(crate) fn reasoning(name: &str) -> Option<Reasoning> {
    REASONING.into_iter().find(|(known, _)| *known == name).map(|(_, level)| level)
}

fn reasoning_name(level: Reasoning) -> &'static str {
    REASONING.into_iter().find(|(_, known)| *known == level).map_or("", |(name, _)| name)
}

fn limit_as_toml(limit: Option<u64>) -> String {
    limit.map_or(format!("{UNLIMITED:?}"), |limit| limit.to_string())
}

/// In dollars.
pub(super) fn money_as_toml(micros: Option<u64>) -> String {
    let dollars = |micros: u64| {
        let text = format!("{}.{:06}", micros / 1_000_000, micros % 1_000_000);
        let text = text.trim_end_matches('0');
        if text.ends_with('.') { format!("{text}0") } else { text.to_owned() }
    };
    micros.map_or(format!("{UNLIMITED:?}"), dollars)
}

#[cfg(test)]
mod tests {
    use super::super::{AgentKind, Config};
    use super::*;
    use std::path::Path;

    fn parse(text: &str) -> Result<Config, String> {
        Config::parse(Path::new("/home"), text).map_err(|error| error.to_string())
    }

    const FAST: &str = "[models.fast]\nprovider = \"openai\"\nmodel = \"m\"\n";

    #[test]
    fn all_settings_of_a_model_are_read() {
        let text = format!(
            "{FAST}base_url = \"http://127.0.0.1:1/v1\"\napi_key_env = \"MY_KEY\"\nauth = \"mine\"\ncontext_window = 8000\n\
             max_output = 100\nreasoning = \"low\"\nrouting = [\"a\"]\n\
             price = {{ input = 1, output = 4.5, cached_input = 0.1 }}\n"
        );
        let model = parse(&text).unwrap().models["fast"].clone();
        assert_eq!((model.provider, model.model.as_str()), (ProviderKind::OpenAi, "m"));
        assert_eq!((model.context_window, model.max_output), (Some(8000), Some(100)));
        assert_eq!(model.reasoning, Some(Reasoning::Low));
        let price = Price { input_micros: 1_000_000, output_micros: 4_500_000, cached_input_micros: 100_000 };
        assert_eq!(model.price, Some(price));
        assert_eq!((model.key_variable(), model.auth.as_deref()), (Some("MY_KEY"), Some("mine")));
    }

    #[test]
    fn errors_about_a_model_name_the_line() {
        let error = |text: &str| parse(text).unwrap_err();
        assert_eq!(
            error("[models.a]\nmodel = \"x\""),
            "line 2: models.a needs a provider: add provider = \"openai\" or another one"
        );
        assert!(error("[models.a]\nprovider = \"ollama\"").contains("needs a model"));
        assert!(error(&format!("{FAST}api_key_env = \"HOME\"")).contains("commands of agents would see"));
        assert!(error(&format!("{FAST}context_window = 100")).contains("4000 tokens or more"));
        for url in ["localhost:1", "http://", "http://a b/v1", "http://127.0.0.1:99999/v1", "ftp://a"] {
            let error = error(&format!("{FAST}base_url = \"{url}\""));
            assert!(error.contains("such as http://"), "{url}");
            assert!(!error.contains(&format!("{url:?}")), "it may be a key: {error}");
        }
        assert!(error(&format!("{FAST}price = {{ input = 1 }}")).contains("both input and output"));
        assert!(error("[models.a]\nprovider = \"opnai\"").contains("openai-responses"));
    }

    #[test]
    fn the_model_of_an_agent_must_exist() {
        let table = "[agents.main]\nkind = \"model\"\n";
        let text = format!(
            "{FAST}{table}model = \"fast\"\nfallback = [\"openai\"]\nmax_cost = \"unlimited\"\nmax_steps = 7"
        );
        let AgentKind::Model(agent) = parse(&text).unwrap().agents["main"].kind.clone() else { panic!() };
        assert_eq!((agent.model.as_str(), agent.fallback.len()), ("fast", 1));
        assert_eq!((agent.limits.cost_micros, agent.limits.steps), (None, Some(7)));
        assert!(parse(table).unwrap_err().contains("needs a model"));
        let unknown = parse(&format!("{table}model = \"fats\"")).unwrap_err();
        assert!(unknown.contains("\"fats\"") && unknown.contains("anthropic"), "{unknown}");
        assert!(parse("[agents.a]\nkind = \"local\"\nmodel = \"openai\"").unwrap_err().contains("only for"));
    }

    #[test]
    fn the_first_model_agent_of_the_file_is_the_default() {
        let text = "[agents.z]\nkind = \"model\"\nmodel = \"openai\"\n[agents.a]\nkind = \"model\"\nmodel = \"openai\"";
        assert_eq!(parse(text).unwrap().default_agent, "z");
        assert_eq!(parse(&format!("default_agent = \"local\"\n{text}")).unwrap().default_agent, "local");
    }

    #[test]
    fn a_key_adds_an_agent_unless_one_is_configured() {
        let keys = |provider| [ProviderKind::OpenAi, ProviderKind::Anthropic].contains(&provider);
        let config = parse("").unwrap().with_keys(keys);
        assert_eq!(config.default_agent, "anthropic");
        assert!(config.agents.contains_key("openai") && !config.agents.contains_key("gemini"));
        let text = format!("{FAST}[agents.main]\nkind = \"model\"\nmodel = \"fast\"");
        let config = parse(&text).unwrap().with_keys(keys);
        assert_eq!(config.default_agent, "main");
        assert!(!config.agents.contains_key("openai"));
        assert_eq!(parse("default_agent = \"local\"").unwrap().with_keys(keys).default_agent, "local");
        assert_eq!(parse("").unwrap().with_keys(|_| false), parse("").unwrap());
    }

    #[test]
    fn agents_for_future_keys_do_not_change_the_default() {
        let config = parse("").unwrap().with_keys(|_| false).with_all_providers();
        assert_eq!((config.default_agent.as_str(), config.agents.len()), ("local", 5));
        let config = parse("").unwrap().with_keys(|provider| provider == ProviderKind::Gemini);
        assert_eq!(config.with_all_providers().default_agent, "gemini");
        let text = format!("{FAST}[agents.main]\nkind = \"model\"\nmodel = \"fast\"");
        assert_eq!(parse(&text).unwrap().with_all_providers().agents.len(), 2);
    }

    #[test]
    fn built_in_models_can_be_changed() {
        let config = parse("default_models.openai = \"mine\"").unwrap();
        assert_eq!(config.models["openai"].model, "mine");
        let config = parse("[models.openai]\nprovider = \"ollama\"\nmodel = \"x\"").unwrap();
        assert_eq!(config.models["openai"].provider, ProviderKind::Ollama);
    }

    #[test]
    fn amounts_are_written_in_the_form_that_is_read() {
        for (micros, text) in [(0, "0.0"), (1_000_000, "1.0"), (4_500_000, "4.5"), (1, "0.000001")] {
            assert_eq!(money_as_toml(Some(micros)), text);
        }
        let config = parse("[spending]\nsession = 1.25\nday = 10").unwrap();
        assert_eq!(config.spending, SpendingConfig { session: Some(1_250_000), day: Some(10_000_000) });
    }
}
