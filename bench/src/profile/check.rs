//! Compares the instruction counts of cheap scenarios with stored ones.
//!
//! For a program without optimisations, which `make test` builds anyway. Its counts are many times those of the shipped
//! program, but more work shows in both.

use std::fmt::Write;
use std::path::Path;

use anyhow::{Context, bail};

use super::scenarios::CHEAP;
use super::{measure, on_one_core};

/// By how much a count may exceed the stored one.
const MOST: f64 = 1.10;

/// Below this part of the stored count, the stored one should be replaced, so that a later growth shows.
const LEAST: f64 = 0.90;

/// Measures the cheap scenarios, and compares them with the lines of the file `stored`, or writes them into it.
pub(crate) fn check(parlor: &Path, folder: &Path, stored: &Path, write: bool) -> anyhow::Result<String> {
    let counts = on_one_core(|| {
        CHEAP
            .iter()
            .map(|(scenario, repetitions)| {
                Ok((scenario.name, measure(scenario, *repetitions, parlor, folder)?.instructions_each()))
            })
            .collect::<anyhow::Result<Vec<_>>>()
    })?;
    if write {
        let lines: String = counts
            .iter()
            .fold(String::new(), |lines, (name, count)| lines + &format!("{name}: {count:.0}\n"));
        std::fs::write(stored, &lines).with_context(|| format!("cannot write {}", stored.display()))?;
        return Ok(lines);
    }
    let text =
        std::fs::read_to_string(stored).with_context(|| format!("cannot read {}", stored.display()))?;
    compare(&counts, &text)
}

/// Fails if a count is too large, and says how much each has changed.
fn compare(counts: &[(&str, f64)], stored: &str) -> anyhow::Result<String> {
    let (mut lines, mut grown) = (String::new(), false);
    for (name, count) in counts {
        let before: f64 = stored
            .lines()
            .find_map(|line| line.split_once(": ").filter(|(of, _)| of == name))
            .with_context(|| format!("no count is stored for {name}: run `make profile-record`"))?
            .1
            .parse()?;
        let ratio = count / before;
        grown |= ratio > MOST;
        let verdict = match ratio {
            ratio if ratio > MOST => "too many",
            ratio if ratio < LEAST => "fewer: run `make profile-record`",
            _ => "held",
        };
        writeln!(
            lines,
            "{name}: {count:.0} instructions, {before:.0} stored, {:+.1} % ({verdict})",
            (ratio - 1.0) * 100.0
        )?;
    }
    if grown {
        bail!(
            "{lines}A step executes over 10 % more instructions than the stored count. Make it cheaper, or, if the work is \
             worth it, store the new count with `make profile-record` and say why in the commit."
        );
    }
    Ok(lines)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_count_may_exceed_the_stored_one_by_a_tenth() {
        let stored = "an append: 1000\na ping: 200\n";
        assert!(
            compare(&[("an append", 1100.0), ("a ping", 100.0)], stored).unwrap().contains("-50.0 % (fewer")
        );
        let error = compare(&[("an append", 1000.0), ("a ping", 221.0)], stored).unwrap_err().to_string();
        assert!(error.contains("a ping: 221 instructions, 200 stored, +10.5 % (too many)"), "{error}");
        assert!(compare(&[("a pong", 1.0)], stored).unwrap_err().to_string().contains("profile-record"));
    }
}
