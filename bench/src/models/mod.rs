//! Models: the latency that parlor adds between the provider and the terminal, and the CPU time of many streams.
//!
//! The provider is a server in this process that sends words at a given pace (`paced_provider.rs`), in the format of
//! OpenAI's chat completions.

mod first_byte;
mod many_streams;
mod paced_provider;

use std::path::Path;

use self::first_byte::FirstByte;
use crate::stats::verdict;

pub(crate) use paced_provider::{Pace, Provider};

// What the table holds its figures to.
const MAX_ADDED_MS: f64 = 3.0;
const MAX_CORES: f64 = 0.5;

/// The part of the words that has to arrive for the measured CPU time to count.
const MIN_ARRIVING: f64 = 0.9;

/// All figures of one run.
pub(crate) struct Models {
    first_byte: FirstByte,
    /// How many cores a server uses for its streams.
    cores: f64,
    /// How many words of all streams arrived per second.
    words: f64,
}

/// Measures `parlor chat` and `parlor serve` in new folders.
pub(crate) fn measure(parlor: &Path) -> anyhow::Result<Models> {
    let first_byte = first_byte::measure(parlor)?;
    let (cores, words) = many_streams::measure(parlor)?;
    Ok(Models { first_byte, cores, words })
}

/// The figures as a Markdown table.
pub(crate) fn table(figures: &Models) -> String {
    let Models { first_byte: FirstByte { parlor, curl, parlor_start, curl_start }, cores, words } = figures;
    let added = parlor - curl;
    // A server that falls behind uses less CPU time.
    let keeps_up =
        *words >= MIN_ARRIVING * many_streams::SESSIONS as f64 * f64::from(many_streams::WORDS_PER_SECOND);
    format!(
        "| models | `curl -N` | parlor | bound |\n\
         |---|---|---|---|\n\
         | first word written by the provider to first byte on a terminal, `parlor chat`, p50 | {curl:.2} ms | {parlor:.2} ms | {added:.2} ms more, at most {MAX_ADDED_MS:.0}: {} |\n\
         | start of the command to its request, p50 | {curl_start:.1} ms | {parlor_start:.1} ms | - |\n\
         | cores of `parlor serve` while {} sessions stream {} words/s each, all watched over supr ({words:.0}/s arrive) | - | {cores:.2} | under {MAX_CORES}: {} |\n",
        verdict(added <= MAX_ADDED_MS),
        many_streams::SESSIONS,
        many_streams::WORDS_PER_SECOND,
        verdict(*cores < MAX_CORES && keeps_up),
    )
}
