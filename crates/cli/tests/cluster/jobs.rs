//! A job gives the numbers of one process, and its meters agree with the kernel's.

use crate::bench::finish;
use crate::setting::{Setting, script};

const MODELS: [&str; 3] = [
    "--model gcn",
    "--model sage --set model.norm=layer",
    "--model gat --set model.heads=2 --set model.norm=batch",
];

/// Batches that are drawn across parts.
const MINI_BATCHES: &str =
    "--strategy distdgl --model sage --set train.batch_size=16 --set train.fanouts=[5,3]";

/// Boundaries that remember, skip, draw or wait; and rows and gradients that are rounded at random.
const BOUNDARIES: [&str; 7] = [
    "--strategy emma --model gat --set exchange.chunks=3",
    "--strategy sancus --model gcn --set exchange.staleness=turns",
    "--strategy bns --model sage",
    "--strategy pipegcn --model gcn --set exchange.smooth_gradients=0.5",
    "--strategy full --model gcn --set exchange.codec=int8 --set agree.codec=int8",
    "--strategy graphtheta --model gcn --set train.batch=mini --set train.batch_size=20 --set agree.in_flight=3 \
     --set agree.updates=async --set exchange.placement=2d",
    "--strategy graphtheta --model gat --set train.batch=cluster --set train.cluster_count=6 --set exchange.placement=source",
];

/// Islands: all in memory, and in turns.
const ISLANDS: [&str; 4] = [
    "--strategy grappa --model sage --set train.batch_size=16 --set train.fanouts=[5,3] --set residency.halo=1",
    "--strategy grappa --model gcn --set train.batch_size=16 --set train.fanouts=[5,3] --set residency.resident=2",
    "--strategy sdt --model sage --set train.batch_size=16 --set train.fanouts=[5,3] --set agree.every=2",
    "--strategy cluster-gcn --model gcn --set train.clusters=1 --set residency.resident=2",
];

fn train(model: &str, threads: u32, out: &str) -> String {
    format!("train --data store {model} --epochs 8 --threads {threads} --out {out}")
}

#[test]
fn oracle_8_any_number_of_processes_and_threads_gives_the_same_bits() {
    let setting = Setting::new(600);
    for (m, model) in MODELS.into_iter().enumerate() {
        setting.done(&train(model, 1, &format!("alone-{m}")));
        let digest = setting.bench.digest(&format!("alone-{m}"));
        for (processes, threads, more) in
            [(1, 2, ""), (2, 1, ""), (2, 3, ""), (4, 1, ""), (2, 1, " --set exchange.overlap=false")]
        {
            let out = format!("job-{m}-{processes}-{threads}-{}", more.len());
            let line = train(&format!("{model}{more}"), threads, &out);
            setting.done(&setting.launch(processes, "", &line));
            assert_eq!(
                setting.bench.digest(&out),
                digest,
                "{model}{more}, {processes} processes, {threads} threads"
            );
        }
    }
}

#[test]
fn oracle_8_edges_with_values_across_processes_are_those_of_one() {
    let setting = Setting::new(600);
    setting.done("generate sbm --nodes 600 --edges 6000 --edge-attributes 3 --out valued-data");
    // Parts all of whose targets read a halo, and parts of which few do.
    for method in ["random", "metis"] {
        setting.done(&format!("partition valued-data --parts 4 --method {method} --out valued-{method}"));
        let line = |out: &str| {
            let model = "--model gat-e --set model.heads=2 --set model.layers=3";
            format!("train --data valued-{method} {model} --epochs 8 --threads 1 --out {method}-{out}")
        };
        setting.done(&line("alone"));
        for processes in [2, 4] {
            let out = format!("job-{processes}");
            setting.done(&setting.launch(processes, "", &line(&out)));
            let digests = ["alone", &out].map(|run| setting.bench.digest(&format!("{method}-{run}")));
            assert_eq!(digests[0], digests[1], "{method}, {processes} processes");
        }
    }
}

#[test]
fn oracle_8_mini_batches_across_processes_are_those_of_one() {
    let setting = Setting::new(600);
    setting.done(&train(MINI_BATCHES, 1, "alone"));
    let digest = setting.bench.digest("alone");
    for (processes, threads, strategy) in
        [(1, 2, "distdgl"), (2, 1, "distdgl"), (4, 1, "distdgl"), (4, 2, "bytegnn")]
    {
        let out = format!("{strategy}-{processes}-{threads}");
        let command = train(&MINI_BATCHES.replace("distdgl", strategy), threads, &out);
        setting.done(&setting.launch(processes, "", &command));
        assert_eq!(
            setting.bench.digest(&out),
            digest,
            "{strategy}, {processes} processes, {threads} threads"
        );
    }
}

#[test]
fn oracle_8_every_boundary_across_processes_is_that_of_one() {
    let setting = Setting::new(600);
    for (b, boundary) in BOUNDARIES.into_iter().enumerate() {
        setting.done(&train(boundary, 2, &format!("alone-{b}")));
        let digest = setting.bench.digest(&format!("alone-{b}"));
        for processes in [2, 4] {
            let out = format!("job-{b}-{processes}");
            setting.done(&setting.launch(processes, "", &train(boundary, 1, &out)));
            assert_eq!(setting.bench.digest(&out), digest, "{boundary}, {processes} processes");
        }
    }
}

#[test]
fn oracle_8_islands_across_processes_are_those_of_one() {
    let setting = Setting::new(600);
    for (i, islands) in ISLANDS.into_iter().enumerate() {
        setting.done(&train(islands, 2, &format!("alone-{i}")));
        let digest = setting.bench.digest(&format!("alone-{i}"));
        for processes in
            [2, 4].into_iter().filter(|&processes| processes == 2 || !islands.contains("resident"))
        {
            let out = format!("job-{i}-{processes}");
            setting.done(&setting.launch(processes, "", &train(islands, 1, &out)));
            assert_eq!(setting.bench.digest(&out), digest, "{islands}, {processes} processes");
        }
    }
    // Averaged models are the same on any number of ranks, and so is where they are.
    let turns = format!("{} --set residency.resident=2", ISLANDS[2]);
    setting.done(&setting.launch(2, "", &train(&turns, 1, "turns")));
    assert_eq!(setting.bench.digest("turns"), setting.bench.digest("alone-2"));
}

#[test]
fn oracle_8_a_cluster_gives_the_bits_of_one_process() {
    let Some(setting) = Setting::on_cluster(600, "1gbit") else { return };
    for (m, model) in
        MODELS.into_iter().chain([MINI_BATCHES, BOUNDARIES[0], ISLANDS[0], ISLANDS[2]]).enumerate()
    {
        setting.done(&train(model, 1, &format!("alone-{m}")));
        setting.done(&setting.launch(4, "", &train(model, 1, &format!("cluster-{m}"))));
        let digests = [format!("alone-{m}"), format!("cluster-{m}")].map(|run| setting.bench.digest(&run));
        assert_eq!(digests[0], digests[1], "{model}");
    }
}

#[test]
fn a_job_evaluates_and_infers_what_one_process_does() {
    let setting = Setting::new(600);
    let scores = |line: &str| setting.done(line).stdout.split("\"secs\"").next().unwrap().to_owned();
    let read = |name: &str| std::fs::read_to_string(setting.bench.path(name)).unwrap();
    // Islands in turns: two in memory, so at most two processes.
    for (run, way, processes) in [("run", MODELS[0], 4), ("turns", ISLANDS[1], 2)] {
        setting.done(&setting.launch(2, "", &train(way, 1, run)));
        let evaluate = format!("evaluate {run} --json");
        assert_eq!(scores(&setting.launch(2, "", &evaluate)), scores(&evaluate), "{way}");
        let infer = format!("infer {run} --scores --embeddings --out");
        setting.done(&format!("{infer} alone.csv"));
        setting.done(&setting.launch(processes, "", &format!("{infer} job.csv")));
        assert_eq!(read("job.csv"), read("alone.csv"), "{way}");
        std::fs::remove_file(setting.bench.path("job.csv")).unwrap();
    }
}

#[test]
fn a_job_scores_the_pairs_that_one_process_does() {
    let setting = Setting::new(600);
    let links = "--strategy distdgl --model sage --set train.task=link";
    setting.done(&setting.launch(2, "", &train(links, 1, "run")));
    std::fs::write(setting.bench.path("pairs.csv"), "0,599\n17,4\n4,17\n").unwrap();
    setting.done("infer run --links pairs.csv --out alone.csv");
    setting.done(&setting.launch(4, "", "infer run --links pairs.csv --out job.csv"));
    let read = |name: &str| std::fs::read_to_string(setting.bench.path(name)).unwrap();
    assert_eq!(read("job.csv"), read("alone.csv"));
}

#[test]
fn a_dataset_is_cut_by_one_process_for_all() {
    let setting = Setting::new(600);
    setting.done("train --data data --parts 3 --epochs 5 --out alone");
    setting.done(&setting.launch(3, "", "train --data data --parts 3 --epochs 5 --out job"));
    assert_eq!(setting.bench.digest("job"), setting.bench.digest("alone"));
}

/// Bytes that our meters count in a run, without the envelopes of messages.
fn metered(setting: &Setting, run: &str) -> u64 {
    let summary = std::fs::read_to_string(setting.bench.path(run).join("summary.json")).unwrap();
    let summary: serde_json::Value = serde_json::from_str(&summary).unwrap();
    summary["bytes_sent"].as_object().unwrap().values().map(|bytes| bytes.as_u64().unwrap()).sum()
}

/// Bytes that all hosts have sent, as the kernel counts them.
fn counted() -> u64 {
    let sent = |line: &str| line.split_whitespace().nth(2)?.parse::<u64>().ok();
    script(&["bytes"]).lines().filter_map(sent).sum()
}

#[test]
fn our_meters_agree_with_the_counters_of_the_kernel() {
    let Some(setting) = Setting::on_cluster(20_000, "1gbit") else { return };
    let line = "train --data store --model sage --set model.hidden=256 --set train.eval_every=100 --threads 1 --epochs";
    let mut seen = Vec::new();
    // The difference of two lengths: starting MPI and setting up ranks costs the same in both.
    for epochs in [5, 25] {
        let (out, before) = (format!("run-{epochs}"), counted());
        setting.done(&setting.launch(4, "", &format!("{line} {epochs} --out {out}")));
        seen.push((metered(&setting, &out), counted() - before));
    }
    let (ours, kernel) = (seen[1].0 - seen[0].0, seen[1].1 - seen[0].1);
    let ratio = kernel as f64 / ours as f64;
    eprintln!("20 epochs: {ours} bytes by our meters, {kernel} by the kernel's, ratio {ratio:.4}");
    assert!((0.99..1.05).contains(&ratio), "{ours} by our meters, {kernel} by the kernel's");
}

#[test]
fn ctrl_c_stops_a_job_with_a_checkpoint() {
    let setting = Setting::new(1500);
    setting.done("train --data store --epochs 60 --out whole");
    let job = setting.start(&setting.launch(2, "", "train --data store --epochs 60 --out run"));
    crate::bench::wait_until("the first epoch", || crate::bench::epochs(&setting.bench.path("run")) > 0);
    crate::bench::signal(&job, "INT");
    let stopped = finish(job);
    assert_eq!(stopped.code, Some(130), "{}", stopped.stderr);
    assert!(stopped.stderr.contains("asking all processes to stop after this epoch"), "{}", stopped.stderr);
    setting.done(&setting.launch(4, "", "resume run"));
    assert_eq!(setting.bench.digest("run"), setting.bench.digest("whole"));
}
