//! How bytes are cut on their way makes no difference, in either direction.

use parlor_client::supex::{Driver, SupexSettings};
use proptest::prelude::*;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream};

use crate::{Fake, plain, reply, settings, value, watched};

/// How a server reads and writes: so many bytes at a time, over and over.
#[derive(Clone, Debug)]
struct Cuts {
    pipe: usize,
    reads: Vec<usize>,
    writes: Vec<usize>,
}

fn cuts() -> impl Strategy<Value = Cuts> {
    let sizes = || prop::collection::vec(1_usize..40, 1..8);
    (1_usize..64, sizes(), sizes()).prop_map(|(pipe, reads, writes)| Cuts { pipe, reads, writes })
}

struct Cutting {
    stream: DuplexStream,
    reads: std::iter::Cycle<std::vec::IntoIter<usize>>,
    writes: std::iter::Cycle<std::vec::IntoIter<usize>>,
}

impl Cutting {
    async fn hear(&mut self) -> Value {
        let mut line = Vec::new();
        while line.last() != Some(&b'\n') {
            let mut piece = vec![0; self.reads.next().unwrap()];
            let count = self.stream.read(&mut piece).await.unwrap();
            assert!(count > 0, "the client closed the connection");
            line.extend_from_slice(&piece[..count]);
        }
        // Nothing but this line: the client does not speak ahead.
        serde_json::from_slice(&line).unwrap()
    }

    async fn say(&mut self, message: &Value) {
        let line = format!("{message}\n");
        let mut rest = line.as_bytes();
        while !rest.is_empty() {
            let count = self.writes.next().unwrap().min(rest.len());
            self.stream.write_all(&rest[..count]).await.unwrap();
            tokio::task::yield_now().await;
            rest = &rest[count..];
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    #[test]
    fn any_cut_of_requests_and_answers_gives_the_same_calls(
        cuts in cuts(),
        codes in prop::collection::vec("\\PC{0,60}|[a-z\n\"\\\\]{0,60}", 1..4),
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
        runtime.block_on(watched(async {
            let (mut fake, way) = Fake::new(cuts.pipe);
            let driver = Driver::over("fake:1", way, SupexSettings { retries: 0, ..settings() });
            let server = async {
                let mut peer = Cutting {
                    stream: fake.arriving.recv().await.unwrap(),
                    reads: cuts.reads.clone().into_iter().cycle(),
                    writes: cuts.writes.clone().into_iter().cycle(),
                };
                let hello = peer.hear().await;
                peer.say(&reply(&hello, json!({"server": plain()}))).await;
                for code in &codes {
                    let call = peer.hear().await;
                    assert_eq!(call["params"]["arguments"]["code"], *code);
                    peer.say(&reply(&call, value(code))).await;
                }
            };
            let calls = async {
                for code in &codes {
                    assert_eq!(driver.eval(code).await.unwrap(), *code);
                }
            };
            tokio::join!(server, calls);
        }));
    }
}
