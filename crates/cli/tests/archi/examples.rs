//! The run files that we show to users are run files.

use crate::bench::Bench;
use std::path::Path;

#[test]
fn every_example_is_a_valid_run_and_says_what_to_expect() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples");
    let mut found = 0;
    for entry in std::fs::read_dir(&folder).unwrap() {
        let file = entry.unwrap().path();
        if file.extension().is_some_and(|extension| extension == "toml") {
            Bench::new().done(&format!("train {} --print-config", file.display()));
            let text = std::fs::read_to_string(&file).unwrap();
            assert!(
                text.contains("# Expected last line:\n#   test score"),
                "{} says nothing",
                file.display()
            );
            found += 1;
        }
    }
    assert!(found >= 6, "only {found} examples");
}
