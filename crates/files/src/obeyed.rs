//! Files in a project that other programs obey later, outside of every sandbox: settings and hooks of git repositories,
//! and settings of agents.
//!
//! Looks at paths, which must have no symbolic links. The sandbox of commands protects the same files by mounts.

use std::ffi::OsStr;
use std::path::{Component, Path};

/// Folders with settings of agents, and with the project's rules for parlor.
const AGENT_FOLDERS: [&str; 3] = [".agents", ".codex", ".parlor"];

/// What starts programs, or names other settings, in a repository, in one of its worktrees or submodules.
const GIT_SETTINGS: [&str; 6] = ["commondir", "config", "config.worktree", "gitdir", "hooks", "modules"];

/// Whether the file at `path`, which is `below_root` of an allowed folder, is one that other programs obey.
pub(crate) fn is_obeyed(path: &Path, below_root: &Path) -> bool {
    let is_of_agents = |part: Component<'_>| is_one_of(part.as_os_str(), &AGENT_FOLDERS);
    below_root.components().any(is_of_agents)
        || path.file_name().is_some_and(|name| is_one_of(name, &[".git"]))
        || path.ancestors().any(|folder| is_settings_of(folder, path))
}

/// Whether `path` is among the settings of the repository `folder`, if that is a repository.
fn is_settings_of(folder: &Path, path: &Path) -> bool {
    let Ok(below) = path.strip_prefix(folder) else { return false };
    below.components().any(|part| is_one_of(part.as_os_str(), &GIT_SETTINGS)) && is_repository(folder)
}

/// By its name, or by what git itself looks for: a repository may lie behind a link or have another name.
fn is_repository(folder: &Path) -> bool {
    let has = |name: &str| folder.join(name).symlink_metadata().is_ok();
    folder.file_name().is_some_and(|name| is_one_of(name, &[".git"]))
        || (has("HEAD") && (has("commondir") || (has("objects") && has("refs"))))
}

/// Some file systems do not distinguish upper and lower case.
fn is_one_of(name: &OsStr, names: &[&str]) -> bool {
    names.iter().any(|one| name.eq_ignore_ascii_case(one))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_of_repositories_and_agents_are_found_by_their_path() {
        let of = |path: &str| is_obeyed(&Path::new("/p").join(path), Path::new(path));
        for path in [
            ".git",
            "sub/.git",
            ".git/config",
            ".GIT/Config",
            ".git/hooks",
            "a/b/.git/hooks/pre-commit",
            ".git/worktrees/x/config.worktree",
            ".git/modules/x/HEAD",
            ".agents/skills/x",
            "sub/.codex/config.toml",
            ".parlor/policy.toml",
        ] {
            assert!(of(path), "{path}");
        }
        for path in ["config", "hooks/x", ".gitignore", ".github/config", ".git/info/exclude", "agents/x"] {
            assert!(!of(path), "{path}");
        }
        // An allowed folder inside of a folder of an agent can be written; one inside of a repository cannot widen that.
        assert!(!is_obeyed(Path::new("/home/.codex/worktrees/x/a"), Path::new("a")));
        assert!(is_obeyed(Path::new("/p/.git/hooks/a"), Path::new("hooks/a")));
    }
}
