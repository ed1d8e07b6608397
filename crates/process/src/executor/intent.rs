//! Enforces what a client restricts a process or a file access to: processes by a sandbox of the kernel, files by a check
//! of the resolved path.
//!
//! What cannot be enforced is refused: rules that do not let `/` be read, or that let it be written; for processes also a
//! denied project, and rules that keep a path from coming into being; for files also rules that deny something, and copies.

use std::ffi::OsString;
use std::fs;
use std::io::ErrorKind;
use std::path::{Component, Path, PathBuf};

use parlor_vocab::{
    ExecutorRefusal, FileAction, FollowLinks, PathAccess, PathRule, PolicyMode, SandboxIntent,
};

use super::files::{Outcome, refusal};
use crate::sandbox::is_protected_name;
use crate::{Sandbox, SandboxNetwork};

/// The folder of temporary files that a client can make writable.
const TEMP_FOLDER: &str = "/tmp";

/// The sandbox of a process.
pub(super) fn sandbox(intent: &SandboxIntent) -> Outcome<Sandbox> {
    check_root(intent)?;
    let mode = match access(&intent.rules, &intent.project) {
        PathAccess::Write => PolicyMode::Workspace,
        PathAccess::Read => PolicyMode::ReadOnly,
        PathAccess::Denied => return Err(ExecutorRefusal::UnenforceableIntent),
    };
    if intent.rules.iter().any(|rule| needs_missing_path(rule, intent)) {
        return Err(ExecutorRefusal::UnenforceableIntent);
    }
    let shares_temp = access(&intent.rules, Path::new(TEMP_FOLDER)) == PathAccess::Write;
    let of = |wanted: PathAccess| {
        let is_strictest = |rule: &&PathRule| access(&intent.rules, &rule.path) == rule.access;
        let rules = intent.rules.iter().filter(move |rule| rule.access == wanted).filter(is_strictest);
        let is_special = |path: &&PathBuf| *path == Path::new("/") || *path == Path::new(TEMP_FOLDER);
        rules.map(|rule| &rule.path).filter(move |path| !is_special(path)).cloned()
    };
    Ok(Sandbox {
        mode,
        project: intent.project.clone(),
        temp_folder: shares_temp.then(|| TEMP_FOLDER.into()),
        writable: of(PathAccess::Write).filter(|path| *path != intent.project).collect(),
        readable: of(PathAccess::Read).chain(of(PathAccess::Write)).collect(),
        hidden: of(PathAccess::Denied).collect(),
        protected: of(PathAccess::Read).collect(),
        network: if intent.allows_network { SandboxNetwork::Open } else { SandboxNetwork::None },
    })
}

/// The file request as it is carried out under `intent`: a path that is written has no links in it, so that nobody can
/// lead the access elsewhere after the check.
pub(super) fn checked(action: FileAction, intent: &SandboxIntent) -> Outcome<FileAction> {
    check_root(intent)?;
    if intent.rules.iter().any(|rule| rule.access == PathAccess::Denied) {
        return Err(ExecutorRefusal::UnenforceableIntent);
    }
    let no = FollowLinks::No;
    match action {
        FileAction::Write { path, bytes, follow } => {
            let path = writable(intent, resolved(&path, follow)?)?;
            Ok(FileAction::Write { path, bytes, follow: no })
        }
        FileAction::Open { handle, path, replaces: true, follow } => {
            let path = writable(intent, resolved(&path, follow)?)?;
            Ok(FileAction::Open { handle, path, replaces: true, follow: no })
        }
        FileAction::CreateFolder { path, recursive, follow } => {
            let path = writable(intent, resolved(&path, follow)?)?;
            Ok(FileAction::CreateFolder { path, recursive, follow: no })
        }
        FileAction::Remove { path, recursive, force, follow } => {
            // A link is removed itself.
            let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else {
                return Err(denied(&path));
            };
            let path = writable(intent, resolved(parent, follow)?.join(name))?;
            if intent.rules.iter().any(|rule| rule.path != path && rule.path.starts_with(&path)) {
                return Err(denied(&path));
            }
            Ok(FileAction::Remove { path, recursive, force, follow: no })
        }
        FileAction::Copy { .. } => Err(ExecutorRefusal::UnenforceableIntent),
        FileAction::Read { .. }
        | FileAction::Describe { .. }
        | FileAction::Canonicalize { .. }
        | FileAction::List { .. }
        | FileAction::Walk { .. }
        | FileAction::Open { replaces: false, .. }
        // The file was checked when it was opened.
        | FileAction::ReadBlock { .. }
        | FileAction::WriteBlock { .. }
        | FileAction::Close { .. } => Ok(action),
    }
}

/// Whether a rule says that a path cannot be written that does not exist, in a folder that can be written. The kernel
/// restricts only what exists, and the sandbox of a project puts only some names aside.
fn needs_missing_path(rule: &PathRule, intent: &SandboxIntent) -> bool {
    let can_be_skipped = rule.skips_missing || is_protected_name(&rule.path, &intent.project);
    if rule.access != PathAccess::Read || can_be_skipped || rule.path.exists() {
        return false;
    }
    match resolved(&rule.path, FollowLinks::Yes) {
        Ok(real) => real.parent().is_some_and(|parent| writable(intent, parent.to_owned()).is_ok()),
        Err(_) => true,
    }
}

fn check_root(intent: &SandboxIntent) -> Outcome<()> {
    match access(&intent.rules, Path::new("/")) {
        PathAccess::Read => Ok(()),
        PathAccess::Denied | PathAccess::Write => Err(ExecutorRefusal::UnenforceableIntent),
    }
}

/// What the rule with the longest path that contains `path` allows. Of two rules for one path the stricter one counts.
fn access(rules: &[PathRule], path: &Path) -> PathAccess {
    let containing = rules.iter().filter(|rule| path.starts_with(&rule.path));
    let longest =
        containing.max_by_key(|rule| (rule.path.components().count(), std::cmp::Reverse(rule.access)));
    longest.map_or(PathAccess::Denied, |rule| rule.access)
}

fn writable(intent: &SandboxIntent, path: PathBuf) -> Outcome<PathBuf> {
    // The rules may name a folder by a path with links.
    let resolve = |rule: &PathRule| PathRule {
        path: fs::canonicalize(&rule.path).unwrap_or_else(|_| rule.path.clone()),
        ..rule.clone()
    };
    let rules: Vec<PathRule> = intent.rules.iter().map(resolve).collect();
    if access(&rules, &path) == PathAccess::Write { Ok(path) } else { Err(denied(&path)) }
}

/// The path without links; its last parts need not exist. With [`FollowLinks::No`] the path as it is: a link in it is
/// refused later.
fn resolved(path: &Path, follow: FollowLinks) -> Outcome<PathBuf> {
    // The rules are compared part by part, and a part that leads back would pass for one below.
    if path.components().any(|part| part == Component::ParentDir) {
        return Err(denied(path));
    }
    if follow == FollowLinks::No {
        return Ok(path.to_owned());
    }
    let (mut existing, mut missing) = (path, Vec::<OsString>::new());
    loop {
        match fs::canonicalize(existing) {
            Ok(found) => return Ok(missing.into_iter().rev().fold(found, |path, name| path.join(name))),
            Err(error) if error.kind() == ErrorKind::NotFound => {
                let (Some(parent), Some(name)) = (existing.parent(), existing.file_name()) else {
                    return Err(refusal(error));
                };
                missing.push(name.to_owned());
                existing = parent;
            }
            Err(error) => return Err(refusal(error)),
        }
    }
}

fn denied(path: &Path) -> ExecutorRefusal {
    ExecutorRefusal::FileRefused(format!(
        "the sandbox of this request does not allow writing `{}`",
        path.display()
    ))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    fn rule(path: impl Into<PathBuf>, access: PathAccess) -> PathRule {
        PathRule { path: path.into(), access, skips_missing: false }
    }

    /// The rules of `workspace-write` for the folder `project`.
    fn workspace(project: &Path) -> SandboxIntent {
        let rules = vec![
            rule("/", PathAccess::Read),
            rule(project, PathAccess::Write),
            rule(project.join(".git"), PathAccess::Read),
        ];
        SandboxIntent { rules, project: project.to_owned(), allows_network: false }
    }

    fn write(path: PathBuf) -> FileAction {
        FileAction::Write { path, bytes: Vec::new(), follow: FollowLinks::Yes }
    }

    fn remove(path: PathBuf) -> FileAction {
        FileAction::Remove { path, recursive: true, force: false, follow: FollowLinks::Yes }
    }

    #[test]
    fn the_rule_with_the_longest_path_decides_and_of_two_the_stricter() {
        let rules =
            [rule("/", PathAccess::Read), rule("/p", PathAccess::Write), rule("/p/.git", PathAccess::Read)];
        for (path, expected) in [
            ("/", PathAccess::Read),
            ("/p", PathAccess::Write),
            ("/p/a/b", PathAccess::Write),
            ("/p/.git", PathAccess::Read),
            ("/p/.git/config", PathAccess::Read),
            ("/p/.gitignore", PathAccess::Write),
            ("/pp", PathAccess::Read),
        ] {
            assert_eq!(access(&rules, Path::new(path)), expected, "{path}");
        }
        let both = [rule("/p", PathAccess::Write), rule("/p", PathAccess::Read)];
        assert_eq!(access(&both, Path::new("/p/a")), PathAccess::Read);
        assert_eq!(access(&both, Path::new("/")), PathAccess::Denied);
    }

    #[test]
    fn writes_stay_in_writable_folders_whatever_the_links_say() {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path().canonicalize().unwrap();
        let project = folder.join("project");
        fs::create_dir_all(project.join(".git")).unwrap();
        fs::write(folder.join("outside"), "").unwrap();
        symlink(&folder, project.join("up")).unwrap();
        symlink(folder.join("outside"), project.join("link")).unwrap();
        symlink(project.join(".git"), project.join("git")).unwrap();
        let intent = workspace(&project);
        let allowed = |action| checked(action, &intent).is_ok();
        assert!(allowed(write(project.join("new"))) && allowed(write(project.join("a/b/c"))));
        for path in ["up/outside", "up/new", "link", ".git/config", "git/config", "../outside"] {
            assert!(!allowed(write(project.join(path))), "{path}");
        }
        assert!(!allowed(write(folder.join("outside"))));
        for path in ["../outside", "a/../../outside", ".."] {
            let path = project.join(path);
            let follow = FollowLinks::No;
            let bytes = Vec::new();
            assert!(!allowed(FileAction::Write { path: path.clone(), bytes, follow }), "{}", path.display());
            assert!(!allowed(FileAction::CreateFolder { path: path.clone(), recursive: true, follow }));
            assert!(!allowed(FileAction::Remove { path, recursive: true, force: false, follow }));
        }
        assert!(allowed(remove(project.join("link"))), "the link itself is in the project");
        assert!(!allowed(remove(project.clone())), "it has a folder that must not be written");
        assert!(!allowed(remove(project.join("up/outside"))));
        let copy = FileAction::Copy {
            source: project.join("new"),
            destination: project.join("copy"),
            recursive: false,
        };
        assert!(matches!(checked(copy, &intent), Err(ExecutorRefusal::UnenforceableIntent)));
    }

    #[test]
    fn the_stricter_of_two_rules_for_a_path_makes_the_sandbox() {
        let mut intent = workspace(Path::new("/p"));
        for access in [PathAccess::Write, PathAccess::Denied, PathAccess::Read] {
            intent.rules.push(rule("/both", access));
        }
        let made = sandbox(&intent).expect("it can be enforced");
        assert_eq!(made.hidden, [Path::new("/both")]);
        let both = PathBuf::from("/both");
        assert!(![made.readable, made.writable, made.protected].iter().any(|list| list.contains(&both)));
        intent.rules.push(rule("/p", PathAccess::Denied));
        assert!(matches!(sandbox(&intent), Err(ExecutorRefusal::UnenforceableIntent)));
    }

    #[test]
    fn a_rule_for_a_missing_path_in_a_writable_folder_is_refused_unless_it_may_be_skipped() {
        let folder = tempfile::tempdir().unwrap();
        let intent_with = |name: &str, skips_missing| {
            let mut intent = workspace(folder.path());
            let path = folder.path().join(name);
            intent.rules.push(PathRule { path, access: PathAccess::Read, skips_missing });
            intent
        };
        fs::create_dir(folder.path().join("there")).unwrap();
        for name in [".git", ".agents", ".codex", "there"] {
            assert!(sandbox(&intent_with(name, false)).is_ok(), "{name}");
        }
        for name in [".aws", "sub/deep", "sub/.git", ".codex/deep"] {
            let refused = sandbox(&intent_with(name, false));
            assert!(matches!(refused, Err(ExecutorRefusal::UnenforceableIntent)), "{name}");
            assert!(sandbox(&intent_with(name, true)).is_ok(), "{name}");
        }
        symlink(folder.path().join("nowhere"), folder.path().join("broken")).unwrap();
        symlink(folder.path(), folder.path().join("there/link")).unwrap();
        for name in ["broken", "there/link/new"] {
            assert!(sandbox(&intent_with(name, false)).is_err(), "{name}");
        }
        let mut elsewhere = workspace(folder.path());
        elsewhere.rules.push(rule("/no/such", PathAccess::Read));
        assert!(sandbox(&elsewhere).is_ok(), "nobody can create it");
    }

    #[test]
    fn rules_that_cannot_be_enforced_are_refused() {
        let mut intent = workspace(Path::new("/p"));
        assert!(sandbox(&intent).is_ok());
        intent.rules.push(rule("/secret", PathAccess::Denied));
        assert!(sandbox(&intent).is_ok_and(|sandbox| sandbox.hidden == [Path::new("/secret")]));
        let read = FileAction::List { path: "/".into() };
        assert!(matches!(checked(read, &intent), Err(ExecutorRefusal::UnenforceableIntent)));
        for root in [PathAccess::Denied, PathAccess::Write] {
            intent.rules[0].access = root;
            assert!(matches!(sandbox(&intent), Err(ExecutorRefusal::UnenforceableIntent)), "{root:?}");
        }
    }
}
