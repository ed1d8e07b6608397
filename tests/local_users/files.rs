//! What another user finds in a state folder that others can look into, and what she can put there.

use std::fs::{Permissions, create_dir, read_dir, set_permissions, write};
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown, symlink};
use std::path::{Path, PathBuf};

use crate::server::{Place, Server};
use crate::supex::{doors, talk};
use crate::users::{OWNER, ROOT, STRANGER, as_user};

#[test]
fn nothing_that_the_server_writes_can_be_read_by_others() {
    let Some(server) = Server::start("") else { return };
    for name in ["serve.json", "serve.lock", "supr.json"] {
        let path = server.home.join(name);
        assert_eq!(std::fs::metadata(&path).unwrap().mode() & 0o777, 0o600, "{name}");
        let error = as_user(STRANGER, || std::fs::read(&path)).unwrap_err();
        assert_eq!(error.kind(), std::io::ErrorKind::PermissionDenied, "{name}");
    }
}

/// All files and folders in a folder, and the folder itself.
fn all_in(folder: PathBuf) -> Vec<PathBuf> {
    let within = read_dir(&folder).into_iter().flatten().map(|entry| entry.unwrap().path());
    let mut all: Vec<PathBuf> = within.flat_map(all_in).collect();
    all.push(folder);
    all
}

#[test]
fn what_consoles_print_and_evaluate_cannot_be_read_by_others() {
    let Some(server) = Server::start("") else { return };
    for (method, door) in doors(&server) {
        let marker = server.marker(&method.replace('/', "-"));
        let answers = as_user(OWNER, || talk(door, method, None, &marker));
        assert_eq!(answers.len(), 2, "{answers:?}");
    }
    let kept = all_in(server.home.join("supex"));
    let has = |name: &str| kept.iter().any(|path| path.ends_with(name));
    assert!(has("console.log") && has("0001.rb"), "{kept:?}");
    for path in kept {
        let mode = std::fs::metadata(&path).unwrap().mode() & 0o777;
        assert_eq!(mode, if path.is_dir() { 0o700 } else { 0o600 }, "{}", path.display());
    }
}

/// Commands that use the state folder, each in its own way.
const COMMANDS: [&[&str]; 14] = [
    &["chat", "hello"],
    &["sessions"],
    &["replay", "x"],
    &["gc"],
    &["models"],
    &["auth"],
    &["login", "openai", "--key"],
    &["token"],
    &["settings"],
    &["doctor"],
    &["doctor", "--recover"],
    &["supex", "eval", "1"],
    &["stdio", "exec"],
    &["serve", "--listen", "127.0.0.1:0", "--no-supex"],
];

/// Each command is refused as the owner runs it, with an error that names `path`, `user` and the `fix`.
fn assert_refused(place: &Place, path: &Path, user: u32, fix: &str) {
    for args in COMMANDS {
        let output = place.command(OWNER, args).output().unwrap();
        let said = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
        assert_eq!(output.status.code(), Some(1), "{args:?}: {said}");
        let wanted = [path.to_str().unwrap(), &format!("user {user}"), fix];
        assert!(wanted.iter().all(|part| said.contains(part)), "{args:?} without {wanted:?}: {said}");
    }
}

/// Settings with which an agent says what another user wants.
const EVIL: &str = "default_agent = \"local\"\n";

#[test]
fn a_state_folder_of_another_user_is_not_used() {
    let Some(place) = Place::new("") else { return };
    chown(&place.home, Some(STRANGER), Some(STRANGER)).unwrap();
    set_permissions(&place.home, Permissions::from_mode(0o777)).unwrap();
    assert_refused(&place, &place.home, STRANGER, "PARLOR_HOME");
    // A link of the owner's that leads there is no better.
    let theirs = place.folder().join("theirs");
    std::fs::rename(&place.home, &theirs).unwrap();
    symlink(&theirs, &place.home).unwrap();
    assert_refused(&place, &place.home, STRANGER, "PARLOR_HOME");
}

#[test]
fn a_state_folder_that_anybody_can_write_to_is_not_used() {
    let Some(place) = Place::new("") else { return };
    set_permissions(&place.home, Permissions::from_mode(0o777)).unwrap();
    as_user(STRANGER, || {
        let settings = place.home.join("parlor.toml");
        std::fs::remove_file(&settings).unwrap();
        write(settings, EVIL).unwrap();
    });
    assert_refused(&place, &place.home, OWNER, "chmod o-w");
    // What was put there while it was open stays refused.
    set_permissions(&place.home, Permissions::from_mode(0o755)).unwrap();
    assert_refused(&place, &place.home.join("parlor.toml"), STRANGER, "chown");
}

#[test]
fn files_of_other_users_in_the_state_folder_are_not_used() {
    for name in ["parlor.toml", "supr.json", "serve.json", "parlor.db", "secrets"] {
        let Some(place) = Place::new("") else { return };
        let path = place.home.join(name);
        match name {
            "secrets" => create_dir(&path).unwrap(),
            _ => write(&path, "").unwrap(),
        }
        set_permissions(&path, Permissions::from_mode(0o755)).unwrap();
        chown(&path, Some(STRANGER), Some(STRANGER)).unwrap();
        assert_refused(&place, &path, STRANGER, "chown");
        chown(&path, Some(OWNER), Some(OWNER)).unwrap();
        set_permissions(&path, Permissions::from_mode(0o757)).unwrap();
        assert_refused(&place, &path, OWNER, "chmod o-w");
    }
}

#[test]
fn files_of_root_are_used_and_root_uses_files_of_others() {
    let Some(place) = Place::new("") else { return };
    let settings = |user| place.command(user, &["settings"]).output().unwrap();
    let output = settings(ROOT);
    assert!(output.status.success(), "{output:?}");
    chown(place.home.join("parlor.toml"), Some(ROOT), Some(ROOT)).unwrap();
    let output = settings(OWNER);
    assert!(output.status.success(), "{output:?}");
}
