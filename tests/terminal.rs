//! `parlor chat` as a person at a terminal meets it.
#![expect(clippy::unwrap_used, reason = "a helper of a test that cannot go on panics, as the test would")]

#[path = "models/api_format.rs"]
#[allow(dead_code, reason = "a helper of other tests, of which some is used")]
mod api_format;
mod home;
#[path = "models/scripted_server.rs"]
#[allow(dead_code, reason = "a helper of other tests, of which some is used")]
mod scripted_server;

use std::os::unix::fs::PermissionsExt;
use std::time::Duration;

use api_format::ApiFormat;
use home::{Home, PARLOR};
use parlor_process::{ChildEvent, Process, ProcessNumber, ProcessReport, WriteId, spawn};
use parlor_vocab::{ProcessExit, ProcessId, StartProcess, StdioKind};
use scripted_server::{Reply, ScriptedServer};
use tokio::sync::mpsc;

/// How long a test waits for what must come. Nothing here takes as long.
const PATIENCE: Duration = Duration::from_secs(60);

/// Raw mode is on: from here on keys mean what they mean to the editor.
const READY: &str = "\x1b[?2004h";

const CTRL_C: &str = "\x03";
const CTRL_D: &str = "\x04";
const ENTER: &str = "\r";
const UP: &str = "\x1b[A";

/// The program on a terminal of its own, 80 columns wide.
struct Terminal {
    process: Process,
    reports: mpsc::Receiver<ProcessReport>,
    shown: String,
    /// How much of it was waited for already.
    mark: usize,
}

impl Terminal {
    fn start(home: &Home, args: &[&str], env: &[(&str, &str)]) -> Self {
        Self::start_program(home, PARLOR, args, env)
    }

    fn start_program(home: &Home, program: &str, args: &[&str], env: &[(&str, &str)]) -> Self {
        let state = home.state().to_str().unwrap().to_owned();
        let basics = [
            ("PARLOR_HOME", state.as_str()),
            ("PATH", "/usr/bin:/bin"),
            ("LANG", "C.UTF-8"),
            ("TERM", "xterm"),
        ];
        let overridden = |name: &str| env.iter().any(|(other, _)| *other == name);
        let env = basics.iter().filter(|(name, _)| !overridden(name)).chain(env);
        let start = StartProcess {
            process: ProcessId::parse("chat").unwrap(),
            program: program.to_owned(),
            args: args.iter().map(|arg| (*arg).to_owned()).collect(),
            arg0: None,
            folder: home.folder().to_owned(),
            env: env.map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect(),
            stdio: StdioKind::Terminal,
            retain_bytes: 0,
        };
        let (sender, reports) = mpsc::channel(4);
        let process = spawn(&start, ProcessNumber(0), sender).unwrap();
        Self { process, reports, shown: String::new(), mark: 0 }
    }

    fn keys(&self, keys: &str) {
        self.process.write(WriteId(0), keys.as_bytes().to_vec()).unwrap();
    }

    /// Waits until `text` is shown, after what was waited for before.
    async fn until(&mut self, text: &str) {
        loop {
            let rest = self.shown.get(self.mark..).unwrap();
            if let Some(place) = rest.find(text) {
                self.mark += place + text.len();
                return;
            }
            assert_eq!(self.step().await, None, "ended before {text:?}: {:?}", self.shown);
        }
    }

    /// Waits for the prompt.
    async fn prompt(&mut self) {
        self.until(READY).await;
        self.until("> ").await;
    }

    /// Types a line at the prompt.
    async fn line(&mut self, text: &str) {
        self.prompt().await;
        self.keys(text);
        self.keys(ENTER);
        // The editor has read it once it is done with raw mode.
        self.until("\x1b[?2004l").await;
    }

    async fn step(&mut self) -> Option<ProcessExit> {
        let report = tokio::time::timeout(PATIENCE, self.reports.recv()).await;
        let report = report.unwrap_or_else(|_| panic!("nothing comes any more after {:?}", self.shown));
        match report.unwrap().event {
            ChildEvent::Output { bytes, .. } => self.shown.push_str(&String::from_utf8_lossy(&bytes)),
            ChildEvent::WriteAccepted(_) | ChildEvent::WriteLost(_) => {}
            ChildEvent::Exited(ending) => return Some(ending),
        }
        None
    }

    /// Waits for the end, and gives all that was shown.
    async fn end(mut self) -> String {
        loop {
            if let Some(ending) = self.step().await {
                assert_eq!(ending, ProcessExit::Code(0), "{:?}", self.shown);
                return self.shown;
            }
        }
    }
}

fn count(shown: &str, text: &str) -> usize {
    shown.matches(text).count()
}

#[tokio::test]
async fn a_newcomer_is_told_who_answers_what_to_try_and_how_to_go_on() {
    let home = Home::new();
    let mut terminal = Terminal::start(&home, &["chat"], &[]);
    terminal.until("Local (the built-in agent, no model) works in").await;
    terminal.until("Try !ls").await;
    terminal.until("/help").await;
    terminal.until("Ctrl-C stops an answer. Ctrl-D or /quit leaves").await;
    terminal.line("/say hello").await;
    terminal.until("hello").await;
    terminal.prompt().await;
    terminal.keys(CTRL_D);
    terminal.until("parlor chat --session ").await;
    terminal.until("parlor replay ").await;
    let shown = terminal.end().await;
    // What is named at the end can be used.
    let session: String = shown.split("parlor replay ").nth(1).unwrap().chars().take(13).collect();
    assert!(home.last_session().starts_with(&session));
    assert!(home.prints(&["replay", &session]).contains("message: hello"));
}

#[tokio::test]
async fn the_output_of_a_command_is_shown_once_and_as_it_comes() {
    let home = Home::new();
    let mut terminal = Terminal::start(&home, &["chat"], &[]);
    terminal.line("!echo first-$((6 * 7)); until [ -e go ]; do sleep 0.05; done; echo last-$((6 * 7))").await;
    terminal.until("[shell]").await;
    terminal.until("first-42").await;
    std::fs::write(home.folder().join("go"), "").unwrap();
    terminal.until("last-42").await;
    terminal.until("[exit code 0]").await;
    // One that is over before anybody looks.
    terminal.line("!echo short-$((6 * 7))").await;
    terminal.until("short-42").await;
    terminal.until("[exit code 0]").await;
    terminal.line("/quit").await;
    let shown = terminal.end().await;
    for text in ["first-42", "last-42", "short-42"] {
        assert_eq!(count(&shown, text), 1, "{text} in {shown:?}");
    }
    assert_eq!(count(&shown, "[exit code 0]"), 2);
}

#[tokio::test]
async fn an_answer_that_says_something_else_is_shown() {
    let home = Home::new();
    home.configure("parlor.toml", "agents.demo = { kind = \"script\", file = \"demo.toml\" }");
    let script = "[otherwise]\nsteps = [ { tool = \"shell\", args = { command = \"echo from-$((6 * 7))\" } }, \
                  { say = \"from-42\\n[exit\" }, { say = \" code\" }, { say = \" zero]\" } ]\n";
    home.configure("demo.toml", script);
    let mut terminal = Terminal::start(&home, &["chat", "--agent", "demo"], &[]);
    terminal.until("demo (a script)").await;
    terminal.line("go").await;
    terminal.until("from-42").await;
    terminal.until("[exit code 0]").await;
    terminal.until("from-42\r\n[exit code zero]").await;
    terminal.line("/exit").await;
    terminal.end().await;
}

#[tokio::test]
async fn ctrl_c_stops_the_answer_and_another_leaves() {
    let home = Home::new();
    let mut terminal = Terminal::start(&home, &["chat"], &[]);
    terminal.line("/wait 60").await;
    terminal.until(".").await;
    terminal.keys(CTRL_C);
    terminal.until("Stopped. Press Ctrl-C again to leave.").await;
    // A line in between, and one is not enough any more.
    terminal.line("/say going on").await;
    terminal.until("going on").await;
    terminal.prompt().await;
    terminal.keys(CTRL_C);
    terminal.until("Press Ctrl-C again or Ctrl-D to leave").await;
    terminal.line("/wait 60").await;
    terminal.until(".").await;
    terminal.keys(CTRL_C);
    terminal.until("Stopped. Press Ctrl-C again to leave.").await;
    terminal.prompt().await;
    terminal.keys(CTRL_C);
    terminal.until("parlor chat --session ").await;
    terminal.end().await;
}

#[tokio::test]
async fn ctrl_c_twice_at_the_prompt_leaves() {
    let home = Home::new();
    let mut terminal = Terminal::start(&home, &["chat"], &[]);
    terminal.prompt().await;
    // A line in between, be it empty, and counting begins anew.
    for before in ["half a line", ENTER] {
        terminal.keys(before);
        if before == ENTER {
            terminal.prompt().await;
        }
        terminal.keys(CTRL_C);
        terminal.until("Press Ctrl-C again or Ctrl-D to leave").await;
        terminal.prompt().await;
    }
    terminal.keys(CTRL_C);
    terminal.until("No message was sent, so no session was saved.").await;
    terminal.end().await;
    assert!(home.json(&["sessions", "--json"]).is_empty());
}

#[tokio::test]
async fn ctrl_c_twice_during_a_run_that_is_slow_to_end_leaves_once_it_has_ended() {
    let home = Home::new();
    let mut terminal = Terminal::start(&home, &["chat"], &[]);
    terminal.line("!trap '' TERM; echo stub''born; sleep 600").await;
    terminal.until("stubborn").await;
    terminal.keys(CTRL_C);
    terminal.until("Stopping").await;
    terminal.keys(CTRL_C);
    terminal.until("parlor replay ").await;
    terminal.end().await;
    let events = home.json(&["replay", &home.last_session(), "--json"]);
    assert_eq!(events.last().unwrap()["ending"], "stopped");
}

#[tokio::test]
async fn what_was_typed_is_remembered_by_its_owner_alone() {
    let home = Home::new();
    let mut terminal = Terminal::start(&home, &["chat"], &[]);
    terminal.line("/say something to remember").await;
    terminal.line(" /say not this one").await;
    terminal.line("/quit").await;
    terminal.end().await;
    let file = home.state().join("history");
    assert_eq!(std::fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
    let mut terminal = Terminal::start(&home, &["chat"], &[]);
    terminal.prompt().await;
    // Past the word that left.
    terminal.keys(&format!("{UP}{UP}{ENTER}"));
    terminal.until("\r\nsomething to remember").await;
    terminal.prompt().await;
    terminal.keys(CTRL_D);
    terminal.end().await;
}

#[tokio::test]
async fn the_history_has_a_limit() {
    let home = Home::new();
    let lines: String = (0..1200).map(|n| format!("line {n}\n")).collect();
    home.configure("history", &format!("#V2\n{lines}"));
    let mut terminal = Terminal::start(&home, &["chat"], &[]);
    terminal.line("/say one more").await;
    // Longer than a line that is remembered, pasted.
    terminal.prompt().await;
    terminal.keys(&format!("\x1b[200~/say {}\x1b[201~{ENTER}", "x".repeat(17 << 10)));
    terminal.until("\x1b[?2004l").await;
    terminal.line("/quit").await;
    terminal.end().await;
    let kept = std::fs::read_to_string(home.state().join("history")).unwrap();
    assert_eq!(kept.lines().count(), 1 + 1000);
    assert!(kept.ends_with("/say one more\n/quit\n") && !kept.contains("xxx"), "{kept:.100}");
}

#[tokio::test]
async fn what_is_pasted_is_one_message() {
    let home = Home::new();
    let mut terminal = Terminal::start(&home, &["chat"], &[]);
    terminal.prompt().await;
    terminal.keys("\x1b[200~!echo one-$((1 + 1))\necho two-$((1 + 1))\x1b[201~");
    terminal.keys(ENTER);
    terminal.until("one-2").await;
    terminal.until("two-2").await;
    terminal.line("/quit").await;
    terminal.end().await;
    let events = home.json(&["replay", &home.last_session(), "--json"]);
    assert_eq!(events.iter().filter(|event| event["type"] == "run.started").count(), 1);
}

#[tokio::test]
async fn nothing_a_tool_prints_steers_the_terminal() {
    let home = Home::new();
    let mut terminal = Terminal::start(&home, &["chat"], &[]);
    terminal.line(r"!printf '\033]0;evil\007\033[2Jkept-%s\r\n' $((6 * 7))").await;
    terminal.until("kept-42").await;
    terminal.line("/quit").await;
    let shown = terminal.end().await;
    assert!(!shown.contains("\x1b]0;") && !shown.contains("\x1b[2J"), "{shown:?}");
}

/// What is taken out on the way to the terminal must not put together what the redactor did not see.
#[tokio::test]
async fn no_escape_sequence_inside_of_a_secret_shows_it() {
    let home = Home::new();
    let key = "sk-KEPT-openai-Qz7hT93kLmN0pXyW8vRx";
    std::fs::write(home.folder().join("key"), key).unwrap();
    let file = std::fs::File::open(home.folder().join("key")).unwrap();
    assert!(home.command(&["login", "exa", "--key"]).stdin(file).status().unwrap().success());
    let mut terminal = Terminal::start(&home, &["chat"], &[]);
    for unseen in [r"\x1b[m", r"\x07", r"\x1b]0;t\x07", r"\xe2\x80\xae"] {
        terminal.line(&format!("!sed 's/KEPT/KE{unseen}PT/' key; echo; echo seen-$((6 * 7))")).await;
        terminal.until("seen-42").await;
    }
    terminal.line("/quit").await;
    let shown = terminal.end().await;
    assert!(!shown.contains(key) && !shown.contains("PT-openai"), "{shown:?}");
    assert!(!shown.contains('\u{202e}'), "{shown:?}");
    assert!(shown.contains("[secret]"), "{shown:?}");
}

#[tokio::test]
async fn colours_are_used_unless_they_are_not_wanted() {
    let home = Home::new();
    for (env, coloured) in [(&[][..], true), (&[("NO_COLOR", "1")][..], false)] {
        let mut terminal = Terminal::start(&home, &["chat"], env);
        terminal.line("!echo x").await;
        terminal.until("[exit code 0]").await;
        terminal.line("/quit").await;
        let shown = terminal.end().await;
        assert_eq!(shown.contains("\x1b[2m"), coloured, "{shown:?}");
    }
}

#[tokio::test]
async fn a_dumb_terminal_gets_plain_lines() {
    let home = Home::new();
    let mut terminal = Terminal::start(&home, &["chat"], &[("TERM", "dumb")]);
    terminal.until("> ").await;
    terminal.keys("/say pl''ain\n");
    terminal.until("\r\npl''ain").await;
    terminal.until("> ").await;
    terminal.keys(CTRL_C);
    terminal.until("Press Ctrl-C again or Ctrl-D to leave").await;
    terminal.keys(CTRL_C);
    let shown = terminal.end().await;
    assert!(!shown.contains('\x1b'), "{shown:?}");
}

#[tokio::test]
async fn a_session_can_be_deleted_after_a_question() {
    let home = Home::new();
    home.prints(&["chat", "/say hi"]);
    let session = home.last_session();
    let mut terminal = Terminal::start(&home, &["sessions", "delete", &session], &[]);
    terminal.until("Delete permanently? [y/N] ").await;
    terminal.keys("\n");
    terminal.until("nothing was deleted").await;
    let mut terminal = Terminal::start(&home, &["sessions", "delete", &session], &[]);
    terminal.until("[y/N] ").await;
    terminal.keys("y\n");
    terminal.until("Deleted session").await;
    terminal.end().await;
    assert!(home.json(&["sessions", "--json"]).is_empty());
}

#[tokio::test]
async fn lists_fit_the_terminal() {
    let home = Home::new();
    let words = "many words ".repeat(20);
    home.prints(&["chat", &format!("/say {words}")]);
    for args in [&["sessions"][..], &["replay", &home.last_session()]] {
        let shown = Terminal::start(&home, args, &[("NO_COLOR", "1")]).end().await;
        let too_long = shown.lines().find(|line| line.contains("many words") && line.chars().count() > 80);
        assert_eq!(too_long, None);
        assert!(shown.contains('…'), "{shown}");
    }
}

#[tokio::test]
async fn a_person_who_starts_a_server_gets_a_link_that_lets_them_in() {
    let home = Home::new();
    let mut terminal = Terminal::start(&home, &["serve", "--listen", "127.0.0.1:0", "--no-supex"], &[]);
    terminal.until("One-time link      ").await;
    terminal.until("\n").await;
    let link = terminal.shown.split("One-time link      ").nth(1).unwrap().lines().next().unwrap().to_owned();
    let (address, code) = link.split_once("#code=").unwrap();
    let claim = async || {
        let request = reqwest::Client::new().post(format!("{address}api/supr/claim"));
        request.body(format!("{{\"code\":\"{code}\"}}")).send().await.unwrap()
    };
    let told = claim().await.text().await.unwrap();
    terminal.until("Token              ").await;
    terminal.until("\n").await;
    let token = terminal.shown.split("Token              ").nth(1).unwrap().lines().next().unwrap();
    assert!(token.len() == 32 && told.contains(token), "{told}");
    assert_eq!(claim().await.status(), 403);
    terminal.keys(CTRL_C);
    terminal.end().await;
}

#[tokio::test]
async fn a_key_is_typed_without_being_seen() {
    let home = Home::new();
    let mut terminal = Terminal::start(&home, &["login", "openai", "--key"], &[]);
    terminal.until("(not shown): ").await;
    // A slip is taken back, and so is a line.
    terminal.keys("wrong-s3cret\x15typed-s3cret-keyx\x7f\r");
    let shown = terminal.end().await;
    assert!(shown.contains("Stored the key of openai in") && !shown.contains("s3cret"), "{shown}");
    assert_eq!(std::fs::read_to_string(home.state().join("secrets/key-openai")).unwrap(), "typed-s3cret-key");
}

#[tokio::test]
async fn a_key_that_is_not_given_leaves_the_terminal_as_it_was() {
    let home = Home::new();
    let script = format!(
        "before=$(stty -g); {PARLOR} login openai --key; echo code $?; [ $before = $(stty -g) ] && echo same"
    );
    let mut terminal = Terminal::start_program(&home, "/bin/sh", &["-c", &script], &[]);
    terminal.until("(not shown): ").await;
    terminal.keys("half-a-s3cret");
    terminal.keys(CTRL_C);
    terminal.until("No key was stored.").await;
    terminal.until("code 130").await;
    terminal.until("same").await;
    let shown = terminal.end().await;
    assert!(!shown.contains("s3cret") && !home.state().join("secrets").exists(), "{shown}");
}

#[tokio::test]
async fn a_person_who_asks_one_thing_sees_that_the_provider_is_asked_again() {
    let format = ApiFormat::Chat;
    let answer = || Reply::Stream(format.text("Hello.") + &format.end());
    let busy = || Reply::Status(429, "retry-after: 1".to_owned());
    let server = ScriptedServer::start(vec![busy(), answer(), busy(), answer()]);
    let home = format.home(&server.url, "");
    let key = [("SOME_API_KEY", "s3cret")];
    let shown = Terminal::start(&home, &["chat", "hello"], &key).end().await;
    assert!(shown.contains("429: no; trying again in 1.0 s (2 of 5)\r\nHello."), "{shown}");
    // Whoever reads the answer from a pipe gets nothing but that.
    let output = home.run(&["chat", "hello"]);
    let aside = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.stdout, b"Hello.\n");
    assert!(
        aside.ends_with("429: no; trying again in 1.0 s (2 of 5)\n") && aside.lines().count() == 1,
        "{aside}"
    );
}
