//! Tests of process output: none is lost or mixed up, and the backlog is bounded.

use std::cell::Cell;

use parlor_client::exec::{ExecOutput, ExecOutputStream, OUTPUT_BACKLOG_BYTES};
use serde_json::json;

use super::{FakeServer, delta, exited, next, params, rest, started, until_idle, with_timeout};

/// More than the backlog and all buffers hold together.
const FLOOD_BYTES: usize = OUTPUT_BACKLOG_BYTES + (1 << 20);

/// How many bytes of the flood one line has.
const PIECE_BYTES: usize = 100_000;

/// Bytes in which no two nearby stretches are the same.
fn flood() -> Vec<u8> {
    (0..FLOOD_BYTES).map(|at| (at / 251 + at) as u8).collect()
}

impl FakeServer {
    async fn output_all(&mut self, id: &str, bytes: &[u8]) {
        for chunk in bytes.chunks(PIECE_BYTES) {
            self.output(id, chunk).await;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn output_and_exit_may_arrive_before_the_answer_to_the_start() {
    with_timeout(async {
        let (mut server, client) = FakeServer::connected().await;
        let (process, ()) = tokio::join!(client.start_process(params("p")), async {
            let start = server.receive().await;
            let mut at_once = delta("p", ExecOutputStream::Stdout, b"early ");
            at_once.extend(delta("p", ExecOutputStream::Stdout, b"bird"));
            at_once.extend(format!("{}\n{}\n", exited("p", 0), started(&start)).into_bytes());
            server.send_bytes(&at_once).await;
        });
        let process = process.unwrap();
        assert_eq!(process.exit_code(), Some(0));
        assert_eq!(rest(process).await, (b"early bird".to_vec(), 0));
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn output_in_the_same_read_as_the_answer_is_kept() {
    with_timeout(async {
        let (mut server, client) = FakeServer::connected().await;
        let (process, ()) = tokio::join!(client.start_process(params("p")), async {
            let start = server.receive().await;
            let mut at_once = format!("{}\n", started(&start)).into_bytes();
            at_once.extend(delta("p", ExecOutputStream::Stdout, b"quick"));
            at_once.extend(format!("{}\n", exited("p", 7)).into_bytes());
            server.send_bytes(&at_once).await;
        });
        assert_eq!(rest(process.unwrap()).await, (b"quick".to_vec(), 7));
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn the_answer_to_a_start_may_contain_output_and_exit_code() {
    with_timeout(async {
        let (mut server, client) = FakeServer::connected().await;
        let (process, ()) = tokio::join!(client.start_process(params("p")), async {
            let id = server.receive().await["id"].clone();
            server
                .send(&json!({"id": id, "result": {"processId": "p", "running": false, "exitCode": 3,
                "stdout": "b3V0", "stderr": "ZXJy"}}))
                .await;
        });
        let finished = process.unwrap().output().await.unwrap();
        assert_eq!((&*finished.stdout, &*finished.stderr, finished.exit_code), (&b"out"[..], &b"err"[..], 3));
        server.start(&client, "p").await;
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn output_waits_for_its_reader() {
    with_timeout(async {
        let (mut server, client) = FakeServer::connected().await;
        let mut process = server.start(&client, "p").await;
        server.output("p", b"one").await;
        server.output("p", b"").await;
        server.send_bytes(&delta("p", ExecOutputStream::Stderr, b"two")).await;
        server.exit("p", 0).await;
        // The answer to this start arrives after all of it.
        server.start(&client, "q").await;
        let piece = |stream, bytes: &[u8]| Some(ExecOutput { stream, bytes: bytes.to_vec() });
        assert_eq!(process.exit_code(), Some(0));
        assert_eq!(process.next_output().await.unwrap(), piece(ExecOutputStream::Stdout, b"one"));
        assert_eq!(process.next_output().await.unwrap(), piece(ExecOutputStream::Stderr, b"two"));
        assert_eq!(process.next_output().await.unwrap(), None);
        assert_eq!(process.next_output().await.unwrap(), None);
        assert_eq!(process.wait().await.unwrap(), 0);
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn the_output_of_processes_is_not_mixed_up() {
    with_timeout(async {
        let (mut server, client) = FakeServer::connected().await;
        let a = server.start(&client, "a").await;
        let b = server.start(&client, "b").await;
        for round in 0..100u8 {
            server.output("a", &[round]).await;
            server.output("b", &[255 - round]).await;
        }
        server.exit("b", 2).await;
        server.exit("a", 1).await;
        assert_eq!(rest(a).await, ((0..100).collect(), 1));
        assert_eq!(rest(b).await, ((156..=255).rev().collect(), 2));
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn dropping_next_output_loses_nothing() {
    with_timeout(async {
        let (mut server, client) = FakeServer::connected().await;
        let mut process = server.start(&client, "p").await;
        let mut seen = Vec::new();
        for round in 0..100 {
            let line = delta("p", ExecOutputStream::Stdout, &[round]);
            // The future that is ready first cancels the other.
            tokio::select! {
                output = process.next_output() => seen.extend(output.unwrap().unwrap().bytes),
                () = server.send_bytes(&line) => continue,
            }
            server.send_bytes(&line).await;
        }
        server.exit("p", 0).await;
        seen.extend(rest(process).await.0);
        assert_eq!(seen, (0..100).collect::<Vec<u8>>());
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_full_backlog_stops_the_server_and_loses_nothing() {
    with_timeout(async {
        let (mut server, client) = FakeServer::connected().await;
        let process = server.start(&client, "p").await;
        let flood = flood();
        let sent = Cell::new(0);
        let ((), (seen, code)) = tokio::join!(
            async {
                for piece in flood.chunks(PIECE_BYTES) {
                    server.output("p", piece).await;
                    sent.set(sent.get() + piece.len());
                }
                server.exit("p", 0).await;
            },
            async {
                until_idle().await;
                // One line is being read and another is in the pipe.
                let limit = OUTPUT_BACKLOG_BYTES + 2 * PIECE_BYTES;
                assert!(sent.get() <= limit, "{} bytes were sent", sent.get());
                assert!(sent.get() > OUTPUT_BACKLOG_BYTES / 2, "{} bytes were sent", sent.get());
                rest(process).await
            }
        );
        assert_eq!(code, 0);
        assert!(seen == flood, "{} of {} bytes, or others", seen.len(), flood.len());
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_full_backlog_is_returned_before_the_error_that_the_server_is_gone() {
    with_timeout(async {
        let (mut server, client) = FakeServer::connected().await;
        let mut process = server.start(&client, "p").await;
        let flood = flood();
        let ((), ()) = tokio::join!(
            async move {
                server.output_all("p", &flood).await;
            },
            async {
                until_idle().await;
                let mut count = 0;
                while count < FLOOD_BYTES {
                    count += next(&mut process).await.len();
                }
                assert!(process.next_output().await.is_err());
            }
        );
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn dropping_the_handle_of_a_full_backlog_unblocks_the_other_processes() {
    with_timeout(async {
        let (mut server, client) = FakeServer::connected().await;
        let flooded = server.start(&client, "flooded").await;
        let mut other = server.start(&client, "other").await;
        let ((), ()) = tokio::join!(
            async {
                server.output_all("flooded", &flood()).await;
                server.output("other", b"my turn").await;
            },
            async {
                tokio::select! {
                    biased;
                    _ = other.next_output() => panic!("the flood did not block the connection"),
                    () = until_idle() => {}
                }
                drop(flooded);
                assert_eq!(next(&mut other).await, b"my turn");
            }
        );
        // The process still runs, and its exit frees its id.
        server.exit("flooded", 0).await;
        server.start(&client, "more").await;
        server.start(&client, "flooded").await;
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_process_with_a_full_backlog_can_be_terminated() {
    with_timeout(async {
        let (mut server, client) = FakeServer::connected().await;
        let process = server.start(&client, "p").await;
        let flood = flood();
        let (ended, ()) = tokio::join!(process.terminate(), async {
            let id = server.receive().await["id"].clone();
            server.output_all("p", &flood).await;
            server.send(&json!({"id": id, "result": {"running": true}})).await;
            server.output("p", b"too late").await;
            server.exit("p", 137).await;
        });
        assert!(ended.unwrap());
        let (seen, code) = rest(process).await;
        assert_eq!(code, 137);
        assert!(flood.starts_with(&seen), "the remaining output is the beginning of the flood");
        assert!(seen.len() > OUTPUT_BACKLOG_BYTES / 2, "{} bytes", seen.len());
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn output_can_be_read_while_a_write_waits() {
    with_timeout(async {
        let (mut server, client) = FakeServer::connected().await;
        let mut process = server.start(&client, "p").await;
        let write = process.write("go");
        let (written, count, ()) = tokio::join!(
            write,
            async {
                let mut count = 0;
                while count < FLOOD_BYTES {
                    count += next(&mut process).await.len();
                }
                count
            },
            async {
                let id = server.receive().await["id"].clone();
                server.output_all("p", &flood()).await;
                server.send(&json!({"id": id, "result": {"accepted": true}})).await;
            }
        );
        written.unwrap();
        assert_eq!(count, FLOOD_BYTES);
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_chunk_larger_than_the_backlog_is_delivered() {
    with_timeout(async {
        let (mut server, client) = FakeServer::connected().await;
        let process = server.start(&client, "p").await;
        let flood = flood();
        let ((), (seen, _)) = tokio::join!(
            async {
                server.output("p", b"before").await;
                server.output("p", &flood).await;
                server.exit("p", 0).await;
            },
            rest(process)
        );
        assert!(seen.strip_prefix(b"before").is_some_and(|after| after == flood));
    })
    .await;
}
