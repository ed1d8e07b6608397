//! Checks that the documentation names every limit and every command.
#![expect(clippy::unwrap_used, reason = "a test helper that cannot go on panics, as the test would")]

use std::fs;
use std::path::{Path, PathBuf};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// All files below a folder whose names end with `ending`.
fn files(folder: &str, ending: &str) -> Vec<PathBuf> {
    let mut folders = vec![root().join(folder)];
    let mut found = Vec::new();
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else if path.to_string_lossy().ends_with(ending) {
                found.push(path);
            }
        }
    }
    found
}

#[test]
fn every_limit_is_documented() {
    let pages: String =
        files("docs", ".md").into_iter().map(|path| fs::read_to_string(path).unwrap()).collect();
    let mut names = Vec::new();
    for (folder, visibility) in
        [("engine", "pub const "), ("log", "pub const "), ("app", "pub(crate) const ")]
    {
        for path in files(&format!("crates/{folder}/src"), ".rs") {
            let source = fs::read_to_string(&path).unwrap();
            let constants = source.lines().filter_map(|line| line.strip_prefix(visibility));
            // Numbers and durations are limits; texts and lists are not.
            let limits = constants.filter(|line| {
                let kind = line.split(": ").nth(1).unwrap_or_default();
                ["usize", "u64", "Duration"].iter().any(|limit| kind.starts_with(limit))
            });
            names.extend(limits.map(|line| line.split(':').next().unwrap().to_owned()));
        }
    }
    assert!(names.len() > 15, "this test finds too few constants: {names:?}");
    for name in names {
        assert!(pages.contains(&format!("`{name}`")), "no page in docs mentions `{name}`");
    }
}

#[test]
fn the_operations_page_names_every_command() {
    let page = fs::read_to_string(root().join("docs/operations.md")).unwrap();
    for command in [
        "chat",
        "sessions",
        "replay",
        "gc",
        "doctor",
        "settings",
        "link",
        "stdio",
        "models",
        "login",
        "logout",
        "auth",
        "token",
        "serve",
        "supex",
        "backup",
        "restore",
        "version",
        "completions",
        "man",
    ] {
        assert!(
            page.contains(&format!("`parlor {command}")),
            "docs/operations.md does not mention parlor {command}"
        );
    }
}
