//! Encodes process events as notifications.

use parlor_vocab::{ExecutorEvent, OutputStream, ProcessEvent, ProcessId, SequencedChunk};
use serde_json::json;

use super::wire::{ExecExitedNotification, method};
use super::{code, replies};
use crate::jsonrpc::{self, RequestId};

pub(super) fn event(event: &ExecutorEvent) -> Vec<u8> {
    match event {
        ExecutorEvent::Process(event) => first_family(event),
        ExecutorEvent::SequencedOutput { process, chunk } => sequenced_output(process, chunk),
        ExecutorEvent::SequencedExited { process, seq, ending, is_denied } => jsonrpc::notification(
            method::PROCESS_EXITED,
            &json!({
                "processId": process.as_str(),
                "seq": seq,
                "exitCode": code::exit_code(*ending),
                "sandboxDenied": is_denied,
            }),
        ),
        ExecutorEvent::HttpBody { request, seq, bytes, is_last, error } => jsonrpc::notification(
            method::HTTP_BODY_DELTA,
            &json!({
                "requestId": request,
                "seq": seq,
                "deltaBase64": base64_simd::STANDARD.encode_to_string(bytes),
                "done": is_last,
                "error": error,
            }),
        ),
        ExecutorEvent::SequencedClosed { process, seq } => {
            jsonrpc::notification(method::PROCESS_CLOSED, &json!({"processId": process.as_str(), "seq": seq}))
        }
    }
}

fn first_family(event: &ProcessEvent) -> Vec<u8> {
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

fn output_delta(process: &ProcessId, stream: OutputStream, bytes: &[u8]) -> Vec<u8> {
    let stream = match stream {
        OutputStream::Stdout | OutputStream::Terminal => "stdout",
        OutputStream::Stderr => "stderr",
    };
    let id = quoted(process);
    let head = [
        r#"{"method":""#,
        method::OUTPUT_DELTA,
        r#"","params":{"processId":"#,
        &id,
        r#","stream":""#,
        stream,
        r#"","chunk":""#,
    ];
    with_chunk(&head, bytes)
}

fn sequenced_output(process: &ProcessId, chunk: &SequencedChunk) -> Vec<u8> {
    let (id, seq) = (quoted(process), chunk.seq.to_string());
    let head = [
        r#"{"method":""#,
        method::PROCESS_OUTPUT,
        r#"","params":{"processId":"#,
        &id,
        r#","seq":"#,
        &seq,
        r#","stream":""#,
        replies::stream_name(chunk.stream),
        r#"","chunk":""#,
    ];
    with_chunk(&head, &chunk.bytes)
}

/// The result of a request for the content of a file.
pub(super) fn file_content(id: &RequestId, bytes: &[u8]) -> Vec<u8> {
    let id = serde_json::to_string(id).expect("an id can be written as JSON");
    with_chunk(&[r#"{"id":"#, &id, r#","result":{"dataBase64":""#], bytes)
}

fn quoted(process: &ProcessId) -> String {
    serde_json::to_string(process.as_str()).expect("a string can be written as JSON")
}

/// Encodes an output chunk without `serde_json`, which would copy it twice more: most bytes of this door pass here, and
/// base64 needs no escaping, so it can be written straight into the frame.
fn with_chunk(head: &[&str], bytes: &[u8]) -> Vec<u8> {
    // All these frames have the bytes at the end of an object in an object.
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
    fn the_handwritten_content_of_a_file_equals_the_serialized_result() {
        for id in [RequestId::Integer(-7), RequestId::Text("\"\u{1}".to_owned())] {
            assert_eq!(file_content(&id, b"hi"), jsonrpc::result(&id, &json!({"dataBase64": "aGk="})));
        }
    }

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
