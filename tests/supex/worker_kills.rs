//! The Ruby worker is killed many times while clients evaluate code.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use rustix::process::{Pid, Signal, kill_process};

use crate::server::{Server, outcome};

/// `small`, or `large` if `PARLOR_SOAK` is set.
pub(crate) fn soak<T>(small: T, large: T) -> T {
    if std::env::var_os("PARLOR_SOAK").is_some() { large } else { small }
}

/// How many clients evaluate code while the worker is killed.
const CLIENTS: u32 = 8;

#[test]
fn every_call_is_answered_once_while_workers_are_killed() {
    let server = Server::start();
    let is_over = AtomicBool::new(false);
    let (values, lost_calls) = (AtomicU64::new(0), AtomicU64::new(0));
    std::thread::scope(|scope| {
        for pid in 1..=CLIENTS {
            let (server, is_over, values, lost_calls) = (&server, &is_over, &values, &lost_calls);
            scope.spawn(move || {
                let mut client = server.client_after_hello(pid);
                for id in 0.. {
                    if is_over.load(Ordering::Relaxed) {
                        break;
                    }
                    let reply = client.request(&crate::server::eval(id, &format!("40 + {pid}")));
                    assert_eq!(reply["id"], id, "one reply for each request, in order");
                    match outcome(&reply) {
                        Ok(value) => {
                            // A notice follows if the worker was lost between two calls.
                            assert_eq!(value.lines().next(), Some(&*(40 + pid).to_string()));
                            values.fetch_add(1, Ordering::Relaxed);
                        }
                        Err(message) => {
                            assert_eq!(reply["error"]["code"], -32000, "{reply}");
                            assert!(message.contains("worker exited"), "{reply}");
                            lost_calls.fetch_add(1, Ordering::Relaxed);
                        }
                    }
                }
            });
        }
        let mut killer = server.client_after_hello(100);
        let (mut id, mut kills) = (0, 0);
        while kills < soak(20, 500) {
            id += 1;
            // Each kill is followed by a new worker with another process id.
            let Ok(pid) = killer.eval(id, "$$") else { continue };
            let pid = Pid::from_raw(pid.lines().next().unwrap().parse().unwrap()).unwrap();
            // The kill hits whichever call is running at that moment.
            kills += u32::from(kill_process(pid, Signal::KILL).is_ok());
        }
        is_over.store(true, Ordering::Relaxed);
    });
    let (values, lost_calls) = (values.into_inner(), lost_calls.into_inner());
    eprintln!("{values} values, {lost_calls} calls lost their worker");
    assert!(values > 0);
    assert_eq!(server.client_after_hello(200).eval(1, "1"), Ok("1".to_owned()));
}
