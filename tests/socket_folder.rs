//! State folders in which sockets are hard to make: with a long path, or where none can be bound.

mod home;

use std::process::{Child, Stdio};

use home::Home;

/// Kills a process at the end of its test.
struct Killed(Child);

impl Drop for Killed {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn a_session_is_joined_through_a_path_that_is_too_long_for_a_socket_address() {
    let home = Home::with_long_path();
    let owner = Killed(home.start_waiting("/wait 60"));
    let sockets: Vec<_> = std::fs::read_dir(home.state().join("run")).unwrap().collect();
    let [Ok(socket)] = sockets.as_slice() else { panic!("{sockets:?}") };
    assert!(socket.path().as_os_str().len() > 107);
    let session = home.last_session();
    // The owner refuses: its run is active.
    let refused = home.refuses(&["sessions", "delete", "--yes", &session]);
    assert!(refused.contains("is active; wait for its end"), "{refused}");
    home.prints(&["sessions", "rename", &session, "renamed by another process"]);
    assert_eq!(home.json(&["sessions", "--json"])[0]["title"], "renamed by another process");
    drop(owner);
    // The socket of the killed owner is in nobody's way.
    assert_eq!(home.prints(&["chat", "--session", &session, "/say hi"]), "hi\n");
}

#[test]
fn without_sockets_a_process_says_so_and_has_its_sessions_for_itself() {
    let home = Home::new();
    // No folder can be made here, so no socket can be bound.
    home.configure("run", "a file");
    let chatted = home.run(&["chat", "/say hello"]);
    assert_eq!(String::from_utf8(chatted.stdout).unwrap(), "hello\n");
    let said = String::from_utf8(chatted.stderr).unwrap();
    let folder = home.state().join("run");
    assert!(said.contains(&format!("no socket in {}: ", folder.display())), "{said}");
    assert_eq!(said.matches("other processes cannot join sessions of this one").count(), 1, "{said}");

    let owner = Killed(home.start_waiting("/wait 60"));
    let session = home.last_session();
    let refused = home.refuses(&["chat", "--session", &session, "/say hi"]);
    assert!(refused.contains(&format!("in use by process {}", owner.0.id())), "{refused}");
    let replayed = home.prints(&["replay", &session]);
    assert!(replayed.contains("/wait 60"), "{replayed}");
    drop(owner);
    assert_eq!(home.prints(&["chat", "--session", &session, "/say hi"]), "hi\n");
    assert_eq!(std::fs::read_to_string(folder).unwrap(), "a file");
}

#[test]
fn without_sockets_a_door_on_stdio_works_as_before() {
    let home = Home::new();
    home.configure("run", "a file");
    let served = home.command(&["stdio", "synaps"]).stdin(Stdio::null()).output().unwrap();
    assert!(served.status.success(), "{served:?}");
    let first = String::from_utf8(served.stdout).unwrap();
    assert!(first.starts_with(r#"{"type":"ready""#), "{first}");
    assert!(String::from_utf8(served.stderr).unwrap().contains("no socket in"));
}

#[test]
fn a_process_that_joins_no_sessions_needs_no_socket() {
    let home = Home::new();
    home.configure("parlor.toml", "[sessions]\njoin = false\n");
    home.configure("run", "a file");
    let chatted = home.run(&["chat", "/say hello"]);
    assert_eq!(String::from_utf8(chatted.stdout).unwrap(), "hello\n");
    assert_eq!(String::from_utf8(chatted.stderr).unwrap(), "");
}
