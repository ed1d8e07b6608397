//! Checks that `docs/protocols/supex.md` names every method, tool, limit and transcript.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn read(path: &str) -> String {
    std::fs::read_to_string(root().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

#[test]
fn the_page_names_every_method_tool_code_limit_and_variable() {
    let page = read("docs/protocols/supex.md");
    let quoted = |line: &str| line.split('"').nth(1).map(str::to_owned);
    let lines_with = |path: &str, part: &str| -> Vec<String> {
        read(path).lines().filter(|line| line.contains(part)).map(str::to_owned).collect()
    };
    let mut names: Vec<String> = Vec::new();
    let folder = "crates/doors/src/supex";
    names.extend(
        lines_with(&format!("{folder}/wire.rs"), "pub const ").iter().filter_map(|line| quoted(line)),
    );
    names.extend(
        lines_with(&format!("{folder}/tool.rs"), "        name: \"").iter().filter_map(|line| quoted(line)),
    );
    names.extend(
        lines_with(&format!("{folder}/tool.rs"), "    model_query(").iter().filter_map(|line| quoted(line)),
    );
    names.extend(
        lines_with("crates/app/src/environment.rs", "(\"SUPEX_").iter().filter_map(|line| quoted(line)),
    );
    for line in lines_with(&format!("{folder}/code.rs"), "i64 = -") {
        names.push(line.split(['=', ';']).nth(1).unwrap().trim().to_owned());
    }
    let limits = [
        "doors/src/supex/mod.rs",
        "ruby/src/backend/mod.rs",
        "transport/src/tcp.rs",
        "app/src/serve/sketchup.rs",
    ];
    for path in limits.map(|path| format!("crates/{path}")) {
        for line in read(&path).lines().filter_map(|line| line.strip_prefix("pub const ")) {
            if !line.contains("&str") {
                names.push(format!("`{}`", line.split(':').next().unwrap()));
            }
        }
    }
    assert!(names.len() > 60, "the names are not found any more: {names:?}");
    for name in names {
        assert!(page.contains(&name), "docs/protocols/supex.md does not mention {name}");
    }
}

#[test]
fn every_transcript_proves_a_statement_and_every_proof_exists() {
    let page = read("docs/protocols/supex.md");
    let table = page.split("## From statement to proof").nth(1).expect("the table");
    let proofs: BTreeSet<&str> = table.split('`').skip(1).step_by(2).collect();
    for entry in std::fs::read_dir(crate::transcripts()).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        let case = name.strip_suffix(".txt").expect("transcripts are .txt");
        assert!(proofs.contains(case), "{name} is not in the table");
    }
    for proof in proofs {
        let is_case = crate::transcripts().join(format!("{proof}.txt")).exists();
        let is_path = proof.contains('/') && root().join(proof).exists();
        let looks_like_one = proof.contains('_') && proof.to_ascii_lowercase() == proof;
        assert!(is_case || is_path || !looks_like_one, "{proof} does not exist");
    }
}
