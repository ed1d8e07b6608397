//! How many instructions the program executes in fixed scenarios, as valgrind's callgrind counts them.
//!
//! Times depend on what else the machine does; these counts do not. Each scenario runs twice, with few and with many
//! repetitions, and the difference of the two counts is the cost of the repetitions: start and end of the program drop out.
//! Everything runs on one core, so that threads take turns in the same way each time. Instructions of the kernel and of child
//! processes are not counted.

mod callgrind;
mod check;
mod report;
mod scenarios;

use std::path::Path;

use anyhow::ensure;
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

use self::callgrind::{Counted, Counts};
use self::scenarios::Scenario;

pub(crate) use callgrind::end;
pub(crate) use check::check;
pub(crate) use report::page;
pub(crate) use scenarios::append_one_by_one;

/// With this argument, the program profiles all scenarios and writes a page.
pub(crate) const PROFILE: &str = "profile";

/// With this argument, the program compares the counts of the cheap scenarios with stored ones.
pub(crate) const CHECK: &str = "profile-check";

/// With this argument, the program stores the counts of the cheap scenarios.
pub(crate) const RECORD: &str = "profile-record";

/// With this argument, the program is its own child process and appends events to a log.
pub(crate) const APPEND: &str = "append";

/// How often a scenario repeats its step, in its two runs.
#[derive(Clone, Copy)]
struct Repetitions {
    few: u64,
    many: u64,
}

/// The cost of one repetition.
struct Cost {
    scenario: &'static Scenario,
    repetitions: u64,
    /// The instructions of all repetitions, by function.
    counts: Counts,
}

impl Cost {
    fn instructions_each(&self) -> f64 {
        self.counts.total() as f64 / self.repetitions as f64
    }
}

/// Runs a scenario under callgrind.
fn measure(
    scenario: &'static Scenario,
    repetitions: Repetitions,
    parlor: &Path,
    folder: &Path,
) -> anyhow::Result<Cost> {
    let run = |count| -> anyhow::Result<(u64, Counts)> {
        let folder = tempfile::tempdir_in(folder)?;
        let program =
            if scenario.runs_this_program { std::env::current_exe()? } else { parlor.to_path_buf() };
        let counted = Counted::new(&program, folder.path())?;
        let repetitions = (scenario.run)(&counted.program, folder.path(), count)?;
        Ok((repetitions, counted.counts()?))
    };
    let ((few, fixed), (many, all)) = (run(repetitions.few)?, run(repetitions.many)?);
    let counts = all.minus(&fixed);
    ensure!(counts.total() > 0, "{}: more repetitions cost nothing", scenario.name);
    Ok(Cost { scenario, repetitions: many - few, counts })
}

/// Calls `work` with this process, and all that it starts, on one core.
fn on_one_core<T>(work: impl FnOnce() -> anyhow::Result<T>) -> anyhow::Result<T> {
    let all_cores = sched_getaffinity(None)?;
    let mut one = CpuSet::new();
    if let Some(core) = (0..CpuSet::MAX_CPU).find(|core| all_cores.is_set(*core)) {
        one.set(core);
        sched_setaffinity(None, &one)?;
    }
    let done = work();
    sched_setaffinity(None, &all_cores)?;
    done
}
