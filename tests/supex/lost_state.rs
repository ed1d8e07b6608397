//! The loss of Ruby's state is told in the texts that every client shows, and nothing that Ruby started outlives the server.

use std::time::Duration;

use parlor_testkit::STEP_TIMEOUT;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, Signal, kill_process, pidfd_open, pidfd_send_signal};

use crate::server::{Client, Server, eval, hello};

/// Waits for the exit of a process that is no child of the test.
struct ExitOf(rustix::fd::OwnedFd);

impl ExitOf {
    fn process(pid: &str) -> Self {
        Self(pidfd_open(Pid::from_raw(pid.parse().unwrap()).unwrap(), PidfdFlags::empty()).unwrap())
    }

    fn is_gone_in_time(&self) -> bool {
        let limit = Timespec::try_from(STEP_TIMEOUT.max(Duration::from_secs(1))).unwrap();
        poll(&mut [PollFd::new(&self.0, PollFlags::IN)], Some(&limit)).unwrap() > 0
    }
}

/// A process that a failed test leaves is ended all the same.
impl Drop for ExitOf {
    fn drop(&mut self) {
        let _ = pidfd_send_signal(&self.0, Signal::KILL);
    }
}

/// Kills the worker, and waits until it is gone.
fn kill_worker(client: &mut Client) {
    let pid = client.eval(1, "$kept = 1; $$").unwrap();
    let exit = ExitOf::process(&pid);
    kill_process(Pid::from_raw(pid.parse().unwrap()).unwrap(), Signal::KILL).unwrap();
    assert!(exit.is_gone_in_time());
}

const LOST: &str = "loaded files of earlier evaluations are lost";

#[test]
fn the_loss_of_ruby_between_two_calls_is_told_once_in_the_text_of_the_next_answer() {
    let server = Server::start();
    let mut client = server.client_after_hello(1);
    kill_worker(&mut client);
    // Mostly a value. If the exit is noticed only now, it is an error.
    let reply = client.request(&eval(2, "$kept.inspect"));
    let text = reply["result"]["result"].as_str().or(reply["error"]["message"].as_str()).unwrap();
    assert!(text.contains(LOST) && text.contains("killed by signal 9"), "{reply}");
    if let Some(notice) = reply["result"]["restarted"].as_str() {
        assert_eq!(text, format!("nil\n{notice}"));
    } else {
        assert!(reply["error"]["data"]["hint"].as_str().unwrap().contains(LOST), "{reply}");
    }
    assert_eq!(client.eval(3, "$kept.inspect"), Ok("nil".to_owned()));
}

#[test]
fn every_client_that_had_defined_something_is_told_of_the_loss_once() {
    let server = Server::start();
    let mut clients = [1, 2, 3].map(|id| server.client_after_hello(id));
    for client in &mut clients {
        client.eval(1, "$kept = 1").unwrap();
    }
    // The first client loses Ruby by its own call.
    let message = clients[0].eval(2, "Process.kill(:KILL, $$); sleep").unwrap_err();
    assert!(message.contains(LOST), "{message}");
    assert_eq!(clients[0].eval(3, "$kept.inspect"), Ok("nil".to_owned()));
    for client in &mut clients[1..] {
        let text = client.eval(2, "$kept.inspect").unwrap();
        assert!(text.starts_with("nil\n") && text.contains(LOST), "{text}");
        assert_eq!(client.eval(3, "$kept.inspect"), Ok("nil".to_owned()));
    }
    assert_eq!(server.client_after_hello(4).eval(1, "$kept.inspect"), Ok("nil".to_owned()), "a new client");
}

#[test]
fn the_loss_of_ruby_is_told_to_a_console() {
    let server = Server::start();
    kill_worker(&mut server.client_after_hello(1));
    let mut console = Client::connect(server.repl);
    console.request(&hello(1));
    let reply = console.request(r#"{"method":"eval","params":{"code":"$kept"},"id":2}"#);
    let output = reply["result"]["output"].as_str().unwrap();
    assert_eq!(output.matches(LOST).count(), 1, "{output}");
}

#[test]
fn the_loss_of_ruby_during_a_call_is_told_in_the_message() {
    let server = Server::start();
    let message = server.client_after_hello(1).eval(1, "Process.kill(:TERM, $$); sleep").unwrap_err();
    assert!(message.contains("worker exited (killed by signal 15); the code may have begun"), "{message}");
    assert!(message.contains(LOST), "{message}");
}

#[test]
fn processes_that_ruby_started_end_with_a_killed_server() {
    for _ in 0..5 {
        let server = Server::start();
        let mut client = server.client_after_hello(1);
        // The second one ignores what a dying parent sends.
        let code = "[spawn('sleep 1000'), spawn('trap \"\" TERM HUP INT; sleep 1000; :'), $$].join(' ')";
        let pids = client.eval(1, code).unwrap();
        let exits: Vec<ExitOf> = pids.split(' ').map(ExitOf::process).collect();
        // Kills the server with SIGKILL.
        drop(server);
        for (exit, pid) in exits.iter().zip(pids.split(' ')) {
            assert!(exit.is_gone_in_time(), "{pid} of {pids} is left");
        }
    }
}

#[test]
fn evaluated_code_has_no_child_that_it_did_not_start() {
    let server = Server::start();
    let mut client = server.client_after_hello(1);
    assert_eq!(client.eval(1, "Process.waitall.size"), Ok("0".to_owned()));
}
