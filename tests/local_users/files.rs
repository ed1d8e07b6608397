//! What another user can read in a state folder that others can enter, and what happens with files of other users there.

use std::fs::{Permissions, create_dir, read_dir, set_permissions, write};
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown, symlink};
use std::path::{Path, PathBuf};

use crate::server::{Installation, Server};
use crate::supex::{doors, try_evaluate};
use crate::users::{OTHER_USER, OWNER, ROOT, as_user};

#[test]
fn nothing_that_the_server_writes_can_be_read_by_others() {
    let Some(server) = Server::start("") else { return };
    for name in ["serve.json", "serve.lock", "supr.json"] {
        let path = server.home.join(name);
        assert_eq!(std::fs::metadata(&path).unwrap().mode() & 0o777, 0o600, "{name}");
        let error = as_user(OTHER_USER, || std::fs::read(&path)).unwrap_err();
        assert_eq!(error.kind(), std::io::ErrorKind::PermissionDenied, "{name}");
    }
}

/// All files and folders below a folder, and the folder itself.
fn all_paths(folder: PathBuf) -> Vec<PathBuf> {
    let entries = read_dir(&folder).into_iter().flatten().map(|entry| entry.unwrap().path());
    let mut all: Vec<PathBuf> = entries.flat_map(all_paths).collect();
    all.push(folder);
    all
}

#[test]
fn output_and_code_of_ruby_evaluations_cannot_be_read_by_others() {
    let Some(server) = Server::start("") else { return };
    for (method, door) in doors(&server) {
        let marker = server.marker(&method.replace('/', "-"));
        let answers = as_user(OWNER, || try_evaluate(door, method, None, &marker));
        assert_eq!(answers.len(), 2, "{answers:?}");
    }
    let paths = all_paths(server.home.join("supex"));
    let has = |name: &str| paths.iter().any(|path| path.ends_with(name));
    assert!(has("console.log") && has("0001.rb"), "{paths:?}");
    for path in paths {
        let mode = std::fs::metadata(&path).unwrap().mode() & 0o777;
        assert_eq!(mode, if path.is_dir() { 0o700 } else { 0o600 }, "{}", path.display());
    }
}

/// All commands that use the state folder.
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

/// Checks that each command fails for the owner, with an error that names `path`, `user` and the `fix`.
fn assert_refused(installation: &Installation, path: &Path, user: u32, fix: &str) {
    for args in COMMANDS {
        let output = installation.command(OWNER, args).output().unwrap();
        let output_text = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
        assert_eq!(output.status.code(), Some(1), "{args:?}: {output_text}");
        let expected = [path.to_str().unwrap(), &format!("user {user}"), fix];
        assert!(
            expected.iter().all(|part| output_text.contains(part)),
            "{args:?} without {expected:?}: {output_text}"
        );
    }
}

/// Settings that another user planted.
const EVIL: &str = "default_agent = \"local\"\n";

#[test]
fn a_state_folder_of_another_user_is_not_used() {
    let Some(installation) = Installation::new("") else { return };
    chown(&installation.home, Some(OTHER_USER), Some(OTHER_USER)).unwrap();
    set_permissions(&installation.home, Permissions::from_mode(0o777)).unwrap();
    assert_refused(&installation, &installation.home, OTHER_USER, "PARLOR_HOME");
    // A link of the owner to that folder is refused too.
    let theirs = installation.folder().join("theirs");
    std::fs::rename(&installation.home, &theirs).unwrap();
    symlink(&theirs, &installation.home).unwrap();
    assert_refused(&installation, &installation.home, OTHER_USER, "PARLOR_HOME");
}

#[test]
fn a_state_folder_that_everyone_can_write_to_is_not_used() {
    let Some(installation) = Installation::new("") else { return };
    set_permissions(&installation.home, Permissions::from_mode(0o777)).unwrap();
    as_user(OTHER_USER, || {
        let settings = installation.home.join("parlor.toml");
        std::fs::remove_file(&settings).unwrap();
        write(settings, EVIL).unwrap();
    });
    assert_refused(&installation, &installation.home, OWNER, "chmod o-w");
    // Files that were planted while the folder was writable are still refused.
    set_permissions(&installation.home, Permissions::from_mode(0o755)).unwrap();
    assert_refused(&installation, &installation.home.join("parlor.toml"), OTHER_USER, "chown");
}

#[test]
fn files_of_other_users_in_the_state_folder_are_not_used() {
    for name in ["parlor.toml", "supr.json", "serve.json", "parlor.db", "secrets"] {
        let Some(installation) = Installation::new("") else { return };
        let path = installation.home.join(name);
        match name {
            "secrets" => create_dir(&path).unwrap(),
            _ => write(&path, "").unwrap(),
        }
        set_permissions(&path, Permissions::from_mode(0o755)).unwrap();
        chown(&path, Some(OTHER_USER), Some(OTHER_USER)).unwrap();
        assert_refused(&installation, &path, OTHER_USER, "chown");
        chown(&path, Some(OWNER), Some(OWNER)).unwrap();
        set_permissions(&path, Permissions::from_mode(0o757)).unwrap();
        assert_refused(&installation, &path, OWNER, "chmod o-w");
    }
}

#[test]
fn files_of_root_are_used_and_root_uses_files_of_others() {
    let Some(installation) = Installation::new("") else { return };
    let settings = |user| installation.command(user, &["settings"]).output().unwrap();
    let output = settings(ROOT);
    assert!(output.status.success(), "{output:?}");
    chown(installation.home.join("parlor.toml"), Some(ROOT), Some(ROOT)).unwrap();
    let output = settings(OWNER);
    assert!(output.status.success(), "{output:?}");
}
