//! One caller of the house: its questions, and the sessions it watches.
//!
//! Questions are carried out in the order in which they were put; an answer that takes long holds up
//! no other. What is watched waits in the log and not here: a caller that does not listen is late.
//!
//! There may be thousands of callers that say nothing, so one that says nothing has no task of its own:
//! what it watches is looked at when it is asked for, and a question has a task as long as it takes.

mod desk;
mod watches;

use std::collections::VecDeque;
use std::sync::Arc;

use futures_util::FutureExt;
use parlor_vocab::{HouseCommand, HouseEvent, HouseReply, Refusal};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use self::desk::{Answer, Carried, carry_out};
use self::watches::Watches;
use crate::House;
use crate::contain::contain;

/// How many questions of one caller may wait for an answer.
pub const MAX_QUESTIONS: usize = 64;

/// How many sessions one caller may watch at a time.
pub const MAX_WATCHED: usize = 64;

/// What a caller may do to the house when it leaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// The house is there for this caller: when it leaves, all runs are stopped.
    Owner,
    /// The house goes on without it.
    Visitor,
}

/// What comes back to a caller. `Q` is the caller's name for a question.
#[derive(Debug)]
pub enum Word<Q> {
    /// The answer to a question.
    Answer(Q, Result<HouseReply, Refusal>),
    /// Something that happened.
    Event(HouseEvent),
}

/// One caller of the house.
pub struct Guest<Q> {
    house: Arc<House>,
    standing: Standing,
    /// Questions that wait for the one before them.
    asked: VecDeque<(Q, HouseCommand)>,
    /// Whether a question is being carried out.
    is_busy: bool,
    /// How many questions have no answer yet.
    waiting: usize,
    tasks: JoinSet<Done<Q>>,
    watches: Watches,
    has_left: bool,
    /// Cancelled when all that will ever happen has happened.
    over: CancellationToken,
}

/// How far a question has come.
enum Done<Q> {
    /// The next may follow.
    Carried(Q, Result<Carried, Refusal>),
    /// It is answered, some time after the next could follow.
    Answered(Q, Answer),
}

impl<Q: Send + 'static> Guest<Q> {
    /// A caller that has asked nothing yet.
    pub fn new(house: Arc<House>, standing: Standing) -> Self {
        Self {
            house,
            standing,
            asked: VecDeque::new(),
            is_busy: false,
            waiting: 0,
            tasks: JoinSet::new(),
            watches: Watches::default(),
            has_left: false,
            over: CancellationToken::new(),
        }
    }

    /// Puts a question. The answer comes from [`next`](Guest::next), unless there is no room for it. Call
    /// within a runtime.
    pub fn ask(&mut self, question: Q, command: HouseCommand) -> Option<(Q, Answer)> {
        if self.has_left {
            let reason = "the connection is ending".to_owned();
            return Some((question, Err(Refusal::LogUnavailable { reason })));
        }
        if self.waiting >= MAX_QUESTIONS {
            return Some((question, Err(Refusal::TooManyQuestions { limit: MAX_QUESTIONS })));
        }
        self.waiting += 1;
        self.asked.push_back((question, command));
        self.go_on();
        None
    }

    /// Waits for the next word; none when, after [`leave`](Guest::leave), everything is said. Cancel
    /// safe.
    pub async fn next(&mut self) -> Option<Word<Q>> {
        loop {
            let is_idle = self.tasks.is_empty() && self.watches.is_empty();
            let is_over = self.has_left && is_idle;
            tokio::select! {
                // An answer goes before what happened after it.
                biased;
                Some(done) = self.tasks.join_next(), if !self.tasks.is_empty() => {
                    // A task that was aborted has no answer.
                    if let Ok(done) = done
                        && let Some(word) = self.on_done(done)
                    {
                        return Some(word);
                    }
                }
                event = self.watches.next(), if !self.watches.is_empty() => {
                    if let Some(event) = event {
                        return Some(Word::Event(event));
                    }
                }
                () = self.over.cancelled(), if is_over => return None,
                () = std::future::pending(), if is_idle && !self.has_left => {}
            }
        }
    }

    /// Begins to leave: questions are still answered, and what is watched is told to its end.
    pub fn leave(&mut self) {
        self.has_left = true;
        let (house, over, standing) = (Arc::clone(&self.house), self.over.clone(), self.standing);
        tokio::spawn(async move {
            if standing == Standing::Owner {
                house.close().await;
            }
            over.cancel();
        });
    }

    /// Waits until what this caller asked for is done and what it started is over, whether or not anybody
    /// listens.
    pub async fn gone(mut self) {
        self.watches = Watches::default();
        while self.next().await.is_some() {}
    }

    /// Begins the next question, if none is being carried out. What is handed over at once, as most of what is said
    /// to an open session, waits for no task to have its turn.
    fn go_on(&mut self) {
        while !self.is_busy
            && let Some((question, command)) = self.asked.pop_front()
        {
            let (house, is_full) = (Arc::clone(&self.house), self.watches.len() >= MAX_WATCHED);
            let is_refused = matches!(&command, HouseCommand::Watch { session, .. }
                if is_full && !self.watches.contains(session));
            let mut carrying = Box::pin(async move {
                match is_refused {
                    true => Err(Refusal::TooManyWatched { limit: MAX_WATCHED }),
                    false => contain(carry_out(&house, command)).await.unwrap_or(Err(Refusal::Internal)),
                }
            });
            match carrying.as_mut().now_or_never() {
                Some(Ok(Carried::Over(answer))) => {
                    self.tasks.spawn(async move { Done::Answered(question, answered(answer).await) });
                }
                carried => {
                    self.is_busy = true;
                    self.tasks.spawn(async move {
                        let carried = match carried {
                            Some(carried) => carried,
                            None => carrying.await,
                        };
                        Done::Carried(question, carried)
                    });
                }
            }
        }
    }

    fn on_done(&mut self, done: Done<Q>) -> Option<Word<Q>> {
        let (question, answer) = match done {
            Done::Answered(question, answer) => (question, answer),
            Done::Carried(question, carried) => {
                self.is_busy = false;
                let answer = match carried {
                    Ok(Carried::Over(answer)) => {
                        self.tasks.spawn(async move { Done::Answered(question, answered(answer).await) });
                        self.go_on();
                        return None;
                    }
                    Ok(Carried::Out(reply)) => Ok(reply),
                    Ok(Carried::Watching { watcher, session, seen, head }) => {
                        self.watches.begin(Arc::clone(&self.house), session, watcher, self.over.clone());
                        Ok(HouseReply::Watching { seen, head })
                    }
                    Ok(Carried::Unwatch(session)) => {
                        self.watches.end(&session);
                        Ok(HouseReply::Done)
                    }
                    Err(refusal) => Err(refusal),
                };
                self.go_on();
                (question, answer)
            }
        };
        self.waiting -= 1;
        Some(Word::Answer(question, answer))
    }
}

/// An answer that has to come, even if whoever makes it panics.
async fn answered(answer: impl Future<Output = Answer>) -> Answer {
    contain(answer).await.unwrap_or(Err(Refusal::Internal))
}
