//! Checks that `docs/ruby.md` names every limit.

use std::fs;
use std::path::Path;

#[test]
fn the_page_names_every_limit() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let page = fs::read_to_string(root.join("../../docs/ruby.md")).unwrap();
    let source = fs::read_to_string(root.join("src/lib.rs")).unwrap();
    let names: Vec<&str> = source
        .lines()
        .filter_map(|line| line.strip_prefix("pub const "))
        .filter_map(|line| line.split(':').next())
        .collect();
    assert!(names.len() > 10, "the constants are not found any more: {names:?}");
    for name in names {
        assert!(page.contains(name), "docs/ruby.md does not mention {name}");
    }
}
