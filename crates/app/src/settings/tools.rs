//! `[tools]`: the variables and limits of processes that parlor starts for agents and clients.

use parlor_process::ChildLimits;

use super::read::Value;
use super::size;
use super::table::UNLIMITED;

/// The settings of `[tools]`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ToolsConfig {
    /// Names of variables that commands get in addition to the usual ones. A name that ends in `*` is a prefix.
    pub(crate) environment: Vec<String>,
    pub(crate) limits: ChildLimits,
}

impl ToolsConfig {
    /// Sets a setting by its name. The error says what is wrong with the value.
    pub(super) fn set(&mut self, member: &str, value: Value) -> Result<(), String> {
        match (member, value) {
            ("environment", Value::List(names)) => {
                let is_invalid = |name: &&String| {
                    let plain = name.strip_suffix('*').unwrap_or(name);
                    name.is_empty() || plain.contains(['*', '=', '\0'])
                };
                if let Some(name) = names.iter().find(is_invalid) {
                    return Err(format!(
                        "{name:?} is not the name of a variable; only its last character may be `*`"
                    ));
                }
                self.environment = names;
            }
            ("max_processes", Value::Limit(max)) => self.limits.processes = max,
            ("max_open_files", Value::Limit(max)) => self.limits.open_files = max,
            ("max_file_size", Value::Size(max)) => self.limits.file_bytes = max,
            ("min_free_disk", Value::Size(min)) => self.limits.free_disk_bytes = min,
            (member, _) => unreachable!("no code handles the setting {member}"),
        }
        Ok(())
    }

    /// The value of a setting, as TOML.
    pub(super) fn value(&self, member: &str) -> Option<String> {
        let size = |size: Option<u64>| format!("{:?}", size.map_or(UNLIMITED.to_owned(), size::exact));
        let limit = |max: Option<u64>| max.map_or(format!("{UNLIMITED:?}"), |max| max.to_string());
        Some(match member {
            "environment" => format!("{:?}", self.environment),
            "max_processes" => limit(self.limits.processes),
            "max_open_files" => limit(self.limits.open_files),
            "max_file_size" => size(self.limits.file_bytes),
            "min_free_disk" => size(self.limits.free_disk_bytes),
            _ => return None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variable_names_are_checked() {
        let set = |name: &str| {
            ToolsConfig::default().set("environment", Value::List(vec![name.to_owned()])).is_ok()
        };
        assert!(set("A") && set("A_*") && set("*"));
        assert!(!set("") && !set("A=b") && !set("*A") && !set("A*B"));
    }
}
