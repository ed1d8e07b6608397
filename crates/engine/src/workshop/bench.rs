//! One connection's place in the workshop: one question at a time, and its answer.

use std::sync::{Arc, Mutex, PoisonError};

use parlor_vocab::{Refusal, WorkshopCommand, WorkshopReply};

use super::calls::{Answer, Entered, Place};
use super::{Evaluates, MAX_CALLS, Shop, SketchUp, perform};

/// An answer with the caller's name for its question.
pub type Said<Q> = (Q, Result<Arc<WorkshopReply>, Refusal>);

/// One connection's place. Whoever leaves it leaves a running call to its end.
pub struct Workbench<Q> {
    shop: Arc<Shop>,
    waiting: Option<(Q, Place, Answer)>,
    receipt: Receipt,
    /// Where its lines are evaluated, if it is a console and that is not here.
    console: Option<Arc<dyn SketchUp>>,
    has_left: bool,
}

/// Tells the workshop that answers have arrived. An answer of which nobody says so is kept for a while.
#[derive(Clone)]
pub struct Receipt {
    shop: Arc<Shop>,
    given: Arc<Mutex<Option<Place>>>,
}

impl Receipt {
    /// All answers that were given out have arrived.
    pub fn arrived(&self) {
        self.note(None);
    }

    /// What was given before has arrived; `place` is being given.
    fn note(&self, place: Option<Place>) {
        let before =
            std::mem::replace(&mut *self.given.lock().unwrap_or_else(PoisonError::into_inner), place);
        if let Some(before) = before {
            self.shop.calls.forget(before);
        }
    }
}

impl<Q> Workbench<Q> {
    pub(super) fn new(shop: Arc<Shop>) -> Self {
        let receipt = Receipt { shop: Arc::clone(&shop), given: Arc::default() };
        Self { shop, waiting: None, receipt, console: None, has_left: false }
    }

    /// To say with that answers have arrived.
    pub fn receipt(&self) -> Receipt {
        self.receipt.clone()
    }

    /// Puts a question. If its answer has to wait, it comes from [`next`](Workbench::next), and until then
    /// no other question is taken.
    pub fn ask(&mut self, question: Q, command: WorkshopCommand) -> Option<Said<Q>> {
        let done = |question, reply| Some((question, Ok(Arc::new(reply))));
        if self.waiting.is_some() {
            return Some((question, Err(Refusal::TooManyQuestions { limit: 1 })));
        }
        match command {
            WorkshopCommand::LookAtConsole => done(question, self.shop.console.status()),
            WorkshopCommand::OpenConsole { pid } => {
                let there = self.shop.sketchup.as_ref().filter(|(_, place)| *place == Evaluates::There);
                self.console = there.and_then(|(sketchup, _)| sketchup.console());
                done(question, self.shop.sessions.begin(pid))
            }
            WorkshopCommand::ListTools => done(question, self.shop.list_tools()),
            WorkshopCommand::Call { key, caller, work } => match self.shop.calls.enter(key) {
                Entered::Full => Some((question, Err(Refusal::TooManyQuestions { limit: MAX_CALLS }))),
                Entered::Known(place, answer) => {
                    self.waiting = Some((question, place, answer));
                    None
                }
                Entered::New(place, sender, answer) => {
                    let (shop, console) = (Arc::clone(&self.shop), self.console.clone());
                    tokio::spawn(async move {
                        let reply = perform::perform(&shop, console.as_deref(), &caller, *work).await;
                        shop.calls.keep(place, perform::size(&reply));
                        // The one that asked may be gone; the next one that asks gets it.
                        sender.send_replace(Some(Arc::new(reply)));
                    });
                    self.waiting = Some((question, place, answer));
                    None
                }
            },
        }
    }

    /// Waits for the answer. None when, after [`leave`](Workbench::leave), there is none to wait for. Cancel
    /// safe.
    pub async fn next(&mut self) -> Option<Said<Q>> {
        let Some((_, _, answer)) = &mut self.waiting else {
            if self.has_left {
                return None;
            }
            return std::future::pending().await;
        };
        let reply = answer.wait_for(Option::is_some).await.ok().and_then(|reply| reply.clone());
        let (question, place, _) = self.waiting.take()?;
        let Some(reply) = reply else {
            // Its task is gone without a word.
            self.shop.calls.abandon(place);
            return Some((question, Ok(Arc::new(perform::broken_off()))));
        };
        self.receipt.note(Some(place));
        Some((question, Ok(reply)))
    }

    /// Nothing more will be asked.
    pub fn leave(&mut self) {
        self.has_left = true;
    }
}
