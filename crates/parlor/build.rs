//! Sets a linker option for the program, and tells it the commit that it is built from.

use std::fs::read_to_string;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

#[expect(clippy::disallowed_methods, reason = "cargo passes the build target in environment variables")]
fn main() -> io::Result<()> {
    let mut out = io::stdout();
    writeln!(out, "cargo::rerun-if-changed=build.rs")?;
    writeln!(out, "cargo::rerun-if-env-changed=PARLOR_COMMIT")?;
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut read_files = Vec::new();
    let named = std::env::var("PARLOR_COMMIT").ok().filter(|commit| !commit.is_empty());
    let commit = named.or_else(|| commit(&root, &mut read_files)).unwrap_or_else(|| "unknown".to_owned());
    writeln!(out, "cargo::rustc-env=PARLOR_COMMIT={commit}")?;
    for file in read_files {
        writeln!(out, "cargo::rerun-if-changed={}", file.display())?;
    }
    let target = |part: &str| std::env::var(format!("CARGO_CFG_TARGET_{part}")).unwrap_or_default();
    if target("OS") == "linux" && target("ENV") == "gnu" {
        // The loader reads the whole relocation table, so each process has it in memory: 13 KB packed instead of 0.8 MB.
        // Needs glibc 2.36 and a linker from 2022 or later.
        writeln!(out, "cargo::rustc-link-arg-bins=-Wl,-z,pack-relative-relocs")?;
    }
    Ok(())
}

/// The commit that is checked out in `root`, read without git. Source that was not cloned has none. Adds the files that
/// tell it to `read`.
fn commit(root: &Path, read: &mut Vec<PathBuf>) -> Option<String> {
    let mut text_of = |path: PathBuf| {
        let text = read_to_string(&path).ok()?;
        read.push(path);
        Some(text.trim().to_owned())
    };
    // In a further worktree, `.git` is a file that names the folder.
    let git = match text_of(root.join(".git")) {
        Some(link) => root.join(link.strip_prefix("gitdir: ")?),
        None => root.join(".git"),
    };
    let head = text_of(git.join("HEAD"))?;
    let Some(branch) = head.strip_prefix("ref: ") else { return Some(head) };
    let common = text_of(git.join("commondir")).map_or(git.clone(), |common| git.join(common));
    text_of(common.join(branch)).or_else(|| {
        let packed = text_of(common.join("packed-refs"))?;
        let line = packed.lines().find(|line| line.ends_with(&format!(" {branch}")))?;
        line.split(' ').next().map(str::to_owned)
    })
}
