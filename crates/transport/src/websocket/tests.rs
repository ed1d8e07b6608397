//! Tests of the WebSocket driver with a small machine, an echoing backend and a real socket.

use std::collections::VecDeque;
use std::sync::Arc;

use parlor_doors::{InputOf, Ticket};
use parlor_vocab::{Answer, Backend, SessionRefusal};
use tokio::io::AsyncWriteExt;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinSet;

use super::*;
use crate::deflate::Deflate;
use crate::frame_memory::{FRAME_WAIT, FrameMemory, MIN_FRAME_MEMORY};

mod compression;

/// Echoes every frame, and also submits frames that begin with a question mark to the backend.
#[derive(Default)]
struct Echo {
    outputs: VecDeque<Output<Vec<u8>>>,
    submitted: u64,
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
                self.outputs.push_back(Output::Send(frame.to_vec()));
                if frame.starts_with(b"?") {
                    // The socket buffers one large frame, so the write of this second one blocks before the request.
                    self.outputs.push_back(Output::Send(frame.to_vec()));
                    self.submitted += 1;
                    self.outputs.push_back(Output::Request(Ticket(self.submitted), frame.to_vec()));
                }
            }
            Input::Answer(_, answer) => {
                self.answered += 1;
                self.outputs.extend(answer.ok().map(Output::Send));
            }
            Input::Event(event) => self.outputs.push_back(Output::Send(event.clone())),
            Input::Oversize { .. } | Input::Deadline => {}
        }
    }

    fn poll(&mut self) -> Option<Output<Vec<u8>>> {
        self.outputs.pop_front()
    }

    fn wants_frame(&self) -> bool {
        true
    }

    fn has_work_in_progress(&self) -> bool {
        self.submitted > self.answered
    }

    fn max_line_bytes(&self) -> usize {
        usize::MAX
    }
}

/// Answers each request with the request itself, and emits the events that the test sends.
struct EchoBackend {
    answers: VecDeque<(Ticket, Vec<u8>)>,
    requests: mpsc::Sender<Vec<u8>>,
    events: mpsc::Receiver<Vec<u8>>,
}

impl Backend for EchoBackend {
    type Request = Vec<u8>;
    type Reply = Vec<u8>;
    type Event = Vec<u8>;
    type Error = SessionRefusal;

    fn submit(&mut self, ticket: Ticket, request: Vec<u8>) -> Option<Answer<Vec<u8>, SessionRefusal>> {
        self.requests.try_send(request.clone()).expect("the test holds the receiver");
        self.answers.push_back((ticket, request));
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

/// A connection that a task serves, with the client's end of it.
struct Served {
    client: WebSocketStream<TcpStream>,
    requests: mpsc::Receiver<Vec<u8>>,
    /// Keeps the event channel open.
    _events: mpsc::Sender<Vec<u8>>,
    stop: Option<oneshot::Sender<CloseReason>>,
    task: tokio::task::JoinHandle<()>,
}

/// Far longer than anything in these tests takes.
const TEST_TIMEOUT: Duration = Duration::from_secs(20);

const LONG_TIMEOUTS: Keepalive = Keepalive {
    ping_interval: Duration::from_secs(3600),
    read_timeout: Duration::from_secs(3600),
    write_timeout: Duration::from_secs(3600),
};

/// A served connection whose backend emits `first_events` from the start.
async fn served(keepalive: Keepalive, first_events: &[Vec<u8>]) -> Served {
    served_within(&FrameMemory::default(), keepalive, first_events).await
}

/// Like [`served`], with memory that several connections share.
async fn served_within(memory: &FrameMemory, keepalive: Keepalive, first_events: &[Vec<u8>]) -> Served {
    served_with(memory, keepalive, first_events, None).await
}

/// Like [`served_within`], with compressed messages.
async fn served_with(
    memory: &FrameMemory,
    keepalive: Keepalive,
    first_events: &[Vec<u8>],
    deflate: Option<Deflate>,
) -> Served {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let (client, accepted) = tokio::join!(TcpStream::connect(address), listener.accept());
    let client = WebSocketStream::from_raw_socket(client.unwrap(), Role::Client, None).await;
    let stream = MeteredStream::new(accepted.unwrap().0, memory, &mut [], deflate);
    let server = WebSocketStream::from_raw_socket(stream, Role::Server, None).await;
    let (request_sender, requests) = mpsc::channel(16);
    let (event_sender, events) = mpsc::channel(16);
    for event in first_events {
        event_sender.try_send(event.clone()).unwrap();
    }
    let (stop, stopped) = oneshot::channel();
    let backend = EchoBackend { answers: VecDeque::new(), requests: request_sender, events };
    let task = tokio::spawn(async move {
        let stop = async { stopped.await.unwrap_or(CloseReason::GoingAway) };
        serve_socket(Echo::default(), backend, server, keepalive, Arc::new(|_| {}), stop).await;
    });
    Served { client, requests, _events: event_sender, stop: Some(stop), task }
}

/// A frame that is larger than the kernel's socket buffers and still allowed.
fn large() -> Vec<u8> {
    vec![b'x'; 15 << 20]
}

#[tokio::test]
async fn replacing_a_peer_does_not_wait_until_it_reads() {
    let mut served = served(LONG_TIMEOUTS, &[large()]).await;
    // Once the client can read, the server is writing the frame.
    served.client.get_ref().readable().await.unwrap();
    served.stop.take().unwrap().send(CloseReason::Replaced).unwrap();
    // The write timeout of an hour does not apply.
    timeout(TEST_TIMEOUT, served.task).await.unwrap().unwrap();
}

#[tokio::test]
async fn frames_sent_before_a_replacement_are_handled_up_to_a_limit() {
    let mut served = served(LONG_TIMEOUTS, &[large()]).await;
    served.client.get_ref().readable().await.unwrap();
    // The server does not read while it writes the large frame.
    for number in 0..=LAST_FRAMES {
        served.client.send(Message::text(format!("?{number}"))).await.unwrap();
    }
    served.stop.take().unwrap().send(CloseReason::Replaced).unwrap();
    while let Some(Ok(_)) = served.client.next().await {}
    served.task.await.unwrap();
    for number in 0..LAST_FRAMES {
        let request = served.requests.recv().await;
        assert_eq!(request, Some(format!("?{number}").into_bytes()));
    }
    assert_eq!(served.requests.recv().await, None, "frames over the limit are dropped");
}

#[tokio::test]
async fn a_request_is_submitted_although_the_frame_before_it_could_not_be_written() {
    let keepalive = Keepalive { write_timeout: Duration::from_millis(10), ..LONG_TIMEOUTS };
    let mut served = served(keepalive, &[]).await;
    let mut frame = large();
    frame[0] = b'?';
    let text = String::from_utf8(frame.clone()).unwrap();
    served.client.send(Message::text(text)).await.unwrap();
    let request = timeout(TEST_TIMEOUT, served.requests.recv()).await.unwrap();
    assert!(request == Some(frame), "the request was not submitted");
    served.task.await.unwrap();
}

/// Reads up to `at_once` bytes after each `pause`, until the server has sent the frame or drops the connection. Returns how
/// many bytes came.
async fn read_slowly(client: &mut TcpStream, frame_bytes: usize, at_once: usize, pause: Duration) -> usize {
    let (mut piece, mut count) = (vec![0; 1 << 20], 0);
    while count < frame_bytes {
        tokio::time::sleep(pause).await;
        let before = count;
        while count < before + at_once {
            match client.try_read(&mut piece) {
                Ok(0) => return count,
                Ok(bytes) => count += bytes,
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(_) => return count,
            }
        }
        if client.readable().await.is_err() {
            return count;
        }
    }
    count
}

const WRITE_TIMEOUT: Duration = Duration::from_secs(10);

#[tokio::test(start_paused = true)]
async fn a_peer_that_reads_slowly_gets_the_whole_frame() {
    let keepalive = Keepalive { write_timeout: WRITE_TIMEOUT, ..LONG_TIMEOUTS };
    let frame = vec![b'x'; 60 << 20];
    // Once so little that the kernel does not tell the server of it, and once so much that it does: then the time counts
    // from there, and not from the beginning.
    for (at_once, pause) in [(1 << 20, WRITE_TIMEOUT / 2), (8 << 20, WRITE_TIMEOUT * 9 / 10)] {
        let served = served(keepalive, std::slice::from_ref(&frame)).await;
        let begun = Instant::now();
        let mut client = served.client.into_inner();
        let count = read_slowly(&mut client, frame.len(), at_once, pause).await;
        assert!(count >= frame.len(), "the connection ended after {count} bytes, read {at_once} at once");
        assert!(begun.elapsed() > 2 * WRITE_TIMEOUT, "the frame was not sent slowly: {:?}", begun.elapsed());
    }
}

#[tokio::test(start_paused = true)]
async fn a_peer_that_reads_nothing_is_dropped_after_the_write_timeout() {
    let keepalive = Keepalive { write_timeout: WRITE_TIMEOUT, ..LONG_TIMEOUTS };
    let served = served(keepalive, &[large()]).await;
    let begun = Instant::now();
    timeout(10 * WRITE_TIMEOUT, served.task).await.expect("the server drops the peer").unwrap();
    assert!((WRITE_TIMEOUT..2 * WRITE_TIMEOUT).contains(&begun.elapsed()), "{:?}", begun.elapsed());
}

#[tokio::test(start_paused = true)]
async fn a_peer_that_reads_slowly_is_dropped_when_others_wait_for_its_memory() {
    let memory = FrameMemory::new(MIN_FRAME_MEMORY);
    let keepalive = Keepalive { write_timeout: WRITE_TIMEOUT, ..LONG_TIMEOUTS };
    let served = served_within(&memory, keepalive, &[large()]).await;
    let mut client = served.client.into_inner();
    client.readable().await.unwrap();
    let mut waiting = memory.account();
    waiting.set_arriving(MIN_FRAME_MEMORY);
    let waits = tokio::spawn(async move { poll_fn(|cx| waiting.poll_room(cx)).await });
    let count = read_slowly(&mut client, large().len(), 1 << 20, WRITE_TIMEOUT / 2).await;
    assert!(count < large().len(), "the whole frame came");
    waits.await.unwrap();
}

#[tokio::test]
async fn a_message_sent_during_a_long_write_prevents_the_read_timeout() {
    let read_timeout = Duration::from_secs(1);
    let send_during_write = async || {
        let mut served = served(Keepalive { read_timeout, ..LONG_TIMEOUTS }, &[large()]).await;
        served.client.get_ref().readable().await.unwrap();
        served.client.send(Message::text("here I am")).await.unwrap();
        // When the large frame is written, the read timeout has passed since the last message that the server read.
        tokio::time::sleep(read_timeout + read_timeout / 4).await;
        let mut lengths = Vec::new();
        while let Some(Ok(message)) = served.client.next().await {
            lengths.push(message.into_text().unwrap().len());
        }
        assert_eq!(lengths, [large().len(), "here I am".len()]);
    };
    // The runtime chooses at random whether it polls the message or the timer first, so try several times.
    tokio::join!(
        send_during_write(),
        send_during_write(),
        send_during_write(),
        send_during_write(),
        send_during_write(),
        send_during_write(),
    );
}

#[tokio::test]
async fn a_protocol_error_is_reported_although_more_input_follows() {
    let mut served = served(LONG_TIMEOUTS, &[]).await;
    // A frame with a reserved opcode, and far more than the server has read when it sends the close frame.
    served.client.get_mut().write_all(b"\x83\x80\0\0\0\0").await.unwrap();
    served.client.get_mut().write_all(&large()).await.unwrap();
    let Some(Ok(Message::Close(Some(close)))) = served.client.next().await else { panic!("no close frame") };
    assert_eq!(close.code, CloseCode::Protocol);
}

/// The header of a client's message with a payload of `bytes` bytes. Its mask is zero, so the payload stays as it is.
fn header(bytes: u64) -> Vec<u8> {
    [&[0x81, 0xff][..], &bytes.to_be_bytes(), &[0; 4]].concat()
}

#[tokio::test]
async fn a_large_message_holds_memory_until_it_is_answered() {
    let memory = FrameMemory::default();
    let mut served = served_within(&memory, LONG_TIMEOUTS, &[]).await;
    for round in 0..3 {
        let text = format!("?{}", "x".repeat(3 << 20));
        served.client.send(Message::text(text.clone())).await.unwrap();
        assert_eq!(served.requests.recv().await.unwrap().len(), text.len());
        // Two echoes and the answer.
        for _ in 0..3 {
            let Some(Ok(echo)) = served.client.next().await else { panic!("no echo") };
            assert_eq!(echo.len(), text.len(), "{round}");
        }
        // The server releases the memory before it handles the next message.
        served.client.send(Message::text("small")).await.unwrap();
        assert_eq!(served.client.next().await.unwrap().unwrap().len(), 5);
        assert_eq!(memory.used(), 0, "{round}");
    }
}

#[tokio::test]
async fn a_message_split_anywhere_survives_the_rebuilding_of_the_socket() {
    let mut served = served(LONG_TIMEOUTS, &[]).await;
    let large = "y".repeat(200 << 10);
    // One write has a complete large message and the beginning of the next; the rest follows later.
    let mut bytes = [&header(large.len() as u64)[..], large.as_bytes()].concat();
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
async fn connections_with_stalled_messages_are_closed_while_others_wait_for_memory() {
    let memory = FrameMemory::new(MIN_FRAME_MEMORY);
    let mut stalled = JoinSet::new();
    for _ in 0..4 {
        let served = served_within(&memory, LONG_TIMEOUTS, &[]).await;
        stalled.spawn(async move {
            let mut served = served;
            let half = [header(2 << 20), vec![b'x'; 1 << 20]].concat();
            // The server reads all of it only when there is memory.
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
    let mut small = served_within(&memory, LONG_TIMEOUTS, &[]).await;
    small.client.send(Message::text("small")).await.unwrap();
    assert_eq!(small.client.next().await.unwrap().unwrap().into_data(), "small");
    assert!(memory.used() <= MIN_FRAME_MEMORY + (2 << 20), "{}", memory.used());
    // From here on, sleeps end at once when no task can make progress.
    tokio::time::pause();
    let begun = Instant::now();
    for _ in 0..3 {
        assert_eq!(stalled.join_next().await.unwrap().unwrap(), 1013);
    }
    assert!(begun.elapsed() >= 2 * FRAME_WAIT, "each has its own time limit once there is memory for it");
    let last = timeout(100 * FRAME_WAIT, stalled.join_next()).await;
    assert!(last.is_err(), "no connection waits for the last one's memory: {last:?}");
}

#[tokio::test]
async fn a_peer_that_breaks_the_protocol_sees_the_end_of_the_stream_at_once() {
    let mut served = served(LONG_TIMEOUTS, &[]).await;
    let stream = served.client.get_mut();
    // A text frame without a mask, which a client must not send.
    stream.write_all(&[0x81, 2, b'h', b'i']).await.unwrap();
    let mut received = Vec::new();
    stream.read_to_end(&mut received).await.unwrap();
    assert!(!served.task.is_finished(), "the stream ended only when the server gave up waiting for the peer");
    // A close frame with code 1002.
    assert_eq!((received.first(), received.get(2..4)), (Some(&0x88), Some(&1002u16.to_be_bytes()[..])));
    drop(served.client);
    timeout(TEST_TIMEOUT, served.task).await.unwrap().unwrap();
}
