//! `docs/tools.md` names every tool, every member of its input, every code, every limit and every variable.

use std::fs;
use std::path::{Path, PathBuf};

use parlor_tools::{ShellTool, Toolbox};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

#[test]
fn the_page_is_complete() {
    let page = fs::read_to_string(root().join("docs/tools.md")).unwrap();
    let mut names: Vec<String> = Vec::new();
    for tool in Toolbox::standard(ShellTool::default()).iter() {
        names.push(tool.name().to_owned());
        names.extend(tool.schema()["properties"].as_object().unwrap().keys().cloned());
    }
    let mut folders: Vec<PathBuf> =
        ["tools", "files"].map(|name| root().join("crates").join(name).join("src")).to_vec();
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            // The limits of MCP servers are on the page of that protocol.
            if path.is_dir() && !path.ends_with("mcp_client") {
                folders.push(path);
                continue;
            }
            if path.is_dir() {
                continue;
            }
            let source = fs::read_to_string(&path).unwrap();
            let constants = source.lines().filter_map(|line| line.strip_prefix("pub const "));
            names.extend(constants.map(|line| line.split(':').next().unwrap().to_owned()));
        }
    }
    for file in ["confine.rs", "oom.rs"] {
        let source = fs::read_to_string(root().join("crates/process/src").join(file)).unwrap();
        let constants = source.lines().filter_map(|line| line.strip_prefix("pub const "));
        names.extend(constants.map(|line| line.split(':').next().unwrap().to_owned()));
    }
    assert!(names.len() > 50, "this test finds no constants any more: {names:?}");
    let source = fs::read_to_string(root().join("crates/app/src/command_variables.rs")).unwrap();
    let list = source.split("#[cfg(test)]").next().unwrap();
    let variables: Vec<String> = list
        .lines()
        .filter(|line| !line.contains("//"))
        .flat_map(quoted)
        .filter(|name| !name.is_empty())
        .collect();
    assert!(variables.len() > 100, "this test finds no variables any more: {variables:?}");
    for name in names.into_iter().chain(variables) {
        assert!(page.contains(&format!("`{name}`")), "docs/tools.md does not mention `{name}`");
    }
}

/// The quoted texts of a line.
fn quoted(line: &str) -> impl Iterator<Item = String> + '_ {
    line.split('"').skip(1).step_by(2).map(str::to_owned)
}
