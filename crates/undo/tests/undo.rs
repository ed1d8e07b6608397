//! Runs change real folders, and are undone.

#![expect(clippy::unwrap_used, reason = "a test that panics has failed, and says where")]

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parlor_files::{ParentFolders, Policy};
use parlor_undo::{
    Background, ChangeRecorder, FileDiff, KEPT_FILE_BYTES, SNAPSHOT_FILES, UndoError, UndoMode, UndoOutcome,
    UndoReport, UndoStore,
};
use parlor_vocab::{RunId, SessionId, Timestamp};

struct Project {
    folder: tempfile::TempDir,
    store: UndoStore,
    runs: std::cell::Cell<i64>,
}

impl Project {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(folder.path().join("project")).unwrap();
        fs::create_dir(folder.path().join("home")).unwrap();
        let store = UndoStore::new(&folder.path().join("home"));
        Self { folder, store, runs: 0.into() }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join("project").join(name)
    }

    fn write(&self, name: &str, text: impl AsRef<[u8]>) {
        fs::create_dir_all(self.path(name).parent().unwrap()).unwrap();
        fs::write(self.path(name), text).unwrap();
    }

    fn read(&self, name: &str) -> String {
        fs::read_to_string(self.path(name)).unwrap()
    }

    fn policy(&self) -> Policy {
        Policy::new([self.folder.path().join("project")])
            .unwrap()
            .without_state(&self.folder.path().join("home"))
    }

    fn session() -> SessionId {
        SessionId::parse("s").unwrap()
    }

    fn recorder(&self, run: &str) -> ChangeRecorder {
        self.runs.set(self.runs.get() + 1);
        let run = RunId::parse(run).unwrap();
        self.store.recorder(&Self::session(), &run, Timestamp(self.runs.get()), Arc::new(self.policy()))
    }

    /// A run whose only call does `work`.
    fn run(&self, run: &str, work: impl FnOnce()) {
        let recorder = self.recorder(run);
        recorder.before_call(Background::Idle);
        work();
        recorder.after_call();
        recorder.finish(Background::Idle);
    }

    fn undo(&self, run: &str, mode: UndoMode) -> UndoReport {
        let run = RunId::parse(run).unwrap();
        self.store.undo(&Self::session(), &run, &self.policy(), mode, Timestamp(9)).unwrap()
    }

    fn changed(&self, run: &str) -> Vec<(String, &'static str)> {
        let run = RunId::parse(run).unwrap();
        let changes = self.store.changes(&Self::session(), &run, &self.policy()).unwrap();
        changes.files.iter().map(|file| (file.path.to_str().unwrap().to_owned(), file.kind())).collect()
    }

    /// Everything that an undo must put back.
    fn tree(&self) -> BTreeMap<PathBuf, String> {
        let mut tree = BTreeMap::new();
        let mut inodes = BTreeMap::new();
        describe(&self.path(""), &self.path(""), &mut tree, &mut inodes);
        tree
    }
}

fn describe(
    root: &Path,
    path: &Path,
    tree: &mut BTreeMap<PathBuf, String>,
    inodes: &mut BTreeMap<u64, PathBuf>,
) {
    let mut names: Vec<PathBuf> = fs::read_dir(path).unwrap().map(|entry| entry.unwrap().path()).collect();
    names.sort();
    for name in names {
        let metadata = fs::symlink_metadata(&name).unwrap();
        let below = name.strip_prefix(root).unwrap().to_owned();
        let mode = metadata.mode();
        let text = if metadata.is_dir() {
            describe(root, &name, tree, inodes);
            format!("folder {mode:o}")
        } else if metadata.is_symlink() {
            format!("link {:?}", fs::read_link(&name).unwrap())
        } else {
            let first = inodes.entry(metadata.ino()).or_insert_with(|| below.clone());
            format!("file {mode:o} {first:?} {:?}", fs::read(&name).unwrap())
        };
        tree.insert(below, text);
    }
}

fn mode(path: &Path, mode: u32) {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
}

fn kept(report: &UndoReport) -> Vec<(String, String)> {
    let kept = |file: &parlor_undo::UndoneFile| match &file.outcome {
        UndoOutcome::Kept(reason) => Some((file.path.to_str().unwrap().to_owned(), reason.clone())),
        UndoOutcome::Restored | UndoOutcome::AlreadyDone => None,
    };
    report.files.iter().filter_map(kept).collect()
}

/// A thousand files, of which a run changes nearly all in every way.
#[test]
fn a_thousand_files_are_put_back_byte_for_byte() {
    let project = Project::new();
    for number in 0..1_000 {
        let bytes: Vec<u8> = (0..number * 3).map(|byte| (byte * 7 % 256) as u8).collect();
        project.write(&format!("d{}/e{}/f{number}", number % 10, number % 7), bytes);
    }
    for number in 0..50 {
        symlink(format!("f{number}"), project.path(&format!("d0/link{number}"))).unwrap();
        mode(&project.path(&format!("d{}/e{}/f{number}", number % 10, number % 7)), 0o600 + number);
    }
    fs::hard_link(project.path("d1/e1/f1"), project.path("d2/hard")).unwrap();
    fs::create_dir(project.path("empty")).unwrap();
    mode(&project.path("empty"), 0o711);
    fs::create_dir(project.path("locked")).unwrap();
    project.write("locked/in", "x");
    mode(&project.path("locked"), 0o500);
    let before = project.tree();
    project.run("r", || {
        for number in 0..1_000 {
            let path = project.path(&format!("d{}/e{}/f{number}", number % 10, number % 7));
            match number % 5 {
                0 => fs::write(path, format!("new {number}")).unwrap(),
                1 => fs::remove_file(path).unwrap(),
                2 => fs::rename(&path, project.path(&format!("moved{number}"))).unwrap(),
                3 => mode(&path, 0o640),
                _ => {
                    fs::remove_file(&path).unwrap();
                    symlink("/etc/passwd", path).unwrap();
                }
            }
        }
        for number in 0..50 {
            fs::remove_file(project.path(&format!("d0/link{number}"))).unwrap();
        }
        fs::write(project.path("d2/hard"), "changed through a hard link").unwrap();
        fs::remove_dir(project.path("empty")).unwrap();
        fs::remove_dir_all(project.path("d9")).unwrap();
        fs::write(project.path("d9"), "a file in the place of a folder").unwrap();
        fs::remove_file(project.path("d8/e1/f8")).unwrap_or_default();
        fs::create_dir_all(project.path("new/deep/er")).unwrap();
        project.write("new/deep/er/x", "x");
        mode(&project.path("new/deep"), 0o500);
        mode(&project.path("locked"), 0o700);
        fs::remove_dir_all(project.path("locked")).unwrap();
    });
    assert_ne!(project.tree(), before);
    let dry = project.undo("r", UndoMode::DryRun);
    assert!(dry.restored() > 1_000, "{}", dry.restored());
    assert_ne!(project.tree(), before);
    let report = project.undo("r", UndoMode::Careful);
    assert_eq!(kept(&report), []);
    let after = project.tree();
    for (path, text) in &before {
        assert_eq!(after.get(path), Some(text), "{path:?}");
    }
    assert_eq!(after.len(), before.len());
    let again = project.undo("r", UndoMode::Careful);
    assert_eq!((again.restored(), again.kept()), (0, 0));
    mode(&project.path("locked"), 0o700);
}

#[test]
fn a_file_that_was_changed_by_hand_is_kept_unless_forced() {
    let project = Project::new();
    project.write("a", "a");
    project.write("b", "b");
    project.run("r", || {
        project.write("a", "a of the run");
        project.write("b", "b of the run");
        project.write("c", "c of the run");
        project.write("new/x", "x");
    });
    project.write("b", "b by hand");
    project.write("c", "c by hand");
    project.write("new/y", "y by hand");
    let report = project.undo("r", UndoMode::Careful);
    let changed = "it was changed after the run".to_owned();
    let folder = "it has files that are not put back, or that the run did not create".to_owned();
    let expected = [("b", &changed), ("c", &changed), ("new", &folder)];
    assert_eq!(kept(&report), expected.map(|(path, reason)| (path.to_owned(), reason.clone())));
    assert_eq!([project.read("a"), project.read("b"), project.read("c")], ["a", "b by hand", "c by hand"]);
    let forced = project.undo("r", UndoMode::Force);
    assert_eq!(kept(&forced), [("new".to_owned(), folder)]);
    assert_eq!(project.read("b"), "b");
    assert!(!project.path("c").exists());
    assert_eq!(project.read("new/y"), "y by hand");
}

#[test]
fn file_tools_and_commands_of_one_run_are_undone_together() {
    let project = Project::new();
    project.write("a", "1");
    mode(&project.path("a"), 0o755);
    let recorder = project.recorder("r");
    let policy = project.policy();
    let tool = |path: &str, text: &str| {
        let spot = policy.locate(&project.path(""), path, ParentFolders::Create).unwrap();
        recorder.before_write(&spot, text.as_bytes());
        fs::write(project.path(path), text).unwrap();
        recorder.after_write(&spot);
    };
    tool("a", "2");
    tool("new/folder/b", "b");
    recorder.before_call(Background::Idle);
    project.write("a", "3");
    recorder.after_call();
    tool("a", "4");
    recorder.before_call(Background::Running);
    recorder.after_call();
    recorder.finish(Background::Running);
    assert_eq!(
        project.changed("r"),
        [("a", "changed"), ("new", "created"), ("new/folder", "created"), ("new/folder/b", "created")]
            .map(|(path, kind)| (path.to_owned(), kind))
    );
    let report = project.undo("r", UndoMode::Careful);
    assert_eq!(kept(&report), []);
    assert_eq!((project.read("a").as_str(), project.tree().len()), ("1", 1));
    assert_eq!(fs::metadata(project.path("a")).unwrap().mode() & 0o777, 0o755);
}

#[test]
fn what_somebody_else_changes_between_two_calls_is_not_of_the_run() {
    let project = Project::new();
    project.write("a", "1");
    project.write("b", "1");
    let recorder = project.recorder("r");
    recorder.before_call(Background::Idle);
    project.write("b", "2");
    recorder.after_call();
    project.write("a", "by hand");
    project.write("b", "by hand");
    recorder.before_call(Background::Idle);
    project.write("b", "3");
    recorder.after_call();
    recorder.finish(Background::Idle);
    assert_eq!(project.changed("r"), [("b".to_owned(), "changed")]);
    let report = project.undo("r", UndoMode::Careful);
    assert_eq!(kept(&report), [("b".to_owned(), "somebody else changed it during the run".to_owned())]);
}

#[test]
fn processes_in_the_background_count_as_the_run() {
    let project = Project::new();
    project.write("a", "1");
    let recorder = project.recorder("r");
    recorder.before_call(Background::Idle);
    recorder.after_call();
    project.write("a", "by the background");
    recorder.before_call(Background::Running);
    recorder.after_call();
    project.write("b", "at the end");
    recorder.finish(Background::Running);
    assert_eq!(project.changed("r"), [("a".to_owned(), "changed"), ("b".to_owned(), "created")]);
}

#[test]
fn a_run_that_was_cut_off_is_undone_too() {
    let project = Project::new();
    project.write("a", "1");
    project.write("b", "1");
    let recorder = project.recorder("r");
    recorder.before_call(Background::Idle);
    project.write("a", "2");
    fs::remove_file(project.path("b")).unwrap();
    project.write("c", "3");
    let busy = project.store.undo(
        &Project::session(),
        &RunId::parse("r").unwrap(),
        &project.policy(),
        UndoMode::Careful,
        Timestamp(9),
    );
    assert!(matches!(busy, Err(UndoError::Busy(_))), "{busy:?}");
    // As after a kill: the kernel releases the lock, and nothing else happens.
    drop(recorder);
    let last = project.store.last_run_in(&project.policy()).unwrap().unwrap();
    assert_eq!(last.run.as_str(), "r");
    let report = project.undo("r", UndoMode::Careful);
    assert_eq!((report.restored(), kept(&report)), (3, vec![]));
    assert!(report.notes[0].contains("was killed"), "{:?}", report.notes);
    assert_eq!((project.read("a"), project.read("b")), ("1".to_owned(), "1".to_owned()));
    assert!(!project.path("c").exists());
}

#[test]
fn what_changed_long_after_the_cut_is_kept() {
    let project = Project::new();
    project.write("a", "1");
    project.write("b", "1");
    let recorder = project.recorder("r");
    recorder.before_call(Background::Idle);
    project.write("a", "2");
    drop(recorder);
    // The last sign of life is an hour old.
    let runs = project.folder.path().join("home/undo/runs");
    let session = fs::read_dir(runs).unwrap().next().unwrap().unwrap().path();
    let mut snapshot = fs::read_dir(session).unwrap().map(|entry| entry.unwrap().path());
    let snapshot = snapshot.find(|path| path.extension().is_some_and(|ext| ext == "before")).unwrap();
    let file = fs::File::options().append(true).open(&snapshot).unwrap();
    let hour_ago =
        fs::metadata(&snapshot).unwrap().modified().unwrap() - std::time::Duration::from_secs(3600);
    file.set_modified(hour_ago).unwrap();
    let report = project.undo("r", UndoMode::Careful);
    assert_eq!(
        kept(&report),
        [("a".to_owned(), "it was changed after the process of the run was killed".to_owned())]
    );
}

#[test]
fn links_in_the_way_are_not_followed_and_the_state_folder_is_not_touched() {
    let project = Project::new();
    project.write("d/a", "1");
    let outside = project.folder.path().join("outside");
    fs::create_dir(&outside).unwrap();
    project.run("r", || project.write("d/a", "2"));
    fs::remove_dir_all(project.path("d")).unwrap();
    fs::write(outside.join("a"), "2").unwrap();
    symlink(&outside, project.path("d")).unwrap();
    let report = project.undo("r", UndoMode::Force);
    assert_eq!(report.kept(), 1);
    assert_eq!(fs::read_to_string(outside.join("a")).unwrap(), "2");
    // A state folder within the project is no part of the snapshot.
    let project = Project::new();
    let home = project.path("home");
    fs::create_dir(&home).unwrap();
    let policy = Arc::new(Policy::new([project.path("")]).unwrap().without_state(&home));
    let store = UndoStore::new(&home);
    let run = RunId::parse("r").unwrap();
    let recorder = store.recorder(&Project::session(), &run, Timestamp(1), Arc::clone(&policy));
    recorder.before_call(Background::Idle);
    fs::write(home.join("supr.json"), "secret").unwrap();
    recorder.after_call();
    recorder.finish(Background::Idle);
    assert!(matches!(store.changes(&Project::session(), &run, &policy), Err(UndoError::NoRecord(_))));
}

#[test]
fn what_is_not_kept_is_reported() {
    let project = Project::new();
    let large = vec![b'x'; usize::try_from(KEPT_FILE_BYTES).unwrap() + 1];
    project.write("large", &large);
    project.write("node_modules/x/y", "y");
    project.write("build/CACHEDIR.TAG", "Signature: 8a477f597d28d172789f06886806bc55");
    project.write("build/out", "1");
    project.write(".git/config", "1");
    project.run("r", || {
        fs::write(project.path("large"), "small").unwrap();
        fs::remove_dir_all(project.path("node_modules")).unwrap();
        project.write("build/out", "2");
        project.write(".git/config", "2");
        project.write("new_large", &large);
    });
    assert_eq!(
        project.changed("r"),
        [("large", "changed"), ("new_large", "created"), ("node_modules", "deleted")]
            .map(|(path, kind)| (path.to_owned(), kind))
    );
    let report = project.undo("r", UndoMode::Careful);
    let kept = kept(&report);
    assert_eq!(kept.len(), 2, "{kept:?}");
    assert!(kept[0].1.contains("larger than 4 MiB"), "{kept:?}");
    assert!(kept[1].1.contains("node_modules"), "{kept:?}");
    assert!(!project.path("new_large").exists(), "a large file is recognized without being kept");
}

#[test]
fn a_folder_with_too_many_files_is_left_out_and_the_record_says_so() {
    let project = Project::new();
    fs::create_dir(project.path("many")).unwrap();
    for number in 0..=SNAPSHOT_FILES {
        fs::write(project.path("many").join(number.to_string()), "").unwrap();
    }
    project.write("a", "1");
    project.run("r", || {
        project.write("a", "2");
        project.write("many/1", "2");
    });
    assert_eq!(project.changed("r"), [("a".to_owned(), "changed")]);
    let report = project.undo("r", UndoMode::Careful);
    assert!(report.notes[0].contains("more files than parlor keeps"), "{:?}", report.notes);
}

#[test]
fn a_diff_shows_what_changed() {
    let project = Project::new();
    project.write("a", "one\ntwo\n");
    project.write("bin", b"\0\x01");
    project.run("r", || {
        project.write("a", "one\n2\n");
        project.write("bin", b"\0\x02");
    });
    let run = RunId::parse("r").unwrap();
    let changes = project.store.changes(&Project::session(), &run, &project.policy()).unwrap();
    let diffs: Vec<FileDiff> = changes.files.iter().map(|file| project.store.diff(file).unwrap()).collect();
    let text = "@@ -1,2 +1,2 @@\n one\n-two\n+2\n".to_owned();
    assert_eq!(diffs, [FileDiff::Text { text, is_cut: false }, FileDiff::Binary]);
}

/// The texts of all files below `folder`.
fn texts(folder: &Path) -> String {
    let entries = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    entries
        .map(|path| match path.is_dir() {
            true => texts(&path),
            false => String::from_utf8_lossy(&fs::read(&path).unwrap()).into_owned(),
        })
        .collect()
}

#[test]
fn deleting_a_session_deletes_what_it_kept() {
    let project = Project::new();
    project.write("a", "content before");
    project.write("untouched", "content that stays");
    project.run("r", || project.write("a", "content after"));
    let other = SessionId::parse("other").unwrap();
    let run = RunId::parse("o").unwrap();
    let recorder = project.store.recorder(&other, &run, Timestamp(5), Arc::new(project.policy()));
    recorder.before_call(Background::Idle);
    project.write("b", "content of another session");
    recorder.after_call();
    recorder.finish(Background::Idle);
    let bytes = project.store.kept_bytes().unwrap();
    assert_eq!(bytes[&Project::session()], ("content before".len() + "content after".len()) as u64);
    let home = project.folder.path().join("home");
    for text in ["content before", "content after", "content that stays", "content of another session"] {
        assert!(texts(&home).contains(text), "{text}");
    }
    project.store.delete_session(&Project::session()).unwrap();
    let left = texts(&home);
    assert!(left.contains("content of another session"));
    for text in ["content before", "content after", "content that stays"] {
        assert!(!left.contains(text), "{text}");
    }
    project.store.delete_session(&other).unwrap();
    assert!(!texts(&home).contains("content"));
}

#[test]
fn beyond_the_total_the_oldest_records_go_first() {
    let project = Project::new();
    for number in 0..4 {
        project.run(&format!("r{number}"), || {
            project.write(&format!("f{number}"), format!("{number}").repeat(1_000));
        });
    }
    let kept = project.store.sweep(2_500).unwrap();
    assert_eq!(kept, 2_000);
    let runs = project.store.runs(&Project::session(), &project.policy()).unwrap();
    let runs: Vec<&str> = runs.iter().map(|record| record.run.as_str()).collect();
    assert_eq!(runs, ["r2", "r3"]);
    let gone = RunId::parse("r0").unwrap();
    let gone = project.store.changes(&Project::session(), &gone, &project.policy());
    assert!(matches!(gone, Err(UndoError::NoRecord(_))));
    assert_eq!(kept_after(&project, "r3"), 0);
}

fn kept_after(project: &Project, run: &str) -> usize {
    project.undo(run, UndoMode::Careful).kept()
}
