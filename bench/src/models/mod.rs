//! Models: what parlor adds to the way of a word from the provider to the terminal, and what many streams cost.
//!
//! The provider is a server in this process that sends words at a given pace (`paced.rs`), in the form of OpenAI's
//! chat completions.

mod crowd;
mod first_byte;
mod paced;

use std::path::Path;

use self::first_byte::FirstByte;

/// What models are held to.
const MOST_ADDED_MS: f64 = 3.0;
const MOST_CORES: f64 = 0.5;

/// How many of the words have to arrive while that is measured.
const LEAST_ARRIVING: f64 = 0.9;

/// What was measured.
pub(crate) struct Models {
    first_byte: FirstByte,
    /// Cores that a server takes for its streams.
    cores: f64,
    /// Words a second that arrived of all streams.
    words: f64,
}

/// Measures `parlor chat` and `parlor serve` in new folders.
pub(crate) fn measure(parlor: &Path) -> anyhow::Result<Models> {
    let first_byte = first_byte::measure(parlor)?;
    let (cores, words) = crowd::measure(parlor)?;
    Ok(Models { first_byte, cores, words })
}

/// The figures as a Markdown table.
pub(crate) fn table(figures: &Models) -> String {
    let Models { first_byte: FirstByte { parlor, curl, parlor_start, curl_start }, cores, words } = figures;
    let verdict = |is_held: bool| if is_held { "held" } else { "**missed**" };
    let added = parlor - curl;
    // A server that falls behind computes less.
    let keeps_up = *words >= LEAST_ARRIVING * crowd::SESSIONS as f64 * f64::from(crowd::WORDS_A_SECOND);
    format!(
        "| models | `curl -N` | parlor | bound |\n\
         |---|---|---|---|\n\
         | first word written by the provider to first byte on a terminal, `parlor chat`, p50 | {curl:.2} ms | {parlor:.2} ms | {added:.2} ms more, at most {MOST_ADDED_MS:.0}: {} |\n\
         | start of the command to its request, p50 | {curl_start:.1} ms | {parlor_start:.1} ms | - |\n\
         | cores of `parlor serve` while {} sessions stream {} words/s each, all watched over supr ({words:.0}/s arrive) | - | {cores:.2} | under {MOST_CORES}: {} |\n",
        verdict(added <= MOST_ADDED_MS),
        crowd::SESSIONS,
        crowd::WORDS_A_SECOND,
        verdict(*cores < MOST_CORES && keeps_up),
    )
}
