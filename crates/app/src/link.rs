//! `parlor link`: creates symbolic links to parlor under the names of the programs that it can stand in for.

use std::ffi::OsStr;
use std::fs;
use std::io::{ErrorKind, Write};
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};

use crate::environment::Environment;
use crate::program_alias::PROGRAM_ALIASES;

/// What exists at the path where a link should be.
#[derive(Debug, PartialEq, Eq)]
enum Existing {
    Nothing,
    /// A link to the running program.
    CurrentLink,
    /// A link to a parlor elsewhere, which may be gone.
    OtherParlor,
    /// Something else; the text describes it.
    Foreign(String),
}

/// Creates the links in `folder`. Does not replace other files or links unless `force` is set, and never a folder.
pub(crate) fn link(
    environment: &Environment,
    folder: &Path,
    force: bool,
    out: &mut dyn Write,
) -> anyhow::Result<()> {
    let program = std::env::current_exe().context("cannot find the path of this program")?;
    let folder = folder
        .canonicalize()
        .with_context(|| format!("{} is not a folder: create it first", folder.display()))?;
    let mut todo = Vec::new();
    for name in PROGRAM_ALIASES {
        let path = folder.join(name);
        let existing =
            inspect(&path, &program).with_context(|| format!("cannot inspect {}", path.display()))?;
        if let Existing::Foreign(what) = &existing
            && (!force || what == "a folder")
        {
            bail!(
                "{} is {what}; nothing was changed. Remove it, choose another folder{}",
                path.display(),
                if force { "" } else { ", or replace it with --force" }
            );
        }
        todo.push((path, existing));
    }
    for (path, existing) in todo {
        if existing == Existing::CurrentLink {
            writeln!(out, "{} already exists", path.display())?;
            continue;
        }
        replace(&path, &program).with_context(|| format!("cannot write {}", path.display()))?;
        writeln!(out, "{} -> {}", path.display(), program.display())?;
    }
    let in_path = environment
        .program_folders()
        .iter()
        .any(|entry| entry.canonicalize().is_ok_and(|entry| entry == folder));
    if in_path {
        writeln!(
            out,
            "{} is in PATH: programs that start one of these names now start parlor.",
            folder.display()
        )?;
    } else {
        writeln!(
            out,
            "{0} is not in PATH. Add it before the other folders: export PATH={0}:$PATH",
            folder.display()
        )?;
    }
    Ok(())
}

fn inspect(path: &Path, program: &Path) -> std::io::Result<Existing> {
    let found = match fs::symlink_metadata(path) {
        Ok(found) => found,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Existing::Nothing),
        Err(error) => return Err(error),
    };
    if !found.is_symlink() {
        let what = if found.is_dir() { "a folder" } else { "another file" };
        return Ok(Existing::Foreign(what.to_owned()));
    }
    let target = fs::read_link(path)?;
    if target == program {
        return Ok(Existing::CurrentLink);
    }
    if is_parlor(&target) {
        return Ok(Existing::OtherParlor);
    }
    Ok(Existing::Foreign(format!("a link to {}", target.display())))
}

/// Whether a link target is named `parlor`, wherever it is and whether or not it exists.
fn is_parlor(target: &Path) -> bool {
    target.file_name() == Some(OsStr::new("parlor"))
}

/// Replaces the link atomically, so that a program that is started meanwhile always finds one.
fn replace(path: &Path, program: &Path) -> std::io::Result<()> {
    let temporary = PathBuf::from(format!("{}.parlor-{}", path.display(), std::process::id()));
    symlink(program, &temporary)?;
    fs::rename(&temporary, path).inspect_err(|_| {
        // If this fails too, an unused link with a unique name stays; that does no harm.
        let _ = fs::remove_file(&temporary);
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn existing_files_and_links_are_recognized() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("loaf");
        let program = Path::new("/opt/parlor");
        assert_eq!(inspect(&path, program).unwrap(), Existing::Nothing);
        for (target, existing) in [
            ("/opt/parlor", Existing::CurrentLink),
            ("/gone/parlor", Existing::OtherParlor),
            ("/usr/bin/loaf", Existing::Foreign("a link to /usr/bin/loaf".to_owned())),
        ] {
            symlink(target, &path).unwrap();
            assert_eq!(inspect(&path, program).unwrap(), existing);
            fs::remove_file(&path).unwrap();
        }
        fs::write(&path, "").unwrap();
        assert_eq!(inspect(&path, program).unwrap(), Existing::Foreign("another file".to_owned()));
    }
}
