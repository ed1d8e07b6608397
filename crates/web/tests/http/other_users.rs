//! Other users of this machine, who have the same address as the owner.
//!
//! Only root can become another user. Otherwise these tests do nothing and say so on standard error.
#![expect(clippy::unwrap_used, reason = "a helper of a test that cannot go on panics, as the test would")]

use parlor_transport::Rate;
use rustix::process::{Uid, geteuid};
use rustix::thread::set_thread_res_uid;
use tokio::net::TcpStream;

use crate::server::Server;

/// Another user of the machine.
const OTHER_USER: u32 = 61_002;

/// A connection of another user; `None` if this process cannot become another user.
fn connect(server: &Server) -> Option<TcpStream> {
    if !geteuid().is_root() {
        eprintln!("skipped: only root can connect as another user");
        return None;
    }
    let to = server.address;
    let connecting = std::thread::spawn(move || {
        let uid = Uid::from_raw(OTHER_USER);
        set_thread_res_uid(uid, uid, uid).unwrap();
        std::net::TcpStream::connect(to).unwrap()
    });
    let stream = connecting.join().unwrap();
    stream.set_nonblocking(true).unwrap();
    Some(TcpStream::from_std(stream).unwrap())
}

#[tokio::test]
async fn requests_of_other_users_do_not_use_up_the_rate_of_the_owner() {
    let rate = Rate { per_second: 0.001, burst: 3.0 };
    let server = Server::with(|options| {
        options.settings.limits.local_requests = rate;
        options.settings.limits.local_handshakes = rate;
    })
    .await;
    for path in ["/health", "/supr/ws"] {
        let mut refused = 0;
        for _ in 0..5 {
            let Some(stream) = connect(&server) else { return };
            let answer = server.request_on(stream, &format!("GET {path}")).await;
            refused += u32::from(answer.status == 429);
        }
        assert_eq!(refused, 2, "{path}");
        assert_ne!(server.request(&format!("GET {path}")).await.status, 429, "{path}");
    }
}
