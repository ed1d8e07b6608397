//! `parlor sandbox`: what a hostile command tries and does not get, and what ordinary work needs and gets.
//!
//! Every attempt runs in the modes workspace and read-only, where it must fail, and in mode full, where it must succeed if the machine lets it:
//! an attempt that never succeeds proves nothing.
#![expect(clippy::disallowed_methods, reason = "the program is started as a shell would")]
#![expect(clippy::unwrap_used, reason = "a test helper that cannot go on panics, as the test would")]

mod attempts;
mod ordinary;
mod world;

use std::path::Path;
use std::process::Command;

use attempts::{Attempt, InFull, Proof};
use rustix::process::{Pid, Signal, kill_process};
use world::{SECRETS, World, processes_with};

/// Tries all attempts, and reports all that got out.
fn try_all(world: &World, attempts: &[Attempt]) {
    let mut wrong = Vec::new();
    for attempt in attempts {
        for mode in ["workspace", "read-only"] {
            let (escaped, shown) = escapes(world, attempt, mode);
            if escaped {
                wrong.push(format!("{}: got out of {mode}: {shown}", attempt.name));
            }
        }
        if attempt.in_full == InFull::NotTried {
            continue;
        }
        let (escaped, shown) = escapes(world, attempt, "full");
        if !escaped && attempt.in_full == InFull::Succeeds {
            wrong.push(format!("{}: does not succeed without a sandbox either: {shown}", attempt.name));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Whether the attempt gets out, and its output. Removes what it left.
fn escapes(world: &World, attempt: &Attempt, mode: &str) -> (bool, String) {
    let output = world.run(mode, attempt.script);
    let shown = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
    assert!(!shown.contains("cannot set up the sandbox"), "{}: {shown}", attempt.name);
    let escaped = match attempt.proof {
        Proof::Prints => shown.contains("ESCAPED"),
        Proof::Creates(path) => {
            let path = world.fill(path);
            let exists = Path::new(&path).exists();
            let _ = std::fs::remove_file(&path).or_else(|_| std::fs::remove_dir_all(&path));
            exists
        }
        Proof::LeavesProcess(mark) => {
            let left = processes_with(mark);
            for pid in &left {
                let _ = kill_process(Pid::from_raw(*pid).unwrap(), Signal::KILL);
            }
            for name in ["up", "twice"] {
                let _ = std::fs::remove_file(world.fill(&format!("/tmp/{{mark}}-{name}")));
            }
            !left.is_empty()
        }
    };
    (escaped, shown)
}

#[test]
fn there_are_at_least_sixty_attempts() {
    use attempts::{KERNEL, PROCESSES, READS, REPOSITORY, SOCKETS, WRITES};
    let lists = [READS, WRITES, PROCESSES, KERNEL, SOCKETS, REPOSITORY];
    let count = lists.iter().map(|list| list.len()).sum::<usize>();
    assert!(count >= 60);
    let documented = include_str!("../../docs/security.md");
    assert!(documented.contains(&format!("has {count} attempts to get out")), "docs/security.md: {count}");
}

/// Of a file that it was given to read, a command has a path of which no mount of its own knows.
#[test]
fn a_file_that_was_given_to_read_is_not_written() {
    let world = World::new();
    for (mode, is_written) in [("workspace", false), ("read-only", false), ("full", true)] {
        let mut command = world.command(mode, "echo more >> /proc/self/fd/0");
        command.stdin(std::fs::File::open(world.home().join("notes")).unwrap());
        assert_eq!(command.output().unwrap().status.success(), is_written, "{mode}");
    }
}

/// A command that would fill the disk is ended while there is still space for others.
#[test]
fn a_command_does_not_fill_the_disk() {
    let world = World::new();
    let config = "[tools]\nmin_free_disk = \"32MB\"\n";
    std::fs::write(world.home().join("state/parlor.toml"), config).unwrap();
    // It would go on for ever, also on a full disk.
    let fill = "while :; do i=$((i + 1)); head -c 1000000 /dev/zero > f$i; done";
    let mounted = "mount -t tmpfs -o size=64m tmpfs . && cd \"$PWD\" && exec \"$0\" \"$@\"";
    let sandboxed = world.command("workspace", fill);
    let mut command = Command::new("unshare");
    let flags: &[&str] = if rustix::process::geteuid().is_root() { &["-m"] } else { &["-Urm"] };
    command.args(flags).args(["sh", "-c", mounted]);
    command.arg(sandboxed.get_program()).args(sandboxed.get_args()).current_dir(world.project());
    command.env("HOME", world.home()).env("PARLOR_HOME", world.home().join("state"));
    let output = command.output().unwrap();
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(error.contains("was ended because the disk of") && error.contains("min_free_disk"), "{error}");
    assert_eq!(output.status.code(), Some(1), "{error}");
}

#[test]
fn no_secret_is_read_by_its_path() {
    let world = World::new();
    let all: Vec<String> =
        SECRETS.iter().map(|secret| format!("grep -s hidden {{home}}/{secret} && echo {secret}")).collect();
    let script = format!("{}; true", all.join("; "));
    let shown = |mode| String::from_utf8(world.run(mode, &script).stdout).unwrap();
    assert_eq!(shown("workspace"), "");
    assert_eq!(shown("read-only"), "");
    let in_full = shown("full");
    assert!(SECRETS.iter().all(|secret| in_full.contains(secret)), "{in_full}");
}

#[test]
fn no_secret_is_read_by_other_ways() {
    try_all(&World::new(), attempts::READS);
}

#[test]
fn nothing_outside_of_the_project_is_written() {
    try_all(&World::new(), attempts::WRITES);
}

#[test]
fn other_processes_are_not_reached_and_none_is_left() {
    try_all(&World::new(), attempts::PROCESSES);
}

#[test]
fn risky_parts_of_the_kernel_are_closed() {
    try_all(&World::new(), attempts::KERNEL);
}

#[test]
fn sockets_and_ports_outside_are_not_reached() {
    try_all(&World::new(), attempts::SOCKETS);
}

#[test]
fn a_repository_cannot_be_made_to_run_code_outside() {
    let world = World::new();
    ordinary::create_repository(&world.project());
    try_all(&world, attempts::REPOSITORY);
}

/// A project that is a folder of repositories, as some people have.
#[test]
fn repositories_right_below_the_project_cannot_be_made_to_run_code() {
    let world = World::new();
    let inner = world.project().join("inner");
    std::fs::create_dir(&inner).unwrap();
    ordinary::create_repository(&inner);
    for hostile in [
        "git -C inner config core.fsmonitor evil",
        "echo evil > inner/.git/hooks/pre-commit",
        "mv inner/.git inner/g",
        "mv inner other",
        "rm inner/.git/config",
    ] {
        assert!(!world.run("workspace", hostile).status.success(), "{hostile}");
    }
    world.run("workspace", "echo evil > inner/.git/commondir");
    assert!(!inner.join(".git/commondir").exists());
    let works = "cd inner && echo x > x && git add x && git commit -qm x && git log --oneline | wc -l";
    let output = world.run("workspace", works);
    assert_eq!(String::from_utf8_lossy(&output.stdout), "2\n", "{}", String::from_utf8_lossy(&output.stderr));
}

/// Git takes a folder with three such names for a repository, and obeys its `config`.
#[test]
fn the_project_itself_cannot_become_a_repository() {
    let world = World::new();
    let hostile = "mkdir objects refs && echo ref: refs/heads/main > HEAD && \
         printf '[core]\\nrepositoryformatversion = 0\\nbare = false\\nworktree = {project}\\nfsmonitor = touch ran; false\\n' > config";
    // Without a sandbox it works.
    assert!(world.run("full", hostile).status.success());
    let status = || Command::new("git").arg("status").current_dir(world.project()).output().unwrap();
    status();
    assert!(world.project().join("ran").exists());
    assert!(world.run("full", "rm -r objects refs HEAD config ran").status.success());
    assert!(world.run("workspace", hostile).status.success());
    status();
    assert!(!world.project().join("ran").exists());
}

/// A repository that the command itself creates has no hooks and no settings that start programs, when it has ended.
#[test]
fn a_new_repository_is_harmless() {
    let world = World::new();
    let hostile = "git init -q . && git config core.fsmonitor evil && echo evil > .git/hooks/pre-commit && \
         chmod +x .git/hooks/pre-commit && git config user.name kept && mkdir evil.git";
    assert!(world.run("workspace", hostile).status.success());
    let config = std::fs::read_to_string(world.project().join(".git/config")).unwrap();
    assert!(!config.contains("evil") && config.contains("kept"), "{config}");
    assert!(!world.project().join(".git/hooks/pre-commit").exists());
    let status = Command::new("git").arg("status").current_dir(world.project()).output().unwrap();
    assert!(status.status.success(), "{}", String::from_utf8_lossy(&status.stderr));
}

/// The `.git` of a linked worktree is a file. Commits work, but the file and the settings of the repository are protected.
#[test]
fn a_worktree_commits_and_cannot_change_its_repository() {
    let world = World::new();
    let main = world.home().join("main");
    std::fs::create_dir(&main).unwrap();
    ordinary::create_repository(&main);
    std::fs::remove_dir_all(world.project()).unwrap();
    let added = Command::new("git")
        .args(["worktree", "add", "-q"])
        .arg(world.project())
        .current_dir(&main)
        .output()
        .unwrap();
    assert!(added.status.success(), "{}", String::from_utf8_lossy(&added.stderr));
    let output = world
        .run("workspace", "echo x > new && git add new && git commit -qm new && git log --oneline | wc -l");
    assert_eq!(String::from_utf8_lossy(&output.stdout), "2\n", "{}", String::from_utf8_lossy(&output.stderr));
    for hostile in [
        "echo 'gitdir: evil' > .git",
        "rm .git",
        "mv .git g",
        "git config core.fsmonitor evil",
        "echo evil > {home}/main/.git/hooks/pre-commit",
        "touch {home}/main/file",
        "echo /evil > {home}/main/.git/worktrees/project/commondir",
    ] {
        assert!(!world.run("workspace", hostile).status.success(), "{hostile}");
    }
}

#[test]
fn a_read_only_project_is_not_written() {
    let world = World::new();
    ordinary::create_repository(&world.project());
    for write in ["touch new", "echo x > .git/HEAD", "rm -rf .agents", "git commit -qm x --allow-empty"] {
        assert!(!world.run("read-only", write).status.success(), "{write}");
    }
    let read = world.run("read-only", "git log --oneline && touch /tmp/x && ls");
    assert!(read.status.success(), "{}", String::from_utf8_lossy(&read.stderr));
}

#[test]
fn streams_and_exit_status_are_passed_through() {
    use std::io::Write;
    use std::process::Stdio;
    let world = World::new();
    for mode in ["read-only", "workspace", "full"] {
        let mut command = world.command(mode, "cat; echo err >&2; exit 7");
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        child.stdin.take().unwrap().write_all(b"in\n").unwrap();
        let output = child.wait_with_output().unwrap();
        assert_eq!((&output.stdout[..], &output.stderr[..]), (&b"in\n"[..], &b"err\n"[..]), "{mode}");
        assert_eq!(output.status.code(), Some(7), "{mode}");
        assert_eq!(world.run(mode, "kill -TERM $$").status.code(), Some(143), "{mode}");
    }
}

#[test]
fn errors_name_the_problem() {
    let world = World::new();
    let mut command = world.command("workspace", "");
    let output = command.args(["--"]).output().unwrap();
    assert!(output.status.success(), "arguments after -- belong to the command");
    let run = |args: &[&str]| {
        let mut command = Command::new(world::PARLOR);
        command.args(args).current_dir(world.project()).env("HOME", world.home());
        let output = command.env("PARLOR_HOME", world.home().join("state")).output().unwrap();
        (output.status.code(), String::from_utf8(output.stderr).unwrap())
    };
    let (code, error) = run(&["sandbox", "--", "/no/such/program"]);
    assert!(code == Some(1) && error.contains("/no/such/program"), "{error}");
    let (code, error) = run(&["sandbox", "--cwd", "/", "--", "true"]);
    assert!(code == Some(1) && error.contains("choose a folder of your own"), "{error}");
    let (_, error) = run(&["sandbox", "--mode", "open", "--", "true"]);
    assert!(error.contains("read-only, workspace, full"), "{error}");
    std::os::unix::fs::symlink("elsewhere", world.project().join(".codex")).unwrap();
    let (code, error) = run(&["sandbox", "--", "true"]);
    assert!(code == Some(1) && error.contains("is a symbolic link"), "{error}");
}
