//! A hostile repository: its instruction files and skills are links to what the user has elsewhere. A model server that
//! records what it is sent never gets to see any of that.
#![expect(clippy::unwrap_used, reason = "a helper of a test that cannot go on panics, as the test would")]

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use rustix::fs::{CWD, FileType, Mode, mknodat};
use serde_json::{Value, json};

use crate::forms::Form;
use crate::home::Home;
use crate::server::{Deed, Server};

/// The first line of the user's private key.
const SSH_KEY: &str = "private-ssh-key-of-the-user";
/// A key that parlor keeps.
const KEPT_KEY: &str = "kept-by-parlor-0123456789";
/// What a variable of parlor holds.
const VARIABLE: &str = "value-of-a-variable-of-parlor";
/// What stands in a file of the project.
const INSIDE: &str = "Use tabs in this project.";

/// A user with secrets and a repository, and a model that answers so many times.
struct Attack {
    home: Home,
    server: Server,
}

impl Attack {
    fn new(answers: Vec<String>) -> Self {
        let server = Server::start(answers.into_iter().map(Deed::Answer).collect());
        let home = Form::Chat.home(&server.url, "");
        let attack = Self { home, server };
        for folder in ["user/.ssh", "state/secrets", "repository/.git"] {
            fs::create_dir_all(attack.path(folder)).unwrap();
        }
        attack.write("user/.ssh/id_ed25519", SSH_KEY);
        attack.write("state/secrets/key-exa", KEPT_KEY);
        let private = |path: &str, mode| {
            fs::set_permissions(attack.path(path), fs::Permissions::from_mode(mode)).unwrap();
        };
        private("state/secrets", 0o700);
        private("state/secrets/key-exa", 0o600);
        attack
    }

    fn once() -> Self {
        Self::new(vec![Form::Chat.text("Hello.") + &Form::Chat.end()])
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
        command.env("HOME", self.path("user")).env("A_VARIABLE", VARIABLE);
        command.current_dir(self.path("repository"));
        command
    }

    fn run(&self, args: &[&str]) -> Output {
        self.command(args).output().unwrap()
    }

    /// Says something that mentions the skill, and gives back what the model was sent and what was told on stderr.
    fn hello(&self) -> (String, String) {
        let output = self.run(&["chat", "hello, use $deploy"]);
        let told = String::from_utf8(output.stderr).unwrap();
        assert_eq!(String::from_utf8(output.stdout).unwrap(), "Hello.\n", "the run goes on: {told}");
        let bodies = self.server.bodies();
        assert_eq!(bodies.len(), 1, "{told}");
        let sent = bodies[0].to_string();
        assert!(sent.contains("hello, use $deploy"), "{sent}");
        (sent, told)
    }

    fn assert_kept(text: &str, trap: &str) {
        for secret in [SSH_KEY, KEPT_KEY, VARIABLE, "base_url"] {
            assert!(!text.contains(secret), "{trap}: {secret} is in {text}");
        }
    }
}

/// What a trap is made of.
type Trap = fn(&Attack);

/// Each trap with the file that the warning names.
const TRAPS: [(&str, &str, Trap); 19] = [
    ("a key", "AGENTS.md", |at| at.link(at.path("user/.ssh/id_ed25519"), "AGENTS.md")),
    ("a key by ..", "AGENTS.md", |at| at.link("../user/.ssh/id_ed25519", "AGENTS.md")),
    ("parlor's secrets", "AGENTS.md", |at| at.link(at.path("state/secrets/key-exa"), "AGENTS.md")),
    ("parlor's settings", "AGENTS.md", |at| at.link("../state/parlor.toml", "AGENTS.md")),
    ("the environment", "AGENTS.md", |at| at.link("/proc/self/environ", "AGENTS.md")),
    ("the environment of the parent", "AGENTS.md", |at| {
        at.link("/proc/self/root/proc/self/environ", "AGENTS.md");
    }),
    ("an open folder", "AGENTS.md", |at| {
        at.link("/proc/self/cwd/../user/.ssh/id_ed25519", "AGENTS.md");
    }),
    ("a chain", "AGENTS.md", |at| {
        at.link("docs/one", "AGENTS.md");
        at.link("two", "docs/one");
        at.link("../../user/.ssh/id_ed25519", "docs/two");
    }),
    ("a folder on the way", "AGENTS.md", |at| {
        at.link("docs/id_ed25519", "AGENTS.md");
        at.link("../user/.ssh", "docs");
    }),
    ("a loop", "AGENTS.md", |at| at.link("AGENTS.md", "AGENTS.md")),
    ("a device", "AGENTS.md", |at| at.link("/dev/zero", "AGENTS.md")),
    ("a FIFO", "AGENTS.md", |at| fifo(&at.path("repository/AGENTS.md"))),
    ("a skill", "deploy/SKILL.md", |at| {
        at.link(at.path("user/.ssh/id_ed25519"), ".agents/skills/deploy/SKILL.md");
    }),
    ("a skill of parlor", "deploy/SKILL.md", |at| {
        at.link("../../../../state/secrets/key-exa", ".parlor/skills/deploy/SKILL.md");
    }),
    ("a skill that is the environment", "deploy/SKILL.md", |at| {
        at.link("/proc/self/environ", ".agents/skills/deploy/SKILL.md");
    }),
    ("a skill that is a FIFO", "deploy/SKILL.md", |at| {
        fs::create_dir_all(at.path("repository/.agents/skills/deploy")).unwrap();
        fifo(&at.path("repository/.agents/skills/deploy/SKILL.md"));
    }),
    ("the folder of a skill", "skills/deploy", |at| {
        at.write("user/notes/SKILL.md", SSH_KEY);
        at.link(at.path("user/notes"), ".agents/skills/deploy");
    }),
    ("the folder of skills", ".agents/skills", |at| {
        at.write("user/notes/deploy/SKILL.md", SSH_KEY);
        at.link("../../user/notes", ".agents/skills");
    }),
    ("the folder above", ".agents/skills", |at| {
        at.write("user/notes/skills/deploy/SKILL.md", SSH_KEY);
        at.link("../user/notes", ".agents");
    }),
];

fn fifo(path: &Path) {
    mknodat(CWD, path, FileType::Fifo, Mode::from_raw_mode(0o600), 0).unwrap();
}

#[test]
fn links_out_of_a_repository_send_nothing_to_the_model() {
    for (trap, file, set) in TRAPS {
        let attack = Attack::once();
        set(&attack);
        let (sent, told) = attack.hello();
        Attack::assert_kept(&sent, trap);
        Attack::assert_kept(&told, trap);
        assert!(told.contains(file) && told.contains("was not read"), "{trap}: {told}");
    }
}

#[test]
fn links_within_a_repository_are_followed() {
    for absolute in [false, true] {
        let attack = Attack::once();
        attack.write("repository/docs/guide.md", INSIDE);
        attack.write("repository/tools/skills/deploy/SKILL.md", "Push the button twice.");
        let target = |path: &str, up: &str| {
            if absolute { attack.path("repository").join(path) } else { Path::new(up).join(path) }
        };
        attack.link(target("docs/guide.md", ""), "AGENTS.md");
        attack.link(target("tools/skills", ".."), ".agents/skills");
        let (sent, told) = attack.hello();
        assert!(sent.contains(INSIDE) && sent.contains("Push the button twice."), "{sent}");
        assert!(!told.contains("was not read"), "{told}");
    }
}

#[test]
fn a_link_in_a_folder_of_the_project_reaches_all_of_the_project() {
    let attack = Attack::once();
    attack.write("repository/guide.md", INSIDE);
    attack.write("repository/sub/deep/code.rs", "");
    attack.link("../../guide.md", "sub/deep/AGENTS.md");
    let output = attack.command(&["chat", "hello"]).current_dir(attack.path("repository/sub/deep")).output();
    assert_eq!(String::from_utf8(output.unwrap().stdout).unwrap(), "Hello.\n");
    assert!(attack.server.bodies()[0].to_string().contains(INSIDE));
}

/// An archive has no `.git` of its own; the user keeps the whole home folder in git.
#[test]
fn a_home_folder_in_git_is_not_the_project_of_all_that_is_in_it() {
    let attack = Attack::once();
    fs::create_dir_all(attack.path("user/.git")).unwrap();
    attack.write("user/AGENTS.md", INSIDE);
    attack.write("user/unpacked/code.rs", "");
    symlink("../.ssh/id_ed25519", attack.path("user/unpacked/AGENTS.md")).unwrap();
    let output =
        attack.command(&["chat", "hello"]).current_dir(attack.path("user/unpacked")).output().unwrap();
    let sent = attack.server.bodies()[0].to_string();
    Attack::assert_kept(&sent, "a home in git");
    assert!(sent.contains(INSIDE), "the home's own instructions are read as before: {sent}");
    assert!(String::from_utf8(output.stderr).unwrap().contains("was not read"));
}

/// The state folder lies in the project, where a link could lead to without leaving it.
#[test]
fn a_link_to_the_state_folder_within_the_project_is_not_followed() {
    for target in ["state/secrets/key-exa", "state/parlor.toml", "sideways/key-exa"] {
        let attack = Attack::once();
        let project = attack.home.folder();
        fs::create_dir_all(project.join(".git")).unwrap();
        symlink("state/secrets", project.join("sideways")).unwrap();
        symlink(target, project.join("AGENTS.md")).unwrap();
        let output = attack.command(&["chat", "hello"]).current_dir(project).output().unwrap();
        let told = String::from_utf8(output.stderr).unwrap();
        Attack::assert_kept(&attack.server.bodies()[0].to_string(), target);
        assert!(told.contains("AGENTS.md was not read"), "{target}: {told}");
    }
}

#[test]
fn the_users_own_files_may_be_links_to_anywhere() {
    let attack = Attack::once();
    attack.write("dotfiles/AGENTS.md", INSIDE);
    attack.write("dotfiles/skills/deploy/SKILL.md", "Push the button twice.");
    symlink("../dotfiles/AGENTS.md", attack.path("state/AGENTS.md")).unwrap();
    fs::create_dir_all(attack.path("user/.agents")).unwrap();
    symlink(attack.path("dotfiles/skills"), attack.path("user/.agents/skills")).unwrap();
    let (sent, told) = attack.hello();
    assert!(sent.contains(INSIDE) && sent.contains("Push the button twice."), "{sent}");
    assert!(!told.contains("was not read"), "{told}");
}

#[test]
fn secrets_in_instructions_and_skills_are_taken_out() {
    let attack = Attack::once();
    attack.write("repository/AGENTS.md", &format!("The key is {KEPT_KEY}, and that is all."));
    attack.write("repository/.agents/skills/deploy/SKILL.md", &format!("Log in with {KEPT_KEY} first."));
    let (sent, _) = attack.hello();
    assert!(!sent.contains(KEPT_KEY), "{sent}");
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
    let ask = json!({"jsonrpc": "2.0", "id": 7, "method": "skills.list", "params": {}});
    let mut stdin = child.stdin.take().unwrap();
    writeln!(stdin, "{ask}").unwrap();
    let lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let answer: Value = lines
        .map(|line| serde_json::from_str::<Value>(&line.unwrap()).unwrap())
        .find(|line| line["id"] == 7)
        .unwrap();
    drop(stdin);
    child.wait().unwrap();
    Attack::assert_kept(&answer.to_string(), "skills.list");
    let skills = answer["result"]["skills"].as_array().unwrap();
    assert_eq!(skills.iter().map(|skill| &skill["name"]).collect::<Vec<_>>(), ["build"]);
    assert!(answer["result"]["errors"].to_string().contains("deploy/SKILL.md was not read"), "{answer}");
}

/// A model that was talked into it writes settings that send the key to another server.
#[test]
fn a_model_cannot_write_into_the_state_folder() {
    for (tool, input) in [
        ("write_file", json!({"path": "state/parlor.toml", "content": "stolen"})),
        ("write_file", json!({"path": "sideways/new/file", "content": "stolen"})),
        ("edit_file", json!({"path": "state/parlor.toml", "old_text": "base_url", "new_text": "stolen"})),
        ("read_file", json!({"path": "state/secrets/key-exa"})),
        ("read_file", json!({"path": "sideways/parlor.toml"})),
        ("grep_files", json!({"pattern": "kept-by", "path": "state"})),
    ] {
        let answers =
            vec![Form::Chat.call(tool, &input.to_string()), Form::Chat.text("Done.") + &Form::Chat.end()];
        let attack = Attack::new(answers);
        symlink("state", attack.path("sideways")).unwrap();
        let settings = fs::read_to_string(attack.path("state/parlor.toml")).unwrap();
        let output = attack.command(&["chat", "go"]).current_dir(attack.home.folder()).output().unwrap();
        assert_eq!(String::from_utf8(output.stdout).unwrap(), "Done.\n");
        let result = attack.server.bodies()[1]["messages"].as_array().unwrap().last().unwrap().to_string();
        assert!(result.contains("parlor's own state folder"), "{tool} {input}: {result}");
        Attack::assert_kept(&result.replace(&input.to_string(), ""), tool);
        assert_eq!(fs::read_to_string(attack.path("state/parlor.toml")).unwrap(), settings);
        assert!(!attack.path("state/new").exists());
    }
}
