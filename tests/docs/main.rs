//! Runs the commands of README.md and of the pages in docs, each page in a fresh home folder, and compares what they print
//! with the page.
//!
//! A fenced block of `sh`, `bash` or `console` is run, unless a comment `<!-- not run: REASON -->` stands before it. A block
//! without a language directly after it is its output, in which `…` stands for anything. The blocks of a page share a home
//! folder, so that a later one can use what an earlier one made.
#![expect(clippy::disallowed_methods, reason = "these tests start programs as a reader of the page would")]
#![expect(clippy::unwrap_used, reason = "a test helper that cannot go on panics, as the test would")]

mod flags;
mod markdown;
mod reader;

use std::path::{Path, PathBuf};

use markdown::{Block, blocks};
use reader::Reader;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

/// README.md and all pages in docs, in the order of their names.
fn pages() -> Vec<PathBuf> {
    let mut pages = vec![root().join("README.md")];
    for folder in ["docs", "docs/protocols"] {
        let entries = std::fs::read_dir(root().join(folder)).unwrap();
        pages.extend(
            entries.map(|entry| entry.unwrap().path()).filter(|path| path.extension() == Some("md".as_ref())),
        );
    }
    pages.sort();
    pages
}

/// The path of a page in the repository.
fn name(page: &Path) -> String {
    page.strip_prefix(root()).unwrap().display().to_string()
}

fn blocks_of(page: &Path) -> Vec<Block> {
    blocks(&std::fs::read_to_string(page).unwrap())
        .unwrap_or_else(|error| panic!("{}:{error}", page.display()))
}

#[test]
fn the_commands_of_every_page_print_what_the_page_says() {
    let (mut run, mut problems) = (0, Vec::new());
    for page in pages() {
        let mut reader = None;
        for block in blocks_of(&page).into_iter().filter(|block| block.reason_not_to_run.is_none()) {
            let reader = reader.get_or_insert_with(Reader::new);
            if let Err(problem) = reader.run(&block) {
                problems.push(format!("{}:{}: {problem}", name(&page), block.line));
            }
            run += 1;
        }
    }
    assert!(problems.is_empty(), "{}", problems.join("\n\n"));
    assert!(run >= 15, "this test finds too few commands: {run}");
}

#[test]
fn every_command_and_flag_on_a_page_exists() {
    let (mut checked, mut problems) = (0, Vec::new());
    let mut help = flags::HelpTexts::default();
    for page in pages() {
        for line in flags::command_lines(&std::fs::read_to_string(&page).unwrap()) {
            if let Err(problem) = help.check(&line) {
                problems.push(format!("{}: `{line}`: {problem}", name(&page)));
            }
            checked += 1;
        }
    }
    assert!(problems.is_empty(), "{}", problems.join("\n"));
    assert!(checked >= 150, "this test finds too few commands: {checked}");
}
