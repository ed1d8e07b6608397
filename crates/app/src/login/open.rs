//! Opening a browser, where there is one.

use std::path::Path;

use parlor_process::{ProcessNumber, spawn_for_person};
use parlor_vocab::{ProcessId, StartProcess, StdioKind};
use tokio::sync::mpsc;

use crate::environment::Environment;

/// The program that desktops have for it.
const OPENER: &str = "xdg-open";

/// Starts the opener in a session of its own: what it starts is the user's, and stays when we go. The
/// first process waits for the opener, since all that is left of its group when it ends is killed.
const DETACHED: &str = "exec setsid --fork --wait \"$1\" \"$2\" >/dev/null 2>&1";

/// How many reports of the opener wait to be thrown away.
const REPORTS: usize = 1;

/// Those of which one says that the user sits elsewhere.
const REMOTE: [&str; 4] = ["CI", "SSH_CONNECTION", "SSH_CLIENT", "SSH_TTY"];

/// Those of which one says that there is a screen.
const SCREENS: [&str; 2] = ["DISPLAY", "WAYLAND_DISPLAY"];

/// Whether these variables say that no browser can be seen.
pub(crate) fn is_headless(environment: &[(String, String)]) -> bool {
    let is_set = |wanted: &str| environment.iter().any(|(name, value)| name == wanted && !value.is_empty());
    REMOTE.into_iter().any(is_set) || !SCREENS.into_iter().any(is_set)
}

/// Asks the desktop to open an address. Says whether there is a desktop to ask.
pub(super) fn open(environment: &Environment, url: &str) -> bool {
    let is_page = ["https://", "http://"].into_iter().any(|scheme| url.starts_with(scheme));
    let Some(opener) = environment.find_program(Path::new(OPENER)).filter(|_| is_page) else { return false };
    let Some(opener) = opener.to_str() else { return false };
    let Ok(process) = ProcessId::parse("browser") else { return false };
    let start = StartProcess {
        process,
        program: "/bin/sh".to_owned(),
        args: ["-c", DETACHED, "sh", opener, url].map(str::to_owned).to_vec(),
        arg0: None,
        folder: "/".into(),
        env: environment.for_desktop(),
        stdio: StdioKind::Pipes,
        retain: 0,
    };
    let (reports, mut news) = mpsc::channel(REPORTS);
    let started = spawn_for_person(&start, ProcessNumber(0), reports).is_ok();
    tokio::spawn(async move { while news.recv().await.is_some() {} });
    started
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_screen_is_one_that_the_user_sits_at() {
        let headless = |variables: &[(&str, &str)]| {
            let owned = variables.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
            is_headless(&owned.collect::<Vec<_>>())
        };
        assert!(headless(&[]));
        assert!(headless(&[("DISPLAY", "")]));
        assert!(!headless(&[("DISPLAY", ":0")]));
        assert!(!headless(&[("WAYLAND_DISPLAY", "wayland-0"), ("CI", "")]));
        for remote in REMOTE {
            assert!(headless(&[("DISPLAY", ":0"), (remote, "1")]), "{remote}");
        }
    }
}
