//! All transcripts of one door.

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

/// How many cases are played at a time. They mostly wait, but their children need a core each.
const CONCURRENT: usize = 2;

/// What became of the cases. Names are `door/file.txt`.
#[derive(Debug, Default)]
pub struct Report {
    /// How many passed.
    pub passed: usize,
    /// Those that failed as `known.txt` says they do, with its reasons.
    pub known: Vec<(String, String)>,
    /// Those that are for another place, with the reasons they give.
    pub skipped: Vec<(String, String)>,
    /// Those whose lines were rewritten because `GOLDEN=write` asked for it.
    pub rewritten: Vec<String>,
    /// Those that failed, with all there is to say about it.
    pub failed: Vec<(String, String)>,
}

/// Plays every `*.txt` in `folder` over the wire, each against a peer of its own from `make_peer`,
/// which needs to know nothing of the case. See [`play_cases`].
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

/// Plays every `*.txt` in `folder` that is for `place`, each against a peer of its own from
/// `make_peer`, which is called within a runtime.
///
/// # Panics
///
/// If a case fails that is not in `known.txt`, if one passes that is, if `known.txt` names a case
/// that is not there, or if there is no case at all.
pub fn play_cases<P: Peer>(
    folder: &Path,
    door: &dyn Door,
    place: PlayedIn,
    make_peer: impl Fn(&Case) -> Result<P, String> + Sync,
) -> Report {
    #[expect(
        clippy::disallowed_methods,
        reason = "not a setting of parlor: it is for whoever runs the tests"
    )]
    let golden = match std::env::var_os("GOLDEN") {
        Some(word) if word == "write" => Golden::Write,
        _ => Golden::Check,
    };
    let report = play_all(folder, &Stage { door, place, make_peer: &make_peer, golden });
    for (name, reason) in &report.skipped {
        eprintln!("{name}: not for this place: {reason}");
    }
    for (name, reason) in &report.known {
        eprintln!("{name}: fails, which is known: {reason}");
    }
    for name in &report.rewritten {
        eprintln!("{name}: rewritten");
    }
    for (name, flaw) in &report.failed {
        eprintln!("{name}: {}", flaw.lines().next().unwrap_or_default());
    }
    let flaws: String = report.failed.iter().map(|(name, flaw)| format!("\n\n{name}: {flaw}")).collect();
    assert!(report.failed.is_empty(), "{} failed, {} passed{flaws}", report.failed.len(), report.passed);
    report
}

/// What all plays of a folder have in common.
struct Stage<'a, M> {
    door: &'a dyn Door,
    place: PlayedIn,
    make_peer: &'a M,
    golden: Golden,
}

fn play_all<P: Peer, M: Fn(&Case) -> Result<P, String> + Sync>(
    folder: &Path,
    stage: &Stage<'_, M>,
) -> Report {
    let (files, mut known) = match find(folder) {
        Ok(found) => found,
        Err(flaw) => {
            return Report { failed: vec![(folder.display().to_string(), flaw)], ..Report::default() };
        }
    };
    let outcomes = Mutex::new(BTreeMap::new());
    let next = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for _ in 0..CONCURRENT {
            scope.spawn(|| {
                while let Some((name, file)) = files.get(next.fetch_add(1, Ordering::Relaxed)) {
                    // A machine that panics fails its case, and the others are still played.
                    let play = AssertUnwindSafe(|| play_file(file, stage));
                    let outcome = catch_unwind(play).unwrap_or_else(|_| Err("panicked".to_owned()));
                    outcomes.lock().expect("no holder panics").insert(name, outcome);
                }
            });
        }
    });

    let mut report = Report::default();
    for (name, outcome) in outcomes.into_inner().expect("no holder panics") {
        let name = name.clone();
        match (outcome, known.remove(&name)) {
            (Ok(Played::Passed), None) => report.passed += 1,
            (Ok(Played::Passed), Some(_)) => {
                report.failed.push((name, "it passes now: remove it from known.txt".to_owned()));
            }
            (Ok(Played::Skipped(reason)), _) => report.skipped.push((name, reason)),
            (Ok(Played::Rewritten), _) => report.rewritten.push(name),
            (Err(_), Some(reason)) => report.known.push((name, reason)),
            (Err(flaw), None) => report.failed.push((name, flaw)),
        }
    }
    report.failed.extend(
        known.into_keys().map(|name| (name, "known.txt names it, but there is no such case".to_owned())),
    );
    report
}

enum Played {
    Passed,
    Rewritten,
    /// For this reason.
    Skipped(String),
}

fn play_file<P: Peer, M: Fn(&Case) -> Result<P, String>>(
    file: &Path,
    stage: &Stage<'_, M>,
) -> Result<Played, String> {
    let text = fs::read_to_string(file).map_err(|error| format!("cannot be read: {error}"))?;
    let headers = Headers::parse(&text)?;
    if let Some(reason) = headers.skipped_at(stage.place) {
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
        let mut peer = (stage.make_peer)(&case)?;
        play(&steps, &mut peer, stage.door, stage.golden).await
    });
    // A peer that left a thread hanging has failed its case by now and must not hold up the rest.
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

/// The cases of the door that `folder` is named after, and why which of them cannot pass.
fn find(folder: &Path) -> Result<(Files, Reasons), String> {
    let told = |error: std::io::Error| format!("cannot be read: {error}");
    let door = folder.file_name().ok_or("has no name")?.to_string_lossy();
    let mut files = Files::new();
    for entry in fs::read_dir(folder).map_err(told)? {
        let file = entry.map_err(told)?.path();
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
        Err(error) => return Err(format!("known.txt {}", told(error))),
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

    /// Says back each line that it hears.
    #[derive(Default)]
    struct Echo {
        heard: Vec<u8>,
    }

    impl Peer for Echo {
        async fn send(&mut self, bytes: &[u8]) -> Result<(), String> {
            self.heard.extend_from_slice(bytes);
            Ok(())
        }
        async fn close(&mut self) -> Result<(), String> {
            Ok(())
        }
        async fn frame(&mut self) -> Option<Vec<u8>> {
            let end = self.heard.iter().position(|byte| *byte == b'\n')?;
            let mut line: Vec<u8> = self.heard.drain(..=end).collect();
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

    fn played(folder: &Path, golden: Golden) -> Report {
        played_by(folder, golden, &|_: &Case| Ok(Echo::default()))
    }

    fn played_by<P: Peer>(
        folder: &Path,
        golden: Golden,
        make_peer: &(impl Fn(&Case) -> Result<P, String> + Sync),
    ) -> Report {
        play_all(folder, &Stage { door: &Exec, place: PlayedIn::Wire, make_peer, golden })
    }

    const GOOD: &str = "# good\n> 1\n< 1\n";
    const BAD: &str = "# bad\n> 1\n< 2\n";

    #[test]
    fn every_file_is_played_and_failures_are_named() {
        let (_doors, folder) =
            folder(&[("a.txt", GOOD), ("b.txt", BAD), ("c.txt", GOOD), ("notes.md", "no case")]);
        let report = played(&folder, Golden::Check);
        assert_eq!(report.passed, 2);
        assert_eq!(report.failed.len(), 1);
        let (name, flaw) = &report.failed[0];
        assert!(name == "echo/b.txt" && flaw.contains("line 3:"), "{name}: {flaw}");
    }

    #[test]
    #[should_panic(expected = "echo/b.txt: line 3: expected")]
    fn a_failure_panics() {
        let (_doors, folder) = folder(&[("a.txt", GOOD), ("b.txt", BAD)]);
        play_folder(&folder, &Exec, || Ok(Echo::default()));
    }

    #[test]
    fn no_case_at_all_is_a_failure() {
        let (_doors, folder) = folder(&[("notes.md", "no case")]);
        assert_eq!(played(&folder, Golden::Check).failed.len(), 1);
        assert_eq!(played(&folder.join("missing"), Golden::Check).failed.len(), 1);
    }

    #[test]
    fn a_peer_that_cannot_be_made_fails_the_case() {
        let (_doors, folder) = folder(&[("a.txt", GOOD)]);
        let report =
            played_by(&folder, Golden::Check, &|_: &Case| Err::<Echo, _>("no such thing".to_owned()));
        assert_eq!(report.failed, [("echo/a.txt".to_owned(), "no such thing".to_owned())]);
    }

    #[test]
    fn a_panic_fails_the_case_and_not_the_others() {
        let (_doors, folder) = folder(&[("a.txt", GOOD), ("b.txt", GOOD)]);
        let first = AtomicUsize::new(0);
        let make_peer = |_: &Case| match first.fetch_add(1, Ordering::Relaxed) {
            0 => panic!("on purpose"),
            _ => Ok(Echo::default()),
        };
        let report = played_by(&folder, Golden::Check, &make_peer);
        assert_eq!((report.passed, report.failed.len()), (1, 1));
    }

    #[test]
    fn a_known_failure_is_fine_until_it_passes_or_is_gone() {
        let (_doors, folder) = folder(&[("a.txt", GOOD), ("b.txt", BAD)]);
        let known = |list: &str| {
            fs::write(folder.with_file_name("known.txt"), list).unwrap();
            played(&folder, Golden::Check)
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
    fn a_case_for_another_place_is_skipped_with_its_reason() {
        let text = format!("# far\n#! only memory: years pass\n{BAD}");
        let (_doors, folder) = folder(&[("a.txt", GOOD), ("b.txt", &text)]);
        let report = played(&folder, Golden::Check);
        assert_eq!((report.passed, report.failed.len()), (1, 0));
        assert_eq!(report.skipped, [("echo/b.txt".to_owned(), "years pass".to_owned())]);
    }

    #[test]
    fn golden_writing_makes_the_case_pass_the_next_time() {
        let (_doors, folder) = folder(&[("a.txt", GOOD), ("b.txt", "# bad\n> \"{tmp}\"\n< 2\n# kept\n")]);
        assert_eq!(played(&folder, Golden::Write).rewritten, ["echo/b.txt"]);
        let text = fs::read_to_string(folder.join("b.txt")).unwrap();
        assert_eq!(text, "# bad\n> \"{tmp}\"\n< \"{tmp}\"\n# kept\n");
        assert_eq!(played(&folder, Golden::Check).passed, 2);
    }
}
