//! What the processes that agents and clients start are given: few variables, no way to more rights, limits, and the
//! first place when memory is short. Each test starts real ones and lets them tell.
#![expect(clippy::unwrap_used, reason = "a helper of a test that cannot go on panics, as the test would")]
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

/// What must not reach a child, with something that is a secret or a way to one.
const KEPT: [(&str, &str); 14] = [
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

/// What does reach it.
const GIVEN: [(&str, &str); 9] = [
    ("LC_TIME", "C"),
    ("TZ", "UTC"),
    ("CARGO_HOME", "/nowhere/cargo"),
    ("JAVA_HOME", "/nowhere/java"),
    ("VIRTUAL_ENV", "/nowhere/venv"),
    ("HTTPS_PROXY", "http://127.0.0.1:1"),
    // These are named in the settings.
    ("EXACTLY_THIS_TOKEN", "wanted"),
    ("MINE_ONE", "1"),
    ("MINE_TWO", "2"),
];

/// The settings of these tests.
const SETTINGS: &str = "[tools]\nenvironment = [\"EXACTLY_THIS_TOKEN\", \"MINE_*\"]\n";

/// Tells what the kernel says of the process itself and of one that it starts.
const TELL: &str = "for who in self child; do \
    [ $who = child ] && prefix='sh -c' || prefix=eval; \
    $prefix 'echo nnp=$(grep NoNewPrivs /proc/self/status | tr -dc 0-9)'; \
    $prefix 'echo oom=$(cat /proc/self/oom_score_adj)'; \
    $prefix 'echo core=$(ulimit -Sc)/$(ulimit -Hc) files=$(ulimit -Sn)/$(ulimit -Hn)'; \
    $prefix 'echo size=$(ulimit -Hf) processes=$(grep processes /proc/self/limits | tr -s \" \" | cut -d\" \" -f3,4)'; \
    done";

/// What the program prints that has all these variables.
fn told_with_variables(mut command: Command) -> String {
    output_of(command.envs(KEPT).envs(GIVEN))
}

fn assert_environment(told: &str, how: &str) {
    for (name, value) in KEPT {
        assert!(!told.contains(value), "{how}: {name} is there: {told}");
    }
    assert!(!told.contains("hidden"), "{how}: {told}");
    for (name, value) in GIVEN {
        assert!(told.contains(name) && told.contains(value), "{how}: {name} is missing: {told}");
    }
    assert!(told.contains("PATH") && told.contains("HOME"), "{how}: {told}");
}

fn assert_confined(told: &str, how: &str) {
    let count = |line: &str| told.lines().filter(|told| told.trim() == line).count();
    assert_eq!(count("nnp=1"), 2, "{how}: {told}");
    assert_eq!(count(&format!("oom={}", childrens_score())), 2, "{how}: {told}");
    let hard: u64 = limit("files").unwrap_or(u64::MAX).min(65_536);
    assert_eq!(count(&format!("core=0/0 files={hard}/{hard}")), 2, "{how}: {told}");
    // The shell counts in blocks of 512 bytes.
    let blocks = (16_u64 << 30) / 512;
    let processes = limit("processes").unwrap_or(u64::MAX).min(16_384);
    assert_eq!(count(&format!("size={blocks} processes={processes} {processes}")), 2, "{how}: {told}");
}

fn childrens_score() -> i32 {
    let own: i32 = fs::read_to_string("/proc/self/oom_score_adj").unwrap().trim().parse().unwrap();
    (own + 500).min(1000)
}

/// Our own hard limit.
fn limit(what: &str) -> Option<u64> {
    let limits = fs::read_to_string("/proc/self/limits").unwrap();
    let line = limits.lines().find(|line| line.to_lowercase().contains(what)).unwrap().to_owned();
    let hard = line.split_whitespace().rev().nth(1).unwrap().to_owned();
    hard.parse().ok()
}

#[test]
fn commands_and_ruby_get_few_variables_and_those_that_are_named() {
    let home = Home::new();
    home.configure("parlor.toml", SETTINGS);
    for order in ["!env", "/ruby ENV.each { |name, value| puts \"#{name}=#{value}\" }"] {
        let told = told_with_variables(home.command(&["chat", "--agent", "local", order]));
        assert_environment(&told, order);
        assert!(told.contains("EXACTLY_THIS_TOKEN=wanted"), "{told}");
    }
}

#[test]
fn background_commands_get_them_too() {
    let home = Home::new();
    // All at once: a reader is told of what is there first.
    let command =
        "told=$(env; grep NoNewPrivs /proc/self/status; cat /proc/self/oom_score_adj); echo \"$told\"";
    let steps = format!(
        "steps = [{{ tool = \"shell\", args = {{ command = {command:?}, background = true }} }}, \
         {{ tool = \"processes\", args = {{ operation = \"read\", id = \"p1\", wait_ms = 60000 }} }}]"
    );
    home.configure("parlor.toml", &format!("{SETTINGS}[agents.s]\nkind = \"script\"\nfile = \"s.toml\"\n"));
    home.configure("s.toml", &format!("[otherwise]\n{steps}\n"));
    let told = told_with_variables(home.command(&["chat", "--json", "--agent", "s", "go"]));
    let told = told.replace("\\n", "\n").replace("\\t", "\t");
    assert_environment(&told, "background");
    assert!(told.contains(&format!("NoNewPrivs:\t1\n{}\n", childrens_score())), "{told}");
}

#[test]
fn commands_are_confined_with_all_that_they_start() {
    let home = Home::new();
    let told = home.prints(&["chat", &format!("!{TELL}; echo parent=$(cat /proc/$PPID/oom_score_adj)")]);
    assert_confined(&told, "shell");
    let own = fs::read_to_string("/proc/self/oom_score_adj").unwrap();
    assert!(told.contains(&format!("parent={}", own.trim())), "parlor itself stays as it is: {told}");
    let ruby = format!("/ruby puts IO.popen(['sh', '-c', {TELL:?}]).read");
    assert_confined(&home.prints(&["chat", &ruby]), "ruby");
}

#[test]
fn limits_are_raised_and_lowered_by_settings_and_hold() {
    let home = Home::new();
    let settings = "[tools]\nmax_open_files = 64\nmax_processes = \"unlimited\"\nmax_file_size = \"1MiB\"\n";
    home.configure("parlor.toml", settings);
    let told = home.prints(&[
        "chat",
        "!ulimit -n; ulimit -f; head -c 3000000 /dev/zero > big; wc -c < big; ulimit -n 65",
    ]);
    let lines: Vec<&str> = told.lines().collect();
    assert_eq!(lines[..2], ["64", "2048"], "{told}");
    assert!(told.contains("\n1048576\n"), "the file ends at the limit: {told}");
}

/// The exec door: the client chooses the whole environment, and everything else holds there as well.
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
            "processId": "p", "argv": ["/bin/sh", "-c", format!("{TELL}; env")], "cwd": "/", "tty": false,
            "env": {"PATH": "/usr/bin:/bin", "DATABASE_URL": "chosen-by-the-client"},
        }}),
    ] {
        writeln!(stdin, "{frame}").unwrap();
    }
    let mut told = Vec::new();
    for line in BufReader::new(child.stdout.take().unwrap()).lines() {
        let frame: Value = serde_json::from_str(&line.unwrap()).unwrap();
        match frame["method"].as_str() {
            Some("command/exec/outputDelta") => {
                let chunk = frame["params"]["chunk"].as_str().unwrap();
                told.extend(base64_simd::STANDARD.decode_to_vec(chunk).unwrap());
            }
            Some("command/exec/exited") => break,
            _ => assert_eq!(frame.get("error"), None, "{frame}"),
        }
    }
    drop(stdin);
    child.wait().unwrap();
    let told = String::from_utf8(told).unwrap();
    assert_confined(&told, "exec");
    assert!(told.contains("DATABASE_URL=chosen-by-the-client"), "{told}");
}

/// The program as another user runs it, who may not do what root may.
struct Nobody {
    folder: tempfile::TempDir,
}

const NOBODY: u32 = 65_534;

impl Nobody {
    /// None where this cannot be tried.
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

/// Nobody can look into parlor, not even itself: the score must be set all the same.
#[test]
fn a_user_who_is_not_root_has_children_that_go_first_too() {
    let Some(nobody) = Nobody::new() else { return };
    for _ in 0..5 {
        let told = nobody.run(&format!("!{TELL}; echo parent=$(cat /proc/$PPID/oom_score_adj)"));
        assert_confined(&told, "nobody");
        let own = fs::read_to_string("/proc/self/oom_score_adj").unwrap();
        assert!(told.contains(&format!("parent={}", own.trim())), "{told}");
    }
}

#[test]
fn a_program_that_runs_as_root_for_everybody_does_not_for_a_tool() {
    let Some(nobody) = Nobody::new() else { return };
    let id = nobody.path("id");
    copy_executable("/usr/bin/id", &id);
    fs::set_permissions(&id, fs::Permissions::from_mode(0o4755)).unwrap();
    let mut direct = Command::new("setpriv");
    direct.args(["--reuid", "65534", "--clear-groups", "--"]).arg(&id).arg("-u");
    if output_of(&mut direct).trim() != "0" {
        eprintln!("skipped: nothing can run as its owner in {}", Path::new(&id).display());
        return;
    }
    assert_eq!(nobody.run(&format!("!{} -u", id.display())).lines().next(), Some("65534"));
}
