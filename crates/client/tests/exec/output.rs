//! Output: nothing is lost, nothing is mixed up, and no more is kept than the limit.

use std::cell::Cell;

use parlor_client::exec::{ExecOutput, ExecOutputStream, OUTPUT_BACKLOG_BYTES};
use serde_json::json;

use super::{Fake, delta, exited, next, params, rest, started, stillness, watched};

/// More than all buffers on the way and the backlog hold together.
const FLOOD_BYTES: usize = OUTPUT_BACKLOG_BYTES + (1 << 20);

/// How much of a flood is in one line.
const PIECE_BYTES: usize = 100_000;

/// Bytes of which no two nearby stretches are the same.
fn flood() -> Vec<u8> {
    (0..FLOOD_BYTES).map(|at| (at / 251 + at) as u8).collect()
}

impl Fake {
    async fn output_all(&mut self, id: &str, bytes: &[u8]) {
        for chunk in bytes.chunks(PIECE_BYTES) {
            self.output(id, chunk).await;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn output_and_exit_may_come_before_the_answer_to_the_start() {
    watched(async {
        let (mut fake, client) = Fake::connected().await;
        let (process, ()) = tokio::join!(client.start_process(params("p")), async {
            let start = fake.hear().await;
            let mut at_once = delta("p", ExecOutputStream::Stdout, b"early ");
            at_once.extend(delta("p", ExecOutputStream::Stdout, b"bird"));
            at_once.extend(format!("{}\n{}\n", exited("p", 0), started(&start)).into_bytes());
            fake.say_bytes(&at_once).await;
        });
        let process = process.unwrap();
        assert_eq!(process.exit_code(), Some(0));
        assert_eq!(rest(process).await, (b"early bird".to_vec(), 0));
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn output_in_the_same_read_as_the_answer_is_kept() {
    watched(async {
        let (mut fake, client) = Fake::connected().await;
        let (process, ()) = tokio::join!(client.start_process(params("p")), async {
            let start = fake.hear().await;
            let mut at_once = format!("{}\n", started(&start)).into_bytes();
            at_once.extend(delta("p", ExecOutputStream::Stdout, b"quick"));
            at_once.extend(format!("{}\n", exited("p", 7)).into_bytes());
            fake.say_bytes(&at_once).await;
        });
        assert_eq!(rest(process.unwrap()).await, (b"quick".to_vec(), 7));
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn an_answer_may_tell_the_whole_story() {
    watched(async {
        let (mut fake, client) = Fake::connected().await;
        let (process, ()) = tokio::join!(client.start_process(params("p")), async {
            let id = fake.hear().await["id"].clone();
            fake.say(&json!({"id": id, "result": {"processId": "p", "running": false, "exitCode": 3,
                "stdout": "b3V0", "stderr": "ZXJy"}}))
                .await;
        });
        let finished = process.unwrap().output().await.unwrap();
        assert_eq!((&*finished.stdout, &*finished.stderr, finished.exit_code), (&b"out"[..], &b"err"[..], 3));
        fake.start(&client, "p").await;
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn output_waits_for_its_reader() {
    watched(async {
        let (mut fake, client) = Fake::connected().await;
        let mut process = fake.start(&client, "p").await;
        fake.output("p", b"one").await;
        fake.output("p", b"").await;
        fake.say_bytes(&delta("p", ExecOutputStream::Stderr, b"two")).await;
        fake.exit("p", 0).await;
        // This answer is behind all of it.
        fake.start(&client, "q").await;
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
async fn processes_do_not_mix() {
    watched(async {
        let (mut fake, client) = Fake::connected().await;
        let a = fake.start(&client, "a").await;
        let b = fake.start(&client, "b").await;
        for round in 0..100u8 {
            fake.output("a", &[round]).await;
            fake.output("b", &[255 - round]).await;
        }
        fake.exit("b", 2).await;
        fake.exit("a", 1).await;
        assert_eq!(rest(a).await, ((0..100).collect(), 1));
        assert_eq!(rest(b).await, ((156..=255).rev().collect(), 2));
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_dropped_wait_for_output_loses_none() {
    watched(async {
        let (mut fake, client) = Fake::connected().await;
        let mut process = fake.start(&client, "p").await;
        let mut seen = Vec::new();
        for round in 0..100 {
            let line = delta("p", ExecOutputStream::Stdout, &[round]);
            // Whichever of the two is ready first drops the other.
            tokio::select! {
                output = process.next_output() => seen.extend(output.unwrap().unwrap().bytes),
                () = fake.say_bytes(&line) => continue,
            }
            fake.say_bytes(&line).await;
        }
        fake.exit("p", 0).await;
        seen.extend(rest(process).await.0);
        assert_eq!(seen, (0..100).collect::<Vec<u8>>());
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_full_backlog_stops_the_server_and_loses_nothing() {
    watched(async {
        let (mut fake, client) = Fake::connected().await;
        let process = fake.start(&client, "p").await;
        let flood = flood();
        let taken = Cell::new(0);
        let ((), (seen, code)) = tokio::join!(
            async {
                for piece in flood.chunks(PIECE_BYTES) {
                    fake.output("p", piece).await;
                    taken.set(taken.get() + piece.len());
                }
                fake.exit("p", 0).await;
            },
            async {
                stillness().await;
                // A line is being read and another is on its way.
                let most = OUTPUT_BACKLOG_BYTES + 2 * PIECE_BYTES;
                assert!(taken.get() <= most, "{} bytes were taken", taken.get());
                assert!(taken.get() > OUTPUT_BACKLOG_BYTES / 2, "{} bytes were taken", taken.get());
                rest(process).await
            }
        );
        assert_eq!(code, 0);
        assert!(seen == flood, "{} of {} bytes, or others", seen.len(), flood.len());
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_backlog_that_is_full_when_the_server_goes_is_handed_out_first() {
    watched(async {
        let (mut fake, client) = Fake::connected().await;
        let mut process = fake.start(&client, "p").await;
        let flood = flood();
        let ((), ()) = tokio::join!(
            async move {
                fake.output_all("p", &flood).await;
            },
            async {
                stillness().await;
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
async fn dropping_the_handle_of_a_full_backlog_lets_the_others_go_on() {
    watched(async {
        let (mut fake, client) = Fake::connected().await;
        let flooded = fake.start(&client, "flooded").await;
        let mut other = fake.start(&client, "other").await;
        let ((), ()) = tokio::join!(
            async {
                fake.output_all("flooded", &flood()).await;
                fake.output("other", b"my turn").await;
            },
            async {
                tokio::select! {
                    biased;
                    _ = other.next_output() => panic!("the flood was not held up"),
                    () = stillness() => {}
                }
                drop(flooded);
                assert_eq!(next(&mut other).await, b"my turn");
            }
        );
        // It was not terminated, and its exit still frees its id.
        fake.exit("flooded", 0).await;
        fake.start(&client, "more").await;
        fake.start(&client, "flooded").await;
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_flood_does_not_keep_its_process_from_being_terminated() {
    watched(async {
        let (mut fake, client) = Fake::connected().await;
        let process = fake.start(&client, "p").await;
        let flood = flood();
        let (ended, ()) = tokio::join!(process.terminate(), async {
            let id = fake.hear().await["id"].clone();
            fake.output_all("p", &flood).await;
            fake.say(&json!({"id": id, "result": {"running": true}})).await;
            fake.output("p", b"too late").await;
            fake.exit("p", 137).await;
        });
        assert!(ended.unwrap());
        let (seen, code) = rest(process).await;
        assert_eq!(code, 137);
        assert!(flood.starts_with(&seen), "what is left of a flood is its beginning");
        assert!(seen.len() > OUTPUT_BACKLOG_BYTES / 2, "{} bytes", seen.len());
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn output_can_be_read_while_a_write_waits() {
    watched(async {
        let (mut fake, client) = Fake::connected().await;
        let mut process = fake.start(&client, "p").await;
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
                let id = fake.hear().await["id"].clone();
                fake.output_all("p", &flood()).await;
                fake.say(&json!({"id": id, "result": {"accepted": true}})).await;
            }
        );
        written.unwrap();
        assert_eq!(count, FLOOD_BYTES);
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_chunk_larger_than_the_backlog_arrives() {
    watched(async {
        let (mut fake, client) = Fake::connected().await;
        let process = fake.start(&client, "p").await;
        let flood = flood();
        let ((), (seen, _)) = tokio::join!(
            async {
                fake.output("p", b"before").await;
                fake.output("p", &flood).await;
                fake.exit("p", 0).await;
            },
            rest(process)
        );
        assert!(seen.strip_prefix(b"before").is_some_and(|after| after == flood));
    })
    .await;
}
