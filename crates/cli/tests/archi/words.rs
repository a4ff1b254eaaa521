//! Help and tables.

use crate::bench::Bench;

#[test]
fn help_says_what_every_command_does() {
    insta::assert_snapshot!(Bench::new().transcript(&[
        "--help",
        "train --help",
        "partition --help",
        "infer --help"
    ]));
}

#[test]
fn list_shows_every_table() {
    let shown = Bench::new().done("list").stdout;
    for table in [
        "strategies",
        "models",
        "decoders",
        "partitioners",
        "samplers",
        "formats",
        "transports",
        "generators",
    ] {
        assert!(shown.contains(&format!("{table} (")), "{table} is missing in {shown}");
        let one = Bench::new().done(&format!("list {table} --json")).stdout;
        let lines: serde_json::Value = serde_json::from_str(&one).unwrap();
        assert!(!lines.as_array().unwrap().is_empty(), "{table} is empty");
    }
    insta::assert_snapshot!(Bench::new().transcript(&["list models", "list generators"]));
}

#[test]
fn a_closed_pipe_is_no_error() {
    let mut child = Bench::new().start("list --json");
    drop(child.stdout.take());
    assert_eq!(child.wait().unwrap().code(), Some(0));
}
