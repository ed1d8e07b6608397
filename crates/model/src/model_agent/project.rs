//! Finds the project of a working folder and opens its instruction files. Blocking.
//!
//! A project may come from an untrusted source. Its files are opened with the path policy of the file tools: links are
//! followed only within the project, and only regular files are read. Links in the user's own files may lead anywhere.
//!
//! Folders above the working folder may be writable by all users. Files of other users there are ignored.

use parlor_vocab::FailureCode;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parlor_files::{Policy, TrustedOwners};

use super::UserFolders;
use super::instructions::MAX_PARENTS;

/// The folders of a project, from its root down to the working folder.
#[derive(Clone, Debug)]
pub struct Project(Vec<InstructionPath>);

/// A folder or file, and the policy with which it is opened.
#[derive(Clone, Debug)]
pub struct InstructionPath {
    /// The path of the folder or file.
    pub path: PathBuf,
    opener: Opener,
    /// The allowed owners; `None` if the owner does not matter.
    owners: Option<TrustedOwners>,
}

/// The policy, or why it could not be created.
type Opener = Result<Arc<Policy>, ReadError>;

/// Why a file or folder was not read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum ReadError {
    /// It does not exist, or another user owns it.
    Missing,
    /// The policy refused it, or it cannot be read, with the reason.
    Refused(String),
}

impl Project {
    /// The project of `folder`: the folders from the nearest parent with a `.git` down to `folder`, or `folder` alone
    /// if there is no `.git`. Parents count only if this user, root or the owner of `folder` owns them.
    pub fn of(folder: &Path, user: &UserFolders) -> Self {
        let owners = TrustedOwners::of_folder(folder);
        let folders = project_folders(folder, MAX_PARENTS, |path| owners.own(path));
        let root = root_of(&folders, user.home.as_deref());
        let mut paths: Vec<InstructionPath> = Vec::with_capacity(folders.len());
        let mut last: Option<(&Path, Opener)> = None;
        for path in folders {
            let root = root.filter(|root| path.starts_with(root)).unwrap_or(path);
            let opener = match last.take() {
                Some((known, opener)) if known == root => opener,
                Some(_) | None => project_opener(root, user.state.as_deref()),
            };
            last = Some((root, opener.clone()));
            let owners = (path != folder).then_some(owners);
            paths.push(InstructionPath { path: path.to_owned(), opener, owners });
        }
        Self(paths)
    }

    /// No project: for an agent that may not obey the one of its working folder.
    pub(super) fn none() -> Self {
        Self(Vec::new())
    }

    /// The path of `name` in each folder of the project, from its root down. The files may not exist.
    pub fn paths_named(&self, name: &str) -> Vec<InstructionPath> {
        self.0.iter().map(|folder| folder.join(name)).collect()
    }
}

impl InstructionPath {
    /// A file or folder of the user, whose links may lead anywhere.
    pub fn user_owned(path: PathBuf) -> Self {
        Self { path, opener: opener(Policy::new(["/"])), owners: None }
    }

    pub(super) fn join(&self, name: &str) -> Self {
        Self { path: self.path.join(name), opener: self.opener.clone(), owners: self.owners }
    }

    /// Reads up to `max` bytes of a regular file. Invalid UTF-8 becomes replacement characters.
    pub(super) fn read_text(&self, max: u64) -> Result<String, ReadError> {
        let (file, _) = self.with(|policy, folder, name| policy.open_file(folder, name))?;
        // Check the owner again, now that the file is open and cannot be replaced.
        if self.owners.is_some_and(|owners| !owners.own_open(&file)) {
            return Err(ReadError::Missing);
        }
        let mut bytes = Vec::new();
        let read = file.take(max).read_to_end(&mut bytes);
        read.map_err(|error| ReadError::Refused(error.to_string()))?;
        let text = String::from_utf8_lossy(&bytes).into_owned();
        Ok(text.trim_end_matches('\u{fffd}').to_owned())
    }

    /// The sorted names of the entries that may be folders, and how many entries were read: at most `limit`.
    pub(super) fn inner_folders(&self, limit: usize) -> Result<(Vec<String>, usize), ReadError> {
        let (names, entries_read) =
            self.with(|policy, folder, name| policy.subfolders(folder, name, limit))?;
        Ok((names.into_iter().filter_map(|name| name.into_string().ok()).collect(), entries_read))
    }

    pub(super) fn is_folder(&self) -> Result<bool, ReadError> {
        self.with(|policy, folder, name| policy.is_folder(folder, name))
    }

    /// The warning for this error; `None` if the file or folder is missing.
    pub(super) fn refusal(&self, error: ReadError) -> Option<String> {
        match error {
            ReadError::Missing => None,
            ReadError::Refused(reason) => Some(format!("{} was not read: {reason}", self.path.display())),
        }
    }

    fn with<T>(
        &self,
        read: impl FnOnce(&Policy, &Path, &str) -> Result<T, parlor_vocab::Failure>,
    ) -> Result<T, ReadError> {
        // Files of other users are treated as missing.
        if self.owners.is_some_and(|owners| !owners.own(&self.path)) {
            return Err(ReadError::Missing);
        }
        let policy = self.opener.as_ref().map_err(Clone::clone)?;
        let (folder, name) = (self.path.parent(), self.path.file_name().and_then(|name| name.to_str()));
        let (Some(folder), Some(name)) = (folder, name) else { return Err(ReadError::Missing) };
        read(policy, folder, name).map_err(read_error)
    }
}

/// The root of the project of `folder`, whose home is `home`: all files of a repository have the same one. Blocking.
pub fn project_root(folder: &Path, home: Option<&Path>) -> PathBuf {
    let owners = TrustedOwners::of_folder(folder);
    let folders = project_folders(folder, MAX_PARENTS, |path| owners.own(path));
    root_of(&folders, home).unwrap_or(folder).to_owned()
}

/// The first of the folders that is not above `home`. A user may have the whole home folder in git. It is not the project
/// root of the folders inside of it, because then links in an untrusted project could lead to all files of the user.
fn root_of<'a>(folders: &[&'a Path], home: Option<&Path>) -> Option<&'a Path> {
    // The home folder may be a link, so compare both paths.
    let canonical = home.and_then(|home| home.canonicalize().ok());
    let has_home =
        |folder: &Path| home.into_iter().chain(canonical.as_deref()).any(|home| home.starts_with(folder));
    folders.iter().copied().find(|folder| !has_home(folder))
}

fn project_opener(root: &Path, state: Option<&Path>) -> Opener {
    opener(Policy::new([root]).map(|policy| match state {
        Some(state) => policy.without_state(state),
        None => policy,
    }))
}

fn opener(policy: Result<Policy, parlor_vocab::Failure>) -> Opener {
    policy.map(Arc::new).map_err(read_error)
}

fn read_error(failure: parlor_vocab::Failure) -> ReadError {
    if failure.code == FailureCode::NotFound {
        ReadError::Missing
    } else {
        ReadError::Refused(failure.message)
    }
}

/// The folders from the nearest parent with a `.git` down to `folder`, or `folder` alone if there is none. The search
/// ends at a parent, or a `.git` in it, that `is_trusted` rejects.
fn project_folders(folder: &Path, max: usize, is_trusted: impl Fn(&Path) -> bool) -> Vec<&Path> {
    let mut up: Vec<&Path> = Vec::new();
    for (above, path) in folder.ancestors().take(max).enumerate() {
        let git = path.join(".git");
        let has_git = git.exists();
        if above > 0 && !(is_trusted(path) && (!has_git || is_trusted(&git))) {
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
    fn the_project_root_has_a_git_folder() {
        let home = tempfile::tempdir().unwrap();
        let deep = home.path().join("a/b");
        fs::create_dir_all(&deep).unwrap();
        // A folder above the temporary one may have a `.git` too.
        let own = |path: &Path| path.starts_with(home.path());
        assert_eq!(project_folders(&deep, 64, own), [deep.as_path()]);
        fs::create_dir(home.path().join(".git")).unwrap();
        assert_eq!(project_folders(&deep, 64, own), [home.path(), &home.path().join("a"), deep.as_path()]);
        assert_eq!(project_folders(&deep, 2, own), [deep.as_path()], "the search is limited");
    }

    #[test]
    fn an_untrusted_folder_or_git_ends_the_search() {
        let home = tempfile::tempdir().unwrap();
        let deep = home.path().join("a/b");
        fs::create_dir_all(&deep).unwrap();
        fs::create_dir(home.path().join(".git")).unwrap();
        for foreign in [home.path().join(".git"), home.path().join("a")] {
            let is_trusted = |path: &Path| path != foreign;
            assert_eq!(project_folders(&deep, 64, is_trusted), [deep.as_path()], "{foreign:?}");
        }
        // The working folder is always trusted, because the user chose it.
        fs::create_dir(deep.join(".git")).unwrap();
        assert_eq!(project_folders(&deep, 64, |_| false), [deep.as_path()]);
    }

    #[test]
    fn reading_is_limited_and_needs_a_regular_file() {
        let home = tempfile::tempdir().unwrap();
        let path = |name: &str| InstructionPath::user_owned(home.path().join(name));
        fs::write(home.path().join("x"), "äää").unwrap();
        fs::create_dir(home.path().join("folder")).unwrap();
        assert_eq!(path("x").read_text(3).unwrap(), "ä");
        assert_eq!(path("x").read_text(100).unwrap(), "äää");
        assert!(matches!(path("folder").read_text(100), Err(ReadError::Refused(_))));
        assert_eq!(path("none").read_text(100), Err(ReadError::Missing));
    }

    #[test]
    fn links_stay_within_the_project_even_if_the_home_folder_is_in_git() {
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
        let read = |user_home: Option<&Path>, name: &str| -> Vec<Result<String, ReadError>> {
            let user = UserFolders { home: user_home.map(Path::to_owned), ..UserFolders::default() };
            Project::of(&deep, &user).paths_named(name).iter().map(|path| path.read_text(99)).collect()
        };
        let missing = || Err(ReadError::Missing);
        assert_eq!(read(None, "out")[3], Ok("private".to_owned()), "without a home folder it is one project");
        assert!(matches!(read(Some(&home), "out")[3], Err(ReadError::Refused(_))));
        symlink(&home, top.path().join("another name")).unwrap();
        assert!(matches!(read(Some(&top.path().join("another name")), "out")[3], Err(ReadError::Refused(_))));
        assert_eq!(read(Some(&home), "in")[3], Ok("guide".to_owned()));
        assert_eq!(read(Some(&home), "own"), [Ok("private".to_owned()), missing(), missing(), missing()]);
    }
}
