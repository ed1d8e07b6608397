//! Terminals that no session and no caller owns: anybody can look on, type, and end them.
//!
//! Of each the last output is kept. Who looks on holds a place in it and is not waited for: one that falls behind
//! further than what is kept goes on with the oldest that is.

use std::collections::{BTreeMap, VecDeque};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use parlor_vocab::{Clock, ProcessExit, ProcessId, ProcessRefusal, StartProcess, StdioKind, Timestamp};
use tokio::sync::{mpsc, watch};

use crate::{
    Process, ProcessNews, ProcessNumber, ProcessReport, SHUTDOWN_GRACE, TERMINATE_GRACE, TerminalDimensions,
    WriteId, spawn, spawn_refusal,
};

/// How many terminals may run at a time.
pub const MAX_TERMINALS: usize = 16;

/// How many that have ended are kept to be looked at. The oldest is forgotten for one more.
pub const MAX_ENDED_TERMINALS: usize = 16;

/// How much of the output of each is kept.
pub const TERMINAL_BYTES: usize = 256 * 1024;

/// Reports that wait to be kept.
const REPORTS: usize = 4;

/// What a terminal is told that missed something: forget what you show.
const RESET: &[u8] = b"\x1bc";

/// All of them.
pub struct Terminals {
    /// Where programs start.
    folder: PathBuf,
    /// Their complete environment.
    env: Vec<(String, String)>,
    clock: Arc<dyn Clock>,
    all: Arc<Mutex<Table>>,
}

#[derive(Default)]
struct Table {
    by_number: BTreeMap<u64, Arc<Terminal>>,
    last: u64,
}

/// What is known of a terminal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TerminalInfo {
    /// Its number, used once.
    pub number: u64,
    /// The process.
    pub pid: u32,
    /// The program with its arguments.
    pub command: Vec<String>,
    /// When it was started.
    pub started: Timestamp,
    /// Its size.
    pub size: TerminalDimensions,
    /// How it ended, if it has.
    pub ending: Option<ProcessExit>,
}

struct Terminal {
    number: u64,
    pid: u32,
    command: Vec<String>,
    started: Timestamp,
    state: Mutex<State>,
    /// How many bytes were written so far, and one more at the end: wakes those who look on.
    moved: watch::Sender<u64>,
}

struct State {
    size: TerminalDimensions,
    /// None when it is over.
    process: Option<Process>,
    ending: Option<ProcessExit>,
    /// The last bytes that were written.
    kept: VecDeque<u8>,
    /// How many bytes were written in all.
    written: u64,
}

impl Terminals {
    /// None yet. Programs start in `folder` with the environment `env` and nothing else.
    pub fn new(folder: PathBuf, env: Vec<(String, String)>, clock: Arc<dyn Clock>) -> Self {
        Self { folder, env, clock, all: Arc::default() }
    }

    /// All of them, the oldest first.
    pub fn list(&self) -> Vec<TerminalInfo> {
        lock(&self.all).by_number.values().map(|terminal| terminal.line()).collect()
    }

    /// Starts a program on a terminal of its own. Must be called on a thread that lives as long as the server.
    pub fn start(
        &self,
        command: Vec<String>,
        size: TerminalDimensions,
    ) -> Result<TerminalInfo, ProcessRefusal> {
        let mut all = lock(&self.all);
        if all.by_number.values().filter(|terminal| terminal.is_running()).count() >= MAX_TERMINALS {
            return Err(ProcessRefusal::TooManyProcesses { limit: MAX_TERMINALS });
        }
        let number = all.last + 1;
        let (program, args) = command.split_first().ok_or_else(|| ProcessRefusal::CannotStart {
            attempt: "start the process".to_owned(),
            reason: "no program is named".to_owned(),
        })?;
        let start = StartProcess {
            process: ProcessId::parse(&number.to_string()).expect("a number is a name"),
            program: program.clone(),
            args: args.to_vec(),
            arg0: None,
            folder: self.folder.clone(),
            env: self.env.clone(),
            stdio: StdioKind::Terminal,
            retain_bytes: 0,
        };
        let (reporter, reports) = mpsc::channel(REPORTS);
        let process = spawn(&start, ProcessNumber(number), reporter).map_err(spawn_refusal)?;
        // What the program looks like before it knows is set right by the signal of this.
        let _ = process.resize(size);
        let terminal = Arc::new(Terminal {
            number,
            pid: process.pid(),
            command,
            started: self.clock.now(),
            state: Mutex::new(State {
                size,
                process: Some(process),
                ending: None,
                kept: VecDeque::new(),
                written: 0,
            }),
            moved: watch::channel(0).0,
        });
        tokio::spawn(Arc::clone(&terminal).keep(reports));
        all.last = number;
        let line = terminal.line();
        all.by_number.insert(number, terminal);
        forget_some(&mut all);
        Ok(line)
    }

    /// Ends a terminal with all that runs on it; one that has ended is forgotten. Says whether it was there.
    pub fn end(&self, number: u64) -> bool {
        let mut all = lock(&self.all);
        let Some(terminal) = all.by_number.get(&number) else { return false };
        if terminal.is_running() {
            terminal.terminate();
        } else {
            all.by_number.remove(&number);
        }
        true
    }

    /// Begins to look on, from the oldest output that is kept.
    pub fn view(&self, number: u64) -> Option<TerminalView> {
        let terminal = Arc::clone(lock(&self.all).by_number.get(&number)?);
        let moved = terminal.moved.subscribe();
        Some(TerminalView { terminal, moved, place: 0, has_ended: false })
    }

    /// Ends all of them, and waits until nothing is left.
    pub async fn close(&self) {
        let all: Vec<_> = std::mem::take(&mut lock(&self.all).by_number).into_values().collect();
        let processes: Vec<Process> =
            all.iter().filter_map(|terminal| lock(&terminal.state).process.take()).collect();
        for process in &processes {
            process.terminate(SHUTDOWN_GRACE);
        }
        for process in processes {
            process.gone().await;
        }
    }
}

/// Forgets those that ended first, if too many have.
fn forget_some(all: &mut Table) {
    let ended: Vec<u64> = all
        .by_number
        .iter()
        .filter(|(_, terminal)| !terminal.is_running())
        .map(|(number, _)| *number)
        .collect();
    for number in ended.iter().take(ended.len().saturating_sub(MAX_ENDED_TERMINALS)) {
        all.by_number.remove(number);
    }
}

impl Terminal {
    /// Keeps what comes, until the end.
    async fn keep(self: Arc<Self>, mut reports: mpsc::Receiver<ProcessReport>) {
        while let Some(report) = reports.recv().await {
            let mut state = lock(&self.state);
            match report.news {
                ProcessNews::Output { bytes, .. } => {
                    state.written += bytes.len() as u64;
                    state.kept.extend(bytes);
                    let excess = state.kept.len().saturating_sub(TERMINAL_BYTES);
                    state.kept.drain(..excess);
                    self.moved.send_replace(state.written);
                }
                ProcessNews::WriteAccepted(_) | ProcessNews::WriteLost(_) => {}
                ProcessNews::Exited(ending) => {
                    state.process = None;
                    state.ending = Some(ending);
                    self.moved.send_replace(state.written + 1);
                }
            }
        }
    }

    fn line(&self) -> TerminalInfo {
        let state = lock(&self.state);
        TerminalInfo {
            number: self.number,
            pid: self.pid,
            command: self.command.clone(),
            started: self.started,
            size: state.size,
            ending: state.ending,
        }
    }

    fn is_running(&self) -> bool {
        lock(&self.state).ending.is_none()
    }

    fn terminate(&self) {
        if let Some(process) = &lock(&self.state).process {
            process.terminate(TERMINATE_GRACE);
        }
    }
}

/// One who looks on, and may type.
pub struct TerminalView {
    terminal: Arc<Terminal>,
    moved: watch::Receiver<u64>,
    /// How much was seen.
    place: u64,
    has_ended: bool,
}

/// What is seen of a terminal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TerminalEvent {
    /// Something was written.
    Output(Vec<u8>),
    /// It is over. Nothing follows.
    Ended(ProcessExit),
}

impl TerminalView {
    /// Waits for the next thing to see; none after the end. Cancel safe.
    pub async fn next(&mut self) -> Option<TerminalEvent> {
        if self.has_ended {
            return None;
        }
        loop {
            // Marked before looking, so that what comes in between wakes us below.
            self.moved.mark_unchanged();
            if let Some(sight) = self.look() {
                self.has_ended = matches!(sight, TerminalEvent::Ended(_));
                return Some(sight);
            }
            self.moved.changed().await.ok()?;
        }
    }

    fn look(&mut self) -> Option<TerminalEvent> {
        let state = lock(&self.terminal.state);
        let missing = usize::try_from(state.written - self.place).unwrap_or(usize::MAX);
        if missing == 0 {
            return state.ending.map(TerminalEvent::Ended);
        }
        let mut bytes = Vec::new();
        // The first look at what is not whole any more misses nothing that was shown before.
        if missing > state.kept.len() && self.place > 0 {
            bytes.extend(RESET);
        }
        bytes.extend(state.kept.iter().skip(state.kept.len().saturating_sub(missing)));
        self.place = state.written;
        Some(TerminalEvent::Output(bytes))
    }

    /// Types. Says whether there was somebody to read it, with room for it.
    pub fn write(&self, bytes: Vec<u8>) -> bool {
        let state = lock(&self.terminal.state);
        state.process.as_ref().is_some_and(|process| process.write(WriteId(0), bytes).is_ok())
    }

    /// Gives the terminal another size.
    pub fn resize(&self, size: TerminalDimensions) {
        let mut state = lock(&self.terminal.state);
        if let Some(process) = &state.process {
            // A terminal that is gone has no size.
            let _ = process.resize(size);
            state.size = size;
        }
    }
}

/// The locks here are never held across anything that can panic halfway through a change.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Noon;

    impl Clock for Noon {
        fn now(&self) -> Timestamp {
            Timestamp(43_200_000)
        }
    }

    fn terminals() -> Terminals {
        Terminals::new("/".into(), vec![("PATH".to_owned(), "/usr/bin:/bin".to_owned())], Arc::new(Noon))
    }

    fn shell(script: &str) -> Vec<String> {
        ["sh", "-c", script].map(str::to_owned).to_vec()
    }

    const SIZE: TerminalDimensions = TerminalDimensions { columns: 100, rows: 30 };

    /// What is shown until `text`, or the end.
    async fn until(view: &mut TerminalView, text: &str) -> (String, Option<ProcessExit>) {
        let mut shown = Vec::new();
        loop {
            match view.next().await {
                Some(TerminalEvent::Output(bytes)) => shown.extend(bytes),
                Some(TerminalEvent::Ended(ending)) => {
                    return (String::from_utf8_lossy(&shown).into_owned(), Some(ending));
                }
                None => panic!("it was over before"),
            }
            let said = String::from_utf8_lossy(&shown).into_owned();
            if said.contains(text) {
                return (said, None);
            }
        }
    }

    #[tokio::test]
    async fn two_look_on_and_type_and_the_end_is_kept() {
        let terminals = terminals();
        let line = terminals.start(shell("stty size; read a; echo got $a; read b; exit 7"), SIZE).unwrap();
        assert_eq!((line.number, line.size, line.ending), (1, SIZE, None));
        assert!(line.pid > 0);
        let (mut one, mut two) = (terminals.view(1).unwrap(), terminals.view(1).unwrap());
        until(&mut one, "\n").await;
        assert!(one.write(b"first\n".to_vec()));
        until(&mut two, "got first").await;
        two.resize(TerminalDimensions { columns: 40, rows: 10 });
        assert_eq!(terminals.list()[0].size, TerminalDimensions { columns: 40, rows: 10 });
        assert!(two.write(b"\n".to_vec()));
        let end = until(&mut one, "never").await.1;
        assert_eq!(end, Some(ProcessExit::Code(7)));
        assert_eq!(one.next().await, None);
        let (shown, end) = until(&mut terminals.view(1).unwrap(), "never").await;
        assert!(shown.contains("got first") && end == Some(ProcessExit::Code(7)), "{shown}");
        assert!(!one.write(b"late".to_vec()));
        assert_eq!(terminals.list()[0].ending, Some(ProcessExit::Code(7)));
        assert!(terminals.end(1) && !terminals.end(1) && terminals.list().is_empty());
    }

    #[tokio::test]
    async fn who_falls_behind_sees_the_newest_on_a_clean_screen() {
        let terminals = terminals();
        let script = "echo begin; read a; head -c 600000 /dev/zero | tr '\\0' x; echo done; read b";
        terminals.start(shell(script), SIZE).unwrap();
        let (mut fast, mut slow) = (terminals.view(1).unwrap(), terminals.view(1).unwrap());
        until(&mut slow, "begin").await;
        fast.write(b"\n".to_vec());
        until(&mut fast, "done").await;
        let Some(TerminalEvent::Output(bytes)) = slow.next().await else { panic!("output") };
        assert_eq!(bytes.len(), RESET.len() + TERMINAL_BYTES);
        assert!(bytes.starts_with(RESET) && bytes.ends_with(b"done\r\n"));
        let Some(TerminalEvent::Output(bytes)) = terminals.view(1).unwrap().next().await else {
            panic!("output")
        };
        assert_eq!(bytes.len(), TERMINAL_BYTES);
        terminals.close().await;
    }

    #[tokio::test]
    async fn there_are_only_so_many_and_so_many_are_remembered() {
        let terminals = terminals();
        for _ in 0..MAX_TERMINALS {
            terminals.start(shell("read a"), SIZE).unwrap();
        }
        let refused = terminals.start(shell("true"), SIZE);
        assert_eq!(refused, Err(ProcessRefusal::TooManyProcesses { limit: MAX_TERMINALS }));
        for number in 1..=MAX_TERMINALS as u64 {
            let mut view = terminals.view(number).unwrap();
            assert!(terminals.end(number));
            assert!(matches!(
                until(&mut view, "never").await.1,
                Some(ProcessExit::Terminated | ProcessExit::Signal(_))
            ));
        }
        // One more than is kept: the first is forgotten when the next one starts.
        for _ in 0..2 {
            let number = terminals.start(shell("true"), SIZE).unwrap().number;
            until(&mut terminals.view(number).unwrap(), "never").await;
        }
        assert_eq!(terminals.list().len(), MAX_ENDED_TERMINALS + 1);
        assert!(terminals.start(Vec::new(), SIZE).is_err());
        assert!(terminals.start(vec!["no-such-program".to_owned()], SIZE).is_err());
        terminals.close().await;
        assert!(terminals.list().is_empty());
    }
}
