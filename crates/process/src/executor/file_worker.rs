//! A thread that carries out the file requests of one connection, one after another.
//!
//! Not a thread of the runtime, because a file system may never answer, as one in the network does whose server is gone:
//! the runtime would wait for its thread when the program ends.

use std::future::pending;
use std::sync::Arc;
use std::sync::mpsc::{self as blocking, TrySendError};
use std::thread;
use std::time::Duration;

use parlor_vocab::{ExecutorRefusal, FileAction, FileReply, SandboxIntent, Ticket};
use tokio::sync::oneshot;
use tokio::time::{Instant, timeout_at};

use super::files::{Outcome, carry_out};
use super::intent::checked;
use super::open_files::OpenFiles;

/// How long a file request may take. The thread goes on, and the client gets an error.
pub const FILE_WAIT: Duration = Duration::from_secs(60);

/// How many threads of a connection may wait for file systems that do not answer. Then file requests are refused.
pub const MAX_STUCK_FILES: usize = 8;

struct Work {
    action: FileAction,
    intent: Option<Box<SandboxIntent>>,
    open: OpenFiles,
    reply: oneshot::Sender<Outcome<FileReply>>,
}

/// The file requests of one connection.
#[derive(Debug, Default)]
pub(super) struct FileWorker {
    /// Where the thread takes its work; `None` before the first request and after one that took too long.
    thread: Option<blocking::SyncSender<Work>>,
    /// The request that the thread works on. The door sends the next one after its answer.
    current: Option<Current>,
    /// One reference for each living thread, and one here.
    threads: Arc<()>,
    open: OpenFiles,
}

#[derive(Debug)]
struct Current {
    ticket: Ticket,
    reply: oneshot::Receiver<Outcome<FileReply>>,
    deadline: Instant,
}

impl FileWorker {
    /// Begins to carry out a request. Refuses it if there is one already.
    pub(super) fn submit(
        &mut self,
        ticket: Ticket,
        action: FileAction,
        intent: Option<Box<SandboxIntent>>,
    ) -> Result<(), ExecutorRefusal> {
        if self.current.is_some() {
            return Err(ExecutorRefusal::FileFailed("another file request is being carried out".to_owned()));
        }
        let (sender, reply) = oneshot::channel();
        let mut work = Work { action, intent, open: self.open.clone(), reply: sender };
        if let Some(thread) = self.thread.take() {
            match thread.try_send(work) {
                Ok(()) => {
                    self.begin(thread, ticket, reply);
                    return Ok(());
                }
                // The thread still works on requests that were forgotten, or has panicked.
                Err(TrySendError::Full(back) | TrySendError::Disconnected(back)) => work = back,
            }
        }
        let thread = self.start_thread()?;
        if thread.send(work).is_err() {
            return Err(ExecutorRefusal::FileFailed("the thread for files has ended".to_owned()));
        }
        self.begin(thread, ticket, reply);
        Ok(())
    }

    fn begin(
        &mut self,
        thread: blocking::SyncSender<Work>,
        ticket: Ticket,
        reply: oneshot::Receiver<Outcome<FileReply>>,
    ) {
        self.thread = Some(thread);
        self.current = Some(Current { ticket, reply, deadline: Instant::now() + FILE_WAIT });
    }

    /// Drops the request and the open files, because the connection is gone.
    pub(super) fn forget_request(&mut self) {
        self.current = None;
        self.open = OpenFiles::default();
    }

    /// Waits for the answer to the request. Never ready without one. Cancel safe.
    pub(super) async fn next(&mut self) -> (Ticket, Outcome<FileReply>) {
        let Some(current) = &mut self.current else { return pending().await };
        let ticket = current.ticket;
        let answer = match timeout_at(current.deadline, &mut current.reply).await {
            Ok(Ok(answer)) => answer,
            // The thread panicked.
            Ok(Err(_)) => {
                self.thread = None;
                Err(ExecutorRefusal::FileFailed("the file request failed".to_owned()))
            }
            Err(_) => {
                // The thread ends when the file system answers.
                self.thread = None;
                let seconds = FILE_WAIT.as_secs();
                Err(ExecutorRefusal::FileFailed(format!("the file system did not answer within {seconds} s")))
            }
        };
        self.current = None;
        (ticket, answer)
    }

    fn start_thread(&self) -> Result<blocking::SyncSender<Work>, ExecutorRefusal> {
        if Arc::strong_count(&self.threads) > MAX_STUCK_FILES {
            return Err(ExecutorRefusal::FileFailed(format!(
                "{MAX_STUCK_FILES} file requests still wait for file systems that do not answer"
            )));
        }
        let (sender, work) = blocking::sync_channel::<Work>(1);
        let alive = Arc::clone(&self.threads);
        let run = move || {
            let _alive = alive;
            for Work { action, intent, open, reply } in work {
                let checked = match intent {
                    Some(intent) => checked(action, &intent),
                    None => Ok(action),
                };
                let answer = checked.and_then(|action| carry_out(action, &open, &|| reply.is_closed()));
                // Nobody waits any more if the request took too long or the connection has ended.
                let _ = reply.send(answer);
            }
        };
        match thread::Builder::new().name("files".to_owned()).spawn(run) {
            Ok(_) => Ok(sender),
            Err(error) => Err(ExecutorRefusal::FileFailed(format!("no thread for files: {error}"))),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use parlor_vocab::FollowLinks;

    use super::*;

    fn describe(path: &str) -> FileAction {
        FileAction::Describe { path: PathBuf::from(path), follow: FollowLinks::Yes }
    }

    /// A worker whose file system does not answer until the returned senders are dropped.
    fn hang(worker: &mut FileWorker, ticket: u64) -> oneshot::Sender<Outcome<FileReply>> {
        let (sender, reply) = oneshot::channel();
        let deadline = Instant::now() + FILE_WAIT;
        worker.current = Some(Current { ticket: Ticket(ticket), reply, deadline });
        sender
    }

    #[tokio::test(start_paused = true)]
    async fn a_file_system_that_does_not_answer_costs_one_request() {
        let mut worker = FileWorker::default();
        let _hung = hang(&mut worker, 1);
        let (ticket, answer) = worker.next().await;
        assert_eq!(ticket, Ticket(1));
        assert!(answer.unwrap_err().to_string().contains("did not answer within 60 s"));
        assert!(worker.thread.is_none());
    }

    #[tokio::test]
    async fn requests_are_answered_by_one_thread_until_it_is_stuck() {
        let mut worker = FileWorker::default();
        for number in 0..3 {
            worker.submit(Ticket(number), describe("/"), None).unwrap();
            assert!(worker.submit(Ticket(9), describe("/"), None).is_err(), "one at a time");
            let (ticket, answer) = worker.next().await;
            assert_eq!(ticket, Ticket(number));
            assert!(matches!(answer, Ok(FileReply::Described(facts)) if facts.is_folder));
            assert_eq!(Arc::strong_count(&worker.threads), 2);
        }
    }

    #[tokio::test]
    async fn too_many_stuck_threads_refuse_further_requests() {
        let mut worker = FileWorker::default();
        let mut stuck: Vec<Arc<()>> = (0..MAX_STUCK_FILES).map(|_| Arc::clone(&worker.threads)).collect();
        let refused = worker.submit(Ticket(1), describe("/"), None);
        assert!(refused.unwrap_err().to_string().contains("8 file requests still wait"));
        stuck.pop();
        worker.submit(Ticket(1), describe("/"), None).unwrap();
        assert!(worker.next().await.1.is_ok());
    }
}
