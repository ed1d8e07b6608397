//! Clients that do not read their replies.

use crate::server::{Client, Server, eval, hello};

/// The `max_frame_memory` setting of the server in these tests, in MiB. Half of it is for replies.
const BUDGET_MIB: usize = 128;

/// Almost the largest size of a reply.
const REPLY_BYTES: usize = 8_000_000;

/// How many clients do not read.
const CLIENTS: u32 = 24;

/// How much the unread replies may add to the server's memory, in KiB: half of the budget, the results that are kept for
/// repeated requests, and the replies in the making. Without a limit the replies take twice that.
const UNREAD_KIB: u64 = 160 << 10;

#[test]
fn unread_replies_stay_within_the_memory_budget_and_other_clients_are_served() {
    let server = Server::with(|_, home| {
        let settings = format!("[serve]\nmax_frame_memory = \"{BUDGET_MIB}MiB\"\n");
        std::fs::write(home.join("parlor.toml"), settings).unwrap();
    });
    assert_eq!(server.client_after_hello(1000).eval(1, "1").unwrap(), "1");
    let before = server.status_kib("VmRSS");
    let client_with_request = |pid: u32| {
        let mut client = Client::connect(server.supex);
        client.send_line(&hello(pid));
        client.send_line(&eval(1, &format!("'x' * {REPLY_BYTES}")));
        client
    };
    let unread: Vec<Client> = (0..CLIENTS).map(client_with_request).collect();
    // This request is last, so it is answered after the server has closed the connections of clients that do not read.
    assert_eq!(server.client_after_hello(1001).eval(1, "6 * 7").unwrap(), "42");
    let took = server.status_kib("VmHWM").saturating_sub(before);
    assert!(took < UNREAD_KIB, "{CLIENTS} unread replies took {took} KiB");
    drop(unread);
    // A client that reads gets all of a large reply.
    let text = server.client_after_hello(1002).eval(1, &format!("'y' * {REPLY_BYTES}")).unwrap();
    assert_eq!(text.len(), REPLY_BYTES);
}

#[test]
fn a_client_that_reads_late_gets_its_reply_if_no_other_client_needs_the_memory() {
    let server = Server::start();
    let mut late = server.client_after_hello(1);
    late.send_line(&eval(1, &format!("'x' * {REPLY_BYTES}")));
    let mut other = server.client_after_hello(2);
    for id in 0..100 {
        assert_eq!(other.eval(id, "1").unwrap(), "1");
    }
    assert_eq!(crate::server::outcome(&late.reply()).unwrap().len(), REPLY_BYTES);
}
