//! The backend of the exec door: the processes of the first family of methods, processes with numbered events, and files.

mod copy;
mod denial;
mod environment;
mod file_worker;
mod files;
mod http;
mod intent;
mod no_links;
mod open_files;
mod sequenced;
mod sessions;
mod walk;
mod work;

use std::sync::Arc;

use parlor_vocab::{
    Answer, Backend, EnvironmentInfo, ExecutorEvent, ExecutorRefusal, ExecutorReply, ExecutorRequest,
    ProcessEvent, ProcessRefusal, ProcessReply, ProcessRequest, Ticket, Update, UpdateOf,
};
use tokio::time::{Instant, sleep_until};

pub use self::copy::MAX_COPY_DEPTH;
pub use self::denial::DENIAL_SEARCH_BYTES;
use self::environment::describe;
use self::file_worker::FileWorker;
pub use self::file_worker::{FILE_WAIT, MAX_STUCK_FILES};
pub use self::files::{MAX_FILE_BYTES, MAX_LISTED_FILES};
use self::http::HttpRequests;
pub use self::http::{
    HttpAnswer, HttpBody, HttpClient, MAX_HTTP_BODY_BYTES, MAX_HTTP_PIECE_BYTES, MAX_HTTP_REQUESTS,
};
pub use self::open_files::{MAX_BLOCK_BYTES, MAX_HANDLE_BYTES, MAX_OPEN_FILES};
use self::sequenced::SequencedProcesses;
pub use self::sequenced::{
    KEPT_PROCESS_TIME, MAX_KEPT_PROCESSES, MAX_READ_WAIT, MAX_WAITING_READS, RETAINED_CHUNK_BYTES,
    RETAINED_CHUNKS, WRITE_IDS,
};
pub use self::sessions::{ExecutorSessions, MAX_KEPT_SESSIONS, SESSION_KEEP_TIME, SessionExecutor};
pub use self::walk::{MAX_WALK_DEPTH, MAX_WALK_ENTRIES, MAX_WALK_FOLDERS, WALK_BYTES};
use self::work::ObservedClient;
pub use self::work::{
    MAX_UNATTRIBUTED_CHANGES, OBSERVED_OUTPUT_BYTES, ObservedChange, ObservedWork, StopProcess, WorkObserver,
};

/// What the executor reports, with its types.
pub(crate) type ExecutorUpdate = Update<ExecutorReply, ExecutorEvent, ExecutorRefusal>;
type ExecutorAnswer = Answer<ExecutorReply, ExecutorRefusal>;

/// The backend of one connection. `P` has the processes of the first family.
#[derive(Debug)]
pub struct Executor<P> {
    processes: P,
    has_first_family_ended: bool,
    sequenced: SequencedProcesses,
    session: String,
    files: FileWorker,
    http: HttpRequests,
    observed: ObservedClient,
    is_closing: bool,
}

impl<P> Executor<P> {
    /// An executor whose first family of methods is served by `processes`.
    pub fn new(processes: P) -> Self {
        Self {
            processes,
            has_first_family_ended: false,
            sequenced: SequencedProcesses::default(),
            session: environment::random_session_id(),
            files: FileWorker::default(),
            http: HttpRequests::new(None),
            observed: ObservedClient::new(None),
            is_closing: false,
        }
    }

    /// Lets clients make HTTP requests with `client`.
    #[must_use]
    pub fn with_http(self, client: Arc<dyn HttpClient>) -> Self {
        Self { http: HttpRequests::new(Some(client)), ..self }
    }

    /// Tells `observer` what clients do.
    #[must_use]
    pub fn with_observer(self, observer: Arc<dyn WorkObserver>) -> Self {
        Self { observed: ObservedClient::new(Some(observer)), ..self }
    }

    fn describe(&self) -> EnvironmentInfo {
        describe(self.session.clone())
    }

    /// Drops the requests that wait for an answer, because their connection is gone.
    fn forget_requests(&mut self) {
        self.sequenced.forget_reads();
        self.files.forget_request();
        self.http.forget_all();
    }
}

impl<P> Backend for Executor<P>
where
    P: Backend<Request = ProcessRequest, Reply = ProcessReply, Event = ProcessEvent, Error = ProcessRefusal>
        + Send,
{
    type Request = ExecutorRequest;
    type Reply = ExecutorReply;
    type Event = ExecutorEvent;
    type Error = ExecutorRefusal;

    fn submit(&mut self, ticket: Ticket, request: ExecutorRequest) -> Option<ExecutorAnswer> {
        let answer = match request {
            ExecutorRequest::Process(request) => {
                let (ticket, answer) = self.processes.submit(ticket, request)?;
                return Some((ticket, first_family(answer)));
            }
            ExecutorRequest::OpenSession { resume: None } => {
                Ok(ExecutorReply::SessionOpened(self.describe()))
            }
            // A single connection has no earlier sessions.
            ExecutorRequest::OpenSession { resume: Some(id) } => Err(ExecutorRefusal::UnknownSession(id)),
            ExecutorRequest::DescribeEnvironment => Ok(ExecutorReply::Environment(self.describe())),
            ExecutorRequest::StartSequenced(start) => {
                let (process, origin) = (start.start.clone(), start.origin.clone());
                let started = self.sequenced.start(*start);
                if started.is_ok() {
                    self.observed.on_started(&process, origin);
                }
                started
            }
            ExecutorRequest::WriteOnce { process, write_id, bytes } => {
                self.sequenced.write(ticket, process, write_id, bytes)?
            }
            ExecutorRequest::InterruptProcess { process } => {
                self.sequenced.interrupt(&process);
                Ok(ExecutorReply::InterruptSent)
            }
            ExecutorRequest::EndProcess { process } => {
                Ok(ExecutorReply::EndingProcess { was_running: self.sequenced.end(&process) })
            }
            ExecutorRequest::ReadOutput(read) => self.sequenced.read(ticket, read)?,
            ExecutorRequest::File { action, intent } => {
                self.observed.on_file_request(&action);
                Err(self.files.submit(ticket, action, intent).err()?)
            }
            ExecutorRequest::Http(request) => Err(self.http.submit(ticket, *request).err()?.into()),
        };
        Some((ticket, answer))
    }

    async fn next(&mut self) -> Option<UpdateOf<Self>> {
        loop {
            if let Some(update) = self.sequenced.take_update() {
                if let Update::Event(event) = &update {
                    self.observed.on_event(event);
                }
                return Some(update);
            }
            if self.is_closing && self.has_first_family_ended && !self.sequenced.has_living() {
                return None;
            }
            let timer = self.sequenced.timer();
            tokio::select! {
                update = self.processes.next(), if !self.has_first_family_ended => match update {
                    Some(Update::Answer(ticket, answer)) => {
                        return Some(Update::Answer(ticket, first_family(answer)));
                    }
                    Some(Update::Event(event)) => return Some(Update::Event(ExecutorEvent::Process(event))),
                    None => self.has_first_family_ended = true,
                },
                () = self.sequenced.advance() => {}
                (ticket, answer) = self.files.next() => {
                    self.observed.on_file_reply(answer.is_ok());
                    return Some(Update::Answer(ticket, answer.map(ExecutorReply::File)));
                }
                update = self.http.next() => return Some(update),
                Some(process) = self.observed.next_stop() => drop(self.sequenced.end(&process)),
                () = sleep_until(timer.unwrap_or_else(Instant::now)), if timer.is_some() => {
                    self.sequenced.on_timer();
                }
            }
        }
    }

    fn begin_close(&mut self) {
        self.is_closing = true;
        self.http.forget_all();
        self.processes.begin_close();
        self.sequenced.end_all();
    }

    async fn closed(self) {
        self.sequenced.end_all();
        self.processes.closed().await;
        self.sequenced.closed().await;
    }
}

fn first_family(answer: Result<ProcessReply, ProcessRefusal>) -> Result<ExecutorReply, ExecutorRefusal> {
    answer.map(ExecutorReply::Process).map_err(ExecutorRefusal::Process)
}
