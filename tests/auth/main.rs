//! Logins of the real program against `oidc-provider` (npm), a certified third-party authorization server. A minimal
//! HTTP client takes the part of the user's browser.
//!
//! `crates/auth/src/tests` covers the responses that this server never sends.
#![expect(clippy::disallowed_methods, reason = "starts servers and the program, as a shell would")]
#![expect(clippy::unwrap_used, reason = "test helpers panic on failure, as the tests do")]

#[path = "../models/api_format.rs"]
#[allow(dead_code, reason = "shared with tests/models, which uses more of it")]
mod api_format;
mod browser;
#[path = "../home/mod.rs"]
mod home;
mod keyring;
mod leaks;
#[path = "../models/scripted_server.rs"]
#[allow(dead_code, reason = "shared with tests/models, which uses more of it")]
mod model_server;
mod models;
mod oidc_server;
#[path = "../models/outputs.rs"]
mod outputs;
mod split_secrets;
mod truncation;

use std::io::{BufRead, BufReader};
use std::os::unix::fs::PermissionsExt;
use std::process::{Child, ChildStdout, Command, Stdio};

use browser::Browser;
use home::Home;
use oidc_server::OidcServer;
use parlor_testkit::write_executable;
use rustix::fs::Mode;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

/// A running `parlor login`.
struct Login {
    child: Child,
    stdout: BufReader<ChildStdout>,
}

impl Login {
    fn start(home: &Home, args: &[&str]) -> Self {
        let mut command = home.command(&[&["login", "x"], args].concat());
        Self::of(headless(&mut command).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap())
    }

    /// Wraps a child whose stdout is piped.
    fn of(mut child: Child) -> Self {
        let stdout = BufReader::new(child.stdout.take().unwrap());
        Self { child, stdout }
    }

    /// Reads the next line of stdout.
    fn read_line(&mut self) -> String {
        let mut line = String::new();
        self.stdout.read_line(&mut line).unwrap();
        line.trim_end().to_owned()
    }

    /// Waits for the exit; returns the rest of stdout, stderr and the exit code.
    fn wait(mut self) -> (String, String, Option<i32>) {
        let rest = std::io::read_to_string(&mut self.stdout).unwrap();
        let output = self.child.wait_with_output().unwrap();
        (rest, String::from_utf8(output.stderr).unwrap(), output.status.code())
    }
}

/// Removes the variables of the screen, so that no real browser is opened.
fn headless(command: &mut Command) -> &mut Command {
    command.env_remove("DISPLAY").env_remove("WAYLAND_DISPLAY")
}

/// The first entry of `parlor auth --json`.
fn auth_status(home: &Home) -> Value {
    home.json(&["auth", "--json"]).remove(0)
}

/// Logs in as alice with a browser.
fn log_in(home: &Home, browser: &mut Browser) {
    let mut login = Login::start(home, &["--browser"]);
    let page = browser.log_in(&login.read_line(), "alice");
    assert!(page.contains("close this page"), "{page}");
    assert_eq!(login.wait(), ("Logged in to x as alice@example.org.\n".to_owned(), String::new(), Some(0)));
}

/// Changes the stored login so that its token looks old and expired. Parlor does not renew a new one.
fn expire(home: &Home) {
    let file = home.state().join("secrets/login-x");
    let mut login: Value = serde_json::from_str(&std::fs::read_to_string(&file).unwrap()).unwrap();
    login["obtained_at"] = 0.into();
    login["expires_at"] = 1.into();
    std::fs::write(&file, login.to_string()).unwrap();
}

fn stored_login(home: &Home) -> Value {
    serde_json::from_str(&std::fs::read_to_string(home.state().join("secrets/login-x")).unwrap()).unwrap()
}

#[test]
fn a_browser_logs_in_with_pkce_over_the_real_redirect() {
    let (server, home) = (OidcServer::start(), Home::new());
    server.configure(&home, "public");
    assert_eq!(auth_status(&home)["state"], "logged_out");
    log_in(&home, &mut Browser::new());
    let status = auth_status(&home);
    assert_eq!((&status["state"], &status["renewable"]), (&"logged_in".into(), &true.into()));
    assert_eq!(status["account"]["email"], "alice@example.org");
    assert!(status["expires_at"].as_str().unwrap().ends_with('Z'), "{status}");
    let listed = home.prints(&["auth"]);
    assert!(listed.starts_with("x: logged in as alice@example.org; parlor renews it before 20"), "{listed}");
    assert!(listed.contains("secrets/login-x"), "{listed}");
}

#[test]
fn a_device_code_logs_in_from_another_device() {
    let (server, home) = (OidcServer::start(), Home::new());
    server.configure(&home, "public");
    // Without a screen, parlor uses the device flow.
    let mut login = Login::start(&home, &[]);
    let line = login.read_line();
    let (address, code) =
        line.strip_prefix("Open ").unwrap().split_once(" on any device and enter this code: ").unwrap();
    let page = Browser::new().log_in_with_code(address, code, "bob");
    assert!(page.contains("Sign-in Success"), "{page}");
    assert_eq!(login.wait(), ("Logged in to x as bob@example.org.\n".to_owned(), String::new(), Some(0)));
    assert_eq!(auth_status(&home)["account"]["id"], "bob");
}

#[test]
fn a_confidential_client_needs_its_secret() {
    let (server, home) = (OidcServer::start(), Home::new());
    server.configure(&home, "confidential");
    let said = home.refuses(&["login", "x"]);
    assert!(said.contains("TEST_CLIENT_SECRET is not set"), "{said}");
    let mut command = home.command(&["login", "x", "--browser"]);
    command.env("TEST_CLIENT_SECRET", oidc_server::CLIENT_SECRET);
    let child = headless(&mut command).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut login = Login::of(child);
    Browser::new().log_in(&login.read_line(), "carol");
    assert_eq!(login.wait(), ("Logged in to x as carol@example.org.\n".to_owned(), String::new(), Some(0)));
}

#[test]
fn an_expired_login_is_renewed_and_its_refresh_token_rotated() {
    let (server, home) = (OidcServer::start(), Home::new());
    server.configure(&home, "public");
    log_in(&home, &mut Browser::new());
    let before = stored_login(&home);
    home.prints(&["auth", "--check"]);
    assert_eq!(stored_login(&home), before, "a valid login must not be renewed");
    expire(&home);
    home.prints(&["auth", "--check"]);
    let after = stored_login(&home);
    assert_ne!(
        (&after["access_token"], &after["refresh_token"]),
        (&before["access_token"], &before["refresh_token"])
    );
    assert_eq!(after["account"], before["account"]);
    assert!(after["expires_at"].as_i64().unwrap() > 1);
}

#[test]
fn concurrent_processes_renew_a_login_once() {
    let (server, home) = (OidcServer::start(), Home::new());
    server.configure(&home, "public");
    log_in(&home, &mut Browser::new());
    expire(&home);
    // The server revokes a refresh token that is used twice. If all processes succeed, only one has used it.
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
fn a_revoked_login_is_reported_as_ended() {
    let (server, home) = (OidcServer::start(), Home::new());
    server.configure(&home, "public");
    log_in(&home, &mut Browser::new());
    server.revoke(stored_login(&home)["refresh_token"].as_str().unwrap());
    expire(&home);
    for _ in 0..2 {
        let said = home.refuses(&["auth", "--check"]);
        assert!(
            said.contains("the login to x has ended: ") && said.contains("run: parlor login x"),
            "{said}"
        );
    }
    assert_eq!(auth_status(&home)["state"], "ended");
    log_in(&home, &mut Browser::new());
    assert_eq!(auth_status(&home)["state"], "logged_in");
}

#[test]
fn logout_revokes_the_tokens_at_the_server() {
    let (server, home) = (OidcServer::start(), Home::new());
    server.configure(&home, "public");
    log_in(&home, &mut Browser::new());
    let before = stored_login(&home);
    assert_eq!(home.prints(&["logout"]), "Logged out of x.\n");
    assert_eq!(auth_status(&home)["state"], "logged_out");
    assert!(home.refuses(&["logout"]).contains("there is no login and no stored key"));
    assert_eq!(home.prints(&["logout", "x"]), "You are not logged in to x.\n");
    // A copy of the old login must not work any more.
    std::fs::write(home.state().join("secrets/login-x"), before.to_string()).unwrap();
    let private = PermissionsExt::from_mode(0o600);
    std::fs::set_permissions(home.state().join("secrets/login-x"), private).unwrap();
    expire(&home);
    assert!(home.refuses(&["auth", "--check"]).contains("has ended"));
}

#[test]
fn a_callback_with_a_wrong_state_ends_the_login() {
    let (server, home) = (OidcServer::start(), Home::new());
    server.configure(&home, "public");
    let mut login = Login::start(&home, &["--browser"]);
    let url = login.read_line();
    let (status, page) = Browser::new().open_callback(&url, "code=stolen&state=forged");
    assert_eq!(status, 400, "{page}");
    let (stdout, error, code) = login.wait();
    assert!(error.contains("belongs to another login"), "{stdout}{error}");
    assert_eq!((code, auth_status(&home)["state"].as_str()), (Some(1), Some("logged_out")));
}

#[test]
fn denied_consent_is_reported() {
    let (server, home) = (OidcServer::start(), Home::new());
    server.configure(&home, "public");
    let mut login = Login::start(&home, &["--browser"]);
    let page = Browser::new().deny(&login.read_line(), "mallory");
    assert!(page.contains("The provider refused"), "{page}");
    let (_, error, code) = login.wait();
    assert!(error.contains("End-User aborted interaction"), "{error}");
    assert_eq!(code, Some(1));
}

#[test]
fn sigint_cancels_a_login() {
    let (server, home) = (OidcServer::start(), Home::new());
    server.configure(&home, "public");
    let mut login = Login::start(&home, &["--browser"]);
    let url = login.read_line();
    let pid = Pid::from_raw(i32::try_from(login.child.id()).unwrap()).unwrap();
    kill_process(pid, Signal::INT).unwrap();
    let (_, error, code) = login.wait();
    assert_eq!((error.as_str(), code), ("The login was cancelled.\n", Some(130)));
    assert!(Browser::new().is_callback_closed(&url), "the callback port must be closed");
}

#[test]
fn a_login_opens_the_browser_and_does_not_kill_it() {
    let (server, home) = (OidcServer::start(), Home::new());
    server.configure(&home, "public");
    // A fake browser that writes its process id and argument to a pipe, and keeps running.
    let (folder, pipe) = (home.folder().join("bin"), home.folder().join("pipe"));
    rustix::fs::mknodat(rustix::fs::CWD, &pipe, rustix::fs::FileType::Fifo, Mode::RUSR | Mode::WUSR, 0)
        .unwrap();
    std::fs::create_dir(&folder).unwrap();
    let opener = folder.join("xdg-open");
    write_executable(&opener, &format!("#!/bin/sh\necho \"$$ $1\" > {}\nexec sleep 600\n", pipe.display()));
    let path = format!("{}:{}", folder.display(), std::env::var("PATH").unwrap());
    let mut command = home.command(&["login", "x"]);
    command.env("PATH", path).env("DISPLAY", ":0").stdout(Stdio::piped()).stderr(Stdio::piped());
    for variable in ["CI", "SSH_CONNECTION", "SSH_CLIENT", "SSH_TTY"] {
        command.env_remove(variable);
    }
    let mut login = Login::of(command.spawn().unwrap());
    let url = login.read_line();
    let opened = std::fs::read_to_string(&pipe).unwrap();
    let (pid, address) = opened.trim_end().split_once(' ').unwrap();
    assert_eq!(address, url);
    Browser::new().log_in(&url, "erin");
    assert_eq!(login.wait().2, Some(0));
    let pid = Pid::from_raw(pid.parse().unwrap()).unwrap();
    assert!(kill_process(pid, Signal::KILL).is_ok(), "the login killed the browser");
}

#[test]
fn a_browser_in_the_working_folder_is_not_started() {
    let (server, home) = (OidcServer::start(), Home::new());
    server.configure(&home, "public");
    let marker = home.folder().join("marker");
    write_executable(&home.folder().join("xdg-open"), &format!("#!/bin/sh\ntouch {}\n", marker.display()));
    let mut command = home.command(&["login", "x", "--browser"]);
    command.env("PATH", ".:").env("DISPLAY", ":0");
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut login = Login::of(command.spawn().unwrap());
    let url = login.read_line();
    Browser::new().log_in(&url, "frank");
    let (_, stderr, code) = login.wait();
    assert_eq!(code, Some(0), "{stderr}");
    assert!(!marker.exists(), "the program in the working folder was started");
}

#[test]
fn without_configuration_auth_and_login_say_so() {
    let home = Home::new();
    assert!(home.prints(&["auth"]).starts_with("No login is configured."));
    assert!(home.refuses(&["login", "x"]).contains("add [auth.NAME] to parlor.toml"));
    assert!(!home.state().exists(), "`parlor auth` must not create the state folder");
}
