//! `[policy]`: what agents may do.

use std::path::Path;
use std::time::Duration;

use parlor_engine::policy::{
    MAX_RULES, NetworkAccess, PolicySettings, QUESTION_TIMEOUT, Rule, RuleSource, WhenUnattended, describe,
};
use parlor_vocab::{PolicyMode, PolicyRule, RuleAction};

use super::read::Value;

/// The settings of `[policy]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PolicyConfig {
    pub(crate) mode: PolicyMode,
    when_unattended: WhenUnattended,
    pub(crate) network: NetworkAccess,
    /// The rules as they are written.
    rules: Vec<PolicyRule>,
    pub(crate) enforces_all: bool,
    question_timeout: Duration,
}

impl Default for PolicyConfig {
    fn default() -> Self {
        Self {
            mode: PolicyMode::default(),
            when_unattended: WhenUnattended::default(),
            network: NetworkAccess::default(),
            rules: Vec::new(),
            enforces_all: false,
            question_timeout: QUESTION_TIMEOUT,
        }
    }
}

impl PolicyConfig {
    /// Sets a setting by its name. The error says what is wrong with the value.
    pub(super) fn set(&mut self, member: &str, value: Value) -> Result<(), String> {
        match (member, value) {
            ("mode", Value::Text(mode)) => {
                self.mode = PolicyMode::parse(&mode).expect("the table lists the modes");
            }
            ("when_unattended", Value::Text(word)) => {
                let allows = word == "allow";
                self.when_unattended = if allows { WhenUnattended::Allow } else { WhenUnattended::Deny };
            }
            ("network", Value::Text(word)) => {
                self.network = match word.as_str() {
                    "none" => NetworkAccess::None,
                    "open" => NetworkAccess::Open,
                    _ => NetworkAccess::Rules,
                }
            }
            ("enforce_all", Value::Flag(all)) => self.enforces_all = all,
            ("question_timeout", Value::Seconds(seconds)) => {
                self.question_timeout = Duration::from_secs(seconds);
            }
            (action, Value::Rules(tables)) => {
                let action = RuleAction::parse(action).expect("the table lists the actions");
                let rules = tables.into_iter().map(|table| rule(action, table));
                self.rules.extend(rules.collect::<Result<Vec<_>, _>>()?);
                if self.rules.len() > MAX_RULES {
                    return Err(format!("there are more than {MAX_RULES} rules, which is the limit"));
                }
            }
            (member, _) => unreachable!("no code handles the setting {member}"),
        }
        Ok(())
    }

    /// The policy with its rules, whose `~` is `home`.
    pub(crate) fn settings(&self, home: Option<&Path>) -> Result<PolicySettings, String> {
        let rules = self.rules.iter().map(|rule| Rule::new(rule.clone(), RuleSource::Settings, home));
        Ok(PolicySettings {
            mode: self.mode,
            when_unattended: self.when_unattended,
            network: self.network,
            rules: rules.collect::<Result<_, _>>()?,
            enforces_all: self.enforces_all,
            question_timeout: self.question_timeout,
        })
    }

    /// The value of a setting, as TOML.
    pub(super) fn value(&self, member: &str) -> Option<String> {
        Some(match member {
            "mode" => format!("{:?}", self.mode.as_str()),
            "when_unattended" => match self.when_unattended {
                WhenUnattended::Deny => "\"deny\"".to_owned(),
                WhenUnattended::Allow => "\"allow\"".to_owned(),
            },
            "network" => match self.network {
                NetworkAccess::None => "\"none\"".to_owned(),
                NetworkAccess::Rules => "\"rules\"".to_owned(),
                NetworkAccess::Open => "\"open\"".to_owned(),
            },
            "enforce_all" => self.enforces_all.to_string(),
            "question_timeout" => self.question_timeout.as_secs().to_string(),
            action => {
                let action = RuleAction::parse(action)?;
                let of_action = self.rules.iter().filter(|rule| rule.action == action);
                let tables = of_action.map(|rule| {
                    describe(rule).split_once(' ').map_or_else(String::new, |(_, table)| table.to_owned())
                });
                format!("[{}]", tables.collect::<Vec<_>>().join(", "))
            }
        })
    }
}

/// A checked rule of a table with these members.
pub(crate) fn rule(action: RuleAction, table: Vec<(String, String)>) -> Result<PolicyRule, String> {
    let mut rule = PolicyRule::new(action);
    for (name, value) in table {
        match name.as_str() {
            "tool" => rule.tool = Some(value),
            "path" => rule.path = Some(value),
            "command" => rule.command = Some(value),
            "host" => rule.host = Some(value),
            other => {
                return Err(format!("a rule has no {other:?}; there are: tool, path, command, host"));
            }
        }
    }
    // The home folder does not decide whether a rule is valid.
    Rule::new(rule.clone(), RuleSource::Settings, Some(Path::new("/")))?;
    Ok(rule)
}
