//! `parlor.toml` without its tokens and passwords, for a backup.

use std::io::ErrorKind;
use std::path::Path;

use anyhow::Context;
use url::Url;

use super::read::{Assignment, FileSettings, Value, read};
use super::{FILE, read_text};

/// Words in the names of settings whose values are secrets.
const SECRET_WORDS: [&str; 4] = ["token", "secret", "password", "key"];

/// Endings of names of settings that only say where a secret or something else is.
const REFERENCES: [&str; 3] = ["_env", "_file", "_url"];

/// Tables whose values may be secrets.
const SECRET_TABLES: [&str; 2] = ["headers", "env"];

/// What is in a settings file.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Found {
    NoFile,
    NoSecrets,
    /// The text without the lines of the settings `names`.
    Removed {
        text: String,
        names: Vec<String>,
    },
    /// The settings `names` have secrets and share their lines with other settings.
    Inseparable {
        names: Vec<String>,
    },
}

/// Reads the settings of the state folder `home`, which must be valid.
pub(crate) fn from_file(home: &Path) -> anyhow::Result<Found> {
    let file = home.join(FILE);
    match read_text(&file) {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(Found::NoFile),
        text => Ok(from_text(&text.with_context(|| format!("cannot read {}", file.display()))?)),
    }
}

fn from_text(text: &str) -> Found {
    // Invalid settings were refused before.
    let FileSettings { assignments, unknown, .. } = read(text).unwrap_or_default();
    if !unknown.is_empty() {
        return Found::Inseparable { names: vec!["a setting that this parlor does not know".to_owned()] };
    }
    // A server without its address would not be valid, so such a server is taken out as a whole.
    let server = |assignment: &Assignment| match assignment.path.as_slice() {
        [table, name, ..] if table == "mcp" => Some(name.clone()),
        _ => None,
    };
    let secret_servers: Vec<String> = assignments
        .iter()
        .filter(|assignment| {
            is_secret(assignment) && assignment.path.last().is_some_and(|name| name == "url")
        })
        .filter_map(server)
        .collect();
    let is_removed = |assignment: &Assignment| {
        is_secret(assignment) || server(assignment).is_some_and(|name| secret_servers.contains(&name))
    };
    let (secrets, others): (Vec<Assignment>, Vec<Assignment>) = assignments.into_iter().partition(is_removed);
    if secrets.is_empty() {
        return Found::NoSecrets;
    }
    let mut names: Vec<String> = secrets.iter().map(|secret| secret.path.join(".")).collect();
    names.dedup();
    let kept = |(index, line): (usize, &str)| {
        let is_removed = secrets.iter().any(|secret| secret.line == index + 1);
        if is_removed {
            "# parlor backup has left out a secret here\n".to_owned()
        } else {
            format!("{line}\n")
        }
    };
    let text: String = text.lines().enumerate().map(kept).collect();
    // A value of several lines, or several settings on one line: then the rest would be another file, or have a part of
    // the value in a comment.
    let is_left = |secret: &Assignment| {
        let Value::Text(value) = &secret.value else { return false };
        value.lines().map(str::trim).any(|line| !line.is_empty() && text.contains(line))
    };
    match read(&text) {
        Ok(left) if left.assignments == others && !secrets.iter().any(is_left) => {
            Found::Removed { text, names }
        }
        Ok(_) | Err(_) => Found::Inseparable { names },
    }
}

fn is_secret(assignment: &Assignment) -> bool {
    let Value::Text(value) = &assignment.value else { return false };
    let name = assignment.path.last().map_or("", String::as_str);
    let is_reference = REFERENCES.iter().any(|ending| name.ends_with(ending));
    let is_named_so = SECRET_WORDS.iter().any(|word| name.contains(word)) && !is_reference;
    let is_in_secret_table = assignment.path.iter().any(|table| SECRET_TABLES.contains(&table.as_str()));
    // The query of the address of an MCP server often is its key.
    let is_mcp_address = name == "url" && assignment.path.first().is_some_and(|table| table == "mcp");
    let is_secret_address = |url: Url| {
        url.password().is_some() || (is_mcp_address && (url.query().is_some() || !url.username().is_empty()))
    };
    is_named_so || is_in_secret_table || Url::parse(value).is_ok_and(is_secret_address)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_with_secrets_are_taken_out() {
        let text = "# mine\n[channels.supr]\ntoken = \"s3cret\"\nenabled = true\n[log]\n\
                    url = \"postgres://me:s3cret@db/x\"\n[models.a]\nprovider = \"openai\"\nmodel = \"m\"\n\
                    base_url = \"http://me:s3cret@127.0.0.1/\"\napi_key_env = \"MY_KEY\"\n";
        let Found::Removed { text, names } = from_text(text) else { panic!("nothing was removed") };
        assert!(!text.contains("s3cret"), "{text}");
        assert!(text.contains("# mine") && text.contains("enabled = true") && text.contains("MY_KEY"));
        assert_eq!(names, ["channels.supr.token", "log.url", "models.a.base_url"]);
    }

    #[test]
    fn the_address_of_an_mcp_server_with_a_query_is_a_secret() {
        let text = "[mcp.a]\nurl = \"https://a.example/mcp?key=s3cret\"\ntimeout = 9\n[mcp.b]\nurl = \"https://b.example/mcp\"\n";
        let found = from_text(text);
        let Found::Removed { text, names } = found else { panic!("{found:?}") };
        assert!(!text.contains("s3cret") && text.contains("b.example"), "{text}");
        assert_eq!(names, ["mcp.a.timeout", "mcp.a.url"]);
        read(&text).expect("the rest is valid");
    }

    #[test]
    fn settings_without_secrets_stay_as_they_are() {
        assert_eq!(
            from_text("[log]\nurl = \"postgres://me@db/x\"\npassword_file = \"pw\"\n"),
            Found::NoSecrets
        );
        assert_eq!(from_text(""), Found::NoSecrets);
        assert!(matches!(from_text("[of_the_future]\npin = \"1234\"\n"), Found::Inseparable { .. }));
    }

    #[test]
    fn a_secret_that_shares_its_line_or_has_several_lines_is_inseparable() {
        let names = vec!["channels.supr.token".to_owned()];
        for text in [
            "channels.supr = { token = \"s3cret\", enabled = true }\n",
            "[channels.supr]\ntoken = \"\"\"\ns3cret\"\"\"\n",
            "[channels.supr]\ntoken = \"\"\"\n# s3cret\n#\"\"\"\n",
            "[channels.supr]\n# It was s3cret before.\ntoken = \"s3cret\"\n",
        ] {
            assert_eq!(from_text(text), Found::Inseparable { names: names.clone() }, "{text}");
        }
    }
}
