//! Habits as tests: who may depend on whom, and that the documents say what the code does.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

/// Each crate with those of ours that it may depend on, tests aside.
const ARROWS: [(&str, &[&str]); 18] = [
    ("vocab", &[]),
    ("files", &["vocab"]),
    ("auth", &["vocab"]),
    ("doors", &["vocab"]),
    ("process", &["vocab"]),
    ("model", &["vocab", "files"]),
    ("log", &["vocab"]),
    ("ruby", &["vocab", "files", "process"]),
    ("tools", &["vocab", "files", "process", "ruby"]),
    ("engine", &["vocab", "log", "model", "tools"]),
    ("frontend", &["vocab", "engine", "log", "model"]),
    ("transport", &["vocab", "doors", "process"]),
    ("web", &["vocab", "doors", "engine", "log", "process", "tools", "transport"]),
    ("client", &["vocab", "doors"]),
    ("exec-server", &["client", "doors", "process", "transport"]),
    (
        "app",
        &[
            "vocab",
            "auth",
            "client",
            "doors",
            "engine",
            "frontend",
            "log",
            "model",
            "process",
            "ruby",
            "tools",
            "transport",
            "web",
        ],
    ),
    ("parlor", &["app"]),
    ("testkit", &[]),
];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn read(path: &str) -> String {
    fs::read_to_string(root().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// The names of a manifest's dependencies, without those of tests.
fn dependencies(krate: &str) -> BTreeSet<String> {
    let manifest = read(&format!("crates/{krate}/Cargo.toml"));
    let section = manifest.split("\n[dependencies]\n").nth(1).expect("a list of dependencies");
    let section = section.split("\n[").next().expect("text before the next section");
    section
        .lines()
        .filter_map(|line| line.split(['.', ' ', '=']).next())
        .filter(|name| !name.is_empty())
        .map(str::to_owned)
        .collect()
}

#[test]
fn arrows_point_as_the_map_says() {
    let folders: BTreeSet<String> = fs::read_dir(root().join("crates"))
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    let listed: BTreeSet<String> = ARROWS.iter().map(|(krate, _)| (*krate).to_owned()).collect();
    assert_eq!(folders, listed, "a crate is missing in this test's list, or gone");
    for (krate, allowed) in ARROWS {
        for name in dependencies(krate) {
            if let Some(ours) = name.strip_prefix("parlor-") {
                assert!(allowed.contains(&ours), "{krate} may not depend on {name}");
            }
        }
    }
}

/// Names of public types that several crates have by design: none.
const SHARED_TYPE_NAMES: [&str; 0] = [];

#[test]
fn no_two_crates_have_a_public_type_of_the_same_name() {
    let mut homes: BTreeMap<String, BTreeSet<&str>> = BTreeMap::new();
    for (krate, _) in ARROWS {
        for path in files(&root().join("crates").join(krate).join("src"), "rs") {
            for name in public_types(&fs::read_to_string(path).unwrap()) {
                homes.entry(name).or_default().insert(krate);
            }
        }
    }
    assert!(homes.len() > 300, "the types are not found any more: {}", homes.len());
    homes.retain(|name, crates| crates.len() > 1 && !SHARED_TYPE_NAMES.contains(&name.as_str()));
    assert!(homes.is_empty(), "give one of each pair another name: {homes:?}");
}

/// The names of the public structs, enums, traits and aliases in a source file, without those of its tests.
fn public_types(source: &str) -> Vec<String> {
    let source = source.split("#[cfg(test)]\nmod tests").next().expect("text before the tests");
    let kinds = ["pub struct ", "pub enum ", "pub trait ", "pub type "];
    let declared =
        |line: &str| kinds.iter().find_map(|kind| line.trim_start().strip_prefix(kind).map(str::to_owned));
    let name = |rest: String| rest.split(|letter: char| !letter.is_alphanumeric()).next().map(str::to_owned);
    source.lines().filter_map(declared).filter_map(name).collect()
}

#[test]
fn doors_know_no_runtime_and_inner_types_cannot_be_serialized() {
    assert!(!dependencies("doors").iter().any(|name| name.starts_with("tokio") || name == "rustix"));
    for krate in ["vocab", "engine", "process"] {
        assert!(!dependencies(krate).iter().any(|name| name.starts_with("serde")), "{krate}");
    }
}

#[test]
fn the_exec_page_names_every_method_code_and_limit() {
    let page = read("docs/protocols/exec.md");
    let mut names: Vec<String> = Vec::new();
    for line in read("crates/doors/src/exec/wire.rs").lines().filter(|line| line.contains("pub const")) {
        if let Some(method) = line.split('"').nth(1) {
            names.push(method.to_owned());
        }
    }
    for line in read("crates/doors/src/exec/code.rs").lines().filter(|line| line.starts_with("const ")) {
        names.push(line.split(['=', ';']).nth(1).unwrap().trim().to_owned());
    }
    for source in
        ["process/src/lib.rs", "process/src/backend.rs", "transport/src/connection.rs", "vocab/src/id.rs"]
    {
        for line in read(&format!("crates/{source}")).lines().filter(|line| line.starts_with("pub const ")) {
            names.push(line.split([' ', ':']).nth(2).unwrap().to_owned());
        }
    }
    // Sizes of pieces are no limits: nothing happens beyond them.
    names.retain(|name| !["OUTPUT_PIECE_BYTES", "BULK_PIECE_BYTES"].contains(&name.as_str()));
    assert!(names.len() > 20, "the constants are not found any more: {names:?}");
    for name in names {
        assert!(page.contains(&name), "docs/protocols/exec.md does not mention {name}");
    }
}

/// The names of the public constants in a source file.
fn constants(source: &str) -> Vec<String> {
    let source = read(&format!("crates/{source}"));
    let lines = source.lines().filter_map(|line| line.strip_prefix("pub const "));
    lines.filter_map(|line| line.split(':').next()).map(str::to_owned).collect()
}

#[test]
fn the_synaps_page_names_every_frame_error_and_limit() {
    let page = read("docs/protocols/synaps.md");
    // The round trips there have one frame of each kind, or the door's own tests fail.
    let frames = read("crates/doors/src/synaps/wire.rs");
    let mut names: BTreeSet<String> = frames
        .split(r#""type":""#)
        .skip(1)
        .map(|text| format!("`{}`", text.split('"').next().unwrap()))
        .collect();
    assert!(names.len() > 24, "the frames are not found any more: {names:?}");
    let code = read("crates/doors/src/synaps/code.rs");
    let texts: Vec<&str> = code
        .lines()
        .filter(|line| line.contains("const ") || line.contains("=> Some("))
        .filter_map(|line| line.split('"').nth(1))
        .collect();
    assert!(texts.len() > 8, "the texts are not found any more: {texts:?}");
    names.extend(texts.into_iter().map(|text| format!("`{text}`")));
    let mut limits = constants("doors/src/synaps/wire.rs");
    for source in [
        "doors/src/synaps/mod.rs",
        "engine/src/sessions/client/mod.rs",
        "transport/src/connection.rs",
        "transport/src/outgoing.rs",
    ] {
        limits.extend(constants(source));
    }
    assert!(limits.len() > 20, "the constants are not found any more: {limits:?}");
    names.extend(limits.into_iter().map(|name| format!("`{name}`")));
    let environment = read("crates/app/src/environment.rs");
    let secrets = environment.split("const SECRET_WORDS").nth(1).and_then(|text| text.split(';').nth(1));
    let secrets = secrets.expect("the list of secret names");
    names.extend(secrets.split('"').skip(1).step_by(2).map(|name| format!("`{name}`")));
    for name in names {
        assert!(page.contains(&name), "docs/protocols/synaps.md does not mention {name}");
    }
}

#[test]
fn every_transcript_proves_a_statement_and_every_proof_exists() {
    for door in ["exec", "synaps", "supr", "loaf"] {
        let page = read(&format!("docs/protocols/{door}.md"));
        let table = page.split("## From statement to proof").nth(1).expect("the table");
        let proofs: BTreeSet<&str> = table.split('`').skip(1).step_by(2).collect();
        for entry in fs::read_dir(root().join("tests/transcripts").join(door)).unwrap() {
            let path = entry.unwrap().path();
            // What transcripts need is beside them, in folders.
            if path.is_dir() {
                continue;
            }
            let name = path.file_name().unwrap().to_str().unwrap();
            let case = name.strip_suffix(".txt").expect("transcripts are .txt");
            assert!(proofs.contains(case), "{name} is not in the table of docs/protocols/{door}.md");
        }
        for proof in proofs {
            let is_case = root().join(format!("tests/transcripts/{door}/{proof}.txt")).exists();
            let is_path = proof.contains('/') && root().join(proof).exists();
            let looks_like_one =
                proof.ends_with(".rs") || (proof.contains('_') && !proof.contains("run_main"));
            assert!(is_case || is_path || !looks_like_one, "{door}: {proof} does not exist");
        }
    }
}

#[test]
fn the_supr_page_names_every_frame_code_and_limit() {
    let page = read("docs/protocols/supr.md");
    let folder = "crates/doors/src/supr";
    // Types have a dot; so has nothing else that is quoted there.
    let types = |source: &str| -> BTreeSet<String> {
        let is_type = |text: &&str| {
            text.contains('.') && text.bytes().all(|letter| letter.is_ascii_lowercase() || letter == b'.')
        };
        let source = read(&format!("{folder}/{source}"));
        let source = source.split("#[cfg(test)]").next().expect("something before the tests");
        source.split('"').filter(is_type).map(|text| format!("`{text}`")).collect()
    };
    let mut names: BTreeSet<String> =
        ["activity.rs", "machine.rs", "decode.rs", "replay.rs"].into_iter().flat_map(types).collect();
    assert!(names.len() > 25, "the types are not found any more: {names:?}");
    let code = read(&format!("{folder}/code.rs"));
    let is_code = |text: &&str| {
        text.contains('_') && text.bytes().all(|letter| letter.is_ascii_alphabetic() || letter == b'_')
    };
    let codes: BTreeSet<String> = code.split('"').filter(is_code).map(|text| format!("`{text}`")).collect();
    assert!(codes.len() > 12, "the codes are not found any more: {codes:?}");
    names.extend(codes);
    let limits = |source: &str| -> Vec<String> {
        let source = read(source);
        let constants = source.lines().filter_map(|line| line.split_once("const "));
        let numbers = constants.filter_map(|(_, constant)| constant.split_once(": ")).filter(|(_, kind)| {
            ["usize", "u64", "u16", "Duration"].iter().any(|number| kind.starts_with(number))
        });
        numbers.map(|(name, _)| format!("`{name}`")).collect()
    };
    let sources =
        ["code.rs", "decode.rs", "media.rs", "mod.rs", "preview.rs"].map(|file| format!("{folder}/{file}"));
    let limits: Vec<String> = sources
        .iter()
        .map(String::as_str)
        .chain(["crates/transport/src/websocket.rs"])
        .flat_map(limits)
        .collect();
    assert!(limits.len() > 18, "the constants are not found any more: {limits:?}");
    names.extend(limits);
    for name in names {
        assert!(page.contains(&name), "docs/protocols/supr.md does not mention {name}");
    }
}

#[test]
fn the_loaf_page_names_every_method_event_reason_and_limit() {
    let page = read("docs/protocols/loaf.md");
    let folder = "crates/doors/src/loaf";
    let mut names: BTreeSet<String> = BTreeSet::new();
    // Methods and events are quoted and have a dot; errors have words that are joined.
    for entry in fs::read_dir(root().join(folder)).unwrap() {
        let source = fs::read_to_string(entry.unwrap().path()).unwrap();
        let source = source.split("\nmod tests {").next().expect("something before the tests");
        let is_name = |text: &&str| {
            let is_plain =
                text.bytes().all(|letter| letter.is_ascii_lowercase() || matches!(letter, b'.' | b'_'));
            is_plain && text.contains('.') && !text.starts_with('.') && !text.ends_with('.')
        };
        names.extend(source.split('"').filter(is_name).map(|text| format!("`{text}`")));
    }
    assert!(names.len() > 50, "the methods and events are not found any more: {names:?}");
    let code = read(&format!("{folder}/code.rs"));
    let code = code.split("\nmod tests {").next().expect("something before the tests");
    let reasons = code.split("failed(\"").chain(code.split("_ERROR, \"")).skip(1);
    let reasons = reasons.filter_map(|text| text.split('"').next()).filter(|text| !text.contains(' '));
    let reasons: BTreeSet<String> = reasons.map(|reason| format!("`{reason}`")).collect();
    assert!(reasons.len() > 20, "the reasons are not found any more: {reasons:?}");
    names.extend(reasons);
    let limits = constants("doors/src/loaf/mod.rs").into_iter().chain(constants("frontend/src/lib.rs"));
    let is_limit = |name: &String| !["PROTOCOL_VERSION", "METHODS", "EXTRA_METHODS"].contains(&name.as_str());
    names.extend(limits.filter(is_limit).map(|name| format!("`{name}`")));
    for name in names {
        assert!(page.contains(&name), "docs/protocols/loaf.md does not mention {name}");
    }
}

#[test]
fn every_edge_is_accounted_for() {
    for (door, edges) in [("synaps", 51), ("supr", 48), ("loaf", 60)] {
        let page = read(&format!("docs/protocols/{door}.md"));
        let table = page.split("| edge | proof |").nth(1).expect("the table of edges");
        let rows = table.lines().filter_map(|line| line.strip_prefix("| "));
        let numbers: Vec<u32> = rows
            .flat_map(|row| {
                row.split([' ', ','])
                    .map_while(|word| if word.is_empty() { Some(0) } else { word.parse().ok() })
            })
            .filter(|number| *number > 0)
            .collect();
        assert_eq!(numbers, (1..=edges).collect::<Vec<_>>(), "{door}");
    }
}

#[test]
fn every_row_of_the_security_page_names_a_test_that_exists() {
    let page = read("docs/security.md");
    let is_path = |text: &&str| text.starts_with("tests/") || text.starts_with("crates/");
    let paths: Vec<&str> = page.split('`').filter(is_path).collect();
    assert!(paths.len() > 30, "the tests are not found any more: {paths:?}");
    for path in paths {
        assert!(root().join(path).exists(), "docs/security.md names {path}, which does not exist");
    }
    // `name` in `path`
    for (before, after) in page.match_indices("` in `").map(|(at, _)| page.split_at(at)) {
        let name = before.rsplit('`').next().expect("a name");
        let path = after.split('`').nth(2).expect("a path");
        // The page also speaks of what is in a message.
        if path.ends_with(".rs") {
            assert!(read(path).contains(&format!("fn {name}(")), "{path} has no test called {name}");
        }
    }
}

#[test]
fn source_files_stay_small_enough_to_hold_one_idea() {
    for path in ["crates", "tests", "bench/src"].iter().flat_map(|folder| files(&root().join(folder), "rs")) {
        let lines = fs::read_to_string(&path).unwrap().lines().count();
        assert!(lines <= 600, "{} has {lines} lines: is there a second idea inside?", path.display());
    }
}

#[test]
fn the_documents_name_files_that_exist() {
    let mut pages = files(&root().join("docs"), "md");
    pages.extend(["README.md", "ARCHITECTURE.md", "CONTRIBUTING.md"].map(|page| root().join(page)));
    let mut named = 0;
    for page in pages {
        let text = fs::read_to_string(&page).unwrap();
        let is_path = |text: &&str| {
            ["crates/", "tests/", "docs/", "fuzz/", "web/", "scripts/"]
                .iter()
                .any(|folder| text.starts_with(folder))
                && !text.contains(|letter: char| letter.is_whitespace() || "<*{…".contains(letter))
                && !["web/dist", "web/node_modules"].contains(text)
        };
        for path in text.split('`').filter(is_path) {
            assert!(root().join(path).exists(), "{} names {path}, which does not exist", page.display());
            named += 1;
        }
    }
    assert!(named > 100, "the paths are not found any more: {named}");
}

/// All files below a folder with this extension, without those of npm packages.
fn files(folder: &Path, extension: &str) -> Vec<PathBuf> {
    let (mut folders, mut found) = (vec![folder.to_owned()], Vec::new());
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).expect("a folder of the repository") {
            let path = entry.expect("an entry of that folder").path();
            if path.is_dir() && !path.ends_with("node_modules") {
                folders.push(path);
            } else if path.extension().is_some_and(|found| found == extension) {
                found.push(path);
            }
        }
    }
    found
}
