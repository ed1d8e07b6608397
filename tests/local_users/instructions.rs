//! Instructions that another user puts above a working folder, in a folder that everybody can write to.

use std::fs::{Permissions, create_dir_all, set_permissions, write};
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::sync::mpsc;

use crate::provider::serve;
use crate::server::Place;
use crate::users::{OWNER, STRANGER, as_user};

/// What a model of the owner is told in `folder`.
fn told(folder: impl FnOnce(&Path) -> PathBuf) -> Option<String> {
    let (heard, hears) = mpsc::channel();
    let provider = serve("text/event-stream", move |body| {
        heard.send(body.to_owned()).unwrap();
        let said = r#"{"choices":[{"index":0,"delta":{"content":"hello"},"finish_reason":"stop"}]}"#;
        format!("data: {said}\n\ndata: [DONE]\n\n")
    });
    let settings = format!(
        "[agents.main]\nkind = \"model\"\nmodel = \"mock\"\n\
         [models.mock]\nprovider = \"openai\"\nmodel = \"m\"\nbase_url = \"http://{provider}/v1\"\n\
         api_key_env = \"SOME_API_KEY\"\n"
    );
    let place = Place::new(&settings)?;
    // As /tmp is: everybody makes files, and nobody removes those of others.
    let shared = place.folder().join("shared");
    create_dir_all(&shared).unwrap();
    set_permissions(&shared, Permissions::from_mode(0o1777)).unwrap();
    let folder = folder(&shared);
    let mut command = place.command(OWNER, &["chat", "use $evil and $good"]);
    let output = command.env("SOME_API_KEY", "key-of-the-owner").current_dir(folder).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    Some(hears.recv().unwrap())
}

/// Writes instructions and a skill of `user` into `folder`, which say whose they are.
fn instruct(folder: &Path, user: u32, skill: &str) {
    as_user(user, || {
        let skill = folder.join(".agents/skills").join(skill);
        create_dir_all(&skill).unwrap();
        write(skill.join("SKILL.md"), format!("# Skill\n\nskill-of-{user}\n")).unwrap();
        write(folder.join("AGENTS.md"), format!("instructions-of-{user}\n")).unwrap();
    });
}

/// Makes a folder of `user`, open to others to read.
fn make(folder: &Path, user: u32) {
    as_user(user, || create_dir_all(folder).unwrap());
}

#[test]
fn a_project_of_another_user_around_the_working_folder_tells_models_nothing() {
    let told = told(|shared| {
        let folder = shared.join("work/sub");
        make(&folder, OWNER);
        make(&shared.join(".git"), STRANGER);
        instruct(shared, STRANGER, "evil");
        instruct(&folder, OWNER, "good");
        folder
    });
    let Some(told) = told else { return };
    assert!(!told.contains(&format!("-of-{STRANGER}")), "{told}");
    assert!(told.contains(&format!("instructions-of-{OWNER}")), "{told}");
    assert!(told.contains(&format!("skill-of-{OWNER}")), "{told}");
}

#[test]
fn files_of_another_user_in_the_owners_project_above_the_working_folder_tell_models_nothing() {
    let told = told(|shared| {
        let folder = shared.join("work/sub");
        make(&folder, OWNER);
        make(&shared.join(".git"), OWNER);
        instruct(shared, STRANGER, "evil");
        instruct(&shared.join("work"), OWNER, "good");
        folder
    });
    let Some(told) = told else { return };
    assert!(!told.contains(&format!("-of-{STRANGER}")), "{told}");
    assert!(told.contains(&format!("instructions-of-{OWNER}")), "{told}");
    assert!(told.contains(&format!("skill-of-{OWNER}")), "{told}");
}

#[test]
fn a_project_of_whoever_owns_the_working_folder_counts_as_a_whole() {
    let told = told(|shared| {
        let project = shared.join("project");
        make(&project.join("sub"), STRANGER);
        make(&project.join(".git"), STRANGER);
        instruct(&project, STRANGER, "good");
        project.join("sub")
    });
    let Some(told) = told else { return };
    assert!(told.contains(&format!("instructions-of-{STRANGER}")), "{told}");
    assert!(told.contains(&format!("skill-of-{STRANGER}")), "{told}");
}

#[test]
fn a_folder_of_another_user_ends_the_search_whatever_is_above_it() {
    let told = told(|shared| {
        let theirs = shared.join("theirs");
        make(&theirs, STRANGER);
        let folder = theirs.join("sub");
        create_dir_all(&folder).unwrap();
        chown(&folder, Some(OWNER), Some(OWNER)).unwrap();
        make(&shared.join(".git"), OWNER);
        instruct(shared, OWNER, "good");
        folder
    });
    let Some(told) = told else { return };
    assert!(!told.contains(&format!("-of-{OWNER}")), "{told}");
}
