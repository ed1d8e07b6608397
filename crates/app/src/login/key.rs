//! `parlor login NAME --key`: keeps a key. It comes through a prompt that does not show it or through a
//! pipe, never on the command line, which others can list.

use std::collections::BTreeSet;
use std::io::{Read, Write, stderr, stdin};
use std::process::ExitCode;

use anyhow::{Context, bail};
use parlor_auth::{SECRET_BYTES, Secret, SecretName};
use rustix::termios::{LocalModes, OptionalActions, Termios, tcgetattr, tcsetattr};

use super::INTERRUPTED;
use crate::console::Console;
use crate::home::Home;
use crate::models::name_of;
use crate::settings::Config;
use crate::settings::models::BUILT_IN;

/// Services that are no providers of models, whose keys doors keep.
const OTHERS: [&str; 1] = ["exa"];

/// What a terminal sends for Ctrl-C.
const INTERRUPT: u8 = 3;
/// What it sends for Ctrl-D.
const END: u8 = 4;
/// What it sends for Ctrl-U.
const KILL: u8 = 21;
/// What it sends for the key that deletes backwards: one or the other.
const DELETE: [u8; 2] = [8, 127];

/// Keeps the key of `name`.
pub(super) fn keep(
    home: &Home,
    name: &str,
    console: Console,
    out: &mut dyn Write,
) -> anyhow::Result<ExitCode> {
    let known = known(home.config());
    if !known.contains(name) {
        let known: Vec<&str> = known.into_iter().collect();
        bail!(
            "no model asks for a key of {name:?}; there are: {}. auth = {name:?} in a [models.NAME] of parlor.toml \
             makes it ask",
            known.join(", ")
        );
    }
    let typed = if console.input { typed(name)? } else { Some(piped()?) };
    let Some(typed) = typed else {
        eprintln!("No key was kept.");
        return Ok(ExitCode::from(INTERRUPTED));
    };
    let key = checked(typed.expose())?;
    home.keys().keep(name, Some(key)).map_err(|why| anyhow::anyhow!(why))?;
    let store = home.keys().store();
    let place = SecretName::key(name).map(|name| store.place(&name)).unwrap_or_default();
    if let Some(reason) = store.trouble() {
        eprintln!("{}", without_keyring(&reason));
    }
    writeln!(out, "The key of {name} is kept in {place}; parlor models shows what it opens.")?;
    Ok(ExitCode::SUCCESS)
}

/// Why a secret is in a file although there seems to be a keyring.
pub(super) fn without_keyring(reason: &str) -> String {
    format!(
        "The system's keyring was not used: {reason}. keyring = false under [secrets] in parlor.toml does without it."
    )
}

/// The names under which a key is looked for.
pub(super) fn known(config: &Config) -> BTreeSet<&str> {
    let built_in = BUILT_IN.into_iter().map(|(provider, _)| name_of(provider));
    let of_models = config.models.values().filter_map(|model| model.auth.as_deref());
    built_in.chain(of_models).chain(OTHERS).collect()
}

/// What was given, if it can be a key: a header holds it, so it is one word. Without what files put around it: a mark
/// at the beginning, quotes, the end of the line.
fn checked(given: &str) -> anyhow::Result<Secret> {
    let key = unquoted(given.trim_start_matches('\u{feff}').trim());
    if key.is_empty() {
        bail!("there is no key on stdin; type or paste it, or pipe it in: parlor login NAME --key < FILE");
    }
    if !key.bytes().all(|byte| byte.is_ascii_graphic()) {
        bail!("that is no key: a key is one word of plain letters, digits and signs");
    }
    let is_name = |text: &str| text.bytes().all(|byte| byte.is_ascii_uppercase() || byte == b'_');
    if key
        .split_once('=')
        .is_some_and(|(name, rest)| name.ends_with("KEY") && is_name(name) && !rest.is_empty())
    {
        bail!("that is a variable with its value, and no key; give only what stands after the =");
    }
    Ok(Secret::new(key))
}

/// A text without the quotes around it.
fn unquoted(text: &str) -> &str {
    let within = |quote: char| text.strip_prefix(quote)?.strip_suffix(quote);
    within('"').or_else(|| within('\'')).unwrap_or(text)
}

/// The key that comes through a pipe or from a file.
fn piped() -> anyhow::Result<Secret> {
    let mut text = String::new();
    let read = stdin().lock().take(SECRET_BYTES as u64 + 1).read_to_string(&mut text);
    let text = Secret::new(text);
    read.context("cannot read the key from stdin")?;
    if text.expose().len() > SECRET_BYTES {
        bail!("what is on stdin is longer than {SECRET_BYTES} bytes, and no key");
    }
    Ok(text)
}

/// The key that a person types or pastes, unseen. None if they leave it.
fn typed(name: &str) -> anyhow::Result<Option<Secret>> {
    // Quiet first: a key is pasted as soon as it is asked for.
    let quiet = HiddenInput::begin()?;
    write!(stderr(), "The key of {name} (it is not shown): ")?;
    let (mut bytes, mut byte) = (Vec::new(), [0]);
    let is_left = loop {
        if stdin().lock().read(&mut byte)? == 0 {
            break bytes.is_empty();
        }
        match byte[0] {
            b'\r' | b'\n' => break false,
            INTERRUPT => break true,
            END => break bytes.is_empty(),
            KILL => bytes.clear(),
            byte if DELETE.contains(&byte) => drop(bytes.pop()),
            byte if bytes.len() < SECRET_BYTES => bytes.push(byte),
            _ => {}
        }
    };
    drop(quiet);
    writeln!(stderr())?;
    let text = String::from_utf8(bytes).map(Secret::new).context("that is no text in UTF-8")?;
    Ok((!is_left).then_some(text))
}

/// A terminal that shows nothing of what is typed, until this is dropped. Ctrl-C is a letter meanwhile, so
/// that it cannot leave the terminal as it is.
struct HiddenInput(Termios);

impl HiddenInput {
    fn begin() -> anyhow::Result<Self> {
        let before = tcgetattr(stdin()).context("the terminal cannot be made quiet; pipe the key in")?;
        let mut quiet = before.clone();
        quiet.local_modes.remove(LocalModes::ECHO | LocalModes::ICANON | LocalModes::ISIG);
        tcsetattr(stdin(), OptionalActions::Flush, &quiet)?;
        Ok(Self(before))
    }
}

impl Drop for HiddenInput {
    fn drop(&mut self) {
        // A terminal that is gone needs no putting right.
        let _ = tcsetattr(stdin(), OptionalActions::Now, &self.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_one_word() {
        assert_eq!(checked(" sk-1_2+/=\n").unwrap().expose(), "sk-1_2+/=");
        for given in ["\u{feff}sk-1\r\n", "\"sk-1\"\n", "'sk-1'", "\r\n sk-1 \r\n"] {
            assert_eq!(checked(given).unwrap().expose(), "sk-1", "{given:?}");
        }
        assert_eq!(checked("sk-1=").unwrap().expose(), "sk-1=");
        assert!(checked("OPENAI_API_KEY=sk-1").unwrap_err().to_string().contains("after the ="));
        for bad in ["", "\"\"", "\"sk 1\"", " \n", "two words", "a\nb", "é", "a\x1b[A"] {
            let error = checked(bad).unwrap_err().to_string();
            assert!(error.contains("key"), "{error}");
        }
    }
}
