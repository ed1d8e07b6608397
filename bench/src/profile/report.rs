//! The page with the counts of all scenarios.

use std::fmt::Write;
use std::path::Path;

use super::scenarios::ALL;
use super::{Cost, measure, on_one_core};

/// How many functions are listed for each scenario.
const HOTTEST: usize = 10;

/// Everything below this line of the page is written by hand, and kept.
const NOTES: &str = "## Notes\n";

/// Profiles all scenarios and returns the page, with the notes of the page before.
pub(crate) fn page(parlor: &Path, folder: &Path, before: &str) -> anyhow::Result<String> {
    let costs = on_one_core(|| {
        ALL.iter()
            .map(|(scenario, repetitions)| measure(scenario, *repetitions, parlor, folder))
            .collect::<anyhow::Result<Vec<_>>>()
    })?;
    let mut page = String::from(
        "# Instruction counts\n\n\
         Written by `make profile`: how many instructions the optimised program (profile `quick`) executes, as valgrind's \
         callgrind counts them. `bench/src/profile/` has the scenarios. Instructions of the kernel and of child \
         processes are not counted. `make test` compares three of the scenarios, with the unoptimised program that it builds \
         anyway, with the counts in `profile-check.txt`, and fails if one has grown by over 10 %; `make profile-record` stores new ones.\n\n\
         | step | instructions | measured with |\n|---|---|---|\n",
    );
    for cost in &costs {
        writeln!(
            page,
            "| {} | {} | {} repetitions |",
            cost.scenario.name,
            grouped(cost.instructions_each()),
            cost.repetitions
        )?;
    }
    for cost in &costs {
        add_hottest(&mut page, cost)?;
    }
    if let Some((_, notes)) = before.split_once(NOTES) {
        write!(page, "\n{NOTES}{notes}")?;
    }
    Ok(page)
}

fn add_hottest(page: &mut String, cost: &Cost) -> anyhow::Result<()> {
    let name = cost.scenario.name;
    write!(
        page,
        "\n## The hottest functions of {name}\n\n| function | instructions | part |\n|---|---|---|\n"
    )?;
    for (function, count) in cost.counts.hottest(HOTTEST) {
        let each = count as f64 / cost.repetitions as f64;
        let percent = count as f64 / cost.counts.total() as f64 * 100.0;
        writeln!(page, "| `{function}` | {} | {percent:.1} % |", grouped(each))?;
    }
    Ok(())
}

/// A number with a comma before each group of three digits.
fn grouped(number: f64) -> String {
    let digits = format!("{number:.0}");
    let mut grouped = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            grouped.push(',');
        }
        grouped.push(digit);
    }
    grouped
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_numbers_have_commas() {
        assert_eq!([7.4, 999.6, 1_234_567.0].map(grouped), ["7", "1,000", "1,234,567"]);
    }
}
