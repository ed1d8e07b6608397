//! `docs/tools.md` names every tool, every member of its input, every code and every limit.

use std::fs;
use std::path::{Path, PathBuf};

use parlor_tools::{Shell, Toolbox};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

#[test]
fn the_page_is_complete() {
    let page = fs::read_to_string(root().join("docs/tools.md")).unwrap();
    let mut names: Vec<String> = Vec::new();
    for tool in Toolbox::standard(Shell::default()).iter() {
        names.push(tool.name().to_owned());
        names.extend(tool.schema()["properties"].as_object().unwrap().keys().cloned());
    }
    let mut folders = vec![root().join("crates/tools/src")];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
                continue;
            }
            let source = fs::read_to_string(&path).unwrap();
            let constants = source.lines().filter_map(|line| line.strip_prefix("pub const "));
            names.extend(constants.map(|line| line.split(':').next().unwrap().to_owned()));
        }
    }
    assert!(names.len() > 50, "the constants are not found any more: {names:?}");
    for name in names {
        assert!(page.contains(&format!("`{name}`")), "docs/tools.md does not mention `{name}`");
    }
}
