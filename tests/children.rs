//! The processes that agents and clients start: their environment has few variables, they cannot gain rights, they have
//! resource limits, and the kernel kills them before parlor when memory is short. Each test starts real processes, which
//! print what they have.
#![expect(clippy::unwrap_used, reason = "a test helper that cannot go on panics, as the test would")]
#![expect(clippy::disallowed_methods, reason = "these tests start the program as a shell would")]

mod home;

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use home::{Home, PARLOR};
use parlor_testkit::copy_executable;
use serde_json::{Value, json};

/// Variables that must not reach a child: each value is a secret, or leads to one.
const SECRET_VARIABLES: [(&str, &str); 14] = [
    ("DATABASE_URL", "postgres://me:hidden-1@db/x"),
    ("GITHUB_PAT", "hidden-2"),
    ("PGPASSWORD", "hidden-3"),
    ("SSH_AUTH_SOCK", "/tmp/hidden-4"),
    ("AWS_PROFILE", "hidden-5"),
    ("AWS_SECRET_ACCESS_KEY", "hidden-6"),
    ("DBUS_SESSION_BUS_ADDRESS", "unix:path=/nowhere/hidden-7"),
    ("XDG_RUNTIME_DIR", "/nowhere/hidden-8"),
    ("HTTP_PROXY", "http://me:hidden-9@127.0.0.1:1"),
    ("https_proxy", "http://me:hidden-10@127.0.0.1:1"),
    ("KUBECONFIG", "/nowhere/hidden-11"),
    ("GPG_AGENT_INFO", "/nowhere/hidden-12"),
    ("SOMETHING_NEW", "hidden-13"),
    ("MINE_TOKEN", "hidden-14"),
];

/// Variables that do reach a child.
const PASSED_VARIABLES: [(&str, &str); 9] = [
    ("LC_TIME", "C"),
    ("TZ", "UTC"),
    ("CARGO_HOME", "/nowhere/cargo"),
    ("JAVA_HOME", "/nowhere/java"),
    ("VIRTUAL_ENV", "/nowhere/venv"),
    ("HTTPS_PROXY", "http://127.0.0.1:1"),
    // The settings name the following ones.
    ("EXACTLY_THIS_TOKEN", "wanted"),
    ("MINE_ONE", "1"),
    ("MINE_TWO", "2"),
];

/// Settings that pass some variables on.
const SETTINGS: &str = "[tools]\nenvironment = [\"EXACTLY_THIS_TOKEN\", \"MINE_*\"]\n";

/// A shell script that prints what the kernel knows of the shell itself and of a child of it.
const PRINT_LIMITS: &str = "for who in self child; do \
    [ $who = child ] && prefix='sh -c' || prefix=eval; \
    $prefix 'echo nnp=$(grep NoNewPrivs /proc/self/status | tr -dc 0-9)'; \
    $prefix 'echo oom=$(cat /proc/self/oom_score_adj)'; \
    $prefix 'echo core=$(ulimit -Sc)/$(ulimit -Hc) files=$(ulimit -Sn)/$(ulimit -Hn)'; \
    $prefix 'echo size=$(ulimit -Hf) processes=$(grep processes /proc/self/limits | tr -s \" \" | cut -d\" \" -f3,4)'; \
    done";

/// The output of a command whose environment has all these variables.
fn output_with_variables(mut command: Command) -> String {
    output_of(command.envs(SECRET_VARIABLES).envs(PASSED_VARIABLES))
}

fn assert_environment(printed: &str, started_by: &str) {
    for (name, value) in SECRET_VARIABLES {
        assert!(!printed.contains(value), "{started_by}: {name} was passed on: {printed}");
    }
    assert!(!printed.contains("hidden"), "{started_by}: {printed}");
    for (name, value) in PASSED_VARIABLES {
        assert!(
            printed.contains(name) && printed.contains(value),
            "{started_by}: {name} is missing: {printed}"
        );
    }
    assert!(printed.contains("PATH") && printed.contains("HOME"), "{started_by}: {printed}");
}

fn assert_confined(printed: &str, started_by: &str) {
    let count = |wanted: &str| printed.lines().filter(|line| line.trim() == wanted).count();
    assert_eq!(count("nnp=1"), 2, "{started_by}: {printed}");
    assert_eq!(count(&format!("oom={}", expected_oom_score())), 2, "{started_by}: {printed}");
    let hard: u64 = hard_limit("files").unwrap_or(u64::MAX).min(65_536);
    assert_eq!(count(&format!("core=0/0 files={hard}/{hard}")), 2, "{started_by}: {printed}");
    // The shell counts in blocks of 512 bytes.
    let blocks = (16_u64 << 30) / 512;
    let processes = hard_limit("processes").unwrap_or(u64::MAX).min(16_384);
    assert_eq!(
        count(&format!("size={blocks} processes={processes} {processes}")),
        2,
        "{started_by}: {printed}"
    );
}

fn expected_oom_score() -> i32 {
    let own: i32 = fs::read_to_string("/proc/self/oom_score_adj").unwrap().trim().parse().unwrap();
    (own + 500).min(1000)
}

/// The hard limit of this process, or `None` if it is unlimited.
fn hard_limit(name: &str) -> Option<u64> {
    let limits = fs::read_to_string("/proc/self/limits").unwrap();
    let line = limits.lines().find(|line| line.to_lowercase().contains(name)).unwrap().to_owned();
    let hard = line.split_whitespace().rev().nth(1).unwrap().to_owned();
    hard.parse().ok()
}

#[test]
fn commands_and_ruby_get_the_allowed_and_the_configured_variables() {
    let home = Home::new();
    home.configure("parlor.toml", SETTINGS);
    for message in ["!env", "/ruby ENV.each { |name, value| puts \"#{name}=#{value}\" }"] {
        let printed = output_with_variables(home.command(&["chat", "--agent", "local", message]));
        assert_environment(&printed, message);
        assert!(printed.contains("EXACTLY_THIS_TOKEN=wanted"), "{printed}");
    }
}

#[test]
fn background_commands_get_the_same_variables_and_limits() {
    let home = Home::new();
    // One write, since the `processes` tool returns the first output that is there.
    let command =
        "all=$(env; grep NoNewPrivs /proc/self/status; cat /proc/self/oom_score_adj); echo \"$all\"";
    let steps = format!(
        "steps = [{{ tool = \"shell\", args = {{ command = {command:?}, background = true }} }}, \
         {{ tool = \"processes\", args = {{ operation = \"read\", id = \"p1\", wait_ms = 60000 }} }}]"
    );
    home.configure("parlor.toml", &format!("{SETTINGS}[agents.s]\nkind = \"script\"\nfile = \"s.toml\"\n"));
    home.configure("s.toml", &format!("[otherwise]\n{steps}\n"));
    let printed = output_with_variables(home.command(&["chat", "--json", "--agent", "s", "go"]));
    let printed = printed.replace("\\n", "\n").replace("\\t", "\t");
    assert_environment(&printed, "background");
    assert!(printed.contains(&format!("NoNewPrivs:\t1\n{}\n", expected_oom_score())), "{printed}");
}

#[test]
fn commands_and_their_children_are_confined() {
    let home = Home::new();
    let printed =
        home.prints(&["chat", &format!("!{PRINT_LIMITS}; echo parent=$(cat /proc/$PPID/oom_score_adj)")]);
    assert_confined(&printed, "shell");
    let own = fs::read_to_string("/proc/self/oom_score_adj").unwrap();
    assert!(
        printed.contains(&format!("parent={}", own.trim())),
        "the score of parlor itself does not change: {printed}"
    );
    let ruby = format!("/ruby puts IO.popen(['sh', '-c', {PRINT_LIMITS:?}]).read");
    assert_confined(&home.prints(&["chat", &ruby]), "ruby");
}

#[test]
fn the_settings_change_the_resource_limits() {
    let home = Home::new();
    let settings = "[tools]\nmax_open_files = 64\nmax_processes = \"unlimited\"\nmax_file_size = \"1MiB\"\n";
    home.configure("parlor.toml", settings);
    let printed = home.prints(&[
        "chat",
        "!ulimit -n; ulimit -f; head -c 3000000 /dev/zero > big; wc -c < big; ulimit -n 65",
    ]);
    let lines: Vec<&str> = printed.lines().collect();
    assert_eq!(lines[..2], ["64", "2048"], "{printed}");
    assert!(printed.contains("\n1048576\n"), "the file ends at the limit: {printed}");
}

/// The client of the exec door chooses the whole environment; the other restrictions are the same.
#[test]
fn processes_of_the_exec_door_are_confined_and_get_the_clients_environment() {
    let home = Home::new();
    let mut child =
        home.command(&["stdio", "exec"]).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    for frame in [
        json!({"id": 1, "method": "initialize", "params": {"clientName": "test"}}),
        json!({"method": "initialized"}),
        json!({"id": 2, "method": "command/exec", "params": {
            "processId": "p", "argv": ["/bin/sh", "-c", format!("{PRINT_LIMITS}; env")], "cwd": "/", "tty": false,
            "env": {"PATH": "/usr/bin:/bin", "DATABASE_URL": "chosen-by-the-client"},
        }}),
    ] {
        writeln!(stdin, "{frame}").unwrap();
    }
    let mut printed = Vec::new();
    for line in BufReader::new(child.stdout.take().unwrap()).lines() {
        let frame: Value = serde_json::from_str(&line.unwrap()).unwrap();
        match frame["method"].as_str() {
            Some("command/exec/outputDelta") => {
                let chunk = frame["params"]["chunk"].as_str().unwrap();
                printed.extend(base64_simd::STANDARD.decode_to_vec(chunk).unwrap());
            }
            Some("command/exec/exited") => break,
            _ => assert_eq!(frame.get("error"), None, "{frame}"),
        }
    }
    drop(stdin);
    child.wait().unwrap();
    let printed = String::from_utf8(printed).unwrap();
    assert_confined(&printed, "exec");
    assert!(printed.contains("DATABASE_URL=chosen-by-the-client"), "{printed}");
}

/// `parlor` run by the user `nobody`.
struct Nobody {
    folder: tempfile::TempDir,
}

const NOBODY: u32 = 65_534;

impl Nobody {
    /// `None` if this process is not root and cannot switch users.
    fn new() -> Option<Self> {
        if !rustix::process::geteuid().is_root() {
            eprintln!("skipped: only root can become another user");
            return None;
        }
        let folder = tempfile::tempdir().unwrap();
        fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).unwrap();
        copy_executable(PARLOR, &folder.path().join("parlor"));
        let this = Self { folder };
        fs::create_dir(this.path("home")).unwrap();
        chown(this.path("home"), Some(NOBODY), Some(NOBODY)).unwrap();
        Some(this)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn run(&self, message: &str) -> String {
        let mut command = Command::new("setpriv");
        let user = NOBODY.to_string();
        command.args(["--reuid", &user, "--regid", &user, "--clear-groups", "--"]);
        command.arg(self.path("parlor")).args(["chat", "--agent", "local", message]);
        let path = "/usr/local/bin:/usr/bin:/bin";
        command.env_clear().env("PATH", path).env("HOME", self.path("home")).stdin(Stdio::null());
        output_of(command.current_dir(self.path("home")))
    }
}

fn output_of(command: &mut Command) -> String {
    let output = command.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// Parlor is not dumpable, so without root it cannot write to its own `/proc` files; it must set the score nevertheless.
#[test]
fn children_of_a_user_without_root_are_confined_too() {
    let Some(nobody) = Nobody::new() else { return };
    for _ in 0..5 {
        let printed = nobody.run(&format!("!{PRINT_LIMITS}; echo parent=$(cat /proc/$PPID/oom_score_adj)"));
        assert_confined(&printed, "nobody");
        let own = fs::read_to_string("/proc/self/oom_score_adj").unwrap();
        assert!(printed.contains(&format!("parent={}", own.trim())), "{printed}");
    }
}

#[test]
fn a_setuid_program_does_not_run_as_root_for_a_tool() {
    let Some(nobody) = Nobody::new() else { return };
    let id = nobody.path("id");
    copy_executable("/usr/bin/id", &id);
    fs::set_permissions(&id, fs::Permissions::from_mode(0o4755)).unwrap();
    let mut direct = Command::new("setpriv");
    direct.args(["--reuid", "65534", "--clear-groups", "--"]).arg(&id).arg("-u");
    if output_of(&mut direct).trim() != "0" {
        eprintln!("skipped: setuid programs do not work in {}", Path::new(&id).display());
        return;
    }
    assert_eq!(nobody.run(&format!("!{} -u", id.display())).lines().next(), Some("65534"));
}
