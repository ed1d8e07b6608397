//! The commands of the local agent.

use std::time::Duration;

use crate::MAX_WAIT;

/// The usage of each command, and what it does.
pub(super) const COMMANDS: [(&str, &str); 8] = [
    ("!CMD", "runs CMD through the shell tool"),
    ("/say TEXT", "streams TEXT word by word"),
    ("/think TEXT", "reasons TEXT, then answers"),
    ("/wait SECONDS", "streams a tick every 100 ms, for at most 600 seconds"),
    ("/read PATH", "reads a file through the read_file tool"),
    ("/ruby CODE", "runs CODE through the ruby tool"),
    ("/fail TEXT", "fails the run with TEXT"),
    ("/help", "lists all of this"),
];

/// A parsed message.
#[derive(Debug, PartialEq)]
pub(super) enum LocalCommand<'a> {
    /// Run this shell command.
    Shell(&'a str),
    /// Write this text.
    Say(&'a str),
    /// Write this reasoning.
    Think(&'a str),
    /// Wait for this long.
    Wait(Duration),
    /// Read this file.
    Read(&'a str),
    /// Run this Ruby code.
    Ruby(&'a str),
    /// Fail with this text, which may be empty.
    Fail(&'a str),
    /// List the commands.
    Help,
    /// A command with an invalid argument: its usage, and what is wrong.
    Misused(&'static str, String),
    /// Looks like a command, but none has this name.
    Unknown(&'a str),
    /// Not a command.
    Chat,
}

impl<'a> LocalCommand<'a> {
    /// Parses `message`. White space before a command is ignored. The text after the command and one space is its
    /// argument; shell commands, paths, numbers and code are trimmed.
    pub(super) fn parse(message: &'a str) -> Self {
        let message = message.trim_start();
        if let Some(command) = message.strip_prefix('!') {
            return with_text("!CMD", command.trim(), Self::Shell);
        }
        let (word, text) = message.split_once(char::is_whitespace).unwrap_or((message, ""));
        match word {
            "/say" => with_text("/say TEXT", text, Self::Say),
            "/think" => with_text("/think TEXT", text, Self::Think),
            "/wait" => wait(text.trim()),
            "/read" => with_text("/read PATH", text.trim(), Self::Read),
            "/ruby" => with_text("/ruby CODE", text.trim(), Self::Ruby),
            "/fail" => Self::Fail(text),
            "/help" => Self::Help,
            _ if is_command_name(word) => Self::Unknown(word),
            _ => Self::Chat,
        }
    }
}

fn with_text<'a>(
    usage: &'static str,
    text: &'a str,
    command: fn(&'a str) -> LocalCommand<'a>,
) -> LocalCommand<'a> {
    if text.is_empty() {
        LocalCommand::Misused(usage, "something is missing".to_owned())
    } else {
        command(text)
    }
}

fn wait(seconds: &str) -> LocalCommand<'_> {
    let duration = seconds.parse().ok().and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
    match duration {
        Some(duration) if duration <= MAX_WAIT => LocalCommand::Wait(duration),
        Some(_) | None => LocalCommand::Misused(
            "/wait SECONDS",
            format!("SECONDS is a number from 0 to {}, such as 2 or 0.5", MAX_WAIT.as_secs()),
        ),
    }
}

/// Whether `word` is a slash and a name. A path such as `/etc/hosts` is not a command.
fn is_command_name(word: &str) -> bool {
    word.strip_prefix('/').is_some_and(|name| {
        !name.is_empty() && name.chars().all(|letter| letter.is_alphanumeric() || "-_".contains(letter))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_listed_command_is_parsed() {
        for (usage, _) in COMMANDS {
            let command = LocalCommand::parse(usage);
            assert!(
                !matches!(command, LocalCommand::Unknown(_) | LocalCommand::Chat),
                "{usage}: {command:?}"
            );
        }
    }

    #[test]
    fn texts_are_not_trimmed() {
        assert_eq!(LocalCommand::parse("/say  two\n "), LocalCommand::Say(" two\n "));
        assert_eq!(LocalCommand::parse("/say\nline"), LocalCommand::Say("line"));
        assert_eq!(LocalCommand::parse(" /think  "), LocalCommand::Think(" "));
        assert_eq!(LocalCommand::parse("/fail "), LocalCommand::Fail(""));
    }

    #[test]
    fn paths_and_code_are_trimmed() {
        assert_eq!(LocalCommand::parse("! ls -l\necho 2\n"), LocalCommand::Shell("ls -l\necho 2"));
        assert_eq!(LocalCommand::parse("/read  a b.txt "), LocalCommand::Read("a b.txt"));
        assert_eq!(LocalCommand::parse("/ruby 1 + 1\n"), LocalCommand::Ruby("1 + 1"));
    }

    #[test]
    fn seconds_have_decimals_and_a_maximum() {
        assert_eq!(LocalCommand::parse("/wait 0.25"), LocalCommand::Wait(Duration::from_millis(250)));
        assert_eq!(LocalCommand::parse("/wait 0"), LocalCommand::Wait(Duration::ZERO));
        assert_eq!(LocalCommand::parse("/wait 600"), LocalCommand::Wait(MAX_WAIT));
        for wrong in ["600.001", "1e300", "-1", "nan", "inf", "soon", "", "1 2"] {
            let command = format!("/wait {wrong}");
            assert!(
                matches!(LocalCommand::parse(&command), LocalCommand::Misused("/wait SECONDS", _)),
                "{command}"
            );
        }
    }

    #[test]
    fn a_command_without_its_argument_is_misused() {
        for (message, usage) in [
            ("!", "!CMD"),
            ("! \n", "!CMD"),
            ("/say", "/say TEXT"),
            ("/say ", "/say TEXT"),
            ("/think", "/think TEXT"),
        ] {
            assert!(
                matches!(LocalCommand::parse(message), LocalCommand::Misused(u, _) if u == usage),
                "{message:?}"
            );
        }
        assert!(matches!(LocalCommand::parse("/read  "), LocalCommand::Misused("/read PATH", _)));
        assert!(matches!(LocalCommand::parse("/ruby"), LocalCommand::Misused("/ruby CODE", _)));
    }

    #[test]
    fn a_slash_and_a_name_is_a_command_and_a_path_is_not() {
        assert_eq!(LocalCommand::parse("/deploy now"), LocalCommand::Unknown("/deploy"));
        assert_eq!(LocalCommand::parse("/sayings"), LocalCommand::Unknown("/sayings"));
        for chat in ["/etc/hosts", "/", "/ say", "//", "hello /say", "", " "] {
            assert_eq!(LocalCommand::parse(chat), LocalCommand::Chat, "{chat:?}");
        }
    }
}
