//! The lines that clients send in the transcripts of the ACP and MCP doors, with any choices of the backend: the seeds of
//! their fuzz targets.

use std::path::Path;

use parlor_doors::fuzz_harness::{Dialect, play};

fn play_transcripts(door: &str, dialect: Dialect) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/transcripts").join(door);
    let mut played = 0;
    for entry in std::fs::read_dir(folder).expect("the folder of the door") {
        let path = entry.expect("an entry").path();
        if path.extension().is_none_or(|extension| extension != "txt") {
            continue;
        }
        let text = std::fs::read_to_string(&path).expect("a transcript");
        let lines: Vec<&str> = text.lines().filter_map(|line| line.strip_prefix("> ")).collect();
        let stream = lines.join("\n").replace("{s}", "s").into_bytes();
        for skip in 0..16 {
            let choices: Vec<u8> = text.bytes().skip(skip).collect();
            play(dialect, &[&stream], &choices);
            let (start, end) = stream.split_at(stream.len() / 2);
            assert_eq!(play(dialect, &[start, end], &choices), play(dialect, &[&stream], &choices));
        }
        played += 1;
    }
    assert!(played > 10, "{played}");
}

#[test]
fn acp() {
    play_transcripts("acp", Dialect::Acp);
}

#[test]
fn mcp() {
    play_transcripts("mcp", Dialect::Mcp);
}
