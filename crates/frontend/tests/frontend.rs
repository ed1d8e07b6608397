//! The frontend: errands beside the questions to the sessions, each within its limit.
#![expect(clippy::unwrap_used, reason = "a helper of a test that cannot go on panics, as the test would")]

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use parlor_engine::media::MediaStore;
use parlor_engine::{Agents, MAX_REQUESTS, OnDisconnect, SessionDeps, Sessions};
use parlor_frontend::{
    Accounts, FrontendBackend, LoginOptions, LoginProgressSender, MAX_BACKGROUND_REQUESTS,
    MAX_WAITING_REQUESTS,
};
use parlor_log::{MemoryLog, SystemClock, TimeOrderedIds};
use parlor_model::LocalAgent;
use parlor_tools::{ShellTool, Toolbox};
use parlor_vocab::{
    AgentChoice, AgentId, Backend, ChatSelector, CompletedLogin, Credentials, FrontendEvent, FrontendReply,
    FrontendRequest, LoginFailure, LoginMethod, LoginStep, ModelOption, NewSession, Preferences,
    RegistryRequest, SecretText, SessionId, SessionRefusal, ShutdownSignal, SkillList, Ticket, Update,
    UpdateOf,
};

/// How long a test waits for what must come.
const PATIENCE: Duration = Duration::from_secs(20);

/// A clerk with whom a login never ends by itself.
struct Patient;

#[async_trait]
impl Accounts for Patient {
    async fn models(&self) -> Vec<ModelOption> {
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
        media: MediaStore::open(&std::env::temp_dir().join("parlor-none")).unwrap(),
        env: Vec::new().into(),
        clock: Arc::clone(&clock) as _,
        ids: Arc::new(TimeOrderedIds::new(clock)),
    }))
}

fn frontend() -> FrontendBackend {
    FrontendBackend::new(sessions(), Arc::new(Patient), OnDisconnect::Stop)
}

async fn next(frontend: &mut FrontendBackend) -> Option<UpdateOf<FrontendBackend>> {
    tokio::time::timeout(PATIENCE, frontend.next()).await.expect("a word")
}

fn log_in() -> FrontendRequest {
    FrontendRequest::Login { provider: "p".to_owned(), method: LoginMethod::Auto, originator: None }
}

fn look() -> FrontendRequest {
    FrontendRequest::Registry(RegistryRequest::Look(SessionId::parse("none").unwrap()))
}

#[tokio::test]
async fn questions_beyond_those_that_the_house_takes_wait_and_are_answered() {
    let mut frontend = frontend();
    let count = u64::try_from(MAX_REQUESTS + MAX_WAITING_REQUESTS).unwrap();
    for question in 0..count {
        assert!(frontend.submit(Ticket(question), look()).is_none());
    }
    let limit = MAX_WAITING_REQUESTS;
    assert_eq!(
        frontend.submit(Ticket(count), look()),
        Some((Ticket(count), Err(SessionRefusal::TooManyRequests { limit })))
    );
    let mut answered = HashSet::new();
    while answered.len() < count as usize {
        let Some(Update::Answer(question, answer)) = next(&mut frontend).await else { panic!("an answer") };
        assert!(matches!(answer, Err(SessionRefusal::UnknownSession(_))) && answered.insert(question));
    }
}

#[tokio::test]
async fn errands_are_so_many_and_hold_up_nobody() {
    let mut frontend = frontend();
    for question in 0..u64::try_from(MAX_BACKGROUND_REQUESTS).unwrap() {
        assert!(frontend.submit(Ticket(question), log_in()).is_none());
    }
    let refused = frontend.submit(Ticket(999), FrontendRequest::ListModels);
    assert_eq!(
        refused,
        Some((Ticket(999), Err(SessionRefusal::TooManyRequests { limit: MAX_BACKGROUND_REQUESTS })))
    );
    assert!(frontend.submit(Ticket(1000), look()).is_none());
    loop {
        match next(&mut frontend).await.expect("a word") {
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
async fn who_leaves_is_still_answered_and_hears_last_how_the_program_ends() {
    let mut frontend = frontend().with_shutdown(std::future::ready(ShutdownSignal::Terminate));
    assert!(frontend.submit(Ticket(1), log_in()).is_none());
    assert!(frontend.submit(Ticket(2), look()).is_none());
    frontend.begin_close();
    let mut heard = Vec::new();
    while let Some(word) = next(&mut frontend).await {
        heard.push(word);
    }
    let answered = |wanted: u64| {
        heard.iter().any(|word| matches!(word, Update::Answer(question, _) if question.0 == wanted))
    };
    assert!(answered(1) && answered(2));
    assert!(matches!(heard.last(), Some(Update::Event(FrontendEvent::Ending(ShutdownSignal::Terminate)))));
    assert!(frontend.submit(Ticket(3), FrontendRequest::ListModels).is_some(), "it is too late");
}

#[tokio::test]
async fn what_a_clerk_cannot_do_is_told_in_its_words() {
    let mut frontend = frontend();
    let (model, provider, reasoning, route) = Default::default();
    let kept = Preferences { model, provider, reasoning, route, setup_done: true };
    assert!(frontend.submit(Ticket(1), FrontendRequest::SavePreferences(kept)).is_none());
    let Some(Update::Answer(Ticket(1), answer)) = next(&mut frontend).await else { panic!("an answer") };
    assert_eq!(answer, Ok(FrontendReply::Failed("the disk is full".to_owned())));
}

#[tokio::test]
async fn a_session_in_which_nobody_has_spoken_is_no_chat() {
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
    let mut frontend: FrontendBackend = FrontendBackend::new(sessions, Arc::new(Patient), OnDisconnect::Keep);
    assert!(frontend.submit(Ticket(1), FrontendRequest::ListChats { skip: 0, limit: 10 }).is_none());
    let Some(Update::Answer(Ticket(1), answer)) = next(&mut frontend).await else { panic!("an answer") };
    assert_eq!(answer, Ok(FrontendReply::Chats { total: 0, chats: Vec::new() }));
    assert!(frontend.submit(Ticket(2), FrontendRequest::ReadChat(ChatSelector::Last)).is_none());
    let Some(Update::Answer(Ticket(2), answer)) = next(&mut frontend).await else { panic!("an answer") };
    assert_eq!(answer, Ok(FrontendReply::Chat(None)));
}
