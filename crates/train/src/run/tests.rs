//! What users may write, and what they hear when they write something else.

use super::*;
use archipelago_comm::Failure;
use proptest::prelude::*;

fn parse(text: &str) -> Result<RunConfig> {
    RunConfig::from_toml(Path::new("run.toml"), text)
}

fn sets(sets: &[&str]) -> Result<RunConfig> {
    RunConfig::from_sources(None, &sets.iter().map(|set| set.to_string()).collect::<Vec<_>>())
}

fn message(result: Result<RunConfig>) -> String {
    let error = result.unwrap_err();
    assert_eq!(error.exit_code(), 2, "{error}");
    error.to_string()
}

#[test]
fn an_empty_file_is_the_default_run() {
    assert_eq!(parse("").unwrap(), RunConfig::default());
    assert_eq!(parse("[model]\n").unwrap(), RunConfig::default());
}

#[test]
fn every_key_has_one_line_of_doc_and_a_default_that_its_type_accepts() {
    assert_eq!(RunConfig::default().sections().map(|section| section.name()), RunConfig::SECTIONS);
    for key in RunConfig::keys() {
        assert!(!key.doc.is_empty() && !key.doc.contains('\n') && !key.doc.ends_with('.'), "{key:?}");
        let text = format!("[{}]\n{} = {}\n", key.section, key.name, key.default);
        assert_eq!(parse(&text).unwrap(), RunConfig::default(), "{text}");
    }
}

#[test]
fn a_set_overrides_the_file_and_needs_no_quotation_marks() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("run.toml");
    fs::write(&file, "[train]\nlr = 0.1\nepochs = 7\n[model]\nname = \"sage\"\n").unwrap();
    let given = [
        "train.lr=1e-3",
        "model.aggregator = max",
        "data.path=12",
        "train.fanouts=[5, -1]",
        "data.split=\"alt\"",
    ];
    let config = RunConfig::from_sources(Some(&file), &given.map(String::from)).unwrap();
    assert_eq!((config.train.lr, config.train.epochs), (0.001, 7));
    assert_eq!((config.model.name.as_str(), config.model.aggregator), ("sage", Aggregator::Max));
    assert_eq!((config.data.path.as_str(), config.data.split.as_str()), ("12", "alt"));
    assert_eq!(config.train.fanouts, [5, -1]);
    assert!(config.is_set("train.lr") && config.is_set("model.name") && !config.is_set("model.hidden"));
}

#[test]
fn settings_of_the_partitioner_are_a_table_in_the_file_and_pairs_in_a_set() {
    let file = parse(
        "[data]\npartition_settings = { tau = 0.2, degrees = \"online\" }\npartition_balance = [\"train\"]\n",
    );
    let set = sets(&["data.partition_settings=tau=0.2, degrees=online", "data.partition_balance=train"]);
    let (file, set) = (file.unwrap(), set.unwrap());
    assert_eq!(file, set);
    assert_eq!(file.data.partition_settings["tau"], "0.2");
    assert_eq!(parse(&file.to_toml()).unwrap(), file);
    assert!(message(sets(&["data.partition_settings=tau"])).contains("expected names and values"));
    assert!(
        message(parse("[data]\npartition_settings = { tau = [1] }\n")).contains("expected names and values")
    );
}

#[test]
fn an_unknown_section_is_answered_with_the_nearest() {
    let found = message(parse("[data]\n\n[modl]\nlayers = 2\n"));
    assert!(found.starts_with("`run.toml`, line 3: unknown section `modl`; known: data, model"), "{found}");
    assert!(found.ends_with("hint: did you mean `model`?"), "{found}");
    assert!(message(parse("[modl]\n")).contains("unknown section"));
}

#[test]
fn an_unknown_key_is_answered_with_the_nearest_or_with_its_section() {
    let found = message(parse("[model]\nlayers = 2\nhiden = 3\n"));
    assert!(
        found.starts_with("`run.toml`, line 3, `[model]`: unknown key `hiden`; known: name, layers"),
        "{found}"
    );
    assert!(found.ends_with("hint: did you mean `hidden`?"), "{found}");
    let found = message(sets(&["model.lr=0.1"]));
    assert!(found.starts_with("`--set model.lr=0.1`, `[model]`: unknown key `lr`"), "{found}");
    assert!(found.ends_with("hint: `lr` is a key of `[train]`"), "{found}");
}

#[test]
fn a_value_of_another_type_is_shown_as_it_was_written() {
    let found = message(parse("[model]\nhidden = \"big\"\n"));
    assert_eq!(
        found,
        "`run.toml`, line 2, `model.hidden`: expected a whole number, 0 or more, found `\"big\"`"
    );
    let found = message(parse("[train]\n\nfanouts = [\n  5,\n  2.5 ]\n"));
    assert!(
        found.starts_with("`run.toml`, line 3, `train.fanouts`: expected a list of whole numbers"),
        "{found}"
    );
    let found = message(sets(&["train.epochs=-3"]));
    assert!(found.starts_with("`--set train.epochs=-3`, `train.epochs`: expected a whole number"), "{found}");
    for bad in ["train.lr=nan", "train.lr=inf", "model.residual=yes", "train.seed=9223372036854775808"] {
        message(sets(&[bad]));
    }
}

#[test]
fn an_unknown_word_is_answered_with_the_known_ones_and_the_nearest() {
    let found = message(parse("[train]\noptimizer = \"admw\"\n"));
    assert!(found.contains("line 2, `train.optimizer`: expected one of `adam`, `adamw`, `sgd`"), "{found}");
    assert!(found.contains("hint: did you mean `adam"), "{found}");
}

#[test]
fn a_name_of_another_table_is_checked_where_it_was_written() {
    let config = parse("[strategy]\nname = \"fulll\"\n").unwrap();
    let found = config.check_name("strategy.name", &["full", "emma"]).unwrap_err().to_string();
    assert!(
        found.starts_with("`run.toml`, line 2, `strategy.name`: unknown name `fulll`; known: full, emma"),
        "{found}"
    );
    config.check_name("model.name", &["gcn"]).unwrap();
}

#[test]
fn what_is_no_toml_and_what_is_no_section_is_named_by_line() {
    assert!(message(parse("[data]\npath = \n")).starts_with("`run.toml`, line 2: is not TOML: "));
    assert!(
        message(parse("[data]\nparts = 1\nparts = 2\n")).starts_with("`run.toml`, line 3: is not TOML: dup")
    );
    let found = message(parse("\nepochs = 3\n"));
    assert!(
        found.starts_with("`run.toml`, line 2, `epochs`: expected a section `[epochs]`, found `3`"),
        "{found}"
    );
    assert!(message(sets(&["lr=3"])).starts_with("`--set lr=3`: expected `section.key=value`"));
    let missing = RunConfig::from_sources(Some(Path::new("/nowhere/run.toml")), &[]);
    assert!(message(missing).starts_with("cannot read `/nowhere/run.toml`"));
}

#[test]
fn values_out_of_range_are_refused_by_key() {
    let refused = [
        "data.parts=0",
        "model.layers=0",
        "model.hidden=0",
        "model.heads=0",
        "model.output_heads=0",
        "model.bases=0",
        "model.dropout=1",
        "model.input_dropout=-0.1",
        "model.attention_dropout=1.5",
        "train.epochs=0",
        "train.lr=0",
        "train.momentum=1",
        "train.weight_decay=-1",
        "train.clip_norm=-1",
        "agree.clip_local=-1",
        "train.step_every=0",
        "train.step_factor=0",
        "train.min_lr=1",
        "train.warmup_epochs=201",
        "train.clusters=0",
        "agree.every=0",
        "residency.deficit=1.5",
        "residency.deficit_steps=0",
        "train.batch_size=0",
        "train.fanouts=[]",
        "train.fanouts=[0]",
        "train.fanouts=[-2]",
        "exchange.deadline_secs=0",
        "data.link_valid=1",
        "data.link_valid=0.9",
        "data.link_test=0.95",
        "data.link_test=-0.1",
        "train.temperature=0",
        "train.negatives=0",
        "train.eval_negatives=0",
    ];
    for set in refused {
        let (key, value) = set.split_once('=').unwrap();
        let found = message(sets(&[set]));
        assert!(found.starts_with(&format!("`--set {set}`, `{key}`: expected ")), "{found}");
        assert!(found.contains(&format!("found `{value}")), "{found}");
    }
}

#[test]
fn links_are_scored_by_a_metric_that_may_carry_a_number() {
    for (word, metric) in
        [("auc", LinkMetric::Auc), ("mrr", LinkMetric::Mrr), ("hits@50", LinkMetric::Hits(50))]
    {
        let config = sets(&[&format!("train.link_metric={word}")]).unwrap();
        assert_eq!(config.train.link_metric, metric);
        assert_eq!(parse(&config.to_toml()).unwrap(), config);
    }
    for word in ["hits", "hits@0", "accuracy", "roc_auc"] {
        let found = message(sets(&[&format!("train.link_metric={word}")]));
        assert!(found.contains("expected `auc`, `mrr`, or `hits@K` such as `hits@10`"), "{found}");
    }
}

#[test]
fn heads_must_share_the_hidden_width_evenly() {
    let found = message(sets(&["model.hidden=30", "model.heads=8"]));
    assert!(
        found.contains("expected `model.hidden` to be a multiple of `model.heads`, found 30 and 8"),
        "{found}"
    );
    assert!(found.contains("`model.hidden` = 32 would do"), "{found}");
}

#[test]
fn the_resolved_file_explains_every_key() {
    let text = RunConfig::default().to_toml();
    assert!(text.starts_with("[data]\n# Dataset or store to train on\npath = \"\"\n"), "{text}");
    assert!(text.contains("# What follows a hidden layer: relu, elu\nactivation = \"relu\"\n"), "{text}");
    assert!(text.contains("# Learning rate\nlr = 0.01\n") && text.contains("fanouts = [15, 10]\n"), "{text}");
    let lines = text.lines().filter(|line| line.starts_with("# ")).count();
    assert_eq!(lines, RunConfig::keys().len());
}

#[test]
fn only_keys_that_move_the_result_count_as_differences() {
    let base = sets(&[]).unwrap();
    let same = sets(&["train.threads=3", "output.path=x", "data.path=y", "train.epochs=300"]).unwrap();
    assert_eq!(same.differences(&base), Vec::<String>::new());
    let other = sets(&["train.lr=0.5", "train.schedule=cosine", "train.epochs=300"]).unwrap();
    let found = other.differences(&base);
    assert_eq!(found[0], "`train.epochs` was `200`, is `300`");
    assert_eq!(found[1], "`train.lr` was `0.01`, is `0.5`");
    assert_eq!(found.len(), 3);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    #[test]
    fn a_resolved_file_reads_back_as_the_same_run(
        path in "\\PC*|[\\x00-\\x7f]*", split in "[a-z\"'\\\\\n\t ]*", seed in 0u64..=i64::MAX as u64,
        lr in 1e-300f64..1e300, decay in 0.0f64..1.0, fanouts in prop::collection::vec(1i64..1000, 1..4),
        undirected: bool, choice in 0usize..3,
    ) {
        let mut config = RunConfig::default();
        config.data.path = path;
        config.data.split = split;
        config.data.undirected = undirected;
        config.model.aggregator = [Aggregator::Mean, Aggregator::Sum, Aggregator::Max][choice];
        config.train.seed = seed;
        config.train.lr = lr;
        config.train.weight_decay = decay;
        config.train.fanouts = fanouts;
        let text = config.to_toml();
        let read = parse(&text).unwrap();
        prop_assert_eq!(&read, &config);
        prop_assert_eq!(read.to_toml(), text);
    }

    #[test]
    fn no_text_makes_the_reader_panic(text in "(\\[(data|model|x)\\]|[a-z]+ ?=|[0-9\"'\\[\\]{},.\n #=-])*") {
        let _ = parse(&text);
        let _ = sets(&[&text]);
    }
}
