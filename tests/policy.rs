//! Runs under the policy, on the real program: a script agent calls real tools, and nobody can be asked.
#![expect(clippy::unwrap_used, reason = "a test that panics has failed, and says where")]
#![allow(dead_code, reason = "the helpers of other tests are in the same module")]

mod home;

use std::fs;
use std::os::unix::fs::symlink;

use home::Home;
use parlor_testkit::folder_outside_tmp;

/// A state folder with a script agent that carries out `steps` under the policy.
fn scripted(policy: &str, steps: &[String]) -> Home {
    let home = Home::new();
    home.configure("demo.toml", &format!("[otherwise]\nsteps = [{}]\n", steps.join(", ")));
    let agent = "default_agent = \"demo\"\n[agents.demo]\nkind = \"script\"\nfile = \"demo.toml\"\n";
    home.configure("parlor.toml", &format!("{agent}[policy]\nenforce_all = true\n{policy}\n"));
    home
}

fn write(path: &str) -> String {
    format!("{{ tool = \"write_file\", args = {{ path = \"{path}\", content = \"new\" }} }}")
}

/// Lets the agent work, and returns the messages of the calls that failed.
fn failures(home: &Home) -> Vec<String> {
    home.command(&["chat", "go"]).env("HOME", home.folder()).output().unwrap();
    let events = home.json(&["replay", &home.last_session(), "--json"]);
    let failed = events.iter().filter(|event| event["type"] == "tool.failed");
    failed.map(|event| event["failure"]["message"].as_str().unwrap().to_owned()).collect()
}

#[test]
fn file_tools_do_not_change_what_the_sandbox_protects() {
    let steps = [write("ordinary"), write(".git/hooks/post-checkout"), write("sub/.git/config")];
    let home = scripted("mode = \"workspace\"", &steps);
    let failed = failures(&home);
    assert_eq!(failed.len(), 2, "{failed:?}");
    assert!(failed.iter().all(|text| text.contains("cannot change under the policy")), "{failed:?}");
    assert!(home.folder().join("ordinary").exists());
    assert!(!home.folder().join(".git").exists() && !home.folder().join("sub").exists());
    // No rule widens the mode `read-only`.
    let home = scripted("mode = \"read-only\"\nallow = [{ tool = \"write_file\" }]", &steps);
    assert_eq!(failures(&home).len(), 3);
    assert!(!home.folder().join("ordinary").exists());
    let home = scripted("mode = \"full\"", &steps);
    assert_eq!(failures(&home), Vec::<String>::new());
    assert_eq!(fs::read_to_string(home.folder().join("sub/.git/config")).unwrap(), "new");
}

/// What code defines stays for the run. The next run may have other rules, so it has another interpreter.
#[test]
fn ruby_runs_in_the_sandbox_of_its_run() {
    let ruby = |code: &str| format!("{{ tool = \"ruby\", args = {{ code = '{code}' }} }}");
    // Not in /tmp, which is private in a sandbox.
    let outside = folder_outside_tmp(env!("CARGO_TARGET_TMPDIR"));
    let made = outside.path().join("made");
    let steps = [
        ruby("$kept = $kept.to_i + 1"),
        ruby("$kept += 1"),
        ruby("File.write(\"in-project\", \"x\")"),
        ruby(&format!("File.write(\"{}\", \"x\")", made.display())),
    ];
    let home = scripted("mode = \"workspace\"", &steps);
    let failed = failures(&home);
    assert_eq!(failed.len(), 1, "{failed:?}");
    assert!(failed[0].contains("made") && failed[0].contains("Read-only file system"), "{failed:?}");
    let session = home.last_session();
    home.command(&["chat", "--session", &session, "go"]).env("HOME", home.folder()).output().unwrap();
    let events = home.json(&["replay", &session, "--json"]);
    let outputs: Vec<&str> = events
        .iter()
        .filter(|event| event["type"] == "tool.completed")
        .map(|event| event["output"].as_str().unwrap())
        .collect();
    assert_eq!(outputs, ["=> 1", "=> 2", "=> 1", "=> 1", "=> 2", "=> 1"]);
    assert!(!made.exists());
    assert!(home.folder().join("in-project").exists());
    let home = scripted("mode = \"read-only\"", &steps);
    assert_eq!(failures(&home).len(), 2);
    assert!(!home.folder().join("in-project").exists());
}

/// The sandbox hides them from commands too; here the home of the user is the project.
#[test]
fn file_tools_reach_no_secrets_in_a_home_that_is_the_project() {
    let tool = |name: &str, args: &str| format!("{{ tool = \"{name}\", args = {{ {args} }} }}");
    let refused = [
        tool("read_file", "path = \".ssh/id\""),
        tool("read_file", "path = \"~/.netrc\""),
        tool("read_file", "path = \"link\""),
        tool("read_file", "path = \"sub/../.ssh/id\""),
        tool("list_dir", "path = \".ssh\""),
        tool("grep_files", "pattern = \"hidden\", path = \".ssh\""),
        tool("edit_file", "path = \".netrc\", old_text = \"hidden\", new_text = \"new\""),
        write(".ssh/authorized_keys"),
        // It need not exist: whoever creates it chooses what other programs obey.
        write(".aws/config"),
    ];
    let steps: Vec<String> = refused
        .iter()
        .cloned()
        .chain([tool("grep_files", "pattern = \"hidden\""), tool("list_dir", "path = \".\", depth = 3")])
        .collect();
    for mode in ["workspace", "read-only"] {
        let home = scripted(&format!("mode = \"{mode}\""), &steps);
        for folder in [".ssh", "sub"] {
            fs::create_dir(home.folder().join(folder)).unwrap();
        }
        for file in [".ssh/id", ".netrc", "ordinary"] {
            fs::write(home.folder().join(file), "hidden").unwrap();
        }
        fs::hard_link(home.folder().join(".netrc"), home.folder().join("sub/other-name")).unwrap();
        symlink(".ssh/id", home.folder().join("link")).unwrap();
        let failed = failures(&home);
        assert_eq!(failed.len(), refused.len(), "{mode}: {failed:#?}");
        let events = home.json(&["replay", &home.last_session(), "--json"]);
        let shown: Vec<&str> = events
            .iter()
            .filter(|event| event["type"] == "tool.completed")
            .map(|event| event["output"].as_str().unwrap())
            .collect();
        assert!(shown[0].contains("ordinary:1:hidden") && !shown[0].contains("other-name:1"), "{}", shown[0]);
        assert!(shown[1].contains("ordinary") && !shown[1].contains("\n.ssh/id"), "{}", shown[1]);
        assert!(!home.folder().join(".ssh/authorized_keys").exists() && !home.folder().join(".aws").exists());
    }
    // Without the policy's mode they are files as any other.
    let home = scripted("mode = \"full\"", &[write(".ssh/authorized_keys")]);
    assert_eq!(failures(&home), Vec::<String>::new());
}

#[test]
fn a_list_of_folders_has_no_names_of_a_denied_folder() {
    let list = "{ tool = \"list_dir\", args = { path = \".\", depth = 3 } }".to_owned();
    let home = scripted("deny = [{ path = \"sub/secrets\" }]", &[list]);
    for folder in ["sub/secrets/inner", "sub/open"] {
        fs::create_dir_all(home.folder().join(folder)).unwrap();
        fs::write(home.folder().join(folder).join(format!("in-{}", folder.len())), "").unwrap();
    }
    fs::write(home.folder().join("sub/secrets/key-of-the-user"), "").unwrap();
    assert_eq!(failures(&home), Vec::<String>::new());
    let events = home.json(&["replay", &home.last_session(), "--json"]);
    let completed = events.iter().find(|event| event["type"] == "tool.completed").unwrap();
    let listed = completed["output"].as_str().unwrap();
    assert!(listed.contains("sub/open/in-8") && listed.contains("sub/secrets/"), "{listed}");
    assert!(!listed.contains("key-of-the-user") && !listed.contains("inner"), "{listed}");
    assert!(listed.contains("`sub/secrets` is not listed"), "{listed}");
}

#[test]
fn paths_are_denied_however_they_are_written() {
    let read = |path: &str| format!("{{ tool = \"read_file\", args = {{ path = \"{path}\" }} }}");
    let steps = [
        read("~//secrets/key"),
        read("~/secrets/key"),
        read("link/key"),
        read("real/key"),
        write("dangling"),
        "{ tool = \"list_dir\", args = { path = \"~\" } }".to_owned(),
    ];
    // The working folder is the home here, and `link`, which a rule denies, leads to `real`.
    let rules =
        "deny = [{ path = \"~/secrets\" }, { path = \"link\" }, { tool = \"list_dir\", path = \"~\" }]";
    let home = scripted(rules, &steps);
    for folder in ["secrets", "real"] {
        fs::create_dir(home.folder().join(folder)).unwrap();
        fs::write(home.folder().join(folder).join("key"), "a secret").unwrap();
    }
    symlink("real", home.folder().join("link")).unwrap();
    symlink("secrets/new", home.folder().join("dangling")).unwrap();
    let failed = failures(&home);
    assert_eq!(failed.len(), steps.len(), "{failed:?}");
    assert!(failed.iter().all(|text| text.starts_with("the policy refuses this call")), "{failed:?}");
    assert!(!home.folder().join("secrets/new").exists());
}
