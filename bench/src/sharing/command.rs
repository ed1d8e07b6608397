//! The round trip of a command on the socket of the process that owns a session, in comparison with an echo on a socket.
//!
//! The command is a `stop` of a run that does not exist: it goes to the session's actor and back, and writes nothing.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use anyhow::{Context, ensure};

use super::child::SessionChild;
use crate::round_trips::{LineClient, on_one_and_two_cores, timed};
use crate::stats::Spread;

const BATCHES: usize = 41;
const COMMANDS: u32 = 1000;

/// With this argument and a path, the program is the echo.
pub(crate) const ECHO: &str = "unix-echo";

/// The folder of the sockets, in the state folder.
const SOCKET_FOLDER: &str = "run";

const HELLO: &str = r#"{"hello":{"versions":[1],"program":"bench","pid":1}}"#;
const REFUSAL: &str = r#""no_active_run""#;

/// All figures of one placement on the cores.
pub(super) struct Commands {
    /// Seconds for one round trip.
    pub(super) owner: Spread,
    pub(super) echo: Spread,
    /// The ratio of both in the same batch.
    pub(super) ratio: Spread,
}

/// Measures with all programs on one core, and with the client on another if the machine has two.
pub(super) fn measure(parlor: &Path) -> anyhow::Result<(Commands, Option<Commands>)> {
    let home = tempfile::tempdir()?;
    on_one_and_two_cores(|| Programs::start(parlor, home.path()), Programs::alternate)
}

/// The compared programs, and connections to them.
struct Programs {
    command: String,
    to_owner: LineClient<UnixStream>,
    to_echo: LineClient<UnixStream>,
    _owner: SessionChild,
    _echo: Echo,
}

impl Programs {
    fn start(parlor: &Path, home: &Path) -> anyhow::Result<Self> {
        let owner = SessionChild::owner(parlor, home)?;
        let mut to_owner = LineClient::new(UnixStream::connect(only_file(&home.join(SOCKET_FOLDER))?)?);
        to_owner.ask(HELLO)?;
        let path = home.join("echo");
        let echo = Echo::start(&path)?;
        let command = format!(
            r#"{{"command":{{"id":1,"session":"{}","command":{{"stop":{{"run":"run_none"}}}}}}}}"#,
            owner.session
        );
        let to_echo = LineClient::new(UnixStream::connect(path)?);
        Ok(Self { command, to_owner, to_echo, _owner: owner, _echo: echo })
    }

    /// Measures both programs in alternating batches.
    fn alternate(&mut self) -> anyhow::Result<Commands> {
        let (mut owner, mut echo) = (Vec::new(), Vec::new());
        for _ in 0..BATCHES {
            owner.push(timed(COMMANDS, || self.to_owner.ask(&self.command))?);
            echo.push(timed(COMMANDS, || self.to_echo.ask(&self.command))?);
        }
        let answer = self.to_owner.last_answer();
        ensure!(answer.contains(REFUSAL), "the owner answered {answer}");
        let ratio = Spread::of(owner.iter().zip(&echo).map(|(owner, echo)| owner / echo).collect());
        Ok(Commands { owner: Spread::of(owner), echo: Spread::of(echo), ratio })
    }
}

/// The only file in a folder.
fn only_file(folder: &Path) -> anyhow::Result<PathBuf> {
    let mut files = std::fs::read_dir(folder)?;
    let file = files.next().with_context(|| format!("{} is empty", folder.display()))??;
    ensure!(files.next().is_none(), "{} has several files", folder.display());
    Ok(file.path())
}

/// The echo in a process of its own, killed when dropped.
struct Echo(Child);

impl Echo {
    fn start(path: &Path) -> anyhow::Result<Self> {
        let child = Command::new(std::env::current_exe()?).arg(ECHO).arg(path).stdout(Stdio::piped()).spawn();
        let mut echo = Self(child?);
        // The line says that the echo listens.
        BufReader::new(echo.0.stdout.take().context("stdout is piped")?).read_line(&mut String::new())?;
        Ok(echo)
    }
}

impl Drop for Echo {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Echoes the lines of one connection to a socket at `path`, with blocking calls: the least work that a process can do.
pub(crate) fn echo(path: &Path) -> anyhow::Result<()> {
    let listener = UnixListener::bind(path)?;
    writeln!(std::io::stdout(), "ready")?;
    let mut stream = BufReader::new(listener.accept()?.0);
    let mut line = Vec::new();
    while stream.read_until(b'\n', &mut line)? > 0 {
        stream.get_mut().write_all(&line)?;
        line.clear();
    }
    Ok(())
}
