//! The harness of fuzz targets and property tests: it plays one connection to its end.
//!
//! The harness splits a client's bytes with [`Lines`] and passes them to a door's machine, as a driver does. Behind the
//! machine is a fake backend. It keeps a backend's guarantees (two running processes never have the same id, a process
//! sends nothing before its start is answered or after its exit, a run ends once) and takes all other decisions from a
//! string of bytes, one byte for each choice. After every step the harness checks the guarantees of the machine and
//! panics if one is broken.
//!
//! `acp.rs`, `exec.rs`, `loaf.rs`, `mcp.rs`, `peer.rs`, `supex.rs`, `supr.rs` and `synaps.rs` check the guarantees of these doors; the
//! `fake_*.rs` files and `shared_registry.rs` are the backends.

mod acp;
mod choices;
mod deterministic_source;
mod exec;
mod fake_frontend;
mod fake_owner;
mod fake_processes;
mod fake_registry;
mod fake_session;
mod loaf;
mod mcp;
mod peer;
mod shared_registry;
mod supex;
mod supr;
mod synaps;

pub use deterministic_source::DeterministicSource;

use crate::exec::ExecMachine;
use crate::lines::{Line, Lines};

/// The longest line in a play. The limit is low, so that a fuzzer often exceeds it.
pub const LINE_BYTES: usize = 2048;

/// The protocol of a connection.
#[derive(Clone, Copy, Debug)]
pub enum Dialect {
    /// The ACP door.
    Acp,
    /// The exec door.
    Exec,
    /// The loaf door.
    Loaf,
    /// The MCP door.
    Mcp,
    /// The peer door.
    Peer,
    /// The supex door: the bridge and then the console, with the same bytes.
    Supex,
    /// The synaps door.
    Synaps,
    /// The supr door. Each line is one message.
    Supr,
}

/// Plays a connection whose bytes arrive as `chunks`, with a backend that takes these `choices`. Returns the frames that
/// the client received. They depend on the bytes, and not on the sizes of the chunks.
///
/// # Panics
/// If the machine breaks a guarantee.
pub fn play<C: AsRef<[u8]>>(dialect: Dialect, chunks: &[C], choices: &[u8]) -> Vec<Vec<u8>> {
    match dialect {
        Dialect::Acp => acp::Conversation::new(choices).play(chunks),
        Dialect::Exec => exec::Conversation::new(ExecMachine::default(), choices).play(chunks),
        Dialect::Loaf => loaf::Conversation::new(choices).play(chunks),
        Dialect::Mcp => mcp::Conversation::new(choices).play(chunks),
        Dialect::Peer => peer::Conversation::new(choices).play(chunks),
        Dialect::Supex => supex::play(chunks, choices),
        Dialect::Synaps => synaps::Conversation::new(choices).play(chunks),
        Dialect::Supr => supr::Conversation::new(choices).play(chunks),
    }
}

/// Reads a fuzzer's input as chunks and choices: 0xFE separates chunks, and everything after 0xFF is choices. UTF-8 text
/// contains neither byte, so plain text is an input too: one chunk, and a backend that always takes the first choice.
pub fn script(input: &[u8]) -> (Vec<&[u8]>, &[u8]) {
    let mut halves = input.splitn(2, |byte| *byte == 0xFF);
    let stream = halves.next().unwrap_or_default();
    (stream.split(|byte| *byte == 0xFE).collect(), halves.next().unwrap_or_default())
}

/// Checks that [`Lines`] finds the lines in `chunks`, each as soon as it is complete, and drops a line as soon as it is
/// too long.
///
/// # Panics
/// If it does not.
pub fn check_lines<C: AsRef<[u8]>>(chunks: &[C]) {
    const LIMIT: usize = 16;
    let to_owned_line = |line: Line<'_>| match line {
        Line::Whole(bytes) => Some(bytes.to_vec()),
        Line::Oversize => None,
    };
    let (mut stream, mut newlines) = (Vec::new(), 0);
    let (mut lines, mut found) = (Lines::new(LIMIT), Vec::new());
    let mut polled_late = Lines::new(LIMIT);
    for chunk in chunks {
        stream.extend_from_slice(chunk.as_ref());
        polled_late.push(chunk.as_ref());
        lines.push(chunk.as_ref());
        while let Some(line) = lines.next_line() {
            found.push(to_owned_line(line));
        }
        newlines += chunk.as_ref().iter().filter(|byte| **byte == b'\n').count();
        let unfinished = stream.rsplit(|byte| *byte == b'\n').next().unwrap_or_default();
        assert_eq!(found.len(), newlines + usize::from(unfinished.len() > LIMIT));
    }
    found.extend(lines.finish().map(to_owned_line));
    let mut expected: Vec<_> = stream.split(|byte| *byte == b'\n').map(<[u8]>::to_vec).collect();
    expected.pop_if(|last| last.is_empty());
    let expected: Vec<_> =
        expected.into_iter().map(|line| Some(line).filter(|line| line.len() <= LIMIT)).collect();
    assert_eq!(found, expected);

    let mut found = Vec::new();
    while let Some(line) = polled_late.next_line() {
        found.push(to_owned_line(line));
    }
    found.extend(polled_late.finish().map(to_owned_line));
    assert_eq!(found, expected);
}
