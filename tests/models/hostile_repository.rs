//! A hostile repository: its instruction files and skills are links to private files of the user. The model server
//! must never receive their content.
#![expect(clippy::unwrap_used, reason = "test helpers panic on failure, as the tests do")]

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use rustix::fs::{CWD, FileType, Mode, mknodat};
use serde_json::{Value, json};

use crate::api_format::ApiFormat;
use crate::home::Home;
use crate::scripted_server::{Reply, ScriptedServer};

/// The content of the user's private SSH key.
const SSH_KEY: &str = "private-ssh-key-of-the-user";
/// A key in parlor's store of secrets.
const STORED_KEY: &str = "stored-by-parlor-0123456789";
/// The value of an environment variable of parlor.
const VARIABLE_VALUE: &str = "value-of-a-variable-of-parlor";
/// The content of a harmless file of the project.
const PROJECT_TEXT: &str = "Use tabs in this project.";

/// The user trusts every project, so that its files are read.
const TRUST: &str = "[policy]\nallow = [{ tool = \"trust_project\" }]\n";

/// A user with secrets, a repository, and a model server with scripted answers.
struct Attack {
    home: Home,
    server: ScriptedServer,
}

impl Attack {
    fn new(answers: Vec<String>) -> Self {
        let server = ScriptedServer::start(answers.into_iter().map(Reply::Stream).collect());
        let home = ApiFormat::Chat.home(&server.url, TRUST);
        let attack = Self { home, server };
        for folder in ["user/.ssh", "state/secrets", "repository/.git"] {
            fs::create_dir_all(attack.path(folder)).unwrap();
        }
        attack.write("user/.ssh/id_ed25519", SSH_KEY);
        attack.write("state/secrets/key-exa", STORED_KEY);
        let private = |path: &str, mode| {
            fs::set_permissions(attack.path(path), fs::Permissions::from_mode(mode)).unwrap();
        };
        private("state/secrets", 0o700);
        private("state/secrets/key-exa", 0o600);
        attack
    }

    fn with_one_answer() -> Self {
        Self::new(vec![ApiFormat::Chat.text("Hello.") + &ApiFormat::Chat.end()])
    }

    fn path(&self, path: &str) -> PathBuf {
        self.home.folder().join(path)
    }

    fn write(&self, path: &str, text: &str) {
        let path = self.path(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    fn link(&self, target: impl AsRef<Path>, path: &str) {
        let path = self.path("repository").join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        symlink(target, path).unwrap();
    }

    fn command(&self, args: &[&str]) -> Command {
        let mut command = self.home.command(args);
        command.env("HOME", self.path("user")).env("A_VARIABLE", VARIABLE_VALUE);
        command.current_dir(self.path("repository"));
        command
    }

    fn run(&self, args: &[&str]) -> Output {
        self.command(args).output().unwrap()
    }

    /// Sends a message that mentions the skill; returns the request to the model and stderr.
    fn send_hello(&self) -> (String, String) {
        let output = self.run(&["chat", "hello, use $deploy"]);
        let stderr = String::from_utf8(output.stderr).unwrap();
        assert_eq!(String::from_utf8(output.stdout).unwrap(), "Hello.\n", "the run goes on: {stderr}");
        let bodies = self.server.bodies();
        assert_eq!(bodies.len(), 1, "{stderr}");
        let sent = bodies[0].to_string();
        assert!(sent.contains("hello, use $deploy"), "{sent}");
        (sent, stderr)
    }

    fn assert_no_secret(text: &str, trap: &str) {
        for secret in [SSH_KEY, STORED_KEY, VARIABLE_VALUE, "base_url"] {
            assert!(!text.contains(secret), "{trap}: {secret} is in {text}");
        }
    }
}

/// Creates the files of a trap.
type CreateTrap = fn(&Attack);

/// The name of each trap, the file that the warning must name, and its files.
const TRAPS: [(&str, &str, CreateTrap); 19] = [
    ("a key", "AGENTS.md", |attack| attack.link(attack.path("user/.ssh/id_ed25519"), "AGENTS.md")),
    ("a key by ..", "AGENTS.md", |attack| attack.link("../user/.ssh/id_ed25519", "AGENTS.md")),
    ("parlor's secrets", "AGENTS.md", |attack| {
        attack.link(attack.path("state/secrets/key-exa"), "AGENTS.md")
    }),
    ("parlor's settings", "AGENTS.md", |attack| attack.link("../state/parlor.toml", "AGENTS.md")),
    ("the environment", "AGENTS.md", |attack| attack.link("/proc/self/environ", "AGENTS.md")),
    ("the environment of the parent", "AGENTS.md", |attack| {
        attack.link("/proc/self/root/proc/self/environ", "AGENTS.md");
    }),
    ("an open folder", "AGENTS.md", |attack| {
        attack.link("/proc/self/cwd/../user/.ssh/id_ed25519", "AGENTS.md");
    }),
    ("a chain", "AGENTS.md", |attack| {
        attack.link("docs/one", "AGENTS.md");
        attack.link("two", "docs/one");
        attack.link("../../user/.ssh/id_ed25519", "docs/two");
    }),
    ("a folder on the way", "AGENTS.md", |attack| {
        attack.link("docs/id_ed25519", "AGENTS.md");
        attack.link("../user/.ssh", "docs");
    }),
    ("a loop", "AGENTS.md", |attack| attack.link("AGENTS.md", "AGENTS.md")),
    ("a device", "AGENTS.md", |attack| attack.link("/dev/zero", "AGENTS.md")),
    ("a FIFO", "AGENTS.md", |attack| create_fifo(&attack.path("repository/AGENTS.md"))),
    ("a skill", "deploy/SKILL.md", |attack| {
        attack.link(attack.path("user/.ssh/id_ed25519"), ".agents/skills/deploy/SKILL.md");
    }),
    ("a skill of parlor", "deploy/SKILL.md", |attack| {
        attack.link("../../../../state/secrets/key-exa", ".parlor/skills/deploy/SKILL.md");
    }),
    ("a skill that is the environment", "deploy/SKILL.md", |attack| {
        attack.link("/proc/self/environ", ".agents/skills/deploy/SKILL.md");
    }),
    ("a skill that is a FIFO", "deploy/SKILL.md", |attack| {
        fs::create_dir_all(attack.path("repository/.agents/skills/deploy")).unwrap();
        create_fifo(&attack.path("repository/.agents/skills/deploy/SKILL.md"));
    }),
    ("the folder of a skill", "skills/deploy", |attack| {
        attack.write("user/notes/SKILL.md", SSH_KEY);
        attack.link(attack.path("user/notes"), ".agents/skills/deploy");
    }),
    ("the folder of skills", ".agents/skills", |attack| {
        attack.write("user/notes/deploy/SKILL.md", SSH_KEY);
        attack.link("../../user/notes", ".agents/skills");
    }),
    ("the folder above", ".agents/skills", |attack| {
        attack.write("user/notes/skills/deploy/SKILL.md", SSH_KEY);
        attack.link("../user/notes", ".agents");
    }),
];

fn create_fifo(path: &Path) {
    mknodat(CWD, path, FileType::Fifo, Mode::from_raw_mode(0o600), 0).unwrap();
}

#[test]
fn links_out_of_a_repository_send_nothing_to_the_model() {
    for (trap, file, create) in TRAPS {
        let attack = Attack::with_one_answer();
        create(&attack);
        let (sent, stderr) = attack.send_hello();
        Attack::assert_no_secret(&sent, trap);
        Attack::assert_no_secret(&stderr, trap);
        assert!(stderr.contains(file) && stderr.contains("was not read"), "{trap}: {stderr}");
    }
}

#[test]
fn links_within_a_repository_are_followed() {
    for absolute in [false, true] {
        let attack = Attack::with_one_answer();
        attack.write("repository/docs/guide.md", PROJECT_TEXT);
        attack.write("repository/tools/skills/deploy/SKILL.md", "Push the button twice.");
        let target = |path: &str, up: &str| {
            if absolute { attack.path("repository").join(path) } else { Path::new(up).join(path) }
        };
        attack.link(target("docs/guide.md", ""), "AGENTS.md");
        attack.link(target("tools/skills", ".."), ".agents/skills");
        let (sent, stderr) = attack.send_hello();
        assert!(sent.contains(PROJECT_TEXT) && sent.contains("Push the button twice."), "{sent}");
        assert!(!stderr.contains("was not read"), "{stderr}");
    }
}

#[test]
fn a_link_in_a_subfolder_may_point_anywhere_in_the_project() {
    let attack = Attack::with_one_answer();
    attack.write("repository/guide.md", PROJECT_TEXT);
    attack.write("repository/sub/deep/code.rs", "");
    attack.link("../../guide.md", "sub/deep/AGENTS.md");
    let output = attack.command(&["chat", "hello"]).current_dir(attack.path("repository/sub/deep")).output();
    assert_eq!(String::from_utf8(output.unwrap().stdout).unwrap(), "Hello.\n");
    assert!(attack.server.bodies()[0].to_string().contains(PROJECT_TEXT));
}

/// An unpacked archive has no `.git`, and the user's home folder is a git repository.
#[test]
fn a_home_folder_in_git_does_not_count_as_the_project_of_its_subfolders() {
    let attack = Attack::with_one_answer();
    fs::create_dir_all(attack.path("user/.git")).unwrap();
    attack.write("user/AGENTS.md", PROJECT_TEXT);
    attack.write("user/unpacked/code.rs", "");
    symlink("../.ssh/id_ed25519", attack.path("user/unpacked/AGENTS.md")).unwrap();
    let output =
        attack.command(&["chat", "hello"]).current_dir(attack.path("user/unpacked")).output().unwrap();
    let sent = attack.server.bodies()[0].to_string();
    Attack::assert_no_secret(&sent, "a home in git");
    assert!(sent.contains(PROJECT_TEXT), "the instructions of the home folder are read: {sent}");
    assert!(String::from_utf8(output.stderr).unwrap().contains("was not read"));
}

/// The state folder is inside the project, so a link to it does not leave the project.
#[test]
fn a_link_to_the_state_folder_within_the_project_is_not_followed() {
    for target in ["state/secrets/key-exa", "state/parlor.toml", "link/key-exa"] {
        let attack = Attack::with_one_answer();
        let project = attack.home.folder();
        fs::create_dir_all(project.join(".git")).unwrap();
        symlink("state/secrets", project.join("link")).unwrap();
        symlink(target, project.join("AGENTS.md")).unwrap();
        let output = attack.command(&["chat", "hello"]).current_dir(project).output().unwrap();
        let stderr = String::from_utf8(output.stderr).unwrap();
        Attack::assert_no_secret(&attack.server.bodies()[0].to_string(), target);
        assert!(stderr.contains("AGENTS.md was not read"), "{target}: {stderr}");
    }
}

#[test]
fn the_users_own_files_may_link_anywhere() {
    let attack = Attack::with_one_answer();
    attack.write("dotfiles/AGENTS.md", PROJECT_TEXT);
    attack.write("dotfiles/skills/deploy/SKILL.md", "Push the button twice.");
    symlink("../dotfiles/AGENTS.md", attack.path("state/AGENTS.md")).unwrap();
    fs::create_dir_all(attack.path("user/.agents")).unwrap();
    symlink(attack.path("dotfiles/skills"), attack.path("user/.agents/skills")).unwrap();
    let (sent, stderr) = attack.send_hello();
    assert!(sent.contains(PROJECT_TEXT) && sent.contains("Push the button twice."), "{sent}");
    assert!(!stderr.contains("was not read"), "{stderr}");
}

#[test]
fn secrets_in_instructions_and_skills_are_redacted() {
    let attack = Attack::with_one_answer();
    attack.write("repository/AGENTS.md", &format!("The key is {STORED_KEY}, and that is all."));
    attack.write("repository/.agents/skills/deploy/SKILL.md", &format!("Log in with {STORED_KEY} first."));
    let (sent, _) = attack.send_hello();
    assert!(!sent.contains(STORED_KEY), "{sent}");
    assert!(sent.contains("The key is [secret], and that is all."), "{sent}");
    assert!(sent.contains("Log in with [secret] first."), "{sent}");
}

#[test]
fn the_loaf_door_lists_no_skill_that_is_a_link_out_of_the_repository() {
    let attack = Attack::new(Vec::new());
    attack.link(attack.path("user/.ssh/id_ed25519"), ".agents/skills/deploy/SKILL.md");
    attack.write("repository/.agents/skills/build/SKILL.md", "How to build.");
    let mut child =
        attack.command(&["stdio", "loaf"]).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let request = json!({"jsonrpc": "2.0", "id": 7, "method": "skills.list", "params": {}});
    let mut stdin = child.stdin.take().unwrap();
    writeln!(stdin, "{request}").unwrap();
    let lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let answer: Value = lines
        .map(|line| serde_json::from_str::<Value>(&line.unwrap()).unwrap())
        .find(|line| line["id"] == 7)
        .unwrap();
    drop(stdin);
    child.wait().unwrap();
    Attack::assert_no_secret(&answer.to_string(), "skills.list");
    let skills = answer["result"]["skills"].as_array().unwrap();
    assert_eq!(skills.iter().map(|skill| &skill["name"]).collect::<Vec<_>>(), ["build"]);
    assert!(answer["result"]["errors"].to_string().contains("deploy/SKILL.md was not read"), "{answer}");
}

/// A manipulated model tries to write settings that send the key to another server.
#[test]
fn a_model_cannot_write_into_the_state_folder() {
    for (tool, input) in [
        ("write_file", json!({"path": "state/parlor.toml", "content": "stolen"})),
        ("write_file", json!({"path": "link/new/file", "content": "stolen"})),
        ("edit_file", json!({"path": "state/parlor.toml", "old_text": "base_url", "new_text": "stolen"})),
        ("read_file", json!({"path": "state/secrets/key-exa"})),
        ("read_file", json!({"path": "link/parlor.toml"})),
        ("grep_files", json!({"pattern": "stored-by", "path": "state"})),
    ] {
        let answers = vec![
            ApiFormat::Chat.call(tool, &input.to_string()),
            ApiFormat::Chat.text("Done.") + &ApiFormat::Chat.end(),
        ];
        let attack = Attack::new(answers);
        symlink("state", attack.path("link")).unwrap();
        let settings = fs::read_to_string(attack.path("state/parlor.toml")).unwrap();
        let output = attack.command(&["chat", "go"]).current_dir(attack.home.folder()).output().unwrap();
        assert_eq!(String::from_utf8(output.stdout).unwrap(), "Done.\n");
        let result = attack.server.bodies()[1]["messages"].as_array().unwrap().last().unwrap().to_string();
        assert!(result.contains("parlor's own state folder"), "{tool} {input}: {result}");
        Attack::assert_no_secret(&result.replace(&input.to_string(), ""), tool);
        assert_eq!(fs::read_to_string(attack.path("state/parlor.toml")).unwrap(), settings);
        assert!(!attack.path("state/new").exists());
    }
}
