//! Sessions that several processes share: the time that the way to another process adds to a text, and the round trip of a
//! command to the owner of a session.

mod child;
mod command;
mod text;

use std::path::Path;

use self::command::Commands;
use self::text::Text;
use crate::stats::verdict;

pub(crate) use command::{ECHO, echo};

// What the table holds its figures to.
const MAX_ADDED_MS: f64 = 1.0;
const MAX_COMMAND_RATIO: f64 = 2.5;

/// All figures of one run.
pub(crate) struct Sharing {
    text: Text,
    /// With all programs on one core.
    same_core: Commands,
    /// With the client on another core; None on a machine with one core.
    other_core: Option<Commands>,
}

/// Measures in new folders.
pub(crate) fn measure(parlor: &Path) -> anyhow::Result<Sharing> {
    let text = text::measure(parlor)?;
    let (same_core, other_core) = command::measure(parlor)?;
    Ok(Sharing { text, same_core, other_core })
}

/// The figures as a Markdown table, each with its bound.
pub(crate) fn table(figures: &Sharing) -> String {
    let Sharing { text: Text { alone, owner, other, added }, same_core, other_core } = figures;
    let mut table = format!(
        "| shared sessions | beside | parlor | bound |\n\
         |---|---|---|---|\n\
         | word written by the provider to a client of another process, p50, beside a client of the owner | {:.2} ms, {:.2} ms without other processes | {:.2} ms | \
         {:.2} ms more (rounds {:.2} to {:.2}), at most {MAX_ADDED_MS:.0}: {} |\n",
        owner.median,
        alone.median,
        other.median,
        added.median,
        added.least,
        added.most,
        verdict(added.median <= MAX_ADDED_MS),
    );
    for (cores, commands) in
        [("the client on a core of its own", other_core.as_ref()), ("all on one core", Some(same_core))]
    {
        let Some(Commands { owner, echo, ratio }) = commands else { continue };
        table += &format!(
            "| command to a session on the owner's socket, beside a line echo on a Unix socket, {cores} | {:.1} µs | {:.1} µs | \
             {:.2} (rounds {:.2} to {:.2}), at most {MAX_COMMAND_RATIO}: {} |\n",
            echo.median * 1e6,
            owner.median * 1e6,
            ratio.median,
            ratio.least,
            ratio.most,
            verdict(ratio.median <= MAX_COMMAND_RATIO),
        );
    }
    table
}
