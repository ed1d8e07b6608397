//! Logins of the real program against `oidc-provider` (npm), a certified authorization server that
//! others wrote. The test plays the user's browser with plain HTTP.
//!
//! `crates/auth/src/tests` has what that server cannot be made to say.
#![expect(clippy::disallowed_methods, reason = "servers and the program are started as a shell would")]
#![expect(clippy::unwrap_used, reason = "a helper of a test that cannot go on panics, as the test would")]

mod browser;
mod cuts;
#[path = "../models/forms.rs"]
#[allow(dead_code, reason = "a helper of other tests, of which some is used")]
mod forms;
#[path = "../home/mod.rs"]
mod home;
mod keyring;
mod leaks;
#[path = "../models/server.rs"]
#[allow(dead_code, reason = "a helper of other tests, of which some is used")]
mod model_server;
mod models;
mod pieces;
mod server;

use std::io::{BufRead, BufReader};
use std::os::unix::fs::PermissionsExt;
use std::process::{Child, ChildStdout, Command, Stdio};

use browser::Browser;
use home::Home;
use parlor_testkit::write_executable;
use rustix::fs::Mode;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use server::Server;

/// A login that is under way.
struct Login {
    child: Child,
    said: BufReader<ChildStdout>,
}

impl Login {
    fn start(home: &Home, args: &[&str]) -> Self {
        let mut command = home.command(&[&["login", "x"], args].concat());
        let mut child = headless(&mut command).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let said = BufReader::new(child.stdout.take().unwrap());
        Self { child, said }
    }

    /// The next line that it prints.
    fn line(&mut self) -> String {
        let mut line = String::new();
        self.said.read_line(&mut line).unwrap();
        line.trim_end().to_owned()
    }

    /// What else it prints, what it says aside, and its exit code.
    fn end(mut self) -> (String, String, Option<i32>) {
        let rest = std::io::read_to_string(&mut self.said).unwrap();
        let output = self.child.wait_with_output().unwrap();
        (rest, String::from_utf8(output.stderr).unwrap(), output.status.code())
    }
}

/// Without a screen, so that nobody's browser is opened.
fn headless(command: &mut Command) -> &mut Command {
    command.env_remove("DISPLAY").env_remove("WAYLAND_DISPLAY")
}

fn auth(home: &Home) -> Value {
    home.json(&["auth", "--json"]).remove(0)
}

/// Logs in with a browser.
fn log_in(home: &Home, browser: &mut Browser) {
    let mut login = Login::start(home, &["--browser"]);
    let page = browser.agree(&login.line(), "alice");
    assert!(page.contains("close this page"), "{page}");
    assert_eq!(login.end(), ("Logged in to x as alice@example.org.\n".to_owned(), String::new(), Some(0)));
}

/// Makes the token that is kept look as if it had expired.
fn expire(home: &Home) {
    let file = home.state().join("secrets/login-x");
    let mut kept: Value = serde_json::from_str(&std::fs::read_to_string(&file).unwrap()).unwrap();
    kept["expires_at"] = 1.into();
    std::fs::write(&file, kept.to_string()).unwrap();
}

fn kept(home: &Home) -> Value {
    serde_json::from_str(&std::fs::read_to_string(home.state().join("secrets/login-x")).unwrap()).unwrap()
}

#[test]
fn a_browser_logs_in_with_pkce_over_the_real_redirect() {
    let (server, home) = (Server::start(), Home::new());
    server.configure(&home, "public");
    assert_eq!(auth(&home)["state"], "logged_out");
    log_in(&home, &mut Browser::new());
    let status = auth(&home);
    assert_eq!((&status["state"], &status["renewable"]), (&"logged_in".into(), &true.into()));
    assert_eq!(status["account"]["email"], "alice@example.org");
    assert!(status["expires_at"].as_str().unwrap().ends_with('Z'), "{status}");
    let listed = home.prints(&["auth"]);
    assert!(listed.starts_with("x: logged in as alice@example.org; renewed before 20"), "{listed}");
    assert!(listed.contains("secrets/login-x"), "{listed}");
}

#[test]
fn a_code_logs_in_from_another_device() {
    let (server, home) = (Server::start(), Home::new());
    server.configure(&home, "public");
    // Without a screen, a code is what is asked for.
    let mut login = Login::start(&home, &[]);
    let line = login.line();
    let (address, code) =
        line.strip_prefix("Open ").unwrap().split_once(" on any device and enter this code: ").unwrap();
    let page = Browser::new().enter(address, code, "bob");
    assert!(page.contains("Sign-in Success"), "{page}");
    assert_eq!(login.end(), ("Logged in to x as bob@example.org.\n".to_owned(), String::new(), Some(0)));
    assert_eq!(auth(&home)["account"]["id"], "bob");
}

#[test]
fn a_client_with_a_secret_is_known_by_it() {
    let (server, home) = (Server::start(), Home::new());
    server.configure(&home, "confidential");
    let said = home.refuses(&["login", "x"]);
    assert!(said.contains("TEST_CLIENT_SECRET is not set"), "{said}");
    let mut command = home.command(&["login", "x", "--browser"]);
    command.env("TEST_CLIENT_SECRET", server::CLIENT_SECRET);
    let mut child = headless(&mut command).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let said = BufReader::new(child.stdout.take().unwrap());
    let mut login = Login { child, said };
    Browser::new().agree(&login.line(), "carol");
    assert_eq!(login.end(), ("Logged in to x as carol@example.org.\n".to_owned(), String::new(), Some(0)));
}

#[test]
fn a_login_is_renewed_and_the_refresh_token_changes() {
    let (server, home) = (Server::start(), Home::new());
    server.configure(&home, "public");
    log_in(&home, &mut Browser::new());
    let before = kept(&home);
    home.prints(&["auth", "--check"]);
    assert_eq!(kept(&home), before, "nothing is due");
    expire(&home);
    home.prints(&["auth", "--check"]);
    let after = kept(&home);
    assert_ne!(
        (&after["access_token"], &after["refresh_token"]),
        (&before["access_token"], &before["refresh_token"])
    );
    assert_eq!(after["account"], before["account"]);
    assert!(after["expires_at"].as_i64().unwrap() > 1);
}

#[test]
fn processes_that_renew_at_the_same_time_ask_once() {
    let (server, home) = (Server::start(), Home::new());
    server.configure(&home, "public");
    log_in(&home, &mut Browser::new());
    expire(&home);
    // A refresh token that is used twice is revoked, with all that came of it: so all succeed, or one was enough.
    let check =
        || home.command(&["auth", "--check"]).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    let children: Vec<Child> = (0..6).map(|_| check()).collect();
    for child in children {
        let output = child.wait_with_output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }
    expire(&home);
    home.prints(&["auth", "--check"]);
}

#[test]
fn a_login_that_was_revoked_has_ended() {
    let (server, home) = (Server::start(), Home::new());
    server.configure(&home, "public");
    log_in(&home, &mut Browser::new());
    server.revoke(kept(&home)["refresh_token"].as_str().unwrap());
    expire(&home);
    for _ in 0..2 {
        let said = home.refuses(&["auth", "--check"]);
        assert!(
            said.contains("the login to x has ended: ") && said.contains("run: parlor login x"),
            "{said}"
        );
    }
    assert_eq!(auth(&home)["state"], "ended");
    log_in(&home, &mut Browser::new());
    assert_eq!(auth(&home)["state"], "logged_in");
}

#[test]
fn logging_out_revokes_at_the_server() {
    let (server, home) = (Server::start(), Home::new());
    server.configure(&home, "public");
    log_in(&home, &mut Browser::new());
    let before = kept(&home);
    assert_eq!(home.prints(&["logout"]), "Logged out of x.\n");
    assert_eq!(auth(&home)["state"], "logged_out");
    assert!(home.refuses(&["logout"]).contains("not logged in anywhere"));
    assert_eq!(home.prints(&["logout", "x"]), "You are not logged in to x.\n");
    // What was kept before is of no use to whoever has a copy.
    std::fs::write(home.state().join("secrets/login-x"), before.to_string()).unwrap();
    let private = PermissionsExt::from_mode(0o600);
    std::fs::set_permissions(home.state().join("secrets/login-x"), private).unwrap();
    expire(&home);
    assert!(home.refuses(&["auth", "--check"]).contains("has ended"));
}

#[test]
fn a_wrong_state_ends_the_login() {
    let (server, home) = (Server::start(), Home::new());
    server.configure(&home, "public");
    let mut login = Login::start(&home, &["--browser"]);
    let url = login.line();
    let (status, page) = Browser::new().come_back(&url, "code=stolen&state=forged");
    assert_eq!(status, 400, "{page}");
    let (said, error, code) = login.end();
    assert!(error.contains("belongs to another login"), "{said}{error}");
    assert_eq!((code, auth(&home)["state"].as_str()), (Some(1), Some("logged_out")));
}

#[test]
fn denied_consent_is_reported() {
    let (server, home) = (Server::start(), Home::new());
    server.configure(&home, "public");
    let mut login = Login::start(&home, &["--browser"]);
    let page = Browser::new().refuse(&login.line(), "mallory");
    assert!(page.contains("The provider refused"), "{page}");
    let (_, error, code) = login.end();
    assert!(error.contains("End-User aborted interaction"), "{error}");
    assert_eq!(code, Some(1));
}

#[test]
fn interrupting_cancels() {
    let (server, home) = (Server::start(), Home::new());
    server.configure(&home, "public");
    let mut login = Login::start(&home, &["--browser"]);
    let url = login.line();
    let pid = Pid::from_raw(i32::try_from(login.child.id()).unwrap()).unwrap();
    kill_process(pid, Signal::INT).unwrap();
    let (_, error, code) = login.end();
    assert_eq!((error.as_str(), code), ("The login was cancelled.\n", Some(130)));
    assert!(Browser::new().cannot_come_back(&url), "nobody listens any more");
}

#[test]
fn a_browser_is_opened_and_outlives_the_login() {
    let (server, home) = (Server::start(), Home::new());
    server.configure(&home, "public");
    // A browser that stays: it says who it is and what it was given, and hangs around.
    let (folder, pipe) = (home.folder().join("bin"), home.folder().join("pipe"));
    rustix::fs::mknodat(rustix::fs::CWD, &pipe, rustix::fs::FileType::Fifo, Mode::RUSR | Mode::WUSR, 0)
        .unwrap();
    std::fs::create_dir(&folder).unwrap();
    let opener = folder.join("xdg-open");
    write_executable(&opener, &format!("#!/bin/sh\necho \"$$ $1\" > {}\nexec sleep 600\n", pipe.display()));
    let path = format!("{}:{}", folder.display(), std::env::var("PATH").unwrap());
    let mut command = home.command(&["login", "x"]);
    command.env("PATH", path).env("DISPLAY", ":0").stdout(Stdio::piped()).stderr(Stdio::piped());
    for elsewhere in ["CI", "SSH_CONNECTION", "SSH_CLIENT", "SSH_TTY"] {
        command.env_remove(elsewhere);
    }
    let mut child = command.spawn().unwrap();
    let said = BufReader::new(child.stdout.take().unwrap());
    let mut login = Login { child, said };
    let url = login.line();
    let opened = std::fs::read_to_string(&pipe).unwrap();
    let (pid, given) = opened.trim_end().split_once(' ').unwrap();
    assert_eq!(given, url);
    Browser::new().agree(&url, "erin");
    assert_eq!(login.end().2, Some(0));
    let pid = Pid::from_raw(pid.parse().unwrap()).unwrap();
    assert!(kill_process(pid, Signal::KILL).is_ok(), "the user's browser was ended with the login");
}

#[test]
fn no_browser_of_the_working_folder_is_opened() {
    let (server, home) = (Server::start(), Home::new());
    server.configure(&home, "public");
    let trapped = home.folder().join("trapped");
    write_executable(&home.folder().join("xdg-open"), &format!("#!/bin/sh\ntouch {}\n", trapped.display()));
    let mut command = home.command(&["login", "x", "--browser"]);
    command.env("PATH", ".:").env("DISPLAY", ":0");
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let said = BufReader::new(child.stdout.take().unwrap());
    let mut login = Login { child, said };
    let url = login.line();
    Browser::new().agree(&url, "frank");
    let (_, aside, code) = login.end();
    assert_eq!(code, Some(0), "{aside}");
    assert!(!trapped.exists(), "the program of the working folder was run");
}

#[test]
fn what_is_not_configured_is_said() {
    let home = Home::new();
    assert!(home.prints(&["auth"]).starts_with("No login is configured."));
    assert!(home.refuses(&["login", "x"]).contains("[auth.NAME] in parlor.toml describes one"));
    assert!(!home.state().exists(), "looking makes nothing");
}
