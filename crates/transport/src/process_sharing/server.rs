//! The server of process sharing: it lets other parlor processes of the same user watch the processes of a door on stdio,
//! through a Unix socket in the state folder.
//!
//! Sharing costs nothing before the first process starts, and little without viewers: viewers read the output that the
//! backend retains anyway, so no output is copied. Viewers can only watch. If sharing fails, the door works without it.

use std::collections::{BTreeMap, HashMap};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use parlor_process::{OutputChunk, Processes, RetainedOutput};
use parlor_vocab::{
    Answer, Backend, Clock, ProcessEvent, ProcessExit, ProcessId, ProcessRefusal, ProcessReply,
    ProcessRequest, StdioKind, Ticket, Update, UpdateOf,
};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::{Semaphore, watch};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use super::ProcessInfo;
use super::socket_folder::{open_socket, remove_stale_sockets};
use crate::accept::accept_connections;
use crate::socket_file::{SocketFile, is_same_user};

/// How many viewers a server has at a time. Further connections are closed.
pub const MAX_VIEWERS: usize = 8;

/// How long a viewer may take to send its request, and to read each line.
pub const VIEWER_WAIT: Duration = Duration::from_secs(10);

/// The longest request of a viewer.
pub const MAX_VIEWER_REQUEST_BYTES: u64 = 4096;

/// The process backend of one connection, whose processes viewers can watch.
pub struct SharedProcesses {
    processes: Processes,
    table: Arc<ProcessTable>,
    /// Starts that are not answered yet.
    starting: HashMap<Ticket, Start>,
    /// The state folder, until the first process starts and the socket is opened there.
    home: Option<PathBuf>,
    socket: Option<SocketFile>,
    clock: Arc<dyn Clock>,
}

/// The part of a start that viewers may see. It leaves out the environment, which may hold secrets.
struct Start {
    process: ProcessId,
    command: Vec<String>,
    tty: bool,
}

/// The running processes, shared with the tasks that serve viewers.
struct ProcessTable {
    state: Mutex<TableState>,
    /// Counts process events, to wake the viewers' tasks.
    event_count: watch::Sender<u64>,
}

#[derive(Default)]
struct TableState {
    by_number: BTreeMap<u64, Arc<SharedProcess>>,
    by_name: HashMap<ProcessId, u64>,
    last_number: u64,
}

struct SharedProcess {
    info: ProcessInfo,
    retained: RetainedOutput,
    exit: OnceLock<ProcessExit>,
}

impl SharedProcesses {
    /// Makes a backend whose processes are shared in the state folder `home`, if there is such a folder.
    pub fn new(home: Option<PathBuf>, clock: Arc<dyn Clock>) -> Self {
        let table = Arc::new(ProcessTable { state: Mutex::default(), event_count: watch::channel(0).0 });
        let starting = HashMap::new();
        Self { processes: Processes::default(), table, starting, home, socket: None, clock }
    }

    fn on_answer(&mut self, ticket: Ticket, answer: &Result<ProcessReply, ProcessRefusal>) {
        let Some(start) = self.starting.remove(&ticket) else { return };
        if answer.is_err() {
            return;
        }
        if let Some(home) = self.home.take() {
            self.socket = share(home, &self.table);
        }
        if self.socket.is_some()
            && let Some((pid, retained)) = self.processes.pid_and_output(&start.process)
        {
            self.table.add(start, pid, retained, &*self.clock);
        }
    }

    fn on_event(&self, event: &ProcessEvent) {
        if let ProcessEvent::ProcessExited { process, ending } = event {
            self.table.remove(process, *ending);
        }
        if self.table.event_count.receiver_count() > 0 {
            self.table.event_count.send_modify(|count| *count += 1);
        }
    }
}

impl Backend for SharedProcesses {
    type Request = ProcessRequest;
    type Reply = ProcessReply;
    type Event = ProcessEvent;
    type Error = ProcessRefusal;

    fn submit(
        &mut self,
        ticket: Ticket,
        command: ProcessRequest,
    ) -> Option<Answer<ProcessReply, ProcessRefusal>> {
        if (self.home.is_some() || self.socket.is_some())
            && let ProcessRequest::StartProcess(start) = &command
        {
            let command = std::iter::once(&start.program).chain(&start.args).cloned().collect();
            let tty = start.stdio == StdioKind::Terminal;
            self.starting.insert(ticket, Start { process: start.process.clone(), command, tty });
        }
        let (ticket, answer) = self.processes.submit(ticket, command)?;
        self.on_answer(ticket, &answer);
        Some((ticket, answer))
    }

    async fn next(&mut self) -> Option<UpdateOf<Self>> {
        let update = self.processes.next().await?;
        match &update {
            Update::Answer(ticket, answer) => self.on_answer(*ticket, answer),
            Update::Event(event) => self.on_event(event),
        }
        Some(update)
    }

    fn begin_close(&mut self) {
        self.processes.begin_close();
    }

    async fn closed(self) {
        let Self { processes, socket, .. } = self;
        drop(socket);
        processes.closed().await;
    }
}

impl ProcessTable {
    fn state(&self) -> MutexGuard<'_, TableState> {
        // The table is only for display, so a state that a panic left half changed does no harm.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn process(&self, number: u64) -> Option<Arc<SharedProcess>> {
        self.state().by_number.get(&number).cloned()
    }

    fn add(&self, start: Start, pid: u32, retained: RetainedOutput, clock: &dyn Clock) {
        let mut state = self.state();
        state.last_number += 1;
        let number = state.last_number;
        let info = ProcessInfo {
            id: format!("{}-{number}", std::process::id()),
            name: start.process.to_string(),
            door: "exec".to_owned(),
            pid,
            tty: start.tty,
            running: true,
            exit_code: None,
            started: clock.now().rfc3339(),
            cols: 80,
            rows: 24,
            command: start.command,
            here: false,
        };
        state.by_name.insert(start.process, number);
        state.by_number.insert(number, Arc::new(SharedProcess { info, retained, exit: OnceLock::new() }));
    }

    fn remove(&self, name: &ProcessId, exit: ProcessExit) {
        let mut state = self.state();
        let number = state.by_name.remove(name);
        if let Some(process) = number.and_then(|number| state.by_number.remove(&number)) {
            let _ = process.exit.set(exit);
        }
    }
}

/// Opens the socket, starts to serve viewers, and removes the sockets of killed servers in the background. None if the
/// socket cannot be opened; then the processes are not shared.
fn share(home: PathBuf, table: &Arc<ProcessTable>) -> Option<SocketFile> {
    // Without a state folder there is no page that could list the processes.
    if !home.is_dir() {
        return None;
    }
    let (listener, socket) = open_socket(&home, std::process::id()).ok()?;
    tokio::spawn(accept_viewers(listener, Arc::clone(table)));
    tokio::spawn(async move { remove_stale_sockets(&home).await });
    Some(socket)
}

async fn accept_viewers(listener: UnixListener, table: Arc<ProcessTable>) {
    let permits = Arc::new(Semaphore::new(MAX_VIEWERS));
    let serve = |stream: UnixStream| {
        let permit = Arc::clone(&permits).try_acquire_owned().ok().filter(|_| is_same_user(&stream))?;
        let table = Arc::clone(&table);
        Some(async move {
            // An error ends this viewer's connection and concerns nothing else.
            let _ = serve_viewer(stream, &table).await;
            drop(permit);
        })
    };
    let accept = async move || {
        let (stream, _) = listener.accept().await?;
        Ok(stream)
    };
    accept_connections(accept, serve, CancellationToken::new()).await;
}

/// Answers the one request of a viewer: `list`, or `NUMBER` to watch a process, or `NUMBER OFFSET` to watch it from an offset
/// on.
async fn serve_viewer(stream: UnixStream, table: &ProcessTable) -> std::io::Result<()> {
    let (reader, mut writer) = stream.into_split();
    let mut request = String::new();
    let mut reader = BufReader::new(reader.take(MAX_VIEWER_REQUEST_BYTES));
    timeout(VIEWER_WAIT, reader.read_line(&mut request)).await??;
    let request = request.trim();
    if request == "list" {
        let list: Vec<ProcessInfo> =
            table.state().by_number.values().map(|process| process.info.clone()).collect();
        return write_line(&mut writer, &json!(list)).await;
    }
    let watched = number_and_offset(request);
    let found = watched.and_then(|(number, offset)| Some((table.process(number)?, offset)));
    let Some((process, offset)) = found else { return write_line(&mut writer, &Value::Null).await };
    let mut events = table.event_count.subscribe();
    let mut offset = process.retained.first_offset(offset);
    write_line(&mut writer, &json!({"watching": process.info.id, "offset": offset})).await?;
    loop {
        events.mark_unchanged();
        // The exit is read before the output, so that all output is sent before the exit.
        let exit = process.exit.get().copied();
        for OutputChunk { offset, bytes } in process.retained.read_since(&mut offset) {
            let text = base64_simd::STANDARD.encode_to_string(bytes);
            write_line(&mut writer, &json!({"output": text, "offset": offset})).await?;
        }
        if let Some(exit) = exit {
            return write_line(&mut writer, &json!({"exited": exit_code(exit)})).await;
        }
        tokio::select! {
            changed = events.changed() => changed.map_err(std::io::Error::other)?,
            // A viewer sends nothing after its request, so the read ends when the viewer disconnects.
            _ = reader.read_u8() => return Ok(()),
        }
    }
}

/// The process that a viewer wants to watch, and the offset at which it wants to begin: 0 if it names none.
fn number_and_offset(request: &str) -> Option<(u64, u64)> {
    match request.split_once(' ') {
        Some((number, offset)) => Some((number.parse().ok()?, offset.parse().ok()?)),
        None => Some((request.parse().ok()?, 0)),
    }
}

async fn write_line(writer: &mut (impl AsyncWriteExt + Unpin), value: &Value) -> std::io::Result<()> {
    timeout(VIEWER_WAIT, writer.write_all(format!("{value}\n").as_bytes())).await?
}

/// The exit code as shells report it: 128 plus the signal's number for a process that a signal ended. None for a process
/// that a client terminated, and if the exit status is unknown.
pub fn exit_code(exit: ProcessExit) -> Option<i32> {
    match exit {
        ProcessExit::Code(code) => Some(code.into()),
        ProcessExit::Signal(signal) => Some(128 + signal),
        ProcessExit::Terminated | ProcessExit::Unknown => None,
    }
}

#[cfg(test)]
mod tests {
    use std::io::ErrorKind;
    use std::path::Path;

    use parlor_vocab::{StartProcess, Timestamp};
    use tokio::time::Instant;

    use super::*;

    struct FixedClock;

    impl Clock for FixedClock {
        fn now(&self) -> Timestamp {
            Timestamp(0)
        }
    }

    /// Starts a shell that runs until it is ended.
    fn start(shared: &mut SharedProcesses, name: &str) -> Result<ProcessReply, ProcessRefusal> {
        start_script(shared, name, "echo hi; exec sleep 600")
    }

    fn start_script(
        shared: &mut SharedProcesses,
        name: &str,
        script: &str,
    ) -> Result<ProcessReply, ProcessRefusal> {
        let start = StartProcess {
            process: ProcessId::parse(name).unwrap(),
            program: "/bin/sh".to_owned(),
            args: vec!["-c".to_owned(), script.to_owned()],
            arg0: None,
            folder: "/".into(),
            env: Vec::new(),
            stdio: StdioKind::Pipes,
            retain_bytes: 1024,
        };
        shared.submit(Ticket(1), ProcessRequest::StartProcess(start)).unwrap().1
    }

    #[tokio::test]
    async fn processes_start_where_no_socket_can_be_opened() {
        let home = tempfile::tempdir().unwrap();
        std::fs::write(home.path().join("run"), "no folder").unwrap();
        for home in [None, Some(home.path().join("missing")), Some(home.path().to_owned())] {
            let mut shared = SharedProcesses::new(home, Arc::new(FixedClock));
            assert_eq!(start(&mut shared, "p"), Ok(ProcessReply::ProcessStarted));
            assert!(shared.socket.is_none() && shared.table.state().by_number.is_empty());
            shared.closed().await;
        }
    }

    #[tokio::test]
    async fn a_server_that_begins_to_share_removes_the_sockets_of_killed_servers() {
        let home = tempfile::tempdir().unwrap();
        let folder = home.path().join("run");
        std::fs::create_dir(&folder).unwrap();
        for pid in 0..100 {
            drop(UnixListener::bind(folder.join(format!("{pid}.sock"))).unwrap());
        }
        let mut shared = SharedProcesses::new(Some(home.path().to_owned()), Arc::new(FixedClock));
        start(&mut shared, "p").unwrap();
        let socket = shared.socket.as_ref().unwrap().path().to_owned();
        let swept = async {
            while std::fs::read_dir(&folder).unwrap().count() > 1 {
                tokio::task::yield_now().await;
            }
        };
        timeout(VIEWER_WAIT, swept).await.expect("a sweep");
        assert!(UnixStream::connect(&socket).await.is_ok(), "its own socket is left");
        shared.closed().await;
    }

    /// Sends `request` and reads `count` lines.
    async fn ask(path: &Path, request: &str, count: usize) -> Vec<Value> {
        let mut stream = BufReader::new(UnixStream::connect(path).await.unwrap());
        stream.write_all(format!("{request}\n").as_bytes()).await.unwrap();
        let mut lines = Vec::new();
        for _ in 0..count {
            let mut line = String::new();
            stream.read_line(&mut line).await.unwrap();
            lines.push(serde_json::from_str(&line).unwrap());
        }
        lines
    }

    /// Waits until the client of the door has got `count` bytes of output.
    async fn wait_for_output(shared: &mut SharedProcesses, mut count: usize) {
        while count > 0 {
            if let Some(Update::Event(ProcessEvent::ProcessOutput { bytes, .. })) = shared.next().await {
                count -= bytes.len();
            }
        }
    }

    #[tokio::test]
    async fn a_viewer_begins_at_the_offset_that_it_asks_for() {
        let home = tempfile::tempdir().unwrap();
        let mut shared = SharedProcesses::new(Some(home.path().to_owned()), Arc::new(FixedClock));
        start_script(&mut shared, "p", "printf 0123456789; exec sleep 600").unwrap();
        wait_for_output(&mut shared, 10).await;
        let path = shared.socket.as_ref().unwrap().path().to_owned();
        let id = format!("{}-1", std::process::id());
        let output = |text: &str, offset: u64| json!({"output": base64_simd::STANDARD.encode_to_string(text), "offset": offset});
        let watching = |offset: u64| json!({"watching": id, "offset": offset});
        assert_eq!(ask(&path, "1", 2).await, [watching(0), output("0123456789", 0)]);
        assert_eq!(ask(&path, "1 4", 2).await, [watching(4), output("456789", 4)]);
        assert_eq!(ask(&path, "1 10", 1).await, [watching(10)]);
        assert_eq!(ask(&path, "1 18446744073709551615", 1).await, [watching(10)], "clamped to the end");
        // No more requests than [`MAX_VIEWERS`] in this test: the server may not have noticed that earlier viewers are gone.
        for invalid in ["2 0", "1 x", "1 1 1", "1 18446744073709551616"] {
            assert_eq!(ask(&path, invalid, 1).await, [Value::Null], "{invalid}");
        }
        shared.closed().await;
    }

    #[tokio::test]
    async fn a_viewer_sees_two_streams_in_their_order_and_gaps_by_the_offsets() {
        let home = tempfile::tempdir().unwrap();
        let mut shared = SharedProcesses::new(Some(home.path().to_owned()), Arc::new(FixedClock));
        let flag = home.path().join("continue");
        let script = format!(
            "printf err >&2; while ! [ -e {flag:?} ]; do sleep 0.01; done; head -c 3000 /dev/zero; exec sleep 600"
        );
        start_script(&mut shared, "p", &script).unwrap();
        wait_for_output(&mut shared, 3).await;
        std::fs::write(&flag, "").unwrap();
        wait_for_output(&mut shared, 3000).await;
        let path = shared.socket.as_ref().unwrap().path().to_owned();
        let ranges = async |request: &str, count: usize| -> Vec<(u64, usize)> {
            let lines = ask(&path, request, 1 + count).await;
            let outputs = lines.iter().skip(1);
            let range = |line: &Value| {
                let bytes = base64_simd::STANDARD.decode_to_vec(line["output"].as_str().unwrap()).unwrap();
                (line["offset"].as_u64().unwrap(), bytes.len())
            };
            assert_eq!(lines[0]["offset"], lines[1]["offset"]);
            outputs.map(range).collect()
        };
        // Each stream has its own limit of 1024 bytes.
        assert_eq!(ranges("1", 2).await, [(0, 3), (1979, 1024)]);
        assert_eq!(ranges("1 2", 2).await, [(2, 1), (1979, 1024)]);
        assert_eq!(ranges("1 3", 1).await, [(1979, 1024)]);
        assert_eq!(ranges("1 3000", 1).await, [(3000, 3)]);
        shared.closed().await;
    }

    #[tokio::test(start_paused = true)]
    async fn a_viewer_that_neither_sends_nor_reads_is_disconnected() {
        let table = ProcessTable { state: Mutex::default(), event_count: watch::channel(0).0 };
        let (stream, _silent) = UnixStream::pair().unwrap();
        let begun = Instant::now();
        let served = timeout(2 * VIEWER_WAIT, serve_viewer(stream, &table)).await;
        assert_eq!(served.unwrap().unwrap_err().kind(), ErrorKind::TimedOut);
        assert!(begun.elapsed() >= VIEWER_WAIT);
        let (mut stream, _not_reading) = tokio::io::duplex(16);
        let written = timeout(2 * VIEWER_WAIT, write_line(&mut stream, &json!("x".repeat(17)))).await;
        assert_eq!(written.unwrap().unwrap_err().kind(), ErrorKind::TimedOut);
    }

    #[tokio::test]
    async fn a_viewer_over_the_limit_is_disconnected() {
        let home = tempfile::tempdir().unwrap();
        let mut shared = SharedProcesses::new(Some(home.path().to_owned()), Arc::new(FixedClock));
        start(&mut shared, "p").unwrap();
        let path = shared.socket.as_ref().unwrap().path().to_owned();
        let watch = async || {
            let mut stream = BufReader::new(UnixStream::connect(&path).await.unwrap());
            // The server may close the connection before the request is written.
            let _ = stream.write_all(b"1\n").await;
            let mut line = String::new();
            let _ = stream.read_line(&mut line).await;
            (stream, line)
        };
        let mut viewers = Vec::new();
        for _ in 0..MAX_VIEWERS {
            let (stream, line) = watch().await;
            assert!(line.contains("watching"), "{line}");
            viewers.push(stream);
        }
        assert_eq!(watch().await.1, "");
        let too_long = "x".repeat(usize::try_from(MAX_VIEWER_REQUEST_BYTES).unwrap() + 1);
        drop(viewers);
        // Retry until the server has noticed that a viewer is gone.
        loop {
            let mut stream = BufReader::new(UnixStream::connect(&path).await.unwrap());
            let _ = stream.write_all(too_long.as_bytes()).await;
            let mut line = String::new();
            let _ = stream.read_line(&mut line).await;
            if line == "null\n" {
                break;
            }
        }
        shared.closed().await;
        assert!(!path.exists());
    }
}
