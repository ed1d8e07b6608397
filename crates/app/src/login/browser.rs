//! Opens a page in the user's browser, if there is a desktop.

use std::path::Path;

use parlor_process::{ProcessNumber, spawn_unconfined};
use parlor_vocab::{ProcessId, StartProcess, StdioKind};
use tokio::sync::mpsc;

use crate::environment::Environment;

/// The program with which desktops open an address.
const OPENER: &str = "xdg-open";

/// Starts the opener in a session of its own, so that the browser stays when parlor ends. The first process waits for
/// the opener, because parlor kills the rest of its process group when it ends.
const DETACHED: &str = "exec setsid --fork --wait \"$1\" \"$2\" >/dev/null 2>&1";

/// The capacity of the channel for process events, which are discarded.
const EVENT_QUEUE: usize = 1;

/// If one of these variables is set, the user is not at this machine.
const REMOTE: [&str; 4] = ["CI", "SSH_CONNECTION", "SSH_CLIENT", "SSH_TTY"];

/// Variables of which one is set if there is a screen.
const SCREENS: [&str; 2] = ["DISPLAY", "WAYLAND_DISPLAY"];

/// Whether, by these variables, the user could not see a browser on this machine.
pub(crate) fn is_headless(environment: &[(String, String)]) -> bool {
    let is_set = |wanted: &str| environment.iter().any(|(name, value)| name == wanted && !value.is_empty());
    REMOTE.into_iter().any(is_set) || !SCREENS.into_iter().any(is_set)
}

/// Opens addresses on the desktop of this machine.
pub(crate) struct BrowserOpener {
    /// The path of the program that opens addresses, if there is one.
    program: Option<String>,
    env: Vec<(String, String)>,
}

impl BrowserOpener {
    pub(crate) fn new(environment: &Environment) -> Self {
        let program = environment.find_program(Path::new(OPENER));
        let program = program.and_then(|program| Some(program.to_str()?.to_owned()));
        Self { program, env: environment.for_desktop() }
    }

    /// Asks the desktop to open an address. False if there is no desktop, or the opener could not be started.
    pub(crate) fn open(&self, url: &str) -> bool {
        start(self.program.as_deref(), self.env.clone(), url)
    }
}

fn start(opener: Option<&str>, env: Vec<(String, String)>, url: &str) -> bool {
    let is_page = ["https://", "http://"].into_iter().any(|scheme| url.starts_with(scheme));
    let Some(opener) = opener.filter(|_| is_page) else { return false };
    let Ok(process) = ProcessId::parse("browser") else { return false };
    let start = StartProcess {
        process,
        program: "/bin/sh".to_owned(),
        args: ["-c", DETACHED, "sh", opener, url].map(str::to_owned).to_vec(),
        arg0: None,
        folder: "/".into(),
        env,
        stdio: StdioKind::Pipes,
        retain_bytes: 0,
    };
    let (events, mut discarded) = mpsc::channel(EVENT_QUEUE);
    let started = spawn_unconfined(&start, ProcessNumber(0), events).is_ok();
    tokio::spawn(async move { while discarded.recv().await.is_some() {} });
    started
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn remote_sessions_and_machines_without_a_screen_are_headless() {
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
