//! Clients that do not read their answers.

use crate::server::{Client, Server, eval, hello};

/// The budget of the server here, in MiB. Answers have half of it.
const BUDGET_MIB: usize = 128;

/// As large as answers can be, almost.
const ANSWER_BYTES: usize = 8_000_000;

/// How many clients do not read.
const CLIENTS: u32 = 24;

/// What their answers may add to what the server has, in KiB: half of the budget, what is kept for repeats, and what is
/// being made. Without a limit they are twice that.
const ANSWERS_KIB: u64 = 160 << 10;

#[test]
fn answers_that_nobody_reads_stay_within_their_budget_and_others_are_served() {
    let server = Server::with(|_, home| {
        let settings = format!("[serve]\nmax_frame_memory = \"{BUDGET_MIB}MiB\"\n");
        std::fs::write(home.join("parlor.toml"), settings).unwrap();
    });
    assert_eq!(server.greeted(1000).eval(1, "1").unwrap(), "1");
    let before = server.status_kib("VmRSS");
    let asked = |pid: u32| {
        let mut client = Client::connect(server.supex);
        client.send_line(&hello(pid));
        client.send_line(&eval(1, &format!("'x' * {ANSWER_BYTES}")));
        client
    };
    let unread: Vec<Client> = (0..CLIENTS).map(asked).collect();
    // Asked last, it is answered when those who do not read were hung up on.
    assert_eq!(server.greeted(1001).eval(1, "6 * 7").unwrap(), "42");
    let took = server.status_kib("VmHWM").saturating_sub(before);
    assert!(took < ANSWERS_KIB, "{CLIENTS} unread answers took {took} KiB");
    drop(unread);
    // Who reads gets all of a large answer.
    let text = server.greeted(1002).eval(1, &format!("'y' * {ANSWER_BYTES}")).unwrap();
    assert_eq!(text.len(), ANSWER_BYTES);
}

#[test]
fn who_reads_late_gets_its_answer_while_nobody_waits() {
    let server = Server::start();
    let mut late = server.greeted(1);
    late.send_line(&eval(1, &format!("'x' * {ANSWER_BYTES}")));
    let mut other = server.greeted(2);
    for id in 0..100 {
        assert_eq!(other.eval(id, "1").unwrap(), "1");
    }
    assert_eq!(crate::server::outcome(&late.reply()).unwrap().len(), ANSWER_BYTES);
}
