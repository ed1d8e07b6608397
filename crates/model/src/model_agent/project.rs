//! The project that a working folder is in, and how its instruction files are opened. Blocking.
//!
//! A project may come from strangers. Its files are opened by the policy that file tools have: links that stay within
//! the project are followed, none leads out of it, and only regular files are read. The user's own files are as the user
//! made them: their links lead anywhere.
//!
//! Above the working folder may be folders that everybody can write to. What other users put there does not count.

use parlor_vocab::FailureCode;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parlor_files::{Owners, Policy};

use super::UserFolders;
use super::instructions::MAX_PARENTS;

/// The folders of a project, from its root down to the working folder.
#[derive(Clone, Debug)]
pub struct Project(Vec<InstructionPath>);

/// A folder or file, and by what policy it is opened.
#[derive(Clone, Debug)]
pub struct InstructionPath {
    /// Where it is.
    pub path: PathBuf,
    opener: Opener,
    /// Whose it must be, if that matters.
    owners: Option<Owners>,
}

/// A policy, or why there is none.
type Opener = Result<Arc<Policy>, Unread>;

/// Why something was not read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Unread {
    /// There is no such file or folder.
    Missing,
    /// It may not be read, in words.
    Refused(String),
}

impl Project {
    /// The project of `folder`: `folder` and the folders above it, up to and with the first that has a `.git`. Only
    /// `folder` if there is no such. Above it only what is this user's, root's or that of the owner of `folder` counts.
    pub fn of(folder: &Path, user: &UserFolders) -> Self {
        let owners = Owners::of(folder);
        let folders = project_folders(folder, MAX_PARENTS, |path| owners.have(path));
        // By both of its names, if it is a link.
        let homes =
            user.home.iter().cloned().chain(user.home.iter().filter_map(|home| home.canonicalize().ok()));
        let homes: Vec<PathBuf> = homes.collect();
        let has_home = |folder: &Path| homes.iter().any(|home| home.starts_with(folder));
        // A user may keep the whole home folder in git. It is not the project of all that is unpacked in it: links
        // there would lead to everything that the user has.
        let root = folders.iter().copied().find(|folder| !has_home(folder));
        let mut places: Vec<InstructionPath> = Vec::with_capacity(folders.len());
        let mut last: Option<(&Path, Opener)> = None;
        for path in folders {
            let root = root.filter(|root| path.starts_with(root)).unwrap_or(path);
            let opener = match last.take() {
                Some((known, opener)) if known == root => opener,
                Some(_) | None => project_opener(root, user.state.as_deref()),
            };
            last = Some((root, opener.clone()));
            let owners = (path != folder).then_some(owners);
            places.push(InstructionPath { path: path.to_owned(), opener, owners });
        }
        Self(places)
    }

    /// `name` in each folder of the project, from its root down. None of them need be there.
    pub fn places(&self, name: &str) -> Vec<InstructionPath> {
        self.0.iter().map(|place| place.join(name)).collect()
    }
}

impl InstructionPath {
    /// A place of the user's own.
    pub fn user_owned(path: PathBuf) -> Self {
        Self { path, opener: opened(Policy::new(["/"])), owners: None }
    }

    pub(super) fn join(&self, name: &str) -> Self {
        Self { path: self.path.join(name), opener: self.opener.clone(), owners: self.owners }
    }

    /// The text of a regular file, up to `max` bytes of it, without what is not UTF-8.
    pub(super) fn text(&self, max: u64) -> Result<String, Unread> {
        let (file, _) = self.with(|policy, folder, name| policy.open_file(folder, name))?;
        // Again, now that nobody can put another in its place.
        if self.owners.is_some_and(|owners| !owners.have_open(&file)) {
            return Err(Unread::Missing);
        }
        let mut bytes = Vec::new();
        let read = file.take(max).read_to_end(&mut bytes);
        read.map_err(|error| Unread::Refused(error.to_string()))?;
        let text = String::from_utf8_lossy(&bytes).into_owned();
        Ok(text.trim_end_matches('\u{fffd}').to_owned())
    }

    /// The names of what may be folders in a folder, sorted; and how many names were looked at, `limit` at most.
    pub(super) fn inner_folders(&self, limit: usize) -> Result<(Vec<String>, usize), Unread> {
        let (names, looked) = self.with(|policy, folder, name| policy.inner_folders(folder, name, limit))?;
        Ok((names.into_iter().filter_map(|name| name.into_string().ok()).collect(), looked))
    }

    pub(super) fn is_folder(&self) -> Result<bool, Unread> {
        self.with(|policy, folder, name| policy.is_folder(folder, name))
    }

    /// What is said of it if it was refused.
    pub(super) fn refusal(&self, why: Unread) -> Option<String> {
        match why {
            Unread::Missing => None,
            Unread::Refused(why) => Some(format!("{} was not read: {why}", self.path.display())),
        }
    }

    fn with<T>(
        &self,
        read: impl FnOnce(&Policy, &Path, &str) -> Result<T, parlor_vocab::Failure>,
    ) -> Result<T, Unread> {
        // What is another user's does not count: it is as if it were not there.
        if self.owners.is_some_and(|owners| !owners.have(&self.path)) {
            return Err(Unread::Missing);
        }
        let policy = self.opener.as_ref().map_err(Clone::clone)?;
        let (folder, name) = (self.path.parent(), self.path.file_name().and_then(|name| name.to_str()));
        let (Some(folder), Some(name)) = (folder, name) else { return Err(Unread::Missing) };
        read(policy, folder, name).map_err(unread)
    }
}

fn project_opener(root: &Path, state: Option<&Path>) -> Opener {
    opened(Policy::new([root]).map(|policy| match state {
        Some(state) => policy.without_state(state),
        None => policy,
    }))
}

fn opened(policy: Result<Policy, parlor_vocab::Failure>) -> Opener {
    policy.map(Arc::new).map_err(unread)
}

fn unread(failure: parlor_vocab::Failure) -> Unread {
    if failure.code == FailureCode::NotFound { Unread::Missing } else { Unread::Refused(failure.message) }
}

/// `folder` and the folders above it, up to and with the first that has a `.git`, outermost first. Only `folder` if there
/// is no such. A folder above it, or a `.git` in one, that does not count ends the search.
fn project_folders(folder: &Path, max: usize, counts: impl Fn(&Path) -> bool) -> Vec<&Path> {
    let mut up: Vec<&Path> = Vec::new();
    for (above, path) in folder.ancestors().take(max).enumerate() {
        let git = path.join(".git");
        let has_git = git.exists();
        if above > 0 && !(counts(path) && (!has_git || counts(&git))) {
            break;
        }
        up.push(path);
        if has_git {
            up.reverse();
            return up;
        }
    }
    vec![folder]
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn a_project_begins_where_git_does() {
        let home = tempfile::tempdir().unwrap();
        let deep = home.path().join("a/b");
        fs::create_dir_all(&deep).unwrap();
        let all = |_: &Path| true;
        assert_eq!(project_folders(&deep, 64, all), [deep.as_path()]);
        fs::create_dir(home.path().join(".git")).unwrap();
        assert_eq!(project_folders(&deep, 64, all), [home.path(), &home.path().join("a"), deep.as_path()]);
        assert_eq!(project_folders(&deep, 2, all), [deep.as_path()], "no further than asked");
    }

    #[test]
    fn a_folder_or_a_git_that_does_not_count_ends_the_search() {
        let home = tempfile::tempdir().unwrap();
        let deep = home.path().join("a/b");
        fs::create_dir_all(&deep).unwrap();
        fs::create_dir(home.path().join(".git")).unwrap();
        for foreign in [home.path().join(".git"), home.path().join("a")] {
            let counts = |path: &Path| path != foreign;
            assert_eq!(project_folders(&deep, 64, counts), [deep.as_path()], "{foreign:?}");
        }
        // The working folder itself is where the user went.
        fs::create_dir(deep.join(".git")).unwrap();
        assert_eq!(project_folders(&deep, 64, |_| false), [deep.as_path()]);
    }

    #[test]
    fn only_the_beginning_of_a_file_is_read_and_only_of_a_file() {
        let home = tempfile::tempdir().unwrap();
        let place = |name: &str| InstructionPath::user_owned(home.path().join(name));
        fs::write(home.path().join("x"), "äää").unwrap();
        fs::create_dir(home.path().join("folder")).unwrap();
        assert_eq!(place("x").text(3).unwrap(), "ä");
        assert_eq!(place("x").text(100).unwrap(), "äää");
        assert!(matches!(place("folder").text(100), Err(Unread::Refused(_))));
        assert_eq!(place("none").text(100), Err(Unread::Missing));
    }

    #[test]
    fn links_lead_as_far_as_the_project_and_no_further_than_the_users_home() {
        let top = tempfile::tempdir().unwrap();
        let home = top.path().join("home");
        fs::create_dir_all(home.join(".git")).unwrap();
        fs::create_dir_all(home.join("work/project/deep")).unwrap();
        fs::write(home.join("private"), "private").unwrap();
        fs::write(home.join("work/guide"), "guide").unwrap();
        symlink("../../../private", home.join("work/project/deep/out")).unwrap();
        symlink("../../guide", home.join("work/project/deep/in")).unwrap();
        symlink("private", home.join("own")).unwrap();
        let deep = home.join("work/project/deep");
        let read = |user_home: Option<&Path>, name: &str| -> Vec<Result<String, Unread>> {
            let user = UserFolders { home: user_home.map(Path::to_owned), ..UserFolders::default() };
            Project::of(&deep, &user).places(name).iter().map(|place| place.text(99)).collect()
        };
        let missing = || Err(Unread::Missing);
        assert_eq!(read(None, "out")[3], Ok("private".to_owned()), "it is all one project");
        assert!(matches!(read(Some(&home), "out")[3], Err(Unread::Refused(_))));
        symlink(&home, top.path().join("another name")).unwrap();
        assert!(matches!(read(Some(&top.path().join("another name")), "out")[3], Err(Unread::Refused(_))));
        assert_eq!(read(Some(&home), "in")[3], Ok("guide".to_owned()));
        assert_eq!(read(Some(&home), "own"), [Ok("private".to_owned()), missing(), missing(), missing()]);
    }
}
