//! A checkpoint is whole or not there, and says what is wrong with it.

use super::*;
use crate::optimizer::Optimizer;
use crate::parameters::Parameter;
use crate::run::TrainSection;
use archipelago_comm::Failure;
use std::fs;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

fn parameters(scale: f32) -> Parameters {
    let fill = |name: &str, rows, cols| {
        let mut parameter = Parameter::zeros(name, rows, cols);
        parameter.value.iter_mut().enumerate().for_each(|(i, value)| *value = scale / (i as f32 + 3.0));
        parameter.grad.iter_mut().enumerate().for_each(|(i, grad)| *grad = (i as f32).sin());
        parameter
    };
    Parameters::new(vec![
        fill("layers.0.weight", 7, 5),
        fill("layers.0.bias", 1, 5),
        fill("layers.1.weight", 5, 1),
    ])
}

fn sample(epoch: u64) -> Checkpoint {
    let mut parameters = parameters(epoch as f32 + 0.1);
    let mut optimizer = Optimizer::new(&TrainSection::default(), &parameters);
    optimizer.step(&mut parameters, 0.01);
    let mut checkpoint = Checkpoint::default();
    checkpoint.set_weights(&parameters);
    checkpoint.optimizer = optimizer.state().clone();
    let values = vec![0.25, f32::MIN_POSITIVE / 2.0, -0.0];
    checkpoint.buffers = vec![Tensor { name: "norms.0.mean".into(), rows: 1, cols: 3, values }];
    checkpoint.floats.insert("part.3.memory".into(), vec![1.0 / epoch as f32; 4]);
    checkpoint.floats.insert("part.4.memory".into(), Vec::new());
    checkpoint.words.insert("versions".into(), vec![0, u64::MAX, epoch]);
    checkpoint.state = State {
        epoch,
        step: 3 * epoch,
        best: Some(Best { epoch: 1, valid: 0.1 + 0.2, test: None }),
        run_toml: RunConfig::default().to_toml(),
        data: BTreeMap::from([("nodes".into(), "2708".into()), ("store sha256".into(), "ab12".into())]),
        totals: Totals {
            losses: vec![1.0 / 3.0, f64::MIN_POSITIVE, 1e300],
            epoch_secs: vec![0.1; 3],
            wall_secs: 1.7,
            bytes_sent: BytesSent { features: u64::MAX, ..BytesSent::default() },
            ..Totals::default()
        },
    };
    checkpoint
}

fn names(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).unwrap();
    let mut names: Vec<String> = entries.map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

#[test]
fn a_checkpoint_reads_back_bit_for_bit() {
    let run = tempfile::tempdir().unwrap();
    for slot in [Slot::Last, Slot::Best] {
        let path = sample(5).save(run.path(), slot).unwrap();
        assert_eq!(path, slot.path(run.path()));
        assert_eq!(Checkpoint::load(run.path(), slot).unwrap(), sample(5));
    }
    let zero = Checkpoint::load(run.path(), Slot::Best).unwrap().buffers[0].values[2];
    assert!(zero.is_sign_negative());
}

#[test]
fn weights_go_back_into_a_model_of_the_same_shape_only() {
    let mut model = parameters(0.0);
    sample(2).restore_weights(&mut model).unwrap();
    assert_eq!(
        model.iter().map(|p| p.value[0]).collect::<Vec<_>>(),
        sample(2).weights.iter().map(|t| t.values[0]).collect::<Vec<_>>()
    );
    let mut other = Parameters::new(vec![Parameter::zeros("layers.0.weight", 7, 6)]);
    let error = sample(2).restore_weights(&mut other).unwrap_err().to_string();
    assert!(
        error.contains("expected weights `layers.0.weight` [7, 6], found `layers.0.bias` [1, 5]"),
        "{error}"
    );
}

#[test]
fn the_newest_checkpoint_replaces_the_older_and_sweeps_up() {
    let run = tempfile::tempdir().unwrap();
    let home = run.path().join("checkpoint");
    sample(1).save(run.path(), Slot::Last).unwrap();
    sample(1).save(run.path(), Slot::Best).unwrap();
    fs::create_dir(home.join(".archi-dead.tmp")).unwrap();
    fs::create_dir(home.join("last.2")).unwrap();
    std::os::unix::fs::symlink("last.2", home.join("last.new")).unwrap();
    assert_eq!(
        Checkpoint::load(run.path(), Slot::Last).unwrap(),
        sample(1),
        "a dead run's remains are not read"
    );
    sample(2).save(run.path(), Slot::Last).unwrap();
    assert_eq!(Checkpoint::load(run.path(), Slot::Last).unwrap(), sample(2));
    assert_eq!(names(&home), ["best", "best.1", "last", "last.3"]);
}

#[test]
fn a_failed_write_keeps_the_old_checkpoint() {
    let run = tempfile::tempdir().unwrap();
    sample(1).save(run.path(), Slot::Last).unwrap();
    let failed = folder::replace(run.path(), "last", |new| {
        fs::write(new.join("half"), "x").unwrap();
        Err(Error::Interrupted)
    });
    assert!(failed.is_err());
    assert_eq!(Checkpoint::load(run.path(), Slot::Last).unwrap(), sample(1));
    assert_eq!(names(&run.path().join("checkpoint")), ["last", "last.1"]);
}

#[test]
fn a_copy_that_followed_the_link_can_be_gone_on_with() {
    let run = tempfile::tempdir().unwrap();
    let link = sample(1).save(run.path(), Slot::Last).unwrap();
    let target = link.parent().unwrap().join(fs::read_link(&link).unwrap());
    fs::remove_file(&link).unwrap();
    fs::rename(target, &link).unwrap();
    assert_eq!(Checkpoint::load(run.path(), Slot::Last).unwrap(), sample(1));
    sample(2).save(run.path(), Slot::Last).unwrap();
    assert_eq!(Checkpoint::load(run.path(), Slot::Last).unwrap(), sample(2));
}

#[test]
fn any_damaged_file_is_reported_by_name() {
    let run = tempfile::tempdir().unwrap();
    let folder = sample(4).save(run.path(), Slot::Last).unwrap();
    for name in [WEIGHTS, TENSORS, STATE, "manifest.json"] {
        let file = folder.join(name);
        let whole = fs::read(&file).unwrap();
        for damage in [whole.len() / 2, whole.len() - 3] {
            let mut bytes = whole.clone();
            bytes[damage] ^= 1;
            fs::write(&file, &bytes).unwrap();
            let error = Checkpoint::load(run.path(), Slot::Last).unwrap_err().to_string();
            assert!(error.contains(name), "{name}: {error}");
        }
        fs::write(&file, &whole[..whole.len() / 2]).unwrap();
        let error = Checkpoint::load(run.path(), Slot::Last).unwrap_err().to_string();
        assert!(error.contains(name) && error.contains("damaged"), "{name}: {error}");
        fs::write(&file, &whole).unwrap();
    }
    Checkpoint::load(run.path(), Slot::Last).unwrap();
}

#[test]
fn a_run_without_a_checkpoint_says_so() {
    let run = tempfile::tempdir().unwrap();
    let error = Checkpoint::load(run.path(), Slot::Last).unwrap_err();
    assert!(error.to_string().contains("is not a checkpoint"), "{error}");
    assert_eq!(error.exit_code(), 2);
}

#[test]
fn other_data_or_another_run_is_refused_by_what_differs() {
    let checkpoint = sample(1);
    let run = Path::new("RUN");
    let mut config = RunConfig::default();
    config.train.threads = 5;
    checkpoint.check_resumable(run, &config, &checkpoint.state.data).unwrap();

    config.model.hidden = 32;
    let mut data = checkpoint.state.data.clone();
    data.insert("nodes".into(), "2709".into());
    data.remove("store sha256");
    let error = checkpoint.check_resumable(run, &config, &data).unwrap_err().to_string();
    assert!(
        error.contains("`model.hidden` was `64`, is `32`; nodes was `2708`, is `2709`; store sha256 was `ab12`, is `nothing`"),
        "{error}"
    );
}

#[test]
fn the_digest_is_of_the_weights_alone_in_name_order() {
    let weights = |values: [f32; 2]| {
        let mut parameters = Parameters::new(vec![Parameter::zeros("b", 1, 1), Parameter::zeros("a", 1, 1)]);
        parameters.iter_mut().zip(values).for_each(|(p, value)| p.value[0] = value);
        parameters
    };
    // sha256 of the bytes 00 00 80 3f 00 00 00 c0
    let expected = hex(&Sha256::digest([0, 0, 0x80, 0x3f, 0, 0, 0, 0xc0]));
    assert_eq!(hex(&weights_sha256(&weights([1.0, -2.0]), None)), expected);
    assert_ne!(hex(&weights_sha256(&weights([1.0, 2.0]), None)), expected);
    assert_ne!(weights_sha256(&weights([0.0, 1.0]), None), weights_sha256(&weights([-0.0, 1.0]), None));
}

const VICTIM: &str = "ARCHIPELAGO_TEST_SAVES_UNTIL_KILLED";

/// The other half of the next test: saves for as long as it lives.
#[test]
#[ignore = "runs as a child of the next test, which kills it"]
fn a_victim_saves_until_it_is_killed() {
    let Ok(run) = std::env::var(VICTIM) else { return };
    for epoch in 2.. {
        sample(epoch).save(Path::new(&run), Slot::Last).unwrap();
    }
}

fn epoch_on_disk(run: &Path) -> u64 {
    let found = Checkpoint::load(run, Slot::Last).unwrap();
    assert_eq!(found, sample(found.state.epoch));
    found.state.epoch
}

#[test]
fn a_kill_at_any_moment_leaves_a_whole_checkpoint() {
    let run = tempfile::tempdir().unwrap();
    for round in 0..12 {
        sample(1).save(run.path(), Slot::Last).unwrap();
        let mut victim = Command::new(std::env::current_exe().unwrap())
            .args(["--ignored", "--exact", "checkpoint::tests::a_victim_saves_until_it_is_killed"])
            .env(VICTIM, run.path())
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        let begun = Instant::now();
        let first = fs::read_link(Slot::Last.path(run.path())).unwrap();
        while fs::read_link(Slot::Last.path(run.path())).unwrap() == first {
            assert!(begun.elapsed() < Duration::from_secs(20), "the victim saved nothing");
            std::thread::sleep(Duration::from_millis(1));
        }
        std::thread::sleep(Duration::from_micros(700 * round));
        victim.kill().unwrap();
        victim.wait().unwrap();
        assert!(epoch_on_disk(run.path()) > 1);
    }
}
