use super::*;

#[test]
fn settings_that_start_programs_are_removed() {
    let harmless = "[core]\n\tbare = false\n[remote \"origin\"]\n\turl = https://example.com/a.git\n";
    assert_eq!(harmless_settings(harmless), harmless);
    for evil in [
        "[core]\n\tfsmonitor = evil\n",
        "[core] fsmonitor = evil\n",
        "[core]\n\tbare = false \\\n\tfsmonitor = evil\n",
        "[CORE]\n\tsshCommand = evil\n",
        "[remote \"a]\n[core]\n\tfsmonitor = evil\"]\n",
        "[include]\n\tpath = evil\n",
        "[alias]\n\tst = !evil\n",
        "[filter \"x\"]\n\tclean = evil\n",
        "[extensions]\n\tworktreeConfig = true\n",
    ] {
        let left = harmless_settings(evil);
        assert!(!left.contains("evil") && !left.contains("worktreeConfig"), "{evil} {left}");
    }
}

/// The names in `folder` that begin with `start`.
fn names(folder: &Path, start: &str) -> Vec<String> {
    let names = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    names.filter(|name| name.starts_with(start)).collect()
}

#[test]
fn what_a_command_created_is_put_aside() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    let guard = GitPaths::of(folder.path()).unwrap().guard;
    for name in [".codex", ".parlor/skills", ".git/hooks"] {
        fs::create_dir_all(at(name)).unwrap();
    }
    fs::write(at(".git/hooks/pre-commit"), "evil").unwrap();
    fs::write(at(".git/commondir"), "../evil").unwrap();
    fs::write(at(".git/config"), "[core]\n\tfsmonitor = evil\n\tbare = false\n").unwrap();
    guard.check().unwrap();
    assert!(!at(".codex").exists() && names(folder.path(), ".codex.blocked-").len() == 1);
    assert!(!at(".parlor").exists() && names(folder.path(), ".parlor.blocked-").len() == 1);
    assert!(!at(".git/hooks").exists() && names(&at(".git"), "hooks.blocked-").len() == 1);
    assert!(!at(".git/commondir").exists());
    assert_eq!(fs::read_to_string(at(".git/config")).unwrap(), "[core]\n\tbare = false\n");
    fs::create_dir(at(".codex")).unwrap();
    guard.check().unwrap();
    assert_eq!(names(folder.path(), ".codex.blocked-").len(), 2);
}

#[test]
fn occupied_names_keep_nothing_in_place() {
    let folder = tempfile::tempdir().unwrap();
    let guard = GitPaths::of(folder.path()).unwrap().guard;
    fs::write(folder.path().join(".codex"), "evil").unwrap();
    fs::write(folder.path().join(".codex.blocked"), "").unwrap();
    for number in 2..=1000 {
        fs::write(folder.path().join(format!(".codex.blocked.{number}")), "").unwrap();
    }
    guard.check().unwrap();
    assert!(!folder.path().join(".codex").exists());
}

/// Runs `check` on a thread whose accesses to files are those of `nobody`, if the test runs as root.
#[expect(unsafe_code, reason = "the standard library cannot change the user of a thread")]
fn as_nobody(folder: &Path, check: impl FnOnce() + Send) {
    const NOBODY: u32 = 65534;
    let is_root = rustix::process::geteuid().is_root();
    let give = |path: &Path| std::os::unix::fs::lchown(path, Some(NOBODY), None).unwrap();
    if is_root {
        let mut folders = vec![folder.to_path_buf()];
        while let Some(folder) = folders.pop() {
            give(&folder);
            for entry in fs::read_dir(&folder).unwrap().flatten() {
                give(&entry.path());
                folders.extend(entry.file_type().unwrap().is_dir().then(|| entry.path()));
            }
        }
    }
    std::thread::scope(|scope| {
        let thread = scope.spawn(|| {
            if is_root {
                // SAFETY: a plain system call, which changes this thread only.
                unsafe { libc::setfsuid(NOBODY) };
            }
            check();
        });
        thread.join().expect("the check does not panic");
    });
}

#[test]
fn closed_folders_keep_nothing_in_place() {
    for mode in [0o555, 0o000] {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        fs::create_dir_all(at(".git/hooks")).unwrap();
        fs::write(at(".git/config"), "").unwrap();
        let guard = GitPaths::of(folder.path()).unwrap().guard;
        fs::create_dir_all(at(".codex/skills")).unwrap();
        fs::write(at(".git/commondir"), "../evil").unwrap();
        as_nobody(folder.path(), || {
            for name in [".codex", ".git", "."] {
                fs::set_permissions(at(name), fs::Permissions::from_mode(mode)).unwrap();
            }
            guard.check().unwrap();
        });
        fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o700)).unwrap();
        assert!(!at(".codex").exists() && !at(".git/commondir").exists(), "{mode:o}");
    }
}

#[test]
fn what_cannot_be_put_aside_is_an_error() {
    let guard = Guard { missing: vec!["/proc/self/status".into()], not_bare: None };
    assert!(guard.check().unwrap_err().contains("agent here: /proc/self/status: "));
}

#[test]
fn settings_that_cannot_be_read_are_not_kept() {
    let long = format!("[core]\n\tfsmonitor = evil\n#{}", "x".repeat(MAX_SETTINGS_BYTES as usize));
    for evil in [b"[core]\n\tfsmonitor = evil\n#\xff".as_slice(), long.as_bytes()] {
        let folder = tempfile::tempdir().unwrap();
        let guard = GitPaths::of(folder.path()).unwrap().guard;
        fs::create_dir(folder.path().join(".git")).unwrap();
        fs::write(folder.path().join(".git/config"), evil).unwrap();
        guard.check().unwrap();
        assert_eq!(fs::read_to_string(folder.path().join(".git/config")).unwrap(), "");
    }
}

#[test]
fn settings_that_are_a_pipe_do_not_block() {
    let folder = tempfile::tempdir().unwrap();
    let guard = GitPaths::of(folder.path()).unwrap().guard;
    fs::create_dir(folder.path().join(".git")).unwrap();
    let pipe = folder.path().join(".git/config");
    rustix::fs::mknodat(rustix::fs::CWD, &pipe, rustix::fs::FileType::Fifo, Mode::RWXU, 0).unwrap();
    guard.check().unwrap();
    assert_eq!(kind(&pipe), Kind::File);
}

#[test]
fn a_link_in_place_of_the_settings_is_not_followed() {
    let folder = tempfile::tempdir().unwrap();
    let own = folder.path().join("own");
    fs::write(&own, "of the user").unwrap();
    let project = folder.path().join("project");
    fs::create_dir_all(&project).unwrap();
    let guard = GitPaths::of(&project).unwrap().guard;
    let git = project.join(".git");
    fs::create_dir(&git).unwrap();
    std::os::unix::fs::symlink(&own, git.join("config")).unwrap();
    fs::write(git.join("config.blocked"), "").unwrap();
    for number in 2..=1000 {
        fs::write(git.join(format!("config.blocked.{number}")), "").unwrap();
    }
    guard.check().unwrap();
    assert_eq!(fs::read_to_string(&own).unwrap(), "of the user");
    assert_eq!(kind(&git.join("config")), Kind::File);
}

#[test]
fn a_project_does_not_become_a_bare_repository() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    let guard = GitPaths::of(folder.path()).unwrap().guard;
    fs::write(at("HEAD"), "ref: refs/heads/main").unwrap();
    guard.check().unwrap();
    assert!(at("HEAD").exists(), "a file as any other");
    for name in ["objects", "refs"] {
        fs::create_dir(at(name)).unwrap();
    }
    fs::write(at("config"), "[core]\n\tfsmonitor = evil\n\tworktree = .\n").unwrap();
    guard.check().unwrap();
    assert!(!at("HEAD").exists() && names(folder.path(), "HEAD.blocked-").len() == 1);
    fs::write(at("HEAD"), "ref: refs/heads/main").unwrap();
    let paths = GitPaths::of(folder.path()).unwrap();
    assert_eq!(paths.guard.not_bare, None);
    assert!(paths.protected.contains(&at("config")) && paths.protected.contains(&at("hooks")));
}

#[test]
fn repositories_below_a_project_are_protected() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    for name in ["a", "b"] {
        fs::create_dir_all(at(name).join(".git/hooks")).unwrap();
        fs::write(at(name).join(".git/config"), "").unwrap();
    }
    fs::create_dir(at("worktree")).unwrap();
    fs::write(at("worktree/.git"), "gitdir: elsewhere").unwrap();
    let paths = GitPaths::of(folder.path()).unwrap();
    for name in ["a/.git/config", "a/.git/hooks", "b/.git/config", "worktree/.git"] {
        assert!(paths.protected.contains(&at(name)), "{name}");
    }
    assert!(paths.guard.missing.contains(&at("b/.git/commondir")));
    for number in 0..MAX_NESTED_REPOSITORIES {
        fs::create_dir_all(at(&format!("many{number}/.git"))).unwrap();
    }
    let error = GitPaths::of(folder.path()).unwrap_err();
    assert!(error.to_string().contains("at most 128 can be protected"), "{error}");
}

#[test]
fn a_git_file_makes_no_folder_writable_that_does_not_know_it() {
    let folder = tempfile::tempdir().unwrap();
    let root = fs::canonicalize(folder.path()).unwrap();
    let (project, other) = (root.join("project"), root.join("other/worktrees/x"));
    fs::create_dir_all(&project).unwrap();
    fs::create_dir_all(&other).unwrap();
    fs::write(project.join(".git"), format!("gitdir: {}\n", other.display())).unwrap();
    fs::write(other.join("commondir"), "../..\n").unwrap();
    assert!(GitPaths::of(&project).unwrap().pinned.is_empty());
    fs::write(other.join("gitdir"), format!("{}\n", root.join("elsewhere/.git").display())).unwrap();
    assert!(GitPaths::of(&project).unwrap().pinned.is_empty());
    fs::write(other.join("gitdir"), format!("{}\n", project.join(".git").display())).unwrap();
    fs::write(root.join("other/config"), "").unwrap();
    assert_eq!(GitPaths::of(&project).unwrap().pinned, [root.join("other")]);
}
