//! Tells an observer what the clients of the exec door do, so that it can be shown as the work of a session.

use std::collections::HashMap;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parlor_vocab::{ExecutorEvent, FileAction, ProcessExit, ProcessId, StartProcess, WorkOrigin};
use tokio::sync::mpsc;

/// How much of the end of a process's output an observer gets.
pub const OBSERVED_OUTPUT_BYTES: usize = 16 << 10;

/// How many changes of files are kept until a process tells which thread the client works for.
pub const MAX_UNATTRIBUTED_CHANGES: usize = 64;

/// How many orders to end a process may wait.
const STOP_QUEUE: usize = 64;

/// The number of the last process that was observed.
static LAST_NUMBER: AtomicU64 = AtomicU64::new(0);

/// Learns what clients do. Called on the thread of the door, so it must not block.
pub trait WorkObserver: fmt::Debug + Send + Sync {
    /// A client has begun, ended or changed something.
    fn observe(&self, work: ObservedWork);
}

/// Something that a client did.
#[derive(Debug)]
pub enum ObservedWork {
    /// A process was started.
    ProcessStarted {
        /// Which process; no other of this program has the number.
        number: u64,
        /// What the client started it for.
        origin: WorkOrigin,
        /// The program and its arguments.
        argv: Vec<String>,
        /// The working folder.
        folder: PathBuf,
        /// Ends the process.
        stop: StopProcess,
    },
    /// A process has ended, and its output too.
    ProcessEnded {
        /// Which process.
        number: u64,
        /// The end of its output.
        output: Vec<u8>,
        /// How many bytes before it are left out.
        omitted: u64,
        /// How it ended.
        exit: ProcessExit,
    },
    /// A file was changed.
    FileChanged {
        /// The thread of the client's last process.
        thread: String,
        /// The file or folder.
        path: PathBuf,
        /// What was done to it.
        change: ObservedChange,
    },
}

/// What a client did to a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ObservedChange {
    /// It was created or replaced.
    Written,
    /// It was removed.
    Removed,
    /// It is a copy of another one.
    Copied,
}

/// An order to end a process.
#[derive(Clone, Debug)]
pub struct StopProcess {
    process: ProcessId,
    orders: mpsc::Sender<ProcessId>,
}

impl StopProcess {
    /// Ends the process, as the client's `process/terminate` does.
    pub fn stop(&self) {
        // A full queue means that nobody serves the processes any more.
        let _ = self.orders.try_send(self.process.clone());
    }
}

/// What the observer of one executor needs of earlier requests.
#[derive(Debug)]
pub(super) struct ObservedClient {
    observer: Option<Arc<dyn WorkObserver>>,
    processes: HashMap<ProcessId, ObservedProcess>,
    /// The thread of the last process.
    thread: Option<String>,
    /// Changes before the first process.
    unattributed: Vec<(PathBuf, ObservedChange)>,
    /// The change that the file request under way makes.
    pending_change: Option<(PathBuf, ObservedChange)>,
    orders: mpsc::Sender<ProcessId>,
    stops: mpsc::Receiver<ProcessId>,
}

#[derive(Debug)]
struct ObservedProcess {
    number: u64,
    output: Vec<u8>,
    omitted: u64,
    exit: ProcessExit,
}

impl ObservedClient {
    pub(super) fn new(observer: Option<Arc<dyn WorkObserver>>) -> Self {
        let (orders, stops) = mpsc::channel(STOP_QUEUE);
        Self {
            observer,
            processes: HashMap::new(),
            thread: None,
            unattributed: Vec::new(),
            pending_change: None,
            orders,
            stops,
        }
    }

    /// The next process that the observer wants to end.
    pub(super) async fn next_stop(&mut self) -> Option<ProcessId> {
        self.stops.recv().await
    }

    pub(super) fn on_started(&mut self, start: &StartProcess, origin: Option<WorkOrigin>) {
        let (Some(observer), Some(origin)) = (&self.observer, origin) else { return };
        for (path, change) in self.unattributed.drain(..) {
            observer.observe(ObservedWork::FileChanged { thread: origin.thread.clone(), path, change });
        }
        self.thread = Some(origin.thread.clone());
        let number = LAST_NUMBER.fetch_add(1, Ordering::Relaxed) + 1;
        let observed = ObservedProcess { number, output: Vec::new(), omitted: 0, exit: ProcessExit::Unknown };
        self.processes.insert(start.process.clone(), observed);
        let argv = std::iter::once(&start.program).chain(&start.args).cloned().collect();
        let stop = StopProcess { process: start.process.clone(), orders: self.orders.clone() };
        let folder = start.folder.clone();
        observer.observe(ObservedWork::ProcessStarted { number, origin, argv, folder, stop });
    }

    pub(super) fn on_event(&mut self, event: &ExecutorEvent) {
        match event {
            ExecutorEvent::SequencedOutput { process, chunk } => {
                if let Some(observed) = self.processes.get_mut(process) {
                    observed.push(&chunk.bytes);
                }
            }
            ExecutorEvent::SequencedExited { process, ending, .. } => {
                if let Some(observed) = self.processes.get_mut(process) {
                    observed.exit = *ending;
                }
            }
            ExecutorEvent::SequencedClosed { process, .. } => {
                if let (Some(observed), Some(observer)) = (self.processes.remove(process), &self.observer) {
                    let ObservedProcess { number, output, omitted, exit } = observed;
                    observer.observe(ObservedWork::ProcessEnded { number, output, omitted, exit });
                }
            }
            ExecutorEvent::Process(_) | ExecutorEvent::HttpBody { .. } => {}
        }
    }

    /// A file request begins.
    pub(super) fn on_file_request(&mut self, action: &FileAction) {
        if self.observer.is_some() {
            self.pending_change = change(action).map(|(path, change)| (path.to_owned(), change));
        }
    }

    /// The file request has ended.
    pub(super) fn on_file_reply(&mut self, has_succeeded: bool) {
        let Some((path, change)) = self.pending_change.take().filter(|_| has_succeeded) else { return };
        match (&self.thread, &self.observer) {
            (Some(thread), Some(observer)) => {
                observer.observe(ObservedWork::FileChanged { thread: thread.clone(), path, change });
            }
            _ if self.unattributed.len() < MAX_UNATTRIBUTED_CHANGES => {
                self.unattributed.push((path, change));
            }
            _ => {}
        }
    }
}

impl Drop for ObservedClient {
    fn drop(&mut self) {
        // The executor ends its processes.
        for (_, ObservedProcess { number, output, omitted, exit }) in self.processes.drain() {
            if let Some(observer) = &self.observer {
                observer.observe(ObservedWork::ProcessEnded { number, output, omitted, exit });
            }
        }
    }
}

impl ObservedProcess {
    fn push(&mut self, bytes: &[u8]) {
        let kept = bytes.len().saturating_sub(OBSERVED_OUTPUT_BYTES);
        if kept > 0 {
            self.omitted += (self.output.len() + kept) as u64;
            self.output.clear();
        }
        self.output.extend(bytes.iter().skip(kept));
        // Moves the bytes seldom.
        if self.output.len() > 2 * OBSERVED_OUTPUT_BYTES {
            let excess = self.output.len() - OBSERVED_OUTPUT_BYTES;
            self.output.drain(..excess);
            self.omitted += excess as u64;
        }
    }
}

/// The change that a file request makes, if any.
fn change(action: &FileAction) -> Option<(&Path, ObservedChange)> {
    match action {
        FileAction::Write { path, .. }
        | FileAction::CreateFolder { path, .. }
        | FileAction::Open { path, replaces: true, .. } => Some((path, ObservedChange::Written)),
        FileAction::Remove { path, .. } => Some((path, ObservedChange::Removed)),
        FileAction::Copy { destination, .. } => Some((destination, ObservedChange::Copied)),
        FileAction::Read { .. }
        | FileAction::Describe { .. }
        | FileAction::Canonicalize { .. }
        | FileAction::List { .. }
        | FileAction::Walk { .. }
        | FileAction::Open { .. }
        | FileAction::ReadBlock { .. }
        | FileAction::WriteBlock { .. }
        | FileAction::Close { .. } => None,
    }
}
