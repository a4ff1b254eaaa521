//! Messages between two ranks, on every transport of this build.

use crate::support::{fails_on_all_transports, noise, on_all_transports, within};
use archipelago_comm::transport::TRANSPORTS;
use archipelago_comm::{Comm, Config, Error, Frame, Kind, LaunchError, Tag, launch};
use std::time::{Duration, Instant};

const TAG: Tag = Tag::new(1);

/// Longer than any watchdog: who waits this long was not woken.
const LONG: Duration = Duration::from_secs(3600);

fn filled(comm: &Comm, values: &[u32]) -> Frame {
    let mut frame = comm.frame(4 * values.len());
    frame.values_mut().copy_from_slice(values);
    frame
}

#[test]
fn an_empty_message_arrives() {
    on_all_transports(2, |comm| {
        let peer = 1 - comm.rank();
        comm.send(peer, TAG, Kind::Features, comm.frame(0))?;
        assert!(comm.receive(peer, TAG, Kind::Features)?.is_empty());
        let meter = comm.meters()[Kind::Features];
        assert_eq!((meter.bytes_sent, meter.messages_sent), (0, 1));
        Ok(())
    });
}

#[test]
fn a_message_to_oneself_arrives_and_is_not_counted() {
    for ranks in [1, 3] {
        on_all_transports(ranks, |comm| {
            comm.send(comm.rank(), TAG, Kind::Features, filled(comm, &[7, 8]))?;
            assert_eq!(comm.receive(comm.rank(), TAG, Kind::Features)?.values::<u32>(), [7, 8]);
            assert_eq!(comm.meters().total().messages_sent, 0);
            Ok(())
        });
    }
}

#[test]
fn everybody_may_send_64_megabytes_before_anybody_receives() {
    const WORDS: usize = 16 << 20;
    on_all_transports(3, |comm| {
        let (next, last) = ((comm.rank() + 1) % 3, (comm.rank() + 2) % 3);
        let mut frame = comm.frame(4 * WORDS);
        let mark = |rank: usize, i: usize| (rank << 28 | i) as u32;
        frame.values_mut().iter_mut().enumerate().for_each(|(i, x)| *x = mark(comm.rank(), i));
        comm.send(next, TAG, Kind::Embeddings, frame)?;
        comm.barrier()?;
        let heard = comm.receive_exact(last, TAG, Kind::Embeddings, 4 * WORDS)?;
        assert!(heard.values::<u32>().iter().enumerate().all(|(i, &x)| x == mark(last, i)));
        assert_eq!(comm.meters()[Kind::Embeddings].bytes_sent, 4 * WORDS as u64);
        Ok(())
    });
}

#[test]
fn messages_are_received_by_tag_in_any_order_and_within_a_tag_in_the_order_sent() {
    on_all_transports(3, |comm| {
        let tag = |t: u32| Tag::new(2).layer(t as u8 % 3).sequence(u64::from(t)).backward();
        for peer in 0..3 {
            for i in 0..5 {
                for t in 0..6 {
                    comm.send(peer, tag(t), Kind::Gradients, filled(comm, &[comm.rank() as u32, t, i]))?;
                }
            }
        }
        let mut order: Vec<u32> = (0..6).collect();
        order.sort_by_key(|&t| noise(comm.rank(), t as usize));
        for t in order {
            for peer in [2, 0, 1] {
                for i in 0..5 {
                    let frame = comm.receive(peer, tag(t), Kind::Gradients)?;
                    assert_eq!(frame.values::<u32>(), [peer as u32, t, i]);
                }
            }
        }
        Ok(())
    });
}

#[test]
fn messages_and_collectives_do_not_mix() {
    on_all_transports(4, |comm| {
        for round in 0..50 {
            for peer in 0..4 {
                comm.send(peer, TAG.sequence(round), Kind::Features, filled(comm, &[round as u32]))?;
            }
            let mut sum = [1];
            comm.all_reduce_sum_u64(&mut sum, Kind::Control)?;
            assert_eq!(sum, [4]);
            for peer in 0..4 {
                let frame = comm.receive(peer, TAG.sequence(round), Kind::Features)?;
                assert_eq!(frame.values::<u32>(), [round as u32]);
            }
        }
        Ok(())
    });
}

#[test]
fn a_rank_may_receive_on_several_threads() {
    on_all_transports(2, |comm| {
        let peer = 1 - comm.rank();
        std::thread::scope(|scope| {
            let receive = |t: u8| move || comm.receive(peer, Tag::new(t), Kind::Features);
            let waiting: Vec<_> = (0..4).map(|t| scope.spawn(receive(t))).collect();
            for t in (0..4).rev() {
                comm.send(peer, Tag::new(t), Kind::Features, filled(comm, &[u32::from(t)]))?;
            }
            for (t, thread) in waiting.into_iter().enumerate() {
                assert_eq!(thread.join().unwrap()?.values::<u32>(), [t as u32]);
            }
            Ok(())
        })
    });
}

#[test]
fn messages_of_whichever_rank_are_received_as_they_come_and_those_of_one_in_the_order_sent() {
    on_all_transports(4, |comm| {
        for i in 0..25 {
            for peer in (0..4).rev() {
                comm.send(peer, TAG, Kind::Features, filled(comm, &[comm.rank() as u32, i]))?;
            }
        }
        let mut heard = [0; 4];
        for _ in 0..100 {
            let (from, frame) = comm.receive_any(TAG, LONG)?.unwrap();
            assert_eq!(frame.values::<u32>(), [from as u32, heard[from]]);
            heard[from] += 1;
        }
        assert_eq!(heard, [25; 4]);
        comm.barrier()?;
        assert!(comm.receive_any(TAG, Duration::ZERO)?.is_none());
        Ok(())
    });
}

#[test]
fn a_rank_that_waits_for_whoever_speaks_is_woken_by_each() {
    on_all_transports(3, |comm| {
        for speaker in 0..3 {
            if comm.rank() == speaker {
                std::thread::sleep(Duration::from_millis(20));
                (0..3).try_for_each(|peer| comm.send(peer, TAG, Kind::Features, comm.frame(0)))?;
            }
            assert_eq!(comm.receive_any(TAG, LONG)?.unwrap().0, speaker);
            comm.barrier()?;
        }
        Ok(())
    });
}

#[test]
fn nobody_is_heard_after_patience_and_later_messages_are() {
    on_all_transports(2, |comm| {
        let (start, patience) = (Instant::now(), Duration::from_millis(30));
        assert!(comm.receive_any(TAG, patience)?.is_none());
        assert!(start.elapsed() >= patience);
        comm.send(comm.rank(), TAG, Kind::Features, filled(comm, &[3]))?;
        let (from, frame) = comm.receive_any(TAG, Duration::ZERO)?.expect("what is there needs no patience");
        assert_eq!((from, frame.values::<u32>()), (comm.rank(), &[3][..]));
        comm.barrier()?;
        comm.send(1 - comm.rank(), TAG, Kind::Features, filled(comm, &[4]))?;
        let (from, frame) = comm.receive_any(TAG, Duration::MAX)?.unwrap();
        assert_eq!((from, frame.values::<u32>()), (1 - comm.rank(), &[4][..]));
        Ok(())
    });
}

#[test]
fn who_receives_from_anyone_leaves_other_tags_alone() {
    let others = [TAG.layer(1), TAG.sequence(1), TAG.backward(), Tag::new(2)];
    on_all_transports(3, move |comm| {
        for peer in 0..3 {
            for i in 0..4 {
                for (tag, mark) in others.into_iter().zip(1..) {
                    comm.send(peer, tag, Kind::Features, filled(comm, &[mark, i]))?;
                }
                comm.send(peer, TAG, Kind::Features, filled(comm, &[0, i]))?;
            }
        }
        for _ in 0..12 {
            let (_, frame) = comm.receive_any(TAG, LONG)?.unwrap();
            assert_eq!(frame.values::<u32>()[0], 0);
        }
        assert!(comm.receive_any(TAG, Duration::from_millis(5))?.is_none());
        for (tag, mark) in others.into_iter().zip(1..) {
            for peer in 0..3 {
                for i in 0..4 {
                    assert_eq!(comm.receive(peer, tag, Kind::Features)?.values::<u32>(), [mark, i]);
                }
            }
        }
        Ok(())
    });
}

#[test]
fn a_rank_may_serve_whoever_asks_while_it_waits_for_answers_itself() {
    const ROUNDS: u32 = 50;
    let (ask, answer) = (Tag::new(5), Tag::new(6));
    on_all_transports(3, move |comm| {
        std::thread::scope(|scope| {
            let serving = scope.spawn(|| {
                for _ in 0..3 * ROUNDS {
                    let (from, asked) = comm.receive_any(ask, LONG)?.unwrap();
                    let number = asked.values::<u32>()[0];
                    comm.send(from, answer, Kind::Features, filled(comm, &[10 * number + from as u32]))?;
                }
                Ok(())
            });
            for number in 0..ROUNDS {
                for peer in 0..3 {
                    comm.send(peer, ask, Kind::Features, filled(comm, &[number]))?;
                }
                for peer in 0..3 {
                    let heard = comm.receive(peer, answer, Kind::Features)?;
                    assert_eq!(heard.values::<u32>(), [10 * number + comm.rank() as u32]);
                }
            }
            serving.join().unwrap()
        })
    });
}

#[test]
fn ranks_that_have_finished_do_not_end_the_wait_for_whoever_speaks() {
    on_all_transports(3, |comm| {
        match comm.rank() {
            0 => {
                let mut heard: Vec<usize> = Vec::new();
                while heard.len() < 2 {
                    heard.extend(comm.receive_any(TAG, LONG)?.map(|(from, _)| from));
                }
                heard.sort_unstable();
                assert_eq!(heard, [1, 2]);
                assert!(comm.receive_any(TAG, Duration::from_millis(30))?.is_none());
                return Ok(());
            }
            2 => std::thread::sleep(Duration::from_millis(50)),
            _ => {}
        }
        comm.send(0, TAG, Kind::Features, comm.frame(0))
    });
}

#[test]
fn what_a_finished_rank_has_sent_can_still_be_received() {
    on_all_transports(2, |comm| {
        if comm.rank() == 1 {
            return comm.send(0, TAG, Kind::Features, filled(comm, &[5]));
        }
        std::thread::sleep(Duration::from_millis(50));
        assert_eq!(comm.receive(1, TAG, Kind::Features)?.values::<u32>(), [5]);
        Ok(())
    });
}

#[test]
fn a_message_of_the_wrong_size_is_refused_by_name() {
    let work = |comm: Comm| {
        let peer = 1 - comm.rank();
        comm.send(peer, TAG.layer(2), Kind::Features, comm.frame(4 * comm.rank()))?;
        comm.receive_exact(peer, TAG.layer(2), Kind::Features, 0).map(drop)?;
        comm.barrier()
    };
    fails_on_all_transports(2, work, |failure| {
        assert_eq!(
            failure.to_string(),
            "rank 0 failed: message (stream 1, layer 2, forward, #0) from rank 1 to rank 0 (phase `start`, \
             epoch 0, step 0, layer 0): expected 0 bytes, found 4"
        );
    });
}

#[test]
fn a_rank_that_does_not_exist_is_refused_by_name() {
    let sends = |comm: Comm| comm.send(2, TAG, Kind::Features, comm.frame(0));
    let receives = |comm: Comm| comm.receive(2, TAG, Kind::Features).map(drop);
    let gathers = |comm: Comm| comm.gather(2, &[0u8], Kind::Features).map(drop);
    let broadcasts = |comm: Comm| comm.broadcast(2, &mut [0u8], Kind::Features);
    for work in [sends, receives, gathers, broadcasts] as [fn(Comm) -> Result<(), Error>; 4] {
        fails_on_all_transports(2, work, |failure| {
            let text = failure.to_string();
            assert!(text.contains("there is no rank 2"), "{text}");
        });
    }
}

#[test]
fn a_launch_that_cannot_start_says_why() {
    within(10, || {
        let refused = |config: &Config| match launch(config, |_| Ok::<_, Error>(())) {
            Err(LaunchError::Start(error)) => error.to_string(),
            other => panic!("{other:?}"),
        };
        assert!(refused(&Config::threads(0)).starts_with("expected at least 1 rank, found `0`"));
        assert!(
            refused(&Config::threads(2).with_deadline(Duration::ZERO)).starts_with("expected a deadline")
        );
        let known: Vec<_> =
            TRANSPORTS.iter().filter(|entry| entry.available()).map(|entry| entry.name).collect();
        let known = known.join(", ");
        let pigeons = Config { transport: "pigeons".into(), ..Config::threads(2) };
        assert_eq!(refused(&pigeons), format!("unknown transport `pigeons`; known: {known}"));
    });
}
