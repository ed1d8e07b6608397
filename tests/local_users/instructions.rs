//! Instructions and skills that another user puts above a working folder, in a folder that everyone can write to.

use std::fs::{Permissions, create_dir_all, set_permissions, write};
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::sync::mpsc;

use crate::mock_provider::serve;
use crate::server::Installation;
use crate::users::{OTHER_USER, OWNER, as_user};

/// The request that the owner's `parlor chat` sends to a model. `folder` prepares a shared folder and returns the working
/// folder.
fn model_request(folder: impl FnOnce(&Path) -> PathBuf) -> Option<String> {
    let (sender, requests) = mpsc::channel();
    let provider = serve("text/event-stream", move |body| {
        sender.send(body.to_owned()).unwrap();
        let chunk = r#"{"choices":[{"index":0,"delta":{"content":"hello"},"finish_reason":"stop"}]}"#;
        format!("data: {chunk}\n\ndata: [DONE]\n\n")
    });
    let settings = format!(
        "[agents.main]\nkind = \"model\"\nmodel = \"mock\"\n\
         [models.mock]\nprovider = \"openai\"\nmodel = \"m\"\nbase_url = \"http://{provider}/v1\"\n\
         api_key_env = \"SOME_API_KEY\"\n\
         [policy]\nallow = [{{ tool = \"trust_project\" }}]\n"
    );
    let installation = Installation::new(&settings)?;
    // Like /tmp: everyone can create files, but not remove those of others.
    let shared = installation.folder().join("shared");
    create_dir_all(&shared).unwrap();
    set_permissions(&shared, Permissions::from_mode(0o1777)).unwrap();
    let folder = folder(&shared);
    let mut command = installation.command(OWNER, &["chat", "use $evil and $good"]);
    let output = command.env("SOME_API_KEY", "key-of-the-owner").current_dir(folder).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    Some(requests.recv().unwrap())
}

/// Writes an AGENTS.md and a skill into `folder` as `user`. Their texts contain the number of the user.
fn write_instructions(folder: &Path, user: u32, skill: &str) {
    as_user(user, || {
        let skill = folder.join(".agents/skills").join(skill);
        create_dir_all(&skill).unwrap();
        write(skill.join("SKILL.md"), format!("# Skill\n\nskill-of-{user}\n")).unwrap();
        write(folder.join("AGENTS.md"), format!("instructions-of-{user}\n")).unwrap();
    });
}

/// Creates a folder as `user`, which others can read.
fn create_folder(folder: &Path, user: u32) {
    as_user(user, || create_dir_all(folder).unwrap());
}

#[test]
fn a_project_of_another_user_around_the_working_folder_is_ignored() {
    let request = model_request(|shared| {
        let folder = shared.join("work/sub");
        create_folder(&folder, OWNER);
        create_folder(&shared.join(".git"), OTHER_USER);
        write_instructions(shared, OTHER_USER, "evil");
        write_instructions(&folder, OWNER, "good");
        folder
    });
    let Some(request) = request else { return };
    assert!(!request.contains(&format!("-of-{OTHER_USER}")), "{request}");
    assert!(request.contains(&format!("instructions-of-{OWNER}")), "{request}");
    assert!(request.contains(&format!("skill-of-{OWNER}")), "{request}");
}

#[test]
fn files_of_another_user_in_the_owners_project_above_the_working_folder_are_ignored() {
    let request = model_request(|shared| {
        let folder = shared.join("work/sub");
        create_folder(&folder, OWNER);
        create_folder(&shared.join(".git"), OWNER);
        write_instructions(shared, OTHER_USER, "evil");
        write_instructions(&shared.join("work"), OWNER, "good");
        folder
    });
    let Some(request) = request else { return };
    assert!(!request.contains(&format!("-of-{OTHER_USER}")), "{request}");
    assert!(request.contains(&format!("instructions-of-{OWNER}")), "{request}");
    assert!(request.contains(&format!("skill-of-{OWNER}")), "{request}");
}

#[test]
fn a_project_with_the_same_owner_as_the_working_folder_is_used() {
    let request = model_request(|shared| {
        let project = shared.join("project");
        create_folder(&project.join("sub"), OTHER_USER);
        create_folder(&project.join(".git"), OTHER_USER);
        write_instructions(&project, OTHER_USER, "good");
        project.join("sub")
    });
    let Some(request) = request else { return };
    assert!(request.contains(&format!("instructions-of-{OTHER_USER}")), "{request}");
    assert!(request.contains(&format!("skill-of-{OTHER_USER}")), "{request}");
}

#[test]
fn a_folder_of_another_user_ends_the_search_upwards() {
    let request = model_request(|shared| {
        let theirs = shared.join("theirs");
        create_folder(&theirs, OTHER_USER);
        let folder = theirs.join("sub");
        create_dir_all(&folder).unwrap();
        chown(&folder, Some(OWNER), Some(OWNER)).unwrap();
        create_folder(&shared.join(".git"), OWNER);
        write_instructions(shared, OWNER, "good");
        folder
    });
    let Some(request) = request else { return };
    assert!(!request.contains(&format!("-of-{OWNER}")), "{request}");
}
