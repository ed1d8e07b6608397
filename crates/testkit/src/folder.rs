//! Plays all transcripts of one door and reports the results.

use std::collections::BTreeMap;
use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::case::Headers;
use crate::play::{Golden, play, rewritten};
use crate::transcript::parse;
use crate::{Case, Door, Peer, PlayedIn};

/// How many cases are played at a time. The cases mostly wait, but each has a child process that needs a core.
const CONCURRENT: usize = 2;

/// The results of the cases. Their names are `door/file.txt`.
#[derive(Debug, Default)]
pub struct Report {
    /// The number of cases that passed.
    pub passed: usize,
    /// The cases that failed and are in `known.txt`, with the reasons there.
    pub known: Vec<(String, String)>,
    /// The cases that are not played here, with the reasons of their `#! only`.
    pub skipped: Vec<(String, String)>,
    /// The cases that `GOLDEN=write` has rewritten.
    pub rewritten: Vec<String>,
    /// The cases that failed, with the error texts.
    pub failed: Vec<(String, String)>,
}

/// Plays every `*.txt` in `folder` over the wire, each against a new peer from `make_peer`. Like [`play_cases`], for peers
/// that do not need the case.
///
/// # Panics
///
/// As [`play_cases`] does.
pub fn play_folder<P: Peer>(
    folder: &Path,
    door: &dyn Door,
    make_peer: impl Fn() -> Result<P, String> + Sync,
) -> Report {
    play_cases(folder, door, PlayedIn::Wire, |_| make_peer())
}

/// Plays every `*.txt` in `folder` that is for `played_in`, each against a new peer from `make_peer`. The runner calls
/// `make_peer` within a runtime.
///
/// # Panics
///
/// If a case fails that is not in `known.txt`, if a case passes that is in it, if `known.txt` names a case that does not
/// exist, or if there is no case at all.
pub fn play_cases<P: Peer>(
    folder: &Path,
    door: &dyn Door,
    played_in: PlayedIn,
    make_peer: impl Fn(&Case) -> Result<P, String> + Sync,
) -> Report {
    #[expect(clippy::disallowed_methods, reason = "not a setting of parlor, but of the test runner")]
    let golden = match std::env::var_os("GOLDEN") {
        Some(word) if word == "write" => Golden::Write,
        _ => Golden::Check,
    };
    let report = play_all(folder, &PlaySettings { door, played_in, make_peer: &make_peer, golden });
    for (name, reason) in &report.skipped {
        eprintln!("{name}: skipped: {reason}");
    }
    for (name, reason) in &report.known {
        eprintln!("{name}: known failure: {reason}");
    }
    for name in &report.rewritten {
        eprintln!("{name}: rewritten");
    }
    for (name, error) in &report.failed {
        eprintln!("{name}: {}", error.lines().next().unwrap_or_default());
    }
    let errors: String = report.failed.iter().map(|(name, error)| format!("\n\n{name}: {error}")).collect();
    assert!(report.failed.is_empty(), "{} failed, {} passed{errors}", report.failed.len(), report.passed);
    report
}

/// What all plays of a folder share.
struct PlaySettings<'a, M> {
    door: &'a dyn Door,
    played_in: PlayedIn,
    make_peer: &'a M,
    golden: Golden,
}

fn play_all<P: Peer, M: Fn(&Case) -> Result<P, String> + Sync>(
    folder: &Path,
    settings: &PlaySettings<'_, M>,
) -> Report {
    let (files, mut known) = match find(folder) {
        Ok(found) => found,
        Err(error) => {
            return Report { failed: vec![(folder.display().to_string(), error)], ..Report::default() };
        }
    };
    let outcomes = Mutex::new(BTreeMap::new());
    let next = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for _ in 0..CONCURRENT {
            scope.spawn(|| {
                while let Some((name, file)) = files.get(next.fetch_add(1, Ordering::Relaxed)) {
                    // A panic fails only its own case.
                    let play = AssertUnwindSafe(|| play_file(file, settings));
                    let outcome = catch_unwind(play).unwrap_or_else(|_| Err("panicked".to_owned()));
                    outcomes.lock().expect("no thread panics while it holds the lock").insert(name, outcome);
                }
            });
        }
    });

    let mut report = Report::default();
    for (name, outcome) in outcomes.into_inner().expect("no thread panics while it holds the lock") {
        let name = name.clone();
        match (outcome, known.remove(&name)) {
            (Ok(Played::Passed), None) => report.passed += 1,
            (Ok(Played::Passed), Some(_)) => {
                report.failed.push((name, "it passes now: remove it from known.txt".to_owned()));
            }
            (Ok(Played::Skipped(reason)), _) => report.skipped.push((name, reason)),
            (Ok(Played::Rewritten), _) => report.rewritten.push(name),
            (Err(_), Some(reason)) => report.known.push((name, reason)),
            (Err(error), None) => report.failed.push((name, error)),
        }
    }
    report.failed.extend(
        known.into_keys().map(|name| (name, "known.txt names it, but the file does not exist".to_owned())),
    );
    report
}

enum Played {
    Passed,
    Rewritten,
    /// The case is not played here, for this reason.
    Skipped(String),
}

fn play_file<P: Peer, M: Fn(&Case) -> Result<P, String>>(
    file: &Path,
    settings: &PlaySettings<'_, M>,
) -> Result<Played, String> {
    let text = fs::read_to_string(file).map_err(|error| format!("cannot be read: {error}"))?;
    let headers = Headers::parse(&text)?;
    if let Some(reason) = headers.skip_reason(settings.played_in) {
        return Ok(Played::Skipped(reason.to_owned()));
    }
    let folder = tempfile::tempdir().map_err(|error| format!("no temporary folder: {error}"))?;
    let case = headers.into_case(file.parent().unwrap_or(file), folder.path())?;
    let steps = parse(&text, &case.tmp)?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| format!("no runtime: {error}"))?;
    let rewrites = runtime.block_on(async {
        let mut peer = (settings.make_peer)(&case)?;
        play(&steps, &mut peer, settings.door, settings.golden).await
    });
    // If the peer has left a blocked thread, the case has failed by now; the other cases must not wait for the thread.
    runtime.shutdown_background();
    let rewrites = rewrites?;
    if rewrites.is_empty() {
        return Ok(Played::Passed);
    }
    fs::write(file, rewritten(&text, &rewrites, &case.tmp))
        .map_err(|error| format!("cannot be rewritten: {error}"))?;
    Ok(Played::Rewritten)
}

type Files = Vec<(String, PathBuf)>;
type Reasons = BTreeMap<String, String>;

/// The cases of the door that `folder` is named after, and the known failures among them.
fn find(folder: &Path) -> Result<(Files, Reasons), String> {
    let read_error = |error: std::io::Error| format!("cannot be read: {error}");
    let door = folder.file_name().ok_or("has no name")?.to_string_lossy();
    let mut files = Files::new();
    for entry in fs::read_dir(folder).map_err(read_error)? {
        let file = entry.map_err(read_error)?.path();
        let name = file.file_name().unwrap_or_default().to_string_lossy();
        if name.ends_with(".txt") {
            files.push((format!("{door}/{name}"), file.clone()));
        }
    }
    if files.is_empty() {
        return Err("there is no transcript in it".to_owned());
    }
    files.sort();
    let list = match fs::read_to_string(folder.with_file_name("known.txt")) {
        Ok(list) => list,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => String::new(),
        Err(error) => return Err(format!("known.txt {}", read_error(error))),
    };
    let mut known = Reasons::new();
    for line in list.lines().filter(|line| !line.trim().is_empty() && !line.starts_with('#')) {
        let (name, reason) = line.split_once(": ").ok_or(format!("known.txt: no reason in {line:?}"))?;
        if name.starts_with(&format!("{door}/")) {
            known.insert(name.to_owned(), reason.to_owned());
        }
    }
    Ok((files, known))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Exec;

    /// Sends back each line that it receives.
    #[derive(Default)]
    struct Echo {
        received: Vec<u8>,
    }

    impl Peer for Echo {
        async fn send(&mut self, bytes: &[u8]) -> Result<(), String> {
            self.received.extend_from_slice(bytes);
            Ok(())
        }
        async fn close(&mut self) -> Result<(), String> {
            Ok(())
        }
        async fn frame(&mut self) -> Option<Vec<u8>> {
            let end = self.received.iter().position(|byte| *byte == b'\n')?;
            let mut line: Vec<u8> = self.received.drain(..=end).collect();
            line.pop();
            Some(line)
        }
        async fn finish(&mut self) -> Result<(), String> {
            Ok(())
        }
    }

    /// A folder of a door called `echo` with these files.
    fn folder(files: &[(&str, &str)]) -> (tempfile::TempDir, PathBuf) {
        let doors = tempfile::tempdir().unwrap();
        let echo = doors.path().join("echo");
        fs::create_dir(&echo).unwrap();
        for (name, text) in files {
            fs::write(echo.join(name), text).unwrap();
        }
        (doors, echo)
    }

    fn play_in(folder: &Path, golden: Golden) -> Report {
        play_with(folder, golden, &|_: &Case| Ok(Echo::default()))
    }

    fn play_with<P: Peer>(
        folder: &Path,
        golden: Golden,
        make_peer: &(impl Fn(&Case) -> Result<P, String> + Sync),
    ) -> Report {
        play_all(folder, &PlaySettings { door: &Exec, played_in: PlayedIn::Wire, make_peer, golden })
    }

    const GOOD: &str = "# good\n> 1\n< 1\n";
    const BAD: &str = "# bad\n> 1\n< 2\n";

    #[test]
    fn every_file_is_played_and_failures_are_reported() {
        let (_doors, folder) =
            folder(&[("a.txt", GOOD), ("b.txt", BAD), ("c.txt", GOOD), ("notes.md", "no case")]);
        let report = play_in(&folder, Golden::Check);
        assert_eq!(report.passed, 2);
        assert_eq!(report.failed.len(), 1);
        let (name, error) = &report.failed[0];
        assert!(name == "echo/b.txt" && error.contains("line 3:"), "{name}: {error}");
    }

    #[test]
    #[should_panic(expected = "echo/b.txt: line 3: expected")]
    fn a_failure_panics() {
        let (_doors, folder) = folder(&[("a.txt", GOOD), ("b.txt", BAD)]);
        play_folder(&folder, &Exec, || Ok(Echo::default()));
    }

    #[test]
    fn an_empty_or_missing_folder_is_a_failure() {
        let (_doors, folder) = folder(&[("notes.md", "no case")]);
        assert_eq!(play_in(&folder, Golden::Check).failed.len(), 1);
        assert_eq!(play_in(&folder.join("missing"), Golden::Check).failed.len(), 1);
    }

    #[test]
    fn a_peer_that_cannot_be_made_fails_the_case() {
        let (_doors, folder) = folder(&[("a.txt", GOOD)]);
        let report =
            play_with(&folder, Golden::Check, &|_: &Case| Err::<Echo, _>("no such thing".to_owned()));
        assert_eq!(report.failed, [("echo/a.txt".to_owned(), "no such thing".to_owned())]);
    }

    #[test]
    fn a_panic_fails_only_its_own_case() {
        let (_doors, folder) = folder(&[("a.txt", GOOD), ("b.txt", GOOD)]);
        let first = AtomicUsize::new(0);
        let make_peer = |_: &Case| match first.fetch_add(1, Ordering::Relaxed) {
            0 => panic!("on purpose"),
            _ => Ok(Echo::default()),
        };
        let report = play_with(&folder, Golden::Check, &make_peer);
        assert_eq!((report.passed, report.failed.len()), (1, 1));
    }

    #[test]
    fn a_known_failure_is_accepted_until_the_case_passes_or_is_removed() {
        let (_doors, folder) = folder(&[("a.txt", GOOD), ("b.txt", BAD)]);
        let known = |list: &str| {
            fs::write(folder.with_file_name("known.txt"), list).unwrap();
            play_in(&folder, Golden::Check)
        };
        let report = known("# why\n\necho/b.txt: not built yet\nother/x.txt: not ours\n");
        assert_eq!((report.passed, report.failed.len()), (1, 0));
        assert_eq!(report.known, [("echo/b.txt".to_owned(), "not built yet".to_owned())]);

        let report = known("echo/a.txt: old\necho/b.txt: not built yet\n");
        assert!(report.failed[0].0 == "echo/a.txt" && report.failed[0].1.contains("remove it"), "{report:?}");

        let report = known("echo/b.txt: not built yet\necho/gone.txt: old\n");
        assert_eq!(report.failed[0].0, "echo/gone.txt");

        assert!(known("echo/b.txt\n").failed[0].1.contains("no reason"));
    }

    #[test]
    fn a_case_for_memory_is_skipped_with_its_reason() {
        let text = format!("# far\n#! only memory: years pass\n{BAD}");
        let (_doors, folder) = folder(&[("a.txt", GOOD), ("b.txt", &text)]);
        let report = play_in(&folder, Golden::Check);
        assert_eq!((report.passed, report.failed.len()), (1, 0));
        assert_eq!(report.skipped, [("echo/b.txt".to_owned(), "years pass".to_owned())]);
    }

    #[test]
    fn a_rewritten_case_passes_the_next_time() {
        let (_doors, folder) = folder(&[("a.txt", GOOD), ("b.txt", "# bad\n> \"{tmp}\"\n< 2\n# kept\n")]);
        assert_eq!(play_in(&folder, Golden::Write).rewritten, ["echo/b.txt"]);
        let text = fs::read_to_string(folder.join("b.txt")).unwrap();
        assert_eq!(text, "# bad\n> \"{tmp}\"\n< \"{tmp}\"\n# kept\n");
        assert_eq!(play_in(&folder, Golden::Check).passed, 2);
    }
}
