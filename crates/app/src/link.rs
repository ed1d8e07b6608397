//! `parlor link`: links under which the program is found by those who start another one.

use std::ffi::OsStr;
use std::fs;
use std::io::{ErrorKind, Write};
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};

use crate::called_as::NAMES;
use crate::environment::Environment;

/// What stands where a link is to be.
#[derive(Debug, PartialEq, Eq)]
enum Place {
    Free,
    /// A link of ours that leads to the program already.
    Right,
    /// A link of ours that leads to where the program was.
    Old,
    /// Something else, in words.
    Taken(String),
}

/// Writes the links into `folder`. Whatever is not such a link stays, unless `force` is given.
pub(crate) fn link(
    environment: &Environment,
    folder: &Path,
    force: bool,
    out: &mut dyn Write,
) -> anyhow::Result<()> {
    let program = std::env::current_exe().context("cannot find out where this program is")?;
    let folder =
        folder.canonicalize().with_context(|| format!("{} is no folder: make it first", folder.display()))?;
    let mut todo = Vec::new();
    for name in NAMES {
        let path = folder.join(name);
        let place = look(&path, &program).with_context(|| format!("cannot look at {}", path.display()))?;
        if let Place::Taken(what) = &place
            && (!force || what == "a folder")
        {
            bail!(
                "{} is {what}; nothing was changed. Remove it, choose another folder{}",
                path.display(),
                if force { "" } else { ", or replace it with --force" }
            );
        }
        todo.push((path, place));
    }
    for (path, place) in todo {
        if place == Place::Right {
            writeln!(out, "{} is there already", path.display())?;
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
            "{} is in PATH: programs that start one of these names find parlor.",
            folder.display()
        )?;
    } else {
        writeln!(
            out,
            "{0} is not in PATH. Put it there, before other folders, with: export PATH={0}:$PATH",
            folder.display()
        )?;
    }
    Ok(())
}

fn look(path: &Path, program: &Path) -> std::io::Result<Place> {
    let found = match fs::symlink_metadata(path) {
        Ok(found) => found,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Place::Free),
        Err(error) => return Err(error),
    };
    if !found.is_symlink() {
        let what = if found.is_dir() { "a folder" } else { "a file of its own" };
        return Ok(Place::Taken(what.to_owned()));
    }
    let target = fs::read_link(path)?;
    if target == program {
        return Ok(Place::Right);
    }
    if is_parlor(&target) {
        return Ok(Place::Old);
    }
    Ok(Place::Taken(format!("a link to {}", target.display())))
}

/// Whether a link leads to parlor, here or wherever it was.
fn is_parlor(target: &Path) -> bool {
    target.file_name() == Some(OsStr::new("parlor"))
}

/// Puts the link in place in one step, so that whoever starts the program meanwhile finds one.
fn replace(path: &Path, program: &Path) -> std::io::Result<()> {
    let beside = PathBuf::from(format!("{}.parlor-{}", path.display(), std::process::id()));
    symlink(program, &beside)?;
    fs::rename(&beside, path).inspect_err(|_| {
        // What is left over is a link that nobody looks for.
        let _ = fs::remove_file(&beside);
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_stands_in_the_way_is_known() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("loaf");
        let program = Path::new("/opt/parlor");
        assert_eq!(look(&path, program).unwrap(), Place::Free);
        for (target, place) in [
            ("/opt/parlor", Place::Right),
            ("/gone/parlor", Place::Old),
            ("/usr/bin/loaf", Place::Taken("a link to /usr/bin/loaf".to_owned())),
        ] {
            symlink(target, &path).unwrap();
            assert_eq!(look(&path, program).unwrap(), place);
            fs::remove_file(&path).unwrap();
        }
        fs::write(&path, "").unwrap();
        assert_eq!(look(&path, program).unwrap(), Place::Taken("a file of its own".to_owned()));
    }
}
