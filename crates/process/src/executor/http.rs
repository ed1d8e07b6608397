//! HTTP requests of a connection. Each is a task; this file has no HTTP client of its own.

use std::collections::HashMap;
use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use parlor_vocab::{ExecutorEvent, ExecutorReply, HttpError, HttpReply, HttpRequest, Ticket, Update};
use tokio::sync::mpsc;
use tokio::task::AbortHandle;
use tokio::time::{Instant, timeout_at};

use super::ExecutorUpdate;

/// How many requests of a connection may be under way.
pub const MAX_HTTP_REQUESTS: usize = 16;

/// The largest body of an answer that is not streamed, in bytes.
pub const MAX_HTTP_BODY_BYTES: usize = 16 << 20;

/// The largest piece of a streamed body, in bytes. Clients refuse larger ones.
pub const MAX_HTTP_PIECE_BYTES: usize = 1 << 20;

/// The size of the channel of updates. Small, because each may hold a large piece.
const UPDATE_QUEUE: usize = 8;

/// A time limit for requests that have none: it never comes.
const NO_LIMIT: Duration = Duration::from_secs(365 * 24 * 3600);

/// An answer without its body, and the body.
pub type HttpAnswer = Result<(HttpReply, Box<dyn HttpBody>), HttpError>;

type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// Makes HTTP requests.
pub trait HttpClient: fmt::Debug + Send + Sync {
    /// Sends a request. Returns the answer without its body, and the body.
    fn send(&self, request: HttpRequest) -> BoxFuture<'_, HttpAnswer>;
}

/// The body of an answer.
pub trait HttpBody: Send {
    /// The next piece; `None` at the end.
    fn next(&mut self) -> BoxFuture<'_, Option<Result<Vec<u8>, String>>>;
}

/// The HTTP requests of one connection.
#[derive(Debug)]
pub(super) struct HttpRequests {
    client: Option<Arc<dyn HttpClient>>,
    /// The requests that are under way, by their ids.
    tasks: HashMap<String, AbortHandle>,
    updates: mpsc::Receiver<TaskUpdate>,
    reporter: mpsc::Sender<TaskUpdate>,
}

#[derive(Debug)]
enum TaskUpdate {
    Report(ExecutorUpdate),
    /// The request with this id is done.
    Done(String),
}

impl HttpRequests {
    pub(super) fn new(client: Option<Arc<dyn HttpClient>>) -> Self {
        let (reporter, updates) = mpsc::channel(UPDATE_QUEUE);
        Self { client, tasks: HashMap::new(), updates, reporter }
    }

    pub(super) fn submit(&mut self, ticket: Ticket, request: HttpRequest) -> Result<(), HttpError> {
        let Some(client) = &self.client else {
            return Err(HttpError::Failed("this server makes no HTTP requests".to_owned()));
        };
        if self.tasks.contains_key(&request.id) {
            return Err(HttpError::Invalid(format!("http/request {} is still under way", request.id)));
        }
        if self.tasks.len() >= MAX_HTTP_REQUESTS {
            return Err(HttpError::Failed(format!("{MAX_HTTP_REQUESTS} requests are under way already")));
        }
        let (id, client, reporter) = (request.id.clone(), Arc::clone(client), self.reporter.clone());
        let task = tokio::spawn(async move {
            let id = request.id.clone();
            carry_out(&*client, ticket, request, &reporter).await;
            // Fails only if nobody asks for updates any more.
            let _ = reporter.send(TaskUpdate::Done(id)).await;
        });
        self.tasks.insert(id, task.abort_handle());
        Ok(())
    }

    /// Waits for the next answer or piece. Cancel safe.
    pub(super) async fn next(&mut self) -> ExecutorUpdate {
        loop {
            // The channel cannot close, since `self` has a sender.
            match self.updates.recv().await {
                Some(TaskUpdate::Report(update)) => return update,
                Some(TaskUpdate::Done(id)) => drop(self.tasks.remove(&id)),
                None => std::future::pending().await,
            }
        }
    }

    /// Gives up all requests.
    pub(super) fn forget_all(&mut self) {
        for (_, task) in self.tasks.drain() {
            task.abort();
        }
        let (reporter, updates) = mpsc::channel(UPDATE_QUEUE);
        (self.reporter, self.updates) = (reporter, updates);
    }
}

impl Drop for HttpRequests {
    fn drop(&mut self) {
        self.forget_all();
    }
}

async fn carry_out(
    client: &dyn HttpClient,
    ticket: Ticket,
    request: HttpRequest,
    reporter: &mpsc::Sender<TaskUpdate>,
) {
    let (id, is_streamed) = (request.id.clone(), request.is_streamed);
    let deadline = Instant::now() + request.time_limit.unwrap_or(NO_LIMIT).min(NO_LIMIT);
    let late = || HttpError::Failed("the time limit of the request has passed".to_owned());
    let answer = async {
        let (mut reply, mut body) =
            timeout_at(deadline, client.send(request)).await.map_err(|_| late())??;
        if !is_streamed {
            reply.body = timeout_at(deadline, collect(&mut *body)).await.map_err(|_| late())??;
        }
        Ok((reply, body))
    };
    let (answer, body) = match answer.await {
        Ok((reply, body)) => (Ok(ExecutorReply::Http(reply)), Some(body)),
        Err(error) => (Err(HttpError::into(error)), None),
    };
    let report = async |update| reporter.send(TaskUpdate::Report(update)).await.is_ok();
    if !report(Update::Answer(ticket, answer)).await {
        return;
    }
    let Some(mut body) = body.filter(|_| is_streamed) else { return };
    let mut seq = 0;
    let mut piece = |bytes, is_last, error| {
        seq += 1;
        Update::Event(ExecutorEvent::HttpBody { request: id.clone(), seq, bytes, is_last, error })
    };
    let error = loop {
        match timeout_at(deadline, body.next()).await {
            Ok(None) => break None,
            Ok(Some(Err(error))) => break Some(error),
            Err(_) => break Some(late().to_string()),
            Ok(Some(Ok(bytes))) => {
                for part in bytes.chunks(MAX_HTTP_PIECE_BYTES) {
                    if !report(piece(part.to_vec(), false, None)).await {
                        return;
                    }
                }
            }
        }
    };
    report(piece(Vec::new(), true, error)).await;
}

/// The whole body.
async fn collect(body: &mut dyn HttpBody) -> Result<Vec<u8>, HttpError> {
    let mut all = Vec::new();
    while let Some(piece) = body.next().await {
        all.extend(piece.map_err(HttpError::Failed)?);
        if all.len() > MAX_HTTP_BODY_BYTES {
            let text = format!("the body has more than {MAX_HTTP_BODY_BYTES} bytes; ask for a streamed one");
            return Err(HttpError::Failed(text));
        }
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    use parlor_vocab::ExecutorRefusal;

    use super::*;

    /// A client whose answers have these pieces, and end with an error if `fails`.
    #[derive(Debug)]
    struct Fake {
        pieces: Vec<usize>,
        fails: bool,
        never_ends: bool,
    }

    struct FakeBody {
        pieces: std::vec::IntoIter<usize>,
        fails: bool,
        never_ends: bool,
    }

    impl HttpClient for Fake {
        fn send(&self, _: HttpRequest) -> BoxFuture<'_, HttpAnswer> {
            let (pieces, fails, never_ends) = (self.pieces.clone().into_iter(), self.fails, self.never_ends);
            let body: Box<dyn HttpBody> = Box::new(FakeBody { pieces, fails, never_ends });
            Box::pin(async { Ok((HttpReply { status: 200, headers: Vec::new(), body: Vec::new() }, body)) })
        }
    }

    impl HttpBody for FakeBody {
        fn next(&mut self) -> BoxFuture<'_, Option<Result<Vec<u8>, String>>> {
            Box::pin(async {
                match self.pieces.next() {
                    Some(size) => Some(Ok(vec![b'x'; size])),
                    None if self.never_ends => std::future::pending().await,
                    None => std::mem::take(&mut self.fails).then(|| Err("broken".to_owned())),
                }
            })
        }
    }

    fn requests(pieces: &[usize], fails: bool, never_ends: bool) -> HttpRequests {
        HttpRequests::new(Some(Arc::new(Fake { pieces: pieces.to_vec(), fails, never_ends })))
    }

    fn request(id: &str, is_streamed: bool) -> HttpRequest {
        HttpRequest {
            id: id.to_owned(),
            method: "GET".to_owned(),
            url: "http://x/".to_owned(),
            headers: Vec::new(),
            body: Vec::new(),
            time_limit: None,
            follows_redirects: true,
            is_streamed,
        }
    }

    async fn answer(requests: &mut HttpRequests) -> Result<ExecutorReply, ExecutorRefusal> {
        let update = requests.next().await;
        let Update::Answer(Ticket(7), answer) = update else { panic!("{update:?}") };
        answer
    }

    /// The sizes of the pieces with their numbers, and the error at the end.
    async fn stream(requests: &mut HttpRequests) -> (Vec<(u64, usize)>, Option<String>) {
        let mut pieces = Vec::new();
        loop {
            let Update::Event(ExecutorEvent::HttpBody { seq, bytes, is_last, error, .. }) =
                requests.next().await
            else {
                panic!("no piece")
            };
            pieces.push((seq, bytes.len()));
            if is_last {
                return (pieces, error);
            }
        }
    }

    #[tokio::test]
    async fn a_streamed_body_comes_in_numbered_pieces_of_limited_size() {
        let mut requests = requests(&[5, MAX_HTTP_PIECE_BYTES + 1], false, false);
        requests.submit(Ticket(7), request("r", true)).unwrap();
        assert!(
            matches!(answer(&mut requests).await, Ok(ExecutorReply::Http(reply)) if reply.body.is_empty())
        );
        let (pieces, error) = stream(&mut requests).await;
        assert_eq!((pieces, error), (vec![(1, 5), (2, MAX_HTTP_PIECE_BYTES), (3, 1), (4, 0)], None));
    }

    #[tokio::test]
    async fn a_stream_that_breaks_ends_with_its_error() {
        let mut requests = requests(&[5], true, false);
        requests.submit(Ticket(7), request("r", true)).unwrap();
        answer(&mut requests).await.unwrap();
        assert_eq!(stream(&mut requests).await, (vec![(1, 5), (2, 0)], Some("broken".to_owned())));
    }

    #[tokio::test]
    async fn a_whole_body_has_a_largest_size() {
        for (size, is_sent) in [(MAX_HTTP_BODY_BYTES, true), (MAX_HTTP_BODY_BYTES + 1, false)] {
            let mut requests = requests(&[size], false, false);
            requests.submit(Ticket(7), request("r", false)).unwrap();
            match answer(&mut requests).await {
                Ok(ExecutorReply::Http(reply)) => assert!(is_sent && reply.body.len() == size),
                other => assert!(!is_sent && other.is_err(), "{other:?}"),
            }
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_time_limit_ends_the_request_or_its_stream() {
        let mut requests = requests(&[5], false, true);
        let limited =
            |streamed| HttpRequest { time_limit: Some(Duration::from_secs(5)), ..request("r", streamed) };
        requests.submit(Ticket(7), limited(false)).unwrap();
        let refused = answer(&mut requests).await.unwrap_err().to_string();
        assert!(refused.contains("time limit"), "{refused}");
        requests.forget_all();
        requests.submit(Ticket(7), limited(true)).unwrap();
        answer(&mut requests).await.unwrap();
        let (pieces, error) = stream(&mut requests).await;
        assert_eq!(pieces, [(1, 5), (2, 0)]);
        assert!(error.unwrap().contains("time limit"));
    }

    #[tokio::test]
    async fn ids_are_used_once_at_a_time_and_requests_are_limited() {
        let mut requests = requests(&[], false, true);
        for number in 0..MAX_HTTP_REQUESTS {
            requests.submit(Ticket(7), request(&number.to_string(), true)).unwrap();
        }
        let taken = requests.submit(Ticket(7), request("3", true));
        assert!(matches!(taken, Err(HttpError::Invalid(_))), "{taken:?}");
        let many = requests.submit(Ticket(7), request("more", true));
        assert!(matches!(many, Err(HttpError::Failed(_))), "{many:?}");
        requests.forget_all();
        requests.submit(Ticket(7), request("3", true)).unwrap();
        assert!(matches!(answer(&mut requests).await, Ok(ExecutorReply::Http(_))));
    }

    #[tokio::test]
    async fn an_id_is_free_after_the_answer() {
        let mut requests = requests(&[1], false, false);
        for _ in 0..3 {
            requests.submit(Ticket(7), request("r", true)).unwrap();
            answer(&mut requests).await.unwrap();
            stream(&mut requests).await;
            // The task reports its end behind its last piece.
            while !requests.tasks.is_empty() {
                let end = requests.updates.recv().await;
                let Some(TaskUpdate::Done(id)) = end else { panic!("{end:?}") };
                requests.tasks.remove(&id);
            }
        }
    }
}
