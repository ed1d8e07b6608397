//! Tests of turns: their events, their ends, and the backlog of events that no handle takes.

use parlor_client::synaps::{
    AssistantEvent, RpcAttachment, SynapsError, TURN_BACKLOG_BYTES, TurnEnd, TurnEvent, TurnOutcome,
    TurnUsage,
};
use serde_json::json;

use super::{FakeChild, is_closed, is_refused, text_of, until_idle, with_timeout};

#[tokio::test(start_paused = true)]
async fn events_are_returned_in_order_and_then_the_end() {
    with_timeout(async {
        let (mut child, client) = FakeChild::connected().await;
        let (mut turn, prompt) = child.begin_turn(&client).await;
        child.text("one").await;
        child.send(&json!({"type": "message_update", "event": {"type": "response_start"}})).await;
        let input = json!({"path": "/"});
        let call = json!({"type": "toolcall_input", "tool_id": "t", "input": input});
        child.send(&json!({"type": "message_update", "event": call})).await;
        let (id, name) = (7, "scout");
        child.send(
            &json!({"type": "subagent_start", "subagent_id": id, "agent_name": name, "task_preview": "t"}),
        )
        .await;
        child
            .send(&json!({"type": "subagent_update", "subagent_id": id, "agent_name": name, "status": "s"}))
            .await;
        child
            .send(
                &json!({"type": "subagent_done", "subagent_id": id, "agent_name": name, "result_preview": "r",
            "duration_secs": 2.5}),
            )
            .await;
        child.usage(9).await;
        child.answer(&prompt, json!({"ok": true})).await;

        assert_eq!(text_of(turn.next_event().await.unwrap()), "one");
        let name = || name.to_owned();
        for expected in [
            TurnEvent::Assistant(AssistantEvent::ToolcallInput { tool_id: "t".to_owned(), input }),
            TurnEvent::SubagentStarted { id, name: name(), task: "t".to_owned() },
            TurnEvent::SubagentUpdated { id, name: name(), status: "s".to_owned() },
            TurnEvent::SubagentDone { id, name: name(), result: "r".to_owned(), seconds: 2.5 },
        ] {
            assert_eq!(turn.next_event().await.unwrap(), Some(expected));
        }
        assert_eq!(turn.next_event().await.unwrap(), None);
        let usage = TurnUsage { input_tokens: 1, output_tokens: 9, ..TurnUsage::default() };
        let end = TurnEnd { outcome: TurnOutcome::Completed, usage };
        assert_eq!(turn.end().await.unwrap(), end);
        assert_eq!(turn.end().await.unwrap(), end, "the end can be read again");
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn attachments_and_follow_ups_are_encoded() {
    with_timeout(async {
        let (mut child, client) = FakeChild::connected().await;
        let file = RpcAttachment { path: "/a".to_owned(), name: None, mime: Some("text/plain".to_owned()) };
        let turn = client.prompt_with("look", vec![file]).await.unwrap();
        let prompt = child.receive().await;
        assert_eq!(prompt["attachments"], json!([{"path": "/a", "mime": "text/plain"}]));
        child.answer(&prompt, json!({"ok": true})).await;
        assert_eq!(turn.text().await.unwrap().0, "");

        let turn = client.follow_up("and?").await.unwrap();
        let follow_up = child.receive().await;
        assert_eq!((&follow_up["type"], &follow_up["message"]), (&json!("follow_up"), &json!("and?")));
        child.text("a").await;
        child.text("b").await;
        child.answer(&follow_up, json!({"ok": true})).await;
        assert_eq!(turn.text().await.unwrap().0, "ab");
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn an_aborted_turn_is_cancelled() {
    with_timeout(async {
        let (mut child, client) = FakeChild::connected().await;
        let (mut turn, prompt) = child.begin_turn(&client).await;
        let (aborted, ()) = tokio::join!(turn.abort(), async {
            let abort = child.receive().await;
            child.usage(2).await;
            child.answer(&prompt, json!({"ok": true, "cancelled": true})).await;
            child.answer(&abort, json!({"ok": true})).await;
        });
        aborted.unwrap();
        let end = turn.end().await.unwrap();
        assert_eq!((end.outcome, end.usage.output_tokens), (TurnOutcome::Cancelled, 2));
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_failed_turn_has_its_error_and_its_usage() {
    with_timeout(async {
        let (mut child, client) = FakeChild::connected().await;
        // At once, in the middle of the turn, and at the end, where the child sends no `error` before the answer.
        for (text, sends_error) in [(None, true), (Some("a"), true), (None, false)] {
            let (mut turn, prompt) = child.begin_turn(&client).await;
            if let Some(text) = text {
                child.text(text).await;
            }
            if sends_error {
                child.refuse(&prompt, "no luck").await;
            }
            child.usage(3).await;
            child.answer(&prompt, json!({"ok": false, "error": "no luck"})).await;
            // Wait until all of it has arrived, so that the client does not ask for the state.
            until_idle().await;
            let end = turn.end().await.unwrap();
            assert_eq!(end.outcome, TurnOutcome::Failed("no luck".to_owned()));
            assert_eq!(end.usage.output_tokens, 3);
        }
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_refused_turn_is_distinguished_from_a_failed_one_by_the_state() {
    with_timeout(async {
        let (mut child, client) = FakeChild::connected().await;
        let (mut turn, prompt) = child.begin_turn(&client).await;
        let (end, ()) = tokio::join!(turn.end(), async {
            child.refuse(&prompt, "Attachment is empty").await;
            let state = child.receive().await;
            assert_eq!(state["type"], "get_state");
            let body = json!({"streaming": false, "model": "m", "session_id": "s", "message_count": 0});
            child.answer(&state, body).await;
        });
        assert!(is_refused(&end, "Attachment is empty"), "{end:?}");

        // A failed turn whose answer comes late.
        let (mut turn, prompt) = child.begin_turn(&client).await;
        let (end, ()) = tokio::join!(turn.end(), async {
            child.refuse(&prompt, "no luck").await;
            let state = child.receive().await;
            let body = json!({"streaming": true, "model": "m", "session_id": "s", "message_count": 0});
            child.answer(&state, body).await;
            until_idle().await;
            child.usage(4).await;
            child.answer(&prompt, json!({"ok": false, "error": "no luck"})).await;
        });
        assert_eq!(end.unwrap().usage.output_tokens, 4);
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_second_turn_is_refused_and_the_first_goes_on() {
    with_timeout(async {
        let (mut child, client) = FakeChild::connected().await;
        let (first, prompt) = child.begin_turn(&client).await;
        let (mut second, other) = child.begin_turn(&client).await;
        child.text("still ").await;
        child.refuse(&other, "abort first").await;
        assert!(is_refused(&second.end().await, "abort first"));
        child.text("here").await;
        child.answer(&prompt, json!({"ok": true})).await;
        assert_eq!(first.text().await.unwrap().0, "still here");
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn events_after_a_refused_turn_belong_to_the_next_one() {
    with_timeout(async {
        let (mut child, client) = FakeChild::connected().await;
        let (mut refused, prompt) = child.begin_turn(&client).await;
        child.refuse(&prompt, "no").await;
        let (turn, prompt) = child.begin_turn(&client).await;
        child.text("yes").await;
        child.usage(5).await;
        child.answer(&prompt, json!({"ok": true})).await;
        let (text, end) = turn.text().await.unwrap();
        assert_eq!((text.as_str(), end.usage.output_tokens), ("yes", 5));
        assert!(is_refused(&refused.end().await, "no"), "without asking for the state");
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn the_events_of_a_turn_without_a_handle_are_dropped() {
    with_timeout(async {
        let (mut child, client) = FakeChild::connected().await;
        let (turn, prompt) = child.begin_turn(&client).await;
        drop(turn);
        // More than a backlog holds.
        let long_text = "x".repeat(1 << 20);
        for _ in 0..=TURN_BACKLOG_BYTES >> 20 {
            child.text(&long_text).await;
        }
        child.answer(&prompt, json!({"ok": true})).await;
        let (refused, prompt) = child.begin_turn(&client).await;
        child.refuse(&prompt, "no").await;
        drop(refused);
        let (turn, prompt) = child.begin_turn(&client).await;
        child.text("kept").await;
        child.answer(&prompt, json!({"ok": true})).await;
        assert_eq!(turn.text().await.unwrap().0, "kept");
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_full_backlog_stops_the_child_and_loses_nothing() {
    with_timeout(async {
        let (mut child, client) = FakeChild::connected().await;
        let (turn, prompt) = child.begin_turn(&client).await;
        let count = 3 * (TURN_BACKLOG_BYTES >> 20);
        let long_text = "x".repeat(1 << 20);
        let child = async {
            for _ in 0..count {
                child.text(&long_text).await;
            }
            child.answer(&prompt, json!({"ok": true})).await;
        };
        tokio::pin!(child);
        tokio::select! {
            biased;
            () = &mut child => panic!("the child was not stopped"),
            () = until_idle() => {}
        }
        let (text, ()) = tokio::join!(turn.text(), child);
        assert_eq!(text.unwrap().0.len(), count << 20);
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_turn_with_a_full_backlog_can_be_aborted() {
    with_timeout(async {
        let (mut child, client) = FakeChild::connected().await;
        let (turn, prompt) = child.begin_turn(&client).await;
        let long_text = "x".repeat(1 << 20);
        let child = async {
            for _ in 0..2 * (TURN_BACKLOG_BYTES >> 20) {
                child.text(&long_text).await;
            }
            let abort = child.receive().await;
            child.answer(&prompt, json!({"ok": true, "cancelled": true})).await;
            child.answer(&abort, json!({"ok": true})).await;
        };
        let (aborted, ()) = tokio::join!(turn.abort(), child);
        aborted.unwrap();
        let (text, end) = turn.text().await.unwrap();
        assert_eq!(end.outcome, TurnOutcome::Cancelled);
        assert!(!text.is_empty() && text.len() <= TURN_BACKLOG_BYTES);
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn the_end_of_a_child_during_a_turn_is_an_error_after_the_events() {
    with_timeout(async {
        let (mut child, client) = FakeChild::connected().await;
        let (mut turn, _) = child.begin_turn(&client).await;
        child.text("half").await;
        drop(child);
        assert_eq!(text_of(turn.next_event().await.unwrap()), "half");
        assert!(is_closed(&turn.next_event().await));
        assert!(is_closed(&turn.end().await));
        assert!(is_closed(&client.prompt("go").await));
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn an_answer_without_an_outcome_is_a_protocol_error() {
    with_timeout(async {
        let (mut child, client) = FakeChild::connected().await;
        let (mut turn, prompt) = child.begin_turn(&client).await;
        child.answer(&prompt, json!({})).await;
        let end = turn.end().await;
        assert!(matches!(end, Err(SynapsError::Protocol(_))), "{end:?}");
    })
    .await;
}
