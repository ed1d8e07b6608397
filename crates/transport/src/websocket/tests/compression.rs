//! Tests of connections with compressed messages.

use flate2::{Compress, Compression, FlushCompress};
use tokio_tungstenite::tungstenite::protocol::frame::coding::{Control, Data, OpCode};
use tokio_tungstenite::tungstenite::protocol::frame::{Frame, FrameHeader};

use super::*;

/// A served connection whose messages are compressed, with a client that understands them.
struct Compressed {
    client: Socket,
    served: Served,
}

fn deflate() -> Deflate {
    Deflate::with_window_bits(15).unwrap()
}

async fn compressed(memory: &FrameMemory) -> Compressed {
    compressed_with(memory, &[]).await
}

async fn compressed_with(memory: &FrameMemory, first_events: &[Vec<u8>]) -> Compressed {
    let mut served = served_with(memory, LONG_TIMEOUTS, first_events, Some(deflate())).await;
    let placeholder = WebSocketStream::from_raw_socket(connected().await, Role::Client, None).await;
    let stream = std::mem::replace(&mut served.client, placeholder).into_inner();
    let stream = MeteredStream::new(stream, &FrameMemory::default(), &mut [], Some(deflate()));
    Compressed { client: WebSocketStream::from_raw_socket(stream, Role::Client, None).await, served }
}

/// Any connection.
async fn connected() -> TcpStream {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    TcpStream::connect(listener.local_addr().unwrap()).await.unwrap()
}

impl Compressed {
    async fn send(&mut self, message: Message) {
        self.client.send(message).await.unwrap();
    }

    async fn receive(&mut self) -> String {
        let message = timeout(TEST_TIMEOUT, next_message(&mut self.client)).await.expect("a message comes");
        message.unwrap().unwrap().into_text().unwrap().to_string()
    }

    async fn close_code(&mut self) -> u16 {
        loop {
            match timeout(TEST_TIMEOUT, next_message(&mut self.client)).await.expect("the server closes") {
                Some(Ok(Message::Close(Some(close)))) => return close.code.into(),
                Some(Ok(_)) => {}
                other => panic!("no close frame: {other:?}"),
            }
        }
    }
}

/// The bytes of a compressed message.
fn payload(text: &[u8]) -> Vec<u8> {
    let mut output = Vec::with_capacity(text.len() + 100);
    Compress::new(Compression::fast(), false).compress_vec(text, &mut output, FlushCompress::Sync).unwrap();
    output.truncate(output.len() - 4);
    output
}

fn frame(opcode: OpCode, rsv1: bool, is_final: bool, payload: &[u8]) -> Message {
    let header = FrameHeader { opcode, rsv1, is_final, ..FrameHeader::default() };
    Message::Frame(Frame::from_payload(header, payload.to_vec().into()))
}

const TEXT: OpCode = OpCode::Data(Data::Text);
const BINARY: OpCode = OpCode::Data(Data::Binary);
const CONTINUE: OpCode = OpCode::Data(Data::Continue);

#[tokio::test]
async fn compressed_and_plain_messages_arrive_in_their_order() {
    let mut peer = compressed(&FrameMemory::default()).await;
    let long = "long ".repeat(1000);
    // All at once, so that the server reads several frames together.
    let whole = payload(b"second");
    for message in [
        Message::text("first"),
        frame(TEXT, true, true, &whole),
        frame(BINARY, true, true, &payload(b"third")),
        frame(TEXT, true, false, &payload(long.as_bytes())[..10]),
        Message::Ping(Bytes::from_static(b"between")),
        frame(CONTINUE, false, false, &payload(long.as_bytes())[10..20]),
        frame(CONTINUE, false, true, &payload(long.as_bytes())[20..]),
        Message::text("last"),
    ] {
        peer.client.feed(message).await.unwrap();
    }
    peer.client.flush().await.unwrap();
    let mut received = Vec::new();
    while received.len() < 5 {
        let text = peer.receive().await;
        // The answer to the ping comes in between.
        if text != "between" {
            received.push(text);
        }
    }
    assert_eq!(received, ["first", "second", "third", &long, "last"]);
}

#[tokio::test]
async fn only_long_messages_are_sent_compressed() {
    let served = served_with(&FrameMemory::default(), LONG_TIMEOUTS, &[], Some(deflate())).await;
    let mut stream = served.client.into_inner();
    for (length, is_compressed) in [(1023, false), (1024, true), (100_000, true)] {
        stream.write_all(&[header(length), vec![b'a'; length as usize]].concat()).await.unwrap();
        let mut head = [0; 2];
        stream.read_exact(&mut head).await.unwrap();
        assert_eq!(head[0], if is_compressed { 0xc1 } else { 0x81 }, "{length}");
        let bytes = match head[1] {
            126 => stream.read_u16().await.unwrap().into(),
            bytes => usize::from(bytes),
        };
        assert!(is_compressed == (bytes < 500), "{length} became {bytes}");
        stream.read_exact(&mut vec![0; bytes]).await.unwrap();
    }
}

#[tokio::test]
async fn large_messages_and_small_ones_right_behind_them_are_all_handled() {
    let memory = FrameMemory::default();
    let mut peer = compressed(&memory).await;
    for round in 0..3 {
        let large = format!("{round}{}", "z".repeat(3 << 20));
        peer.client.feed(frame(TEXT, true, true, &payload(large.as_bytes()))).await.unwrap();
        // These are in the buffer of the server while it inflates the large one.
        for number in 0..50 {
            let small = format!("small {number}");
            peer.client
                .feed(frame(
                    TEXT,
                    number % 2 == 0,
                    true,
                    &if number % 2 == 0 { payload(small.as_bytes()) } else { small.into_bytes() },
                ))
                .await
                .unwrap();
        }
        peer.client.flush().await.unwrap();
        assert!(peer.receive().await == large, "{round}");
        for number in 0..50 {
            assert_eq!(peer.receive().await, format!("small {number}"));
        }
    }
    // The memory of large messages is released before the next message is handled.
    peer.send(Message::text("end")).await;
    assert_eq!(peer.receive().await, "end");
    assert_eq!(memory.used(), 0);
}

#[tokio::test]
async fn a_message_that_becomes_too_large_or_is_broken_ends_the_connection() {
    let mut bomb = compressed(&FrameMemory::default()).await;
    let huge = vec![b'x'; (64 << 20) + 1];
    bomb.send(frame(TEXT, true, true, &payload(&huge))).await;
    assert_eq!(bomb.close_code().await, 1009);
    for (message, code) in [
        (frame(TEXT, true, true, &[0xff; 100]), 1007),
        (frame(TEXT, true, true, &payload(b"\xff")), 1007),
        (frame(CONTINUE, true, true, b""), 1002),
        (frame(OpCode::Control(Control::Ping), true, true, b""), 1002),
        (frame(OpCode::Data(Data::Reserved(3)), true, true, b""), 1002),
    ] {
        let mut peer = compressed(&FrameMemory::default()).await;
        peer.send(message).await;
        assert_eq!(peer.close_code().await, code);
    }
    // The bit is an error on a connection without compression.
    let mut plain = served(LONG_TIMEOUTS, &[]).await;
    plain.client.send(frame(TEXT, true, true, &payload(b"text"))).await.unwrap();
    let Some(Ok(Message::Close(Some(close)))) = plain.client.next().await else { panic!("no close frame") };
    assert_eq!(close.code, CloseCode::Protocol);
}

#[tokio::test]
async fn a_refused_message_is_not_counted_while_its_connection_closes() {
    let memory = FrameMemory::default();
    let mut peer = compressed(&memory).await;
    peer.send(frame(TEXT, true, true, &payload(&vec![b'x'; (64 << 20) + 1]))).await;
    // The server closes its side of the stream after this, and waits for the client.
    assert_eq!(peer.close_code().await, 1009);
    assert!(memory.used() <= MIN_FRAME_MEMORY, "only the compressed message counts: {}", memory.used());
    assert!(!peer.served.task.is_finished(), "the connection is closing");
}

/// Waits until a connection waits for memory.
async fn wait_for_waiter(memory: &FrameMemory) {
    let waits = async {
        while !memory.has_waiters() {
            tokio::task::yield_now().await;
        }
    };
    timeout(TEST_TIMEOUT, waits).await.expect("a connection waits for memory");
}

#[tokio::test]
async fn a_small_message_that_becomes_a_large_one_waits_for_memory() {
    let memory = FrameMemory::new(MIN_FRAME_MEMORY);
    // An older frame has all the memory.
    let mut older = memory.account();
    older.hold(MIN_FRAME_MEMORY);
    let mut peer = compressed(&memory).await;
    let large = "x".repeat(MIN_FRAME_MEMORY / 2);
    peer.send(frame(TEXT, true, true, &payload(large.as_bytes()))).await;
    wait_for_waiter(&memory).await;
    assert!(memory.used() <= MIN_FRAME_MEMORY + FREE_FRAME_BYTES, "{}", memory.used());
    // The connection itself goes on meanwhile.
    peer.served._events.send(b"news".to_vec()).await.unwrap();
    assert_eq!(peer.receive().await, "news");
    drop(older);
    assert!(peer.receive().await == large);
}

#[tokio::test]
async fn a_compressed_frame_sent_before_a_replacement_is_handled() {
    let mut peer = compressed_with(&FrameMemory::default(), &[incompressible()]).await;
    // The server does not read while it writes the large frame.
    peer.client.get_mut().stream().readable().await.unwrap();
    peer.send(frame(TEXT, true, true, &payload(b"?compressed"))).await;
    peer.served.stop.take().unwrap().send(CloseReason::Replaced).unwrap();
    while let Some(Ok(_)) = next_message(&mut peer.client).await {}
    peer.served.task.await.unwrap();
    assert_eq!(peer.served.requests.recv().await, Some(b"?compressed".to_vec()));
}

/// A frame that stays larger than the kernel's socket buffers.
fn incompressible() -> Vec<u8> {
    let mut state = 1_u64;
    let letters = std::iter::repeat_with(|| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        b' ' + (state >> 58) as u8
    });
    letters.take(20 << 20).collect()
}
