//! Other users of the same machine, whose address is the owner's.
//!
//! Only root can become other users. Elsewhere these tests do nothing and say so on standard error.
#![expect(clippy::unwrap_used, reason = "a helper of a test that cannot go on panics, as the test would")]

use parlor_transport::Rate;
use rustix::process::{Uid, geteuid};
use rustix::thread::set_thread_res_uid;
use tokio::net::TcpStream;

use crate::support::Server;

/// Another user of the machine.
const STRANGER: u32 = 61_002;

/// A connection that another user has made. None if this process cannot become other users.
fn connect(server: &Server) -> Option<TcpStream> {
    if !geteuid().is_root() {
        eprintln!("skipped: only root can connect as another user");
        return None;
    }
    let to = server.address;
    let connecting = std::thread::spawn(move || {
        let uid = Uid::from_raw(STRANGER);
        set_thread_res_uid(uid, uid, uid).unwrap();
        std::net::TcpStream::connect(to).unwrap()
    });
    let stream = connecting.join().unwrap();
    stream.set_nonblocking(true).unwrap();
    Some(TcpStream::from_std(stream).unwrap())
}

#[tokio::test]
async fn what_other_users_ask_does_not_use_up_what_the_owner_may() {
    let rate = Rate { per_second: 0.001, burst: 3.0 };
    let server = Server::with(|wanted| {
        wanted.settings.limits.local_requests = rate;
        wanted.settings.limits.local_handshakes = rate;
    })
    .await;
    for path in ["/health", "/supr/ws"] {
        let mut refused = 0;
        for _ in 0..5 {
            let Some(stream) = connect(&server) else { return };
            let answer = server.ask_on(stream, &format!("GET {path}")).await;
            refused += u32::from(answer.status == 429);
        }
        assert_eq!(refused, 2, "{path}");
        assert_ne!(server.ask(&format!("GET {path}")).await.status, 429, "{path}");
    }
}
