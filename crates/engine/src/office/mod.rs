//! One caller of the house that runs a whole front end: beside sessions it asks for saved chats, models, skills,
//! keys and logins.
//!
//! Questions to the house go the way of any guest's. All others are errands, each on its own: one that takes
//! minutes, as a login does, holds up no other. Who keeps keys and knows models is the [`Clerk`], chosen by
//! whoever opens the office.

mod chats;
mod clerk;
mod files;
mod skills;

use std::collections::{HashMap, VecDeque};
use std::pin::Pin;
use std::sync::Arc;

use parlor_vocab::{EndSignal, HouseCommand, LoginFlaw, OfficeCommand, OfficeEvent, OfficeReply, Refusal};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

pub use clerk::{Clerk, LoginWish, Teller};
pub use skills::find_skills_in;

use crate::contain::contain;
use crate::guest::{Guest, MAX_QUESTIONS, Standing, Word};
use crate::house::House;

/// How many questions to the house may wait behind those that are being carried out.
pub const MAX_WAITING_QUESTIONS: usize = 1024;

/// How many errands of one caller may be under way.
pub const MAX_ERRANDS: usize = 64;

/// How many words of errands wait for a caller. Few: whoever has more to say waits.
const WORDS: usize = 8;

/// What comes back to a caller. `Q` is the caller's name for a question.
#[derive(Debug)]
pub enum OfficeWord<Q> {
    /// The answer to a question.
    Answer(Q, Result<OfficeReply, Refusal>),
    /// Something that happened.
    Event(OfficeEvent),
}

type Ending = Pin<Box<dyn Future<Output = EndSignal> + Send>>;

/// One caller.
pub struct Office<Q> {
    house: Arc<House>,
    clerk: Arc<dyn Clerk>,
    guest: Guest<Q>,
    /// How many questions the house has not answered yet.
    asked: usize,
    /// Questions to the house that wait for a place.
    waiting: VecDeque<(Q, HouseCommand)>,
    /// Words that are there already.
    due: VecDeque<OfficeWord<Q>>,
    /// How many errands are under way.
    errands: usize,
    /// None once the caller leaves.
    tell: Option<mpsc::Sender<Box<OfficeWord<Q>>>>,
    words: mpsc::Receiver<Box<OfficeWord<Q>>>,
    /// What gives up the logins to each provider. Each login that is under way has a copy.
    logins: HashMap<String, Arc<CancellationToken>>,
    /// Cancelled when the caller leaves.
    leaving: CancellationToken,
    is_house_silent: bool,
    are_errands_done: bool,
    /// How the program was told to end, if it was.
    ending: Option<Ending>,
}

impl<Q: Send + 'static> Office<Q> {
    /// A caller that has asked nothing yet. Call within a runtime.
    pub fn new(house: Arc<House>, clerk: Arc<dyn Clerk>, standing: Standing) -> Self {
        let (tell, words) = mpsc::channel(WORDS);
        Self {
            guest: Guest::new(Arc::clone(&house), standing),
            house,
            clerk,
            asked: 0,
            waiting: VecDeque::new(),
            due: VecDeque::new(),
            errands: 0,
            tell: Some(tell),
            words,
            logins: HashMap::new(),
            leaving: CancellationToken::new(),
            is_house_silent: false,
            are_errands_done: false,
            ending: None,
        }
    }

    /// The same, and its last word is how the program was told to end, if `ending` is ready by then.
    #[must_use]
    pub fn with_ending(self, ending: impl Future<Output = EndSignal> + Send + 'static) -> Self {
        Self { ending: Some(Box::pin(ending)), ..self }
    }

    /// Puts a question. The answer comes from [`next`](Office::next), unless there is no room for it.
    pub fn ask(&mut self, question: Q, command: OfficeCommand) -> Option<(Q, Result<OfficeReply, Refusal>)> {
        let OfficeCommand::House(command) = command else { return self.run_errand(question, command) };
        if self.asked < MAX_QUESTIONS {
            return self.ask_house(question, command);
        }
        if self.waiting.len() >= MAX_WAITING_QUESTIONS {
            return Some((question, Err(Refusal::TooManyQuestions { limit: MAX_WAITING_QUESTIONS })));
        }
        self.waiting.push_back((question, command));
        None
    }

    fn ask_house(&mut self, question: Q, command: HouseCommand) -> Option<(Q, Result<OfficeReply, Refusal>)> {
        match self.guest.ask(question, command) {
            Some((question, answer)) => Some((question, answer.map(OfficeReply::House))),
            None => {
                self.asked += 1;
                None
            }
        }
    }

    /// Waits for the next word; none when, after [`leave`](Office::leave), everything is said. Cancel safe.
    pub async fn next(&mut self) -> Option<OfficeWord<Q>> {
        loop {
            if let Some(word) = self.due.pop_front() {
                return Some(word);
            }
            tokio::select! {
                word = self.guest.next(), if !self.is_house_silent => match word {
                    Some(word) => return Some(self.of_house(word)),
                    None => self.is_house_silent = true,
                },
                word = self.words.recv(), if !self.are_errands_done => match word {
                    Some(word) => {
                        self.errands -= usize::from(matches!(*word, OfficeWord::Answer(..)));
                        return Some(*word);
                    }
                    None => self.are_errands_done = true,
                },
                else => break,
            }
        }
        let ending = self.ending.take()?;
        // Whoever caught the signal first, it is known here by now. The runtime's patience with this task must
        // not hide it.
        let signal = tokio::task::unconstrained(async {
            tokio::select! {
                biased;
                signal = ending => Some(signal),
                () = std::future::ready(()) => None,
            }
        });
        signal.await.map(|signal| OfficeWord::Event(OfficeEvent::Ending(signal)))
    }

    fn of_house(&mut self, word: Word<Q>) -> OfficeWord<Q> {
        match word {
            Word::Event(event) => OfficeWord::Event(OfficeEvent::House(event)),
            Word::Answer(question, answer) => {
                self.asked -= 1;
                if let Some((question, command)) = self.waiting.pop_front()
                    && let Some((question, answer)) = self.ask_house(question, command)
                {
                    self.due.push_back(OfficeWord::Answer(question, answer));
                }
                OfficeWord::Answer(question, answer.map(OfficeReply::House))
            }
        }
    }

    /// Begins to leave: logins are given up, all other questions are still answered, and what is watched is told
    /// to its end.
    pub fn leave(&mut self) {
        self.leaving.cancel();
        self.tell = None;
        self.guest.leave();
        for (question, _) in std::mem::take(&mut self.waiting) {
            let reason = "the connection is ending".to_owned();
            self.due.push_back(OfficeWord::Answer(question, Err(Refusal::LogUnavailable { reason })));
        }
    }

    /// Waits until what this caller started is over, whether or not anybody listens.
    pub async fn gone(self) {
        drop(self.words);
        self.guest.gone().await;
    }

    fn run_errand(
        &mut self,
        question: Q,
        command: OfficeCommand,
    ) -> Option<(Q, Result<OfficeReply, Refusal>)> {
        // That makes room, so it needs none.
        if let OfficeCommand::CancelLogin(provider) = &command {
            let count = self.logins.remove(provider).map_or(0, |token| {
                token.cancel();
                Arc::strong_count(&token) - 1
            });
            return Some((question, Ok(OfficeReply::Cancelled(count))));
        }
        let Some(tell) = self.tell.clone().filter(|_| self.errands < MAX_ERRANDS) else {
            return Some((question, Err(Refusal::TooManyQuestions { limit: MAX_ERRANDS })));
        };
        let (house, clerk) = (Arc::clone(&self.house), Arc::clone(&self.clerk));
        let errand: Pin<Box<dyn Future<Output = OfficeReply> + Send>> = match command {
            OfficeCommand::Login { provider, way, originator } => {
                self.logins.retain(|_, token| Arc::strong_count(token) > 1);
                // A second login to the same provider is given up along with the first.
                let token = Arc::clone(self.logins.entry(provider.clone()).or_default());
                let (wish, teller) = (LoginWish { provider, way, originator }, tell.clone());
                let leaving = self.leaving.clone();
                Box::pin(async move {
                    let login = log_in(&*clerk, wish, teller);
                    tokio::select! {
                        reply = login => reply,
                        () = token.cancelled() => OfficeReply::LoggedIn(Err(LoginFlaw::Cancelled)),
                        () = leaving.cancelled() => OfficeReply::LoggedIn(Err(LoginFlaw::Cancelled)),
                    }
                })
            }
            other @ (OfficeCommand::House(_)
            | OfficeCommand::CancelLogin(_)
            | OfficeCommand::ListChats { .. }
            | OfficeCommand::ReadChat(_)
            | OfficeCommand::ReadFiles { .. }
            | OfficeCommand::ListModels
            | OfficeCommand::ListRoutes(_)
            | OfficeCommand::ListSkills
            | OfficeCommand::Keep(_)
            | OfficeCommand::LookAtLogins
            | OfficeCommand::SetKey { .. }
            | OfficeCommand::Logout(_)
            | OfficeCommand::ForgetAll) => Box::pin(async move { run(&house, &*clerk, other).await }),
        };
        self.errands += 1;
        tokio::spawn(async move {
            let reply = contain(errand).await.map_err(|_| Refusal::Internal);
            // A caller that has gone needs no answer.
            let _ = tell.send(Box::new(OfficeWord::Answer(question, reply))).await;
        });
        None
    }
}

/// Logs in, and tells of each step.
async fn log_in<Q: Send + 'static>(
    clerk: &dyn Clerk,
    wish: LoginWish,
    tell: mpsc::Sender<Box<OfficeWord<Q>>>,
) -> OfficeReply {
    let provider = wish.provider.clone();
    let (teller, mut steps) = Teller::new();
    let login = clerk.log_in(wish, teller);
    let telling = async {
        while let Some(step) = steps.recv().await {
            let event = OfficeEvent::Login { provider: provider.clone(), step };
            if tell.send(Box::new(OfficeWord::Event(event))).await.is_err() {
                return;
            }
        }
    };
    let (outcome, ()) = tokio::join!(login, telling);
    match outcome {
        Ok(login) => OfficeReply::LoggedIn(Ok((login, clerk.logins().await))),
        Err(flaw) => OfficeReply::LoggedIn(Err(flaw)),
    }
}

async fn run(house: &House, clerk: &dyn Clerk, command: OfficeCommand) -> OfficeReply {
    let done = |done: Result<(), String>| done.map_or_else(OfficeReply::Failed, |()| OfficeReply::Done);
    match command {
        OfficeCommand::ListChats { skip, limit } => match chats::list(house, skip, limit).await {
            Ok((total, chats)) => OfficeReply::Chats { total, chats },
            Err(refusal) => OfficeReply::Failed(refusal.to_string()),
        },
        OfficeCommand::ReadChat(wanted) => match chats::find(house, &wanted).await {
            Ok(found) => OfficeReply::Chat(found.map(Box::new)),
            Err(refusal) => OfficeReply::Failed(refusal.to_string()),
        },
        OfficeCommand::ReadFiles { paths, max_bytes } => {
            OfficeReply::Files(files::read_all(paths, max_bytes).await)
        }
        OfficeCommand::ListModels => OfficeReply::Models(clerk.offers().await),
        OfficeCommand::ListRoutes(model) => OfficeReply::Routes(clerk.routes(&model).await),
        OfficeCommand::ListSkills => OfficeReply::Skills(clerk.skills().await),
        OfficeCommand::Keep(kept) => done(clerk.keep(kept).await),
        OfficeCommand::LookAtLogins => OfficeReply::Logins(clerk.logins().await),
        OfficeCommand::SetKey { service, key } => match clerk.set_key(&service, key).await {
            Ok(models) => OfficeReply::KeySet { models },
            Err(why) => OfficeReply::Failed(why),
        },
        OfficeCommand::Logout(provider) => match clerk.log_out(&provider).await {
            Ok(existed) => OfficeReply::LoggedOut(existed, clerk.logins().await),
            Err(why) => OfficeReply::Failed(why),
        },
        OfficeCommand::ForgetAll => done(clerk.forget_all().await),
        OfficeCommand::House(_) | OfficeCommand::Login { .. } | OfficeCommand::CancelLogin(_) => {
            OfficeReply::Failed("that is no errand".to_owned())
        }
    }
}
