//! What processes of agents and clients are given.

use parlor_process::ChildLimits;

use super::read::Value;
use super::size;
use super::table::UNLIMITED;

/// What processes of agents and clients are given.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ToolsConfig {
    /// Names of variables that commands get beside the usual ones; with `*` at their end, beginnings of names.
    pub(crate) environment: Vec<String>,
    /// How far they may go.
    pub(crate) limits: ChildLimits,
}

impl ToolsConfig {
    /// Takes a setting, or says why not.
    pub(super) fn set(&mut self, member: &str, value: Value) -> Result<(), String> {
        match (member, value) {
            ("environment", Value::List(names)) => {
                let is_wrong = |name: &&String| {
                    let plain = name.strip_suffix('*').unwrap_or(name);
                    name.is_empty() || plain.contains(['*', '=', '\0'])
                };
                if let Some(name) = names.iter().find(is_wrong) {
                    return Err(format!("{name:?} is no name of a variable; `*` may stand at its end"));
                }
                self.environment = names;
            }
            ("max_processes", Value::Limit(most)) => self.limits.processes = most,
            ("max_open_files", Value::Limit(most)) => self.limits.open_files = most,
            ("max_file_size", Value::Size(most)) => self.limits.file_bytes = most,
            (member, _) => unreachable!("{member} is in the table of settings and nobody takes it"),
        }
        Ok(())
    }

    /// What a setting is set to, as TOML.
    pub(super) fn value(&self, member: &str) -> Option<String> {
        let limit = |most: Option<u64>| most.map_or(format!("{UNLIMITED:?}"), |most| most.to_string());
        Some(match member {
            "environment" => format!("{:?}", self.environment),
            "max_processes" => limit(self.limits.processes),
            "max_open_files" => limit(self.limits.open_files),
            "max_file_size" => {
                format!("{:?}", self.limits.file_bytes.map_or(UNLIMITED.to_owned(), size::exact))
            }
            _ => return None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_variables_are_checked() {
        let set = |name: &str| {
            ToolsConfig::default().set("environment", Value::List(vec![name.to_owned()])).is_ok()
        };
        assert!(set("A") && set("A_*") && set("*"));
        assert!(!set("") && !set("A=b") && !set("*A") && !set("A*B"));
    }
}
