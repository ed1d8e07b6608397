//! Many clients at once, and the limit of connections.

use std::sync::Barrier;
use std::time::{Duration, Instant};

use parlor_transport::MAX_CONNECTIONS;

use crate::server::{Client, Server, eval, outcome};
use crate::worker_kills::soak;

const CLIENTS: u32 = 200;

#[test]
fn two_hundred_clients_are_served_while_one_is_in_an_endless_loop() {
    let server = Server::with(|command, home| {
        std::fs::write(home.join("parlor.toml"), "[channels.supex]\neval_timeout = 3600\n").unwrap();
        command.env("SUPEX_VERBOSE", "0");
    });
    let mut clients: Vec<Client> = (1..=CLIENTS).map(|pid| server.client_after_hello(pid)).collect();
    let idle = round_trips(&mut clients);
    let mut busy = clients.pop().unwrap();
    busy.send_line(&eval(1, "loop {}"));
    while !server.console_log().contains("EVAL_RUBY START") {
        std::thread::yield_now();
    }
    let during_loop = round_trips(&mut clients);
    let (idle, during_loop) = (p99(idle), p99(during_loop));
    let ratio = during_loop.as_secs_f64() / idle.as_secs_f64();
    eprintln!(
        "ping p99 of {CLIENTS} clients: {idle:?}, during an endless loop {during_loop:?}, ratio {ratio:.2}"
    );
}

/// The round trip times of pings that all clients send at once, several each.
fn round_trips(clients: &mut [Client]) -> Vec<Duration> {
    let rounds = soak(5, 50);
    let start = Barrier::new(clients.len());
    std::thread::scope(|scope| {
        let tasks: Vec<_> = clients
            .iter_mut()
            .map(|client| {
                let start = &start;
                scope.spawn(move || {
                    start.wait();
                    (0..rounds)
                        .map(|_| {
                            let begin = Instant::now();
                            assert_eq!(
                                client.request(r#"{"method":"ping","id":1}"#)["result"]["status"],
                                "ok"
                            );
                            begin.elapsed()
                        })
                        .collect::<Vec<_>>()
                })
            })
            .collect();
        tasks.into_iter().flat_map(|task| task.join().unwrap()).collect()
    })
}

fn p99(mut times: Vec<Duration>) -> Duration {
    times.sort_unstable();
    times[times.len() * 99 / 100]
}

#[test]
fn two_hundred_concurrent_evaluations_all_run() {
    let server = Server::start();
    let mut clients: Vec<Client> = (1..=CLIENTS).map(|pid| server.client_after_hello(pid)).collect();
    for client in &mut clients {
        client.send_line(&eval(1, "$n = ($n || 0) + 1"));
    }
    let mut seen: Vec<u32> =
        clients.iter_mut().map(|client| outcome(&client.reply()).unwrap().parse().unwrap()).collect();
    seen.sort_unstable();
    assert_eq!(seen, (1..=CLIENTS).collect::<Vec<_>>());
}

#[test]
fn connections_beyond_the_limit_are_closed_and_the_others_stay() {
    let server = Server::start();
    let mut first = server.client_after_hello(1);
    let others: Vec<Client> = (1..MAX_CONNECTIONS).map(|_| server.client()).collect();
    let mut last = server.client();
    assert_eq!(last.line(), None);
    assert_eq!(first.request(r#"{"method":"ping","id":1}"#)["result"]["status"], "ok");
    drop(others);
    // A new connection is served as soon as the server has noticed the closed ones.
    loop {
        let mut client = server.client();
        client.send_line(r#"{"method":"ping","id":1}"#);
        if client.line().is_some() {
            break;
        }
    }
}
