//! `[log]`: where the events of sessions are kept.

use std::path::{Path, PathBuf};

use parlor_log::PostgresOptions;

use super::read::Value;

/// The value of `url` for the database in the state folder.
const SQLITE: &str = "sqlite:";

/// The settings of `[log]`.
#[derive(Clone, Default, PartialEq, Eq)]
pub(crate) struct LogConfig {
    /// The URL of the PostgreSQL database. `None`: the log is the SQLite database in the state folder.
    pub(crate) url: Option<String>,
    /// The file with the password of the database.
    pub(crate) password_file: Option<PathBuf>,
}

impl LogConfig {
    /// Sets a setting by its name. The error says what is wrong with the value, without repeating it.
    pub(super) fn set(&mut self, home: &Path, member: &str, value: Value) -> Result<(), String> {
        match (member, value) {
            ("url", Value::Text(url)) => self.url = parse_url(&url)?,
            ("password_file", Value::File(file)) => self.password_file = Some(home.join(file)),
            (member, _) => unreachable!("no code handles the setting {member}"),
        }
        Ok(())
    }

    /// The value of a setting, as TOML. The URL is shown without user, password and parameters.
    pub(super) fn value(&self, member: &str) -> Option<String> {
        Some(match member {
            "url" => format!("{:?}", self.store()),
            "password_file" => format!("{:?}", self.password_file.as_ref()?),
            _ => return None,
        })
    }

    /// These settings with the URL that a flag names.
    pub(crate) fn with_url(&self, url: Option<&str>) -> Result<Self, String> {
        let url = url.map_or_else(|| Ok(self.url.clone()), parse_url)?;
        Ok(Self { url, ..self.clone() })
    }

    /// Where the log is, for people: without user, password and parameters.
    pub(crate) fn store(&self) -> String {
        let of_postgres = |url: &String| PostgresOptions::new(url, "").store().unwrap_or_default();
        self.url.as_ref().map_or_else(|| SQLITE.to_owned(), of_postgres)
    }

    /// The password in the URL.
    pub(crate) fn password_in_url(&self) -> Option<String> {
        PostgresOptions::new(self.url.as_ref()?, "").password_in_url()
    }
}

impl std::fmt::Debug for LogConfig {
    /// Without user and password.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("LogConfig").field("store", &self.store()).finish_non_exhaustive()
    }
}

/// Checks a URL. `None` for SQLite.
fn parse_url(url: &str) -> Result<Option<String>, String> {
    if url == SQLITE {
        return Ok(None);
    }
    if !url.starts_with("postgres://") && !url.starts_with("postgresql://") {
        return Err(format!(
            "is neither {SQLITE:?} nor an address such as \"postgres://user@host/database\""
        ));
    }
    PostgresOptions::new(url, "").store().map_err(|error| error.to_string())?;
    Ok(Some(url.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_address_is_checked_and_its_password_never_shown() {
        let mut config = LogConfig::default();
        assert_eq!(config.value("url").as_deref(), Some("\"sqlite:\""));
        let url = |url: &str| Value::Text(url.to_owned());
        let home = Path::new("/home");
        config.set(home, "url", url("postgres://me:s3cret@db.example:5433/parlor?sslmode=require")).unwrap();
        assert_eq!(config.value("url").as_deref(), Some("\"postgres://db.example:5433/parlor\""));
        assert_eq!(config.password_in_url().as_deref(), Some("s3cret"));
        assert!(!format!("{config:?}").contains("s3cret"));
        for wrong in ["mysql://u:s3cret@h/x", "postgres://u:s3cret@h/x?sslmode=maybe", "postgres:///x"] {
            let error = config.set(home, "url", url(wrong)).unwrap_err();
            assert!(!error.contains("s3cret"), "{error}");
        }
        config.set(home, "password_file", Value::File("pw".into())).unwrap();
        assert_eq!(config.password_file.as_deref(), Some(Path::new("/home/pw")));
        assert_eq!(config.with_url(Some("sqlite:")).unwrap().url, None);
    }
}
