//! Tests of compressed messages without a socket: what is compressed is inflated again, and nothing else does harm.

use proptest::prelude::*;

use super::*;

const MAX: usize = 1 << 20;

/// The payload of a message that the server sends, and whether it is compressed.
fn sent(window_bits: u8, text: &[u8]) -> Option<Bytes> {
    let message = Deflate::with_window_bits(window_bits).unwrap().compress(text)?;
    let Message::Frame(frame) = message else { panic!("{message:?}") };
    let header = frame.header();
    assert!(header.rsv1 && header.is_final && header.opcode == OpCode::Data(Data::Text));
    Some(frame.into_payload())
}

fn inflate(input: impl Into<Bytes>, is_text: bool, max_bytes: usize) -> Result<Message, Error> {
    let mut inflating = Inflating::new(input.into(), is_text, max_bytes);
    loop {
        match inflating.step() {
            Step::Grown(bytes) => assert!(bytes <= INFLATE_STEP_BYTES),
            Step::Complete(message) => return Ok(message),
            Step::Refused { error, .. } => return Err(error),
        }
        assert!(inflating.output.capacity() <= max_bytes + 2 * INFLATE_STEP_BYTES);
    }
}

/// A message as a client compresses it: with `flush` at its end.
fn compressed(text: &[u8], flush: FlushCompress) -> Vec<u8> {
    let mut output = Vec::with_capacity(text.len() + 1024);
    Compress::new(Compression::best(), false).compress_vec(text, &mut output, flush).unwrap();
    output
}

fn json(entries: usize) -> String {
    (0..entries).map(|n| format!("{{\"event_type\":\"text.delta\",\"sequence\":{n}}}")).collect()
}

#[test]
fn a_text_becomes_smaller_and_a_short_one_stays_as_it_is() {
    let long = json(1000);
    for bits in MIN_WINDOW_BITS..=MAX_WINDOW_BITS {
        let payload = sent(bits, long.as_bytes()).unwrap();
        assert!(payload.len() * 5 < long.len(), "{bits} bits: {} of {}", payload.len(), long.len());
        assert_eq!(inflate(payload, true, long.len()).unwrap().into_text().unwrap(), long.as_str());
    }
    let text = "x".repeat(COMPRESS_FROM_BYTES);
    assert!(sent(15, text.as_bytes()).is_some() && sent(15, &text.as_bytes()[1..]).is_none());
    assert_eq!(Deflate::with_window_bits(8), None);
    assert_eq!(Deflate::with_window_bits(16), None);
}

#[test]
fn a_message_that_does_not_become_smaller_is_sent_as_it_is() {
    assert!(sent(15, &random_bytes(100_000)).is_none());
}

fn random_bytes(count: usize) -> Vec<u8> {
    let mut state = 1_u64;
    let bytes = std::iter::repeat_with(|| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 56) as u8
    });
    bytes.take(count).collect()
}

#[test]
fn the_server_keeps_to_its_window() {
    // The second half repeats the first, which lies too far back for all windows but the largest.
    let text = [random_bytes(20_000), random_bytes(20_000), json(500).into_bytes()].concat();
    for bits in MIN_WINDOW_BITS..=MAX_WINDOW_BITS {
        let bytes = sent(bits, &text).unwrap().len();
        assert_eq!(bytes < 30_000, bits == MAX_WINDOW_BITS, "{bits} bits: {bytes}");
    }
}

#[test]
fn a_small_message_does_not_become_a_huge_one() {
    let mut bomb = compressed(&vec![b'x'; 8 << 20], FlushCompress::Sync);
    assert!(bomb.len() < 20_000);
    for max in [0, 1, INFLATE_STEP_BYTES, MAX] {
        let error = inflate(bomb.clone(), true, max).unwrap_err();
        assert!(matches!(error, Error::Capacity(_)), "{max}: {error}");
    }
    // At the limit it is allowed.
    bomb = compressed(&vec![b'x'; MAX], FlushCompress::Sync);
    assert_eq!(inflate(bomb.clone(), false, MAX).unwrap().len(), MAX);
    assert!(inflate(bomb, false, MAX - 1).is_err());
}

#[test]
fn a_broken_message_is_an_error() {
    let is_broken = |result: Result<Message, Error>| match result {
        Err(Error::Io(error)) => error.kind() == std::io::ErrorKind::InvalidData,
        Ok(_) | Err(_) => false,
    };
    assert!(is_broken(inflate(vec![0xff; 100], false, MAX)));
    // A back reference to before the message: the context of the message before is not there.
    assert!(is_broken(inflate(vec![0x02, 0x13, 0x00, 0x00], false, MAX)));
    assert!(matches!(inflate(compressed(b"\xff\xfe", FlushCompress::Sync), true, MAX), Err(Error::Utf8(_))));
    assert!(inflate(compressed(b"\xff\xfe", FlushCompress::Sync), false, MAX).is_ok());
}

/// The examples of RFC 7692, section 7.2.3.
#[test]
fn all_forms_of_a_message_are_inflated() {
    for (name, payload) in [
        ("one block", &[0xf2, 0x48, 0xcd, 0xc9, 0xc9, 0x07, 0x00][..]),
        ("without compression", &[0x00, 0x05, 0x00, 0xfa, 0xff, 0x48, 0x65, 0x6c, 0x6c, 0x6f, 0x00]),
        ("a last block", &[0xf3, 0x48, 0xcd, 0xc9, 0xc9, 0x07, 0x00, 0x00]),
        ("two blocks", &[0xf2, 0x48, 0x05, 0x00, 0x00, 0x00, 0xff, 0xff, 0xca, 0xc9, 0xc9, 0x07, 0x00]),
    ] {
        let message = inflate(payload.to_vec(), true, MAX);
        assert_eq!(message.unwrap(), Message::text("Hello"), "{name}");
    }
    for empty in [&[][..], &[0x00], &[0x02, 0x00], &[0x03, 0x00]] {
        assert_eq!(inflate(empty.to_vec(), true, MAX).unwrap(), Message::text(""), "{empty:?}");
    }
}

#[test]
fn marks_follow_the_messages_in_order_and_keep_little_memory() {
    let mut messages = MarkedMessages::default();
    let hello = [0xf2, 0x48, 0xcd, 0xc9, 0xc9, 0x07, 0x00];
    assert_eq!(messages.on_frame(0xc1), 0x82, "a compressed text becomes binary");
    assert_eq!(messages.on_frame(0x42), 0x02, "the first fragment of compressed bytes");
    assert_eq!(messages.on_frame(0x80), 0x80, "its last fragment");
    assert_eq!(messages.on_frame(0x81), 0x81, "a plain text");
    for refused in [0xc0, 0xc8, 0xc9, 0xca, 0xc3, 0xa1 & !0x01 | 0x03] {
        assert_eq!(messages.on_frame(refused), refused, "the library refuses these frames");
    }
    assert_eq!(messages.marks, [Mark::CompressedText, Mark::CompressedBinary, Mark::Plain]);
    let ping = Message::Ping(Bytes::new());
    assert_eq!(messages.take(ping.clone(), MAX), Some(ping), "a ping between messages has no mark");
    for is_text in [true, false] {
        assert_eq!(messages.take(Message::binary(hello.to_vec()), MAX), None);
        assert!(!messages.is_empty());
        assert_eq!(messages.inflating.take().unwrap().is_text, is_text);
    }
    assert_eq!(messages.take(Message::text("plain"), MAX), Some(Message::text("plain")));
    assert!(messages.is_empty());
    for _ in 0..1000 {
        messages.on_frame(0xc1);
    }
    for _ in 0..1000 {
        messages.take(Message::binary(hello.to_vec()), MAX);
        while let Some(Step::Grown(_)) = messages.inflate() {}
    }
    assert!(messages.is_empty() && messages.marks.capacity() <= KEPT_MARKS);
    for _ in 0..1000 {
        messages.on_frame(0x81);
    }
    for _ in 0..1000 {
        messages.take(Message::text("plain"), MAX);
    }
    assert!(messages.marks.capacity() <= KEPT_MARKS, "plain messages make the list long too");
}

proptest! {
    #[test]
    fn what_the_server_compresses_is_inflated_again(
        pieces in prop::collection::vec(("[a-z{}\":, é]{0,40}", 1_usize..60), 0..40),
        bits in MIN_WINDOW_BITS..=MAX_WINDOW_BITS,
    ) {
        let text: String = pieces.iter().map(|(piece, times)| piece.repeat(*times)).collect();
        if let Some(payload) = sent(bits, text.as_bytes()) {
            prop_assert!(payload.len() < text.len());
            prop_assert_eq!(inflate(payload, true, text.len()).unwrap(), Message::text(text));
        }
    }

    #[test]
    fn whatever_a_client_compresses_is_inflated(bytes in prop::collection::vec(any::<u8>(), 0..5000), is_final: bool) {
        let payload = if is_final {
            let mut payload = compressed(&bytes, FlushCompress::Finish);
            payload.push(0);
            payload
        } else {
            let mut payload = compressed(&bytes, FlushCompress::Sync);
            payload.truncate(payload.len() - OMITTED_TAIL.len());
            payload
        };
        prop_assert_eq!(inflate(payload, false, MAX).unwrap(), Message::binary(bytes));
    }

    #[test]
    fn any_bytes_are_inflated_within_the_limit_or_refused(
        bytes in prop::collection::vec(any::<u8>(), 0..400),
        max in 0_usize..100_000,
    ) {
        if let Ok(message) = inflate(bytes, false, max) {
            prop_assert!(message.len() <= max);
        }
    }
}
