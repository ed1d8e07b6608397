//! Clients of the supr, loaf and chat doors that keep a session busy, at one node after the other, and record what they see.

use std::process::Stdio;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use parlor_client::loaf::{LoafClient, LoafError, LoafEvents, LoafLaunch};
use parlor_client::supr::{Activity, SuprClient, SuprError, SuprEvent, SuprSettings};
use tokio::time::{Instant, sleep, timeout};

use super::Chance;
use super::faults::NAMES;
use super::network::{NODES, Network};
use crate::checker::{Effect, EventKind, SeenEvent, SessionRecording};
use crate::node::NodeHome;
use crate::server::PARLOR;

/// A connection that is silent for this long is given up, as a person would.
const SILENCE: Duration = Duration::from_secs(6);

/// How long a client that is a program of its own may take for a message.
const PROGRAM_TIME: Duration = Duration::from_secs(45);

/// The port of each node's HTTP server.
pub(super) const HTTP_PORT: u16 = 18790;

/// The token of all nodes, long enough for nodes that listen beyond loopback.
pub(super) const TOKEN: &str = "f00d5eed0123456789abcdef0123456789abcdef";

/// The codes of refusals, which are told to the sender alone and are not in the log.
const REFUSALS: [&str; 3] = ["SESSION_IN_USE", "INTERNAL_ERROR", "RUN_IN_PROGRESS"];

/// The last input of each session.
const LAST_INPUT: &str = "/say the end";

/// What all clients share.
pub(super) struct Surroundings {
    pub(super) network: Network,
    pub(super) homes: Vec<NodeHome>,
    pub(super) end: Instant,
}

/// The clients of one session.
pub(super) struct SessionClients {
    pub(super) name: String,
    pub(super) surroundings: Arc<Surroundings>,
    recording: Mutex<SessionRecording>,
}

/// Which clients a session has.
#[derive(Clone, Copy)]
pub(super) enum Mix {
    Supr,
    SuprAndLoaf,
    SuprAndChat,
}

/// What a client knows to be waiting or running.
#[derive(Default)]
struct Unfinished {
    inputs: Vec<String>,
    runs: Vec<String>,
}

impl Unfinished {
    fn note(&mut self, event: &SeenEvent) {
        match &event.kind {
            EventKind::Started { input } => {
                self.inputs.retain(|waiting| waiting != input);
                self.runs.push(event.run.clone());
            }
            EventKind::Ended => self.runs.retain(|run| *run != event.run),
            EventKind::Other => {}
        }
    }
}

/// Keeps a session busy until the end.
pub(super) async fn drive(number: u64, mix: Mix, surroundings: Arc<Surroundings>) -> SessionRecording {
    let name = format!("s{number}");
    let recording = Mutex::new(SessionRecording { name: name.clone(), ..SessionRecording::default() });
    let clients = SessionClients { name, surroundings, recording };
    let supr = clients.use_supr(Chance(number));
    let other = async {
        match mix {
            Mix::Supr => {}
            Mix::SuprAndLoaf => clients.use_loaf(Chance(number + 1000)).await,
            Mix::SuprAndChat => clients.use_chat(Chance(number + 1000)).await,
        }
    };
    tokio::join!(supr, other);
    clients.recording.into_inner().unwrap()
}

impl SessionClients {
    fn record<T>(&self, change: impl FnOnce(&mut SessionRecording) -> T) -> T {
        change(&mut self.recording.lock().unwrap())
    }

    fn is_over(&self) -> bool {
        Instant::now() >= self.surroundings.end
    }

    /// A message that nobody else sends.
    fn message(&self, client: &str, count: &mut u64, chance: &mut Chance) -> String {
        *count += 1;
        let (session, home) = (&self.name, self.surroundings.homes[0].path().display());
        let id = format!("{session}-{client}-{count}");
        match chance.below(8) {
            0..=2 => format!("/say one two three {id}"),
            3 => format!("/think hmm {id}"),
            4 => format!("!echo done {id}"),
            // Tells what it does every 100 ms, for 1.5 s or 8 s.
            kind => format!(
                "!exec bash -c 'n=$(readlink /proc/self/ns/net); for i in $(seq {}); do \
                 echo \"$EPOCHREALTIME $n\" >>{home}/effects/{id}; sleep 0.1; done'",
                if kind < 7 { 15 } else { 80 }
            ),
        }
    }

    async fn use_supr(&self, mut chance: Chance) {
        let (mut last, mut count, mut unfinished) = (String::new(), 0, Unfinished::default());
        while !self.is_over() {
            let address = NODES[chance.below(3) as usize];
            let connecting = timeout(SILENCE, SuprClient::connect(settings(&self.name, address, &last)));
            let Ok(Ok(mut client)) = connecting.await else {
                sleep(Duration::from_millis(200)).await;
                continue;
            };
            let mut seen = Vec::new();
            // An error is the end of this connection. What was sent and not acknowledged may be lost.
            let _ = self
                .use_supr_connection(&mut client, &mut seen, &mut unfinished, &mut chance, &mut count)
                .await;
            if let Some(event) = seen.last() {
                last.clone_from(&event.id);
            }
            self.record(|recording| recording.watched.push(seen));
        }
    }

    async fn use_supr_connection(
        &self,
        client: &mut SuprClient,
        seen: &mut Vec<SeenEvent>,
        unfinished: &mut Unfinished,
        chance: &mut Chance,
        count: &mut u64,
    ) -> Result<(), SuprError> {
        // Now and then it moves to another node by itself.
        let moves_at = Instant::now() + Duration::from_secs(5 + chance.below(30));
        while Instant::now() < self.surroundings.end.min(moves_at) {
            let mut sent = Vec::new();
            // The second one waits for the first.
            while unfinished.inputs.len() + unfinished.runs.len() + sent.len() < 2 {
                let message = self.message("supr", count, chance);
                client.send(message.as_str()).await?;
                sent.push(message);
            }
            while sent.len() + unfinished.inputs.len() + unfinished.runs.len() > 0 {
                let Ok(event) = timeout(SILENCE, client.next()).await else { return Ok(()) };
                let event = match event? {
                    SuprEvent::Activity(event) => event,
                    SuprEvent::Typed(frame) if frame.kind == "run.queued" => {
                        let text =
                            frame.payload.get("content").and_then(|text| text.as_str()).unwrap_or_default();
                        if let Some(place) = sent.iter().position(|sent| sent == text) {
                            let input = sent.remove(place);
                            self.acknowledge(&input);
                            unfinished.inputs.push(input);
                        }
                        continue;
                    }
                    SuprEvent::Typed(_) => continue,
                    SuprEvent::Reconnected => return Ok(()),
                };
                match seen_event(&event) {
                    Some(event) => {
                        if let EventKind::Started { input } = &event.kind {
                            if sent.contains(input) {
                                self.acknowledge(input);
                            }
                            sent.retain(|sent| sent != input);
                        }
                        unfinished.note(&event);
                        seen.push(event);
                    }
                    // Refused: nobody knows which one.
                    None if event.event_type == "run.failed" => return Ok(()),
                    None => {}
                }
            }
        }
        Ok(())
    }

    fn acknowledge(&self, input: &str) {
        self.record(|recording| recording.acknowledged.insert(input.to_owned()));
    }

    async fn use_loaf(&self, mut chance: Chance) {
        let mut count = 0;
        while !self.is_over() {
            let node = chance.below(3) as usize;
            let turns = 1 + chance.below(10);
            // Its program is a member of the cluster, and ends with an error if the node's database cannot be reached.
            let _ = timeout(PROGRAM_TIME, self.use_loaf_program(node, turns, &mut chance, &mut count)).await;
            sleep(Duration::from_millis(200)).await;
        }
    }

    async fn use_loaf_program(
        &self,
        node: usize,
        turns: u64,
        chance: &mut Chance,
        count: &mut u64,
    ) -> Result<(), LoafError> {
        let home = &self.surroundings.homes[node];
        let mut launch = LoafLaunch::new("nsenter");
        launch.args = vec![self.surroundings.network.namespace(node)];
        launch.args.extend(["--", PARLOR, "stdio", "loaf"].map(str::to_owned));
        launch.cwd = Some(home.path().to_owned());
        launch.env = vec![("PARLOR_HOME".to_owned(), home.path().display().to_string())];
        let (client, mut events) = LoafClient::spawn(&launch)?;
        let session = client.create_session().await?;
        client.resume(&session, &self.name).await?;
        for _ in 0..turns {
            if self.is_over() {
                break;
            }
            let message = self.message("loaf", count, chance);
            let sent = client.enqueue(&session, &message).await?;
            // A prompt that waits is not recorded yet, as the door's page says. Its turn shows it when it is.
            if self.wait_for_turn(&mut events, &sent.turn_id, &message).await? {
                self.record(|recording| *recording.answers.entry(message).or_default() += 1);
            }
        }
        if chance.below(2) == 0 {
            client.shutdown().await?;
        }
        // Otherwise it is killed.
        Ok(())
    }

    /// Waits for the end of a turn. Returns whether it was answered.
    async fn wait_for_turn(
        &self,
        events: &mut LoafEvents,
        turn: &str,
        message: &str,
    ) -> Result<bool, LoafError> {
        loop {
            let event = events.next().await?;
            let shown = event.payload.get("message").and_then(|message| message.get("text")?.as_str());
            match (event.kind.as_str(), event.turn_id() == Some(turn)) {
                ("session.message.appended", _) if shown == Some(message) => self.acknowledge(message),
                ("session.completed", true) => return Ok(true),
                ("session.error" | "session.interrupted", true) => return Ok(false),
                _ => {}
            }
        }
    }

    async fn use_chat(&self, mut chance: Chance) {
        let mut count = 0;
        while !self.is_over() {
            let node = chance.below(3) as usize;
            let message = self.message("chat", &mut count, &mut chance);
            let mut command = std::process::Command::new(PARLOR);
            command.args(["chat", "--session", &self.name, &message]);
            let home = self.surroundings.homes[node].path();
            command.current_dir(home).env("PARLOR_HOME", home);
            let command = self.surroundings.network.command_of(node, &command);
            let mut command = tokio::process::Command::from(command);
            command.stdin(Stdio::null()).kill_on_drop(true);
            // It was killed, or failed: the message may be lost.
            let Ok(Ok(output)) = timeout(PROGRAM_TIME, command.output()).await else { continue };
            if output.status.success() {
                self.record(|recording| *recording.answers.entry(message).or_default() += 1);
            } else {
                sleep(Duration::from_millis(200)).await;
            }
        }
    }
}

fn settings(session: &str, address: &str, after: &str) -> SuprSettings {
    let url = format!("ws://{address}:{HTTP_PORT}/supr/ws");
    let mut settings = SuprSettings::new(url, TOKEN).with_session(session);
    (settings.after, settings.streams, settings.retries) = (Some(after.to_owned()), true, 0);
    settings
}

/// A member of the input of a run that began.
fn input_text(event: &Activity) -> &str {
    event.data.get("input").and_then(|input| input.get("text")?.as_str()).unwrap_or_default()
}

/// The event, unless it is a refusal.
fn seen_event(event: &Activity) -> Option<SeenEvent> {
    let kind = match event.event_type.as_str() {
        "run.started" => EventKind::Started { input: input_text(event).to_owned() },
        "run.completed" | "run.failed" => EventKind::Ended,
        _ => EventKind::Other,
    };
    let code = ["error_code", "code"].iter().find_map(|name| event.data.get(*name)?.as_str());
    let is_refusal = code.is_some_and(|code| REFUSALS.contains(&code));
    let at = chrono::DateTime::parse_from_rfc3339(&event.timestamp).unwrap().timestamp_millis();
    let (id, run) = (event.event_id.clone(), event.run_id.clone());
    (!is_refusal).then_some(SeenEvent { id, run, sequence: event.sequence, at, kind })
}

/// Sends a last message, which is answered after all others, and replays the session at each node up to its end.
pub(super) async fn replay_everywhere(recording: &mut SessionRecording) {
    let last_run = loop {
        // Refused, or a node is not ready yet.
        if let Ok(run) = run_last_input(&recording.name).await {
            break run;
        }
        sleep(Duration::from_millis(500)).await;
    };
    for address in NODES {
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

/// What a node shows of a session that does not come to rest.
pub(super) async fn replay_as_it_is(recording: &mut SessionRecording) {
    let Ok(mut client) = SuprClient::connect(settings(&recording.name, NODES[0], "")).await else { return };
    let mut replay = Vec::new();
    while let Ok(Ok(event)) = timeout(SILENCE, client.next()).await {
        if let SuprEvent::Activity(event) = event {
            replay.extend(seen_event(&event));
        }
    }
    recording.replays = vec![replay];
}

/// The run of an input that was sent after all others, once it has ended.
async fn run_last_input(session: &str) -> Result<String, SuprError> {
    let mut settings = settings(session, NODES[0], "");
    settings.after = None;
    let mut client = SuprClient::connect(settings).await?;
    client.send(LAST_INPUT).await?;
    let mut last_run = None;
    loop {
        let SuprEvent::Activity(event) = client.next().await? else { continue };
        if event.event_type == "run.started" && input_text(&event) == LAST_INPUT {
            last_run = Some(event.run_id.clone());
        }
        match seen_event(&event) {
            Some(seen) if seen.kind == EventKind::Ended && Some(&seen.run) == last_run.as_ref() => {
                return Ok(seen.run);
            }
            // Refused: the caller tries again.
            None if event.event_type == "run.failed" => return Err(SuprError::Backlog { limit: 0 }),
            Some(_) | None => {}
        }
    }
}

/// Reads what the tools of a session did.
pub(super) fn read_effects(recording: &mut SessionRecording, surroundings: &Surroundings) {
    let folder = surroundings.homes[0].path().join("effects");
    let names = surroundings.network.namespace_names();
    let start = format!("{}-", recording.name);
    let inputs: Vec<String> = recording
        .replays
        .iter()
        .flatten()
        .filter_map(|event| match &event.kind {
            EventKind::Started { input } => Some(input.clone()),
            EventKind::Ended | EventKind::Other => None,
        })
        .collect();
    for file in std::fs::read_dir(folder).unwrap() {
        let (file, name) = file.map(|file| (file.path(), file.file_name().into_string().unwrap())).unwrap();
        if !name.starts_with(&start) {
            continue;
        }
        let named = format!("/{name};");
        let input = inputs.iter().find(|input| input.contains(&named)).cloned().unwrap_or(name);
        let lines = std::fs::read_to_string(file).unwrap();
        recording.effects.extend(lines.lines().filter_map(|line| effect(&input, line, &names)));
    }
}

/// A line of a tool: seconds with six decimals, and the namespace of its node. `None` if the tool was killed while it wrote.
fn effect(input: &str, line: &str, names: &[String]) -> Option<Effect> {
    let (seconds, namespace) = line.split_once(' ')?;
    let at = seconds.replace(['.', ','], "").parse::<i64>().ok()? / 1000;
    let node = names.iter().position(|name| name == namespace)?;
    Some(Effect { input: input.to_owned(), node: NAMES[node].to_owned(), at })
}
