//! The time of the first word from the provider to a terminal: through `parlor chat`, and through `curl -N`.

use std::fs::File;
use std::io::Read;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::Context;
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};

use super::paced_provider::{Pace, Provider, RequestTimes};
use crate::stats::median;

const ROUNDS: usize = 101;

/// The first word comes late enough that both programs already wait for it.
const PACE: Pace = Pace { before: Duration::from_millis(30), between: Duration::from_millis(1), words: 3 };

/// How long the provider may take to report the times of a request.
const TIMES_WAIT: Duration = Duration::from_secs(10);

/// Medians in milliseconds.
pub(super) struct FirstByte {
    /// From the provider's first word to the first byte on the terminal.
    pub(super) parlor: f64,
    pub(super) curl: f64,
    /// From the start of the program to its request at the provider.
    pub(super) parlor_start: f64,
    pub(super) curl_start: f64,
}

pub(super) fn measure(parlor: &Path) -> anyhow::Result<FirstByte> {
    let provider = Provider::start(PACE)?;
    std::fs::create_dir_all(crate::DATABASE_FOLDER)?;
    let home = tempfile::tempdir_in(crate::DATABASE_FOLDER)?;
    std::fs::write(home.path().join("parlor.toml"), provider.settings())?;
    let (mut of_parlor, mut of_curl) = (Times::default(), Times::default());
    for _ in 0..ROUNDS {
        let mut command = Command::new(parlor);
        command.args(["chat", "go on"]).env("PARLOR_HOME", home.path()).current_dir(home.path());
        of_parlor.add(command, &provider)?;
        let mut command = Command::new("curl");
        command.args(["-sN", "-d", "{}", &format!("{}/chat/completions", provider.url)]);
        of_curl.add(command, &provider)?;
    }
    Ok(FirstByte {
        parlor: median(of_parlor.words),
        curl: median(of_curl.words),
        parlor_start: median(of_parlor.starts),
        curl_start: median(of_curl.starts),
    })
}

#[derive(Default)]
struct Times {
    words: Vec<f64>,
    starts: Vec<f64>,
}

impl Times {
    fn add(&mut self, command: Command, provider: &Provider) -> anyhow::Result<()> {
        let (begun, first) = first_byte(command)?;
        let RequestTimes { requested, first_word } = provider.times.recv_timeout(TIMES_WAIT)?;
        self.words.push(first.saturating_duration_since(first_word).as_secs_f64() * 1e3);
        self.starts.push(requested.saturating_duration_since(begun).as_secs_f64() * 1e3);
        Ok(())
    }
}

/// Runs a program on a terminal. Returns when it was started and when its first byte appeared.
fn first_byte(mut command: Command) -> anyhow::Result<(Instant, Instant)> {
    let ours = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY)?;
    grantpt(&ours)?;
    unlockpt(&ours)?;
    let name = ptsname(&ours, Vec::new())?;
    let theirs = File::options().write(true).open(name.to_str().context("the name is not UTF-8")?)?;
    let begun = Instant::now();
    let mut child = command.stdin(Stdio::null()).stdout(theirs).stderr(Stdio::inherit()).spawn()?;
    // The command holds the program's end of the terminal open.
    drop(command);
    let (mut screen, mut buffer) = (File::from(ours), [0; 4096]);
    let count = screen.read(&mut buffer)?;
    let first = Instant::now();
    anyhow::ensure!(count > 0, "the program wrote nothing");
    // A read fails once the program's end of the terminal is closed.
    while screen.read(&mut buffer).is_ok_and(|count| count > 0) {}
    anyhow::ensure!(child.wait()?.success(), "the program failed");
    Ok((begun, first))
}
