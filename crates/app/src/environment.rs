//! The environment variables, read once at start. No other module of this crate reads them.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use anyhow::bail;
use parlor_model::provider::is_public_url;

use crate::command_variables;

/// The variables that hold API keys of model providers.
pub(crate) const MODEL_KEYS: [&str; 4] =
    ["OPENAI_API_KEY", "ANTHROPIC_API_KEY", "OPENROUTER_API_KEY", "GEMINI_API_KEY"];

/// The variable that sends requests for OpenAI models to another server.
const OPENAI_BASE_URL: &str = "OPENAI_BASE_URL";

/// A variable counts as a secret if its name contains one of these words.
const SECRET_WORDS: [&str; 10] =
    ["KEY", "SECRET", "TOKEN", "PASSWORD", "PASSWD", "PASSPHRASE", "CREDENTIAL", "COOKIE", "WEBHOOK", "DSN"];

/// The variables that parlor uses, and those that it passes on to commands and other programs.
#[derive(Clone)]
pub(crate) struct Environment {
    /// `PARLOR_HOME`.
    home: Option<OsString>,
    /// `HOME`.
    pub(crate) user_home: Option<OsString>,
    /// `PATH`.
    path: Option<OsString>,
    /// `PARLOR_RUBY`.
    pub(crate) ruby: Option<OsString>,
    /// `SYNAPS_BASE_DIR`.
    pub(crate) synaps_base: Option<OsString>,
    /// `SYNAPS_PROFILE`.
    pub(crate) synaps_profile: Option<String>,
    /// The variables of Supex.
    pub(crate) supex: SupexVariables,
    /// The variables of SuprClaw.
    pub(crate) supr: SuprVariables,
    /// `PARLOR_LOG`.
    pub(crate) log: Option<String>,
    /// `NOTIFY_SOCKET`: where a supervisor such as systemd wants to be told what a server does.
    pub(crate) notify_socket: Option<String>,
    /// Whether `PARLOR_DUMPABLE` is `1`: debuggers and core dumps may read the memory of this process.
    pub(crate) is_dumpable: bool,
    /// Whether `NO_COLOR` is set.
    pub(crate) no_color: bool,
    /// Whether `TERM` is unset or `dumb`: the terminal understands no control sequences.
    pub(crate) is_dumb_terminal: bool,
    /// Whether the locale is a UTF-8 one.
    pub(crate) unicode: bool,
    /// The names of those [`MODEL_KEYS`] that are set to more than white space. Never their values.
    pub(crate) model_keys: Vec<&'static str>,
    /// `OPENAI_BASE_URL`.
    pub(crate) openai_base_url: Option<String>,
    /// `Ok` if the user has a running D-Bus session bus, which a keyring needs; otherwise the reason.
    pub(crate) session_bus: Result<(), String>,
    /// All variables whose name and value are UTF-8.
    all: Vec<(String, String)>,
}

impl Environment {
    /// Reads the environment of this process.
    pub(crate) fn read() -> Self {
        let locale = ["LC_ALL", "LC_CTYPE", "LANG"].into_iter().find_map(variable).unwrap_or_default();
        let locale = locale.to_string_lossy().to_ascii_uppercase();
        Self {
            home: variable("PARLOR_HOME"),
            user_home: variable("HOME"),
            path: variable("PATH"),
            ruby: variable("PARLOR_RUBY"),
            synaps_base: variable("SYNAPS_BASE_DIR"),
            synaps_profile: variable("SYNAPS_PROFILE").and_then(|profile| profile.into_string().ok()),
            supex: SupexVariables::read(),
            supr: SuprVariables::read(),
            log: variable("PARLOR_LOG").map(|level| level.to_string_lossy().into_owned()),
            notify_socket: variable("NOTIFY_SOCKET").and_then(|socket| socket.into_string().ok()),
            is_dumpable: variable("PARLOR_DUMPABLE").is_some_and(|value| value == "1"),
            no_color: variable("NO_COLOR").is_some(),
            is_dumb_terminal: variable("TERM").is_none_or(|term| term == "dumb"),
            unicode: locale.contains("UTF-8") || locale.contains("UTF8"),
            model_keys: MODEL_KEYS.into_iter().filter(|name| Self::secret(name).is_some()).collect(),
            openai_base_url: variable(OPENAI_BASE_URL).map(|url| url.to_string_lossy().into_owned()),
            session_bus: session_bus(variable("DBUS_SESSION_BUS_ADDRESS"), variable("XDG_RUNTIME_DIR")),
            all: all_variables(),
        }
    }

    /// The state folder: `$PARLOR_HOME`, or `.parlor` in the user's home folder.
    pub(crate) fn state_folder(&self) -> anyhow::Result<PathBuf> {
        let path = match (&self.home, &self.user_home) {
            (Some(path), _) => PathBuf::from(path),
            (None, Some(home)) => Path::new(home).join(".parlor"),
            (None, None) => {
                bail!("neither PARLOR_HOME nor HOME is set; set PARLOR_HOME to the folder for parlor's state")
            }
        };
        Ok(std::path::absolute(&path)?)
    }

    /// Whether `PARLOR_HOME` is set.
    pub(crate) fn has_parlor_home(&self) -> bool {
        self.home.is_some()
    }

    /// The value of a variable that holds a secret, without white space around it: a value that was read from a file
    /// often ends in a line break.
    pub(crate) fn secret(name: &str) -> Option<String> {
        let value = variable(name)?.to_string_lossy().trim().to_owned();
        (!value.is_empty()).then_some(value)
    }

    /// The variables that commands of agents get: those of the built-in list, and those that `extra` names.
    pub(crate) fn for_commands(&self, extra: &[String]) -> Vec<(String, String)> {
        command_variables::for_commands(&self.all, extra)
    }

    /// The variables that a program of the user's desktop gets, such as a browser: all that do not look like a secret.
    pub(crate) fn for_desktop(&self) -> Vec<(String, String)> {
        let is_public =
            |(name, value): &&(String, String)| !looks_like_a_secret(name) && !is_secret_address(name, value);
        self.all.iter().filter(is_public).cloned().collect()
    }

    /// The value of a variable that the settings name.
    pub(crate) fn variable(&self, name: &str) -> Option<String> {
        self.all.iter().find(|(other, _)| other == name).map(|(_, value)| value.clone())
    }

    /// Finds a program that parlor itself needs in `PATH`.
    pub(crate) fn find_program(&self, name: &Path) -> Option<PathBuf> {
        parlor_process::find_program(name, self.path.as_deref()?)
    }

    /// The folders of `PATH`.
    pub(crate) fn program_folders(&self) -> Vec<PathBuf> {
        self.path.iter().flat_map(std::env::split_paths).collect()
    }
}

/// The `SUPEX_…` variables. An empty variable counts as unset.
#[derive(Clone, Default)]
pub(crate) struct SupexVariables {
    /// `SUPEX_HOST`.
    pub(crate) host: Option<String>,
    /// `SUPEX_PORT`.
    pub(crate) port: Option<String>,
    /// `SUPEX_REPL_HOST`.
    pub(crate) repl_host: Option<String>,
    /// `SUPEX_REPL_PORT`.
    pub(crate) repl_port: Option<String>,
    /// `SUPEX_AUTH_TOKEN`. Never shown.
    pub(crate) token: Option<String>,
    /// `SUPEX_TIMEOUT`.
    pub(crate) timeout: Option<String>,
    /// `SUPEX_RETRIES`.
    pub(crate) retries: Option<String>,
    /// `SUPEX_IDLE_TIMEOUT`.
    pub(crate) idle_timeout: Option<String>,
    /// `SUPEX_MAX_RESPONSE`.
    pub(crate) max_response: Option<String>,
    /// `SUPEX_AGENT`.
    pub(crate) agent: Option<String>,
    /// `SUPEX_ALLOWED_ROOTS`.
    pub(crate) allowed_roots: Option<String>,
    /// `SUPEX_PROJECT_ROOT`.
    pub(crate) project_root: Option<String>,
    /// `SUPEX_RESPONSE_DELAY`.
    pub(crate) response_delay: Option<String>,
    /// Whether `SUPEX_ALLOW_REMOTE` is `1`.
    pub(crate) allow_remote: bool,
    /// Whether `SUPEX_VERBOSE` is `1`.
    pub(crate) verbose: bool,
    /// Whether `SUPEX_NO_AUTOSTART` is `1`.
    pub(crate) no_autostart: bool,
    /// Whether `SUPEX_REPL_DISABLED` is `1`.
    pub(crate) repl_disabled: bool,
}

impl SupexVariables {
    fn read() -> Self {
        let text = |name: &str| variable(name).map(|value| value.to_string_lossy().into_owned());
        let flag = |name: &str| variable(name).is_some_and(|value| value == "1");
        Self {
            host: text("SUPEX_HOST"),
            port: text("SUPEX_PORT"),
            repl_host: text("SUPEX_REPL_HOST"),
            repl_port: text("SUPEX_REPL_PORT"),
            token: text("SUPEX_AUTH_TOKEN"),
            timeout: text("SUPEX_TIMEOUT"),
            retries: text("SUPEX_RETRIES"),
            idle_timeout: text("SUPEX_IDLE_TIMEOUT"),
            max_response: text("SUPEX_MAX_RESPONSE"),
            agent: text("SUPEX_AGENT"),
            allowed_roots: text("SUPEX_ALLOWED_ROOTS"),
            project_root: text("SUPEX_PROJECT_ROOT"),
            response_delay: text("SUPEX_RESPONSE_DELAY"),
            allow_remote: flag("SUPEX_ALLOW_REMOTE"),
            verbose: flag("SUPEX_VERBOSE"),
            no_autostart: flag("SUPEX_NO_AUTOSTART"),
            repl_disabled: flag("SUPEX_REPL_DISABLED"),
        }
    }
}

/// The `SUPRCLAW_…` variables. An empty variable counts as unset.
#[derive(Clone, Default)]
pub(crate) struct SuprVariables {
    /// `SUPRCLAW_CHANNELS_SUPR_ENABLED`.
    pub(crate) enabled: Option<String>,
    /// `SUPRCLAW_CHANNELS_SUPR_TOKEN`. Never shown.
    pub(crate) token: Option<String>,
    /// `SUPRCLAW_CHANNELS_SUPR_ALLOW_FROM`.
    pub(crate) allow_from: Option<String>,
    /// `SUPRCLAW_GATEWAY_HOST`.
    pub(crate) host: Option<String>,
    /// `SUPRCLAW_GATEWAY_PORT`.
    pub(crate) port: Option<String>,
}

impl SuprVariables {
    fn read() -> Self {
        let text = |name: &str| variable(name).map(|value| value.to_string_lossy().into_owned());
        Self {
            enabled: text("SUPRCLAW_CHANNELS_SUPR_ENABLED"),
            token: text("SUPRCLAW_CHANNELS_SUPR_TOKEN"),
            allow_from: text("SUPRCLAW_CHANNELS_SUPR_ALLOW_FROM"),
            host: text("SUPRCLAW_GATEWAY_HOST"),
            port: text("SUPRCLAW_GATEWAY_PORT"),
        }
    }
}

/// `Ok` if a session bus is running. A bus that would have to be started first does not count.
fn session_bus(address: Option<OsString>, runtime_folder: Option<OsString>) -> Result<(), String> {
    let is_running = |address: &OsString| !address.to_string_lossy().starts_with("autolaunch:");
    let is_available = match (&address, runtime_folder) {
        (Some(address), _) => is_running(address),
        (None, Some(folder)) => Path::new(&folder).join("bus").exists(),
        (None, None) => false,
    };
    if is_available { Ok(()) } else { Err("no D-Bus session bus is running".to_owned()) }
}

/// The value of a variable, if it is set and not empty.
#[expect(clippy::disallowed_methods, reason = "the environment is read here and passed on")]
fn variable(name: &str) -> Option<OsString> {
    std::env::var_os(name).filter(|value| !value.is_empty())
}

fn all_variables() -> Vec<(String, String)> {
    std::env::vars_os()
        .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)))
        .collect()
}

/// Whether the name of a variable says that it holds a secret.
pub(crate) fn looks_like_a_secret(name: &str) -> bool {
    let name = name.to_ascii_uppercase();
    SECRET_WORDS.iter().any(|word| name.contains(word))
}

/// Whether a variable that should hold an address may hold a password: inside the address, or instead of one.
fn is_secret_address(name: &str, value: &str) -> bool {
    name == OPENAI_BASE_URL && !is_public_url(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_session_bus_is_used_only_if_it_is_running() {
        let bus = |address: Option<&str>, folder: Option<&Path>| {
            session_bus(address.map(OsString::from), folder.map(OsString::from)).is_ok()
        };
        let folder = tempfile::tempdir().unwrap();
        assert!(!bus(None, None) && !bus(None, Some(folder.path())));
        assert!(bus(Some("unix:path=/run/user/1/bus"), None));
        assert!(!bus(Some("autolaunch:"), Some(folder.path())));
        std::fs::write(folder.path().join("bus"), "").unwrap();
        assert!(bus(None, Some(folder.path())));
    }

    #[test]
    fn an_address_with_a_password_is_not_passed_on() {
        let hidden = |value| is_secret_address(OPENAI_BASE_URL, value);
        assert!(!hidden("http://127.0.0.1:8080/v1"));
        assert!(hidden("http://user:s3cret@127.0.0.1:8080/v1") && hidden("sk-s3cret"));
        assert!(!is_secret_address("EDITOR", "vi"));
    }

    #[test]
    fn keys_of_models_look_like_secrets() {
        assert!(MODEL_KEYS.into_iter().all(looks_like_a_secret));
        assert!(looks_like_a_secret("my_password"));
        assert!(!looks_like_a_secret("PATH"));
    }
}
