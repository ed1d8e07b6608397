//! Protects what a project could use to run code outside of the sandbox: the settings and hooks of its repository, and the
//! folders from which agents read instructions.
//!
//! What exists is mounted read-only. What does not exist cannot be mounted: [`Guard`] puts it aside when the command has
//! ended, before its result is reported.

use std::fs;
use std::io::{self, Read as _, Write as _};
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::rand::GetRandomFlags;

use crate::SpawnError;

/// Folders from which agents read instructions and settings.
const AGENT_FOLDERS: [&str; 3] = [".agents", ".codex", ".parlor"];

/// The repositories of submodules.
const MODULES: &str = "modules";

/// Parts of a repository that decide which settings git reads, and that most repositories do not have.
const OPTIONAL: [&str; 3] = ["commondir", "config.worktree", MODULES];

/// How many repositories right below a project are protected. A project with more is refused.
const MAX_NESTED_REPOSITORIES: usize = 128;

/// The longest settings of a new repository that are kept.
const MAX_SETTINGS_BYTES: u64 = 64 * 1024;

/// Whether `path` is one that a writable `project` protects if it exists, and that is put aside if a command creates it.
pub(crate) fn is_protected_name(path: &Path, project: &Path) -> bool {
    path.strip_prefix(project).is_ok_and(|name| {
        name == Path::new(".git") || AGENT_FOLDERS.iter().any(|known| name == Path::new(known))
    })
}

/// The paths of a project that need care.
#[derive(Debug, Default)]
pub(super) struct GitPaths {
    /// Never writable.
    pub(super) protected: Vec<PathBuf>,
    /// Writable, but the folder itself cannot be moved away. May be outside of the project.
    pub(super) pinned: Vec<PathBuf>,
    pub(super) guard: Guard,
}

impl GitPaths {
    /// Looks at `project`, an absolute path without links.
    pub(super) fn of(project: &Path) -> Result<Self, SpawnError> {
        let mut paths = Self::default();
        for name in AGENT_FOLDERS {
            paths.protect_or_guard(project.join(name))?;
        }
        let git = project.join(".git");
        match kind(&git) {
            Kind::Missing => paths.guard.missing.push(git),
            Kind::Link => return Err(is_link(&git)),
            Kind::Folder => paths.add_repository(&git),
            Kind::File => {
                if let Some((linked, main)) = linked_worktree(&git) {
                    paths.add_repository(&main);
                    paths.protected.extend(["commondir", "gitdir"].map(|name| linked.join(name)));
                    paths.protect_or_guard(linked.join("config.worktree"))?;
                }
                paths.protected.push(git);
            }
            Kind::Other => paths.protected.push(git),
        }
        if is_bare_repository(project) {
            paths.add_repository(project);
        } else {
            paths.guard.not_bare = Some(project.to_path_buf());
        }
        paths.add_nested(project)?;
        Ok(paths)
    }

    /// Adds the repositories right below a project, such as one that is a folder of repositories.
    fn add_nested(&mut self, project: &Path) -> Result<(), SpawnError> {
        let Ok(entries) = fs::read_dir(project) else { return Ok(()) };
        let is_folder = |entry: &fs::DirEntry| {
            entry.file_type().is_ok_and(|kind| kind.is_dir()) && entry.file_name() != ".git"
        };
        let mut count = 0;
        for entry in entries.flatten().filter(is_folder) {
            let git = entry.path().join(".git");
            match kind(&git) {
                Kind::Missing | Kind::Link => continue,
                Kind::Folder => self.add_repository(&git),
                Kind::File | Kind::Other => self.protected.push(git),
            }
            count += 1;
        }
        if count > MAX_NESTED_REPOSITORIES {
            let shown = project.display();
            return Err(SpawnError::Sandbox(format!(
                "{shown} has {count} repositories, and at most {MAX_NESTED_REPOSITORIES} can be protected; choose one of them as \
                 the project, or use mode read-only"
            )));
        }
        Ok(())
    }

    fn protect_or_guard(&mut self, path: PathBuf) -> Result<(), SpawnError> {
        match kind(&path) {
            Kind::Missing => self.guard.missing.push(path),
            Kind::Link => return Err(is_link(&path)),
            Kind::Folder | Kind::File | Kind::Other => self.protected.push(path),
        }
        Ok(())
    }

    /// Adds the folder of a repository.
    fn add_repository(&mut self, folder: &Path) {
        let hooks = folder.join("hooks");
        if kind(&hooks) == Kind::Missing {
            // Empty, it changes nothing for git, and it can be mounted. If it cannot be created, the next lines protect all.
            let _ = fs::create_dir(&hooks);
        }
        let has_links = OPTIONAL.iter().any(|name| kind(&folder.join(name)) == Kind::Link);
        if has_links || kind(&hooks) != Kind::Folder || kind(&folder.join("config")) != Kind::File {
            // What is a link could be replaced. Nobody can commit here, but nobody can add hooks either.
            self.protected.push(folder.to_path_buf());
            return;
        }
        self.pinned.push(folder.to_path_buf());
        self.protected.extend([hooks, folder.join("config")]);
        for name in OPTIONAL {
            match kind(&folder.join(name)) {
                // A new submodule is no setting of this repository.
                Kind::Missing if name == MODULES => {}
                Kind::Missing | Kind::Link => self.guard.missing.push(folder.join(name)),
                Kind::Folder | Kind::File | Kind::Other => self.protected.push(folder.join(name)),
            }
        }
    }
}

/// Whether git takes `folder` itself for a repository.
fn is_bare_repository(folder: &Path) -> bool {
    ["HEAD", "objects", "refs"].iter().all(|name| kind(&folder.join(name)) != Kind::Missing)
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Missing,
    Folder,
    File,
    Link,
    /// A pipe, a socket or a device.
    Other,
}

fn kind(path: &Path) -> Kind {
    match fs::symlink_metadata(path) {
        Ok(found) if found.is_symlink() => Kind::Link,
        Ok(found) if found.is_dir() => Kind::Folder,
        Ok(found) if found.is_file() => Kind::File,
        Ok(_) => Kind::Other,
        Err(_) => Kind::Missing,
    }
}

fn is_link(path: &Path) -> SpawnError {
    let path = path.display();
    SpawnError::Sandbox(format!(
        "{path} is a symbolic link, which cannot be protected; replace it by what it leads to, or use mode read-only"
    ))
}

/// The folders of a linked worktree and of its main repository, if `file` is the `.git` of a worktree.
///
/// Only if the repository knows this worktree: otherwise the file could make any folder writable.
fn linked_worktree(file: &Path) -> Option<(PathBuf, PathBuf)> {
    let read = |path: &Path| read_settings(path).map(|text| text.trim_end().to_owned());
    let text = read(file)?;
    let linked = fs::canonicalize(file.parent()?.join(text.strip_prefix("gitdir: ")?)).ok()?;
    let back = fs::canonicalize(linked.join(read(&linked.join("gitdir"))?)).ok()?;
    let main = fs::canonicalize(linked.join(read(&linked.join("commondir"))?)).ok()?;
    (back == file && linked.starts_with(main.join("worktrees"))).then_some((linked, main))
}

/// What did not exist when the command started, and must not come into being by it.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Guard {
    missing: Vec<PathBuf>,
    /// A folder that git did not take for a repository.
    not_bare: Option<PathBuf>,
}

impl Guard {
    /// Puts aside what the command has created, when all its processes have ended. A new repository remains, without hooks
    /// and with harmless settings only. The error names all that could not be put aside.
    pub(crate) fn check(&self) -> Result<(), String> {
        // Without its head it is no repository.
        let bare = self.not_bare.as_ref().filter(|folder| is_bare_repository(folder));
        let head = bare.map(|folder| folder.join("HEAD"));
        let failures: Vec<String> = self
            .missing
            .iter()
            .chain(&head)
            .filter_map(|path| {
                let error = check_missing(path).err()?;
                Some(format!("{}: {error}", path.display()))
            })
            .collect();
        if failures.is_empty() {
            return Ok(());
        }
        let failures = failures.join("; ");
        Err(format!(
            "the command created what must not exist, and it cannot be put aside; remove it before you use git or an \
             agent here: {failures}"
        ))
    }
}

fn check_missing(path: &Path) -> io::Result<()> {
    let is_git = path.file_name().is_some_and(|name| name == ".git");
    if !is_git || created_kind(path)? != Kind::Folder {
        return set_aside(path);
    }
    for name in ["commondir", "config.worktree"] {
        set_aside(&path.join(name))?;
    }
    clean_hooks(&path.join("hooks"))?;
    clean_settings(&path.join("config"))
}

/// Like [`kind`], but a folder that the command has closed to its owner hides nothing.
fn created_kind(path: &Path) -> io::Result<Kind> {
    if let Err(error) = fs::symlink_metadata(path)
        && error.kind() == io::ErrorKind::PermissionDenied
        && let Some(parent) = path.parent()
    {
        open_up(parent)?;
    }
    match fs::symlink_metadata(path) {
        Err(error) if !is_missing(&error) => Err(error),
        Ok(_) | Err(_) => Ok(kind(path)),
    }
}

fn is_missing(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory)
}

/// Gives the owner of `folder` back all rights in it, and those around it that are needed for that.
fn open_up(folder: &Path) -> io::Result<()> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let open = || rustix::fs::open(folder, flags, Mode::empty());
    let opened = match (open(), folder.parent()) {
        (Err(Errno::ACCESS), Some(parent)) => {
            open_up(parent)?;
            open()?
        }
        (opened, _) => opened?,
    };
    // Not by the path, which could be a link by now.
    let path = format!("/proc/self/fd/{}", opened.as_raw_fd());
    let mode = fs::metadata(&path)?.permissions().mode();
    fs::set_permissions(&path, fs::Permissions::from_mode(mode | 0o700))
}

/// Renames `path` to a name that nobody can guess and so nobody can occupy. What cannot be renamed is removed. Does nothing
/// if it does not exist.
fn set_aside(path: &Path) -> io::Result<()> {
    if created_kind(path)? == Kind::Missing {
        return Ok(());
    }
    let mut number = [0; 8];
    rustix::rand::getrandom(&mut number, GetRandomFlags::empty())?;
    let mut name = path.as_os_str().to_owned();
    name.push(format!(".blocked-{:016x}", u64::from_ne_bytes(number)));
    let name = PathBuf::from(name);
    if fs::rename(path, &name).is_ok() {
        return Ok(());
    }
    // If this does not help, the next lines report why.
    let _ = path.parent().map(open_up);
    if fs::rename(path, &name).is_ok() {
        return Ok(());
    }
    match kind(path) {
        Kind::Folder => fs::remove_dir_all(path),
        Kind::Missing | Kind::File | Kind::Link | Kind::Other => fs::remove_file(path),
    }
}

/// Puts a folder of hooks aside, unless it has only the samples of `git init`.
fn clean_hooks(hooks: &Path) -> io::Result<()> {
    let is_sample = |entry: io::Result<fs::DirEntry>| {
        entry.is_ok_and(|entry| entry.file_name().as_encoded_bytes().ends_with(b".sample"))
    };
    let has_samples_only =
        kind(hooks) == Kind::Folder && fs::read_dir(hooks).is_ok_and(|mut entries| entries.all(is_sample));
    if has_samples_only { Ok(()) } else { set_aside(hooks) }
}

/// Replaces the settings of a new repository by those that start no program.
fn clean_settings(config: &Path) -> io::Result<()> {
    if created_kind(config)? == Kind::Missing {
        return Ok(());
    }
    let text = read_settings(config);
    let harmless = text.as_deref().map(harmless_settings).unwrap_or_default();
    if text.as_ref() == Some(&harmless) {
        return Ok(());
    }
    set_aside(config)?;
    // A new file: what is there by now, such as a link to a file of the user, is never written. Without settings git uses
    // its defaults.
    let mut file = fs::OpenOptions::new().write(true).create_new(true).open(config)?;
    file.write_all(harmless.as_bytes())
}

/// The text of a file of git, unless it is longer than [`MAX_SETTINGS_BYTES`] or no plain text. A link or a pipe is no file.
fn read_settings(path: &Path) -> Option<String> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file = fs::File::from(rustix::fs::open(path, flags, Mode::empty()).ok()?);
    if !file.metadata().ok()?.is_file() {
        return None;
    }
    let mut text = String::new();
    file.take(MAX_SETTINGS_BYTES + 1).read_to_string(&mut text).ok()?;
    (text.len() as u64 <= MAX_SETTINGS_BYTES).then_some(text)
}

/// The lines of a git config file that cannot make git start a program. What is not in a plain form is left out.
fn harmless_settings(text: &str) -> String {
    let mut section: Option<String> = None;
    let mut kept = String::new();
    for line in text.lines() {
        let trimmed = line.trim();
        let keep = if trimmed.starts_with('[') {
            section = plain_section(trimmed);
            section.is_some()
        } else {
            section.as_deref().is_some_and(|section| is_harmless(section, trimmed))
        };
        if keep {
            kept.push_str(line);
            kept.push('\n');
        }
    }
    kept
}

/// The lowercase name of `[name]` or `[name "sub"]`, if it is one of the known.
fn plain_section(line: &str) -> Option<String> {
    let inner = line.strip_prefix('[')?.strip_suffix(']')?;
    let (name, sub) = inner.split_once(' ').map_or((inner, None), |(name, sub)| (name, Some(sub)));
    let is_plain = |sub: &str| {
        let quoted = sub.strip_prefix('"').and_then(|sub| sub.strip_suffix('"'));
        quoted.is_some_and(|sub| !sub.contains(['"', '\\', ']']))
    };
    let name = name.to_ascii_lowercase();
    (HARMLESS.iter().any(|(section, _)| *section == name) && sub.is_none_or(is_plain)).then_some(name)
}

fn is_harmless(section: &str, line: &str) -> bool {
    let Some((key, value)) = line.split_once('=') else { return false };
    let key = key.trim().to_ascii_lowercase();
    let known = HARMLESS.iter().filter(|(name, _)| *name == section).flat_map(|(_, keys)| keys.iter());
    known.into_iter().any(|known| *known == key) && !value.contains(['\\', '"'])
}

/// Settings that start no program.
const HARMLESS: [(&str, &[&str]); 6] = [
    (
        "core",
        &[
            "repositoryformatversion",
            "filemode",
            "bare",
            "logallrefupdates",
            "ignorecase",
            "precomposeunicode",
            "symlinks",
            "autocrlf",
        ],
    ),
    ("extensions", &["objectformat", "refstorage"]),
    ("user", &["name", "email"]),
    ("remote", &["url", "fetch"]),
    ("branch", &["remote", "merge", "rebase"]),
    ("init", &["defaultbranch"]),
];

#[cfg(test)]
mod tests;
