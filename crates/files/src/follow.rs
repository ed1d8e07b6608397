//! Resolves symbolic links in a path. The result is only a guess, because links may change at any time.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::{Component, Path, PathBuf};

/// How many symbolic links a path may lead through: the kernel's limit.
pub const PATH_LINKS: usize = 40;

/// The path leads through more than [`PATH_LINKS`] symbolic links.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct TooManyLinks;

/// Resolves `path` to an absolute path without `.`, `..` and symbolic links.
///
/// Treats a name that does not exist or cannot be read as an ordinary name: a missing file below a link resolves to a path
/// below the target of the link, and opening that path reports the error.
pub(crate) fn follow(path: &Path) -> Result<PathBuf, TooManyLinks> {
    let mut resolved = PathBuf::from("/");
    let mut remaining = parts_reversed(path);
    let mut links = 0;
    while let Some(part) = remaining.pop() {
        match part {
            Part::Root => resolved = PathBuf::from("/"),
            Part::Parent => {
                resolved.pop();
            }
            Part::Name(name) => {
                let next = resolved.join(name);
                match rustix::fs::readlink(&next, Vec::new()) {
                    Ok(target) => {
                        links += 1;
                        if links > PATH_LINKS {
                            return Err(TooManyLinks);
                        }
                        let target = PathBuf::from(OsString::from_vec(target.into_bytes()));
                        remaining.extend(parts_reversed(&target));
                    }
                    Err(_) => resolved = next,
                }
            }
        }
    }
    Ok(resolved)
}

/// `path`, which is absolute, without links, `.` and `..`. A path with too many links stays as it is, and no policy opens it.
pub fn follow_links(path: &Path) -> PathBuf {
    follow(path).unwrap_or_else(|TooManyLinks| path.to_owned())
}

enum Part {
    Root,
    Parent,
    Name(OsString),
}

fn parts_reversed(path: &Path) -> Vec<Part> {
    let part = |component| match component {
        Component::RootDir => Some(Part::Root),
        Component::ParentDir => Some(Part::Parent),
        Component::Normal(name) => Some(Part::Name(name.to_owned())),
        Component::CurDir | Component::Prefix(_) => None,
    };
    let mut parts: Vec<Part> = path.components().filter_map(part).collect();
    parts.reverse();
    parts
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn links_in_the_middle_of_a_path_are_resolved() {
        let dir = tempfile::tempdir().unwrap();
        let top = fs::canonicalize(dir.path()).unwrap();
        fs::create_dir_all(top.join("a/b")).unwrap();
        symlink("a/b", top.join("relative")).unwrap();
        symlink(top.join("a"), top.join("absolute")).unwrap();
        symlink("nowhere/at/all", top.join("dangling")).unwrap();
        let case = |path: &str| follow(&top.join(path)).unwrap().strip_prefix(&top).unwrap().to_owned();
        assert_eq!(case("./a//b/"), Path::new("a/b"));
        assert_eq!(case("relative/new/file"), Path::new("a/b/new/file"));
        assert_eq!(case("absolute/b/../x"), Path::new("a/x"));
        assert_eq!(case("relative/.."), Path::new("a"));
        assert_eq!(case("dangling/x"), Path::new("nowhere/at/all/x"));
        assert_eq!(follow(Path::new("/../..")).unwrap(), Path::new("/"));
    }

    #[test]
    fn a_loop_is_refused_and_the_longest_allowed_chain_is_followed() {
        let dir = tempfile::tempdir().unwrap();
        symlink("two", dir.path().join("one")).unwrap();
        symlink("one", dir.path().join("two")).unwrap();
        assert_eq!(follow(&dir.path().join("one")), Err(TooManyLinks));
        for number in 0..PATH_LINKS {
            symlink(format!("l{}", number + 1), dir.path().join(format!("l{number}"))).unwrap();
        }
        let top = fs::canonicalize(dir.path()).unwrap();
        assert_eq!(follow(&top.join("l0")).unwrap(), top.join(format!("l{PATH_LINKS}")));
        symlink("l0", top.join("longer")).unwrap();
        assert_eq!(follow(&top.join("longer")), Err(TooManyLinks));
    }
}
