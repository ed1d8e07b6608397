//! One caller of the house: its questions, and the sessions it watches.
//!
//! Questions are carried out in the order in which they were put; an answer that takes long holds up
//! no other. What is watched waits in the log and not here: a caller that does not listen is late.

use std::collections::HashMap;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use parlor_log::LogError;
use parlor_vocab::{HouseCommand, HouseEvent, HouseReply, Overview, Refusal, Seq, SessionId};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use crate::{House, Watcher, files};

/// How many questions of one caller may wait for an answer.
pub const MAX_QUESTIONS: usize = 64;

/// How many sessions one caller may watch at a time.
pub const MAX_WATCHED: usize = 64;

/// How many words wait for a caller beside the log. Few: nothing is lost when there is no room.
const WORDS: usize = 8;

/// How long a watch waits before it tries again to read a log that cannot be read.
const RETRY_READING: Duration = Duration::from_secs(1);

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
    questions: Option<mpsc::Sender<(Q, HouseCommand)>>,
    /// How many questions have no answer yet.
    waiting: usize,
    words: mpsc::Receiver<Word<Q>>,
    /// Cancelled when all that will ever happen has happened.
    over: CancellationToken,
}

impl<Q: Send + 'static> Guest<Q> {
    /// A caller that has asked nothing yet. Call within a runtime.
    pub fn new(house: Arc<House>, standing: Standing) -> Self {
        let (questions, asked) = mpsc::channel(MAX_QUESTIONS);
        let (sender, words) = mpsc::channel(WORDS);
        let over = CancellationToken::new();
        let (watched, house_of_desk) = (HashMap::new(), Arc::clone(&house));
        let desk = Desk { house: house_of_desk, words: sender, watched, over: over.clone() };
        tokio::spawn(desk.serve(asked));
        Self { house, standing, questions: Some(questions), waiting: 0, words, over }
    }

    /// Puts a question. The answer comes from [`next`](Guest::next), unless there is no room for it.
    pub fn ask(&mut self, question: Q, command: HouseCommand) -> Option<(Q, Result<HouseReply, Refusal>)> {
        let Some(questions) = &self.questions else {
            let reason = "the connection is ending".to_owned();
            return Some((question, Err(Refusal::LogUnavailable { reason })));
        };
        let refused = Err(Refusal::TooManyQuestions { limit: MAX_QUESTIONS });
        if self.waiting >= MAX_QUESTIONS {
            return Some((question, refused));
        }
        match questions.try_send((question, command)) {
            Ok(()) => {
                self.waiting += 1;
                None
            }
            Err(error) => Some((error.into_inner().0, refused)),
        }
    }

    /// Waits for the next word; none when, after [`leave`](Guest::leave), everything is said. Cancel
    /// safe.
    pub async fn next(&mut self) -> Option<Word<Q>> {
        let word = self.words.recv().await?;
        if matches!(word, Word::Answer(..)) {
            self.waiting -= 1;
        }
        Some(word)
    }

    /// Begins to leave: questions are still answered, and what is watched is told to its end.
    pub fn leave(&mut self) {
        self.questions = None;
        let (house, over, standing) = (Arc::clone(&self.house), self.over.clone(), self.standing);
        tokio::spawn(async move {
            if standing == Standing::Owner {
                house.close().await;
            }
            over.cancel();
        });
    }

    /// Waits until what this caller started is over, whether or not anybody listens.
    pub async fn gone(self) {
        drop(self.words);
        self.over.cancelled().await;
    }
}

/// Where the questions of one caller are carried out, one after another.
struct Desk<Q> {
    house: Arc<House>,
    words: mpsc::Sender<Word<Q>>,
    /// Cancelling one ends the watch.
    watched: HashMap<SessionId, CancellationToken>,
    over: CancellationToken,
}

type Answer = Result<HouseReply, Refusal>;

/// What becomes of a command.
enum Carried {
    Out(HouseReply),
    /// It is handed over; the next one may follow.
    Over(Pin<Box<dyn Future<Output = Answer> + Send>>),
    /// Once this is answered there is something to tell.
    Watch(SessionId, Seq),
}

impl<Q: Send + 'static> Desk<Q> {
    async fn serve(mut self, mut asked: mpsc::Receiver<(Q, HouseCommand)>) {
        while let Some((question, command)) = asked.recv().await {
            // A caller that has gone needs no answer.
            match self.carry_out(command).await {
                Ok(Carried::Out(reply)) => drop(self.words.send(Word::Answer(question, Ok(reply))).await),
                Ok(Carried::Over(answer)) => {
                    let words = self.words.clone();
                    tokio::spawn(async move { words.send(Word::Answer(question, answer.await)).await });
                }
                Ok(Carried::Watch(session, after)) => {
                    let answer = Ok(HouseReply::Watching);
                    drop(self.words.send(Word::Answer(question, answer)).await);
                    self.watch(session, after).await;
                }
                Err(refusal) => drop(self.words.send(Word::Answer(question, Err(refusal))).await),
            }
        }
    }

    async fn carry_out(&mut self, command: HouseCommand) -> Result<Carried, Refusal> {
        let reply = match command {
            HouseCommand::Create { id, birth } => HouseReply::Created(self.house.create(id, *birth).await?),
            HouseCommand::Fork { id, from, message } => {
                HouseReply::Created(self.house.fork(id, &from, message.as_ref()).await?)
            }
            HouseCommand::Session(id, command) => {
                let answer = self.house.submit(&id, command).await?;
                return Ok(Carried::Over(Box::pin(async { answer.await.map(HouseReply::Session) })));
            }
            HouseCommand::Look(id) => HouseReply::Overview(Box::new(overview(&self.house, &id).await?)),
            HouseCommand::Watch { session, after } => {
                if self.watched.len() >= MAX_WATCHED && !self.watched.contains_key(&session) {
                    return Err(Refusal::TooManyWatched { limit: MAX_WATCHED });
                }
                return Ok(Carried::Watch(session, after));
            }
            HouseCommand::Unwatch(id) => {
                self.unwatch(&id);
                HouseReply::Done
            }
            HouseCommand::Leave(id) => {
                self.unwatch(&id);
                self.house.leave(&id).await?;
                HouseReply::Done
            }
            HouseCommand::Delete(id) => {
                self.house.delete(&id).await?;
                HouseReply::Done
            }
            HouseCommand::ReadFiles { paths, max_bytes } => {
                HouseReply::Files(files::read_all(paths, max_bytes).await)
            }
            HouseCommand::StoreMedia(new) => HouseReply::Stored(self.house.store_media(new).await?),
            HouseCommand::ReadMedia { ids, max_bytes } => {
                HouseReply::Contents(self.house.read_media(&ids, max_bytes).await)
            }
        };
        Ok(Carried::Out(reply))
    }

    fn unwatch(&mut self, id: &SessionId) {
        if let Some(watch) = self.watched.remove(id) {
            watch.cancel();
        }
    }

    async fn watch(&mut self, session: SessionId, after: Seq) {
        let ends = CancellationToken::new();
        if let Some(before) = self.watched.insert(session.clone(), ends.clone()) {
            before.cancel();
        }
        let watcher = self.house.watch(&session, after).await;
        let tell = Tell { session, watcher, words: self.words.clone(), over: self.over.clone() };
        tokio::spawn(async move {
            tokio::select! {
                () = tell.tell() => {}
                () = ends.cancelled() => {}
            }
        });
    }
}

/// Tells a caller what happens in one session.
struct Tell<Q> {
    session: SessionId,
    watcher: Watcher,
    words: mpsc::Sender<Word<Q>>,
    over: CancellationToken,
}

impl<Q> Tell<Q> {
    async fn tell(mut self) {
        loop {
            let seen = tokio::select! {
                seen = self.watcher.next() => seen.map(Some),
                // Nothing more happens; what has happened is told to its end.
                () = self.over.cancelled() => self.watcher.look().await,
            };
            match seen {
                Ok(Some(seen)) => {
                    let event = HouseEvent { session: self.session.clone(), seen };
                    if self.words.send(Word::Event(event)).await.is_err() {
                        return;
                    }
                }
                Ok(None) | Err(LogError::UnknownSession(_)) => return,
                // The disk may come back.
                Err(_) if !self.over.is_cancelled() => tokio::time::sleep(RETRY_READING).await,
                Err(_) => return,
            }
        }
    }
}

async fn overview(house: &House, id: &SessionId) -> Result<Overview, Refusal> {
    let session = house.view(id).await?;
    Ok(Overview {
        id: id.clone(),
        head: session.head(),
        title: session.title().map(str::to_owned),
        choice: session.choice().clone(),
        history: session.history().to_vec(),
        usage: session.usage(),
        queue: session.queue().cloned().collect(),
        active: session.active().cloned(),
    })
}
