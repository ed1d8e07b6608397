//! Encodes process events as notifications.

use parlor_vocab::{OutputStream, ProcessEvent, ProcessId};

use super::code;
use super::wire::{ExecExitedNotification, method};
use crate::jsonrpc;

pub(super) fn event(event: &ProcessEvent) -> Vec<u8> {
    match event {
        ProcessEvent::ProcessOutput { process, stream, bytes } => output_delta(process, *stream, bytes),
        ProcessEvent::ProcessExited { process, ending } => jsonrpc::notification(
            method::EXITED,
            &ExecExitedNotification {
                process_id: process.as_str().to_owned(),
                exit_code: code::exit_code(*ending),
            },
        ),
    }
}

/// Encodes an output chunk without `serde_json`, which would copy it twice more: most bytes of this door pass here, and
/// base64 needs no escaping, so it can be written straight into the frame.
fn output_delta(process: &ProcessId, stream: OutputStream, bytes: &[u8]) -> Vec<u8> {
    let stream = match stream {
        OutputStream::Stdout | OutputStream::Terminal => "stdout",
        OutputStream::Stderr => "stderr",
    };
    let id = serde_json::to_string(process.as_str()).expect("a string can be written as JSON");
    let head = [
        r#"{"method":""#,
        method::OUTPUT_DELTA,
        r#"","params":{"processId":"#,
        &id,
        r#","stream":""#,
        stream,
        r#"","chunk":""#,
    ];
    let tail = br#""}}"#;
    let encoded = base64_simd::STANDARD.encoded_length(bytes.len());
    // One byte more than the frame, because the driver appends a newline.
    let size = head.iter().map(|part| part.len()).sum::<usize>() + encoded + tail.len() + 1;

    let mut frame = Vec::with_capacity(size);
    for part in head {
        frame.extend_from_slice(part.as_bytes());
    }
    base64_simd::STANDARD.encode_append(bytes, &mut frame);
    frame.extend_from_slice(tail);
    frame
}

#[cfg(test)]
mod tests {
    use super::super::wire::{ByteChunk, ExecOutputDeltaNotification, ExecOutputStream};
    use super::*;

    #[test]
    fn the_handwritten_frame_equals_the_serialized_type() {
        for (id, stream, bytes) in [
            ("p", OutputStream::Stdout, &b"hello\n"[..]),
            ("a \"quoted\"\n\u{1}id \u{e4}", OutputStream::Stderr, &[0, 255, 7]),
            ("", OutputStream::Terminal, b"x"),
        ] {
            let wire = match stream {
                OutputStream::Stdout | OutputStream::Terminal => ExecOutputStream::Stdout,
                OutputStream::Stderr => ExecOutputStream::Stderr,
            };
            let typed = ExecOutputDeltaNotification {
                process_id: id.to_owned(),
                stream: wire,
                chunk: ByteChunk(bytes.to_vec()),
            };
            let frame = output_delta(&ProcessId::parse(id).unwrap(), stream, bytes);
            assert_eq!(frame, jsonrpc::notification(method::OUTPUT_DELTA, &typed));
            assert!(frame.capacity() > frame.len(), "there is room for the newline");
        }
    }
}
