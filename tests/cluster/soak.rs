//! Busy sessions on three nodes while nodes are killed, paused and asked to end, and the database is killed: what clients
//! recorded keeps every promise (`checker.rs`). With `PARLOR_SOAK=1` for 15 minutes, or `PARLOR_SOAK_SECONDS`; otherwise
//! the test does nothing.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use parlor_client::supr::{Activity, SuprClient, SuprError, SuprEvent, SuprSettings};
use parlor_log::postgres::test_server::TestServer;
use rustix::process::{Pid, Signal, kill_process};
use tokio::time::{Instant, sleep, timeout};

use crate::checker::{EventKind, SeenEvent, SessionRecording, violations};
use crate::node::{Database, NodeHome};
use crate::server::{Server, TOKEN, soak};

/// How many sessions are busy.
const SESSIONS: usize = 60;

/// A connection that is silent for this long is given up, as a person would.
const SILENCE: Duration = Duration::from_secs(4);

/// How long everything may take after the last fault.
const CALM: Duration = Duration::from_secs(120);

/// The codes of refusals, which are told to the sender alone and are not in the log.
const REFUSALS: [&str; 3] = ["SESSION_IN_USE", "INTERNAL_ERROR", "RUN_IN_PROGRESS"];

type Addresses = Arc<Mutex<Vec<SocketAddr>>>;

/// Random enough to choose faults; the seed is printed, so that a failure can be repeated roughly.
struct Chance(u64);

impl Chance {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % limit
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn clients_see_every_promise_kept_whatever_fails() {
    let seconds = std::env::var("PARLOR_SOAK_SECONDS").ok().and_then(|seconds| seconds.parse().ok());
    let Some(seconds) = seconds.or_else(|| soak(None, Some(900))) else { return };
    let postgres = TestServer::start("");
    let database = Database::on(&postgres).await;
    let homes = ["a", "b", "c"].map(|name| NodeHome::of_cluster(&database, name, ""));
    let mut servers = homes.each_ref().map(|home| home.serve(&[]));
    let addresses: Addresses = Arc::new(Mutex::new(servers.iter().map(|server| server.http).collect()));
    let end = Instant::now() + Duration::from_secs(seconds);
    let drive = |number: usize| {
        let (addresses, name) = (Arc::clone(&addresses), format!("s{number}"));
        tokio::spawn(async move { drive(name, &addresses, Chance(number as u64), end).await })
    };
    let drivers: Vec<_> = (0..SESSIONS).map(drive).collect();
    let seed = u64::from(std::process::id());
    eprintln!("seed {seed}");
    let (mut chance, mut faults) = (Chance(seed), 0);
    while Instant::now() < end {
        sleep(Duration::from_millis(2000 + chance.below(4000))).await;
        let number = chance.below(3) as usize;
        let pause = Duration::from_millis(chance.below(7000));
        match chance.below(5) {
            0 | 1 => {
                servers[number].kill();
                sleep(pause).await;
                servers[number] = restart(&homes[number], number, &addresses);
            }
            2 => {
                let pid = Pid::from_raw(servers[number].pid().try_into().unwrap()).unwrap();
                kill_process(pid, Signal::STOP).unwrap();
                sleep(Duration::from_secs(6) + pause).await;
                kill_process(pid, Signal::CONT).unwrap();
            }
            3 => {
                servers[number].stop();
                servers[number] = restart(&homes[number], number, &addresses);
            }
            _ => {
                postgres.kill();
                sleep(pause).await;
                postgres.restart();
            }
        }
        faults += 1;
    }
    let mut found = Vec::new();
    let mut inputs = 0;
    for driver in drivers {
        let mut recording = driver.await.unwrap();
        timeout(CALM, replay_everywhere(&mut recording, &addresses))
            .await
            .expect("the session comes to rest");
        inputs += recording.acknowledged.len();
        found.extend(violations(&recording));
    }
    eprintln!("{faults} faults, {SESSIONS} sessions, {inputs} acknowledged inputs");
    assert!(found.is_empty(), "{}", found.join("\n"));
}

fn restart(home: &NodeHome, number: usize, addresses: &Addresses) -> Server {
    let server = home.serve(&[]);
    addresses.lock().unwrap()[number] = server.http;
    server
}

fn settings(session: &str, address: SocketAddr, after: &str) -> SuprSettings {
    let url = format!("ws://{address}/supr/ws");
    let mut settings = SuprSettings::new(url, TOKEN).with_session(session);
    (settings.after, settings.streams, settings.retries) = (Some(after.to_owned()), true, 0);
    settings
}

/// Keeps a session busy until `end`, at one node after the other.
async fn drive(name: String, addresses: &Addresses, mut chance: Chance, end: Instant) -> SessionRecording {
    let mut recording = SessionRecording { name: name.clone(), ..SessionRecording::default() };
    let mut last = String::new();
    while Instant::now() < end {
        let address = addresses.lock().unwrap()[chance.below(3) as usize];
        let connecting = timeout(SILENCE, SuprClient::connect(settings(&name, address, &last)));
        let Ok(Ok(mut client)) = connecting.await else {
            sleep(Duration::from_millis(200)).await;
            continue;
        };
        let mut seen = Vec::new();
        // An error is the end of this connection. What was sent and not acknowledged may be lost.
        let _ = use_connection(&mut client, &mut recording, &mut seen, &mut chance, end).await;
        if let Some(event) = seen.last() {
            last.clone_from(&event.id);
        }
        recording.watched.push(seen);
    }
    recording
}

async fn use_connection(
    client: &mut SuprClient,
    recording: &mut SessionRecording,
    seen: &mut Vec<SeenEvent>,
    chance: &mut Chance,
    end: Instant,
) -> Result<(), SuprError> {
    let texts = ["/say one two three", "/wait 1", "!echo done"];
    // Now and then it moves to another node by itself.
    let moves_at = Instant::now() + Duration::from_secs(5 + chance.below(30));
    while Instant::now() < end.min(moves_at) {
        // The second one waits for the first.
        for _ in 0..2 {
            client.send(texts[chance.below(3) as usize]).await?;
        }
        let mut waiting = 2;
        while waiting > 0 {
            let Ok(event) = timeout(SILENCE, client.next()).await else { return Ok(()) };
            match event? {
                SuprEvent::Activity(event) => match seen_event(&event) {
                    Some(event) => {
                        waiting -= usize::from(event.kind == EventKind::Ended);
                        if let EventKind::Started { key } = &event.kind {
                            recording.acknowledged.insert(key.clone());
                        }
                        seen.push(event);
                    }
                    None if event.event_type == "run.failed" => waiting -= 1,
                    None => {}
                },
                SuprEvent::Typed(frame) if frame.kind == "run.queued" => {
                    let key = frame.payload.get("key").and_then(|key| key.as_str());
                    recording.acknowledged.extend(key.map(str::to_owned));
                }
                SuprEvent::Typed(_) => {}
                SuprEvent::Reconnected => return Ok(()),
            }
        }
    }
    Ok(())
}

/// A member of the input of a run that began.
fn input_text<'a>(event: &'a Activity, member: &str) -> Option<&'a str> {
    event.data.get("input")?.get(member)?.as_str()
}

/// The event, unless it is a refusal.
fn seen_event(event: &Activity) -> Option<SeenEvent> {
    let kind = match event.event_type.as_str() {
        "run.started" => EventKind::Started { key: input_text(event, "key").unwrap_or_default().to_owned() },
        "run.completed" | "run.failed" => EventKind::Ended,
        _ => EventKind::Other,
    };
    let code = ["error_code", "code"].iter().find_map(|name| event.data.get(*name)?.as_str());
    let is_refusal = code.is_some_and(|code| REFUSALS.contains(&code));
    let (id, run) = (event.event_id.clone(), event.run_id.clone());
    (!is_refusal).then_some(SeenEvent { id, run, kind })
}

/// Sends a last message, which is answered after all others, and replays the session at each node up to its end.
async fn replay_everywhere(recording: &mut SessionRecording, addresses: &Addresses) {
    let addresses = addresses.lock().unwrap().clone();
    let last_run = loop {
        if let Ok(run) = run_last_input(&recording.name, addresses[0]).await {
            break run;
        }
        sleep(Duration::from_millis(500)).await;
    };
    for address in addresses {
        let mut client = SuprClient::connect(settings(&recording.name, address, "")).await.unwrap();
        let mut replay = Vec::new();
        while !replay
            .last()
            .is_some_and(|event: &SeenEvent| event.kind == EventKind::Ended && event.run == last_run)
        {
            if let SuprEvent::Activity(event) = client.next().await.unwrap() {
                replay.extend(seen_event(&event));
            }
        }
        recording.replays.push(replay);
    }
}

/// The run of an input that was sent after all others, once it has ended.
async fn run_last_input(session: &str, address: SocketAddr) -> Result<String, SuprError> {
    let mut settings = settings(session, address, "");
    settings.after = None;
    let mut client = SuprClient::connect(settings).await?;
    client.send("/say the end").await?;
    let mut last_run = None;
    loop {
        let SuprEvent::Activity(event) = client.next().await? else { continue };
        if event.event_type == "run.started" && input_text(&event, "text") == Some("/say the end") {
            last_run = Some(event.run_id.clone());
        }
        match seen_event(&event) {
            Some(seen) if seen.kind == EventKind::Ended && Some(&seen.run) == last_run.as_ref() => {
                return Ok(seen.run);
            }
            // Refused: the caller tries again.
            None if event.event_type == "run.failed" => return run_again(),
            Some(_) | None => {}
        }
    }
}

fn run_again() -> Result<String, SuprError> {
    Err(SuprError::Backlog { limit: 0 })
}
