//! The agent of an editor is killed in the middle of a turn, and the editor loads the session in a new one.

use serde_json::{Value, json};

use crate::acp::Acp;
use crate::client::Client;
use crate::home::Home;
use crate::kept_text::kept_text;

/// A short form of an update, without ids; `None` for what is no part of the conversation.
fn describe(frame: &Value) -> Option<(String, String)> {
    let update = &frame["params"]["update"];
    let shown = match update["sessionUpdate"].as_str()? {
        "user_message_chunk" | "agent_message_chunk" | "agent_thought_chunk" => &update["content"]["text"],
        "tool_call" => &update["title"],
        "tool_call_update" => &update["status"],
        _ => return None,
    };
    Some((update["sessionUpdate"].as_str()?.to_owned(), shown.as_str()?.to_owned()))
}

#[tokio::test]
async fn all_that_was_completed_is_loaded_after_kill_9_and_the_cut_turn_is_marked() {
    let home = Home::new();
    let mut editor = Acp::start(&home).await;
    assert_eq!(editor.turn("/think plan").await, "end_turn");
    assert_eq!(editor.turn("!echo done").await, "end_turn");
    let before: Vec<_> = editor.process.frames.all().iter().filter_map(describe).collect();
    editor.send("/wait 600").await;
    let kept = kept_text(&home.state(), &editor.session).await;
    editor.process.kill().await;

    let mut next = Acp::connect(&home).await;
    let load = json!({"sessionId": editor.session, "cwd": home.folder(), "mcpServers": []});
    let id = next.request("session/load", load).await;
    next.answer(id).await;
    let frames = next.process.frames.all();
    let replay = frames.iter().take_while(|frame| frame["id"] != id).filter_map(describe);
    let replay: Vec<(String, String)> = replay.collect();
    let user = |text: &str| ("user_message_chunk".to_owned(), text.to_owned());
    let (turns, cut): (Vec<_>, Vec<_>) = {
        let at = replay.iter().position(|shown| *shown == user("/wait 600")).expect("the cut turn is there");
        (replay[..at].to_vec(), replay[at + 1..].to_vec())
    };
    // Live, the client sees no message of its own, and the output of a running tool.
    let live: Vec<_> = before.into_iter().filter(|(_, text)| !text.contains("```")).collect();
    let completed: Vec<_> = turns.iter().filter(|(kind, _)| kind != "user_message_chunk").cloned().collect();
    assert_eq!(completed, live);
    assert!(turns.starts_with(&[user("/think plan")]) && turns.contains(&user("!echo done")), "{turns:?}");
    let [(_, partial), (_, mark)] = cut.as_slice() else { panic!("{cut:?}") };
    assert!(partial.starts_with(&kept), "{partial:?} lacks {kept:?}");
    assert!(mark.contains("interrupted") || mark.contains("ended"), "{mark}");

    next.session = editor.session;
    assert_eq!(next.turn("/say on").await, "end_turn");
}

#[tokio::test]
async fn a_prompt_of_the_page_is_shown_in_the_editor_and_stopped_from_it() {
    let home = Home::new();
    let mut editor = Acp::start(&home).await;
    assert_eq!(editor.turn("/say begun").await, "end_turn");
    let mut page = crate::supr::Supr::join(&home, &editor.session).await;
    page.send("/wait 600").await;
    editor.sees_message("/wait 600").await;
    editor.sees_text(".").await;

    // A prompt of the editor waits for the run of the page.
    editor.send("/say after").await;
    page.steer("hurry").await;
    editor.sees_message("hurry").await;
    page.stop().await;
    editor.sees_text("after").await;
    editor.sees_end().await;
}

#[tokio::test]
async fn a_tool_call_that_kill_9_cut_off_is_loaded_as_failed() {
    let home = Home::new();
    let mut editor = Acp::start(&home).await;
    editor.send("!echo begun; sleep 600").await;
    editor.process.frames.until("output", |frame| frame.to_string().contains("```\\nbegun")).await;
    editor.process.kill().await;

    let mut next = Acp::connect(&home).await;
    let load = json!({"sessionId": editor.session, "cwd": home.folder(), "mcpServers": []});
    let id = next.request("session/load", load).await;
    next.answer(id).await;
    let frames = next.process.frames.all();
    let replay: Vec<_> = frames.iter().take_while(|frame| frame["id"] != id).filter_map(describe).collect();
    let kinds: Vec<(&str, &str)> = replay.iter().map(|(kind, text)| (kind.as_str(), text.as_str())).collect();
    let [("user_message_chunk", _), ("tool_call", call), ("tool_call_update", "failed"), (_, mark)] =
        kinds[..]
    else {
        panic!("{kinds:?}")
    };
    assert!(call.contains("sleep 600") && mark.contains("cut off"), "{kinds:?}");
}
