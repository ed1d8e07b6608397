//! Tests of [`FrontendBackend`]: background requests next to requests about sessions, and their limits.
#![expect(clippy::unwrap_used, reason = "a panic fails the test and shows the line")]

use std::collections::HashSet;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use parlor_engine::media::MediaStore;
use parlor_engine::{Agents, MAX_REQUESTS, OnDisconnect, SessionDeps, Sessions};
use parlor_frontend::{
    Accounts, FrontendBackend, LoginOptions, LoginProgressSender, MAX_BACKGROUND_REQUESTS,
    MAX_CLIENT_MCP_SERVERS, MAX_WAITING_REQUESTS,
};
use parlor_log::{MemoryLog, SystemClock, TimeOrderedIds};
use parlor_model::LocalAgent;
use parlor_tools::{ShellTool, Toolbox};
use parlor_vocab::{
    AgentChoice, AgentId, Backend, ChatSelector, ClientMcpServer, ClientMcpTransport, CompletedLogin,
    Credentials, FrontendEvent, FrontendReply, FrontendRequest, LoginFailure, LoginMethod, LoginStep,
    ModelLists, ModelOption, NewSession, Preferences, RegistryRequest, SecretText, SessionId, SessionRefusal,
    ShutdownSignal, SkillList, Ticket, Update, UpdateOf,
};

/// How long a test waits for an expected update before it fails.
const TIMEOUT: Duration = Duration::from_secs(20);

/// Accounts whose logins never end by themselves.
struct TestAccounts;

#[async_trait]
impl Accounts for TestAccounts {
    async fn models(&self, _lists: ModelLists) -> Vec<ModelOption> {
        Vec::new()
    }
    async fn routes(&self, model: &str) -> Result<Vec<String>, String> {
        Err(model.to_owned())
    }
    async fn skills(&self) -> SkillList {
        SkillList::default()
    }
    async fn save_preferences(&self, _preferences: Preferences) -> Result<(), String> {
        Err("the disk is full".to_owned())
    }
    async fn credentials(&self) -> Credentials {
        Credentials::default()
    }
    async fn set_key(&self, _service: &str, _key: Option<SecretText>) -> Result<usize, String> {
        Ok(7)
    }
    async fn log_in(
        &self,
        _options: LoginOptions,
        progress: LoginProgressSender,
    ) -> Result<CompletedLogin, LoginFailure> {
        progress.send(LoginStep::Url("u".to_owned())).await;
        std::future::pending().await
    }
    async fn log_out(&self, _provider: &str) -> Result<bool, String> {
        Ok(false)
    }
    fn hide(&self, _: &[SecretText]) {}
    async fn forget_all(&self) -> Result<(), String> {
        Ok(())
    }
}

fn sessions() -> Arc<Sessions> {
    let clock = Arc::new(SystemClock);
    Arc::new(Sessions::new(SessionDeps {
        log: Arc::new(MemoryLog::new(Arc::clone(&clock) as _)),
        agents: Agents::new(AgentId::parse("local").unwrap(), Arc::new(LocalAgent::default())),
        tools: Toolbox::standard(ShellTool::default()),
        media: MediaStore::open(Path::new("/no/such/folder")).unwrap(),
        env: Vec::new().into(),
        clock: Arc::clone(&clock) as _,
        ids: Arc::new(TimeOrderedIds::new(clock)),
    }))
}

fn frontend() -> FrontendBackend {
    FrontendBackend::new(sessions(), Arc::new(TestAccounts), OnDisconnect::Stop)
}

async fn next(frontend: &mut FrontendBackend) -> Option<UpdateOf<FrontendBackend>> {
    tokio::time::timeout(TIMEOUT, frontend.next()).await.expect("an update")
}

fn log_in() -> FrontendRequest {
    FrontendRequest::Login {
        provider: "p".to_owned(),
        method: LoginMethod::Auto,
        originator: None,
        opens_browser: false,
    }
}

fn get_overview() -> FrontendRequest {
    FrontendRequest::Registry(RegistryRequest::GetOverview(SessionId::parse("none").unwrap()))
}

#[tokio::test]
async fn session_requests_beyond_the_clients_limit_wait_and_are_answered() {
    let mut frontend = frontend();
    let count = u64::try_from(MAX_REQUESTS + MAX_WAITING_REQUESTS).unwrap();
    for ticket in 0..count {
        assert!(frontend.submit(Ticket(ticket), get_overview()).is_none());
    }
    let limit = MAX_WAITING_REQUESTS;
    assert_eq!(
        frontend.submit(Ticket(count), get_overview()),
        Some((Ticket(count), Err(SessionRefusal::TooManyRequests { limit })))
    );
    let mut answered = HashSet::new();
    while answered.len() < count as usize {
        let Some(Update::Answer(ticket, answer)) = next(&mut frontend).await else { panic!("an answer") };
        assert!(matches!(answer, Err(SessionRefusal::UnknownSession(_))) && answered.insert(ticket));
    }
}

#[tokio::test]
async fn background_requests_are_limited_and_delay_no_session_request() {
    let mut frontend = frontend();
    for ticket in 0..u64::try_from(MAX_BACKGROUND_REQUESTS).unwrap() {
        assert!(frontend.submit(Ticket(ticket), log_in()).is_none());
    }
    let refused = frontend.submit(Ticket(999), FrontendRequest::ListModels(ModelLists::Cached));
    assert_eq!(
        refused,
        Some((Ticket(999), Err(SessionRefusal::TooManyRequests { limit: MAX_BACKGROUND_REQUESTS })))
    );
    assert!(frontend.submit(Ticket(1000), get_overview()).is_none());
    loop {
        match next(&mut frontend).await.expect("an update") {
            Update::Answer(Ticket(1000), _) => break,
            Update::Event(FrontendEvent::Login { .. }) => {}
            other @ (Update::Answer(..) | Update::Event(_)) => panic!("{other:?}"),
        }
    }
    let cancelled = frontend.submit(Ticket(1001), FrontendRequest::CancelLogin("p".to_owned()));
    assert_eq!(cancelled, Some((Ticket(1001), Ok(FrontendReply::Cancelled(MAX_BACKGROUND_REQUESTS)))));
    let cancelled = frontend.submit(Ticket(1002), FrontendRequest::CancelLogin("p".to_owned()));
    assert_eq!(cancelled, Some((Ticket(1002), Ok(FrontendReply::Cancelled(0)))));
}

#[tokio::test]
async fn a_closing_connection_is_answered_and_gets_the_shutdown_signal_last() {
    let mut frontend = frontend().with_shutdown(std::future::ready(ShutdownSignal::Terminate));
    assert!(frontend.submit(Ticket(1), log_in()).is_none());
    assert!(frontend.submit(Ticket(2), get_overview()).is_none());
    frontend.begin_close();
    let mut updates = Vec::new();
    while let Some(update) = next(&mut frontend).await {
        updates.push(update);
    }
    let answered = |wanted: u64| {
        updates.iter().any(|update| matches!(update, Update::Answer(ticket, _) if ticket.0 == wanted))
    };
    assert!(answered(1) && answered(2));
    assert!(matches!(updates.last(), Some(Update::Event(FrontendEvent::Ending(ShutdownSignal::Terminate)))));
    assert!(
        frontend.submit(Ticket(3), FrontendRequest::ListModels(ModelLists::Cached)).is_some(),
        "a closed backend takes no requests"
    );
}

#[tokio::test]
async fn an_error_of_the_accounts_is_returned_with_its_text() {
    let mut frontend = frontend();
    let (model, provider, reasoning, route) = Default::default();
    let preferences = Preferences { model, provider, reasoning, route, setup_done: true };
    assert!(frontend.submit(Ticket(1), FrontendRequest::SavePreferences(preferences)).is_none());
    let Some(Update::Answer(Ticket(1), answer)) = next(&mut frontend).await else { panic!("an answer") };
    assert_eq!(answer, Ok(FrontendReply::Failed("the disk is full".to_owned())));
}

#[tokio::test]
async fn a_session_without_messages_is_not_a_chat() {
    let sessions = sessions();
    let (title, system, forked_from) = (None, None, None);
    let new_session = NewSession {
        title,
        door: "t".to_owned(),
        folder: "/".into(),
        choice: AgentChoice::default(),
        system,
        forked_from,
    };
    sessions.create(None, new_session).await.unwrap();
    let mut frontend: FrontendBackend =
        FrontendBackend::new(sessions, Arc::new(TestAccounts), OnDisconnect::Keep);
    assert!(frontend.submit(Ticket(1), FrontendRequest::ListChats { skip: 0, limit: 10 }).is_none());
    let Some(Update::Answer(Ticket(1), answer)) = next(&mut frontend).await else { panic!("an answer") };
    assert_eq!(answer, Ok(FrontendReply::Chats { total: 0, chats: Vec::new() }));
    assert!(frontend.submit(Ticket(2), FrontendRequest::ReadChat(ChatSelector::Last)).is_none());
    let Some(Update::Answer(Ticket(2), answer)) = next(&mut frontend).await else { panic!("an answer") };
    assert_eq!(answer, Ok(FrontendReply::Chat(None)));
}

/// Gives a session `count` servers that cannot be started, and returns what is missing.
async fn use_servers(frontend: &mut FrontendBackend, session: &str, count: usize) -> Vec<String> {
    let (command, args, env) = ("/no/such/program".to_owned(), Vec::new(), Vec::new());
    let transport = ClientMcpTransport::Program { command, args, env };
    let servers = vec![ClientMcpServer { name: "s".to_owned(), transport }; count];
    let (session, folder) = (SessionId::parse(session).unwrap(), "/".into());
    let request = FrontendRequest::UseMcpServers { session, folder, servers };
    assert!(frontend.submit(Ticket(1), request).is_none());
    match next(frontend).await {
        Some(Update::Answer(Ticket(1), Ok(FrontendReply::McpServers(missing)))) => missing,
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn the_sessions_of_a_connection_have_a_limited_number_of_servers() {
    let mut frontend = frontend();
    assert_eq!(use_servers(&mut frontend, "a", MAX_CLIENT_MCP_SERVERS).await.len(), MAX_CLIENT_MCP_SERVERS);
    let excess = use_servers(&mut frontend, "b", 1).await;
    assert!(matches!(&excess[..], [reason] if reason.contains("at most 128")), "{excess:?}");
    // A session that the client leaves makes room.
    let release = RegistryRequest::Release(SessionId::parse("a").unwrap());
    assert!(frontend.submit(Ticket(2), FrontendRequest::Registry(release)).is_none());
    assert!(matches!(next(&mut frontend).await, Some(Update::Answer(Ticket(2), Ok(_)))));
    let started = use_servers(&mut frontend, "b", 1).await;
    assert!(matches!(&started[..], [reason] if reason.contains("cannot be started")), "{started:?}");
}
