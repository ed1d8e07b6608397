//! Commands, answers, and the ways in which a connection can begin and end.

use parlor_client::synaps::{
    MAX_PENDING_COMMANDS, SynapsClient, SynapsError, SynapsModel, SynapsState, SynapsTool,
};
use serde_json::{Value, json};
use tokio::io::AsyncWriteExt;

use super::{Fake, is_closed, is_refused, stillness, watched};

#[tokio::test(start_paused = true)]
async fn what_a_child_begins_with_is_known() {
    watched(async {
        let (_fake, client) = Fake::connected().await;
        assert_eq!((client.session_id(), client.model()), ("s-1", "m-1"));
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn another_version_is_refused_and_the_child_is_let_go() {
    watched(async {
        let (mut fake, reader, writer) = Fake::new();
        let ready = json!({"type": "ready", "session_id": "s", "model": "m", "protocol_version": 2});
        let (client, ()) = tokio::join!(SynapsClient::connect(reader, writer), fake.say(&ready));
        let error = client.unwrap_err();
        assert!(matches!(error, SynapsError::Version { offered: 2 }), "{error:?}");
        assert!(error.to_string().contains("version 2"), "{error}");
        assert_eq!(fake.hear_or_end().await, None);
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_child_that_begins_with_something_else_breaks_the_protocol() {
    watched(async {
        for first in [
            json!({"type": "agent_end", "usage": {"input_tokens": 1, "output_tokens": 1}}),
            json!({"type": "ready", "session_id": "s", "model": "m", "protocol_version": "1"}),
            json!("ready"),
        ] {
            let (mut fake, reader, writer) = Fake::new();
            let (client, ()) = tokio::join!(SynapsClient::connect(reader, writer), fake.say(&first));
            assert!(matches!(client, Err(SynapsError::Protocol(_))), "{first}: {client:?}");
        }
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_child_that_says_nothing_is_given_up() {
    let (_fake, reader, writer) = Fake::new();
    let error = SynapsClient::connect(reader, writer).await.unwrap_err();
    assert!(matches!(error, SynapsError::NotReady { .. }), "{error:?}");
}

#[tokio::test(start_paused = true)]
async fn a_child_that_hangs_up_before_it_is_ready_is_gone() {
    watched(async {
        let (fake, reader, writer) = Fake::new();
        drop(fake);
        assert!(is_closed(&SynapsClient::connect(reader, writer).await));
    })
    .await;
}

/// Answers the next command with `body` and gives the command without its id.
async fn serve(fake: &mut Fake, body: Value) -> Value {
    let mut command = fake.hear().await;
    fake.answer(&command, body).await;
    assert!(!command.as_object_mut().unwrap().remove("id").unwrap().as_str().unwrap().is_empty());
    command
}

#[tokio::test(start_paused = true)]
async fn every_command_is_spelled_and_its_answer_read() {
    watched(async {
        let (mut fake, client) = Fake::connected().await;

        let (summary, heard) = tokio::join!(client.compact(), serve(&mut fake, json!({"summary": "all"})));
        assert_eq!((summary.unwrap(), heard), ("all".to_owned(), json!({"type": "compact"})));

        let (new, heard) = tokio::join!(client.new_session(), serve(&mut fake, json!({"session_id": "s-2"})));
        assert_eq!((new.unwrap(), heard), ("s-2".to_owned(), json!({"type": "new_session"})));

        let history = json!([{"role": "user", "content": "go"}]);
        let answer = json!({"messages": history});
        let (messages, heard) = tokio::join!(client.messages(), serve(&mut fake, answer));
        assert_eq!((json!(messages.unwrap()), heard), (history, json!({"type": "get_messages"})));

        let (model, heard) = tokio::join!(client.set_model("m-2"), serve(&mut fake, json!({"model": "m-2"})));
        assert_eq!((model.unwrap(), heard), ("m-2".to_owned(), json!({"type": "set_model", "model": "m-2"})));

        let answer = json!({"models": [{"provider": "p", "model_id": "i", "model_name": "n"}]});
        let (models, heard) = tokio::join!(client.available_models(), serve(&mut fake, answer));
        let text = |text: &str| text.to_owned();
        let model = SynapsModel { provider: text("p"), model_id: text("i"), model_name: text("n") };
        assert_eq!((models.unwrap(), heard), (vec![model], json!({"type": "get_available_models"})));

        let answer = json!({"input_tokens": 1, "output_tokens": 2, "cost": 0.5, "message_count": 3,
            "model": "m", "session_id": "s"});
        let (stats, heard) = tokio::join!(client.stats(), serve(&mut fake, answer));
        let stats = stats.unwrap();
        assert_eq!((stats.input_tokens, stats.output_tokens, stats.message_count), (1, 2, 3));
        assert_eq!((stats.cost, heard), (0.5, json!({"type": "get_session_stats"})));

        let answer =
            json!({"streaming": true, "model": "m", "session_id": "s", "message_count": 4, "more": 1});
        let (state, heard) = tokio::join!(client.state(), serve(&mut fake, answer));
        let expected =
            SynapsState { streaming: true, model: text("m"), session_id: text("s"), message_count: 4 };
        assert_eq!((state.unwrap(), heard), (expected, json!({"type": "get_state"})));

        let tool = json!({"name": "n", "description": "d", "input_schema": {}, "inputSchema": {}});
        let (tools, heard) =
            tokio::join!(client.tools(), serve(&mut fake, json!({"ok": true, "tools": [tool]})));
        let tool = SynapsTool { name: text("n"), description: text("d"), input_schema: json!({}) };
        assert_eq!((tools.unwrap(), heard), (vec![tool], json!({"type": "tools_list"})));

        let (aborted, heard) = tokio::join!(client.abort(), serve(&mut fake, json!({"ok": true})));
        aborted.unwrap();
        assert_eq!(heard, json!({"type": "abort"}));
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn answers_find_their_commands_in_any_order() {
    watched(async {
        let (mut fake, client) = Fake::connected().await;
        let (new, model, ()) = tokio::join!(client.new_session(), client.set_model("m"), async {
            let (first, second) = (fake.hear().await, fake.hear().await);
            assert_ne!(first["id"], second["id"]);
            fake.answer(&second, json!({"model": "m"})).await;
            fake.answer(&first, json!({"session_id": "s"})).await;
        });
        assert_eq!((new.unwrap(), model.unwrap()), ("s".to_owned(), "m".to_owned()));
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn what_concerns_nobody_is_ignored() {
    watched(async {
        let (mut fake, client) = Fake::connected().await;
        let (summary, ()) = tokio::join!(client.compact(), async {
            let command = fake.hear().await;
            fake.text("nobody asked").await;
            fake.usage(1).await;
            fake.say(&json!({"type": "event", "payload": {}})).await;
            fake.say(&json!({"type": "error", "message": "what?"})).await;
            fake.say(&json!({"type": "error", "id": "auto:1", "message": "what?"})).await;
            fake.say(&json!({"type": "response", "id": "auto:1", "command": "auto_turn", "ok": true})).await;
            let early = json!({"type": "response", "id": command["id"], "command": "compact.disclosure"});
            fake.say(&early).await;
            fake.answer(&command, json!({"summary": "it"})).await;
        });
        assert_eq!(summary.unwrap(), "it");
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_refusal_carries_the_childs_words() {
    watched(async {
        let (mut fake, client) = Fake::connected().await;
        let (refused, ()) = tokio::join!(client.new_session(), async {
            let command = fake.hear().await;
            fake.refuse(&command, "abort first").await;
        });
        assert!(is_refused(&refused, "abort first"), "{refused:?}");
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn an_answer_that_cannot_be_read_ends_the_connection() {
    watched(async {
        let (mut fake, client) = Fake::connected().await;
        let (state, ()) = tokio::join!(client.state(), async {
            let command = fake.hear().await;
            fake.answer(&command, json!({"streaming": "yes"})).await;
        });
        assert!(matches!(state, Err(SynapsError::Protocol(_))), "{state:?}");
        assert_eq!(fake.hear_or_end().await, None);
        assert!(matches!(client.state().await, Err(SynapsError::Protocol(_))));
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_command_over_the_limit_is_not_sent() {
    watched(async {
        let (mut fake, client) = Fake::connected().await;
        let long = client.prompt("x".repeat(1 << 20)).await;
        assert!(matches!(long, Err(SynapsError::CommandTooLong { bytes }) if bytes > 1 << 20));
        let (_turn, _prompt) = fake.begun(&client).await;
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn commands_beyond_the_limit_wait_and_those_given_up_leave_their_place() {
    watched(async {
        let (mut fake, client) = Fake::connected().await;
        let call = |client: &SynapsClient| {
            let client = client.clone();
            tokio::spawn(async move { client.state().await })
        };
        let mut calls: Vec<_> = (0..=MAX_PENDING_COMMANDS).map(|_| call(&client)).collect();
        for _ in 0..MAX_PENDING_COMMANDS {
            fake.hear().await;
        }
        tokio::select! {
            biased;
            heard = fake.hear() => panic!("one too many: {heard}"),
            () = stillness() => {}
        }
        calls.remove(0).abort();
        fake.hear().await;
        drop(fake);
        for call in calls {
            assert!(is_closed(&call.await.unwrap()));
        }
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_child_that_says_no_json_breaks_the_protocol() {
    watched(async {
        let (mut fake, client) = Fake::connected().await;
        let (mut turn, _) = fake.begun(&client).await;
        fake.says.write_all(b"panicked at\n").await.unwrap();
        let end = turn.end().await;
        assert!(matches!(end, Err(SynapsError::Protocol(_))), "{end:?}");
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn shutdown_is_said_and_the_end_is_awaited() {
    watched(async {
        let (mut fake, client) = Fake::connected().await;
        let (mut turn, prompt) = fake.begun(&client).await;
        let (status, ()) = tokio::join!(client.shutdown(), async {
            assert_eq!(fake.hear().await, json!({"type": "shutdown"}));
            fake.usage(1).await;
            fake.answer(&prompt, json!({"ok": true})).await;
            drop(fake);
        });
        assert_eq!(status.unwrap(), None);
        turn.end().await.unwrap();
        assert!(is_closed(&client.state().await));
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_child_that_is_not_ours_and_does_not_end_is_let_go() {
    let (mut fake, client) = Fake::connected().await;
    assert_eq!(client.shutdown().await.unwrap(), None);
    assert_eq!(fake.hear().await, json!({"type": "shutdown"}));
    assert_eq!(fake.hear_or_end().await, None);
}
