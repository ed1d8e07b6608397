//! Tests of commands, answers, and the ways in which a connection can begin and end.

use parlor_client::synaps::{
    MAX_PENDING_COMMANDS, SynapsClient, SynapsError, SynapsModel, SynapsState, SynapsTool,
};
use serde_json::{Value, json};
use tokio::io::AsyncWriteExt;

use super::{FakeChild, is_closed, is_refused, until_idle, with_timeout};

#[tokio::test(start_paused = true)]
async fn the_client_has_the_session_and_the_model_of_ready() {
    with_timeout(async {
        let (_fake, client) = FakeChild::connected().await;
        assert_eq!((client.session_id(), client.model()), ("s-1", "m-1"));
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn another_protocol_version_ends_the_connection() {
    with_timeout(async {
        let (mut child, reader, writer) = FakeChild::new();
        let ready = json!({"type": "ready", "session_id": "s", "model": "m", "protocol_version": 2});
        let (client, ()) = tokio::join!(SynapsClient::connect(reader, writer), child.send(&ready));
        let error = client.unwrap_err();
        assert!(matches!(error, SynapsError::Version { offered: 2 }), "{error:?}");
        assert!(error.to_string().contains("version 2"), "{error}");
        assert_eq!(child.receive_or_end().await, None);
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_first_frame_that_is_not_ready_is_a_protocol_error() {
    with_timeout(async {
        for first in [
            json!({"type": "agent_end", "usage": {"input_tokens": 1, "output_tokens": 1}}),
            json!({"type": "ready", "session_id": "s", "model": "m", "protocol_version": "1"}),
            json!("ready"),
        ] {
            let (mut child, reader, writer) = FakeChild::new();
            let (client, ()) = tokio::join!(SynapsClient::connect(reader, writer), child.send(&first));
            assert!(matches!(client, Err(SynapsError::Protocol(_))), "{first}: {client:?}");
        }
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_child_that_sends_nothing_is_not_ready() {
    let (_fake, reader, writer) = FakeChild::new();
    let error = SynapsClient::connect(reader, writer).await.unwrap_err();
    assert!(matches!(error, SynapsError::NotReady { .. }), "{error:?}");
}

#[tokio::test(start_paused = true)]
async fn a_child_that_disconnects_before_it_is_ready_is_closed() {
    with_timeout(async {
        let (child, reader, writer) = FakeChild::new();
        drop(child);
        assert!(is_closed(&SynapsClient::connect(reader, writer).await));
    })
    .await;
}

/// Answers the next command with `body`, and returns the command without its id.
async fn serve(child: &mut FakeChild, body: Value) -> Value {
    let mut command = child.receive().await;
    child.answer(&command, body).await;
    assert!(!command.as_object_mut().unwrap().remove("id").unwrap().as_str().unwrap().is_empty());
    command
}

#[tokio::test(start_paused = true)]
async fn every_command_is_encoded_and_its_answer_decoded() {
    with_timeout(async {
        let (mut child, client) = FakeChild::connected().await;

        let (summary, received) =
            tokio::join!(client.compact(), serve(&mut child, json!({"summary": "all"})));
        assert_eq!((summary.unwrap(), received), ("all".to_owned(), json!({"type": "compact"})));

        let (new, received) =
            tokio::join!(client.new_session(), serve(&mut child, json!({"session_id": "s-2"})));
        assert_eq!((new.unwrap(), received), ("s-2".to_owned(), json!({"type": "new_session"})));

        let history = json!([{"role": "user", "content": "go"}]);
        let answer = json!({"messages": history});
        let (messages, received) = tokio::join!(client.messages(), serve(&mut child, answer));
        assert_eq!((json!(messages.unwrap()), received), (history, json!({"type": "get_messages"})));

        let (model, received) =
            tokio::join!(client.set_model("m-2"), serve(&mut child, json!({"model": "m-2"})));
        assert_eq!(
            (model.unwrap(), received),
            ("m-2".to_owned(), json!({"type": "set_model", "model": "m-2"}))
        );

        let answer = json!({"models": [{"provider": "p", "model_id": "i", "model_name": "n"}]});
        let (models, received) = tokio::join!(client.available_models(), serve(&mut child, answer));
        let text = |text: &str| text.to_owned();
        let model = SynapsModel { provider: text("p"), model_id: text("i"), model_name: text("n") };
        assert_eq!((models.unwrap(), received), (vec![model], json!({"type": "get_available_models"})));

        let answer = json!({"input_tokens": 1, "output_tokens": 2, "cost": 0.5, "message_count": 3,
            "model": "m", "session_id": "s"});
        let (stats, received) = tokio::join!(client.stats(), serve(&mut child, answer));
        let stats = stats.unwrap();
        assert_eq!((stats.input_tokens, stats.output_tokens, stats.message_count), (1, 2, 3));
        assert_eq!((stats.cost, received), (0.5, json!({"type": "get_session_stats"})));

        let answer =
            json!({"streaming": true, "model": "m", "session_id": "s", "message_count": 4, "more": 1});
        let (state, received) = tokio::join!(client.state(), serve(&mut child, answer));
        let expected =
            SynapsState { streaming: true, model: text("m"), session_id: text("s"), message_count: 4 };
        assert_eq!((state.unwrap(), received), (expected, json!({"type": "get_state"})));

        let tool = json!({"name": "n", "description": "d", "input_schema": {}, "inputSchema": {}});
        let (tools, received) =
            tokio::join!(client.tools(), serve(&mut child, json!({"ok": true, "tools": [tool]})));
        let tool = SynapsTool { name: text("n"), description: text("d"), input_schema: json!({}) };
        assert_eq!((tools.unwrap(), received), (vec![tool], json!({"type": "tools_list"})));

        let (aborted, received) = tokio::join!(client.abort(), serve(&mut child, json!({"ok": true})));
        aborted.unwrap();
        assert_eq!(received, json!({"type": "abort"}));
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn answers_find_their_commands_in_any_order() {
    with_timeout(async {
        let (mut child, client) = FakeChild::connected().await;
        let (new, model, ()) = tokio::join!(client.new_session(), client.set_model("m"), async {
            let (first, second) = (child.receive().await, child.receive().await);
            assert_ne!(first["id"], second["id"]);
            child.answer(&second, json!({"model": "m"})).await;
            child.answer(&first, json!({"session_id": "s"})).await;
        });
        assert_eq!((new.unwrap(), model.unwrap()), ("s".to_owned(), "m".to_owned()));
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn frames_with_unknown_ids_and_types_are_ignored() {
    with_timeout(async {
        let (mut child, client) = FakeChild::connected().await;
        let (summary, ()) = tokio::join!(client.compact(), async {
            let command = child.receive().await;
            child.text("ignored").await;
            child.usage(1).await;
            child.send(&json!({"type": "event", "payload": {}})).await;
            child.send(&json!({"type": "error", "message": "what?"})).await;
            child.send(&json!({"type": "error", "id": "auto:1", "message": "what?"})).await;
            child
                .send(&json!({"type": "response", "id": "auto:1", "command": "auto_turn", "ok": true}))
                .await;
            let early = json!({"type": "response", "id": command["id"], "command": "compact.disclosure"});
            child.send(&early).await;
            child.answer(&command, json!({"summary": "it"})).await;
        });
        assert_eq!(summary.unwrap(), "it");
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_refused_command_returns_the_childs_message() {
    with_timeout(async {
        let (mut child, client) = FakeChild::connected().await;
        let (refused, ()) = tokio::join!(client.new_session(), async {
            let command = child.receive().await;
            child.refuse(&command, "abort first").await;
        });
        assert!(is_refused(&refused, "abort first"), "{refused:?}");
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn an_invalid_answer_ends_the_connection() {
    with_timeout(async {
        let (mut child, client) = FakeChild::connected().await;
        let (state, ()) = tokio::join!(client.state(), async {
            let command = child.receive().await;
            child.answer(&command, json!({"streaming": "yes"})).await;
        });
        assert!(matches!(state, Err(SynapsError::Protocol(_))), "{state:?}");
        assert_eq!(child.receive_or_end().await, None);
        assert!(matches!(client.state().await, Err(SynapsError::Protocol(_))));
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_command_over_the_limit_is_not_sent() {
    with_timeout(async {
        let (mut child, client) = FakeChild::connected().await;
        let long = client.prompt("x".repeat(1 << 20)).await;
        assert!(matches!(long, Err(SynapsError::CommandTooLong { bytes }) if bytes > 1 << 20));
        let (_turn, _prompt) = child.begin_turn(&client).await;
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn commands_over_the_limit_wait_and_dropped_ones_free_their_slot() {
    with_timeout(async {
        let (mut child, client) = FakeChild::connected().await;
        let call = |client: &SynapsClient| {
            let client = client.clone();
            tokio::spawn(async move { client.state().await })
        };
        let mut calls: Vec<_> = (0..=MAX_PENDING_COMMANDS).map(|_| call(&client)).collect();
        for _ in 0..MAX_PENDING_COMMANDS {
            child.receive().await;
        }
        tokio::select! {
            biased;
            received = child.receive() => panic!("one too many: {received}"),
            () = until_idle() => {}
        }
        calls.remove(0).abort();
        child.receive().await;
        drop(child);
        for call in calls {
            assert!(is_closed(&call.await.unwrap()));
        }
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_line_that_is_no_json_is_a_protocol_error() {
    with_timeout(async {
        let (mut child, client) = FakeChild::connected().await;
        let (mut turn, _) = child.begin_turn(&client).await;
        child.output_stream.write_all(b"panicked at\n").await.unwrap();
        let end = turn.end().await;
        assert!(matches!(end, Err(SynapsError::Protocol(_))), "{end:?}");
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn shutdown_is_sent_and_waits_for_the_end() {
    with_timeout(async {
        let (mut child, client) = FakeChild::connected().await;
        let (mut turn, prompt) = child.begin_turn(&client).await;
        let (status, ()) = tokio::join!(client.shutdown(), async {
            assert_eq!(child.receive().await, json!({"type": "shutdown"}));
            child.usage(1).await;
            child.answer(&prompt, json!({"ok": true})).await;
            drop(child);
        });
        assert_eq!(status.unwrap(), None);
        turn.end().await.unwrap();
        assert!(is_closed(&client.state().await));
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn shutdown_disconnects_from_a_child_of_another_program_that_runs_on() {
    let (mut child, client) = FakeChild::connected().await;
    assert_eq!(client.shutdown().await.unwrap(), None);
    assert_eq!(child.receive().await, json!({"type": "shutdown"}));
    assert_eq!(child.receive_or_end().await, None);
}
