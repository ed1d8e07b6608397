//! Round trips of lines, on cores that are fixed.
//!
//! Whether two programs that exchange lines run on the same core changes the figures by a factor of five, and is normally
//! random. So the benchmark fixes it, in two ways. With the client on a core of its own, each wake-up costs what it costs a
//! real client. With all programs on one core, a wake-up costs almost nothing, and only the work is measured.

use std::io::{BufRead, BufReader, Read, Write};
use std::time::Instant;

use anyhow::{Context, ensure};
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

/// Calls `start` on the first core, where the processes that it starts stay, and `measure` first on that core and then on the
/// second, if the machine has one.
pub(crate) fn on_one_and_two_cores<P, F>(
    start: impl FnOnce() -> anyhow::Result<P>,
    mut measure: impl FnMut(&mut P) -> anyhow::Result<F>,
) -> anyhow::Result<(F, Option<F>)> {
    let all_cores = sched_getaffinity(None)?;
    let mut cores = (0..CpuSet::MAX_CPU).filter(|core| all_cores.is_set(*core));
    let (first, second) = (cores.next().context("no core to run on")?, cores.next());
    let run = || {
        move_to(first)?;
        let mut programs = start()?;
        let same_core = measure(&mut programs)?;
        let other_core =
            second.map(|core| move_to(core).and_then(|()| measure(&mut programs))).transpose()?;
        Ok((same_core, other_core))
    };
    let figures = run();
    sched_setaffinity(None, &all_cores)?;
    figures
}

fn move_to(core: usize) -> anyhow::Result<()> {
    let mut set = CpuSet::new();
    set.set(core);
    Ok(sched_setaffinity(None, &set)?)
}

/// The time of one of `count` calls, in seconds.
pub(crate) fn timed(count: u32, mut call: impl FnMut() -> anyhow::Result<()>) -> anyhow::Result<f64> {
    let begun = Instant::now();
    for _ in 0..count {
        call()?;
    }
    Ok((begun.elapsed() / count).as_secs_f64())
}

/// A connection on which each line is answered by one line.
pub(crate) struct LineClient<S> {
    stream: BufReader<S>,
    line: String,
}

impl<S: Read + Write> LineClient<S> {
    pub(crate) fn new(stream: S) -> Self {
        Self { stream: BufReader::new(stream), line: String::new() }
    }

    pub(crate) fn ask(&mut self, line: &str) -> anyhow::Result<()> {
        self.stream.get_mut().write_all(format!("{line}\n").as_bytes())?;
        self.line.clear();
        ensure!(self.stream.read_line(&mut self.line)? > 0, "the connection ended");
        Ok(())
    }

    /// The answer to the last line, with its line ending.
    pub(crate) fn last_answer(&self) -> &str {
        &self.line
    }
}
