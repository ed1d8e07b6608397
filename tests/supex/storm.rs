//! The worker is killed again and again, under load.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use rustix::process::{Pid, Signal, kill_process};

use crate::server::{Server, outcome};

/// `small`, or `large` if somebody has asked for the long run.
pub(crate) fn soak<T>(small: T, large: T) -> T {
    if std::env::var_os("PARLOR_SOAK").is_some() { large } else { small }
}

/// How many clients evaluate meanwhile.
const CLIENTS: u32 = 8;

#[test]
fn every_call_is_answered_once_while_workers_are_killed() {
    let server = Server::start();
    let is_over = AtomicBool::new(false);
    let (values, losses) = (AtomicU64::new(0), AtomicU64::new(0));
    std::thread::scope(|scope| {
        for pid in 1..=CLIENTS {
            let (server, is_over, values, losses) = (&server, &is_over, &values, &losses);
            scope.spawn(move || {
                let mut client = server.greeted(pid);
                for id in 0.. {
                    if is_over.load(Ordering::Relaxed) {
                        break;
                    }
                    let reply = client.ask(&crate::server::eval(id, &format!("40 + {pid}")));
                    assert_eq!(reply["id"], id, "one answer for each request, in their order");
                    match outcome(&reply) {
                        Ok(value) => {
                            assert_eq!(value, (40 + pid).to_string());
                            values.fetch_add(1, Ordering::Relaxed);
                        }
                        Err(message) => {
                            assert_eq!(reply["error"]["code"], -32000, "{reply}");
                            assert!(message.contains("worker exited"), "{reply}");
                            losses.fetch_add(1, Ordering::Relaxed);
                        }
                    }
                }
            });
        }
        let mut killer = server.greeted(100);
        let (mut id, mut kills) = (0, 0);
        while kills < soak(20, 500) {
            id += 1;
            // Asked for each time: it is another one after each kill.
            let Ok(pid) = killer.eval(id, "$$") else { continue };
            let pid = Pid::from_raw(pid.parse().unwrap()).unwrap();
            // At a moment that nobody chose, in whichever call is running.
            kills += u32::from(kill_process(pid, Signal::KILL).is_ok());
        }
        is_over.store(true, Ordering::Relaxed);
    });
    let (values, losses) = (values.into_inner(), losses.into_inner());
    eprintln!("{values} values, {losses} calls that lost their worker");
    assert!(values > 0);
    assert_eq!(server.greeted(200).eval(1, "1"), Ok("1".to_owned()));
}
