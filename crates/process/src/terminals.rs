//! Shared terminals, which belong to no session and no connection: any client can view them, type, and end them.
//!
//! Each terminal keeps its last output. A view has a position in it, and the terminal does not wait for views: one that
//! falls too far behind continues with the oldest output that is kept. Offsets count the bytes of the output, so that a
//! client can open another view where an earlier one has ended.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use parlor_vocab::{
    Clock, OutputStream, ProcessExit, ProcessId, ProcessRefusal, StartProcess, StdioKind, Timestamp,
};
use tokio::sync::{mpsc, watch};

use crate::tail::Tail;
use crate::{
    ChildEvent, OutputChunk, Process, ProcessNumber, ProcessReport, SHUTDOWN_GRACE, TERMINATE_GRACE,
    TerminalDimensions, WriteId, spawn, spawn_refusal,
};

/// How many terminals may run at the same time.
pub const MAX_TERMINALS: usize = 16;

/// How many ended terminals stay viewable. The oldest is removed first.
pub const MAX_ENDED_TERMINALS: usize = 16;

/// How many bytes of the last output each terminal keeps.
pub const TERMINAL_BYTES: usize = 256 * 1024;

/// How many bytes of typed text may wait for a program to read them. It is less than
/// [`STDIN_BACKLOG_BYTES`](crate::STDIN_BACKLOG_BYTES), because people type it, and no memory budget counts it.
pub const TERMINAL_INPUT_BYTES: usize = 1 << 20;

/// The size of the channel of reports of one terminal.
const REPORT_QUEUE: usize = 4;

/// The escape sequence that resets a terminal emulator. A view without offsets sends it after it has missed output.
const RESET: &[u8] = b"\x1bc";

/// The shared terminals.
pub struct Terminals {
    /// The working folder of programs.
    folder: PathBuf,
    /// The complete environment of programs.
    env: Vec<(String, String)>,
    clock: Arc<dyn Clock>,
    table: Arc<Mutex<Table>>,
}

#[derive(Default)]
struct Table {
    by_number: BTreeMap<u64, Arc<Terminal>>,
    last: u64,
}

/// The description of a terminal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TerminalInfo {
    /// Identifies the terminal; never reused.
    pub number: u64,
    /// The pid of the program.
    pub pid: u32,
    /// The program and its arguments.
    pub command: Vec<String>,
    /// When the program was started.
    pub started: Timestamp,
    /// The present size.
    pub size: TerminalDimensions,
    /// How the program ended; `None` while it runs.
    pub ending: Option<ProcessExit>,
}

struct Terminal {
    number: u64,
    pid: u32,
    command: Vec<String>,
    started: Timestamp,
    state: Mutex<State>,
    /// The number of bytes written so far, plus one after the end. Wakes the views.
    progress: watch::Sender<u64>,
}

struct State {
    size: TerminalDimensions,
    /// `None` after the program has ended.
    process: Option<Process>,
    ending: Option<ProcessExit>,
    /// The last output.
    output: Tail,
}

impl Terminals {
    /// No terminals. Programs will start in `folder`, with exactly the environment `env`.
    pub fn new(folder: PathBuf, env: Vec<(String, String)>, clock: Arc<dyn Clock>) -> Self {
        Self { folder, env, clock, table: Arc::default() }
    }

    /// All terminals, oldest first.
    pub fn list(&self) -> Vec<TerminalInfo> {
        lock(&self.table).by_number.values().map(|terminal| terminal.info()).collect()
    }

    /// Starts a program on a new terminal. Call it on a thread that lives as long as the server.
    pub fn start(
        &self,
        command: Vec<String>,
        size: TerminalDimensions,
    ) -> Result<TerminalInfo, ProcessRefusal> {
        let mut table = lock(&self.table);
        if table.by_number.values().filter(|terminal| terminal.is_running()).count() >= MAX_TERMINALS {
            return Err(ProcessRefusal::TooManyProcesses { limit: MAX_TERMINALS });
        }
        let number = table.last + 1;
        let (program, args) = command.split_first().ok_or_else(|| ProcessRefusal::CannotStart {
            attempt: "start the process".to_owned(),
            reason: "no program is named".to_owned(),
        })?;
        let start = StartProcess {
            process: ProcessId::parse(&number.to_string()).expect("a number is short"),
            program: program.clone(),
            args: args.to_vec(),
            arg0: None,
            folder: self.folder.clone(),
            env: self.env.clone(),
            stdio: StdioKind::Terminal,
            retain_bytes: 0,
        };
        let (reporter, reports) = mpsc::channel(REPORT_QUEUE);
        let process = spawn(&start, ProcessNumber(number), reporter).map_err(spawn_refusal)?;
        // If the program has already asked for the size, SIGWINCH tells it the right one.
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
                output: Tail::new(TERMINAL_BYTES),
            }),
            progress: watch::channel(0).0,
        });
        tokio::spawn(Arc::clone(&terminal).record(reports));
        table.last = number;
        let info = terminal.info();
        table.by_number.insert(number, terminal);
        remove_old(&mut table);
        Ok(info)
    }

    /// Ends a terminal and everything that runs on it, or removes one that has ended. Returns whether it existed.
    pub fn end(&self, number: u64) -> bool {
        let mut table = lock(&self.table);
        let Some(terminal) = table.by_number.get(&number) else { return false };
        if terminal.is_running() {
            terminal.terminate();
        } else {
            table.by_number.remove(&number);
        }
        true
    }

    /// Opens a view that begins at the offset `after`, or with the oldest kept output. A view with an `after` gets only
    /// output of the program, whose offsets show what it has missed. A view without gets a reset sequence after it has
    /// missed output.
    pub fn view(&self, number: u64, after: Option<u64>) -> Option<TerminalView> {
        let terminal = Arc::clone(lock(&self.table).by_number.get(&number)?);
        let progress = terminal.progress.subscribe();
        let offset = lock(&terminal.state).output.first_offset(after.unwrap_or(0));
        Some(TerminalView { terminal, progress, offset, sends_resets: after.is_none(), has_ended: false })
    }

    /// Ends all terminals and waits for their processes.
    pub async fn close(&self) {
        let terminals: Vec<_> = std::mem::take(&mut lock(&self.table).by_number).into_values().collect();
        let processes: Vec<Process> =
            terminals.iter().filter_map(|terminal| lock(&terminal.state).process.take()).collect();
        for process in &processes {
            process.terminate(SHUTDOWN_GRACE);
        }
        for process in processes {
            process.gone().await;
        }
    }
}

/// Removes the oldest ended terminals beyond [`MAX_ENDED_TERMINALS`].
fn remove_old(table: &mut Table) {
    let ended: Vec<u64> = table
        .by_number
        .iter()
        .filter(|(_, terminal)| !terminal.is_running())
        .map(|(number, _)| *number)
        .collect();
    for number in ended.iter().take(ended.len().saturating_sub(MAX_ENDED_TERMINALS)) {
        table.by_number.remove(number);
    }
}

impl Terminal {
    /// Stores reports until the program has ended.
    async fn record(self: Arc<Self>, mut reports: mpsc::Receiver<ProcessReport>) {
        while let Some(report) = reports.recv().await {
            let mut state = lock(&self.state);
            match report.event {
                ChildEvent::Output { bytes, .. } => {
                    state.output.push(OutputStream::Terminal, &bytes);
                    self.progress.send_replace(state.output.end());
                }
                ChildEvent::WriteAccepted(_) | ChildEvent::WriteLost(_) | ChildEvent::LeaderExited(_) => {}
                ChildEvent::Exited(ending) => {
                    state.process = None;
                    state.ending = Some(ending);
                    self.progress.send_replace(state.output.end() + 1);
                }
            }
        }
    }

    fn info(&self) -> TerminalInfo {
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

/// A client's view of a terminal.
pub struct TerminalView {
    terminal: Arc<Terminal>,
    progress: watch::Receiver<u64>,
    /// The offset of the next byte that the view has not seen.
    offset: u64,
    /// Whether [`RESET`] precedes output after a gap.
    sends_resets: bool,
    has_ended: bool,
}

/// What a view reports.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TerminalEvent {
    /// The program wrote output.
    Output(OutputChunk),
    /// The program has ended. Always the last event.
    Ended(ProcessExit),
}

impl TerminalView {
    /// The offset of the next byte that the view has not seen.
    pub fn offset(&self) -> u64 {
        self.offset
    }

    /// Waits for the next event; `None` after the end. Cancel safe.
    pub async fn next(&mut self) -> Option<TerminalEvent> {
        if self.has_ended {
            return None;
        }
        loop {
            // Before `try_next`, so that output that arrives in between wakes us below.
            self.progress.mark_unchanged();
            if let Some(event) = self.try_next() {
                self.has_ended = matches!(event, TerminalEvent::Ended(_));
                return Some(event);
            }
            self.progress.changed().await.ok()?;
        }
    }

    fn try_next(&mut self) -> Option<TerminalEvent> {
        let state = lock(&self.terminal.state);
        // A terminal has one stream, so there is at most one chunk.
        let Some(mut chunk) = state.output.since(self.offset).pop() else {
            return state.ending.map(TerminalEvent::Ended);
        };
        if self.sends_resets && chunk.offset > self.offset {
            chunk.bytes.splice(..0, RESET.iter().copied());
        }
        self.offset = state.output.end();
        Some(TerminalEvent::Output(chunk))
    }

    /// Types. Returns false if the program has ended, or has not read [`TERMINAL_INPUT_BYTES`] of earlier input.
    pub fn write(&self, bytes: Vec<u8>) -> bool {
        let state = lock(&self.terminal.state);
        state
            .process
            .as_ref()
            .is_some_and(|process| process.write_within(WriteId(0), bytes, TERMINAL_INPUT_BYTES).is_ok())
    }

    /// Resizes the terminal.
    pub fn resize(&self, size: TerminalDimensions) {
        let mut state = lock(&self.terminal.state);
        if let Some(process) = &state.process {
            // Fails if the terminal is gone.
            let _ = process.resize(size);
            state.size = size;
        }
    }
}

/// No code panics in the middle of a change while it holds one of these locks.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    struct FixedClock;

    impl Clock for FixedClock {
        fn now(&self) -> Timestamp {
            Timestamp(43_200_000)
        }
    }

    fn terminals() -> Terminals {
        Terminals::new(
            "/".into(),
            vec![("PATH".to_owned(), "/usr/bin:/bin".to_owned())],
            Arc::new(FixedClock),
        )
    }

    fn shell(script: &str) -> Vec<String> {
        ["sh", "-c", script].map(str::to_owned).to_vec()
    }

    const SIZE: TerminalDimensions = TerminalDimensions { columns: 100, rows: 30 };

    /// Reads until `text` was shown, or until the end.
    async fn until(view: &mut TerminalView, text: &str) -> (String, Option<ProcessExit>) {
        let mut shown = Vec::new();
        loop {
            match view.next().await {
                Some(TerminalEvent::Output(chunk)) => shown.extend(chunk.bytes),
                Some(TerminalEvent::Ended(ending)) => {
                    return (String::from_utf8_lossy(&shown).into_owned(), Some(ending));
                }
                None => panic!("the terminal ended before"),
            }
            let text_so_far = String::from_utf8_lossy(&shown).into_owned();
            if text_so_far.contains(text) {
                return (text_so_far, None);
            }
        }
    }

    #[tokio::test]
    async fn two_views_can_type_and_the_end_stays_visible() {
        let terminals = terminals();
        let info = terminals.start(shell("stty size; read a; echo got $a; read b; exit 7"), SIZE).unwrap();
        assert_eq!((info.number, info.size, info.ending), (1, SIZE, None));
        assert!(info.pid > 0);
        let (mut one, mut two) = (terminals.view(1, None).unwrap(), terminals.view(1, None).unwrap());
        until(&mut one, "\n").await;
        assert!(one.write(b"first\n".to_vec()));
        until(&mut two, "got first").await;
        two.resize(TerminalDimensions { columns: 40, rows: 10 });
        assert_eq!(terminals.list()[0].size, TerminalDimensions { columns: 40, rows: 10 });
        assert!(two.write(b"\n".to_vec()));
        let end = until(&mut one, "never").await.1;
        assert_eq!(end, Some(ProcessExit::Code(7)));
        assert_eq!(one.next().await, None);
        let (shown, end) = until(&mut terminals.view(1, None).unwrap(), "never").await;
        assert!(shown.contains("got first") && end == Some(ProcessExit::Code(7)), "{shown}");
        assert!(!one.write(b"late".to_vec()));
        assert_eq!(terminals.list()[0].ending, Some(ProcessExit::Code(7)));
        assert!(terminals.end(1) && !terminals.end(1) && terminals.list().is_empty());
    }

    #[tokio::test]
    async fn a_view_that_falls_behind_gets_a_reset_and_the_newest_output() {
        let terminals = terminals();
        let script = "echo begin; read a; head -c 600000 /dev/zero | tr '\\0' x; echo done; read b";
        terminals.start(shell(script), SIZE).unwrap();
        let (mut fast, mut slow) = (terminals.view(1, None).unwrap(), terminals.view(1, None).unwrap());
        until(&mut slow, "begin").await;
        fast.write(b"\n".to_vec());
        until(&mut fast, "done").await;
        let Some(TerminalEvent::Output(chunk)) = slow.next().await else { panic!("output") };
        assert_eq!(chunk.bytes.len(), RESET.len() + TERMINAL_BYTES);
        assert!(chunk.bytes.starts_with(RESET) && chunk.bytes.ends_with(b"done\r\n"));
        let Some(TerminalEvent::Output(chunk)) = terminals.view(1, None).unwrap().next().await else {
            panic!("output")
        };
        assert_eq!(chunk.bytes.len(), TERMINAL_BYTES);
        terminals.close().await;
    }

    #[tokio::test]
    async fn a_view_with_an_offset_continues_there_and_shows_gaps_by_offsets_only() {
        let terminals = terminals();
        let script = "printf 0123456789; read a; head -c 600000 /dev/zero | tr '\\0' x; printf done; read b";
        terminals.start(shell(script), SIZE).unwrap();
        let mut first = terminals.view(1, Some(0)).unwrap();
        until(&mut first, "9").await;
        let mut second = terminals.view(1, Some(4)).unwrap();
        assert_eq!(second.offset(), 4);
        let chunk = OutputChunk { offset: 4, bytes: b"456789".to_vec() };
        assert_eq!(second.next().await, Some(TerminalEvent::Output(chunk)));
        assert_eq!(terminals.view(1, Some(u64::MAX)).unwrap().offset(), 10, "clamped to the end");
        first.write(b"\n".to_vec());
        until(&mut first, "done").await;
        let start = first.offset() - TERMINAL_BYTES as u64;
        let Some(TerminalEvent::Output(chunk)) = second.next().await else { panic!("output") };
        assert_eq!((chunk.offset, chunk.bytes.len()), (start, TERMINAL_BYTES));
        assert!(!chunk.bytes.starts_with(RESET));
        assert_eq!(terminals.view(1, Some(10)).unwrap().offset(), start, "the offset shows the gap");
        terminals.close().await;
    }

    #[tokio::test]
    async fn running_and_ended_terminals_are_limited() {
        let terminals = terminals();
        for _ in 0..MAX_TERMINALS {
            terminals.start(shell("read a"), SIZE).unwrap();
        }
        let refused = terminals.start(shell("true"), SIZE);
        assert_eq!(refused, Err(ProcessRefusal::TooManyProcesses { limit: MAX_TERMINALS }));
        for number in 1..=MAX_TERMINALS as u64 {
            let mut view = terminals.view(number, None).unwrap();
            assert!(terminals.end(number));
            assert!(matches!(
                until(&mut view, "never").await.1,
                Some(ProcessExit::Terminated | ProcessExit::Signal(_))
            ));
        }
        // One more than the limit: the next start removes the oldest.
        for _ in 0..2 {
            let number = terminals.start(shell("true"), SIZE).unwrap().number;
            until(&mut terminals.view(number, None).unwrap(), "never").await;
        }
        assert_eq!(terminals.list().len(), MAX_ENDED_TERMINALS + 1);
        assert!(terminals.start(Vec::new(), SIZE).is_err());
        assert!(terminals.start(vec!["no-such-program".to_owned()], SIZE).is_err());
        terminals.close().await;
        assert!(terminals.list().is_empty());
    }
}
