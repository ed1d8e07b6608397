//! Turns: what happens in them, how they end, and how much is kept of one that nobody follows.

use parlor_client::synaps::{
    AssistantEvent, RpcAttachment, SynapsError, TURN_BACKLOG_BYTES, TurnEnd, TurnEvent, TurnOutcome,
    TurnUsage,
};
use serde_json::json;

use super::{Fake, is_closed, is_refused, said, stillness, watched};

#[tokio::test(start_paused = true)]
async fn what_happens_is_told_in_order_and_then_the_end() {
    watched(async {
        let (mut fake, client) = Fake::connected().await;
        let (mut turn, prompt) = fake.begun(&client).await;
        fake.text("one").await;
        fake.say(&json!({"type": "message_update", "event": {"type": "response_start"}})).await;
        let input = json!({"path": "/"});
        let call = json!({"type": "toolcall_input", "tool_id": "t", "input": input});
        fake.say(&json!({"type": "message_update", "event": call})).await;
        let (id, name) = (7, "scout");
        fake.say(
            &json!({"type": "subagent_start", "subagent_id": id, "agent_name": name, "task_preview": "t"}),
        )
        .await;
        fake.say(&json!({"type": "subagent_update", "subagent_id": id, "agent_name": name, "status": "s"}))
            .await;
        fake.say(
            &json!({"type": "subagent_done", "subagent_id": id, "agent_name": name, "result_preview": "r",
            "duration_secs": 2.5}),
        )
        .await;
        fake.usage(9).await;
        fake.answer(&prompt, json!({"ok": true})).await;

        assert_eq!(said(turn.next_event().await.unwrap()), "one");
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
        assert_eq!(turn.end().await.unwrap(), end, "it can be asked for again");
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn attachments_and_follow_ups_are_spelled() {
    watched(async {
        let (mut fake, client) = Fake::connected().await;
        let file = RpcAttachment { path: "/a".to_owned(), name: None, mime: Some("text/plain".to_owned()) };
        let turn = client.prompt_with("look", vec![file]).await.unwrap();
        let prompt = fake.hear().await;
        assert_eq!(prompt["attachments"], json!([{"path": "/a", "mime": "text/plain"}]));
        fake.answer(&prompt, json!({"ok": true})).await;
        assert_eq!(turn.text().await.unwrap().0, "");

        let turn = client.follow_up("and?").await.unwrap();
        let follow_up = fake.hear().await;
        assert_eq!((&follow_up["type"], &follow_up["message"]), (&json!("follow_up"), &json!("and?")));
        fake.text("a").await;
        fake.text("b").await;
        fake.answer(&follow_up, json!({"ok": true})).await;
        assert_eq!(turn.text().await.unwrap().0, "ab");
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_turn_that_is_aborted_is_cancelled() {
    watched(async {
        let (mut fake, client) = Fake::connected().await;
        let (mut turn, prompt) = fake.begun(&client).await;
        let (aborted, ()) = tokio::join!(turn.abort(), async {
            let abort = fake.hear().await;
            fake.usage(2).await;
            fake.answer(&prompt, json!({"ok": true, "cancelled": true})).await;
            fake.answer(&abort, json!({"ok": true})).await;
        });
        aborted.unwrap();
        let end = turn.end().await.unwrap();
        assert_eq!((end.outcome, end.usage.output_tokens), (TurnOutcome::Cancelled, 2));
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_turn_that_fails_says_why_and_what_it_consumed() {
    watched(async {
        let (mut fake, client) = Fake::connected().await;
        // At once, in mid turn, and so late that the child says it once only.
        for (text, says_error) in [(None, true), (Some("a"), true), (None, false)] {
            let (mut turn, prompt) = fake.begun(&client).await;
            if let Some(text) = text {
                fake.text(text).await;
            }
            if says_error {
                fake.refuse(&prompt, "no luck").await;
            }
            fake.usage(3).await;
            fake.answer(&prompt, json!({"ok": false, "error": "no luck"})).await;
            // So that all has arrived, and nothing needs to be asked.
            stillness().await;
            let end = turn.end().await.unwrap();
            assert_eq!(end.outcome, TurnOutcome::Failed("no luck".to_owned()));
            assert_eq!(end.usage.output_tokens, 3);
        }
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_refused_turn_is_told_from_a_failed_one_by_asking() {
    watched(async {
        let (mut fake, client) = Fake::connected().await;
        let (mut turn, prompt) = fake.begun(&client).await;
        let (end, ()) = tokio::join!(turn.end(), async {
            fake.refuse(&prompt, "Attachment is empty").await;
            let state = fake.hear().await;
            assert_eq!(state["type"], "get_state");
            let body = json!({"streaming": false, "model": "m", "session_id": "s", "message_count": 0});
            fake.answer(&state, body).await;
        });
        assert!(is_refused(&end, "Attachment is empty"), "{end:?}");

        // One that has failed but is slow to say so.
        let (mut turn, prompt) = fake.begun(&client).await;
        let (end, ()) = tokio::join!(turn.end(), async {
            fake.refuse(&prompt, "no luck").await;
            let state = fake.hear().await;
            let body = json!({"streaming": true, "model": "m", "session_id": "s", "message_count": 0});
            fake.answer(&state, body).await;
            stillness().await;
            fake.usage(4).await;
            fake.answer(&prompt, json!({"ok": false, "error": "no luck"})).await;
        });
        assert_eq!(end.unwrap().usage.output_tokens, 4);
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_second_turn_is_refused_and_the_first_goes_on() {
    watched(async {
        let (mut fake, client) = Fake::connected().await;
        let (first, prompt) = fake.begun(&client).await;
        let (mut second, other) = fake.begun(&client).await;
        fake.text("still ").await;
        fake.refuse(&other, "abort first").await;
        assert!(is_refused(&second.end().await, "abort first"));
        fake.text("here").await;
        fake.answer(&prompt, json!({"ok": true})).await;
        assert_eq!(first.text().await.unwrap().0, "still here");
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn what_follows_a_refused_turn_belongs_to_the_next_one() {
    watched(async {
        let (mut fake, client) = Fake::connected().await;
        let (mut refused, prompt) = fake.begun(&client).await;
        fake.refuse(&prompt, "no").await;
        let (turn, prompt) = fake.begun(&client).await;
        fake.text("yes").await;
        fake.usage(5).await;
        fake.answer(&prompt, json!({"ok": true})).await;
        let (text, end) = turn.text().await.unwrap();
        assert_eq!((text.as_str(), end.usage.output_tokens), ("yes", 5));
        assert!(is_refused(&refused.end().await, "no"), "without a question");
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_turn_whose_handle_is_gone_runs_on_unheard() {
    watched(async {
        let (mut fake, client) = Fake::connected().await;
        let (turn, prompt) = fake.begun(&client).await;
        drop(turn);
        // More than a backlog would hold.
        let much = "x".repeat(1 << 20);
        for _ in 0..=TURN_BACKLOG_BYTES >> 20 {
            fake.text(&much).await;
        }
        fake.answer(&prompt, json!({"ok": true})).await;
        let (refused, prompt) = fake.begun(&client).await;
        fake.refuse(&prompt, "no").await;
        drop(refused);
        let (turn, prompt) = fake.begun(&client).await;
        fake.text("heard").await;
        fake.answer(&prompt, json!({"ok": true})).await;
        assert_eq!(turn.text().await.unwrap().0, "heard");
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_turn_that_nobody_follows_holds_the_child_and_loses_nothing() {
    watched(async {
        let (mut fake, client) = Fake::connected().await;
        let (turn, prompt) = fake.begun(&client).await;
        let count = 3 * (TURN_BACKLOG_BYTES >> 20);
        let much = "x".repeat(1 << 20);
        let child = async {
            for _ in 0..count {
                fake.text(&much).await;
            }
            fake.answer(&prompt, json!({"ok": true})).await;
        };
        tokio::pin!(child);
        tokio::select! {
            biased;
            () = &mut child => panic!("the child was not held"),
            () = stillness() => {}
        }
        let (text, ()) = tokio::join!(turn.text(), child);
        assert_eq!(text.unwrap().0.len(), count << 20);
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn an_abort_is_answered_although_nobody_follows_the_turn() {
    watched(async {
        let (mut fake, client) = Fake::connected().await;
        let (turn, prompt) = fake.begun(&client).await;
        let much = "x".repeat(1 << 20);
        let child = async {
            for _ in 0..2 * (TURN_BACKLOG_BYTES >> 20) {
                fake.text(&much).await;
            }
            let abort = fake.hear().await;
            fake.answer(&prompt, json!({"ok": true, "cancelled": true})).await;
            fake.answer(&abort, json!({"ok": true})).await;
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
async fn a_child_that_leaves_in_mid_turn_is_an_error_after_what_it_said() {
    watched(async {
        let (mut fake, client) = Fake::connected().await;
        let (mut turn, _) = fake.begun(&client).await;
        fake.text("half").await;
        drop(fake);
        assert_eq!(said(turn.next_event().await.unwrap()), "half");
        assert!(is_closed(&turn.next_event().await));
        assert!(is_closed(&turn.end().await));
        assert!(is_closed(&client.prompt("go").await));
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn an_answer_without_an_outcome_breaks_the_protocol() {
    watched(async {
        let (mut fake, client) = Fake::connected().await;
        let (mut turn, prompt) = fake.begun(&client).await;
        fake.answer(&prompt, json!({})).await;
        let end = turn.end().await;
        assert!(matches!(end, Err(SynapsError::Protocol(_))), "{end:?}");
    })
    .await;
}
