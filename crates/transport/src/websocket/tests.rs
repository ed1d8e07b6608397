//! The driver with a machine of a few lines, an backend that echoes, and a real socket.

use std::collections::VecDeque;

use parlor_doors::{InputOf, Ticket};
use parlor_vocab::{Answer, Backend, SessionRefusal};
use tokio::io::AsyncWriteExt;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinSet;

use super::*;
use crate::frame_memory::{FRAME_WAIT, FrameMemory, MIN_FRAME_MEMORY};

/// Sends back what it hears, and asks what begins with a question mark.
#[derive(Default)]
struct Echo {
    outbox: VecDeque<Output<Vec<u8>>>,
    asked: u64,
    answered: u64,
}

impl Machine for Echo {
    type Request = Vec<u8>;
    type Reply = Vec<u8>;
    type Event = Vec<u8>;
    type Error = SessionRefusal;

    fn handle(&mut self, _now: std::time::Instant, input: InputOf<'_, Self>) {
        match input {
            Input::Frame(frame) => {
                self.outbox.push_back(Output::Send(frame.to_vec()));
                if frame.starts_with(b"?") {
                    // One frame waits to be written, and the next cannot wait too: it stands before the question.
                    self.outbox.push_back(Output::Send(frame.to_vec()));
                    self.asked += 1;
                    self.outbox.push_back(Output::Request(Ticket(self.asked), frame.to_vec()));
                }
            }
            Input::Answer(_, answer) => {
                self.answered += 1;
                self.outbox.extend(answer.ok().map(Output::Send));
            }
            Input::Event(event) => self.outbox.push_back(Output::Send(event.clone())),
            Input::Oversize { .. } | Input::Deadline => {}
        }
    }

    fn poll(&mut self) -> Option<Output<Vec<u8>>> {
        self.outbox.pop_front()
    }

    fn wants_frame(&self) -> bool {
        true
    }

    fn is_at_work(&self) -> bool {
        self.asked > self.answered
    }

    fn max_line_bytes(&self) -> usize {
        usize::MAX
    }
}

/// Answers what it is asked, and tells what the test tells.
struct Desk {
    answers: VecDeque<(Ticket, Vec<u8>)>,
    asked: mpsc::Sender<Vec<u8>>,
    events: mpsc::Receiver<Vec<u8>>,
}

impl Backend for Desk {
    type Request = Vec<u8>;
    type Reply = Vec<u8>;
    type Event = Vec<u8>;
    type Error = SessionRefusal;

    fn submit(&mut self, ticket: Ticket, ask: Vec<u8>) -> Option<Answer<Vec<u8>, SessionRefusal>> {
        self.asked.try_send(ask.clone()).expect("the test listens");
        self.answers.push_back((ticket, ask));
        None
    }

    async fn next(&mut self) -> Option<UpdateOf<Self>> {
        if let Some((ticket, answer)) = self.answers.pop_front() {
            return Some(Update::Answer(ticket, Ok(answer)));
        }
        match self.events.recv().await {
            Some(event) => Some(Update::Event(event)),
            None => std::future::pending().await,
        }
    }

    fn begin_close(&mut self) {}

    async fn closed(self) {}
}

/// A connection that is served, seen from the other side.
struct Served {
    client: WebSocketStream<TcpStream>,
    asked: mpsc::Receiver<Vec<u8>>,
    /// Kept, since an backend that is gone tells nothing.
    _events: mpsc::Sender<Vec<u8>>,
    stop: Option<oneshot::Sender<CloseReason>>,
    task: tokio::task::JoinHandle<()>,
}

/// Far longer than anything here takes.
const PATIENCE: Duration = Duration::from_secs(20);

const PATIENT: Keepalive = Keepalive {
    ping_interval: Duration::from_secs(3600),
    read_timeout: Duration::from_secs(3600),
    write_timeout: Duration::from_secs(3600),
};

/// A connection to which something is to be told from the start.
async fn served(keepalive: Keepalive, first: &[Vec<u8>]) -> Served {
    served_within(&FrameMemory::default(), keepalive, first).await
}

/// One that shares memory with others.
async fn served_within(memory: &FrameMemory, keepalive: Keepalive, first: &[Vec<u8>]) -> Served {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let (client, accepted) = tokio::join!(TcpStream::connect(address), listener.accept());
    let client = WebSocketStream::from_raw_socket(client.unwrap(), Role::Client, None).await;
    let stream = Metered::new(accepted.unwrap().0, memory, &[]);
    let server = WebSocketStream::from_raw_socket(stream, Role::Server, None).await;
    let (asks, asked) = mpsc::channel(16);
    let (events, told) = mpsc::channel(16);
    for event in first {
        events.try_send(event.clone()).unwrap();
    }
    let (stop, stopped) = oneshot::channel();
    let desk = Desk { answers: VecDeque::new(), asked: asks, events: told };
    let task = tokio::spawn(async move {
        let stop = async { stopped.await.unwrap_or(CloseReason::GoingAway) };
        serve_socket(Echo::default(), desk, server, &keepalive, stop).await;
    });
    Served { client, asked, _events: events, stop: Some(stop), task }
}

/// More than sockets hold, and a frame all the same.
fn large() -> Vec<u8> {
    vec![b'x'; 15 << 20]
}

#[tokio::test]
async fn a_peer_that_is_replaced_while_it_does_not_read_is_not_waited_for() {
    let mut served = served(PATIENT, &[large()]).await;
    // It is being written once there is something to read.
    served.client.get_ref().readable().await.unwrap();
    served.stop.take().unwrap().send(CloseReason::Replaced).unwrap();
    // Although a frame may take an hour.
    timeout(PATIENCE, served.task).await.unwrap().unwrap();
}

#[tokio::test]
async fn what_a_peer_said_before_it_could_know_that_it_is_replaced_is_done() {
    let mut served = served(PATIENT, &[large()]).await;
    served.client.get_ref().readable().await.unwrap();
    // Nobody listens while that is written.
    for said in 0..=LAST_FRAMES {
        served.client.send(Message::text(format!("?{said}"))).await.unwrap();
    }
    served.stop.take().unwrap().send(CloseReason::Replaced).unwrap();
    while let Some(Ok(_)) = served.client.next().await {}
    served.task.await.unwrap();
    for said in 0..LAST_FRAMES {
        let asked = served.asked.recv().await;
        assert_eq!(asked, Some(format!("?{said}").into_bytes()));
    }
    assert_eq!(served.asked.recv().await, None, "there is an end to it");
}

#[tokio::test]
async fn what_was_asked_is_done_although_the_frame_before_it_could_not_be_written() {
    let keepalive = Keepalive { write_timeout: Duration::from_millis(10), ..PATIENT };
    let mut served = served(keepalive, &[]).await;
    let mut question = large();
    question[0] = b'?';
    let text = String::from_utf8(question.clone()).unwrap();
    served.client.send(Message::text(text)).await.unwrap();
    let asked = timeout(PATIENCE, served.asked.recv()).await.unwrap();
    assert!(asked == Some(question), "it was not asked");
    served.task.await.unwrap();
}

#[tokio::test]
async fn a_peer_that_spoke_while_something_was_written_to_it_was_not_silent() {
    let read_timeout = Duration::from_secs(1);
    let speak = async || {
        let mut served = served(Keepalive { read_timeout, ..PATIENT }, &[large()]).await;
        served.client.get_ref().readable().await.unwrap();
        served.client.send(Message::text("here I am")).await.unwrap();
        // When it is read, the silence has lasted too long, but for what was said.
        tokio::time::sleep(read_timeout + read_timeout / 4).await;
        let mut heard = Vec::new();
        while let Some(Ok(message)) = served.client.next().await {
            heard.push(message.into_text().unwrap().len());
        }
        assert_eq!(heard, [large().len(), "here I am".len()]);
    };
    // Whether the message or the silence is looked at first is chance.
    tokio::join!(speak(), speak(), speak(), speak(), speak(), speak());
}

#[tokio::test]
async fn what_is_broken_is_told_although_more_of_it_comes() {
    let mut served = served(PATIENT, &[]).await;
    // A frame of a reserved kind, and far more than the server has read when it says goodbye.
    served.client.get_mut().write_all(b"\x83\x80\0\0\0\0").await.unwrap();
    served.client.get_mut().write_all(&large()).await.unwrap();
    let Some(Ok(Message::Close(Some(goodbye)))) = served.client.next().await else { panic!("no goodbye") };
    assert_eq!(goodbye.code, CloseCode::Protocol);
}

/// The head of a message of so many bytes, from a client whose mask changes nothing.
fn head(bytes: u64) -> Vec<u8> {
    [&[0x81, 0xff][..], &bytes.to_be_bytes(), &[0; 4]].concat()
}

#[tokio::test]
async fn a_large_message_takes_memory_until_it_is_answered_and_gives_it_back() {
    let memory = FrameMemory::default();
    let mut served = served_within(&memory, PATIENT, &[]).await;
    for round in 0..3 {
        let text = format!("?{}", "x".repeat(3 << 20));
        served.client.send(Message::text(text.clone())).await.unwrap();
        assert_eq!(served.asked.recv().await.unwrap().len(), text.len());
        // It is echoed twice, and answered.
        for _ in 0..3 {
            let Some(Ok(echo)) = served.client.next().await else { panic!("no echo") };
            assert_eq!(echo.len(), text.len(), "{round}");
        }
        // The next answer comes after all of it was given back.
        served.client.send(Message::text("small")).await.unwrap();
        assert_eq!(served.client.next().await.unwrap().unwrap().len(), 5);
        assert_eq!(memory.used(), 0, "{round}");
    }
}

#[tokio::test]
async fn messages_cut_anywhere_survive_that_buffers_are_given_back() {
    let mut served = served(PATIENT, &[]).await;
    let large = "y".repeat(200 << 10);
    // A whole large message, and the beginning of the next, at once; the rest later.
    let mut bytes = [&head(large.len() as u64)[..], large.as_bytes()].concat();
    let next = [&[0x81, 0x85, 0, 0, 0, 0][..], b"after"].concat();
    for cut in 0..next.len() {
        bytes.extend(&next[..cut]);
        served.client.get_mut().write_all(&bytes).await.unwrap();
        assert_eq!(served.client.next().await.unwrap().unwrap().len(), large.len());
        served.client.get_mut().write_all(&next[cut..]).await.unwrap();
        assert_eq!(served.client.next().await.unwrap().unwrap().into_data(), "after");
        bytes.truncate(14 + large.len());
    }
}

#[tokio::test]
async fn halves_that_stall_are_closed_while_others_wait_and_small_messages_go_on() {
    let memory = FrameMemory::new(MIN_FRAME_MEMORY);
    let mut stalled = JoinSet::new();
    for _ in 0..4 {
        let served = served_within(&memory, PATIENT, &[]).await;
        stalled.spawn(async move {
            let mut served = served;
            let half = [head(2 << 20), vec![b'x'; 1 << 20]].concat();
            // Not all of it is read before there is memory for it.
            let _ = served.client.get_mut().write_all(&half).await;
            while let Some(Ok(message)) = served.client.next().await {
                if let Message::Close(Some(close)) = message {
                    return u16::from(close.code);
                }
            }
            0
        });
    }
    while memory.used() < MIN_FRAME_MEMORY {
        tokio::task::yield_now().await;
    }
    let mut small = served_within(&memory, PATIENT, &[]).await;
    small.client.send(Message::text("small")).await.unwrap();
    assert_eq!(small.client.next().await.unwrap().unwrap().into_data(), "small");
    assert!(memory.used() <= MIN_FRAME_MEMORY + (2 << 20), "{}", memory.used());
    // From here on whoever waits for nothing but time does not wait.
    tokio::time::pause();
    let begun = Instant::now();
    for _ in 0..3 {
        assert_eq!(stalled.join_next().await.unwrap().unwrap(), 1013);
    }
    assert!(begun.elapsed() >= 2 * FRAME_WAIT, "each has its time once there is memory for it");
    let rest = timeout(100 * FRAME_WAIT, stalled.join_next()).await;
    assert!(rest.is_err(), "the last is in nobody's way: {rest:?}");
}
