//! The screen of `parlor chat` on a real terminal: what a person types, and what a terminal emulator shows.
#![expect(clippy::unwrap_used, reason = "a test helper that cannot go on panics, as the test would")]

#[path = "models/api_format.rs"]
#[allow(dead_code, reason = "the tests of models use the rest")]
mod api_format;
mod home;
#[path = "models/scripted_server.rs"]
#[allow(dead_code, reason = "the tests of models use the rest")]
mod scripted_server;
#[path = "home/terminal.rs"]
mod terminal;

use api_format::ApiFormat;
use home::{Home, PARLOR};
use parlor_testkit::folder_outside_tmp;
use scripted_server::{Reply, ScriptedServer};
use terminal::{ENTER, Terminal};

const CTRL_C: &str = "\x03";
const CTRL_D: &str = "\x04";
const CTRL_O: &str = "\x0f";
const ALT_ENTER: &str = "\x1b\r";
const ESCAPE: &str = "\x1b";

/// The screen is ready when the empty line for a message is there.
const READY: &str = "Type a message";

/// A chat, and the emulator that shows it.
struct Chat {
    terminal: Terminal,
    emulator: vt100::Parser,
    /// How many bytes the emulator has seen.
    seen: usize,
}

impl Chat {
    fn start(home: &Home, args: &[&str]) -> Self {
        Self::start_with(home, args, &[], 80, 24)
    }

    fn start_with(home: &Home, args: &[&str], env: &[(&str, &str)], columns: u16, rows: u16) -> Self {
        // The shell tells whether the modes of the terminal are the same after the chat.
        let script = format!(
            "stty cols {columns} rows {rows}; before=$(stty -g); {PARLOR} chat \"$@\"; echo code $?; \
             [ $before = $(stty -g) ] && echo restored"
        );
        let args: Vec<&str> = ["-c", &script, "sh"].into_iter().chain(args.iter().copied()).collect();
        let terminal = Terminal::start_program(home, "/bin/sh", &args, env);
        let emulator = vt100::Parser::new(rows.try_into().unwrap(), columns.try_into().unwrap(), 2000);
        Self { terminal, emulator, seen: 0 }
    }

    fn type_keys(&self, keys: &str) {
        self.terminal.type_keys(keys);
    }

    fn send(&self, text: &str) {
        self.type_keys(text);
        self.type_keys(ENTER);
    }

    fn shown(&self) -> String {
        self.emulator.screen().contents()
    }

    /// Waits until the emulator shows what `is_shown` looks for.
    async fn wait_until(&mut self, what: &str, is_shown: impl Fn(&str) -> bool) {
        let deadline = tokio::time::Instant::now() + terminal::TIMEOUT;
        loop {
            let fresh = self.terminal.bytes.get(self.seen..).unwrap();
            self.emulator.process(fresh);
            self.seen = self.terminal.bytes.len();
            let shown = self.shown();
            if is_shown(&shown) {
                return;
            }
            assert!(tokio::time::Instant::now() < deadline, "timeout while waiting for {what}:\n{shown}");
            assert_eq!(self.terminal.step().await, None, "ended before {what}:\n{shown}");
        }
    }

    async fn wait_for(&mut self, text: &str) {
        self.wait_until(text, |shown| shown.contains(text)).await;
    }

    /// Waits until no run is active.
    async fn wait_until_idle(&mut self) {
        self.wait_until("the end of the run", |shown| shown.contains(READY) && !shown.contains("Esc stops)"))
            .await;
    }

    /// Waits until the chat has left the terminal as it was.
    async fn wait_for_restored_terminal(mut self) -> String {
        self.wait_for("restored").await;
        self.terminal.wait_for_exit().await
    }
}

#[tokio::test]
async fn answers_commands_and_reasoning_are_shown_at_all_sizes() {
    for (columns, rows) in [(80, 24), (120, 40), (200, 50)] {
        let home = Home::new();
        let mut chat = Chat::start_with(&home, &[], &[], columns, rows);
        chat.wait_for("Local (the built-in agent, no model) works in").await;
        chat.wait_for(READY).await;
        chat.send("/say some **bold** text");
        chat.wait_for("\nsome bold text").await;
        chat.wait_until_idle().await;
        chat.send("/think a thought");
        chat.wait_for("Thought for").await;
        chat.wait_until_idle().await;
        chat.type_keys(CTRL_O);
        chat.wait_for("✻ a thought").await;
        chat.send("!echo out-$((6 * 7))");
        chat.wait_for("● shell echo out-$((6 * 7))").await;
        chat.wait_for("\n  out-42").await;
        chat.wait_until_idle().await;
        let rule = "─".repeat(columns.into());
        assert_eq!(chat.shown().matches(&rule).count(), 2, "{}", chat.shown());
        chat.type_keys(CTRL_D);
        chat.wait_for("Continue this session:  parlor chat --session ").await;
        let shown = chat.wait_for_restored_terminal().await;
        assert!(shown.contains("code 0"), "{shown}");
    }
}

#[tokio::test]
async fn typed_text_stays_whole_while_a_run_writes_and_then_waits_for_its_turn() {
    let home = Home::new();
    let mut chat = Chat::start(&home, &[]);
    chat.wait_for(READY).await;
    chat.send("!until [ -e go ]; do echo tick; sleep 0.01; done");
    chat.wait_for("└ tick").await;
    chat.type_keys("/say first line");
    chat.type_keys(ALT_ENTER);
    chat.type_keys("second line");
    chat.wait_for("> /say first line\n  second line").await;
    chat.type_keys(ENTER);
    chat.wait_for("waiting: /say first line second line").await;
    std::fs::write(home.folder().join("go"), "").unwrap();
    chat.wait_for("\nfirst line\nsecond line\n").await;
    chat.wait_until_idle().await;
    chat.send("/quit");
    chat.wait_for_restored_terminal().await;
}

#[tokio::test]
async fn escape_stops_a_run_and_ctrl_c_twice_leaves() {
    let home = Home::new();
    let mut chat = Chat::start(&home, &[]);
    chat.wait_for(READY).await;
    chat.send("/wait 600");
    chat.wait_for("Esc stops)").await;
    chat.type_keys(ESCAPE);
    chat.wait_for("Stopped: ").await;
    chat.wait_until_idle().await;
    chat.send("/wait 600");
    chat.wait_for("Esc stops)").await;
    chat.type_keys(CTRL_C);
    chat.wait_for("Press Ctrl-C again to leave").await;
    chat.type_keys(CTRL_C);
    let shown = chat.wait_for_restored_terminal().await;
    assert!(shown.contains("code 0"), "{shown}");
    let events = home.json(&["replay", &home.last_session(), "--json"]);
    assert_eq!(events.last().unwrap()["ending"], "stopped");
}

#[tokio::test]
async fn signals_restore_the_terminal() {
    for signal in ["TERM", "HUP"] {
        let home = Home::new();
        let mut chat = Chat::start(&home, &[]);
        chat.wait_for(READY).await;
        chat.send(&format!("!kill -{signal} $PPID; sleep 60"));
        let shown = chat.wait_for_restored_terminal().await;
        assert!(shown.contains("\x1b[?2004l"), "bracketed paste is off: {shown:?}");
    }
}

#[tokio::test]
async fn a_question_is_answered_with_a_key() {
    let home = Home::new();
    let agent = "default_agent = \"demo\"\n[agents.demo]\nkind = \"script\"\nfile = \"demo.toml\"\n";
    let policy = "[policy]\nenforce_all = true\nmode = \"full\"\nask = [{ tool = \"write_file\" }]\n";
    home.configure("parlor.toml", &format!("{agent}{policy}"));
    let steps = "{ tool = \"write_file\", args = { path = \"new.txt\", content = \"one\\ntwo\" } }, { say = \"over\" }";
    home.configure("demo.toml", &format!("[otherwise]\nsteps = [{steps}]\n"));
    let mut chat = Chat::start(&home, &[]);
    chat.wait_for(READY).await;
    chat.send("go");
    chat.wait_for("y yes, this time").await;
    chat.wait_for("+one\n").await;
    assert!(!home.folder().join("new.txt").exists());
    chat.type_keys("n");
    chat.wait_for("Denied: ").await;
    chat.wait_until_idle().await;
    assert!(!home.folder().join("new.txt").exists());
    chat.send("again");
    chat.wait_for("y yes, this time").await;
    chat.type_keys("y");
    chat.wait_for("Allowed: ").await;
    chat.wait_until_idle().await;
    assert_eq!(std::fs::read_to_string(home.folder().join("new.txt")).unwrap(), "one\ntwo");
    chat.send("/diff");
    chat.wait_for("+++ b/new.txt").await;
    chat.send("/undo");
    chat.wait_until("the undone file", |_| !home.folder().join("new.txt").exists()).await;
    chat.send("/quit");
    chat.wait_for_restored_terminal().await;
}

/// It is a person who sees the screen, so the question comes that only a person may be asked.
#[tokio::test]
async fn a_command_that_the_sandbox_made_fail_is_offered_once_more() {
    let home = Home::new();
    home.configure("parlor.toml", "[policy]\nenforce_all = true\n");
    // Not in /tmp, which is private in a sandbox.
    let outside = folder_outside_tmp(env!("CARGO_TARGET_TMPDIR"));
    let made = outside.path().join("made");
    let mut chat = Chat::start_with(&home, &[], &[], 200, 50);
    chat.wait_for(READY).await;
    chat.send(&format!("!echo made >> {}", made.display()));
    chat.wait_for("once more, without the sandbox?").await;
    chat.wait_for("y yes, this time").await;
    assert!(!made.exists());
    chat.type_keys("n");
    chat.wait_for("Denied: ").await;
    chat.wait_until_idle().await;
    assert!(!made.exists());
    chat.send(&format!("!echo made >> {}; false", made.display()));
    chat.wait_for("y yes, this time").await;
    chat.type_keys("y");
    chat.wait_for("Allowed: ").await;
    chat.wait_until_idle().await;
    assert_eq!(std::fs::read_to_string(&made).unwrap(), "made\n");
    chat.type_keys(CTRL_D);
    chat.wait_for_restored_terminal().await;
}

#[tokio::test]
async fn a_new_project_is_trusted_with_a_key_before_the_model_is_asked() {
    let api = ApiFormat::Chat;
    let reply = Reply::Stream(api.text("Hello.") + &api.end());
    let model = ScriptedServer::start(vec![reply]);
    let home = api.home(&model.url, "");
    std::fs::create_dir(home.folder().join(".git")).unwrap();
    std::fs::write(home.folder().join("AGENTS.md"), "Always use tabs.").unwrap();
    let mut chat = Chat::start_with(&home, &[], &[("SOME_API_KEY", "s3cret")], 200, 50);
    chat.wait_for(READY).await;
    chat.send("say hello");
    chat.wait_for("Trust the project").await;
    chat.wait_for("y yes, this time").await;
    assert!(model.bodies().is_empty());
    chat.type_keys("y");
    chat.wait_for("\nHello.").await;
    assert!(model.bodies()[0].to_string().contains("Always use tabs."));
    chat.wait_until_idle().await;
    chat.type_keys(CTRL_D);
    chat.wait_for_restored_terminal().await;
}

#[tokio::test]
async fn a_session_is_continued_chosen_and_forked() {
    let home = Home::new();
    home.prints(&["chat", "/say older answer"]);
    let older = home.last_session();
    home.prints(&["sessions", "rename", &older, "Older"]);
    home.prints(&["chat", "/say newer answer"]);
    let newer = home.last_session();
    let mut chat = Chat::start(&home, &["--continue"]);
    chat.wait_for("> /say newer answer\n\nnewer answer").await;
    chat.wait_for(READY).await;
    chat.send("/resume");
    chat.wait_for("Go on in which session?").await;
    chat.type_keys("older");
    chat.wait_until("the narrowed list", |shown| {
        shown.contains("Older") && !shown.contains("newer answer\n  2")
    })
    .await;
    chat.type_keys(ENTER);
    chat.wait_for("older answer").await;
    chat.wait_for(READY).await;
    chat.send("/say more");
    chat.wait_for("\nmore").await;
    chat.wait_until_idle().await;
    assert!(home.prints(&["replay", &older]).contains("message: more"));
    assert!(!home.prints(&["replay", &newer]).contains("message: more"));
    chat.send("/fork");
    chat.wait_for("This is a copy of the session").await;
    chat.send("/export talk.md");
    chat.wait_for("The conversation is in talk.md").await;
    let exported = std::fs::read_to_string(home.folder().join("talk.md")).unwrap();
    assert!(
        exported.starts_with("# Older\n") && exported.contains("## Agent\n\nolder answer\n"),
        "{exported}"
    );
    chat.send("/rename Copied");
    chat.wait_for("· Copied").await;
    chat.type_keys(CTRL_D);
    chat.wait_for_restored_terminal().await;
    assert_eq!(home.json(&["sessions", "--json"]).len(), 3);
}

#[tokio::test]
async fn a_session_that_another_process_has_open_is_joined_live() {
    let home = Home::new();
    home.configure("parlor.toml", "[sessions]\njoin = true\n");
    let mut first = Chat::start(&home, &[]);
    first.wait_for(READY).await;
    first.send("!until [ -e go ]; do echo tick; sleep 0.01; done; echo last-$((6 * 7))");
    first.wait_for("└ tick").await;
    let mut second = Chat::start(&home, &["--session", &home.last_session()]);
    second.wait_for("└ tick").await;
    second.send("/say from the second");
    first.wait_for("waiting: /say from the second").await;
    std::fs::write(home.folder().join("go"), "").unwrap();
    for chat in [&mut first, &mut second] {
        chat.wait_for("last-42").await;
        chat.wait_for("\nfrom the second\n").await;
        chat.wait_until_idle().await;
    }
    for chat in [second, first] {
        chat.type_keys(CTRL_D);
        chat.wait_for_restored_terminal().await;
    }
}

#[tokio::test]
async fn colours_can_be_switched_off() {
    let home = Home::new();
    for (args, env, coloured) in [
        (&[][..], &[][..], true),
        (&["--no-color"][..], &[][..], false),
        (&[][..], &[("NO_COLOR", "1")][..], false),
    ] {
        let mut chat = Chat::start_with(&home, args, env, 80, 24);
        chat.wait_for(READY).await;
        chat.send("/say **bold** `code`");
        chat.wait_for("\nbold code").await;
        chat.wait_until_idle().await;
        chat.type_keys(CTRL_D);
        let shown = chat.wait_for_restored_terminal().await;
        let is_style = |code: &&str| {
            code.split_once('m').is_some_and(|(code, _)| {
                !code.is_empty() && code.bytes().all(|byte| byte.is_ascii_digit() || byte == b';')
            })
        };
        assert_eq!(shown.split("\x1b[").skip(1).any(|code| is_style(&code)), coloured, "{args:?} {shown:?}");
    }
}

#[tokio::test]
async fn hostile_output_does_not_control_the_terminal() {
    let home = Home::new();
    let mut chat = Chat::start(&home, &[]);
    chat.wait_for(READY).await;
    chat.send(r"!printf '\033]0;evil\007\033[2Jkept-%s\r\n' $((6 * 7))");
    chat.wait_for("kept-42").await;
    chat.wait_until_idle().await;
    chat.type_keys(CTRL_D);
    let shown = chat.wait_for_restored_terminal().await;
    assert!(!shown.contains("\x1b]0;") && !shown.contains("\x1b[2J"), "{shown:?}");
}

#[tokio::test]
async fn commands_and_files_are_completed() {
    let home = Home::new();
    std::fs::write(home.folder().join("some_notes.md"), "").unwrap();
    let mut chat = Chat::start(&home, &[]);
    chat.wait_for(READY).await;
    chat.type_keys("/say @smn");
    chat.wait_for("> @some_notes.md").await;
    chat.type_keys("\t");
    chat.wait_for("> /say @some_notes.md").await;
    chat.type_keys(ENTER);
    chat.wait_for("\n@some_notes.md").await;
    chat.wait_until_idle().await;
    chat.type_keys("/hel");
    chat.wait_for("show the commands and keys").await;
    chat.type_keys(ENTER);
    chat.wait_for("Ctrl-R").await;
    chat.type_keys(CTRL_D);
    chat.wait_for_restored_terminal().await;
}
