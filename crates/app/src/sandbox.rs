//! `parlor sandbox`: runs a command in the sandbox of a mode by hand.

use std::io::{IsTerminal, Write, stdin, stdout};
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, bail};
use clap::Args;
use parlor_process::{
    AttachedProcess, ChildEvent, Process, ProcessNumber, Sandbox, TERMINATE_GRACE, TerminalDimensions,
    WriteId, spawn_in,
};
use parlor_vocab::{PolicyMode, ProcessExit, ProcessId, StartProcess, StdioKind};
use rustix::process::Signal;
use rustix::termios::{OptionalActions, Termios, tcgetattr, tcgetwinsize, tcsetattr};
use tokio::signal::unix::{Signal as SignalStream, SignalKind, signal};
use tokio::sync::mpsc;

use crate::environment::Environment;
use crate::settings::Config;

/// How many pieces of typed input may wait for the command.
const INPUT_QUEUE: usize = 16;

/// How many pieces of output may wait for the terminal.
const OUTPUT_QUEUE: usize = 16;

/// The size of one read of typed input.
const INPUT_BYTES: usize = 16 * 1024;

/// The flags of `parlor sandbox`.
#[derive(Args)]
pub(crate) struct Options {
    /// What the command may do: read-only, workspace or full
    #[arg(long, default_value = "workspace", value_parser = parse_mode)]
    mode: PolicyMode,
    /// The project folder, in which the command starts; the current folder by default
    #[arg(long, value_name = "DIR")]
    cwd: Option<PathBuf>,
    /// The command and its arguments
    #[arg(value_name = "CMD", required = true, trailing_var_arg = true, allow_hyphen_values = true)]
    command: Vec<String>,
}

fn parse_mode(name: &str) -> Result<PolicyMode, String> {
    PolicyMode::parse(name).ok_or_else(|| {
        let known = PolicyMode::ALL.map(PolicyMode::as_str).join(", ");
        format!("the modes are {known}")
    })
}

/// Runs the command. Exits with its status, or with 128 and the number of the signal that killed it.
pub(crate) fn run(environment: &Environment, options: &Options) -> anyhow::Result<ExitCode> {
    let folder = match &options.cwd {
        Some(folder) => folder.canonicalize().with_context(|| format!("cannot open {}", folder.display()))?,
        None => std::env::current_dir().context("the current folder is gone; choose one with --cwd")?,
    };
    let state_folder = environment.state_folder().ok();
    let config = state_folder.as_deref().map(Config::load).transpose()?.unwrap_or_default();
    parlor_process::set_child_limits(config.tools.limits);
    // Without HOME the secrets are where the user database says.
    let user_home = environment.user_home.as_ref().map(PathBuf::from).or_else(std::env::home_dir);
    let mut sandbox = Sandbox::new(options.mode, &folder, user_home.as_deref());
    sandbox.hidden.extend(state_folder);
    let Some((program, args)) = options.command.split_first() else {
        bail!("no command; for example: parlor sandbox -- make test");
    };
    let is_terminal = stdin().is_terminal() && stdout().is_terminal();
    let start = StartProcess {
        process: ProcessId::parse("sandbox").expect("a short id"),
        program: program.clone(),
        args: args.to_vec(),
        arg0: None,
        folder,
        env: environment.for_commands(&config.tools.environment),
        stdio: if is_terminal { StdioKind::Terminal } else { StdioKind::Pipes },
        retain_bytes: 0,
    };
    // One thread: the command is killed when the thread that started it ends.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let exit = runtime.block_on(async {
        if is_terminal {
            run_on_terminal(&start, &sandbox).await
        } else {
            run_on_streams(&start, &sandbox).await
        }
    });
    // A thread may still wait for input.
    runtime.shutdown_background();
    Ok(status(exit?))
}

fn status(exit: ProcessExit) -> ExitCode {
    match exit {
        ProcessExit::Code(code) => ExitCode::from(code),
        ProcessExit::Signal(signal) => {
            ExitCode::from(128_u8.saturating_add(u8::try_from(signal).unwrap_or(0)))
        }
        ProcessExit::Terminated => ExitCode::from(128 + Signal::TERM.as_raw() as u8),
        ProcessExit::Unknown => ExitCode::FAILURE,
    }
}

/// The signals that ask this process to end. They are for the command.
struct EndSignals([(SignalStream, Signal); 4]);

impl EndSignals {
    fn catch() -> std::io::Result<Self> {
        let stream = |kind, number| Ok::<_, std::io::Error>((signal(kind)?, number));
        Ok(Self([
            stream(SignalKind::interrupt(), Signal::INT)?,
            stream(SignalKind::terminate(), Signal::TERM)?,
            stream(SignalKind::hangup(), Signal::HUP)?,
            stream(SignalKind::quit(), Signal::QUIT)?,
        ]))
    }

    async fn next(&mut self) -> Signal {
        let [(first, a), (second, b), (third, c), (fourth, d)] = &mut self.0;
        tokio::select! {
            _ = first.recv() => *a,
            _ = second.recv() => *b,
            _ = third.recv() => *c,
            _ = fourth.recv() => *d,
        }
    }
}

/// The command reads and writes our streams itself.
async fn run_on_streams(start: &StartProcess, sandbox: &Sandbox) -> anyhow::Result<ProcessExit> {
    let mut signals = EndSignals::catch()?;
    let process = AttachedProcess::start(start, Some(sandbox))?;
    loop {
        tokio::select! {
            () = process.exited() => return process.end().await.map_err(anyhow::Error::msg),
            signal = signals.next() => process.signal(signal),
        }
    }
}

/// The command has a terminal of its own, and we copy between it and ours: whoever has our terminal open could type into
/// it.
async fn run_on_terminal(start: &StartProcess, sandbox: &Sandbox) -> anyhow::Result<ProcessExit> {
    let mut signals = EndSignals::catch()?;
    let mut resized = signal(SignalKind::window_change())?;
    let (sender, mut reports) = mpsc::channel(OUTPUT_QUEUE);
    let process = spawn_in(Some(sandbox), start, ProcessNumber(0), sender)?;
    copy_size(&process);
    let _raw = RawMode::enter()?;
    let mut input = read_input();
    let mut writes = 0;
    loop {
        tokio::select! {
            report = reports.recv() => match report.map(|report| report.event) {
                Some(ChildEvent::Output { bytes, .. }) => {
                    let mut out = stdout().lock();
                    out.write_all(&bytes)?;
                    out.flush()?;
                }
                Some(ChildEvent::Exited(exit)) => return Ok(exit),
                Some(ChildEvent::WriteAccepted(_) | ChildEvent::WriteLost(_) | ChildEvent::LeaderExited(_)) => {}
                None => return Ok(ProcessExit::Unknown),
            },
            Some(bytes) = input.recv() => {
                writes += 1;
                // It fails only when the command has ended, or does not read for a long time.
                let _ = process.write(WriteId(writes), bytes);
            }
            _ = resized.recv() => copy_size(&process),
            _ = signals.next() => {
                process.terminate(TERMINATE_GRACE);
            }
        }
    }
}

fn copy_size(process: &Process) {
    if let Ok(size) = tcgetwinsize(stdout()) {
        // A command that has ended needs no size.
        let _ = process.resize(TerminalDimensions { rows: size.ws_row, columns: size.ws_col });
    }
}

/// What the user types, read by a thread that ends with the program.
fn read_input() -> mpsc::Receiver<Vec<u8>> {
    let (sender, receiver) = mpsc::channel(INPUT_QUEUE);
    std::thread::spawn(move || {
        let mut buffer = vec![0; INPUT_BYTES];
        while let Ok(count @ 1..) = rustix::io::retry_on_intr(|| rustix::io::read(stdin(), &mut buffer)) {
            let bytes = buffer.iter().take(count).copied().collect();
            if sender.blocking_send(bytes).is_err() {
                return;
            }
        }
    });
    receiver
}

/// Passes every key to the command. Restores the terminal when dropped.
struct RawMode(Termios);

impl RawMode {
    fn enter() -> std::io::Result<Self> {
        let before = tcgetattr(stdin())?;
        let mut raw = before.clone();
        raw.make_raw();
        tcsetattr(stdin(), OptionalActions::Now, &raw)?;
        Ok(Self(before))
    }
}

impl Drop for RawMode {
    fn drop(&mut self) {
        // If the terminal is gone, there is nothing to restore.
        let _ = tcsetattr(stdin(), OptionalActions::Now, &self.0);
    }
}
