//! Whatever one rank does, all ranks end within seconds, and the first failure is the one that is told.

use crate::support::{configs, fails_on_all_transports, in_job, is_failure_of, within};
use archipelago_comm::{Comm, Config, Error, Kind, LaunchError, Phase, Tag, launch};
use std::thread;
use std::time::{Duration, Instant};

type Exchange = fn(&Comm) -> Result<(), Error>;

/// Every exchange in which a rank can wait for another.
const EXCHANGES: &[(&str, Exchange)] = &[
    ("barrier", |comm| comm.barrier()),
    ("broadcast", |comm| comm.broadcast(0, &mut [0u32; 3], Kind::Weights)),
    ("gather", |comm| comm.gather(0, &[0u32; 3], Kind::Control).map(drop)),
    ("all_gather", |comm| comm.all_gather(&[0u32; 3], Kind::Control).map(drop)),
    ("all_to_all", |comm| comm.all_to_all(vec![vec![0u32; 3]; comm.size()], Kind::Control).map(drop)),
    ("all_reduce_sum_f32", |comm| comm.all_reduce_sum_f32(&mut [0.0; 3], Kind::Gradients)),
    ("all_reduce_sum_f32", |comm| comm.all_reduce_sum_f32(&mut [0.0; 3000], Kind::Gradients)),
    ("all_reduce_sum_f64", |comm| comm.all_reduce_sum_f64(&mut [0.0; 3], Kind::Gradients)),
    ("all_reduce_sum_u64", |comm| comm.all_reduce_sum_u64(&mut [0; 3], Kind::Gradients)),
    ("all_reduce_max_u64", |comm| comm.all_reduce_max_u64(&mut [0; 3], Kind::Gradients)),
    ("a message", |comm| {
        let (next, last) = ((comm.rank() + 1) % comm.size(), (comm.rank() + comm.size() - 1) % comm.size());
        comm.send(next, Tag::new(3), Kind::Features, comm.frame(8))?;
        comm.receive(last, Tag::new(3), Kind::Features).map(drop)
    }),
];

/// An error of the rank itself, not of the exchange.
fn disk_full() -> Error {
    Error::Usage { message: "the disk is full".into(), hint: "make room" }
}

/// On every transport, for every exchange: two rounds of it, but rank 1 of 3 does `instead` the second time.
fn rank_1_does(
    instead: impl Fn() -> Result<(), Error> + Copy + Send + Sync + 'static,
    check: fn(&str, LaunchError<Error>),
) {
    within(60, move || {
        for (name, exchange) in EXCHANGES {
            for config in configs(3) {
                let start = Instant::now();
                let outcome = launch(&config, |comm| {
                    exchange(&comm)?;
                    if comm.rank() == 1 { instead() } else { exchange(&comm).and_then(|()| comm.barrier()) }
                });
                check(name, outcome.expect_err(name));
                assert!(start.elapsed() < Duration::from_secs(5), "{name} took {:?}", start.elapsed());
            }
        }
    });
}

#[test]
fn an_error_of_one_rank_ends_all_in_every_exchange() {
    rank_1_does(
        || Err(disk_full()),
        |name, failure| assert!(is_failure_of(&failure, 1, &disk_full()), "{name}: {failure:?}"),
    );
}

#[test]
fn a_late_error_of_one_rank_wakes_all_that_wait_in_every_exchange() {
    let late = || {
        thread::sleep(Duration::from_millis(30));
        Err(disk_full())
    };
    rank_1_does(late, |name, failure| {
        assert!(is_failure_of(&failure, 1, &disk_full()), "{name}: {failure:?}");
    });
}

#[test]
fn a_panic_of_one_rank_ends_all_in_every_exchange_and_keeps_its_message() {
    rank_1_does(
        || panic!("index {} out of range", 7),
        |name, failure| {
            let here = LaunchError::Panicked { rank: 1, message: "index 7 out of range".into() };
            let elsewhere =
                LaunchError::Aborted { rank: 1, message: "panicked: index 7 out of range".into(), code: 1 };
            assert!(failure == here || in_job() && failure == elsewhere, "{name}: {failure:?}");
        },
    );
}

#[test]
fn an_early_return_of_one_rank_ends_all_in_every_exchange_and_is_named() {
    rank_1_does(
        || Ok(()),
        |name, failure| {
            let text = failure.to_string();
            assert!(text.contains("rank 1 has finished while rank "), "{name}: {text}");
            assert!(text.contains(name) || text.contains("barrier"), "{name}: {text}");
        },
    );
}

#[test]
fn the_other_ranks_are_told_who_failed_and_why() {
    within(10, || {
        for config in configs(4) {
            let heard = std::sync::Mutex::new(Vec::new());
            let outcome = launch(&config, |comm| {
                if comm.rank() == 2 {
                    return Err(disk_full());
                }
                let error = comm.barrier().unwrap_err();
                heard.lock().unwrap().push(error.clone());
                Err(error)
            });
            let outcome: Result<Vec<()>, _> = outcome;
            assert!(is_failure_of(&outcome.unwrap_err(), 2, &disk_full()));
            let (message, heard) = (disk_full().to_string(), heard.into_inner().unwrap());
            assert!(heard.iter().all(|heard| *heard == Error::Aborted { rank: 2, message: message.clone() }));
            assert!(heard.len() == 3 || in_job(), "{heard:?}");
        }
    });
}

/// The word of rank 2 reaches rank 0 behind 64 megabytes, and rank 1 long before that.
#[test]
fn a_rank_that_ends_because_of_another_does_not_take_the_blame() {
    within(20, || {
        for config in configs(3) {
            let outcome = launch(&config, |comm| {
                let tag = Tag::new(3);
                comm.barrier()?;
                match comm.rank() {
                    0 => comm.receive(1, tag, Kind::Features).map(drop),
                    1 => comm.receive(2, tag, Kind::Features).map(drop),
                    _ => {
                        comm.send(0, tag, Kind::Features, comm.frame(64 << 20))?;
                        Err(disk_full())
                    }
                }
            });
            let failure = outcome.unwrap_err();
            assert!(is_failure_of(&failure, 2, &disk_full()), "{failure}");
        }
    });
}

#[test]
fn any_two_different_collectives_that_meet_are_named() {
    within(60, || {
        for (i, (first, one)) in EXCHANGES.iter().enumerate() {
            for (j, (second, other)) in EXCHANGES.iter().enumerate() {
                if i == j || *first == "a message" || *second == "a message" {
                    continue;
                }
                for config in configs(3) {
                    let outcome = launch(&config, |comm| {
                        comm.barrier()?;
                        if comm.rank() == 2 { other(&comm) } else { one(&comm) }
                    });
                    let met = match outcome.expect_err(first) {
                        LaunchError::Failed { error: Error::Mismatch { theirs, ours, .. }, .. } => {
                            vec![theirs, ours]
                        }
                        LaunchError::Aborted { message, .. } if in_job() => {
                            message.split(" in ").map(String::from).collect()
                        }
                        failure => panic!("{first} and {second}: {failure}"),
                    };
                    for name in [format!("{first} #1"), format!("{second} #1")] {
                        assert!(met.iter().any(|text| text.starts_with(&name)), "{met:?}");
                    }
                }
            }
        }
    });
}

#[test]
fn a_mismatch_reads_as_a_sentence() {
    let work = |comm: Comm| {
        comm.enter(Phase { epoch: 3, step: 17, layer: 1, what: "agree" });
        comm.barrier()?;
        if comm.rank() == 0 {
            return comm.barrier();
        }
        comm.all_reduce_sum_f32(&mut [0.0; 12], Kind::Gradients)
    };
    fails_on_all_transports(2, work, |failure| {
        let text = failure.to_string();
        let (zero, one) = ("barrier #1", "all_reduce_sum_f32 #1 of 12 numbers");
        let seen_by_0 =
            format!("rank 0 failed: rank 1 is in {one}, rank 0 in {zero} (phase `agree`, epoch 3");
        let seen_by_1 =
            format!("rank 1 failed: rank 0 is in {zero}, rank 1 in {one} (phase `agree`, epoch 3");
        assert!(text.starts_with(&seen_by_0) || text.starts_with(&seen_by_1), "{text}");
        assert!(text.contains("\n\nhint: every rank must make the same exchanges"), "{text}");
    });
}

#[test]
fn lengths_roots_and_element_sizes_must_agree_too() {
    let works: [fn(Comm) -> Result<(), Error>; 5] = [
        |comm| comm.all_reduce_sum_f32(&mut vec![0.0; 3 + comm.rank() / 2], Kind::Gradients),
        |comm| comm.all_reduce_sum_f32(&mut vec![0.0; 3000 + comm.rank() / 2], Kind::Gradients),
        |comm| comm.broadcast(comm.rank() / 2, &mut [0u8; 3], Kind::Weights),
        |comm| comm.gather(comm.rank() / 2, &[0u8; 3], Kind::Weights).map(drop),
        |comm| match comm.rank() {
            2 => comm.all_gather(&[0u8; 4], Kind::Control).map(drop),
            _ => comm.all_gather(&[0u32; 1], Kind::Control).map(drop),
        },
    ];
    for work in works {
        fails_on_all_transports(3, work, |failure| {
            let here = matches!(failure, LaunchError::Failed { error: Error::Mismatch { .. }, .. });
            let told =
                failure.to_string().contains("every rank must make the same exchanges in the same order");
            assert!(here || in_job() && told, "{failure}");
        });
    }
}

#[test]
fn all_to_all_with_a_list_missing_is_refused() {
    let work = |comm: Comm| comm.all_to_all(vec![vec![0u8]; 2 + comm.rank() % 2], Kind::Control).map(drop);
    fails_on_all_transports(3, work, |failure| {
        assert!(failure.to_string().contains("all_to_all on 3 ranks got"), "{failure}");
    });
}

/// Rank 2 is stuck for a while (but not for ever: its thread has to end too).
fn deadline_passes(config: Config, exchange: Exchange) -> String {
    let config = config.with_deadline(Duration::from_millis(200));
    let start = Instant::now();
    let outcome = launch(&config, |comm| {
        comm.enter(Phase { epoch: 3, step: 17, layer: 1, what: "forward" });
        comm.barrier()?;
        if comm.rank() == 2 {
            while comm.check().is_ok() {
                thread::sleep(Duration::from_millis(5));
            }
        }
        exchange(&comm)
    });
    assert!(start.elapsed() < Duration::from_secs(5), "{:?}", start.elapsed());
    outcome.expect_err("the deadline passed").to_string()
}

#[test]
fn a_deadline_says_who_waited_for_whom_and_where() {
    within(20, || {
        for config in configs(3) {
            let text = deadline_passes(config.clone(), |comm| comm.barrier());
            assert!(text.contains(" waited 0."), "{text}");
            assert!(text.contains(" s for rank 2 in barrier #1 "), "{text}");
            assert!(text.contains("(phase `forward`, epoch 3, step 17, layer 1)"), "{text}");
            assert!(text.contains("\n\nhint: rank 2 is slow"), "{text}");

            let waits = |comm: &Comm| comm.receive(2, Tag::new(4).layer(1), Kind::Features).map(drop);
            let text = deadline_passes(config, waits);
            assert!(text.contains("for rank 2 in a message (stream 4, layer 1, forward, #0)"), "{text}");
        }
    });
}

#[test]
fn whoever_gives_up_first_names_the_rank_at_the_end_of_the_chain() {
    within(60, || {
        for _ in 0..10 {
            for config in configs(4) {
                // 0 and 3 wait for 1, which waits for 2, which is stuck.
                let waits = |comm: &Comm| {
                    let peer = if comm.rank() == 1 { 2 } else { 1 };
                    comm.receive(peer, Tag::new(4), Kind::Features).map(drop)
                };
                let text = deadline_passes(config, waits);
                assert!(text.contains("\n\nhint: rank 2 is slow"), "{text}");
                let direct = text.contains("rank 1 waited ") && text.contains(" s for rank 2 in ");
                let behind =
                    text.contains(" s for rank 1 in ") && text.contains(", which waits for rank 2\n");
                assert!(direct || behind, "{text}");
            }
        }
    });
}

#[test]
fn whoever_serves_others_says_whose_word_it_needs_itself() {
    within(60, || {
        for config in configs(4) {
            // 0 and 3 wait for 1, which listens to anyone but cannot go on without 2, which is stuck.
            let waits = |comm: &Comm| {
                if comm.rank() != 1 {
                    return comm.receive(1, Tag::new(4), Kind::Features).map(drop);
                }
                comm.need(Some((2, Instant::now())));
                while comm.receive_any(Tag::new(5), comm.deadline())?.is_none() {}
                Ok(())
            };
            let text = deadline_passes(config, waits);
            assert!(text.contains(" s for rank 1 in "), "{text}");
            assert!(text.contains(", which waits for rank 2\n\nhint: rank 2 is slow"), "{text}");
        }
    });
}

#[test]
fn ranks_that_wait_for_each_other_name_each_other() {
    within(20, || {
        for config in configs(2) {
            let outcome = launch(&config.with_deadline(Duration::from_millis(200)), |comm| {
                comm.receive(1 - comm.rank(), Tag::new(4), Kind::Features).map(drop)
            });
            let text = outcome.expect_err("nobody sends").to_string();
            let speaks = usize::from(text.contains("rank 1 waited "));
            assert!(text.contains(&format!("rank {speaks} waited ")), "{text}");
            assert!(text.contains(&format!(" s for rank {} in ", 1 - speaks)), "{text}");
            assert!(text.contains(&format!(", which waits for rank {speaks}\n")), "{text}");
        }
    });
}

#[test]
fn a_failure_elsewhere_ends_the_wait_for_whoever_speaks() {
    within(20, || {
        for config in configs(4) {
            let heard = std::sync::Mutex::new(Vec::new());
            let outcome = launch(&config, |comm| {
                let tag = Tag::new(3);
                comm.barrier()?;
                if comm.rank() == 2 {
                    thread::sleep(Duration::from_millis(30));
                    return Err(disk_full());
                }
                let hears = || comm.receive_any(tag, Duration::from_secs(3600)).map(drop);
                let waits = || comm.receive(2, tag.layer(1), Kind::Features).map(drop);
                let error = match comm.rank() {
                    0 => hears(),
                    1 => {
                        comm.send(1, tag, Kind::Features, comm.frame(0))?;
                        waits().or_else(|_| hears())
                    }
                    _ => thread::scope(|scope| {
                        let waiting = scope.spawn(waits);
                        hears().or_else(|_| waiting.join().unwrap())
                    }),
                };
                let error = error.expect_err("a message came, or hid the failure");
                heard.lock().unwrap().push(error.clone());
                Err::<(), _>(error)
            });
            assert!(is_failure_of(&outcome.unwrap_err(), 2, &disk_full()));
            let (message, heard) = (disk_full().to_string(), heard.into_inner().unwrap());
            assert!(heard.iter().all(|heard| *heard == Error::Aborted { rank: 2, message: message.clone() }));
            assert!(heard.len() == 3 || in_job(), "{heard:?}");
        }
    });
}

#[test]
fn nobody_waits_for_whoever_speaks_beyond_the_deadline_and_may_say_then_whose_answer_is_overdue() {
    within(20, || {
        for config in configs(2) {
            let outcome = launch(&config.with_deadline(Duration::from_millis(200)), |comm| {
                comm.enter(Phase { epoch: 1, step: 2, layer: 0, what: "sample" });
                let start = Instant::now();
                assert_eq!(comm.deadline(), Duration::from_millis(200));
                if comm.rank() == 0 {
                    assert!(comm.receive_any(Tag::new(3), Duration::from_secs(3600))?.is_none());
                    assert!(start.elapsed() >= comm.deadline());
                    return Err(comm.overdue(1, &"an answer", start));
                }
                while comm.check().is_ok() {
                    thread::sleep(Duration::from_millis(5));
                }
                comm.check()
            });
            let text = outcome.expect_err("the answer is overdue").to_string();
            assert!(text.contains("rank 0 waited 0."), "{text}");
            assert!(text.contains(" s for rank 1 in an answer (phase `sample`, epoch 1, step 2"), "{text}");
        }
    });
}

#[test]
fn a_deadline_longer_than_any_clock_is_no_deadline() {
    within(10, || {
        let config = Config::threads(2).with_deadline(Duration::MAX);
        launch(&config, |comm| comm.barrier()).unwrap();
    });
}

#[test]
fn unequal_work_is_waited_for_and_unequal_counts_of_exchanges_are_not() {
    crate::support::on_all_transports(3, |comm| {
        for round in 0..10 {
            thread::sleep(Duration::from_millis((comm.rank() * 5) as u64));
            let mut sum = [round];
            comm.all_reduce_sum_u64(&mut sum, Kind::Control)?;
            assert_eq!(sum, [3 * round]);
        }
        Ok(())
    });
    let work = |comm: Comm| (0..5 + comm.rank()).try_for_each(|_| comm.barrier());
    fails_on_all_transports(3, work, |failure| {
        assert!(failure.to_string().contains("rank 0 has finished while rank "), "{failure}");
    });
}

#[test]
fn a_failure_that_a_rank_hides_is_told_nevertheless() {
    let work = |comm: Comm| {
        if comm.rank() == 0 {
            comm.abort("out of patience");
        } else {
            let _ = comm.barrier();
        }
        Ok(())
    };
    fails_on_all_transports(2, work, |failure| {
        let message = "out of patience".into();
        assert_eq!(failure, LaunchError::Aborted { rank: 0, message, code: 1 });
    });
}

#[test]
fn a_single_rank_fails_like_any_other() {
    fails_on_all_transports(
        1,
        |_| Err(disk_full()),
        |failure| {
            assert_eq!(failure, LaunchError::Failed { rank: 0, error: disk_full() });
        },
    );
    fails_on_all_transports(
        1,
        |_| panic!("alone"),
        |failure| {
            assert_eq!(failure, LaunchError::Panicked { rank: 0, message: "alone".into() });
            assert!(failure.to_string().starts_with("rank 0 panicked: alone"));
        },
    );
    let work = |comm: Comm| comm.receive(0, Tag::new(0), Kind::Control).map(drop);
    within(10, move || {
        let config = Config::default().with_deadline(Duration::from_millis(50));
        let text = launch(&config, work).unwrap_err().to_string();
        assert!(text.contains("s for rank 0 in a message (stream 0, layer 0, forward, #0)"), "{text}");
    });
}

#[test]
fn sending_after_a_failure_elsewhere_fails_too() {
    let work = |comm: Comm| {
        if comm.rank() == 1 {
            return Err(disk_full());
        }
        loop {
            comm.send(1, Tag::new(0), Kind::Control, comm.frame(0))?;
            thread::sleep(Duration::from_millis(1));
        }
    };
    fails_on_all_transports(2, work, |failure| {
        assert!(is_failure_of(&failure, 1, &disk_full()), "{failure:?}");
    });
}
