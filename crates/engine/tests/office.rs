//! The office: errands beside the questions to the house, each within its limit.
#![expect(clippy::unwrap_used, reason = "a helper of a test that cannot go on panics, as the test would")]

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use parlor_engine::media::MediaStore;
use parlor_engine::{
    Agents, Clerk, House, LoginWish, MAX_ERRANDS, MAX_QUESTIONS, MAX_WAITING_QUESTIONS, Means, Office,
    OfficeWord, Standing, Teller,
};
use parlor_log::{MemoryLog, SystemClock, TimeOrderedIds};
use parlor_model::LocalAgent;
use parlor_tools::{Shell, Toolbox};
use parlor_vocab::{
    AgentId, Birth, Choice, EndSignal, Hidden, HouseCommand, Kept, LoggedIn, LoginFlaw, LoginStep, LoginWay,
    Logins, Offer, OfficeCommand, OfficeEvent, OfficeReply, Refusal, SessionId, Skills, WantedChat,
};

/// How long a test waits for what must come.
const PATIENCE: Duration = Duration::from_secs(20);

/// A clerk with whom a login never ends by itself.
struct Patient;

#[async_trait]
impl Clerk for Patient {
    async fn offers(&self) -> Vec<Offer> {
        Vec::new()
    }
    async fn routes(&self, model: &str) -> Result<Vec<String>, String> {
        Err(model.to_owned())
    }
    async fn skills(&self) -> Skills {
        Skills::default()
    }
    async fn keep(&self, _kept: Kept) -> Result<(), String> {
        Err("the disk is full".to_owned())
    }
    async fn logins(&self) -> Logins {
        Logins::default()
    }
    async fn set_key(&self, _service: &str, _key: Option<Hidden>) -> Result<usize, String> {
        Ok(7)
    }
    async fn log_in(&self, _wish: LoginWish, teller: Teller) -> Result<LoggedIn, LoginFlaw> {
        teller.tell(LoginStep::Url("u".to_owned())).await;
        std::future::pending().await
    }
    async fn log_out(&self, _provider: &str) -> Result<bool, String> {
        Ok(false)
    }
    async fn forget_all(&self) -> Result<(), String> {
        Ok(())
    }
}

fn house() -> Arc<House> {
    let clock = Arc::new(SystemClock);
    Arc::new(House::new(Means {
        log: Arc::new(MemoryLog::new(Arc::clone(&clock) as _)),
        agents: Agents::new(AgentId::parse("local").unwrap(), Arc::new(LocalAgent::default())),
        tools: Toolbox::standard(Shell::default()),
        media: MediaStore::open(&std::env::temp_dir().join("parlor-none")).unwrap(),
        env: Vec::new().into(),
        clock: Arc::clone(&clock) as _,
        ids: Arc::new(TimeOrderedIds::new(clock)),
    }))
}

fn office() -> Office<u32> {
    Office::new(house(), Arc::new(Patient), Standing::Owner)
}

async fn next(office: &mut Office<u32>) -> Option<OfficeWord<u32>> {
    tokio::time::timeout(PATIENCE, office.next()).await.expect("a word")
}

fn log_in() -> OfficeCommand {
    OfficeCommand::Login { provider: "p".to_owned(), way: LoginWay::Auto, originator: None }
}

fn look() -> OfficeCommand {
    OfficeCommand::House(HouseCommand::Look(SessionId::parse("none").unwrap()))
}

#[tokio::test]
async fn questions_beyond_those_that_the_house_takes_wait_and_are_answered() {
    let mut office = office();
    let count = u32::try_from(MAX_QUESTIONS + MAX_WAITING_QUESTIONS).unwrap();
    for question in 0..count {
        assert!(office.ask(question, look()).is_none());
    }
    let limit = MAX_WAITING_QUESTIONS;
    assert_eq!(office.ask(count, look()), Some((count, Err(Refusal::TooManyQuestions { limit }))));
    let mut answered = HashSet::new();
    while answered.len() < count as usize {
        let Some(OfficeWord::Answer(question, answer)) = next(&mut office).await else { panic!("an answer") };
        assert!(matches!(answer, Err(Refusal::UnknownSession(_))) && answered.insert(question));
    }
}

#[tokio::test]
async fn errands_are_so_many_and_hold_up_nobody() {
    let mut office = office();
    for question in 0..u32::try_from(MAX_ERRANDS).unwrap() {
        assert!(office.ask(question, log_in()).is_none());
    }
    let refused = office.ask(999, OfficeCommand::ListModels);
    assert_eq!(refused, Some((999, Err(Refusal::TooManyQuestions { limit: MAX_ERRANDS }))));
    assert!(office.ask(1000, look()).is_none());
    loop {
        match next(&mut office).await.expect("a word") {
            OfficeWord::Answer(1000, _) => break,
            OfficeWord::Event(OfficeEvent::Login { .. }) => {}
            other @ (OfficeWord::Answer(..) | OfficeWord::Event(_)) => panic!("{other:?}"),
        }
    }
    let cancelled = office.ask(1001, OfficeCommand::CancelLogin("p".to_owned()));
    assert_eq!(cancelled, Some((1001, Ok(OfficeReply::Cancelled(MAX_ERRANDS)))));
    let cancelled = office.ask(1002, OfficeCommand::CancelLogin("p".to_owned()));
    assert_eq!(cancelled, Some((1002, Ok(OfficeReply::Cancelled(0)))));
}

#[tokio::test]
async fn who_leaves_is_still_answered_and_hears_last_how_the_program_ends() {
    let mut office = office().with_ending(std::future::ready(EndSignal::Terminate));
    assert!(office.ask(1, log_in()).is_none());
    assert!(office.ask(2, look()).is_none());
    office.leave();
    let mut heard = Vec::new();
    while let Some(word) = next(&mut office).await {
        heard.push(word);
    }
    let answered = |wanted: u32| {
        heard.iter().any(|word| matches!(word, OfficeWord::Answer(question, _) if *question == wanted))
    };
    assert!(answered(1) && answered(2));
    assert!(matches!(heard.last(), Some(OfficeWord::Event(OfficeEvent::Ending(EndSignal::Terminate)))));
    assert!(office.ask(3, OfficeCommand::ListModels).is_some(), "it is too late");
}

#[tokio::test]
async fn what_a_clerk_cannot_do_is_told_in_its_words() {
    let mut office = office();
    let (model, provider, thinking, route) = Default::default();
    let kept = Kept { model, provider, thinking, route, onboarded: true };
    assert!(office.ask(1, OfficeCommand::Keep(kept)).is_none());
    let Some(OfficeWord::Answer(1, answer)) = next(&mut office).await else { panic!("an answer") };
    assert_eq!(answer, Ok(OfficeReply::Failed("the disk is full".to_owned())));
}

#[tokio::test]
async fn a_session_in_which_nobody_has_spoken_is_no_chat() {
    let house = house();
    let (title, system, forked_from) = (None, None, None);
    let birth = Birth {
        title,
        door: "t".to_owned(),
        folder: "/".into(),
        choice: Choice::default(),
        system,
        forked_from,
    };
    house.create(None, birth).await.unwrap();
    let mut office: Office<u32> = Office::new(house, Arc::new(Patient), Standing::Visitor);
    assert!(office.ask(1, OfficeCommand::ListChats { skip: 0, limit: 10 }).is_none());
    let Some(OfficeWord::Answer(1, answer)) = next(&mut office).await else { panic!("an answer") };
    assert_eq!(answer, Ok(OfficeReply::Chats { total: 0, chats: Vec::new() }));
    assert!(office.ask(2, OfficeCommand::ReadChat(WantedChat::Last)).is_none());
    let Some(OfficeWord::Answer(2, answer)) = next(&mut office).await else { panic!("an answer") };
    assert_eq!(answer, Ok(OfficeReply::Chat(None)));
}
