//! A harness for fuzz targets and properties: it plays one connection to its end.
//!
//! A peer's bytes go through [`Lines`] to a door's machine, as a driver passes them. A fake backend stands behind the
//! machine. It keeps a backend's promises (a process id has one bearer at a time, nothing comes from a process before
//! its start is answered or after its exit, a run ends once) and takes all other decisions from a string of bytes, one
//! byte for each choice. After every step the harness checks the machine's own promises; a broken one is a panic.
//!
//! `exec.rs`, `loaf.rs`, `supex.rs`, `supr.rs` and `synaps.rs` check the promises of these dialects; the `fake_*.rs`
//! files and `shared_registry.rs` are the backends.

mod choices;
mod exec;
mod fake_frontend;
mod fake_processes;
mod fake_registry;
mod fake_session;
mod loaf;
mod shared_registry;
mod supex;
mod supr;
mod synaps;

use crate::exec::ExecMachine;
use crate::lines::{Line, Lines};

/// A line may be this long here: little, so that a fuzzer finds the way beyond it.
pub const LINE_BYTES: usize = 2048;

/// The dialect of a connection.
#[derive(Clone, Copy, Debug)]
pub enum Dialect {
    /// `parlor_doors::exec`.
    Exec,
    /// `parlor_doors::loaf`.
    Loaf,
    /// `parlor_doors::supex`: the bridge, then the console, with the same bytes.
    Supex,
    /// `parlor_doors::synaps`.
    Synaps,
    /// `parlor_doors::supr`, each message as a line.
    Supr,
}

/// Plays a connection whose bytes arrive as `chunks`, with a backend that takes these `choices`. Returns the
/// frames that the peer got, which depend on the bytes and not on how they were cut.
///
/// # Panics
/// When the machine breaks a promise.
pub fn play<C: AsRef<[u8]>>(dialect: Dialect, chunks: &[C], choices: &[u8]) -> Vec<Vec<u8>> {
    match dialect {
        Dialect::Exec => exec::Conversation::new(ExecMachine::default(), choices).play(chunks),
        Dialect::Loaf => loaf::Conversation::new(choices).play(chunks),
        Dialect::Supex => supex::play(chunks, choices),
        Dialect::Synaps => synaps::Conversation::new(choices).play(chunks),
        Dialect::Supr => supr::Conversation::new(choices).play(chunks),
    }
}

/// Reads a fuzzer's input as chunks and choices: 0xFE cuts, and what follows 0xFF is choices. No UTF-8
/// text holds either, so plain text is an input too: one chunk, and a backend that takes the first choice always.
pub fn script(input: &[u8]) -> (Vec<&[u8]>, &[u8]) {
    let mut halves = input.splitn(2, |byte| *byte == 0xFF);
    let stream = halves.next().unwrap_or_default();
    (stream.split(|byte| *byte == 0xFE).collect(), halves.next().unwrap_or_default())
}

/// Checks that [`Lines`] finds in `chunks` the lines that are there, each as soon as it is there,
/// and gives a line up as soon as it is too long.
///
/// # Panics
/// When it does not.
pub fn check_lines<C: AsRef<[u8]>>(chunks: &[C]) {
    const LIMIT: usize = 16;
    let own = |line: Line<'_>| match line {
        Line::Whole(bytes) => Some(bytes.to_vec()),
        Line::Oversize => None,
    };
    let (mut stream, mut newlines) = (Vec::new(), 0);
    let (mut lines, mut found) = (Lines::new(LIMIT), Vec::new());
    let mut asked_late = Lines::new(LIMIT);
    for chunk in chunks {
        stream.extend_from_slice(chunk.as_ref());
        asked_late.push(chunk.as_ref());
        lines.push(chunk.as_ref());
        while let Some(line) = lines.next_line() {
            found.push(own(line));
        }
        newlines += chunk.as_ref().iter().filter(|byte| **byte == b'\n').count();
        let unfinished = stream.rsplit(|byte| *byte == b'\n').next().unwrap_or_default();
        assert_eq!(found.len(), newlines + usize::from(unfinished.len() > LIMIT));
    }
    found.extend(lines.finish().map(own));
    let mut there: Vec<_> = stream.split(|byte| *byte == b'\n').map(<[u8]>::to_vec).collect();
    there.pop_if(|last| last.is_empty());
    let there: Vec<_> = there.into_iter().map(|line| Some(line).filter(|line| line.len() <= LIMIT)).collect();
    assert_eq!(found, there);

    let mut found = Vec::new();
    while let Some(line) = asked_late.next_line() {
        found.push(own(line));
    }
    found.extend(asked_late.finish().map(own));
    assert_eq!(found, there);
}
