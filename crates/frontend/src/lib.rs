//! The backend of a connection that serves a whole front end: besides sessions, it has requests for saved chats,
//! models, skills, keys and logins.
//!
//! Requests about sessions go through a [`SessionClient`], as for any door. All others are background requests, each
//! in a task of its own, so that a login of several minutes delays no other request. The program provides the
//! [`Accounts`], which stores keys and preferences and lists the models.
//!
//! Deliberately absent: any door.

mod accounts;
mod chats;
mod session_list;
mod session_servers;
mod skills;
mod tool_client;

use std::collections::{HashMap, VecDeque};
use std::pin::Pin;
use std::sync::Arc;

use parlor_engine::{
    MAX_REQUESTS, OnDisconnect, SessionClient, Sessions, SymlinkPolicy, catch_panic, read_files,
};
use parlor_vocab::{
    Answer, Backend, ClosingPart, FrontendEvent, FrontendReply, FrontendRequest, LoginFailure,
    RegistryRequest, SessionRefusal, ShutdownSignal, Ticket, Update, UpdateOf,
};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use self::session_servers::{SessionServers, secrets};

pub use accounts::{Accounts, LoginOptions, LoginProgressSender};
pub use session_servers::{CLIENT_MCP_WAIT, MAX_CLIENT_MCP_SERVERS};
pub use skills::{SkillFolders, find_skills};
pub use tool_client::{
    ClientTools, LEAVE_WAIT, MAX_CLIENT_CALLS, MAX_JOBS, PROGRESS_TEXT_BYTES, RUN_TEXT_BYTES,
    ToolClientBackend,
};

/// How many requests about sessions may wait until the [`SessionClient`] has room for them.
pub const MAX_WAITING_REQUESTS: usize = 1024;

/// How many background requests of one connection may run at a time.
pub const MAX_BACKGROUND_REQUESTS: usize = 64;

/// How many updates of background requests may wait for the connection. Beyond it, their tasks wait.
const BACKGROUND_UPDATES: usize = 8;

type FrontendUpdate = UpdateOf<FrontendBackend>;
type FrontendAnswer = Answer<FrontendReply, SessionRefusal>;
type ShutdownFuture = Pin<Box<dyn Future<Output = ShutdownSignal> + Send>>;

/// The backend of one front end.
pub struct FrontendBackend {
    sessions: Arc<Sessions>,
    accounts: Arc<dyn Accounts>,
    client: SessionClient,
    /// How many requests the session client has not answered yet.
    submitted: usize,
    /// Requests about sessions that wait for the session client to have room.
    waiting: VecDeque<(Ticket, RegistryRequest)>,
    /// Updates that [`next`](Backend::next) returns first.
    ready: VecDeque<FrontendUpdate>,
    background_requests: usize,
    /// `None` once the connection closes.
    updates_sender: Option<mpsc::Sender<Box<FrontendUpdate>>>,
    updates: mpsc::Receiver<Box<FrontendUpdate>>,
    servers: SessionServers,
    /// The token that cancels all logins to a provider. Each running login has a clone.
    logins: HashMap<String, Arc<CancellationToken>>,
    /// Cancelled when the connection closes.
    closing: CancellationToken,
    is_client_finished: bool,
    is_background_finished: bool,
    /// Resolves to the signal that ends the program.
    shutdown: Option<ShutdownFuture>,
}

impl FrontendBackend {
    /// A backend without requests. Must be called within a tokio runtime.
    pub fn new(sessions: Arc<Sessions>, accounts: Arc<dyn Accounts>, on_disconnect: OnDisconnect) -> Self {
        let (updates_sender, updates) = mpsc::channel(BACKGROUND_UPDATES);
        Self {
            client: SessionClient::new(Arc::clone(&sessions), on_disconnect),
            sessions,
            accounts,
            submitted: 0,
            waiting: VecDeque::new(),
            ready: VecDeque::new(),
            background_requests: 0,
            updates_sender: Some(updates_sender),
            updates,
            servers: SessionServers::default(),
            logins: HashMap::new(),
            closing: CancellationToken::new(),
            is_client_finished: false,
            is_background_finished: false,
            shutdown: None,
        }
    }

    /// Makes the signal that ended the program the backend's last event, if `shutdown` has resolved by then.
    #[must_use]
    pub fn with_shutdown(self, shutdown: impl Future<Output = ShutdownSignal> + Send + 'static) -> Self {
        Self { shutdown: Some(Box::pin(shutdown)), ..self }
    }

    fn submit_to_client(&mut self, ticket: Ticket, request: RegistryRequest) -> Option<FrontendAnswer> {
        match self.client.submit(ticket, request) {
            Some((ticket, answer)) => Some((ticket, answer.map(FrontendReply::Registry))),
            None => {
                self.submitted += 1;
                None
            }
        }
    }

    fn on_client_update(&mut self, update: UpdateOf<SessionClient>) -> FrontendUpdate {
        match update {
            Update::Event(event) => Update::Event(FrontendEvent::Registry(event)),
            Update::Answer(ticket, answer) => {
                self.submitted -= 1;
                if let Some((ticket, request)) = self.waiting.pop_front()
                    && let Some((ticket, answer)) = self.submit_to_client(ticket, request)
                {
                    self.ready.push_back(Update::Answer(ticket, answer));
                }
                Update::Answer(ticket, answer.map(FrontendReply::Registry))
            }
        }
    }

    fn start_in_background(&mut self, ticket: Ticket, request: FrontendRequest) -> Option<FrontendAnswer> {
        // Cancelling frees a slot, so it does not need one.
        if let FrontendRequest::CancelLogin(provider) = &request {
            let count = self.logins.remove(provider).map_or(0, |token| {
                token.cancel();
                Arc::strong_count(&token) - 1
            });
            return Some((ticket, Ok(FrontendReply::Cancelled(count))));
        }
        let has_room = self.background_requests < MAX_BACKGROUND_REQUESTS;
        let Some(updates) = self.updates_sender.clone().filter(|_| has_room) else {
            return Some((ticket, Err(SessionRefusal::TooManyRequests { limit: MAX_BACKGROUND_REQUESTS })));
        };
        let (sessions, accounts) = (Arc::clone(&self.sessions), Arc::clone(&self.accounts));
        let job: Pin<Box<dyn Future<Output = FrontendReply> + Send>> =
            if let FrontendRequest::Login { provider, method, originator, opens_browser } = request {
                self.logins.retain(|_, token| Arc::strong_count(token) > 1);
                // Logins to the same provider share a token, so they are cancelled together.
                let token = Arc::clone(self.logins.entry(provider.clone()).or_default());
                let (options, updates) =
                    (LoginOptions { provider, method, originator, opens_browser }, updates.clone());
                let closing = self.closing.clone();
                Box::pin(async move {
                    let login = log_in(&*accounts, options, updates);
                    tokio::select! {
                        reply = login => reply,
                        () = token.cancelled() => FrontendReply::LoggedIn(Err(LoginFailure::Cancelled)),
                        () = closing.cancelled() => FrontendReply::LoggedIn(Err(LoginFailure::Cancelled)),
                    }
                })
            } else if let FrontendRequest::UseMcpServers { session, folder, servers } = request {
                let secrets: Vec<_> = servers.iter().flat_map(secrets).collect();
                let starting = self.servers.replace(&sessions, session, &folder, servers);
                let closing = self.closing.clone();
                Box::pin(async move {
                    accounts.hide(&secrets);
                    let started = closing.run_until_cancelled(starting.start(&sessions)).await;
                    FrontendReply::McpServers(started.unwrap_or_default())
                })
            } else {
                Box::pin(async move { run_request(&sessions, &*accounts, request).await })
            };
        self.background_requests += 1;
        tokio::spawn(async move {
            let reply = catch_panic(job).await.map_err(|_| SessionRefusal::Internal);
            // A closed connection needs no answer.
            let _ = updates.send(Box::new(Update::Answer(ticket, reply))).await;
        });
        None
    }
}

impl Backend for FrontendBackend {
    type Request = FrontendRequest;
    type Reply = FrontendReply;
    type Event = FrontendEvent;
    type Error = SessionRefusal;

    fn submit(&mut self, ticket: Ticket, request: FrontendRequest) -> Option<FrontendAnswer> {
        let FrontendRequest::Registry(request) = request else {
            return self.start_in_background(ticket, request);
        };
        if let RegistryRequest::Release(session) | RegistryRequest::Delete(session) = &request {
            self.servers.remove(session);
        }
        if self.submitted < MAX_REQUESTS {
            return self.submit_to_client(ticket, request);
        }
        if self.waiting.len() >= MAX_WAITING_REQUESTS {
            return Some((ticket, Err(SessionRefusal::TooManyRequests { limit: MAX_WAITING_REQUESTS })));
        }
        self.waiting.push_back((ticket, request));
        None
    }

    async fn next(&mut self) -> Option<FrontendUpdate> {
        loop {
            if let Some(update) = self.ready.pop_front() {
                return Some(update);
            }
            tokio::select! {
                update = self.client.next(), if !self.is_client_finished => match update {
                    Some(update) => return Some(self.on_client_update(update)),
                    None => self.is_client_finished = true,
                },
                update = self.updates.recv(), if !self.is_background_finished => match update {
                    Some(update) => {
                        self.background_requests -= usize::from(matches!(*update, Update::Answer(..)));
                        return Some(*update);
                    }
                    None => self.is_background_finished = true,
                },
                else => break,
            }
        }
        let shutdown = self.shutdown.take()?;
        // The signal has resolved by now if there was one. Unconstrained, because tokio's budget for this task could
        // make the future seem pending.
        let signal = tokio::task::unconstrained(async {
            tokio::select! {
                biased;
                signal = shutdown => Some(signal),
                () = std::future::ready(()) => None,
            }
        });
        signal.await.map(|signal| Update::Event(FrontendEvent::Ending(signal)))
    }

    /// Cancels logins. All other requests are still answered, and watches deliver all events that happened before the
    /// close.
    fn begin_close(&mut self) {
        self.closing.cancel();
        self.servers.clear();
        self.updates_sender = None;
        self.client.begin_close();
        for (ticket, _) in std::mem::take(&mut self.waiting) {
            let refusal = SessionRefusal::Closing { part: ClosingPart::Connection };
            self.ready.push_back(Update::Answer(ticket, Err(refusal)));
        }
    }

    async fn closed(self) {
        drop(self.updates);
        self.client.closed().await;
    }
}

/// Logs in, and sends each step to the connection.
async fn log_in(
    accounts: &dyn Accounts,
    options: LoginOptions,
    updates: mpsc::Sender<Box<FrontendUpdate>>,
) -> FrontendReply {
    let provider = options.provider.clone();
    let (progress, mut steps) = LoginProgressSender::new();
    let login = accounts.log_in(options, progress);
    let reporting = async {
        while let Some(step) = steps.recv().await {
            let event = FrontendEvent::Login { provider: provider.clone(), step };
            if updates.send(Box::new(Update::Event(event))).await.is_err() {
                return;
            }
        }
    };
    let (outcome, ()) = tokio::join!(login, reporting);
    match outcome {
        Ok(login) => FrontendReply::LoggedIn(Ok((login, accounts.credentials().await))),
        Err(failure) => FrontendReply::LoggedIn(Err(failure)),
    }
}

/// Runs a background request that is not a login.
async fn run_request(
    sessions: &Sessions,
    accounts: &dyn Accounts,
    request: FrontendRequest,
) -> FrontendReply {
    let done = |done: Result<(), String>| done.map_or_else(FrontendReply::Failed, |()| FrontendReply::Done);
    match request {
        FrontendRequest::ListChats { skip, limit } => match chats::list(sessions, skip, limit).await {
            Ok((total, chats)) => FrontendReply::Chats { total, chats },
            Err(refusal) => FrontendReply::Failed(refusal.to_string()),
        },
        FrontendRequest::ReadChat(selector) => match chats::find(sessions, &selector).await {
            Ok(found) => FrontendReply::Chat(found.map(Box::new)),
            Err(refusal) => FrontendReply::Failed(refusal.to_string()),
        },
        FrontendRequest::ListSessions { folder, after, limit } => {
            match session_list::page(sessions, folder.as_deref(), after.as_deref(), limit).await {
                Ok(reply) => reply,
                Err(refusal) => FrontendReply::Failed(refusal.to_string()),
            }
        }
        FrontendRequest::DescribeSession(id) => match session_list::describe(sessions, &id).await {
            Ok(session) => FrontendReply::Description(session.map(Box::new)),
            Err(refusal) => FrontendReply::Failed(refusal.to_string()),
        },
        FrontendRequest::CheckFolder(path) => done(session_list::check_folder(path).await),
        FrontendRequest::ReadFiles { paths, max_bytes } => {
            FrontendReply::Files(read_files(paths, max_bytes, SymlinkPolicy::Follow).await)
        }
        FrontendRequest::ListModels(lists) => FrontendReply::Models(accounts.models(lists).await),
        FrontendRequest::ListRoutes(model) => FrontendReply::Routes(accounts.routes(&model).await),
        FrontendRequest::ListSkills => FrontendReply::Skills(accounts.skills().await),
        FrontendRequest::SavePreferences(preferences) => done(accounts.save_preferences(preferences).await),
        FrontendRequest::ListCredentials => FrontendReply::Credentials(accounts.credentials().await),
        FrontendRequest::SetKey { service, key } => match accounts.set_key(&service, key).await {
            Ok(models) => FrontendReply::KeySet { models },
            Err(message) => FrontendReply::Failed(message),
        },
        FrontendRequest::Logout(provider) => match accounts.log_out(&provider).await {
            Ok(existed) => FrontendReply::LoggedOut(existed, accounts.credentials().await),
            Err(message) => FrontendReply::Failed(message),
        },
        FrontendRequest::ForgetAll => done(accounts.forget_all().await),
        FrontendRequest::Registry(_)
        | FrontendRequest::Login { .. }
        | FrontendRequest::UseMcpServers { .. }
        | FrontendRequest::CancelLogin(_) => {
            FrontendReply::Failed("this request is not a background request".to_owned())
        }
    }
}
