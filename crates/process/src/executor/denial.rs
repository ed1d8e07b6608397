//! Whether a sandbox made a process fail. The kernel tells only the process, with an error like any other, so this is a
//! judgement of how the process ended and what it wrote. Clients use it to ask for more rights.

use std::collections::VecDeque;

use parlor_vocab::{OutputStream, ProcessExit, SequencedChunk};
use rustix::process::Signal;

/// How much of the end of each stream is searched for an error of the sandbox.
pub const DENIAL_SEARCH_BYTES: usize = 64 << 10;

/// The system's texts for the errors with which the kernel refuses what a sandbox forbids: EPERM, EACCES and EROFS.
const ERROR_TEXTS: [&[u8]; 3] = [b"operation not permitted", b"permission denied", b"read-only file system"];

/// What shells add to the number of a signal.
const SIGNAL_BASE: u8 = 128;

/// Whether the sandbox of a process probably made it fail. `chunks` is its output.
pub(super) fn is_denied(ending: ProcessExit, chunks: &VecDeque<SequencedChunk>) -> bool {
    let bad_call = Signal::SYS.as_raw();
    match ending {
        // A system call that the filter of the sandbox forbids.
        ProcessExit::Signal(signal) if signal == bad_call => true,
        ProcessExit::Code(code) if i32::from(code) == i32::from(SIGNAL_BASE) + bad_call => true,
        ProcessExit::Code(0) | ProcessExit::Terminated | ProcessExit::Unknown => false,
        ProcessExit::Code(_) | ProcessExit::Signal(_) => {
            [OutputStream::Stderr, OutputStream::Stdout, OutputStream::Terminal].iter().any(|stream| {
                let end = end_of(*stream, chunks).to_ascii_lowercase();
                ERROR_TEXTS.iter().any(|text| end.windows(text.len()).any(|part| part == *text))
            })
        }
    }
}

/// The last bytes of a stream.
fn end_of(stream: OutputStream, chunks: &VecDeque<SequencedChunk>) -> Vec<u8> {
    let mut pieces: Vec<&[u8]> = Vec::new();
    let mut room = DENIAL_SEARCH_BYTES;
    for chunk in chunks.iter().rev().filter(|chunk| chunk.stream == stream) {
        let piece = &chunk.bytes[chunk.bytes.len().saturating_sub(room)..];
        pieces.push(piece);
        room -= piece.len();
        if room == 0 {
            break;
        }
    }
    pieces.reverse();
    pieces.concat()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    fn chunks(pieces: &[(OutputStream, &str)]) -> VecDeque<SequencedChunk> {
        let chunk = |(seq, (stream, text)): (usize, &(OutputStream, &str))| SequencedChunk {
            seq: seq as u64 + 1,
            stream: *stream,
            bytes: Arc::new(text.as_bytes().to_vec()),
        };
        pieces.iter().enumerate().map(chunk).collect()
    }

    #[test]
    fn a_failure_with_an_error_of_the_kernel_counts() {
        use OutputStream::{Stderr, Stdout, Terminal};
        for (stream, text) in [
            (Stderr, "sh: cannot create /x: Read-only file system\n"),
            (Stdout, "PermissionError: [Errno 13] Permission denied: 'x'"),
            (Terminal, "mount: Operation not permitted\r\n"),
        ] {
            let output = chunks(&[(stream, text)]);
            assert!(is_denied(ProcessExit::Code(1), &output), "{text}");
            assert!(is_denied(ProcessExit::Signal(6), &output), "{text}");
            for ending in [ProcessExit::Code(0), ProcessExit::Terminated] {
                assert!(!is_denied(ending, &output), "{text} {ending:?}");
            }
        }
        assert!(!is_denied(ProcessExit::Code(1), &chunks(&[(Stderr, "no such file")])));
    }

    #[test]
    fn the_error_may_be_cut_into_pieces_with_another_stream_between_them() {
        use OutputStream::{Stderr, Stdout};
        let output = chunks(&[(Stderr, "x: Permission "), (Stdout, "…"), (Stderr, "denied\n")]);
        assert!(is_denied(ProcessExit::Code(1), &output));
        let apart = chunks(&[(Stderr, "x: Permission "), (Stdout, "denied\n")]);
        assert!(!is_denied(ProcessExit::Code(1), &apart));
    }

    #[test]
    fn only_the_end_of_the_output_is_searched() {
        let long = "x".repeat(DENIAL_SEARCH_BYTES - "permission denied".len());
        let error = (OutputStream::Stderr, "permission denied");
        assert!(is_denied(ProcessExit::Code(1), &chunks(&[error, (OutputStream::Stderr, &long)])));
        let longer = format!("{long}x");
        assert!(!is_denied(ProcessExit::Code(1), &chunks(&[error, (OutputStream::Stderr, &longer)])));
    }

    #[test]
    fn a_system_call_that_the_filter_forbids_counts_without_output() {
        for ending in [ProcessExit::Signal(31), ProcessExit::Code(159)] {
            assert!(is_denied(ending, &VecDeque::new()));
        }
        assert!(!is_denied(ProcessExit::Signal(9), &VecDeque::new()));
    }
}
