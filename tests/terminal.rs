//! `parlor chat --plain` and other commands on a real terminal.
#![expect(clippy::unwrap_used, reason = "a test helper that cannot go on panics, as the test would")]

#[path = "models/api_format.rs"]
#[allow(dead_code, reason = "other tests use the rest of this helper")]
mod api_format;
mod home;
#[path = "models/scripted_server.rs"]
#[allow(dead_code, reason = "other tests use the rest of this helper")]
mod scripted_server;
#[path = "home/terminal.rs"]
mod terminal;

use std::os::unix::fs::PermissionsExt;

use api_format::ApiFormat;
use home::{Home, PARLOR};
use scripted_server::{Reply, ScriptedServer};
use terminal::{ENTER, Terminal};

const CTRL_C: &str = "\x03";
const CTRL_D: &str = "\x04";
const UP: &str = "\x1b[A";

fn count(shown: &str, text: &str) -> usize {
    shown.matches(text).count()
}

#[tokio::test]
async fn chat_shows_the_agent_examples_and_how_to_continue() {
    let home = Home::new();
    let mut terminal = Terminal::start(&home, &["chat", "--plain"], &[]);
    terminal.wait_for("Local (the built-in agent, no model) works in").await;
    terminal.wait_for("Try !ls").await;
    terminal.wait_for("/help").await;
    terminal.wait_for("Ctrl-C stops an answer. Ctrl-D or /quit leaves").await;
    terminal.type_line("/say hello").await;
    terminal.wait_for("hello").await;
    terminal.wait_for_prompt().await;
    terminal.type_keys(CTRL_D);
    terminal.wait_for("parlor chat --session ").await;
    terminal.wait_for("parlor replay ").await;
    let shown = terminal.wait_for_exit().await;
    // The session id in the printed command can be used.
    let session: String = shown.split("parlor replay ").nth(1).unwrap().chars().take(13).collect();
    assert!(home.last_session().starts_with(&session));
    assert!(home.prints(&["replay", &session]).contains("message: hello"));
}

#[tokio::test]
async fn the_output_of_a_command_is_shown_once_and_while_it_runs() {
    let home = Home::new();
    let mut terminal = Terminal::start(&home, &["chat", "--plain"], &[]);
    terminal
        .type_line("!echo first-$((6 * 7)); until [ -e go ]; do sleep 0.05; done; echo last-$((6 * 7))")
        .await;
    terminal.wait_for("[shell]").await;
    terminal.wait_for("first-42").await;
    std::fs::write(home.folder().join("go"), "").unwrap();
    terminal.wait_for("last-42").await;
    terminal.wait_for("[exit code 0]").await;
    // A command that ends at once.
    terminal.type_line("!echo short-$((6 * 7))").await;
    terminal.wait_for("short-42").await;
    terminal.wait_for("[exit code 0]").await;
    terminal.type_line("/quit").await;
    let shown = terminal.wait_for_exit().await;
    for text in ["first-42", "last-42", "short-42"] {
        assert_eq!(count(&shown, text), 1, "{text} in {shown:?}");
    }
    assert_eq!(count(&shown, "[exit code 0]"), 2);
}

#[tokio::test]
async fn an_answer_that_resembles_the_tool_output_is_shown() {
    let home = Home::new();
    home.configure("parlor.toml", "agents.demo = { kind = \"script\", file = \"demo.toml\" }");
    let script = "[otherwise]\nsteps = [ { tool = \"shell\", args = { command = \"echo from-$((6 * 7))\" } }, \
                  { say = \"from-42\\n[exit\" }, { say = \" code\" }, { say = \" zero]\" } ]\n";
    home.configure("demo.toml", script);
    let mut terminal = Terminal::start(&home, &["chat", "--plain", "--agent", "demo"], &[]);
    terminal.wait_for("demo (a script)").await;
    terminal.type_line("go").await;
    terminal.wait_for("from-42").await;
    terminal.wait_for("[exit code 0]").await;
    terminal.wait_for("from-42\r\n[exit code zero]").await;
    terminal.type_line("/exit").await;
    terminal.wait_for_exit().await;
}

#[tokio::test]
async fn ctrl_c_stops_the_answer_and_a_second_one_quits() {
    let home = Home::new();
    let mut terminal = Terminal::start(&home, &["chat", "--plain"], &[]);
    terminal.type_line("/wait 60").await;
    terminal.wait_for(".").await;
    terminal.type_keys(CTRL_C);
    terminal.wait_for("Stopped. Press Ctrl-C again to leave.").await;
    // After another line a single Ctrl-C does not quit.
    terminal.type_line("/say going on").await;
    terminal.wait_for("going on").await;
    terminal.wait_for_prompt().await;
    terminal.type_keys(CTRL_C);
    terminal.wait_for("Press Ctrl-C again or Ctrl-D to leave").await;
    terminal.type_line("/wait 60").await;
    terminal.wait_for(".").await;
    terminal.type_keys(CTRL_C);
    terminal.wait_for("Stopped. Press Ctrl-C again to leave.").await;
    terminal.wait_for_prompt().await;
    terminal.type_keys(CTRL_C);
    terminal.wait_for("parlor chat --session ").await;
    terminal.wait_for_exit().await;
}

#[tokio::test]
async fn ctrl_c_twice_at_the_prompt_quits() {
    let home = Home::new();
    let mut terminal = Terminal::start(&home, &["chat", "--plain"], &[]);
    terminal.wait_for_prompt().await;
    // Any line in between, even an empty one, resets the count.
    for before in ["half a line", ENTER] {
        terminal.type_keys(before);
        if before == ENTER {
            terminal.wait_for_prompt().await;
        }
        terminal.type_keys(CTRL_C);
        terminal.wait_for("Press Ctrl-C again or Ctrl-D to leave").await;
        terminal.wait_for_prompt().await;
    }
    terminal.type_keys(CTRL_C);
    terminal.wait_for("No message was sent, so no session was saved.").await;
    terminal.wait_for_exit().await;
    assert!(home.json(&["sessions", "--json"]).is_empty());
}

#[tokio::test]
async fn ctrl_c_twice_during_a_run_quits_once_the_run_has_ended() {
    let home = Home::new();
    let mut terminal = Terminal::start(&home, &["chat", "--plain"], &[]);
    terminal.type_line("!trap '' TERM; echo stub''born; sleep 600").await;
    terminal.wait_for("stubborn").await;
    terminal.type_keys(CTRL_C);
    terminal.wait_for("Stopping").await;
    terminal.type_keys(CTRL_C);
    terminal.wait_for("parlor replay ").await;
    terminal.wait_for_exit().await;
    let events = home.json(&["replay", &home.last_session(), "--json"]);
    assert_eq!(events.last().unwrap()["ending"], "stopped");
}

#[tokio::test]
async fn the_history_is_saved_for_its_owner_alone() {
    let home = Home::new();
    let mut terminal = Terminal::start(&home, &["chat", "--plain"], &[]);
    terminal.type_line("/say something to remember").await;
    terminal.type_line(" /say not this one").await;
    terminal.type_line("/quit").await;
    terminal.wait_for_exit().await;
    let file = home.state().join("history");
    assert_eq!(std::fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
    let mut terminal = Terminal::start(&home, &["chat", "--plain"], &[]);
    terminal.wait_for_prompt().await;
    // The last entry is `/quit`, so go up twice.
    terminal.type_keys(&format!("{UP}{UP}{ENTER}"));
    terminal.wait_for("\r\nsomething to remember").await;
    terminal.wait_for_prompt().await;
    terminal.type_keys(CTRL_D);
    terminal.wait_for_exit().await;
}

#[tokio::test]
async fn the_history_has_a_size_limit() {
    let home = Home::new();
    let lines: String = (0..1200).map(|n| format!("line {n}\n")).collect();
    home.configure("history", &format!("#V2\n{lines}"));
    let mut terminal = Terminal::start(&home, &["chat", "--plain"], &[]);
    terminal.type_line("/say one more").await;
    // A pasted line that is too long for the history.
    terminal.wait_for_prompt().await;
    terminal.type_keys(&format!("\x1b[200~/say {}\x1b[201~{ENTER}", "x".repeat(17 << 10)));
    terminal.wait_for("\x1b[?2004l").await;
    terminal.type_line("/quit").await;
    terminal.wait_for_exit().await;
    let history = std::fs::read_to_string(home.state().join("history")).unwrap();
    assert_eq!(history.lines().count(), 1 + 1000);
    assert!(history.ends_with("/say one more\n/quit\n") && !history.contains("xxx"), "{history:.100}");
}

#[tokio::test]
async fn a_pasted_text_of_several_lines_is_one_message() {
    let home = Home::new();
    let mut terminal = Terminal::start(&home, &["chat", "--plain"], &[]);
    terminal.wait_for_prompt().await;
    terminal.type_keys("\x1b[200~!echo one-$((1 + 1))\necho two-$((1 + 1))\x1b[201~");
    terminal.type_keys(ENTER);
    terminal.wait_for("one-2").await;
    terminal.wait_for("two-2").await;
    terminal.type_line("/quit").await;
    terminal.wait_for_exit().await;
    let events = home.json(&["replay", &home.last_session(), "--json"]);
    assert_eq!(events.iter().filter(|event| event["type"] == "run.started").count(), 1);
}

#[tokio::test]
async fn escape_sequences_of_tools_are_removed() {
    let home = Home::new();
    let mut terminal = Terminal::start(&home, &["chat", "--plain"], &[]);
    terminal.type_line(r"!printf '\033]0;evil\007\033[2Jkept-%s\r\n' $((6 * 7))").await;
    terminal.wait_for("kept-42").await;
    terminal.type_line("/quit").await;
    let shown = terminal.wait_for_exit().await;
    assert!(!shown.contains("\x1b]0;") && !shown.contains("\x1b[2J"), "{shown:?}");
}

/// If a secret contains an escape sequence, the redactor does not recognize it. Removing the sequence afterwards must not
/// show the secret.
#[tokio::test]
async fn a_secret_with_an_escape_sequence_inside_is_redacted() {
    let home = Home::new();
    let key = "sk-KEPT-openai-Qz7hT93kLmN0pXyW8vRx";
    std::fs::write(home.folder().join("key"), key).unwrap();
    let file = std::fs::File::open(home.folder().join("key")).unwrap();
    assert!(home.command(&["login", "exa", "--key"]).stdin(file).status().unwrap().success());
    let mut terminal = Terminal::start(&home, &["chat", "--plain"], &[]);
    for invisible in [r"\x1b[m", r"\x07", r"\x1b]0;t\x07", r"\xe2\x80\xae"] {
        terminal.type_line(&format!("!sed 's/KEPT/KE{invisible}PT/' key; echo; echo seen-$((6 * 7))")).await;
        terminal.wait_for("seen-42").await;
    }
    terminal.type_line("/quit").await;
    let shown = terminal.wait_for_exit().await;
    assert!(!shown.contains(key) && !shown.contains("PT-openai"), "{shown:?}");
    assert!(!shown.contains('\u{202e}'), "{shown:?}");
    assert!(shown.contains("[secret]"), "{shown:?}");
}

#[tokio::test]
async fn no_color_switches_off_colours() {
    let home = Home::new();
    for (env, coloured) in [(&[][..], true), (&[("NO_COLOR", "1")][..], false)] {
        let mut terminal = Terminal::start(&home, &["chat", "--plain"], env);
        terminal.type_line("!echo x").await;
        terminal.wait_for("[exit code 0]").await;
        terminal.type_line("/quit").await;
        let shown = terminal.wait_for_exit().await;
        assert_eq!(shown.contains("\x1b[2m"), coloured, "{shown:?}");
    }
}

#[tokio::test]
async fn a_dumb_terminal_gets_plain_lines() {
    let home = Home::new();
    let mut terminal = Terminal::start(&home, &["chat"], &[("TERM", "dumb")]);
    terminal.wait_for("> ").await;
    terminal.type_keys("/say pl''ain\n");
    terminal.wait_for("\r\npl''ain").await;
    terminal.wait_for("> ").await;
    terminal.type_keys(CTRL_C);
    terminal.wait_for("Press Ctrl-C again or Ctrl-D to leave").await;
    terminal.type_keys(CTRL_C);
    let shown = terminal.wait_for_exit().await;
    assert!(!shown.contains('\x1b'), "{shown:?}");
}

#[tokio::test]
async fn deleting_a_session_asks_for_confirmation() {
    let home = Home::new();
    home.prints(&["chat", "/say hi"]);
    let session = home.last_session();
    let mut terminal = Terminal::start(&home, &["sessions", "delete", &session], &[]);
    terminal.wait_for("Delete permanently? [y/N] ").await;
    terminal.type_keys("\n");
    terminal.wait_for("nothing was deleted").await;
    let mut terminal = Terminal::start(&home, &["sessions", "delete", &session], &[]);
    terminal.wait_for("[y/N] ").await;
    terminal.type_keys("y\n");
    terminal.wait_for("Deleted session").await;
    terminal.wait_for_exit().await;
    assert!(home.json(&["sessions", "--json"]).is_empty());
}

#[tokio::test]
async fn list_lines_are_cut_to_the_width_of_the_terminal() {
    let home = Home::new();
    let words = "many words ".repeat(20);
    home.prints(&["chat", &format!("/say {words}")]);
    for args in [&["sessions"][..], &["replay", &home.last_session()]] {
        let shown = Terminal::start(&home, args, &[("NO_COLOR", "1")]).wait_for_exit().await;
        let too_long = shown.lines().find(|line| line.contains("many words") && line.chars().count() > 80);
        assert_eq!(too_long, None);
        assert!(shown.contains('…'), "{shown}");
    }
}

#[tokio::test]
async fn serve_prints_a_one_time_link_on_a_terminal() {
    let home = Home::new();
    let mut terminal = Terminal::start(&home, &["serve", "--listen", "127.0.0.1:0", "--no-supex"], &[]);
    terminal.wait_for("One-time link      ").await;
    terminal.wait_for("\n").await;
    let link = terminal.shown.split("One-time link      ").nth(1).unwrap().lines().next().unwrap().to_owned();
    let (address, code) = link.split_once("#code=").unwrap();
    let claim = async || {
        let request = reqwest::Client::new().post(format!("{address}api/supr/claim"));
        request.body(format!("{{\"code\":\"{code}\"}}")).send().await.unwrap()
    };
    let response = claim().await.text().await.unwrap();
    terminal.wait_for("Token              ").await;
    terminal.wait_for("\n").await;
    let token = terminal.shown.split("Token              ").nth(1).unwrap().lines().next().unwrap();
    assert!(token.len() == 32 && response.contains(token), "{response}");
    assert_eq!(claim().await.status(), 403);
    terminal.type_keys(CTRL_C);
    terminal.wait_for_exit().await;
}

#[tokio::test]
async fn a_key_is_not_shown_while_it_is_typed() {
    let home = Home::new();
    let mut terminal = Terminal::start(&home, &["login", "openai", "--key"], &[]);
    terminal.wait_for("(not shown): ").await;
    // Ctrl-U deletes the line, and backspace deletes a character.
    terminal.type_keys("wrong-s3cret\x15typed-s3cret-keyx\x7f\r");
    let shown = terminal.wait_for_exit().await;
    assert!(shown.contains("Stored the key of openai in") && !shown.contains("s3cret"), "{shown}");
    assert_eq!(std::fs::read_to_string(home.state().join("secrets/key-openai")).unwrap(), "typed-s3cret-key");
}

#[tokio::test]
async fn ctrl_c_while_typing_a_key_restores_the_terminal() {
    let home = Home::new();
    let script = format!(
        "before=$(stty -g); {PARLOR} login openai --key; echo code $?; [ $before = $(stty -g) ] && echo same"
    );
    let mut terminal = Terminal::start_program(&home, "/bin/sh", &["-c", &script], &[]);
    terminal.wait_for("(not shown): ").await;
    terminal.type_keys("half-a-s3cret");
    terminal.type_keys(CTRL_C);
    terminal.wait_for("No key was stored.").await;
    terminal.wait_for("code 130").await;
    terminal.wait_for("same").await;
    let shown = terminal.wait_for_exit().await;
    assert!(!shown.contains("s3cret") && !home.state().join("secrets").exists(), "{shown}");
}

#[tokio::test]
async fn retries_of_a_model_request_are_shown() {
    let format = ApiFormat::Chat;
    let answer = || Reply::Stream(format.text("Hello.") + &format.end());
    let busy = || Reply::Status(429, "retry-after: 1".to_owned());
    let server = ScriptedServer::start(vec![busy(), answer(), busy(), answer()]);
    let home = format.home(&server.url, "");
    let key = [("SOME_API_KEY", "s3cret")];
    let shown = Terminal::start(&home, &["chat", "hello"], &key).wait_for_exit().await;
    assert!(shown.contains("429: no; trying again in 1.0 s (2 of 5)\r\nHello."), "{shown}");
    // On a pipe stdout has only the answer.
    let output = home.run(&["chat", "hello"]);
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.stdout, b"Hello.\n");
    assert!(
        stderr.ends_with("429: no; trying again in 1.0 s (2 of 5)\n") && stderr.lines().count() == 1,
        "{stderr}"
    );
}

#[tokio::test]
async fn log_copy_shows_a_progress_bar_on_a_terminal() {
    let home = Home::new();
    home.prints(&["chat", "/say one"]);
    let target = home.folder().join("target");
    let to = format!("sqlite:{}", target.display());
    let terminal = Terminal::start(&home, &["log", "copy", "--from", "sqlite:", "--to", &to], &[]);
    let shown = terminal.wait_for_exit().await;
    assert!(shown.contains("[..............................]   0 %  0 of 8 events"), "{shown:?}");
    assert!(shown.contains("[##############################] 100 %  8 of 8 events"), "{shown:?}");
    // The bar is removed before the summary.
    assert!(shown.contains("\r\u{1b}[KCopied: 8 events in 1 of 1 sessions."), "{shown:?}");
    let dumb =
        Terminal::start(&home, &["log", "copy", "--from", "sqlite:", "--to", &to], &[("TERM", "dumb")]);
    let shown = dumb.wait_for_exit().await;
    assert!(shown.contains("Copied: 0 events in 0 of 1 sessions.") && !shown.contains('['), "{shown:?}");
}
