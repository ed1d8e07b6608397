//! Property test: splitting the bytes of requests and answers anywhere makes no difference.

use parlor_client::supex::{Driver, SupexSettings};
use proptest::prelude::*;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream};

use crate::{FakeServer, not_attaching, reply, settings, value, with_timeout};

/// The sizes of a server's reads and writes, which repeat, and of the pipe.
#[derive(Clone, Debug)]
struct Sizes {
    pipe: usize,
    reads: Vec<usize>,
    writes: Vec<usize>,
}

fn sizes() -> impl Strategy<Value = Sizes> {
    let lengths = || prop::collection::vec(1_usize..40, 1..8);
    (1_usize..64, lengths(), lengths()).prop_map(|(pipe, reads, writes)| Sizes { pipe, reads, writes })
}

struct SplittingServer {
    stream: DuplexStream,
    reads: std::iter::Cycle<std::vec::IntoIter<usize>>,
    writes: std::iter::Cycle<std::vec::IntoIter<usize>>,
}

impl SplittingServer {
    async fn receive(&mut self) -> Value {
        let mut line = Vec::new();
        while line.last() != Some(&b'\n') {
            let mut piece = vec![0; self.reads.next().unwrap()];
            let count = self.stream.read(&mut piece).await.unwrap();
            assert!(count > 0, "the client closed the connection");
            line.extend_from_slice(&piece[..count]);
        }
        // This fails if more than one line was received: the client sends one request at a time.
        serde_json::from_slice(&line).unwrap()
    }

    async fn send(&mut self, message: &Value) {
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
    fn calls_do_not_depend_on_how_bytes_are_split(
        sizes in sizes(),
        codes in prop::collection::vec("\\PC{0,60}|[a-z\n\"\\\\]{0,60}", 1..4),
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
        runtime.block_on(with_timeout(async {
            let (mut fake_server, dial) = FakeServer::new(sizes.pipe);
            let driver = Driver::over("fake:1", dial, SupexSettings { retries: 0, ..settings() });
            let server = async {
                let mut connection = SplittingServer {
                    stream: fake_server.connections.recv().await.unwrap(),
                    reads: sizes.reads.clone().into_iter().cycle(),
                    writes: sizes.writes.clone().into_iter().cycle(),
                };
                let hello = connection.receive().await;
                connection.send(&reply(&hello, json!({"server": not_attaching()}))).await;
                for code in &codes {
                    let call = connection.receive().await;
                    assert_eq!(call["params"]["arguments"]["code"], *code);
                    connection.send(&reply(&call, value(code))).await;
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
