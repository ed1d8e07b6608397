//! Conventions as tests: which crate may depend on which, and that the documentation matches the code.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

/// Each crate with the crates of this workspace that it may depend on, without dev-dependencies.
const ALLOWED_DEPENDENCIES: [(&str, &[&str]); 19] = [
    ("vocab", &[]),
    ("files", &["vocab"]),
    ("auth", &["vocab"]),
    ("doors", &["vocab"]),
    ("process", &["vocab"]),
    ("model", &["vocab", "files"]),
    ("log", &["vocab"]),
    ("ruby", &["vocab", "files", "process"]),
    ("undo", &["vocab", "files"]),
    ("tools", &["vocab", "files", "process", "ruby", "undo"]),
    ("engine", &["vocab", "files", "log", "model", "tools", "undo"]),
    ("frontend", &["vocab", "engine", "log", "model", "tools"]),
    ("transport", &["vocab", "doors", "process"]),
    ("web", &["vocab", "doors", "engine", "log", "process", "tools", "transport", "undo"]),
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
            "undo",
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

/// The names of a crate's dependencies, without dev-dependencies.
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
fn crates_depend_only_on_allowed_crates() {
    let folders: BTreeSet<String> = fs::read_dir(root().join("crates"))
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    let listed: BTreeSet<String> =
        ALLOWED_DEPENDENCIES.iter().map(|(krate, _)| (*krate).to_owned()).collect();
    assert_eq!(folders, listed, "the list of this test differs from the folders in crates/");
    for (krate, allowed) in ALLOWED_DEPENDENCIES {
        for name in dependencies(krate) {
            if let Some(dependency) = name.strip_prefix("parlor-") {
                assert!(allowed.contains(&dependency), "{krate} may not depend on {name}");
            }
        }
    }
}

/// Names of public types that several crates have by design: none.
const SHARED_TYPE_NAMES: [&str; 0] = [];

#[test]
fn no_two_crates_have_a_public_type_of_the_same_name() {
    let mut crates_by_name: BTreeMap<String, BTreeSet<&str>> = BTreeMap::new();
    for (krate, _) in ALLOWED_DEPENDENCIES {
        for path in files(&root().join("crates").join(krate).join("src"), "rs") {
            for name in public_types(&fs::read_to_string(path).unwrap()) {
                crates_by_name.entry(name).or_default().insert(krate);
            }
        }
    }
    assert!(crates_by_name.len() > 300, "this test finds too few types: {}", crates_by_name.len());
    crates_by_name.retain(|name, crates| crates.len() > 1 && !SHARED_TYPE_NAMES.contains(&name.as_str()));
    assert!(crates_by_name.is_empty(), "rename one type of each pair: {crates_by_name:?}");
}

/// The names of the public structs, enums, traits and type aliases in a source file, without its test module.
fn public_types(source: &str) -> Vec<String> {
    let source = source.split("#[cfg(test)]\nmod tests").next().expect("text before the tests");
    let kinds = ["pub struct ", "pub enum ", "pub trait ", "pub type "];
    let declared =
        |line: &str| kinds.iter().find_map(|kind| line.trim_start().strip_prefix(kind).map(str::to_owned));
    let name = |rest: String| rest.split(|letter: char| !letter.is_alphanumeric()).next().map(str::to_owned);
    source.lines().filter_map(declared).filter_map(name).collect()
}

#[test]
fn doors_use_no_runtime_and_inner_crates_use_no_serde() {
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
    for source in [
        "process/src/lib.rs",
        "process/src/backend.rs",
        "process/src/executor/copy.rs",
        "process/src/executor/file_worker.rs",
        "process/src/executor/files.rs",
        "process/src/executor/http.rs",
        "process/src/executor/open_files.rs",
        "process/src/executor/sequenced.rs",
        "process/src/executor/sessions.rs",
        "process/src/executor/walk.rs",
        "web/src/exec_door.rs",
        "transport/src/connection.rs",
        "vocab/src/id.rs",
        "doors/src/exec/wire.rs",
    ] {
        for line in read(&format!("crates/{source}")).lines().filter(|line| line.starts_with("pub const ")) {
            names.push(line.split([' ', ':']).nth(2).unwrap().to_owned());
        }
    }
    // Sizes of chunks are not limits that a client can notice; the page has the values of the others.
    let left_out = ["OUTPUT_PIECE_BYTES", "BULK_PIECE_BYTES", "PROTOCOL_VERSION", "DEFAULT_OUTPUT_BYTES_CAP"];
    names.retain(|name| !left_out.contains(&name.as_str()));
    assert!(names.len() > 20, "the constants are no longer found by this test: {names:?}");
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
    // The door's own tests guarantee that the round trips there have one frame of each type.
    let frames = read("crates/doors/src/synaps/wire.rs");
    let mut names: BTreeSet<String> = frames
        .split(r#""type":""#)
        .skip(1)
        .map(|text| format!("`{}`", text.split('"').next().unwrap()))
        .collect();
    assert!(names.len() > 24, "the frames are no longer found by this test: {names:?}");
    let code = read("crates/doors/src/synaps/code.rs");
    let texts: Vec<&str> = code
        .lines()
        .filter(|line| line.contains("const ") || line.contains("=> Some("))
        .filter_map(|line| line.split('"').nth(1))
        .collect();
    assert!(texts.len() > 8, "this test finds too few texts: {texts:?}");
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
    assert!(limits.len() > 20, "this test finds too few constants: {limits:?}");
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
fn the_peer_page_names_every_frame_value_error_and_limit() {
    let page = read("docs/protocols/peer.md");
    let folder = "crates/doors/src/peer";
    let mut names: BTreeSet<String> = ["wire.rs", "forms.rs"]
        .into_iter()
        .flat_map(|file| variants(&read(&format!("{folder}/{file}"))))
        .map(|name| format!("`{name}`"))
        .collect();
    assert!(names.len() > 60, "this test finds too few variants: {names:?}");
    let code = read(&format!("{folder}/code.rs"));
    let texts = code.split("#[error(\"").skip(1).filter_map(|text| text.split(['{', '"']).next());
    let texts: Vec<String> = texts.map(|text| format!("`{text}")).collect();
    assert!(texts.len() > 5, "this test finds too few texts: {texts:?}");
    names.extend(texts);
    for source in
        ["doors/src/peer/mod.rs", "engine/src/sessions/client/peer.rs", "transport/src/unix_socket.rs"]
    {
        names.extend(constants(source).into_iter().map(|name| format!("`{name}`")));
    }
    for name in names {
        assert!(page.contains(&name), "docs/protocols/peer.md does not mention {name}");
    }
}

/// The variants of all enums in a source file, in snake case.
fn variants(source: &str) -> Vec<String> {
    let source = source.split("#[cfg(test)]").next().expect("something before the tests");
    let bodies = source.split("enum ").skip(1).filter_map(|text| text.split("\n}").next());
    let lines = bodies.flat_map(str::lines).filter_map(|line| line.strip_prefix("    "));
    let name = |line: &str| line.split(|letter: char| !letter.is_alphanumeric()).next().map(str::to_owned);
    let is_variant = |line: &&str| line.starts_with(|first: char| first.is_ascii_uppercase());
    lines.filter(is_variant).filter_map(name).map(|name| snake_case(&name)).collect()
}

fn snake_case(name: &str) -> String {
    let mut words = String::new();
    for letter in name.chars() {
        if letter.is_ascii_uppercase() && !words.is_empty() {
            words.push('_');
        }
        words.push(letter.to_ascii_lowercase());
    }
    words
}

#[test]
fn every_transcript_proves_a_statement_and_every_proof_exists() {
    for door in ["exec", "synaps", "supr", "loaf", "peer", "acp", "mcp"] {
        let page = read(&format!("docs/protocols/{door}.md"));
        let table = page.split("## From statement to proof").nth(1).expect("the table");
        let proofs: BTreeSet<&str> = table.split('`').skip(1).step_by(2).collect();
        for entry in fs::read_dir(root().join("tests/transcripts").join(door)).unwrap() {
            let path = entry.unwrap().path();
            // Folders have the files that transcripts need.
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
    // Frame types are the only quoted strings with a dot.
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
    assert!(names.len() > 25, "the types are no longer found by this test: {names:?}");
    let code = read(&format!("{folder}/code.rs"));
    let is_code = |text: &&str| {
        text.contains('_') && text.bytes().all(|letter| letter.is_ascii_alphabetic() || letter == b'_')
    };
    let codes: BTreeSet<String> = code.split('"').filter(is_code).map(|text| format!("`{text}`")).collect();
    assert!(codes.len() > 12, "this test finds too few codes: {codes:?}");
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
    assert!(limits.len() > 18, "this test finds too few constants: {limits:?}");
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
    // Methods and events are the quoted strings with a dot.
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
    assert!(names.len() > 50, "the methods and events are no longer found by this test: {names:?}");
    let code = read(&format!("{folder}/code.rs"));
    let code = code.split("\nmod tests {").next().expect("something before the tests");
    let reasons = code.split("failed(\"").chain(code.split("_ERROR, \"")).skip(1);
    let reasons = reasons.filter_map(|text| text.split('"').next()).filter(|text| !text.contains(' '));
    let reasons: BTreeSet<String> = reasons.map(|reason| format!("`{reason}`")).collect();
    assert!(reasons.len() > 20, "this test finds too few reasons: {reasons:?}");
    names.extend(reasons);
    let limits = constants("doors/src/loaf/mod.rs").into_iter().chain(constants("frontend/src/lib.rs"));
    let is_limit = |name: &String| !["PROTOCOL_VERSION", "METHODS", "EXTRA_METHODS"].contains(&name.as_str());
    names.extend(limits.filter(is_limit).map(|name| format!("`{name}`")));
    for name in names {
        assert!(page.contains(&name), "docs/protocols/loaf.md does not mention {name}");
    }
}

#[test]
fn the_acp_page_names_every_method_update_and_limit() {
    let page = read("docs/protocols/acp.md");
    let quoted = |source: &str| -> Vec<String> {
        let source = read(&format!("crates/doors/src/acp/{source}"));
        source.split('"').skip(1).step_by(2).map(str::to_owned).collect()
    };
    let mut names: BTreeSet<String> = quoted("dispatch.rs").into_iter().collect();
    names.retain(|name| name.contains('/') || name == "logout");
    assert!(names.len() > 12, "this test finds too few methods: {names:?}");
    names.extend(constants("doors/src/acp/mod.rs").into_iter().filter(|name| name != "DOOR"));
    for name in names {
        assert!(page.contains(&format!("`{name}`")), "docs/protocols/acp.md does not mention {name}");
    }
}

#[test]
fn the_mcp_page_names_every_method_tool_and_limit() {
    let page = read("docs/protocols/mcp.md");
    let quoted = |source: &str| -> Vec<String> {
        read(source).split('"').skip(1).step_by(2).map(str::to_owned).collect()
    };
    let mut names: BTreeSet<String> = quoted("crates/doors/src/mcp/dispatch.rs").into_iter().collect();
    names.retain(|name| name.contains('/') && !name.contains(' '));
    names.remove("notifications/subscriptions/acknowledged");
    assert!(names.len() > 5, "this test finds too few methods: {names:?}");
    names.extend(constants("doors/src/mcp/mod.rs").into_iter().filter(|name| name != "DOOR"));
    names.extend(constants("tools/src/mcp_client/mod.rs"));
    names.extend(constants("frontend/src/tool_client/mod.rs"));
    names.extend(constants("web/src/mcp.rs"));
    names.extend(
        quoted("crates/doors/src/mcp/session_tools.rs")
            .into_iter()
            .filter(|name| name.starts_with("session_") && name != "session_id" && !name.contains(' ')),
    );
    for name in names {
        assert!(page.contains(&format!("`{name}`")), "docs/protocols/mcp.md does not mention {name}");
    }
}

#[test]
fn every_numbered_edge_case_has_a_proof() {
    for (door, edges) in [("synaps", 51), ("supr", 48), ("loaf", 60), ("exec", 60)] {
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
    assert!(paths.len() > 30, "this test finds too few tests: {paths:?}");
    for path in paths {
        assert!(root().join(path).exists(), "docs/security.md names {path}, which does not exist");
    }
    // `name` in `path`
    for (before, after) in page.match_indices("` in `").map(|(at, _)| page.split_at(at)) {
        let name = before.rsplit('`').next().expect("a name");
        let path = after.split('`').nth(2).expect("a path");
        // Other texts of the page have the same form, such as a field in a message.
        if path.ends_with(".rs") {
            assert!(read(path).contains(&format!("fn {name}(")), "{path} has no test called {name}");
        }
    }
}

#[test]
fn source_files_have_at_most_600_lines() {
    for path in ["crates", "tests", "bench/src"].iter().flat_map(|folder| files(&root().join(folder), "rs")) {
        let lines = fs::read_to_string(&path).unwrap().lines().count();
        assert!(lines <= 600, "{} has {lines} lines: split it", path.display());
    }
}

#[test]
fn the_documentation_names_files_that_exist() {
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
    assert!(named > 100, "this test finds too few paths: {named}");
}

#[test]
#[expect(clippy::disallowed_methods, reason = "the variable GOLDEN asks to rewrite the list")]
fn the_architecture_lists_every_source_file() {
    const HEADING: &str = "## Every source file\n";
    let page = read("ARCHITECTURE.md");
    let (before, _) = page.split_once(HEADING).expect("the heading of the list");
    let mut expected = format!(
        "{before}{HEADING}\nThe first sentence of each file and the limits that it defines, written by `GOLDEN=write cargo test -p parlor --test tidy`.\n"
    );
    for (krate, _) in ALLOWED_DEPENDENCIES {
        expected += &format!("\n### crates/{krate}/src\n\n");
        let folder = root().join("crates").join(krate).join("src");
        expected += &first_sentences(&folder, files(&folder, "rs"));
    }
    let folder = root().join("bench/src");
    expected += "\n### bench/src\n\n";
    expected += &first_sentences(&folder, files(&folder, "rs"));
    let folder = root().join("web/src");
    expected += "\n### web/src\n\n";
    expected += &first_sentences(&folder, [files(&folder, "ts"), files(&folder, "svelte")].concat());
    if std::env::var("GOLDEN").is_ok_and(|value| value == "write") {
        fs::write(root().join("ARCHITECTURE.md"), &expected).unwrap();
    }
    assert_eq!(
        read("ARCHITECTURE.md"),
        expected,
        "the list is not that of the files; GOLDEN=write writes it"
    );
}

/// A line for each file that is no test: its path below `folder`, and the first sentence of its opening comment.
fn first_sentences(folder: &Path, mut paths: Vec<PathBuf>) -> String {
    paths.sort();
    let mut lines = String::new();
    for path in paths {
        let name = path.strip_prefix(folder).expect("a file below the folder").display().to_string();
        if ["tests", "samples", "properties", ".test.", "fixtures", "fake-"]
            .iter()
            .any(|part| name.contains(part))
        {
            continue;
        }
        let text = fs::read_to_string(&path).expect("a source file");
        let opening = match text.strip_prefix("<!--") {
            Some(markup) => {
                markup.split("-->").next().expect("text before the end of the comment").to_owned()
            }
            None => {
                let comment =
                    |line: &'_ str| line.strip_prefix("//!").or(line.strip_prefix("//")).map(str::to_owned);
                let paragraph: Vec<String> =
                    text.lines().map_while(comment).take_while(|line| !line.is_empty()).collect();
                paragraph.concat()
            }
        };
        let opening = opening.trim().replace('\n', " ");
        let sentence = opening.split_once(". ").map_or(opening.as_str(), |(first, _)| first);
        lines += &format!("- `{name}`: {}", sentence.trim_end_matches(['.', ':']));
        let limits: Vec<String> = limits_in(&text).iter().map(|name| format!("`{name}`")).collect();
        if !limits.is_empty() {
            lines += &format!(" ({})", limits.join(", "));
        }
        lines.push('\n');
    }
    lines
}

/// The names of the constants of a source file that are numbers or durations.
fn limits_in(source: &str) -> Vec<String> {
    let constant = |line: &str| {
        ["const ", "pub const ", "pub(crate) const ", "pub(super) const ", "export const "]
            .iter()
            .find_map(|start| line.strip_prefix(start).map(str::to_owned))
    };
    let limit = |line: String| {
        let rust = line.split_once(": ").filter(|(_, kind)| {
            ["usize", "u8", "u16", "u32", "u64", "i64", "Duration"]
                .iter()
                .any(|limit| kind.starts_with(limit))
        });
        let script =
            line.split_once(" = ").filter(|(_, value)| value.starts_with(|c: char| c.is_ascii_digit()));
        let (name, _) = rust.or(script)?;
        name.chars()
            .all(|c| c.is_ascii_uppercase() || c.is_ascii_digit() || c == '_')
            .then(|| name.to_owned())
    };
    source.lines().filter_map(constant).filter_map(limit).collect()
}

#[test]
fn comments_have_whole_markers() {
    for path in files(&root().join("crates"), "rs") {
        for line in fs::read_to_string(&path).unwrap().lines().map(str::trim_start) {
            let text = ["//!", "///", "//"].iter().find_map(|marker| line.strip_prefix(marker));
            let is_broken = |text: &str| {
                text.starts_with(char::is_alphabetic)
                    || [" ! ", " / "].iter().any(|mark| text.starts_with(mark))
            };
            assert!(!text.is_some_and(is_broken), "{}: {line}", path.display());
        }
    }
}

/// All files below a folder with this extension, without those in `node_modules`.
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
