//! Lets others of the same user look at the processes of a door on stdio, through a Unix socket in the state folder.
//!
//! It costs nothing before the first process and little while nobody looks: output is not copied, those who look on read
//! what is retained of it anyway. They can look and do nothing else. Whatever fails here, the door goes on without it.

use std::collections::{BTreeMap, HashMap};
use std::fs::DirBuilder;
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use parlor_process::{Processes, Retained};
use parlor_vocab::{
    Answer, Backend, Clock, ProcessEvent, ProcessExit, ProcessId, ProcessRefusal, ProcessReply,
    ProcessRequest, StdioKind, Ticket, Update, UpdateOf,
};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::{Semaphore, watch};
use tokio::time::timeout;

use super::ProcessInfo;

/// How many may look on at a time. More are turned away.
pub const MAX_VIEWERS: usize = 8;

/// How long one who looks on may take to say at what, and to take what is shown.
pub const VIEWER_WAIT: Duration = Duration::from_secs(10);

/// The longest question of one who looks on.
pub const MAX_VIEWER_REQUEST_BYTES: u64 = 4096;

/// Where the sockets are, in the state folder.
pub(crate) const FOLDER: &str = "run";

/// Processes of one caller that others can look at.
pub struct SharedProcesses {
    processes: Processes,
    table: Arc<Table>,
    /// Starts that are not answered yet.
    starting: HashMap<Ticket, Start>,
    /// The state folder, until it was tried.
    home: Option<PathBuf>,
    socket: Option<SocketFile>,
    clock: Arc<dyn Clock>,
}

/// What is shown of a start: not its environment, which may hold secrets.
struct Start {
    process: ProcessId,
    command: Vec<String>,
    tty: bool,
}

struct Table {
    shown: Mutex<Shown>,
    /// Counts what happens, for those who look on.
    moved: watch::Sender<u64>,
}

#[derive(Default)]
struct Shown {
    by_number: BTreeMap<u64, Arc<Line>>,
    by_name: HashMap<ProcessId, u64>,
    last: u64,
}

struct Line {
    line: ProcessInfo,
    retained: Retained,
    ending: OnceLock<ProcessExit>,
}

/// Removed with the door.
struct SocketFile(PathBuf);

impl Drop for SocketFile {
    fn drop(&mut self) {
        // Whoever finds one that nobody listens at removes it.
        let _ = std::fs::remove_file(&self.0);
    }
}

impl SharedProcesses {
    /// Processes that are shown in the state folder `home`, if that is there.
    pub fn new(home: Option<PathBuf>, clock: Arc<dyn Clock>) -> Self {
        let table = Arc::new(Table { shown: Mutex::default(), moved: watch::channel(0).0 });
        let starting = HashMap::new();
        Self { processes: Processes::default(), table, starting, home, socket: None, clock }
    }

    fn on_answer(&mut self, ticket: Ticket, answer: &Result<ProcessReply, ProcessRefusal>) {
        let Some(start) = self.starting.remove(&ticket) else { return };
        if answer.is_err() {
            return;
        }
        if let Some(home) = self.home.take() {
            self.socket = open(&home, &self.table);
        }
        if self.socket.is_some()
            && let Some((pid, retained)) = self.processes.look_at(&start.process)
        {
            self.table.add(start, pid, retained, &*self.clock);
        }
    }

    fn on_event(&self, event: &ProcessEvent) {
        if let ProcessEvent::ProcessExited { process, ending } = event {
            self.table.remove(process, *ending);
        }
        if self.table.moved.receiver_count() > 0 {
            self.table.moved.send_modify(|count| *count += 1);
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

impl Table {
    fn shown(&self) -> MutexGuard<'_, Shown> {
        // A panic cannot leave it half changed that would matter: it is only looked at.
        self.shown.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn add(&self, start: Start, pid: u32, retained: Retained, clock: &dyn Clock) {
        let mut shown = self.shown();
        shown.last += 1;
        let number = shown.last;
        let line = ProcessInfo {
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
        shown.by_name.insert(start.process, number);
        shown.by_number.insert(number, Arc::new(Line { line, retained, ending: OnceLock::new() }));
    }

    fn remove(&self, process: &ProcessId, ending: ProcessExit) {
        let mut shown = self.shown();
        if let Some(line) = shown.by_name.remove(process).and_then(|number| shown.by_number.remove(&number)) {
            let _ = line.ending.set(ending);
        }
    }
}

/// Opens the socket and lets others look. None if that cannot be done, which is no reason to do nothing else.
fn open(home: &Path, table: &Arc<Table>) -> Option<SocketFile> {
    // A state folder that nobody has made is nobody's to look into.
    if !home.is_dir() {
        return None;
    }
    let folder = home.join(FOLDER);
    DirBuilder::new().recursive(true).mode(0o700).create(&folder).ok()?;
    let path = folder.join(format!("{}.sock", std::process::id()));
    // One of this number that is dead has left it.
    let _ = std::fs::remove_file(&path);
    let listener = UnixListener::bind(&path).ok()?;
    let socket = SocketFile(path);
    std::fs::set_permissions(&socket.0, std::fs::Permissions::from_mode(0o600)).ok()?;
    tokio::spawn(receive(listener, Arc::clone(table)));
    Some(socket)
}

async fn receive(listener: UnixListener, table: Arc<Table>) {
    let places = Arc::new(Semaphore::new(MAX_VIEWERS));
    while let Ok((stream, _)) = listener.accept().await {
        let Ok(place) = Arc::clone(&places).try_acquire_owned() else { continue };
        let table = Arc::clone(&table);
        tokio::spawn(async move {
            // How it ends is the other's affair.
            let _ = answer(stream, &table).await;
            drop(place);
        });
    }
}

/// One question: `list`, or the number of a process.
async fn answer(stream: UnixStream, table: &Table) -> std::io::Result<()> {
    let (reader, mut writer) = stream.into_split();
    let mut question = String::new();
    let mut reader = BufReader::new(reader.take(MAX_VIEWER_REQUEST_BYTES));
    timeout(VIEWER_WAIT, reader.read_line(&mut question)).await??;
    let question = question.trim();
    if question == "list" {
        let lines: Vec<ProcessInfo> =
            table.shown().by_number.values().map(|line| line.line.clone()).collect();
        return say(&mut writer, &json!(lines)).await;
    }
    let found = question.parse().ok().and_then(|number: u64| table.shown().by_number.get(&number).cloned());
    let Some(line) = found else { return say(&mut writer, &Value::Null).await };
    let mut moved = table.moved.subscribe();
    say(&mut writer, &json!({"watching": line.line.id})).await?;
    let mut seen = line.retained.from_the_start();
    loop {
        moved.mark_unchanged();
        // Looked at first: what was written before the end is shown before it.
        let ending = line.ending.get().copied();
        let bytes = line.retained.since(&mut seen);
        if !bytes.is_empty() {
            let text = base64_simd::STANDARD.encode_to_string(bytes);
            say(&mut writer, &json!({"output": text})).await?;
        }
        if let Some(ending) = ending {
            return say(&mut writer, &json!({"exited": exit_code(ending)})).await;
        }
        tokio::select! {
            changed = moved.changed() => changed.map_err(std::io::Error::other)?,
            // It says nothing more, so it has left.
            _ = reader.read_u8() => return Ok(()),
        }
    }
}

async fn say(writer: &mut (impl AsyncWriteExt + Unpin), value: &Value) -> std::io::Result<()> {
    timeout(VIEWER_WAIT, writer.write_all(format!("{value}\n").as_bytes())).await?
}

/// As shells count: signals from 128 on. What was ended on purpose has no number.
pub fn exit_code(ending: ProcessExit) -> Option<i32> {
    match ending {
        ProcessExit::Code(code) => Some(code.into()),
        ProcessExit::Signal(signal) => Some(128 + signal),
        ProcessExit::Terminated | ProcessExit::Unknown => None,
    }
}

#[cfg(test)]
mod tests {
    use std::io::ErrorKind;

    use parlor_vocab::{StartProcess, Timestamp};
    use tokio::time::Instant;

    use super::*;

    struct Noon;

    impl Clock for Noon {
        fn now(&self) -> Timestamp {
            Timestamp(0)
        }
    }

    /// Starts a shell that waits to be ended.
    fn start(shared: &mut SharedProcesses, name: &str) -> Result<ProcessReply, ProcessRefusal> {
        let start = StartProcess {
            process: ProcessId::parse(name).unwrap(),
            program: "/bin/sh".to_owned(),
            args: vec!["-c".to_owned(), "echo hi; exec sleep 600".to_owned()],
            arg0: None,
            folder: "/".into(),
            env: Vec::new(),
            stdio: StdioKind::Pipes,
            retain: 1024,
        };
        shared.submit(Ticket(1), ProcessRequest::StartProcess(start)).unwrap().1
    }

    #[tokio::test]
    async fn where_nothing_can_be_offered_the_door_goes_on() {
        let home = tempfile::tempdir().unwrap();
        std::fs::write(home.path().join(FOLDER), "no folder").unwrap();
        for home in [None, Some(home.path().join("missing")), Some(home.path().to_owned())] {
            let mut shared = SharedProcesses::new(home, Arc::new(Noon));
            assert_eq!(start(&mut shared, "p"), Ok(ProcessReply::ProcessStarted));
            assert!(shared.socket.is_none() && shared.table.shown().by_number.is_empty());
            shared.closed().await;
        }
    }

    #[tokio::test(start_paused = true)]
    async fn one_who_neither_asks_nor_takes_is_not_waited_for() {
        let table = Table { shown: Mutex::default(), moved: watch::channel(0).0 };
        let (near, _silent) = UnixStream::pair().unwrap();
        let begun = Instant::now();
        let answered = timeout(2 * VIEWER_WAIT, answer(near, &table)).await;
        assert_eq!(answered.unwrap().unwrap_err().kind(), ErrorKind::TimedOut);
        assert!(begun.elapsed() >= VIEWER_WAIT);
        let (mut near, _deaf) = tokio::io::duplex(16);
        let said = timeout(2 * VIEWER_WAIT, say(&mut near, &json!("x".repeat(17)))).await;
        assert_eq!(said.unwrap().unwrap_err().kind(), ErrorKind::TimedOut);
    }

    #[tokio::test]
    async fn so_many_look_on_and_the_next_is_turned_away() {
        let home = tempfile::tempdir().unwrap();
        let mut shared = SharedProcesses::new(Some(home.path().to_owned()), Arc::new(Noon));
        start(&mut shared, "p").unwrap();
        let path = shared.socket.as_ref().unwrap().0.clone();
        let look = async || {
            let mut stream = BufReader::new(UnixStream::connect(&path).await.unwrap());
            // One that is turned away may be so before it has asked.
            let _ = stream.write_all(b"1\n").await;
            let mut line = String::new();
            let _ = stream.read_line(&mut line).await;
            (stream, line)
        };
        let mut looking = Vec::new();
        for _ in 0..MAX_VIEWERS {
            let (stream, line) = look().await;
            assert!(line.contains("watching"), "{line}");
            looking.push(stream);
        }
        assert_eq!(look().await.1, "");
        let endless = "x".repeat(usize::try_from(MAX_VIEWER_REQUEST_BYTES).unwrap() + 1);
        drop(looking);
        // A place is free again once it was noticed that its taker has left.
        loop {
            let mut stream = BufReader::new(UnixStream::connect(&path).await.unwrap());
            let _ = stream.write_all(endless.as_bytes()).await;
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
