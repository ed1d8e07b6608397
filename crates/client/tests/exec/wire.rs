//! Calls, answers, and the ways in which a connection can end.

use std::task::Poll;

use parlor_client::exec::{ExecServerClient, ExecServerError};
use parlor_doors::exec::{MAX_LINE_BYTES, method};
use serde_json::{Value, json};
use tokio::io::AsyncWriteExt;

use super::{Fake, exited, is_closed, next, params, rest, started, stillness, watched};

/// Polls `future` until it has done all that it can do without an answer.
async fn poll_once<F: Future>(mut future: std::pin::Pin<&mut F>) -> Poll<F::Output> {
    std::future::poll_fn(|context| Poll::Ready(future.as_mut().poll(context))).await
}

#[tokio::test(start_paused = true)]
async fn the_handshake_names_the_client_and_is_acknowledged() {
    watched(async {
        let (mut fake, reader, writer) = Fake::new();
        let (client, ()) = tokio::join!(ExecServerClient::connect(reader, writer, "somebody"), async {
            let greeting = fake.hear().await;
            let expected = json!({"id": 1, "method": "initialize", "params": {"clientName": "somebody"}});
            assert_eq!(greeting, expected);
            fake.say(&json!({"id": 1, "result": {"protocolVersion": "exec-server.v0", "more": 1}})).await;
        });
        assert!(client.is_ok());
        assert_eq!(fake.hear().await, json!({"method": "initialized", "params": {}}));
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn another_version_is_refused_and_the_server_is_let_go() {
    watched(async {
        let (mut fake, reader, writer) = Fake::new();
        let (client, ()) = tokio::join!(ExecServerClient::connect(reader, writer, "test"), async {
            let id = fake.hear().await["id"].clone();
            fake.say(&json!({"id": id, "result": {"protocolVersion": "exec-server.v9"}})).await;
        });
        let error = client.unwrap_err();
        assert!(matches!(&error, ExecServerError::Version { offered } if offered == "exec-server.v9"));
        assert!(error.to_string().contains("exec-server.v0"), "{error}");
        assert_eq!(fake.hear_or_end().await, None);
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_server_that_hangs_up_during_the_handshake_is_gone() {
    watched(async {
        let (fake, reader, writer) = Fake::new();
        drop(fake);
        assert!(is_closed(&ExecServerClient::connect(reader, writer, "test").await));
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_refusal_carries_the_servers_words_and_frees_the_id() {
    watched(async {
        let (mut fake, client) = Fake::connected().await;
        let (refused, ()) = tokio::join!(client.start_process(params("p")), async {
            let id = fake.hear().await["id"].clone();
            fake.say(&json!({"id": id, "error": {"code": -32603, "message": "no such file"}})).await;
        });
        assert!(matches!(refused.unwrap_err(),
            ExecServerError::Refused { code: -32603, message } if message == "no such file"));
        fake.start(&client, "p").await;
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn answers_may_come_in_any_order() {
    watched(async {
        let (mut fake, client) = Fake::connected().await;
        let a = fake.start(&client, "a").await;
        let b = fake.start(&client, "b").await;
        let (ended, written, ()) = tokio::join!(a.terminate(), b.write("hi"), async {
            let (first, second) = (fake.hear().await, fake.hear().await);
            assert_eq!(first["method"], method::TERMINATE);
            assert_eq!(first["params"], json!({"processId": "a"}));
            assert_eq!(second["method"], method::WRITE);
            assert_eq!(second["params"], json!({"processId": "b", "chunk": "aGk="}));
            fake.say(&json!({"id": second["id"], "result": {"accepted": true}})).await;
            fake.say(&json!({"id": first["id"], "result": {"running": true}})).await;
        });
        assert!(ended.unwrap());
        written.unwrap();
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn what_concerns_nobody_is_ignored() {
    watched(async {
        let (mut fake, client) = Fake::connected().await;
        let mut process = fake.start(&client, "p").await;
        fake.say(&json!({"id": -1, "error": {"code": -32600, "message": "what?"}})).await;
        fake.say(&json!({"id": 4711, "result": {}})).await;
        fake.say(&json!({"id": "1", "result": {}})).await;
        fake.say(&json!({"method": "command/exec/news", "params": [1]})).await;
        fake.say(&exited("stranger", 1)).await;
        fake.output("stranger", b"psst").await;
        fake.say_bytes(b"\r\n\n").await;
        fake.output("p", b"me").await;
        assert_eq!(next(&mut process).await, b"me");
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn when_the_server_goes_calls_and_processes_are_told() {
    watched(async {
        let (mut fake, client) = Fake::connected().await;
        let mut running = fake.start(&client, "running").await;
        fake.output("running", b"last words").await;
        let (start, write, ()) =
            tokio::join!(client.start_process(params("pending")), running.write("x"), async {
                fake.hear().await;
                fake.hear().await;
                drop(fake);
            });
        assert!(is_closed(&start) && is_closed(&write));
        assert_eq!(next(&mut running).await, b"last words");
        for _ in 0..2 {
            assert!(is_closed(&running.next_output().await));
        }
        assert!(is_closed(&running.wait().await));
        assert_eq!(running.exit_code(), None);
        assert!(is_closed(&client.start_process(params("late")).await));
        assert!(is_closed(&running.terminate().await));
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_server_that_only_closes_its_output_is_gone_too() {
    watched(async {
        let (fake, client) = Fake::connected().await;
        let Fake { mut hears, says } = fake;
        let (start, ()) = tokio::join!(client.start_process(params("p")), async move {
            drop(says);
            let mut rest = Vec::new();
            tokio::io::AsyncReadExt::read_to_end(&mut hears, &mut rest).await.unwrap();
        });
        assert!(is_closed(&start));
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_server_that_closes_its_input_fails_calls_and_is_still_heard() {
    watched(async {
        let (mut fake, client) = Fake::connected().await;
        let mut process = fake.start(&client, "p").await;
        let Fake { hears, says } = fake;
        drop(hears);
        assert!(is_closed(&process.write("x").await));
        let (hears, _) = tokio::io::duplex(1);
        let mut fake = Fake { hears: tokio::io::BufReader::new(hears), says };
        fake.output("p", b"still here").await;
        assert_eq!(next(&mut process).await, b"still here");
        fake.exit("p", 4).await;
        assert_eq!(process.wait().await.unwrap(), 4);
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_line_cut_off_by_death_is_death_and_not_garbage() {
    watched(async {
        let (mut fake, client) = Fake::connected().await;
        let mut process = fake.start(&client, "p").await;
        fake.say_bytes(br#"{"method":"command/exec/exi"#).await;
        drop(fake);
        assert!(is_closed(&process.next_output().await));
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn garbage_ends_the_connection_for_all() {
    let delta = |stream: Value, chunk: Value| {
        json!({"method": method::OUTPUT_DELTA, "params":
            {"processId": "p", "stream": stream, "chunk": chunk}})
        .to_string()
    };
    for garbage in [
        "ready to serve".to_owned(),
        "{}".to_owned(),
        "[]".to_owned(),
        "\u{0}".to_owned(),
        json!({"id": 9, "method": "do/this", "params": {}}).to_string(),
        delta(json!("stdout"), json!("aGk")),
        delta(json!("stdout"), json!(null)),
        delta(json!("pty"), json!("aGk=")),
        json!({"method": method::EXITED, "params": {"processId": "p", "exitCode": null}}).to_string(),
        json!({"method": method::EXITED}).to_string(),
    ] {
        watched(async {
            let (mut fake, client) = Fake::connected().await;
            let mut process = fake.start(&client, "p").await;
            fake.output("p", b"sane").await;
            let (start, ()) = tokio::join!(client.start_process(params("q")), async {
                fake.hear().await;
                fake.say_bytes(format!("{garbage}\n").as_bytes()).await;
            });
            assert!(matches!(start, Err(ExecServerError::Protocol(_))), "{garbage}: {start:?}");
            assert_eq!(next(&mut process).await, b"sane");
            let failed = process.next_output().await;
            assert!(matches!(failed, Err(ExecServerError::Protocol(_))), "{garbage}: {failed:?}");
            // The server is not kept waiting for requests that will not come.
            assert_eq!(fake.hear_or_end().await, None, "{garbage}");
        })
        .await;
    }
}

#[tokio::test(start_paused = true)]
async fn an_answer_of_the_wrong_shape_ends_the_connection() {
    for result in [json!(null), json!({"processId": "other", "running": true}), json!({"processId": "p"})] {
        watched(async {
            let (mut fake, client) = Fake::connected().await;
            let mut other = fake.start(&client, "running").await;
            let (start, ()) = tokio::join!(client.start_process(params("p")), async {
                let id = fake.hear().await["id"].clone();
                fake.say(&json!({"id": id, "result": result})).await;
            });
            assert!(matches!(start, Err(ExecServerError::Protocol(_))), "{result}: {start:?}");
            assert!(matches!(other.next_output().await, Err(ExecServerError::Protocol(_))));
            assert_eq!(fake.hear_or_end().await, None);
        })
        .await;
    }
    for result in [json!({"accepted": "yes"}), json!({"accepted": false})] {
        watched(async {
            let (mut fake, client) = Fake::connected().await;
            let mut process = fake.start(&client, "p").await;
            let (write, ()) = tokio::join!(process.write("x"), async {
                let id = fake.hear().await["id"].clone();
                fake.say(&json!({"id": id, "result": result})).await;
            });
            assert!(matches!(write, Err(ExecServerError::Protocol(_))), "{result}: {write:?}");
            assert!(matches!(process.next_output().await, Err(ExecServerError::Protocol(_))));
            assert_eq!(fake.hear_or_end().await, None);
        })
        .await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_request_longer_than_a_line_may_be_is_refused_here() {
    watched(async {
        let (mut fake, client) = Fake::connected().await;
        let process = fake.start(&client, "p").await;
        let refused = process.write(vec![0; MAX_LINE_BYTES / 4 * 3]).await;
        assert!(matches!(refused, Err(ExecServerError::RequestTooLong { .. })), "{refused:?}");
        fake.start(&client, "q").await;
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_living_id_is_refused_without_asking_the_server() {
    watched(async {
        let (mut fake, client) = Fake::connected().await;
        let mut first = fake.start(&client, "p").await;
        let second = client.clone().start_process(params("p")).await;
        assert!(matches!(second, Err(ExecServerError::DuplicateProcess(id)) if id == "p"));
        fake.output("p", b"mine").await;
        assert_eq!(next(&mut first).await, b"mine");
        // Not even a dropped handle frees the id: the process is still there.
        drop(first);
        assert!(client.start_process(params("p")).await.is_err());
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn an_id_can_be_used_again_after_the_exit() {
    watched(async {
        let (mut fake, client) = Fake::connected().await;
        let mut old = fake.start(&client, "p").await;
        fake.output("p", b"old").await;
        fake.exit("p", 1).await;
        assert_eq!(old.wait().await.unwrap(), 1);

        let new = fake.start(&client, "p").await;
        fake.output("p", b"new").await;
        // The old handle is about the old process, whatever the new one is called.
        assert!(matches!(old.write("x").await, Err(ExecServerError::ProcessExited(_))));
        assert!(!old.terminate().await.unwrap());
        assert!(old.next_output().await.unwrap().is_none());
        drop(old);
        fake.exit("p", 2).await;
        assert_eq!(rest(new).await, (b"new".to_vec(), 2));
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_call_that_is_given_up_leaves_the_client_usable() {
    watched(async {
        let (mut fake, client) = Fake::connected().await;
        let process = fake.start(&client, "p").await;
        let given_up = {
            let mut write = std::pin::pin!(process.write("never mind"));
            assert!(poll_once(write.as_mut()).await.is_pending());
            fake.hear().await
        };
        let (terminated, ()) = tokio::join!(process.terminate(), async {
            let terminate = fake.hear().await;
            fake.say(&json!({"id": given_up["id"], "result": {"accepted": true}})).await;
            fake.say(&json!({"id": terminate["id"], "result": {"running": true}})).await;
        });
        assert!(terminated.unwrap());
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn calls_that_are_given_up_do_not_use_up_the_calls_that_may_be_pending() {
    watched(async {
        let (mut fake, client) = Fake::connected().await;
        let process = fake.start(&client, "p").await;
        for _ in 0..2 * parlor_client::exec::MAX_PENDING_CALLS {
            let mut write = std::pin::pin!(process.write("never mind"));
            assert!(poll_once(write.as_mut()).await.is_pending());
            fake.hear().await;
        }
        let (written, ()) = tokio::join!(process.write("do mind"), async {
            let id = fake.hear().await["id"].clone();
            fake.say(&json!({"id": id, "result": {"accepted": true}})).await;
        });
        written.unwrap();
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn no_more_calls_than_the_limit_are_pending() {
    watched(async {
        const LIMIT: usize = parlor_client::exec::MAX_PENDING_CALLS;
        let (mut fake, client) = Fake::connected().await;
        let process = fake.start(&client, "p").await;
        let writes: Vec<_> = (0..=LIMIT).map(|_| tokio::spawn(process.write("x"))).collect();
        let mut ids = Vec::new();
        for _ in 0..LIMIT {
            ids.push(fake.hear().await["id"].clone());
        }
        tokio::select! {
            biased;
            one_more = fake.hear() => panic!("{one_more}"),
            () = stillness() => {}
        }
        for id in &ids {
            fake.say(&json!({"id": id, "result": {"accepted": true}})).await;
        }
        let id = fake.hear().await["id"].clone();
        fake.say(&json!({"id": id, "result": {"accepted": true}})).await;
        for write in writes {
            write.await.unwrap().unwrap();
        }
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_start_that_is_given_up_keeps_its_id_until_the_exit() {
    watched(async {
        let (mut fake, client) = Fake::connected().await;
        let start = {
            let mut start = std::pin::pin!(client.start_process(params("p")));
            assert!(poll_once(start.as_mut()).await.is_pending());
            fake.hear().await
        };
        assert!(matches!(client.start_process(params("p")).await, Err(ExecServerError::DuplicateProcess(_))));
        fake.say(&started(&start)).await;
        fake.output("p", &vec![b'x'; 1 << 20]).await;
        fake.exit("p", 0).await;
        // This answer is behind the exit, so the exit has been seen.
        fake.start(&client, "q").await;
        fake.start(&client, "p").await;
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_server_that_does_not_read_is_still_heard() {
    watched(async {
        let (mut fake, client) = Fake::connected().await;
        let mut process = fake.start(&client, "p").await;
        let stuck = tokio::spawn(process.write(vec![b'x'; 8 * super::PIPE_BYTES]));
        // The server's input is full now: it has room for less than this.
        stillness().await;
        fake.output("p", b"listen").await;
        assert_eq!(next(&mut process).await, b"listen");
        stuck.abort();
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn the_connection_ends_with_its_last_handle() {
    watched(async {
        let (mut fake, client) = Fake::connected().await;
        let process = fake.start(&client, "p").await;
        let clone = client.clone();
        drop(client);
        drop(clone);
        // The process is a handle too.
        let (ended, ()) = tokio::join!(process.terminate(), async {
            let id = fake.hear().await["id"].clone();
            fake.say(&json!({"id": id, "result": {"running": true}})).await;
        });
        assert!(ended.unwrap());
        drop(process);
        assert_eq!(fake.hear_or_end().await, None);
        assert!(fake.says.write_all(&[b' '; 2 * super::PIPE_BYTES]).await.is_err());
    })
    .await;
}
