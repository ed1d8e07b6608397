//! Finds settings in the table by their paths.

use super::table::{Setting, settings};

/// Finds the setting with this path.
pub(crate) fn find(path: &[&str]) -> Option<&'static Setting> {
    settings().find(|setting| {
        let parts: Vec<&str> = setting.name.split('.').collect();
        parts.len() == path.len() && parts.iter().zip(path).all(|(part, name)| *part == "*" || part == name)
    })
}

/// The names of the settings and tables in the table with this path; `*` stands for a name that the user chooses. `None` if
/// there is no such table.
pub(crate) fn members(table: &[&str]) -> Option<Vec<&'static str>> {
    let mut members: Vec<&'static str> = settings()
        .filter_map(|setting| {
            let mut parts = setting.name.split('.');
            let is_inside =
                table.iter().all(|name| parts.next().is_some_and(|part| part == "*" || part == *name));
            is_inside.then(|| parts.next()).flatten()
        })
        .collect();
    members.dedup();
    (!members.is_empty()).then_some(members)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_setting_is_found_by_its_path() {
        assert_eq!(find(&["agents", "x", "kind"]).map(|setting| setting.name), Some("agents.*.kind"));
        assert!(find(&["agents", "x"]).is_none() && find(&["kind"]).is_none());
    }

    #[test]
    fn the_members_of_a_table_are_known() {
        let tables = [
            "acp",
            "agents",
            "auth",
            "channels",
            "cluster",
            "default_models",
            "exec",
            "log",
            "mcp",
            "models",
            "policy",
            "retention",
            "secrets",
            "serve",
            "sessions",
            "spending",
            "tools",
        ];
        assert_eq!(members(&[]), Some([&["default_agent"], &tables[..]].concat()));
        assert_eq!(members(&["agents"]), Some(vec!["*"]));
        assert_eq!(members(&["agents", "x"]).unwrap()[..4], ["kind", "name", "file", "commands"]);
        assert_eq!(members(&["nothing"]), None);
        assert_eq!(members(&["default_agent"]), None);
    }
}
