//! Runs a program under callgrind and reads the file that callgrind writes when the program ends.

use std::collections::HashMap;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Child;

use anyhow::{Context, ensure};
use rustix::process::{Pid, Signal, kill_process};

/// The environment variable with the path of valgrind, if it is not the installed one.
const VALGRIND: &str = "VALGRIND";

/// A program that runs under callgrind.
pub(super) struct Counted {
    /// A script that runs the program with the script's arguments, as the same process.
    pub(super) program: PathBuf,
    counts: PathBuf,
}

impl Counted {
    /// Writes the script and the counts into `folder`.
    pub(super) fn new(program: &Path, folder: &Path) -> anyhow::Result<Self> {
        let (script, counts) = (folder.join("counted"), folder.join("counts"));
        let valgrind = std::env::var(VALGRIND).unwrap_or_else(|_| "valgrind".to_owned());
        let text = format!(
            "#!/bin/sh\nexec '{valgrind}' --quiet --tool=callgrind --callgrind-out-file='{}' '{}' \"$@\"\n",
            counts.display(),
            program.display(),
        );
        std::fs::write(&script, text)?;
        std::fs::set_permissions(&script, std::fs::Permissions::from_mode(0o700))?;
        Ok(Self { program: script, counts })
    }

    /// The counts of a program that has ended.
    pub(super) fn counts(&self) -> anyhow::Result<Counts> {
        let text = std::fs::read(&self.counts)
            .context("callgrind has written no counts: is valgrind installed, and did the program end?")?;
        let counts = Counts::parse(&String::from_utf8_lossy(&text))?;
        ensure!(counts.total() > 0, "callgrind has counted nothing");
        Ok(counts)
    }
}

/// Asks a program to end and waits for it: callgrind writes its file at the end, and not if the program is killed.
pub(crate) fn end(child: &mut Child) -> anyhow::Result<()> {
    let pid = Pid::from_raw(i32::try_from(child.id())?).context("a process has a positive id")?;
    kill_process(pid, Signal::TERM)?;
    child.wait()?;
    Ok(())
}

/// Executed instructions by the name of the function, without those of the functions that it called.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Counts(HashMap<String, i64>);

impl Counts {
    pub(super) fn total(&self) -> i64 {
        self.0.values().sum()
    }

    /// The functions with the most instructions.
    pub(super) fn hottest(&self, count: usize) -> Vec<(&str, i64)> {
        let mut all: Vec<_> = self.0.iter().map(|(name, count)| (name.as_str(), *count)).collect();
        all.sort_by_key(|(name, count)| (-count, *name));
        all.truncate(count);
        all
    }

    /// What was counted here and not in `other`.
    pub(super) fn minus(mut self, other: &Self) -> Self {
        for (name, count) in &other.0 {
            *self.0.entry(name.clone()).or_default() -= count;
        }
        self
    }

    /// Reads callgrind's format: a line `fn=(ID) NAME` begins a function, and each later use of the ID has no name. Lines
    /// that begin with a position have costs, except the one after `calls=`, which has those of the called function.
    fn parse(text: &str) -> anyhow::Result<Self> {
        let (mut names, mut counts) = (HashMap::<&str, String>::new(), HashMap::<String, i64>::new());
        let (mut function, mut is_cost_of_call) = (String::new(), false);
        for line in text.lines() {
            if let Some(name) = line.strip_prefix("fn=").or_else(|| line.strip_prefix("cfn=")) {
                let (id, name) = name.split_once(' ').map_or((name, None), |(id, name)| (id, Some(name)));
                if let Some(name) = name {
                    names.insert(id, without_hash(name).to_owned());
                }
                if line.starts_with("fn=") {
                    function.clone_from(names.get(id).context("a function without a name")?);
                }
            } else if line.starts_with("calls=") {
                is_cost_of_call = true;
            } else if line.starts_with(|first: char| first.is_ascii_digit() || "+-*".contains(first)) {
                let cost = line.split(' ').nth(1).context("a position without a cost")?.parse::<i64>()?;
                if !std::mem::take(&mut is_cost_of_call) {
                    *counts.entry(function.clone()).or_default() += cost;
                }
            }
        }
        Ok(Self(counts))
    }
}

/// The name without the hash that the compiler adds, which changes with every build; and without callgrind's mark of the
/// depth of a recursion.
fn without_hash(name: &str) -> &str {
    let name = name.split('\'').next().unwrap_or(name);
    match name.rsplit_once("::h") {
        Some((path, hash)) if hash.len() == 16 && hash.bytes().all(|byte| byte.is_ascii_hexdigit()) => path,
        Some(_) | None => name,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn costs_belong_to_the_function_before_them_and_costs_of_calls_to_none() {
        let text = "version: 1\nevents: Ir\n\nfl=(1) a.rs\nfn=(1) one::f::h0123456789abcdef\n3 10\n+1 5\ncfn=(2) two\n\
                    calls=1 7\n* 100\n* 1\n\nfn=(2)\n7 100\nfn=(1)\n-2 4\n\ntotals: 120\n";
        let counts = Counts::parse(text).unwrap();
        assert_eq!(counts.hottest(9), [("two", 100), ("one::f", 20)]);
        let other = Counts::parse("fn=(1) two\n7 99\n").unwrap();
        assert_eq!(counts.minus(&other).hottest(1), [("one::f", 20)]);
    }
}
