//! The backend of a client that calls parlor's tools itself and delegates work to sessions.
//!
//! Requests to the registry of sessions go through a [`SessionClient`], as for any door. Each other request is a job in a
//! task of its own, so that a call of several minutes delays no other request.

mod await_run;
mod client_tools;
mod read_log;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use parlor_engine::{OnDisconnect, SessionClient, Sessions, catch_panic};
use parlor_vocab::{
    Answer, Backend, FrontendReply, SessionRefusal, Ticket, ToolClientEvent, ToolClientReply,
    ToolClientRequest, Update, UpdateOf,
};
use tokio::sync::mpsc;
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

pub use self::await_run::RUN_TEXT_BYTES;
pub use self::client_tools::{ClientTools, MAX_CLIENT_CALLS, PROGRESS_TEXT_BYTES};
use crate::session_list;

/// How many jobs of one connection may run at a time.
pub const MAX_JOBS: usize = 128;

/// How long the calls of a client that leaves may go on: a client that sends its requests and closes its side at once still
/// gets the answers that take no time.
pub const LEAVE_WAIT: Duration = Duration::from_millis(250);

/// How many updates of jobs may wait for the connection. Beyond it, answers wait and reports of progress are dropped.
const JOB_UPDATES: usize = 16;

type ToolClientUpdate = UpdateOf<ToolClientBackend>;
type ToolClientAnswer = Answer<ToolClientReply, SessionRefusal>;

/// The backend of one such client.
pub struct ToolClientBackend {
    sessions: Arc<Sessions>,
    tools: Arc<ClientTools>,
    client: SessionClient,
    /// The tokens that cancel running jobs.
    jobs: HashMap<Ticket, CancellationToken>,
    tasks: TaskTracker,
    /// `None` once the connection closes.
    updates_sender: Option<mpsc::Sender<ToolClientUpdate>>,
    updates: mpsc::Receiver<ToolClientUpdate>,
    /// Cancels all jobs.
    closing: CancellationToken,
    is_client_finished: bool,
    are_jobs_finished: bool,
}

impl ToolClientBackend {
    /// A backend without requests. Must be called within a tokio runtime.
    pub fn new(sessions: Arc<Sessions>, tools: Arc<ClientTools>, on_disconnect: OnDisconnect) -> Self {
        let (updates_sender, updates) = mpsc::channel(JOB_UPDATES);
        Self {
            client: SessionClient::new(Arc::clone(&sessions), on_disconnect),
            sessions,
            tools,
            jobs: HashMap::new(),
            tasks: TaskTracker::new(),
            updates_sender: Some(updates_sender),
            updates,
            closing: CancellationToken::new(),
            is_client_finished: false,
            are_jobs_finished: false,
        }
    }

    fn start_job(&mut self, ticket: Ticket, request: ToolClientRequest) -> Option<ToolClientAnswer> {
        let has_room = self.jobs.len() < MAX_JOBS;
        let Some(updates) = self.updates_sender.clone().filter(|_| has_room) else {
            return Some((ticket, Err(SessionRefusal::TooManyRequests { limit: MAX_JOBS })));
        };
        let cancel = self.closing.child_token();
        self.jobs.insert(ticket, cancel.clone());
        let job = Job {
            sessions: Arc::clone(&self.sessions),
            tools: Arc::clone(&self.tools),
            ticket,
            cancel,
            updates,
        };
        self.tasks.spawn(async move {
            let reply = catch_panic(job.run(request)).await.unwrap_or(Err(SessionRefusal::Internal));
            // A closed connection needs no answer.
            let _ = job.updates.send(Update::Answer(ticket, reply)).await;
        });
        None
    }
}

/// A request that is carried out in a task of its own.
struct Job {
    sessions: Arc<Sessions>,
    tools: Arc<ClientTools>,
    ticket: Ticket,
    cancel: CancellationToken,
    updates: mpsc::Sender<ToolClientUpdate>,
}

impl Job {
    async fn run(&self, request: ToolClientRequest) -> Result<ToolClientReply, SessionRefusal> {
        match request {
            ToolClientRequest::CallTool { tool, input } => {
                let report = |done, message| self.report(done, message);
                Ok(ToolClientReply::Called(self.tools.call(&tool, &input, &self.cancel, report).await))
            }
            ToolClientRequest::AwaitRun { session, run, limit } => {
                let report = |message| self.report(None, Some(message));
                let waiting =
                    await_run::await_run(&self.sessions, &session, run, limit, &self.cancel, report);
                Ok(ToolClientReply::Run(waiting.await?.map(Box::new)))
            }
            ToolClientRequest::ReadLog { session, after, max_bytes } => {
                read_log::read_log(&self.sessions, &session, after, max_bytes).await
            }
            ToolClientRequest::ListSessions { after, limit } => {
                let page = session_list::page(&self.sessions, None, after.as_deref(), limit).await?;
                let FrontendReply::Sessions { sessions, next } = page else {
                    return Ok(ToolClientReply::UnknownPage);
                };
                Ok(ToolClientReply::Sessions { sessions, next })
            }
            ToolClientRequest::CheckFolder(path) => Ok(match session_list::check_folder(path).await {
                Ok(()) => ToolClientReply::Done,
                Err(reason) => ToolClientReply::UnusableFolder(reason),
            }),
            ToolClientRequest::Registry(_) | ToolClientRequest::Cancel(_) => Err(SessionRefusal::Internal),
        }
    }

    /// Tells the connection how far the job is, unless it has other updates to read.
    fn report(&self, done: Option<(f64, Option<f64>)>, message: Option<String>) {
        let event = ToolClientEvent::Progress { ticket: self.ticket, done, message };
        let _ = self.updates.try_send(Update::Event(event));
    }
}

impl Backend for ToolClientBackend {
    type Request = ToolClientRequest;
    type Reply = ToolClientReply;
    type Event = ToolClientEvent;
    type Error = SessionRefusal;

    fn submit(&mut self, ticket: Ticket, request: ToolClientRequest) -> Option<ToolClientAnswer> {
        match request {
            ToolClientRequest::Registry(request) => {
                let (ticket, answer) = self.client.submit(ticket, request)?;
                Some((ticket, answer.map(ToolClientReply::Registry)))
            }
            ToolClientRequest::Cancel(job) => {
                if let Some(cancel) = self.jobs.get(&job) {
                    cancel.cancel();
                }
                Some((ticket, Ok(ToolClientReply::Done)))
            }
            request @ (ToolClientRequest::CallTool { .. }
            | ToolClientRequest::AwaitRun { .. }
            | ToolClientRequest::ReadLog { .. }
            | ToolClientRequest::ListSessions { .. }
            | ToolClientRequest::CheckFolder(_)) => self.start_job(ticket, request),
        }
    }

    async fn next(&mut self) -> Option<ToolClientUpdate> {
        loop {
            tokio::select! {
                update = self.client.next(), if !self.is_client_finished => match update {
                    Some(Update::Answer(ticket, answer)) => {
                        return Some(Update::Answer(ticket, answer.map(ToolClientReply::Registry)));
                    }
                    Some(Update::Event(event)) => return Some(Update::Event(ToolClientEvent::Registry(event))),
                    None => self.is_client_finished = true,
                },
                update = self.updates.recv(), if !self.are_jobs_finished => match update {
                    Some(update) => {
                        if let Update::Answer(ticket, _) = &update {
                            self.jobs.remove(ticket);
                        }
                        return Some(update);
                    }
                    None => self.are_jobs_finished = true,
                },
                else => return None,
            }
        }
    }

    /// Cancels the calls and waits that are not done within [`LEAVE_WAIT`].
    fn begin_close(&mut self) {
        self.updates_sender = None;
        self.client.begin_close();
        let closing = self.closing.clone();
        if self.jobs.is_empty() {
            return closing.cancel();
        }
        tokio::spawn(async move {
            sleep(LEAVE_WAIT).await;
            closing.cancel();
        });
    }

    async fn closed(self) {
        drop(self.updates);
        self.closing.cancel();
        self.tasks.close();
        self.tasks.wait().await;
        self.client.closed().await;
    }
}
