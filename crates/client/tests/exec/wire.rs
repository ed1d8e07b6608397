//! Tests of calls, answers, and the ways in which a connection can end.

use std::task::Poll;

use parlor_client::exec::{ExecServerClient, ExecServerError};
use parlor_doors::exec::{MAX_LINE_BYTES, method};
use serde_json::{Value, json};
use tokio::io::AsyncWriteExt;

use super::{FakeServer, exited, is_closed, next, params, rest, started, until_idle, with_timeout};

/// Polls `future` once, which is enough to send a request.
async fn poll_once<F: Future>(mut future: std::pin::Pin<&mut F>) -> Poll<F::Output> {
    std::future::poll_fn(|context| Poll::Ready(future.as_mut().poll(context))).await
}

#[tokio::test(start_paused = true)]
async fn the_handshake_names_the_client_and_is_acknowledged() {
    with_timeout(async {
        let (mut server, reader, writer) = FakeServer::new();
        let (client, ()) = tokio::join!(ExecServerClient::connect(reader, writer, "some client"), async {
            let initialize = server.receive().await;
            let expected = json!({"id": 1, "method": "initialize", "params": {"clientName": "some client"}});
            assert_eq!(initialize, expected);
            server.send(&json!({"id": 1, "result": {"protocolVersion": "exec-server.v0", "more": 1}})).await;
        });
        assert!(client.is_ok());
        assert_eq!(server.receive().await, json!({"method": "initialized", "params": {}}));
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn another_protocol_version_ends_the_connection() {
    with_timeout(async {
        let (mut server, reader, writer) = FakeServer::new();
        let (client, ()) = tokio::join!(ExecServerClient::connect(reader, writer, "test"), async {
            let id = server.receive().await["id"].clone();
            server.send(&json!({"id": id, "result": {"protocolVersion": "exec-server.v9"}})).await;
        });
        let error = client.unwrap_err();
        assert!(matches!(&error, ExecServerError::Version { offered } if offered == "exec-server.v9"));
        assert!(error.to_string().contains("exec-server.v0"), "{error}");
        assert_eq!(server.receive_or_end().await, None);
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_server_that_disconnects_during_the_handshake_is_closed() {
    with_timeout(async {
        let (server, reader, writer) = FakeServer::new();
        drop(server);
        assert!(is_closed(&ExecServerClient::connect(reader, writer, "test").await));
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_refused_start_returns_the_servers_message_and_frees_the_id() {
    with_timeout(async {
        let (mut server, client) = FakeServer::connected().await;
        let (refused, ()) = tokio::join!(client.start_process(params("p")), async {
            let id = server.receive().await["id"].clone();
            server.send(&json!({"id": id, "error": {"code": -32603, "message": "no such file"}})).await;
        });
        assert!(matches!(refused.unwrap_err(),
            ExecServerError::Refused { code: -32603, message } if message == "no such file"));
        server.start(&client, "p").await;
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn answers_may_arrive_in_any_order() {
    with_timeout(async {
        let (mut server, client) = FakeServer::connected().await;
        let a = server.start(&client, "a").await;
        let b = server.start(&client, "b").await;
        let (ended, written, ()) = tokio::join!(a.terminate(), b.write("hi"), async {
            let (first, second) = (server.receive().await, server.receive().await);
            assert_eq!(first["method"], method::TERMINATE);
            assert_eq!(first["params"], json!({"processId": "a"}));
            assert_eq!(second["method"], method::WRITE);
            assert_eq!(second["params"], json!({"processId": "b", "chunk": "aGk="}));
            server.send(&json!({"id": second["id"], "result": {"accepted": true}})).await;
            server.send(&json!({"id": first["id"], "result": {"running": true}})).await;
        });
        assert!(ended.unwrap());
        written.unwrap();
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn messages_with_unknown_ids_and_methods_are_ignored() {
    with_timeout(async {
        let (mut server, client) = FakeServer::connected().await;
        let mut process = server.start(&client, "p").await;
        server.send(&json!({"id": -1, "error": {"code": -32600, "message": "what?"}})).await;
        server.send(&json!({"id": 4711, "result": {}})).await;
        server.send(&json!({"id": "1", "result": {}})).await;
        server.send(&json!({"method": "command/exec/news", "params": [1]})).await;
        server.send(&exited("unknown", 1)).await;
        server.output("unknown", b"ignored").await;
        server.send_bytes(b"\r\n\n").await;
        server.output("p", b"me").await;
        assert_eq!(next(&mut process).await, b"me");
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn the_end_of_a_server_fails_calls_and_processes() {
    with_timeout(async {
        let (mut server, client) = FakeServer::connected().await;
        let mut running = server.start(&client, "running").await;
        server.output("running", b"last output").await;
        let (start, write, ()) =
            tokio::join!(client.start_process(params("pending")), running.write("x"), async {
                server.receive().await;
                server.receive().await;
                drop(server);
            });
        assert!(is_closed(&start) && is_closed(&write));
        assert_eq!(next(&mut running).await, b"last output");
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
async fn a_server_that_closes_only_its_output_is_closed() {
    with_timeout(async {
        let (server, client) = FakeServer::connected().await;
        let FakeServer { mut input, output_stream } = server;
        let (start, ()) = tokio::join!(client.start_process(params("p")), async move {
            drop(output_stream);
            let mut rest = Vec::new();
            tokio::io::AsyncReadExt::read_to_end(&mut input, &mut rest).await.unwrap();
        });
        assert!(is_closed(&start));
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_server_that_closes_its_input_fails_calls_and_its_output_still_arrives() {
    with_timeout(async {
        let (mut server, client) = FakeServer::connected().await;
        let mut process = server.start(&client, "p").await;
        let FakeServer { input, output_stream } = server;
        drop(input);
        assert!(is_closed(&process.write("x").await));
        let (input, _) = tokio::io::duplex(1);
        let mut server = FakeServer { input: tokio::io::BufReader::new(input), output_stream };
        server.output("p", b"still here").await;
        assert_eq!(next(&mut process).await, b"still here");
        server.exit("p", 4).await;
        assert_eq!(process.wait().await.unwrap(), 4);
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_line_that_is_cut_off_at_the_end_is_no_protocol_error() {
    with_timeout(async {
        let (mut server, client) = FakeServer::connected().await;
        let mut process = server.start(&client, "p").await;
        server.send_bytes(br#"{"method":"command/exec/exi"#).await;
        drop(server);
        assert!(is_closed(&process.next_output().await));
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn an_invalid_message_ends_the_connection_for_all_handles() {
    let delta = |stream: Value, chunk: Value| {
        json!({"method": method::OUTPUT_DELTA, "params":
            {"processId": "p", "stream": stream, "chunk": chunk}})
        .to_string()
    };
    for message in [
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
        with_timeout(async {
            let (mut server, client) = FakeServer::connected().await;
            let mut process = server.start(&client, "p").await;
            server.output("p", b"valid").await;
            let (start, ()) = tokio::join!(client.start_process(params("q")), async {
                server.receive().await;
                server.send_bytes(format!("{message}\n").as_bytes()).await;
            });
            assert!(matches!(start, Err(ExecServerError::Protocol(_))), "{message}: {start:?}");
            assert_eq!(next(&mut process).await, b"valid");
            let failed = process.next_output().await;
            assert!(matches!(failed, Err(ExecServerError::Protocol(_))), "{message}: {failed:?}");
            // The client has closed the server's input.
            assert_eq!(server.receive_or_end().await, None, "{message}");
        })
        .await;
    }
}

#[tokio::test(start_paused = true)]
async fn an_answer_of_the_wrong_shape_ends_the_connection() {
    for result in [json!(null), json!({"processId": "other", "running": true}), json!({"processId": "p"})] {
        with_timeout(async {
            let (mut server, client) = FakeServer::connected().await;
            let mut other = server.start(&client, "running").await;
            let (start, ()) = tokio::join!(client.start_process(params("p")), async {
                let id = server.receive().await["id"].clone();
                server.send(&json!({"id": id, "result": result})).await;
            });
            assert!(matches!(start, Err(ExecServerError::Protocol(_))), "{result}: {start:?}");
            assert!(matches!(other.next_output().await, Err(ExecServerError::Protocol(_))));
            assert_eq!(server.receive_or_end().await, None);
        })
        .await;
    }
    for result in [json!({"accepted": "yes"}), json!({"accepted": false})] {
        with_timeout(async {
            let (mut server, client) = FakeServer::connected().await;
            let mut process = server.start(&client, "p").await;
            let (write, ()) = tokio::join!(process.write("x"), async {
                let id = server.receive().await["id"].clone();
                server.send(&json!({"id": id, "result": result})).await;
            });
            assert!(matches!(write, Err(ExecServerError::Protocol(_))), "{result}: {write:?}");
            assert!(matches!(process.next_output().await, Err(ExecServerError::Protocol(_))));
            assert_eq!(server.receive_or_end().await, None);
        })
        .await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_request_over_the_line_limit_is_not_sent() {
    with_timeout(async {
        let (mut server, client) = FakeServer::connected().await;
        let process = server.start(&client, "p").await;
        let refused = process.write(vec![0; MAX_LINE_BYTES / 4 * 3]).await;
        assert!(matches!(refused, Err(ExecServerError::RequestTooLong { .. })), "{refused:?}");
        server.start(&client, "q").await;
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn an_id_in_use_is_refused_without_asking_the_server() {
    with_timeout(async {
        let (mut server, client) = FakeServer::connected().await;
        let mut first = server.start(&client, "p").await;
        let second = client.clone().start_process(params("p")).await;
        assert!(matches!(second, Err(ExecServerError::DuplicateProcess(id)) if id == "p"));
        server.output("p", b"mine").await;
        assert_eq!(next(&mut first).await, b"mine");
        // Dropping the handle does not free the id, because the process still runs.
        drop(first);
        assert!(client.start_process(params("p")).await.is_err());
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn an_id_can_be_used_again_after_the_exit() {
    with_timeout(async {
        let (mut server, client) = FakeServer::connected().await;
        let mut old = server.start(&client, "p").await;
        server.output("p", b"old").await;
        server.exit("p", 1).await;
        assert_eq!(old.wait().await.unwrap(), 1);

        let new = server.start(&client, "p").await;
        server.output("p", b"new").await;
        // The old handle belongs to the old process, although the new one has the same id.
        assert!(matches!(old.write("x").await, Err(ExecServerError::ProcessExited(_))));
        assert!(!old.terminate().await.unwrap());
        assert!(old.next_output().await.unwrap().is_none());
        drop(old);
        server.exit("p", 2).await;
        assert_eq!(rest(new).await, (b"new".to_vec(), 2));
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn the_client_works_after_a_call_is_dropped() {
    with_timeout(async {
        let (mut server, client) = FakeServer::connected().await;
        let process = server.start(&client, "p").await;
        let dropped_call = {
            let mut write = std::pin::pin!(process.write("dropped"));
            assert!(poll_once(write.as_mut()).await.is_pending());
            server.receive().await
        };
        let (terminated, ()) = tokio::join!(process.terminate(), async {
            let terminate = server.receive().await;
            server.send(&json!({"id": dropped_call["id"], "result": {"accepted": true}})).await;
            server.send(&json!({"id": terminate["id"], "result": {"running": true}})).await;
        });
        assert!(terminated.unwrap());
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn dropped_calls_do_not_use_up_the_slots() {
    with_timeout(async {
        let (mut server, client) = FakeServer::connected().await;
        let process = server.start(&client, "p").await;
        for _ in 0..2 * parlor_client::exec::MAX_PENDING_CALLS {
            let mut write = std::pin::pin!(process.write("dropped"));
            assert!(poll_once(write.as_mut()).await.is_pending());
            server.receive().await;
        }
        let (written, ()) = tokio::join!(process.write("kept"), async {
            let id = server.receive().await["id"].clone();
            server.send(&json!({"id": id, "result": {"accepted": true}})).await;
        });
        written.unwrap();
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn calls_over_the_limit_wait() {
    with_timeout(async {
        const LIMIT: usize = parlor_client::exec::MAX_PENDING_CALLS;
        let (mut server, client) = FakeServer::connected().await;
        let process = server.start(&client, "p").await;
        let writes: Vec<_> = (0..=LIMIT).map(|_| tokio::spawn(process.write("x"))).collect();
        let mut ids = Vec::new();
        for _ in 0..LIMIT {
            ids.push(server.receive().await["id"].clone());
        }
        tokio::select! {
            biased;
            one_more = server.receive() => panic!("{one_more}"),
            () = until_idle() => {}
        }
        for id in &ids {
            server.send(&json!({"id": id, "result": {"accepted": true}})).await;
        }
        let id = server.receive().await["id"].clone();
        server.send(&json!({"id": id, "result": {"accepted": true}})).await;
        for write in writes {
            write.await.unwrap().unwrap();
        }
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_dropped_start_keeps_its_id_until_the_exit() {
    with_timeout(async {
        let (mut server, client) = FakeServer::connected().await;
        let start = {
            let mut start = std::pin::pin!(client.start_process(params("p")));
            assert!(poll_once(start.as_mut()).await.is_pending());
            server.receive().await
        };
        assert!(matches!(client.start_process(params("p")).await, Err(ExecServerError::DuplicateProcess(_))));
        server.send(&started(&start)).await;
        server.output("p", &vec![b'x'; 1 << 20]).await;
        server.exit("p", 0).await;
        // The answer to this start arrives after the exit.
        server.start(&client, "q").await;
        server.start(&client, "p").await;
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn the_output_of_a_server_that_does_not_read_arrives() {
    with_timeout(async {
        let (mut server, client) = FakeServer::connected().await;
        let mut process = server.start(&client, "p").await;
        let stuck = tokio::spawn(process.write(vec![b'x'; 8 * super::PIPE_BYTES]));
        // The server's input is full now.
        until_idle().await;
        server.output("p", b"output").await;
        assert_eq!(next(&mut process).await, b"output");
        stuck.abort();
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn the_connection_ends_with_its_last_handle() {
    with_timeout(async {
        let (mut server, client) = FakeServer::connected().await;
        let process = server.start(&client, "p").await;
        let clone = client.clone();
        drop(client);
        drop(clone);
        // The process handle still keeps the connection open.
        let (ended, ()) = tokio::join!(process.terminate(), async {
            let id = server.receive().await["id"].clone();
            server.send(&json!({"id": id, "result": {"running": true}})).await;
        });
        assert!(ended.unwrap());
        drop(process);
        assert_eq!(server.receive_or_end().await, None);
        assert!(server.output_stream.write_all(&[b' '; 2 * super::PIPE_BYTES]).await.is_err());
    })
    .await;
}
