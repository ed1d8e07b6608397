//! `parlor login NAME --key`: stores an API key. The key comes from a prompt without echo or from a pipe, never from the
//! command line, which other users can list.

use std::collections::BTreeSet;
use std::io::{Read, Write, stderr, stdin};
use std::process::ExitCode;

use anyhow::{Context, bail};
use parlor_auth::{SECRET_BYTES, Secret, SecretName};
use rustix::termios::{LocalModes, OptionalActions, Termios, tcgetattr, tcsetattr};

use super::INTERRUPTED;
use crate::console::Console;
use crate::home::Home;
use crate::models::provider_credential_name;
use crate::settings::Config;
use crate::settings::models::BUILT_IN;

/// Services other than model providers whose keys a door can store.
const OTHER_SERVICES: [&str; 1] = ["exa"];

const CTRL_C: u8 = 3;
const CTRL_D: u8 = 4;
const CTRL_U: u8 = 21;
/// The backspace key sends one or the other, depending on the terminal.
const BACKSPACE: [u8; 2] = [8, 127];

/// Asks for the key of the service `name` and stores it.
pub(super) fn ask_and_store(
    home: &Home,
    name: &str,
    console: Console,
    out: &mut dyn Write,
) -> anyhow::Result<ExitCode> {
    let known = known_services(home.config());
    if !known.contains(name) {
        let known: Vec<&str> = known.into_iter().collect();
        bail!(
            "no model uses a key of {name:?}; known names: {}. To use it for a model, set auth = {name:?} in its \
             [models.NAME] in parlor.toml",
            known.join(", ")
        );
    }
    let input = if console.stdin_is_terminal { read_from_terminal(name)? } else { Some(read_from_pipe()?) };
    let Some(input) = input else {
        eprintln!("No key was stored.");
        return Ok(ExitCode::from(INTERRUPTED));
    };
    let key = checked_key(input.expose())?;
    home.keys().set_key(name, Some(key)).map_err(|why| anyhow::anyhow!(why))?;
    let store = home.keys().store();
    let location = SecretName::key(name).map(|name| store.location(&name)).unwrap_or_default();
    if let Some(reason) = store.keyring_error() {
        eprintln!("{}", keyring_unused(&reason));
    }
    writeln!(
        out,
        "Stored the key of {name} in {location}; parlor models shows the models that it works for."
    )?;
    Ok(ExitCode::SUCCESS)
}

/// Tells the user why a secret was stored in a file although the system has a keyring.
pub(super) fn keyring_unused(reason: &str) -> String {
    format!(
        "The system's keyring was not used: {reason}. To stop using it, set keyring = false under [secrets] in parlor.toml."
    )
}

/// The names under which models and doors look up a key.
pub(crate) fn known_services(config: &Config) -> BTreeSet<&str> {
    let built_in = BUILT_IN.into_iter().map(|(provider, _)| provider_credential_name(provider));
    let of_models = config.models.values().filter_map(|model| model.auth.as_deref());
    built_in.chain(of_models).chain(OTHER_SERVICES).collect()
}

/// Removes what files put around a key (a byte order mark, quotes, a line break) and checks that the rest can be a key.
/// Providers get it in an HTTP header, so it has to be one word of visible ASCII.
fn checked_key(input: &str) -> anyhow::Result<Secret> {
    let key = unquoted(input.trim_start_matches('\u{feff}').trim());
    if key.is_empty() {
        bail!("no key was entered; type or paste it, or pipe it in: parlor login NAME --key < FILE");
    }
    if !key.bytes().all(|byte| byte.is_ascii_graphic()) {
        bail!("this is not a key: a key is one word of ASCII letters, digits and punctuation");
    }
    let is_name = |text: &str| text.bytes().all(|byte| byte.is_ascii_uppercase() || byte == b'_');
    if key
        .split_once('=')
        .is_some_and(|(name, rest)| name.ends_with("KEY") && is_name(name) && !rest.is_empty())
    {
        bail!("this is an assignment, not a key; enter only the part after the =");
    }
    Ok(Secret::new(key))
}

/// The text without the quotes around it.
fn unquoted(text: &str) -> &str {
    let within = |quote: char| text.strip_prefix(quote)?.strip_suffix(quote);
    within('"').or_else(|| within('\'')).unwrap_or(text)
}

fn read_from_pipe() -> anyhow::Result<Secret> {
    let mut text = String::new();
    let read = stdin().lock().take(SECRET_BYTES as u64 + 1).read_to_string(&mut text);
    let text = Secret::new(text);
    read.context("cannot read the key from stdin")?;
    if text.expose().len() > SECRET_BYTES {
        bail!("the text on stdin is longer than {SECRET_BYTES} bytes, so it is not a key");
    }
    Ok(text)
}

/// Reads the key that a person types or pastes, without echo. `None` if the person cancels.
fn read_from_terminal(name: &str) -> anyhow::Result<Option<Secret>> {
    // Disable echo before the prompt: a key may be pasted as soon as the prompt appears.
    let hidden = HiddenInput::begin()?;
    write!(stderr(), "Key of {name} (not shown): ")?;
    let (mut bytes, mut byte) = (Vec::new(), [0]);
    let is_cancelled = loop {
        if stdin().lock().read(&mut byte)? == 0 {
            break bytes.is_empty();
        }
        match byte[0] {
            b'\r' | b'\n' => break false,
            CTRL_C => break true,
            CTRL_D => break bytes.is_empty(),
            CTRL_U => bytes.clear(),
            byte if BACKSPACE.contains(&byte) => drop(bytes.pop()),
            byte if bytes.len() < SECRET_BYTES => bytes.push(byte),
            _ => {}
        }
    };
    drop(hidden);
    writeln!(stderr())?;
    let text = String::from_utf8(bytes).map(Secret::new).context("the key is not valid UTF-8")?;
    Ok((!is_cancelled).then_some(text))
}

/// Disables the echo of the terminal until dropped. Meanwhile the terminal sends Ctrl-C as a byte instead of a signal, so
/// that it cannot end the program without restoring the terminal. Holds the modes to restore.
struct HiddenInput(Termios);

impl HiddenInput {
    fn begin() -> anyhow::Result<Self> {
        let before =
            tcgetattr(stdin()).context("cannot disable the terminal's echo; pipe the key in instead")?;
        let mut without_echo = before.clone();
        without_echo.local_modes.remove(LocalModes::ECHO | LocalModes::ICANON | LocalModes::ISIG);
        tcsetattr(stdin(), OptionalActions::Flush, &without_echo)?;
        Ok(Self(before))
    }
}

impl Drop for HiddenInput {
    fn drop(&mut self) {
        // If the terminal is gone, there is nothing to restore.
        let _ = tcsetattr(stdin(), OptionalActions::Now, &self.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_one_word() {
        assert_eq!(checked_key(" sk-1_2+/=\n").unwrap().expose(), "sk-1_2+/=");
        for given in ["\u{feff}sk-1\r\n", "\"sk-1\"\n", "'sk-1'", "\r\n sk-1 \r\n"] {
            assert_eq!(checked_key(given).unwrap().expose(), "sk-1", "{given:?}");
        }
        assert_eq!(checked_key("sk-1=").unwrap().expose(), "sk-1=");
        assert!(checked_key("OPENAI_API_KEY=sk-1").unwrap_err().to_string().contains("after the ="));
        for bad in ["", "\"\"", "\"sk 1\"", " \n", "two words", "a\nb", "é", "a\x1b[A"] {
            let error = checked_key(bad).unwrap_err().to_string();
            assert!(error.contains("key"), "{error}");
        }
    }
}
