//! A session that was begun at one door is watched, steered, stopped and continued from each of the others.

use crate::chat::TerminalChat;
use crate::client::{Client, Door, begin, join};
use crate::home::Home;
use crate::log::{checked_events, of_type, runs};
use crate::supr::{Socket, serve};

/// The name of a door in the log.
fn name(door: Door) -> &'static str {
    match door {
        Door::Acp => "acp",
        Door::Chat => "chat",
        Door::Loaf => "loaf",
        Door::Synaps => "synaps",
        Door::Supr => "supr",
    }
}

/// A message is answered, and both clients see the answer.
async fn exchange(sender: &mut dyn Client, other: &mut dyn Client, answer: &str) {
    sender.send(&format!("/say {answer}")).await;
    other.sees_message(&format!("/say {answer}")).await;
    sender.sees_text(answer).await;
    other.sees_text(answer).await;
    sender.sees_end().await;
    other.sees_end().await;
}

async fn share(beginner: Door, joiner: Door) {
    let home = Home::new();
    let (mut first, session) = begin(beginner, &home).await;
    let mut second = join(joiner, &home, &session).await;

    // The run lasts longer than any test waits: whoever sees its text sees it while it is written.
    first.send("/wait 600").await;
    second.sees_message("/wait 600").await;
    first.sees_text(".").await;
    second.sees_text(".").await;

    second.steer("hurry").await;
    first.sees_message("hurry").await;
    first.sees_text("I heard “hurry”").await;
    second.sees_text("I heard “hurry”").await;

    second.stop().await;
    first.sees_end().await;
    second.sees_end().await;

    exchange(&mut *second, &mut *first, "continued").await;
    exchange(&mut *first, &mut *second, "and back").await;

    let events = checked_events(&home, &session);
    let (begun, joined) = (name(beginner), name(joiner));
    let expected = [
        ("/say begun", "completed", begun),
        ("/wait 600", "stopped", begun),
        ("/say continued", "completed", joined),
        ("/say and back", "completed", begun),
    ];
    let runs = runs(&events);
    let runs: Vec<_> =
        runs.iter().map(|(text, ending, by)| (text.as_str(), ending.as_str(), by.as_str())).collect();
    assert_eq!(runs, expected);
    let steers: Vec<_> =
        of_type(&events, "run.steered").into_iter().map(|event| &event["input"]["by"]["door"]).collect();
    assert_eq!(steers, [joined]);
}

/// A client that joins while a run is active sees the text of the run from its start.
async fn join_in_the_middle(joiner: Door) {
    let home = Home::new();
    let (mut first, session) = begin(Door::Synaps, &home).await;
    first.send("/wait 600").await;
    first.sees_text(".").await;
    first.steer("early").await;
    first.sees_text("I heard “early”").await;

    let mut second = join(joiner, &home, &session).await;
    second.sees_text("I heard “early”").await;
    second.stop().await;
    first.sees_end().await;
    second.sees_end().await;
}

#[tokio::test]
async fn a_socket_of_another_session_watches_live_text() {
    let home = Home::new();
    let (mut first, session) = begin(Door::Synaps, &home).await;
    let server = serve(&home);
    let query = format!("session_id=another&watch={session}&stream=1");
    let mut watcher = Socket::connect(server.http, &query).await;
    first.send("/wait 600").await;
    watcher.frames.sees_text(".").await;
    first.stop().await;
    watcher.frames.sees_end().await;
}

#[tokio::test]
async fn a_terminal_joins_in_the_middle_of_a_run() {
    let home = Home::new();
    let (mut first, session) = begin(Door::Synaps, &home).await;
    first.send("/wait 600").await;
    first.steer("early").await;
    first.sees_text("I heard “early”").await;
    let mut terminal = TerminalChat::join(&home, &session).await;
    terminal.sees_text("I heard “early”").await;

    terminal.steer("from the prompt").await;
    first.sees_text("I heard “from the prompt”").await;
    terminal.sees_text("I heard “from the prompt”").await;
    terminal.stop().await;
    first.sees_end().await;
    terminal.sees_end().await;

    // At the prompt, Ctrl-C stops the run of another client.
    first.send("/wait 600").await;
    terminal.sees_message("/wait 600").await;
    terminal.stop().await;
    first.sees_end().await;
}

#[tokio::test]
async fn acp_joins_in_the_middle_of_a_run() {
    join_in_the_middle(Door::Acp).await;
}

#[tokio::test]
async fn chat_joins_in_the_middle_of_a_run() {
    join_in_the_middle(Door::Chat).await;
}

#[tokio::test]
async fn loaf_joins_in_the_middle_of_a_run() {
    join_in_the_middle(Door::Loaf).await;
}

#[tokio::test]
async fn synaps_joins_in_the_middle_of_a_run() {
    join_in_the_middle(Door::Synaps).await;
}

#[tokio::test]
async fn supr_joins_in_the_middle_of_a_run() {
    join_in_the_middle(Door::Supr).await;
}

macro_rules! pairs {
    ($($test:ident: $beginner:ident, $joiner:ident;)*) => {
        $(#[tokio::test]
        async fn $test() {
            share(Door::$beginner, Door::$joiner).await;
        })*
    };
}

pairs! {
    acp_joins_a_session_of_chat: Chat, Acp;
    acp_joins_a_session_of_loaf: Loaf, Acp;
    acp_joins_a_session_of_synaps: Synaps, Acp;
    acp_joins_a_session_of_supr: Supr, Acp;
    chat_joins_a_session_of_acp: Acp, Chat;
    loaf_joins_a_session_of_acp: Acp, Loaf;
    synaps_joins_a_session_of_acp: Acp, Synaps;
    supr_joins_a_session_of_acp: Acp, Supr;
    loaf_joins_a_session_of_chat: Chat, Loaf;
    synaps_joins_a_session_of_chat: Chat, Synaps;
    supr_joins_a_session_of_chat: Chat, Supr;
    chat_joins_a_session_of_loaf: Loaf, Chat;
    synaps_joins_a_session_of_loaf: Loaf, Synaps;
    supr_joins_a_session_of_loaf: Loaf, Supr;
    chat_joins_a_session_of_synaps: Synaps, Chat;
    loaf_joins_a_session_of_synaps: Synaps, Loaf;
    supr_joins_a_session_of_synaps: Synaps, Supr;
    chat_joins_a_session_of_supr: Supr, Chat;
    loaf_joins_a_session_of_supr: Supr, Loaf;
    synaps_joins_a_session_of_supr: Supr, Synaps;
}
