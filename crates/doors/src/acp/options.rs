//! The configuration options of a session: which agent and model answer, how much the model reasons, and the policy's mode.

use agent_client_protocol_schema::v1::{
    SessionConfigKind, SessionConfigOption, SessionConfigOptionCategory, SessionConfigSelect,
    SessionConfigSelectOption, SessionConfigSelectOptions, SessionMode, SessionModeState,
};
use parlor_vocab::{AgentChoice, ModelOption, PolicyMode, Reasoning, SessionCommand};

use super::params::{AcpAgent, AcpParams};

/// The id of the option that chooses a model.
pub(super) const MODEL: &str = "model";
/// The id of the option that chooses the reasoning effort.
pub(super) const THOUGHT_LEVEL: &str = "thought_level";
/// The id of the option that chooses an agent.
pub(super) const AGENT: &str = "agent";
/// The id of the option that chooses the policy's mode.
pub(super) const MODE: &str = "mode";

/// What the options of a session depend on.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct OptionValues {
    pub(super) choice: AgentChoice,
    /// `None` until somebody chooses one.
    pub(super) mode: Option<PolicyMode>,
}

impl OptionValues {
    /// The values after `change`. `None` fields of an agent's choice stay as they were.
    pub(super) fn changed(&self, change: &OptionChange) -> Self {
        let Self { choice, mode } = self;
        match change {
            OptionChange::Agent(change) => {
                let choice = AgentChoice {
                    agent: change.agent.clone().or_else(|| choice.agent.clone()),
                    model: change.model.clone().or_else(|| choice.model.clone()),
                    reasoning: change.reasoning.or(choice.reasoning),
                };
                Self { choice, mode: *mode }
            }
            OptionChange::Mode(mode) => Self { choice: choice.clone(), mode: Some(*mode) },
        }
    }
}

/// A change of an option.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum OptionChange {
    Agent(AgentChoice),
    Mode(PolicyMode),
}

impl OptionChange {
    /// The command that makes the change.
    pub(super) fn command(&self) -> SessionCommand {
        match self {
            Self::Agent(choice) => SessionCommand::ChooseAgent(choice.clone()),
            Self::Mode(mode) => SessionCommand::ChooseMode(*mode),
        }
    }
}

/// The name of a mode, and what it lets an agent do.
fn describe_mode(mode: PolicyMode) -> (&'static str, &'static str) {
    match mode {
        PolicyMode::ReadOnly => ("Read only", "Changes no files; commands cannot write and reach no network"),
        PolicyMode::Workspace => {
            ("Workspace", "Commands write only the project and reach only the network that rules allow")
        }
        PolicyMode::Full => ("Full access", "Commands do what you can do"),
    }
}

/// The modes in the older form, for clients without options.
pub(super) fn modes(params: &AcpParams, values: &OptionValues) -> SessionModeState {
    let available = PolicyMode::ALL.map(|mode| {
        let (name, description) = describe_mode(mode);
        SessionMode::new(mode.as_str(), name).description(description.to_owned())
    });
    SessionModeState::new(values.mode.unwrap_or(params.mode).as_str(), available.to_vec())
}

/// The value of the reasoning effort that nobody chose.
const DEFAULT_LEVEL: &str = "default";

/// The reasoning efforts: value, name.
const LEVELS: [(&str, &str, Reasoning); 6] = [
    ("off", "Off", Reasoning::Off),
    ("low", "Low", Reasoning::Low),
    ("medium", "Medium", Reasoning::Medium),
    ("high", "High", Reasoning::High),
    ("xhigh", "Highest", Reasoning::Xhigh),
    ("adaptive", "The model decides", Reasoning::Adaptive),
];

/// The agent of a session with this choice.
pub(super) fn current_agent<'a>(params: &'a AcpParams, choice: &AgentChoice) -> Option<&'a AcpAgent> {
    let chosen = choice.agent.as_ref().and_then(|id| params.agents.iter().find(|agent| agent.id == *id));
    chosen.or(params.agents.first())
}

/// All options of a session with their values.
pub(super) fn options(params: &AcpParams, values: &OptionValues) -> Vec<SessionConfigOption> {
    let (mut options, choice) = (Vec::new(), &values.choice);
    let (mut models, current) = (model_values(&params.models), current_model(params, choice));
    let current = match current {
        Some(index) => models.get(index).map(|(value, _)| value.clone()).unwrap_or_default(),
        None => {
            // A model that no list has, such as one that another client named: every option has a value.
            let name = choice.model.clone().unwrap_or_else(|| "default".to_owned());
            models.insert(0, (name.clone(), SessionConfigSelectOption::new(name.clone(), name.clone())));
            name
        }
    };
    let models = models.into_iter().map(|(_, option)| option).collect();
    options.push(select(MODEL, "Model", SessionConfigOptionCategory::Model, &current, models));
    let agent = current_agent(params, choice);
    if agent.is_some_and(|agent| agent.uses_model) {
        let levels = LEVELS.map(|(value, name, _)| SessionConfigSelectOption::new(value, name));
        // A choice cannot be taken back, only replaced.
        let default = choice.reasoning.is_none();
        let default = default.then(|| SessionConfigSelectOption::new(DEFAULT_LEVEL, "Default"));
        let current = choice.reasoning.map_or(DEFAULT_LEVEL, level_value);
        let levels = default.into_iter().chain(levels).collect();
        let category = SessionConfigOptionCategory::ThoughtLevel;
        options.push(select(THOUGHT_LEVEL, "Reasoning", category, current, levels));
    }
    if let Some(agent) = agent.filter(|_| params.agents.len() > 1) {
        let agents = params.agents.iter();
        let agents =
            agents.map(|agent| SessionConfigSelectOption::new(agent.id.to_string(), agent.name.clone()));
        let category = SessionConfigOptionCategory::Other("_agent".to_owned());
        options.push(select(AGENT, "Agent", category, agent.id.as_str(), agents.collect()));
    }
    let modes = PolicyMode::ALL.map(|mode| {
        let (name, description) = describe_mode(mode);
        SessionConfigSelectOption::new(mode.as_str(), name).description(description.to_owned())
    });
    let mode = values.mode.unwrap_or(params.mode).as_str();
    options.push(select(MODE, "Mode", SessionConfigOptionCategory::Mode, mode, modes.to_vec()));
    options
}

fn select(
    id: &str,
    name: &str,
    category: SessionConfigOptionCategory,
    current: &str,
    values: Vec<SessionConfigSelectOption>,
) -> SessionConfigOption {
    let values = SessionConfigSelectOptions::Ungrouped(values);
    let kind = SessionConfigKind::Select(SessionConfigSelect::new(current.to_owned(), values));
    SessionConfigOption::new(id.to_owned(), name, kind).category(category)
}

fn level_value(level: Reasoning) -> &'static str {
    LEVELS.iter().find(|(_, _, known)| *known == level).map_or(DEFAULT_LEVEL, |(value, ..)| value)
}

/// The value and the option of each model. Two providers may have models of the same name, so a later one gets its
/// provider's name too.
fn model_values(models: &[ModelOption]) -> Vec<(String, SessionConfigSelectOption)> {
    let mut values: Vec<(String, SessionConfigSelectOption)> = Vec::with_capacity(models.len());
    let mut used = std::collections::HashSet::new();
    for (index, model) in models.iter().enumerate() {
        let mut value = model.id.clone();
        if !used.insert(value.clone()) {
            value = format!("{}/{}", model.provider, model.id);
            if !used.insert(value.clone()) {
                value = format!("{value}#{index}");
                used.insert(value.clone());
            }
        }
        let option = SessionConfigSelectOption::new(value.clone(), model.label.clone());
        let description = Some(model.description.clone()).filter(|text| !text.is_empty());
        values.push((value, option.description(description)));
    }
    values
}

/// The model of a session with this choice, as its place in the list.
fn current_model(params: &AcpParams, choice: &AgentChoice) -> Option<usize> {
    let agent = current_agent(params, choice).map(|agent| &agent.id);
    let position = |matches: &dyn Fn(&AgentChoice) -> bool| {
        params.models.iter().position(|option| matches(&option.choice))
    };
    let is_agent = |option: &AgentChoice| option.agent.as_ref() == agent;
    match &choice.model {
        Some(model) => position(&|option| is_agent(option) && option.model.as_ref() == Some(model))
            .or_else(|| position(&|option| option.model.as_ref() == Some(model)))
            .or_else(|| params.models.iter().position(|option| option.id == *model)),
        // The first entry of an agent stands for its own model.
        None => position(&is_agent),
    }
}

/// The window of the model that answers in a session with this choice, in tokens.
pub(super) fn context_window(params: &AcpParams, choice: &AgentChoice, model: Option<&str>) -> Option<u64> {
    let of_model = model.and_then(|model| params.models.iter().find(|option| option.id == *model));
    let of_model = of_model.and_then(|option| option.context_window);
    of_model.or_else(|| params.models.get(current_model(params, choice)?)?.context_window)
}

/// What choosing `value` for the option `id` changes in a session with this choice; `None` if there is no such option or
/// value.
pub(super) fn choose(
    params: &AcpParams,
    choice: &AgentChoice,
    id: &str,
    value: &str,
) -> Option<OptionChange> {
    if id == MODE {
        return PolicyMode::parse(value).map(OptionChange::Mode);
    }
    choose_agent(params, choice, id, value).map(OptionChange::Agent)
}

fn choose_agent(params: &AcpParams, choice: &AgentChoice, id: &str, value: &str) -> Option<AgentChoice> {
    match id {
        MODEL => {
            let index = model_values(&params.models).iter().position(|(known, _)| known == value)?;
            params.models.get(index).map(|option| option.choice.clone())
        }
        THOUGHT_LEVEL if value == DEFAULT_LEVEL && choice.reasoning.is_none() => Some(AgentChoice::default()),
        THOUGHT_LEVEL => {
            let (.., level) = LEVELS.iter().find(|(known, ..)| *known == value)?;
            Some(AgentChoice { reasoning: Some(*level), ..AgentChoice::default() })
        }
        AGENT => {
            let agent = params.agents.iter().find(|agent| agent.id.as_str() == value)?;
            // The agent's name stands for its own model: without it, the model of an earlier choice would stay.
            let model = Some(agent.id.to_string());
            Some(AgentChoice { agent: Some(agent.id.clone()), model, reasoning: None })
        }
        _ => None,
    }
}

#[cfg(test)]
pub(super) mod tests {
    use parlor_vocab::AgentId;
    use serde_json::{Value, json};

    use super::*;

    pub(in crate::acp) fn agent(id: &str, uses_model: bool) -> AcpAgent {
        AcpAgent {
            id: AgentId::parse(id).unwrap(),
            name: id.to_uppercase(),
            uses_model,
            commands: Vec::new(),
        }
    }

    fn model(id: &str, provider: &str, agent: &str, model: &str) -> ModelOption {
        ModelOption {
            id: id.to_owned(),
            provider: provider.to_owned(),
            provider_label: None,
            label: id.to_owned(),
            description: String::new(),
            context_window: Some(100),
            choice: AgentChoice {
                agent: AgentId::parse(agent).ok(),
                model: Some(model.to_owned()),
                reasoning: None,
            },
        }
    }

    pub(in crate::acp) fn params() -> AcpParams {
        AcpParams {
            folder: Some("/work".into()),
            models: vec![
                model("main", "p", "main", "main"),
                model("local", "p", "local", "local"),
                model("m", "p", "main", "m"),
                model("m", "q", "main", "m@q"),
            ],
            agents: vec![agent("main", true), agent("local", false)],
            mode: PolicyMode::Workspace,
            logins: Vec::new(),
            key_services: Vec::new(),
            has_screen: false,
            media_folder: "/media".into(),
            sends_usage: true,
            key_prefix: "k".to_owned(),
        }
    }

    fn shown(values: &OptionValues) -> Vec<(String, String)> {
        let options = serde_json::to_value(options(&params(), values)).unwrap();
        let text = |option: &Value, name: &str| option[name].as_str().unwrap().to_owned();
        options
            .as_array()
            .unwrap()
            .iter()
            .map(|option| (text(option, "id"), text(option, "currentValue")))
            .collect()
    }

    #[test]
    fn every_option_has_one_of_its_values() {
        let choices = [None, Some("m"), Some("m@q"), Some("unheard"), Some("local")];
        for model in choices {
            let choice = AgentChoice { model: model.map(str::to_owned), ..AgentChoice::default() };
            let values = OptionValues { choice, mode: None };
            for option in serde_json::to_value(options(&params(), &values)).unwrap().as_array().unwrap() {
                let values = option["options"].as_array().unwrap();
                assert!(values.iter().any(|value| value["value"] == option["currentValue"]), "{option}");
            }
        }
    }

    #[test]
    fn a_chosen_value_is_the_one_that_is_shown() {
        for (id, value) in [
            (MODEL, "m"),
            (MODEL, "q/m"),
            (MODEL, "local"),
            (THOUGHT_LEVEL, "high"),
            (THOUGHT_LEVEL, "adaptive"),
            (AGENT, "local"),
            (AGENT, "main"),
            (MODE, "read-only"),
            (MODE, "full"),
        ] {
            let before = OptionValues::default();
            let change = choose(&params(), &before.choice, id, value).expect("a known value");
            let after = before.changed(&change);
            assert!(shown(&after).contains(&(id.to_owned(), value.to_owned())), "{id} {value} {after:?}");
        }
        let before = AgentChoice::default();
        assert_eq!(choose(&params(), &before, MODEL, "x"), None);
        assert_eq!(choose(&params(), &before, "x", "m"), None);
        assert_eq!(choose(&params(), &before, MODE, "Full"), None);
        let unchanged = Some(OptionChange::Agent(before.clone()));
        assert_eq!(choose(&params(), &before, THOUGHT_LEVEL, "default"), unchanged);
        let high = AgentChoice { reasoning: Some(Reasoning::High), ..before };
        assert_eq!(choose(&params(), &high, THOUGHT_LEVEL, "default"), None);
    }

    #[test]
    fn an_agent_without_a_model_has_no_reasoning_effort() {
        let local = choose(&params(), &AgentChoice::default(), AGENT, "local").unwrap();
        let local = OptionValues::default().changed(&local);
        let ids: Vec<String> = shown(&local).into_iter().map(|(id, _)| id).collect();
        assert_eq!(ids, [MODEL, AGENT, MODE]);
        let options = serde_json::to_value(options(&params(), &local)).unwrap();
        let categories: Vec<&Value> =
            options.as_array().unwrap().iter().map(|option| &option["category"]).collect();
        assert_eq!(categories, [&json!("model"), &json!("_agent"), &json!("mode")]);
    }
}
