//! A server and several `parlor stdio loaf` processes share one home and are killed together, several times.
//!
//! A turn is acknowledged if its `session.send` was answered. At the end every acknowledged turn is in the log once,
//! the log of each session has no gap, and each run has one start and one end, or is listed as cut off.

use std::collections::HashMap;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::thread::JoinHandle;

use serde_json::{Value, json};
use tokio::sync::watch;

use crate::client::within_timeout;
use crate::server::{PARLOR, Server, soak};
use crate::server_kills::ChatClients;

const CHILDREN: usize = 5;

/// `parlor stdio loaf`, and a thread that sends it turns until the process ends.
struct LoafChild {
    child: Child,
    /// Returns the acknowledged prompts.
    sender: JoinHandle<Vec<String>>,
}

impl LoafChild {
    fn start(home: &Path, name: String, turns: watch::Sender<usize>) -> Self {
        let mut command = Command::new(PARLOR);
        command.args(["stdio", "loaf"]).env("PARLOR_HOME", home).env("HOME", home).current_dir(home);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = command.spawn().unwrap();
        let (stdin, stdout) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
        let sender = std::thread::spawn(move || send_turns(stdin, BufReader::new(stdout), &name, &turns));
        Self { child, sender }
    }

    fn kill(mut self) -> Vec<String> {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
        self.sender.join().unwrap()
    }
}

/// Sends one turn after another until the child ends, and returns the acknowledged prompts.
fn send_turns(
    mut stdin: ChildStdin,
    stdout: impl BufRead,
    name: &str,
    turns: &watch::Sender<usize>,
) -> Vec<String> {
    let mut lines = stdout.lines().map_while(Result::ok).filter_map(|line| serde_json::from_str(&line).ok());
    let mut next = |matches: &dyn Fn(&Value) -> bool| lines.by_ref().find(|line: &Value| matches(line));
    let mut request = |id: u64, method: &str, params: Value| {
        let request = json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params});
        stdin.write_all(format!("{request}\n").as_bytes()).is_ok()
    };
    let mut acknowledged = Vec::new();
    request(0, "session.create", json!({}));
    let Some(created) = next(&|line| line["id"] == 0) else { return acknowledged };
    let session = created["result"]["session_id"].clone();
    for turn in 1.. {
        let prompt = format!("/say {name} turn {turn}");
        if !request(turn, "session.send", json!({"session_id": session, "text": prompt})) {
            break;
        }
        let Some(answer) = next(&|line| line["id"] == turn) else { break };
        assert_eq!(answer["result"]["accepted"], true, "{answer}");
        acknowledged.push(prompt);
        turns.send_modify(|turns| *turns += 1);
        if next(&|line| line["params"]["type"] == "session.completed").is_none() {
            break;
        }
    }
    acknowledged
}

/// How often each prompt is in the logs of the loaf door's sessions. Panics if a log has a gap or an unpaired run.
fn prompts_in_log(server: &Server) -> HashMap<String, usize> {
    let mut prompts = HashMap::new();
    let lines = |args: &[&str]| -> Vec<Value> {
        server.prints(args).lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    };
    for session in lines(&["sessions", "--json", "--limit", "100000"]) {
        if session["door"] != "loaf" {
            continue;
        }
        let mut runs: HashMap<String, [usize; 2]> = HashMap::new();
        let events = lines(&["replay", session["session"].as_str().unwrap(), "--json"]);
        for (event, seq) in events.iter().zip(1..) {
            assert_eq!(event["seq"], seq, "a gap: {event}");
            let run = || event["run"].as_str().unwrap().to_owned();
            if event["type"] == "run.started" {
                runs.entry(run()).or_default()[0] += 1;
                *prompts.entry(event["input"]["text"].as_str().unwrap().to_owned()).or_default() += 1;
            } else if event["type"] == "run.ended" {
                runs.entry(run()).or_default()[1] += 1;
            }
        }
        // A run that died with its process is listed as cut off; it gets its end when its session is next opened.
        let is_paired = |(run, counts): (&String, &[usize; 2])| {
            *counts == [1, usize::from(session["cut_off"] != run.as_str())]
        };
        assert!(runs.iter().all(is_paired), "{session}: starts and ends of runs {runs:?}");
    }
    prompts
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_is_lost_when_a_server_and_loaf_processes_on_one_home_are_killed() {
    let (kills, client_count) = (soak(3, 100), soak(4, 20));
    let mut server = Server::start();
    let clients = ChatClients::start(client_count, &server);
    let mut acknowledged = Vec::new();
    for kill in 0..kills {
        let (turns, mut turn_count) = watch::channel(0);
        let start =
            |number| LoafChild::start(&server.home, format!("kill {kill} child {number}"), turns.clone());
        let children: Vec<_> = (0..CHILDREN).map(start).collect();
        clients.wait_for_answers().await;
        within_timeout(turn_count.wait_for(|turns| *turns > 0)).await.unwrap();
        tokio::task::block_in_place(|| {
            server.kill_and_restart();
            acknowledged.extend(children.into_iter().flat_map(LoafChild::kill));
        });
        clients.use_server(&server);
    }
    let events = clients.stop_and_compare(&server).await;
    let prompts = prompts_in_log(&server);
    for prompt in &acknowledged {
        assert_eq!(prompts.get(prompt), Some(&1), "{prompt:?} was acknowledged");
    }
    assert!(prompts.values().all(|count| *count == 1), "a turn ran twice: {prompts:?}");
    eprintln!(
        "{kills} kills of a server and {CHILDREN} loaf processes, {client_count} clients: {events} events, {} loaf turns",
        acknowledged.len()
    );
}
