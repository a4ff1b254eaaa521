//! How do several threads share one loop? Each takes the next index until there is none; nothing is allocated.
//!
//! A loop is a [`Job`] on the stack of the thread that calls for it. The caller posts it on the [`Board`], where
//! helpers find it, takes indices itself, and leaves when no helper is in the job any more. Several threads (the
//! ranks of a process) may call at once; helpers join only while fewer threads are at work than the crew has.

use std::any::Any;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{Builder, JoinHandle, yield_now};

use super::scratch::prepare;

/// How often a thread lets others run before it sleeps: loops follow each other closely, and waking takes longer.
const ROUNDS: usize = 32;

/// Callers at once for which there is room from the start.
const CALLERS: usize = 64;

/// Threads that help those who call; they end with it.
pub(super) struct Crew {
    board: Arc<Board>,
    helpers: Vec<JoinHandle<()>>,
}

impl Crew {
    /// Starts `helpers` threads, or as many as the system gives, and waits until they are ready.
    pub fn new(helpers: usize) -> Self {
        let board = Arc::new(Board::new(helpers + 1));
        let start = |i| {
            let board = Arc::clone(&board);
            Builder::new().name(format!("kernel-{i}")).spawn(move || board.help()).ok()
        };
        let helpers: Vec<JoinHandle<()>> = (0..helpers).map_while(start).collect();
        let mut state = board.lock();
        while state.ready < helpers.len() {
            state = wait(&board.done, state);
        }
        drop(state);
        Self { board, helpers }
    }

    /// How many threads help.
    pub fn helpers(&self) -> usize {
        self.helpers.len()
    }

    /// Calls `body` for `0..count`, in any order, on the calling thread and on helpers that have nothing else to do.
    /// A panic of `body` goes on here once no thread is in `body` any more.
    pub fn for_each(&self, count: usize, body: &(dyn Fn(usize) + Sync)) {
        let job = Job { body, count, next: AtomicUsize::new(0), panic: Mutex::new(None) };
        let posted = self.board.post(&job);
        job.work(|| true);
        // Reached however `body` ends, for `work` catches panics: no helper may outlive `job`.
        self.board.withdraw(posted);
        if let Some(panic) = job.panic.into_inner().unwrap_or_else(PoisonError::into_inner) {
            resume_unwind(panic);
        }
    }
}

impl Drop for Crew {
    fn drop(&mut self) {
        self.board.lock().stop = true;
        self.board.news.notify_all();
        for helper in self.helpers.drain(..) {
            // A helper catches the panics of what it runs and has none of its own.
            let _ = helper.join();
        }
    }
}

impl fmt::Debug for Crew {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Crew({} helpers)", self.helpers.len())
    }
}

/// One loop.
struct Job<'a> {
    body: &'a (dyn Fn(usize) + Sync),
    count: usize,
    /// The index to be taken next; from `count` on there is nothing left.
    next: AtomicUsize,
    /// The first panic of `body`.
    panic: Mutex<Option<Box<dyn Any + Send>>>,
}

impl Job<'_> {
    /// Takes indices until none is left or, before one is taken, `stay` says no. Does not panic.
    fn work(&self, stay: impl Fn() -> bool) {
        let outcome = catch_unwind(AssertUnwindSafe(|| {
            while self.is_open() && stay() {
                match self.next.fetch_add(1, Ordering::Relaxed) {
                    index if index < self.count => (self.body)(index),
                    _ => break,
                }
            }
        }));
        if let Err(panic) = outcome {
            self.next.store(self.count, Ordering::Relaxed);
            self.panic.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(panic);
        }
    }

    fn is_open(&self) -> bool {
        self.next.load(Ordering::Relaxed) < self.count
    }
}

/// A job on the board.
struct Posted {
    job: *const Job<'static>,
    /// Helpers that are in it.
    helpers: usize,
    /// Whether its caller sleeps until they have left.
    awaited: bool,
}

// SAFETY: a `Job` is `Sync` (its body is, the rest are atomics and locks), and it outlives its place on the board.
unsafe impl Send for Posted {}

/// Where callers post jobs and helpers look for them.
struct Board {
    threads: usize,
    state: Mutex<State>,
    /// Wakes helpers: there is a job, or they shall stop.
    news: Condvar,
    /// Wakes those who wait for helpers.
    done: Condvar,
    /// How often there was something for helpers: lets them look without the lock.
    changes: AtomicUsize,
    /// How many threads are in a job, callers and helpers. A hint only: nothing but speed depends on it.
    working: AtomicUsize,
}

struct State {
    jobs: Vec<Posted>,
    sleeping: usize,
    ready: usize,
    stop: bool,
}

impl Board {
    fn new(threads: usize) -> Self {
        let state = State { jobs: Vec::with_capacity(CALLERS), sleeping: 0, ready: 0, stop: false };
        Self {
            threads,
            state: Mutex::new(state),
            news: Condvar::new(),
            done: Condvar::new(),
            changes: AtomicUsize::new(0),
            working: AtomicUsize::new(0),
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Offers `job` to helpers. The caller must [`withdraw`](Self::withdraw) it before `job` ends.
    fn post(&self, job: &Job<'_>) -> *const Job<'static> {
        let posted = (&raw const *job).cast();
        let mut state = self.lock();
        state.jobs.push(Posted { job: posted, helpers: 0, awaited: false });
        let free = self.threads.saturating_sub(self.working.fetch_add(1, Ordering::Relaxed) + 1);
        let wanted = free.min(job.count - 1).min(state.sleeping);
        // Under the lock, so that a helper either sees it before it sleeps or is counted among the sleeping.
        self.changes.fetch_add(1, Ordering::Relaxed);
        drop(state);
        for _ in 0..wanted {
            self.news.notify_one();
        }
        posted
    }

    /// Takes `job` off the board when no helper is in it any more.
    fn withdraw(&self, job: *const Job<'static>) {
        self.working.fetch_sub(1, Ordering::Relaxed);
        let mut round = 0;
        let mut state = self.lock();
        while let Some(place) = state.place(job) {
            if state.jobs[place].helpers == 0 {
                state.jobs.swap_remove(place);
                self.call_back(&state);
                return;
            }
            round += 1;
            if round < ROUNDS {
                drop(state);
                yield_now();
                state = self.lock();
            } else {
                state.jobs[place].awaited = true;
                state = wait(&self.done, state);
            }
        }
    }

    /// A thread less is at work: a helper that had made room for it may go on with a job that others have on the board.
    fn call_back(&self, state: &State) {
        // SAFETY: what is on the board has not ended; see `post`.
        if state.jobs.iter().any(|posted| unsafe { &*posted.job }.is_open()) {
            self.changes.fetch_add(1, Ordering::Relaxed);
            if state.sleeping > 0 && self.working.load(Ordering::Relaxed) < self.threads {
                self.news.notify_one();
            }
        }
    }

    /// What a helper does from its start to its end.
    fn help(&self) {
        prepare();
        let mut state = self.lock();
        state.ready += 1;
        self.done.notify_all();
        while !state.stop {
            state = match self.join(&mut state) {
                Some(job) => {
                    drop(state);
                    // SAFETY: the job is on the board with a helper in it, so its caller is still in `withdraw` or
                    // has yet to come there, and `Crew::for_each` keeps the job until `withdraw` returns.
                    unsafe { &*job }.work(|| self.working.load(Ordering::Relaxed) <= self.threads);
                    self.working.fetch_sub(1, Ordering::Relaxed);
                    self.leave(job)
                }
                None => self.rest(state),
            };
        }
    }

    /// Enters a job that has indices left, if another thread may work.
    fn join(&self, state: &mut State) -> Option<*const Job<'static>> {
        if self.working.load(Ordering::Relaxed) >= self.threads {
            return None;
        }
        // SAFETY: what is on the board has not ended; see `post`.
        let posted = state.jobs.iter_mut().find(|posted| unsafe { &*posted.job }.is_open())?;
        posted.helpers += 1;
        self.working.fetch_add(1, Ordering::Relaxed);
        Some(posted.job)
    }

    /// Leaves a job, which may end as soon as the lock is free: the job itself is not touched here.
    fn leave(&self, job: *const Job<'static>) -> MutexGuard<'_, State> {
        let mut state = self.lock();
        if let Some(place) = state.place(job) {
            let posted = &mut state.jobs[place];
            posted.helpers -= 1;
            if posted.helpers == 0 && posted.awaited {
                self.done.notify_all();
            }
        }
        state
    }

    /// Returns when there may be something to do: soon after a change, or at the end.
    fn rest<'a>(&'a self, state: MutexGuard<'a, State>) -> MutexGuard<'a, State> {
        let seen = self.changes.load(Ordering::Relaxed);
        drop(state);
        for _ in 0..ROUNDS {
            if self.changes.load(Ordering::Relaxed) != seen {
                return self.lock();
            }
            yield_now();
        }
        let mut state = self.lock();
        // Whoever changed something before the lock was taken saw nobody sleep: look once more.
        if state.stop || self.changes.load(Ordering::Relaxed) != seen {
            return state;
        }
        state.sleeping += 1;
        state = wait(&self.news, state);
        state.sleeping -= 1;
        state
    }
}

impl State {
    fn place(&self, job: *const Job<'static>) -> Option<usize> {
        self.jobs.iter().position(|posted| posted.job == job)
    }
}

fn wait<'a>(news: &Condvar, state: MutexGuard<'a, State>) -> MutexGuard<'a, State> {
    news.wait(state).unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicBool;
    use std::time::Duration;

    use super::*;

    /// The sum of `0..count`, index by index, on the crew.
    fn sum(crew: &Crew, count: usize) -> usize {
        let sum = AtomicUsize::new(0);
        crew.for_each(count, &|i| {
            sum.fetch_add(i, Ordering::Relaxed);
        });
        sum.into_inner()
    }

    #[test]
    fn many_callers_get_all_their_indices_again_and_again() {
        let crew = Crew::new(3);
        std::thread::scope(|scope| {
            for caller in 0..5 {
                let crew = &crew;
                scope.spawn(move || {
                    for round in 0..2000 {
                        let count = 2 + (round * 7 + caller) % 40;
                        assert_eq!(sum(crew, count), count * (count - 1) / 2);
                    }
                });
            }
        });
        assert!(crew.board.lock().jobs.is_empty());
        assert_eq!(crew.board.working.load(Ordering::Relaxed), 0);
    }

    #[test]
    fn helpers_work_while_the_caller_does() {
        let crew = Crew::new(2);
        let (here, all) = (AtomicUsize::new(0), Mutex::new(std::collections::HashSet::new()));
        // Ends only when three threads are in the loop at the same time.
        crew.for_each(3, &|_| {
            here.fetch_add(1, Ordering::SeqCst);
            while here.load(Ordering::SeqCst) < 3 {
                yield_now();
            }
            all.lock().unwrap().insert(std::thread::current().id());
        });
        assert_eq!(all.into_inner().unwrap().len(), 3);
    }

    #[test]
    fn a_helper_that_made_room_comes_back_to_a_loop_that_goes_on() {
        let crew = Crew::new(1);
        let (begun, alone, helped) = (AtomicBool::new(false), AtomicBool::new(false), AtomicBool::new(false));
        let step = Duration::from_millis(1);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let caller = std::thread::current().id();
                crew.for_each(3000, &|_| {
                    begun.store(true, Ordering::SeqCst);
                    if std::thread::current().id() != caller && alone.load(Ordering::SeqCst) {
                        helped.store(true, Ordering::SeqCst);
                    }
                    if !helped.load(Ordering::SeqCst) {
                        std::thread::sleep(step);
                    }
                });
            });
            while !begun.load(Ordering::SeqCst) {
                yield_now();
            }
            // Two callers are as many as may work: the helper leaves, and falls asleep.
            crew.for_each(2, &|_| std::thread::sleep(50 * step));
            alone.store(true, Ordering::SeqCst);
        });
        assert!(helped.into_inner(), "the loop ended without help");
    }

    #[test]
    fn a_loop_in_a_loop_ends() {
        let crew = Crew::new(2);
        let total = AtomicUsize::new(0);
        crew.for_each(20, &|_| {
            total.fetch_add(sum(&crew, 30), Ordering::Relaxed);
        });
        assert_eq!(total.into_inner(), 20 * 435);
    }

    #[test]
    fn a_panic_comes_to_the_caller_and_the_crew_goes_on() {
        let crew = Crew::new(2);
        for bad in [0, 17, 63] {
            let outcome = catch_unwind(AssertUnwindSafe(|| {
                crew.for_each(64, &|i| {
                    assert!(i != bad, "index {i}");
                });
            }));
            let message = outcome.unwrap_err().downcast::<String>().unwrap();
            assert_eq!(*message, format!("index {bad}"));
            assert_eq!(sum(&crew, 100), 4950);
        }
    }

    #[test]
    fn a_crew_without_helpers_works_alone() {
        assert_eq!(sum(&Crew::new(0), 10), 45);
    }
}
