//! A connection to a server that runs: its list of tools, and calls.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use parlor_process::Sandbox;
use parlor_vocab::{Failure, FailureCode};
use rmcp::model::{
    CallToolRequest, CallToolRequestParams, CallToolResult, ClientCapabilities, ClientConfig, ClientRequest,
    ClientResult, ErrorCode, Implementation, JsonObject, PaginatedRequestParams, ProgressToken,
    ProtocolVersion, ServerNotification, ServerRequest, ServerResult,
};
use rmcp::service::{
    NotificationContext, PeerRequestOptions, RequestContext, RequestHandle, RunningService, Service,
    ServiceError,
};
use rmcp::{ClientLifecycleMode, ClientServiceExt, ErrorData, RoleClient};
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep_until, timeout};

use super::http::http_transport;
use super::listing::ToolList;
use super::message_budget::{Flood, MessageBudget};
use super::server_process::ServerProcess;
use super::{MCP_LIST_PAGES, MCP_PROGRESS_FACTOR, McpLaunch, McpLogin};
use crate::failure::failure;
use crate::progress::ProgressReport;
use crate::tool::ToolContext;

/// How long the message that cancels a call may take to be sent.
const CANCEL_WAIT: Duration = Duration::from_millis(500);

/// How many reports of progress of one call may wait.
const WAITING_REPORTS: usize = 4;

/// A connection to a server.
pub(super) struct Connection {
    service: RunningService<RoleClient, Listener>,
    process: Option<ServerProcess>,
    budget: Arc<MessageBudget>,
    last_used: Mutex<Instant>,
}

/// Which way to open a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Opening {
    /// Asks the server for its versions first.
    Discover,
    /// Opens with `initialize`, for a server that does not survive the question.
    Initialize,
}

/// Receives what a server sends without being asked.
struct Listener {
    calls: Arc<Mutex<HashMap<ProgressToken, mpsc::Sender<ProgressReport>>>>,
    has_new_tools: Arc<AtomicBool>,
    /// The budget of a web service, which may leave the answers to its requests unread. A process that reads nothing is ended
    /// anyway.
    answers: Option<Arc<MessageBudget>>,
}

impl Listener {
    fn new(answers: Option<Arc<MessageBudget>>) -> Self {
        Self { calls: Arc::default(), has_new_tools: Arc::default(), answers }
    }
}

impl Service<RoleClient> for Listener {
    async fn handle_request(
        &self,
        request: ServerRequest,
        _: RequestContext<RoleClient>,
    ) -> Result<ClientResult, ErrorData> {
        if let Some(answers) = &self.answers {
            let flood = |flood: Flood| ErrorData::internal_error(flood.to_string(), None);
            answers.begin_answer().map_err(flood)?;
        }
        if let ServerRequest::PingRequest(_) = request {
            return Ok(ClientResult::empty(()));
        }
        Err(ErrorData::new(ErrorCode::METHOD_NOT_FOUND, "parlor does not offer this to servers", None))
    }

    async fn handle_notification(
        &self,
        notification: ServerNotification,
        _: NotificationContext<RoleClient>,
    ) -> Result<(), ErrorData> {
        if let ServerNotification::ToolListChangedNotification(_) = notification {
            self.has_new_tools.store(true, Ordering::Relaxed);
        } else if let ServerNotification::ProgressNotification(progress) = notification {
            let params = progress.params;
            let calls = self.calls.lock().unwrap_or_else(PoisonError::into_inner);
            if let Some(call) = calls.get(&params.progress_token) {
                let report =
                    ProgressReport { done: params.progress, total: params.total, message: params.message };
                // A call that does not keep up has enough reports.
                let _ = call.try_send(report);
            }
        }
        Ok(())
    }

    fn get_info(&self) -> ClientConfig {
        let version = env!("CARGO_PKG_VERSION");
        ClientConfig::new(ClientCapabilities::default(), Implementation::new("parlor", version))
    }
}

impl Connection {
    /// Starts the server or connects to it. The error is for people.
    pub(super) async fn open(
        launch: &McpLaunch,
        login: Option<Arc<dyn McpLogin>>,
        sandbox: Option<&Sandbox>,
        opening: Opening,
        budget: &Arc<MessageBudget>,
    ) -> Result<Self, String> {
        let lifecycle = match opening {
            Opening::Initialize => ClientLifecycleMode::Initialize,
            Opening::Discover => ClientLifecycleMode::Auto {
                preferred_versions: vec![ProtocolVersion::V_2026_07_28],
                legacy_version: None,
            },
        };
        let (service, process) = match launch {
            McpLaunch::Command { program, args, env, folder } => {
                let (process, stream) = ServerProcess::start(program, args, env, folder, sandbox, budget)
                    .map_err(|error| format!("it cannot be started: {error}"))?;
                match Listener::new(None).serve_with_lifecycle(stream, lifecycle).await {
                    Ok(service) => (service, Some(process)),
                    Err(error) => {
                        let words = process.last_words();
                        return Err(if words.is_empty() {
                            error.to_string()
                        } else {
                            format!("{error}; {words}")
                        });
                    }
                }
            }
            McpLaunch::Url { url, headers } => {
                let transport = http_transport(url, headers, login, Arc::clone(budget))?;
                let listener = Listener::new(Some(Arc::clone(budget)));
                let served = listener.serve_with_lifecycle(transport, lifecycle).await;
                (served.map_err(|error| error.to_string())?, None)
            }
        };
        Ok(Self { service, process, budget: Arc::clone(budget), last_used: Mutex::new(Instant::now()) })
    }

    /// Remembers that the connection is used now.
    pub(super) fn touch(&self) {
        *self.last_used.lock().unwrap_or_else(PoisonError::into_inner) = Instant::now();
    }

    /// When the connection was last used.
    pub(super) fn last_used(&self) -> Instant {
        *self.last_used.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn budget(&self) -> Arc<MessageBudget> {
        Arc::clone(&self.budget)
    }

    /// Whether calls can be made.
    pub(super) fn is_open(&self) -> bool {
        !self.service.is_closed() && !self.service.peer().is_transport_closed() && !self.budget.is_exceeded()
    }

    /// Whether the server said that its tools changed since the last call of this.
    pub(super) fn take_has_new_tools(&self) -> bool {
        self.service.service().has_new_tools.swap(false, Ordering::Relaxed)
    }

    /// The name and the version of the server and the version of the protocol, for people.
    pub(super) fn description(&self) -> String {
        let Some(info) = self.service.peer().peer_info() else { return "unknown".to_owned() };
        let name = info.server_info.as_ref().map(|server| format!("{} {}, ", server.name, server.version));
        format!("{}MCP {}", name.unwrap_or_default(), info.protocol_version)
    }

    /// Why the connection is lost, as far as the process says so.
    pub(super) fn last_words(&self) -> String {
        match &self.process {
            Some(process) => process.last_words(),
            None if self.budget.is_exceeded() => Flood.to_string(),
            None => String::new(),
        }
    }

    /// The tools of the server that `chosen` allows, up to the limits.
    pub(super) async fn list_tools(&self, chosen: Option<&[String]>) -> Result<ToolList, String> {
        let (mut list, mut cursor) = (ToolList::default(), None);
        for _ in 0..MCP_LIST_PAGES {
            let params = PaginatedRequestParams::default().with_cursor(cursor);
            self.budget.expect_answer();
            let page = self.service.peer().list_tools(Some(params)).await;
            let page = page.map_err(|error| format!("it does not list its tools: {error}"))?;
            // Only what is used of a page is kept while the next one comes.
            let is_full = !list.extend(page.tools, chosen);
            cursor = page.next_cursor;
            if cursor.is_none() || is_full {
                break;
            }
        }
        Ok(list)
    }

    /// Calls a tool. Ends after `idle` without a report of progress, after a multiple of it in any case, and soon after the
    /// context is cancelled, whatever the server does.
    pub(super) async fn call(
        &self,
        tool: &str,
        arguments: JsonObject,
        idle: Duration,
        context: &ToolContext,
    ) -> Result<CallToolResult, Failure> {
        let params = CallToolRequestParams::new(tool.to_owned()).with_arguments(arguments);
        let request = ClientRequest::CallToolRequest(CallToolRequest::new(params));
        let sending = self.service.peer().send_cancellable_request(request, PeerRequestOptions::no_options());
        self.budget.expect_answer();
        let begun = Instant::now();
        let latest = begun + idle * MCP_PROGRESS_FACTOR;
        let mut handle = tokio::select! {
            sent = sending => sent.map_err(|error| self.lost(&error))?,
            () = context.cancel.cancelled() => return Err(crate::failure::cancelled()),
            () = sleep_until(begun + idle) => return Err(silent(idle)),
        };
        let (sender, mut reports) = mpsc::channel(WAITING_REPORTS);
        let _registered = Registered::new(&self.service.service().calls, &handle.progress_token, sender);
        let mut deadline = begun + idle;
        loop {
            tokio::select! {
                biased;
                answer = &mut handle.rx => {
                    return match answer {
                        Ok(Ok(ServerResult::CallToolResult(result))) => Ok(result),
                        Ok(Ok(_)) => Err(failure(FailureCode::ToolError, "the server answered with something else than a result")),
                        Ok(Err(error)) => Err(self.lost(&error)),
                        Err(_) => Err(self.lost(&ServiceError::TransportClosed)),
                    };
                }
                Some(report) = reports.recv() => {
                    deadline = (Instant::now() + idle).min(latest);
                    context.progress.report(report);
                }
                () = context.cancel.cancelled() => {
                    cancel(handle);
                    return Err(crate::failure::cancelled());
                }
                () = sleep_until(deadline) => {
                    cancel(handle);
                    return Err(silent(idle));
                }
                () = self.budget.exceeded() => return Err(self.lost(&ServiceError::TransportClosed)),
            }
        }
    }

    /// The failure of a call for an error of the connection.
    fn lost(&self, error: &ServiceError) -> Failure {
        if let ServiceError::McpError(error) = error {
            return failure(
                FailureCode::ToolError,
                format!("the server refused the call: {}", error.message),
            );
        }
        let words = self.last_words();
        let words = if words.is_empty() { error.to_string() } else { words };
        let text =
            format!("the server was lost during the call, which may or may not have happened: {words}");
        failure(FailureCode::ToolError, text)
    }
}

fn silent(idle: Duration) -> Failure {
    let text = format!(
        "the server did not answer within {} s; the call was cancelled, and may or may not have happened",
        idle.as_secs()
    );
    failure(FailureCode::Timeout, text)
}

/// Tells the server that a call is cancelled. Nobody waits until it has read that.
fn cancel(handle: RequestHandle<RoleClient>) {
    tokio::spawn(async move { timeout(CANCEL_WAIT, handle.cancel(Some("cancelled".to_owned()))).await });
}

/// A call that gets reports of progress until this is dropped.
struct Registered<'a> {
    calls: &'a Mutex<HashMap<ProgressToken, mpsc::Sender<ProgressReport>>>,
    token: ProgressToken,
}

impl<'a> Registered<'a> {
    fn new(
        calls: &'a Mutex<HashMap<ProgressToken, mpsc::Sender<ProgressReport>>>,
        token: &ProgressToken,
        sender: mpsc::Sender<ProgressReport>,
    ) -> Self {
        calls.lock().unwrap_or_else(PoisonError::into_inner).insert(token.clone(), sender);
        Self { calls, token: token.clone() }
    }
}

impl Drop for Registered<'_> {
    fn drop(&mut self) {
        self.calls.lock().unwrap_or_else(PoisonError::into_inner).remove(&self.token);
    }
}
