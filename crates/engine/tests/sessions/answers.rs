//! A question is answered at most once, and its call is made at most once and only if it was allowed, in any order of clients
//! that come, answer at the same time and leave, of processes that are killed or closed, and of those that follow them.

use std::collections::HashMap;
use std::sync::Arc;

use futures_util::future::join_all;
use parlor_engine::Sessions;
use parlor_engine::policy::PolicySettings;
use parlor_log::{EventLog, MemoryLog, SystemClock};
use parlor_vocab::{
    NewSession, PolicyMode, QuestionAnswer, QuestionEvent, QuestionId, QuestionOutcome, RunEvent, RunId, Seq,
    SessionCommand, SessionEvent, SessionId, SessionRefusal, UserInput, WhenBusy,
};
use proptest::prelude::*;
use tokio::runtime::Runtime;

use crate::common::{TIMEOUT, new_session};
use crate::questions::{RememberedAnswers, ask, process_with};

#[derive(Clone, Debug)]
enum Action {
    /// A client sends a message, whose run asks.
    Send,
    /// A client connects: it opens the session, which goes on with a run that waits.
    Connect,
    /// These answers arrive at the same time, for the newest question or for an earlier one.
    Answer { answers: Vec<u8>, earlier: bool },
    /// Waits until the run asks or has ended.
    Wait,
    /// The process is killed where it is, and the next one starts.
    Crash,
    /// The process ends in order, and the next one starts.
    Close,
}

/// One process after another on the same log.
struct World {
    log: Arc<MemoryLog>,
    remembered: Arc<RememberedAnswers>,
    session: SessionId,
    folder: tempfile::TempDir,
    process: Option<(Runtime, Sessions)>,
    /// How many messages were sent. Each has a command that writes its number.
    sent: usize,
    /// The answers that were accepted, for each question.
    accepted: HashMap<QuestionId, Vec<QuestionAnswer>>,
}

impl World {
    fn new() -> Self {
        let log = Arc::new(MemoryLog::new(Arc::new(SystemClock)));
        let folder = tempfile::tempdir().unwrap();
        let mut world = Self {
            log,
            remembered: Arc::default(),
            session: SessionId::parse("s").unwrap(),
            folder,
            process: None,
            sent: 0,
            accepted: HashMap::new(),
        };
        let new_session = NewSession { folder: world.folder.path().to_owned(), ..new_session() };
        let id = Some(world.session.clone());
        world.run(async |sessions, _| sessions.create(id, new_session).await.unwrap());
        world
    }

    /// Does something in the current process. Its tasks get on only meanwhile.
    fn run<T>(&mut self, work: impl AsyncFnOnce(&Sessions, &SessionId) -> T) -> T {
        let (runtime, sessions) = self.process.get_or_insert_with(|| {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            let rules = vec![ask("tool", "shell")];
            let settings = PolicySettings { mode: PolicyMode::Full, rules, ..PolicySettings::default() };
            let sessions = runtime.block_on(async { process_with(&self.log, settings, &self.remembered) });
            (runtime, sessions)
        });
        runtime.block_on(work(sessions, &self.session))
    }

    fn apply(&mut self, action: &Action) {
        match action {
            Action::Send => {
                let text = format!("!echo {} >> made", self.sent);
                let input = UserInput { text, can_answer: true, ..UserInput::default() };
                let command = SessionCommand::Send { input, when_busy: WhenBusy::Enqueue };
                match self.run(async |sessions, id| sessions.execute(id, command).await) {
                    Ok(_) => self.sent += 1,
                    Err(SessionRefusal::QueueFull { .. }) => {}
                    Err(refusal) => panic!("{refusal}"),
                }
            }
            Action::Connect => drop(self.run(async |sessions, id| sessions.view(id).await.unwrap())),
            Action::Answer { answers, earlier } => self.answer(answers, *earlier),
            Action::Wait => self.run(wait),
            // Its tasks end where they are, and the log gets nothing more of them.
            Action::Crash => drop(self.process.take()),
            Action::Close => {
                self.run(async |sessions, _| sessions.close().await);
                self.process = None;
            }
        }
    }

    fn answer(&mut self, answers: &[u8], earlier: bool) {
        let mut asked: Vec<QuestionId> =
            self.questions().into_iter().map(|(question, ..)| question).collect();
        if earlier {
            asked.pop();
        }
        let Some(question) = asked.pop() else { return };
        let answers: Vec<QuestionAnswer> = answers
            .iter()
            .map(|answer| match answer % 3 {
                0 => QuestionAnswer::AllowOnce,
                1 => QuestionAnswer::Deny { message: None },
                _ => QuestionAnswer::Deny { message: Some("no".to_owned()) },
            })
            .collect();
        let commands = answers.iter().map(|answer| {
            let (question, answer) = (question.clone(), answer.clone());
            SessionCommand::AnswerQuestion { question, answer, by: None }
        });
        let commands: Vec<SessionCommand> = commands.collect();
        let replies = self.run(async |sessions, id| {
            join_all(commands.into_iter().map(|command| sessions.execute(id, command))).await
        });
        for (answer, reply) in answers.into_iter().zip(replies) {
            match reply {
                Ok(_) => self.accepted.entry(question.clone()).or_default().push(answer),
                Err(SessionRefusal::QuestionSettled { .. } | SessionRefusal::UnknownQuestion(_)) => {}
                Err(refusal) => panic!("{refusal}"),
            }
        }
    }

    /// The questions in the log: the question, its run, and its outcomes.
    fn questions(&self) -> Vec<(QuestionId, RunId, Vec<QuestionOutcome>)> {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let entries = runtime.block_on(self.log.read(&self.session, Seq::START, usize::MAX)).unwrap();
        let mut questions: Vec<(QuestionId, RunId, Vec<QuestionOutcome>)> = Vec::new();
        for entry in entries {
            let SessionEvent::Run { run, event: RunEvent::Question(event), .. } = entry.event else {
                continue;
            };
            match event {
                QuestionEvent::Asked(question) => questions.push((question.id, run, Vec::new())),
                QuestionEvent::Settled { question, outcome } => {
                    let asked = questions.iter_mut().find(|(id, ..)| *id == question);
                    asked.expect("only what was asked is settled").2.push(outcome);
                }
            }
        }
        questions
    }

    fn check(&self) {
        let made = std::fs::read_to_string(self.folder.path().join("made")).unwrap_or_default();
        let questions = self.questions();
        for (question, _, outcomes) in &questions {
            assert!(outcomes.len() <= 1, "settled twice: {outcomes:?}");
            let accepted = self.accepted.get(question).map_or(&[][..], Vec::as_slice);
            assert!(accepted.len() <= 1, "answered twice: {accepted:?}");
            if let [answer] = accepted {
                let outcome = QuestionOutcome::Answered { answer: answer.clone(), by: None };
                assert_eq!(outcomes, &[outcome], "an accepted answer is durable");
            }
        }
        let runs: Vec<&RunId> = questions.iter().map(|(_, run, _)| run).collect();
        assert_eq!(
            runs.iter().collect::<std::collections::HashSet<_>>().len(),
            runs.len(),
            "a run that goes on does not ask again"
        );
        let allowed =
            questions.iter().filter(|(.., outcomes)| outcomes.iter().any(QuestionOutcome::is_allowed));
        assert!(made.lines().count() <= allowed.count(), "{made:?}: {questions:?}");
        let mut lines: Vec<&str> = made.lines().collect();
        lines.sort_unstable();
        lines.dedup();
        assert_eq!(lines.len(), made.lines().count(), "a call was made twice: {made:?}");
    }
}

/// Waits until the session asks, or no run is active.
async fn wait(sessions: &Sessions, id: &SessionId) {
    loop {
        let session = sessions.view(id).await.unwrap();
        if session.active().is_none() || session.pending_question().is_some() {
            return;
        }
        let mut watcher = sessions.watch(id, session.head()).await;
        tokio::time::timeout(TIMEOUT, watcher.next()).await.expect("the run goes on").unwrap();
    }
}

fn any_action() -> impl Strategy<Value = Action> {
    let answers = (prop::collection::vec(any::<u8>(), 1..4), any::<bool>());
    prop_oneof![
        3 => Just(Action::Send),
        2 => Just(Action::Connect),
        4 => answers.prop_map(|(answers, earlier)| Action::Answer { answers, earlier }),
        4 => Just(Action::Wait),
        3 => Just(Action::Crash),
        1 => Just(Action::Close),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn a_question_is_never_answered_twice(actions in prop::collection::vec(any_action(), 1..24)) {
        let mut world = World::new();
        for action in &actions {
            world.apply(action);
            world.check();
        }
        // Every question that is left can be answered, and every run ends.
        for _ in 0..=world.sent {
            world.apply(&Action::Wait);
            world.apply(&Action::Answer { answers: vec![0, 1], earlier: false });
        }
        world.apply(&Action::Wait);
        world.check();
        let is_idle = world.run(async |sessions, id| sessions.view(id).await.unwrap().active().is_none());
        prop_assert!(is_idle, "a run is left");
    }
}
